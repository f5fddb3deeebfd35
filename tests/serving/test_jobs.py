"""Jobs of texts: lines, sentences and documents are translated, and all white space stays."""

import random
import time

import pytest
from helpers.echo import Echo
from helpers.messages import message
from helpers.thorough import thorough
from helpers.tiny import demo_pairs
from helpers.untrained import LONG_LINES

from transformer_mt.base.errors import ConfigError, TranslationError
from transformer_mt.decoding.line_parts import Tags
from transformer_mt.decoding.translator import Translator
from transformer_mt.serving.jobs import AT_ONCE, Job, answer, text_of
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.text.terms import Terms

LINES = [source for source, _ in demo_pairs(20)]
TAGS = Tags(("<2de>",), ("<2de>",), True, {"<2de>": ("en", "de")})


@pytest.fixture
def echo(translator):
    """A function that makes a Translator whose engine echoes."""

    def make(languages=("en", "de"), tags=Tags()):  # noqa: B008  it is not changed
        settings = DecodingConfig(), LONG_LINES, None, languages, None, tags
        return Translator(Echo(), translator.tokenizer, *settings)

    return make


def random_text(choose):
    spaces = ["\n", "\r\n", "\n\n  ", "\n\t\n", " ", "  "]
    words = [*LINES, "", "- " + LINES[0], LINES[1] + " " + LINES[2]]
    return "".join(choose.choice(words) + choose.choice(spaces) for _ in range(choose.randrange(6)))


@pytest.mark.parametrize("by_sentence", [False, True])
@pytest.mark.parametrize("seed", [0, *thorough(*range(1, 10))])
def test_white_space_and_line_breaks_of_a_text_stay(seed, by_sentence, echo):
    texts = tuple(random_text(random.Random(f"{seed} {number}")) for number in range(40))
    found = answer(echo(), Job(texts, by_sentence=by_sentence))
    assert len(found) == len(texts)
    for text, sentences in zip(texts, found, strict=True):
        assert "".join(each.space + each.source for each in sentences) == text
        assert text_of(sentences) == text if by_sentence else text_of(sentences).split() == text.split()
        assert sentences and all(each.translations for each in sentences)


def test_sentences_are_translated_one_by_one_if_asked_for(echo):
    text = f" {LINES[0]} {LINES[1]}\n{LINES[2]}"
    [whole], [cut] = answer(echo(), Job((text,))), answer(echo(), Job((text,), by_sentence=True))
    assert [(each.space, each.source) for each in whole] == [(" ", f"{LINES[0]} {LINES[1]}"), ("\n", LINES[2])]
    assert [(each.space, each.source) for each in cut] == [(" ", LINES[0]), (" ", LINES[1]), ("\n", LINES[2])]


def test_between_sentences_is_a_space_as_the_target_language_has_them(echo):
    [into] = answer(echo(("en", "zh")), Job((f"{LINES[0]} {LINES[1]}\n",), by_sentence=True))
    assert text_of(into) == f"{LINES[0]}{LINES[1]}\n"
    [out] = answer(echo(("zh", "en")), Job(("房子。房子。",), by_sentence=True))
    assert [each.space for each in out] == ["", ""]
    assert [each.target_space for each in out] == ["", " "]


def test_n_best_translations_come_with_their_scores_and_a_wide_enough_beam(translator):
    [[sentence]] = answer(translator, Job((LINES[0],), n_best=7))
    [expected] = translator.translations(LINES[:1], beam_size=7, n_best=7)
    assert [(each["text"], each["score"], each["log_prob"]) for each in sentence.translations] == [
        (each.text, each.score, each.log_prob) for each in expected
    ]
    assert len(expected) == 7
    assert text_of([sentence], 6) == expected[6].text
    with pytest.raises(ConfigError, match=r"n_best=3 is more than beam_size=2"):
        answer(translator, Job((LINES[0],), n_best=3, beam_size=2))


def test_a_prefix_belongs_to_the_first_line_of_its_text(echo):
    job = Job((f"\n{LINES[0]} {LINES[1]}\n{LINES[2]}", LINES[3]), prefixes=("Ein", ""), by_sentence=True)
    texts = [text_of(sentences) for sentences in answer(echo(), job)]
    assert texts == [f"\nEin {LINES[0]} {LINES[1]}\n{LINES[2]}", LINES[3]]
    with pytest.raises(TranslationError, match=message("one-prefix-for-each-text", "1", "2")):
        answer(echo(), Job(("a", "b"), prefixes=("c",)))


def test_terms_are_used(translator):
    house = Terms({"house": ["Turm", "Bau"]})
    job = Job(("He sees the house.",), terms=(("house", ("Turm",)), ("house", ("Bau",))))
    [[sentence]] = answer(translator, job)
    assert sentence.translations[0]["text"] == translator.translations(list(job.texts), terms=house)[0][0].text
    with pytest.raises(TranslationError, match=message("no-term-with-translation")):
        answer(translator, Job(("a",), terms=(("", ("b",)),)))


def test_what_is_protected_is_chosen_by_the_job(echo):
    model = echo()
    model.engine.order = lambda items, rank: list(items)[::-1]
    model.decoding = DecodingConfig(protect_pattern="the house", split_sentences="never")
    numbers = [len(model.engine.sentences)]
    for protect in ("never", "always"):
        answer(model, Job(("He sees the house there.",), protect=protect))
        numbers.append(len(model.engine.sentences))
    assert numbers == [0, 1, 4]  # what is protected is lost, so the text is cut there


def test_alignments_count_no_tag(echo):
    translator = echo(tags=TAGS)
    [[sentence]] = answer(translator, Job((LINES[0],), tag="<2de>", alignment=True))
    [plain], words = answer(echo(), Job((LINES[0],), alignment=True))[0], len(LINES[0].split())
    assert plain.translations[0]["alignment"] == [(word, word) for word in range(words)]
    assert {source for source, _ in sentence.translations[0]["alignment"]} <= set(range(words))
    assert "alignment" not in answer(translator, Job((LINES[0],), tag="<2de>"))[0][0].translations[0]
    with pytest.raises(TranslationError, match=message("tag-unknown-to-model", "<2xx>")):
        answer(translator, Job((LINES[0],), tag="<2xx>"))


def test_doubts_are_told(echo):
    [[found]] = answer(echo(), Job(("It has 120 houses, and more.",), prefixes=("Es sind 37",)))
    assert found.translations[0]["doubts"] == ["untranslated", "numbers"]
    assert found.translations[0]["numbers"] == {"missing": [], "invented": ["37"]}


def test_a_document_has_the_doubts_about_all_its_texts(echo):
    model = echo()
    model.engine.order = lambda items, rank: []
    page = "<p>The dog sleeps.</p><p>The dog %s sleeps 37 times.</p><p>42</p>"
    [[never]] = answer(model, Job((page,), form="html", protect="never"))
    [[found]] = answer(model, Job((page,), form="html"))
    assert never.translations[0]["doubts"] == ["empty", "numbers", "placeholders"]
    assert found.translations[0]["doubts"] == ["empty", "numbers"] and "%s" in found.translations[0]["text"]


@pytest.mark.parametrize("form", ["html", "xml"])
def test_a_document_is_translated_as_a_whole(form, echo):
    text = f"<p>{LINES[0]} <b>{LINES[1]}</b></p>"
    [[found]] = answer(echo(), Job((text,), form=form))
    assert found.translations[0]["text"] == text
    assert found.translations[0]["score"] is None
    with pytest.raises(TranslationError, match=message("only-for-plain-text", form)):
        answer(echo(), Job((text,), form=form, n_best=2))


@pytest.mark.parametrize("form", ["text", "html"])
def test_a_large_job_is_translated_in_slices(form, echo, monkeypatch):
    translator, sizes = echo(), []
    begin = translator.engine.translate_unordered
    monkeypatch.setattr(
        translator.engine,
        "translate_unordered",
        lambda sentences, *args: sizes.append(len(sentences)) or begin(sentences, *args),
    )
    lines = [f"{line} {number}" for number in range(10) for line in LINES]
    text = "\n".join(lines if form == "text" else [f"<p>{line}</p>" for line in lines])
    [sentences] = answer(translator, Job((text,), form=form))
    assert text_of(sentences) == text
    assert sizes == [AT_ONCE, AT_ONCE, AT_ONCE, len(lines) - 3 * AT_ONCE]


@pytest.mark.parametrize("form", ["text", "html"])
def test_a_job_ends_when_nobody_waits_for_it_any_more(form, echo):
    text = "<p>A dog.</p>\n" * 2000
    with pytest.raises(TimeoutError):
        answer(echo(), Job((text,) * 20, form=form, until=time.monotonic() + 0.1))
    with pytest.raises(TimeoutError):
        answer(echo(), Job((LINES[0],), form=form, until=time.monotonic() - 1))
