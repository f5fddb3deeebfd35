"""What must not be translated comes back as it was, exactly once, whatever the model."""

import math
import random
import re
from collections import Counter

import pytest
import torch
from helpers.hostile import time_limit
from helpers.messages import message
from helpers.thorough import thorough
from helpers.tiny import demo_pairs
from helpers.untrained import write_untrained

from transformer_mt import export
from transformer_mt.base.errors import ConfigError
from transformer_mt.base.languages import BOS, EOS, KEEP
from transformer_mt.decoding.constraints import Once
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.search_settings import DecodingConfig, changed
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.text.protection import Protection, knows_pieces
from transformer_mt.text.tokenizer import Tokenizer

SENTENCES = [source for source, _ in demo_pairs(20)]
TEXTS = (
    "https://example.com/a_b?c=1&d=%20#top www.example.org/x x.y+z@mail.example.de {name} {{ count }} ${HOME} $PATH "
    "%s %1$s %(who)s %.2f %zu %-8.3lf %5d %<PRIu64> %Y %name% %(x).1f {:>5} ISO-9001 "
    "x86_64 v1.2.10 B2B Covid19 123456 <keep3> {0:d}"
).split()
TEXTS[TEXTS.index("{{") : TEXTS.index("{{") + 3] = ["{{ count }}"]


@pytest.fixture(scope="module")
def tokenizers():
    def trained(symbols=(), joint=True):
        sources, targets = zip(*demo_pairs(300), strict=True)
        return Tokenizer.train(sources, targets, TokenizerConfig(vocab_size=400, joint=joint), symbols)

    return {"with": trained(KEEP), "two": trained(KEEP, joint=False), "without": trained(), "own": trained(["<v2>"])}


@pytest.fixture(scope="module")
def untrained(tokenizers, tmp_path_factory):
    directory = tmp_path_factory.mktemp("untrained")
    return {
        name: write_untrained(directory / name, tokenizer, tied_embeddings="all" if tokenizer.joint else "target")
        for name, tokenizer in tokenizers.items()
    }


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("form", ["{}", "See {}.", "({}), please", "{}: new!", '"{}"?'])
def test_each_kind_is_found_without_what_stands_around_it(tokenizers, text, form):
    line = form.format(text)
    assert Protection(tokenizers["with"]).cut(line) == [*form.split("{}")[:1], text, *form.split("{}")[1:]]


@pytest.mark.parametrize(
    "line",
    [
        *("It costs 100% of 2,200,112 dollars, or 2.5 million.", "The 20th of May 1990, 10:30, page 7, $5, mid-1990s."),
        *(
            "Half-and-half {not this one} and 5kg, 3D, 100%a.",
            "Das ist z.B. so: A/B; C.",
            "我有5本书。",
            "In der Straße5.",
        ),
        *SENTENCES,
    ],
)
def test_ordinary_text_is_not_protected(tokenizers, line):
    assert Protection(tokenizers["with"]).cut(line) == [line]


def test_a_pattern_adds_texts_and_own_symbols_are_not_touched(tokenizers):
    protection = Protection(tokenizers["own"], "New York|Müller")
    assert protection.cut("<v2> Müller in New York, v2") == ["<v2> ", "Müller", " in ", "New York", ", ", "v2", ""]
    assert not knows_pieces(tokenizers["own"])
    with pytest.raises(ConfigError, match=message("no-regular-expression", "(", "missing )")):
        changed(DecodingConfig(), {"protect_pattern": "("})


def lines_with(seed, number):
    """Lines of random text with what is to be protected anywhere in it, and these texts."""
    drawn = random.Random(seed)
    for _ in range(number):
        words = drawn.choice(SENTENCES).split()
        chosen = drawn.choices(TEXTS, k=drawn.choice([0, 1, 2, 3, 9, 12]))
        for text in chosen:
            at = drawn.randrange(len(words) + 1)
            words[at:at] = [drawn.choice(["{}", "({}),", "{}."]).format(text)]
        yield " ".join(words), Counter(chosen)


@pytest.fixture(scope="module")
def engines(untrained, tmp_path_factory):
    """Translators of models without training, whose translations are arbitrary."""
    found = {name: Translator.load(directory, "cpu", workers=1) for name, directory in untrained.items()}
    pytest.importorskip("ctranslate2")
    exported = tmp_path_factory.mktemp("exported") / "model"
    export.export(untrained["with"], exported, "ctranslate2")
    yield found | {"ctranslate2": Translator.load(exported, "cpu", engine="ctranslate2", workers=1)}
    for translator in found.values():
        translator.close()


@pytest.mark.parametrize(
    "search", [{"beam_size": 3, "n_best": 3}, *thorough({"beam_size": 1}, {"sampling": True, "n_best": 2})]
)
@pytest.mark.parametrize("name", ["with", "two", "without", "ctranslate2"])
def test_as_many_come_out_as_go_in_whatever_the_model(engines, name, search):
    decoding = DecodingConfig(protect="always", max_extra_length=20, **search)
    lines, texts = zip(*lines_with(name, 25), strict=True)
    for line, expected, found in zip(lines, texts, engines[name].translations(lines, decoding), strict=True):
        for translation in found:
            assert {text: translation.text.count(text) for text in expected} == expected, (line, translation.text)
            assert not (Counter(re.findall("<keep[1-9]>", translation.text)) - expected)
            assert "\t" not in translation.text


def test_the_search_places_each_piece_once_and_only_rarely_needs_parts(engines):
    lines = [line[-60:] for line, texts in lines_with(1, 60) if 0 < texts.total() < 9]
    found = engines["with"].translations(lines, DecodingConfig(protect="auto", max_extra_length=40))
    assert sum(translations[0].num_parts == 1 for translations in found) > 0.9 * len(lines)


def test_what_may_come_is_what_the_hypothesis_lacks():
    pieces = ["<pad>", "<unk>", "<s>", "</s>", "a", KEEP[1], "b", KEEP[0]]
    once = Once.of(pieces, torch.device("cpu"))
    tokens_AWT = torch.tensor([[[BOS, 4, 7], [BOS, 7, 5]], [[BOS, 4, 4], [BOS, 5, 4]], [[BOS, 4, 4]] * 2])

    def allowed(best, room, inside=None):
        """The pieces that may come next in each of six hypotheses, if the model prefers the piece `best`."""
        scores_AWV = torch.zeros(3, 2, len(pieces))
        scores_AWV[..., best] = 1.0
        wanted_AK = once.wanted([[7, 5], [5], []])
        once.forbid_(scores_AWV, tokens_AWT, wanted_AK, torch.full((3,), room), inside)
        return [{v for v in range(EOS, 8) if row[v] > -math.inf} for rows in scores_AWV for row in rows]

    free = [{4, 5, 6}, {EOS, 4, 6}, {4, 5, 6}, {EOS, 4, 6}, {EOS, 4, 6}, {EOS, 4, 6}]
    now = [{5}, {EOS, 4, 6}, {5}, {EOS, 4, 6}, {EOS, 4, 6}, {EOS, 4, 6}]
    assert allowed(best=4, room=2) == free
    assert allowed(best=EOS, room=2) == allowed(best=4, room=1) == now
    assert allowed(best=EOS, room=2, inside=torch.ones(3, 2, dtype=torch.bool)) == free
    assert once.wanted([[], []]) is None
    assert Once.of(pieces[:5], torch.device("cpu")) is None


def test_alignments_count_the_words_of_the_line_and_of_the_translation(engines):
    line = f"{SENTENCES[0]} (https://example.com) {SENTENCES[1]} {{{{ a b }}}} x"
    for name in ("with", "without"):
        decoding = DecodingConfig(protect="always", max_extra_length=40)
        [[found]] = engines[name].translations([line], decoding, alignment=True)
        words, written = line.split(), found.text.split()
        assert all(s < len(words) and t < len(written) for s, t in found.alignment)
        if name == "without":
            for text in ("(https://example.com)", "{{"):
                assert (words.index(text), written.index(text)) in found.alignment


def test_never_and_auto_leave_the_line_to_the_model(engines):
    line = f"{SENTENCES[0]} {{name}}"
    whole = engines["without"].translations([line], DecodingConfig())
    assert whole == engines["without"].translations([line], DecodingConfig(protect="never"))
    assert whole[0][0].num_parts == 1


def test_a_line_of_protected_texts_alone_is_copied(engines):
    for name in ("with", "without"):
        found = engines[name].translate(["https://example.com", " {a}, {b}! "], DecodingConfig(protect="always"))
        assert found == ["https://example.com", " {a}, {b}! "]


def test_a_prefix_begins_the_translation_and_may_have_protected_texts(engines):
    lines = ["The dog {name} x86_64"] * 2
    decoding = DecodingConfig(protect="always", max_extra_length=40)
    found = engines["with"].translations(lines, decoding, prefixes=["Der Hund {name}", ""])
    assert found[0][0].text.startswith("Der Hund {name}") and found[0][0].text.count("{name}") == 1
    assert all(translations[0].text.count("x86_64") == 1 for translations in found)
    [[without]] = engines["without"].translations(lines[:1], decoding, prefixes=["Der Hund"])
    assert without.text.startswith("Der Hund")


@pytest.mark.parametrize(
    ("line", "protected"),
    [
        ("See https://en.wikipedia.org/wiki/Foo_(bar).", ["https://en.wikipedia.org/wiki/Foo_(bar)"]),
        ("(see HTTPS://EXAMPLE.COM/A), now", ["HTTPS://EXAMPLE.COM/A"]),
        ("请访问https://example.com/a查看详情，谢谢。", ["https://example.com/a"]),  # noqa: RUF001
        ("{ name } has %ld", ["{ name }", "%ld"]),
        ("a..b@x.de, .@x.de", ["a..b@x.de"]),
    ],
)
def test_where_a_protected_text_ends(tokenizers, line, protected):
    assert Protection(tokenizers["with"]).cut(line)[1::2] == protected


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "." * 200_000, "%" + "0" * 200_000, "(" * 50_000, "https://" + "(" * 50_000]
)
def test_a_long_text_takes_no_longer_than_others(tokenizers, text):
    with time_limit(20):
        assert "".join(Protection(tokenizers["with"]).cut(text)) == text


def test_a_prefix_may_have_a_text_that_is_a_part_of_another(tokenizers):
    protection = Protection(tokenizers["with"])
    hidden = protection.hidden(protection.cut("The men like v1 and v1.2."))
    assert hidden.hide("Die v1.2 und v1") == f"Die {KEEP[1]} und {KEEP[0]}"
    assert hidden.hide("v1 v1") == f"{KEEP[0]} v1"


def test_a_blank_prefix_is_none_and_a_pattern_is_reason_enough(engines):
    decoding = DecodingConfig(protect="always", max_extra_length=20)
    [[found]] = engines["without"].translations(["The dog {x} sleeps."], decoding, prefixes=[" "])
    assert found.text.count("{x}") == 1
    [text] = engines["without"].translate(["The dog sleeps."], DecodingConfig(protect_pattern="dog"))
    assert text.count("dog") >= 1
    with pytest.raises(ConfigError, match=message("protect-never-with-pattern")):
        changed(DecodingConfig(), {"protect_pattern": "dog", "protect": "never"})
    with pytest.raises(ConfigError, match=message("no-regular-expression")):
        changed(DecodingConfig(), {"protect_pattern": "(?i)dog"})
