"""What a list of terms says stands in the translation, whatever the model."""

import random
import re

import pytest
from helpers.messages import message
from helpers.thorough import thorough
from helpers.tiny import demo_pairs
from helpers.untrained import write_untrained

from transformer_mt import export
from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import KEEP
from transformer_mt.decoding.constrained_search import has_phrases
from transformer_mt.decoding.engine import Sentence, Wanted
from transformer_mt.decoding.protected_lines import translate_protected
from transformer_mt.decoding.translation import Translation
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.text.protection import Protection
from transformer_mt.text.terms import Terms
from transformer_mt.text.tokenizer import Tokenizer

SENTENCES = [source for source, _ in demo_pairs(30)]
TERMS = Terms(
    {
        "doctors": ["Ärzte", "Ärztinnen"],
        "the": ["das"],
        "the dog": ["der alte Hund"],
        "child": ["Kind"],
        "coat": ["Überzieher"],
        "Ω": ["猫的"],
        "today": ["heute noch"],
    }
)
OTHERS = ["the dog", "Ω", "coat", "The coat", "TODAY", "the", "doctors"]


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    """Of models without training, whose translations are arbitrary."""
    pytest.importorskip("ctranslate2")
    directory = tmp_path_factory.mktemp("untrained")
    sources, targets = zip(*demo_pairs(300), strict=True)
    found = {}
    for name, symbols, joint in (("joint", (), True), ("two", KEEP, False)):
        tokenizer = Tokenizer.train(sources, targets, TokenizerConfig(vocab_size=400, joint=joint), symbols)
        model = write_untrained(directory / name, tokenizer, tied_embeddings="all" if joint else "target")
        exported = directory / f"{name} exported"
        export.export(model, exported, "ctranslate2")
        found[name] = Translator.load(model, "cpu", workers=1)
        found[f"{name}, exported"] = Translator.load(exported, "cpu", engine="ctranslate2", workers=1)
    yield found
    for translator in found.values():
        translator.close()


ENGINES = ["joint", "two", "joint, exported", "two, exported"]


def lines_with(seed, number):
    """Lines with up to three more terms anywhere in them."""
    drawn = random.Random(seed)
    for _ in range(number):
        words = drawn.choice(SENTENCES).split()
        for term in drawn.choices(OTHERS, k=drawn.randrange(4)):
            words.insert(drawn.randrange(len(words) + 1), term)
        yield " ".join(words)


def lacks(line, text):
    """The terms of a line that its translation has less often than it must."""
    required = TERMS.required(line)
    either = {tuple(targets): "|".join(map(re.escape, targets)) for targets in required}
    has = {targets: len(re.findall(rf"(?<!\w)(?:{pattern})(?!\w)", text)) for targets, pattern in either.items()}
    has |= {targets: text.count(targets[0]) for targets in has if targets[0] == "猫的"}
    return [targets for targets in has if has[targets] < required.count([*targets])]


@pytest.mark.parametrize("search", [{"beam_size": 2}, *thorough({"beam_size": 4, "n_best": 3, "patience": 0.0})])
@pytest.mark.parametrize("name", ["joint", "two, exported", *thorough("two", "joint, exported")])
def test_each_translation_has_the_terms_of_its_line(translators, name, search):
    decoding, lines = DecodingConfig(max_extra_length=40, **search), list(lines_with(name, 25))
    assert sum(len(TERMS.required(line)) for line in lines) > 30
    for line, found in zip(lines, translators[name].translations(lines, decoding, terms=TERMS), strict=True):
        assert not [each.text for each in found if lacks(line, each.text)], line


@pytest.mark.thorough
@pytest.mark.parametrize("name", ENGINES)
def test_a_line_without_terms_is_translated_as_without_the_list(translators, name):
    lines = ["He sees a house.", *lines_with(2, 6), "", "Peter sold it."]
    translator, decoding = translators[name], DecodingConfig(beam_size=3, n_best=3)
    without, found = translator.translations(lines, decoding), translator.translations(lines, decoding, terms=TERMS)
    alike = [number for number, line in enumerate(lines) if not TERMS.required(line)]
    assert len(alike) >= 3
    assert [found[number] for number in alike] == [without[number] for number in alike]


@pytest.mark.thorough
def test_order_and_batches_do_not_matter(translators):
    lines = list(lines_with(3, 12))
    for name in ("joint", "two"):
        translator, decoding = translators[name], DecodingConfig(beam_size=3, max_extra_length=30)

        def texts(lines, translator=translator, decoding=decoding):
            return [found.text for [found] in translator.translations(lines, decoding, terms=TERMS)]

        together = texts(lines)
        assert together == [text for line in lines for text in texts([line])]
        assert together[::-1] == texts(lines[::-1])


@pytest.mark.thorough
def test_a_translation_that_has_its_terms_anyway_stays(translators):
    engine, decoding = translators["joint"].engine, DecodingConfig(beam_size=4)
    for source in translators["joint"].tokenizer.encode_source(SENTENCES[:8]):
        [[without]] = engine.translate([Sentence(source)], decoding)
        terms = [[without.tokens[:-1], [7]]]
        assert engine.translate([Sentence(source, terms=terms)], decoding) == [[without]]


@pytest.mark.thorough
def test_all_of_several_translations_have_the_terms(translators):
    engine, decoding = translators["joint"].engine, DecodingConfig(beam_size=3, n_best=3)
    [source, *_] = translators["joint"].tokenizer.encode_source(SENTENCES)
    [[first, *_]] = engine.translate([Sentence(source)], decoding)
    terms = [[first.tokens[:-1]]]
    [found] = engine.translate([Sentence(source, terms=terms)], decoding)
    assert all(has_phrases(hypothesis.tokens, terms, engine.ends_word) for hypothesis in found)


def test_hidden_terms_come_back_translated_where_the_model_copies_their_pieces(translators):
    seen = []

    def copying(lines, prefixes, numbers, wanted):
        seen.extend(prefixes)
        units = [[(number, number) for number in range(len(line.split()))] for line in lines]
        return [[Translation(line, -1.0, -1.0, alignment=pairs)] for line, pairs in zip(lines, units, strict=True)]

    translator = translators["two"]
    protection = Protection(translator.tokenizer, terms=TERMS, only_terms=True)
    prefixes = ["Kinder und Kind"]
    wanted = Wanted(alignment=True)
    arguments = [1], wanted, protection, translator.cutter, copying
    [[found]] = translate_protected(["A child and the dog x today y"], prefixes, *arguments)
    assert seen == ["Kinder und <keep1>"]
    assert found.text == "A Kind and der alte Hund x heute noch y"
    assert found.alignment == [(0, 0), (1, 1), (2, 2), (3, 3), (5, 6), (6, 7), (7, 9)]


@pytest.mark.thorough
def test_prefixes_and_protected_texts_keep_their_places(translators):
    line = "The coat of {name} is old, doctors."
    decoding = DecodingConfig(beam_size=3, max_extra_length=40, protect="always")
    [[found]] = translators["two"].translations([line], decoding, terms=TERMS, prefixes=["Ein Überzieher {name}"])
    assert found.text.startswith("Ein Überzieher {name}")
    assert found.text.count("{name}") == found.text.count("Überzieher") == 1
    assert not lacks(line, found.text)
    for name in ENGINES:
        [[found]] = translators[name].translations([line], decoding, terms=TERMS)
        assert found.text.count("{name}") == 1
        assert not lacks(line, found.text)


def test_what_is_not_in_the_list_is_left_to_a_model_without_protection(translators):
    line = "The coat is at https://example.com today."
    decoding = DecodingConfig(beam_size=2, protect="never")
    [[found]] = translators["two, exported"].translations([line], decoding, terms=TERMS)
    assert "https://example.com" not in found.text
    assert not lacks(line, found.text)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ENGINES)
def test_alignments_count_the_words_of_the_line_and_of_the_translation(translators, name):
    line = "The dog and the dog sold a coat today ."
    [[found]] = translators[name].translations([line], DecodingConfig(beam_size=2), terms=TERMS, alignment=True)
    assert found.alignment
    assert all(s < len(line.split()) and t < len(found.text.split()) for s, t in found.alignment)


@pytest.mark.parametrize("search", [{"beam_size": 1}, {"sampling": True}])
def test_other_searches_of_pytorch_are_rejected_and_those_of_ctranslate2_are_not(translators, search):
    with pytest.raises(TranslationError, match=message("terms-need-beam-search")):
        translators["two"].translations(["x"], DecodingConfig(**search), terms=TERMS)
    [[found]] = translators["two, exported"].translations(["The coat."], DecodingConfig(**search), terms=TERMS)
    assert "Überzieher" in found.text


def test_the_candidates_of_minimum_bayes_risk_have_the_terms(translators):
    decoding = DecodingConfig(beam_size=1, mbr_candidates=4)
    [[found]] = translators["joint"].translations(["The old coat."], decoding, terms=TERMS)
    assert "Überzieher" in found.text
