"""What becomes of lines on their way to an engine and back."""

import logging
import shutil

import pytest
from helpers.echo import Echo
from helpers.messages import message
from helpers.tiny import demo_pairs, renew_sums
from helpers.untrained import LONG_LINES

from transformer_mt.base.errors import ConfigError, TranslationError
from transformer_mt.base.languages import EOS
from transformer_mt.decoding.engine import WITH_SCORES, Engine
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.decoding.translation import Translation
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.text.training_lines import TrainingLines

SENTENCES = [source for source, _ in demo_pairs(6)]


@pytest.fixture
def echo(translator):
    """A function that makes a Translator whose engine echoes."""

    def make(max_positions=1000, longest_part=None):
        whole_lines = DecodingConfig(split_sentences="never")
        return Translator(Echo(max_positions), translator.tokenizer, whole_lines, LONG_LINES, longest_part)

    return make


def test_a_translation_has_its_text_pieces_score_and_log_probability(echo):
    [[only], [blank]] = echo().translations(["The dog sleeps.", " "])
    assert (only.text, "".join(only.pieces)) == ("The dog sleeps.", "▁The▁dog▁sleeps.")
    assert (only.score, only.log_prob, only.alignment) == (-1.0, -float(len(only.pieces) + 1), None)
    assert blank == Translation("", 0.0, 0.0, [], [])


def test_n_best_are_as_many_and_a_blank_line_has_one(echo):
    found = echo().translations(["The dog sleeps.", ""], n_best=3)
    assert [len(translations) for translations in found] == [3, 1]
    assert [translation.score for translation in found[0]] == [-1.0, -2.0, -3.0]
    assert echo().translate(["The dog sleeps."], DecodingConfig(n_best=3)) == ["The dog sleeps."]


def test_each_sentence_has_its_prefix_and_its_number(echo):
    translator = echo()
    lines, prefixes = ["A dog", "", "A house", "He"], ["", "not used", "Ein", "Er"]
    found = translator.translations(lines, prefixes=prefixes, first_line=11)
    assert [translations[0].text for translations in found] == ["A dog", "", "Ein A house", "Er He"]
    assert [sentence.number for sentence in translator.engine.sentences] == [11, 13, 14]


def test_a_prefix_that_is_too_long_names_its_line(echo):
    with pytest.raises(TranslationError, match=message("prefix-too-long", "8", "12")):
        echo(max_positions=12).translations(["A", "A"], prefixes=["a", "dog " * 12], first_line=7)


def test_each_target_word_has_the_source_word_that_most_of_its_pieces_look_at(echo):
    line = "A  wonderful\tgrandmother 🙂 sleeps."
    [[forth, back]] = echo().translations([line], n_best=2, alignment=True)
    words = line.split()
    assert forth.text.split() == words
    assert forth.alignment == [(number, number) for number in range(len(words))]
    assert len(back.alignment) == len(back.text.split())
    assert [target for _, target in back.alignment] == list(range(len(back.alignment)))
    assert [source for source, _ in back.alignment] == sorted((source for source, _ in back.alignment), reverse=True)


ZH = "我喜欢 🙂 IBM 房子。"


@pytest.fixture
def chinese(translator):
    """A function that makes a Translator whose engine echoes text between these languages."""

    def make(source, target, max_positions=1000, longest_part=None):
        engine, tokenizer = Echo(max_positions), translator.tokenizer
        return Translator(engine, tokenizer, DecodingConfig(), LONG_LINES, longest_part, (source, target))

    return make


def test_without_spaces_alignments_are_of_characters(chinese):
    # The tokenizer has seen no Chinese: what it cuts into bytes is one character all the same.
    number = len("".join(ZH.split()))
    [[found]] = chinese("zh-CN", "jpn_Jpan").translations([ZH], alignment=True)
    assert found.text == ZH
    linked = set(found.alignment)
    assert {(i, i) for i in range(number)} <= linked and {target for _, target in linked} == set(range(number))
    i_b_m = "".join(ZH.split()).index("I")
    assert {pair for pair in linked if not i_b_m <= pair[0] < i_b_m + 3} == {
        (i, i) for i in range(number) if not i_b_m <= i < i_b_m + 3
    }


def test_only_the_side_without_spaces_is_of_characters(chinese):
    words, characters = len(ZH.split()), len("".join(ZH.split()))
    [[to_words]] = chinese("zh", "de").translations([ZH], alignment=True)
    assert {target for _, target in to_words.alignment} == set(range(words))
    assert max(source for source, _ in to_words.alignment) >= words
    [[from_words]] = chinese("de", "th").translations([ZH], alignment=True)
    assert [target for _, target in from_words.alignment] == list(range(characters))
    owner = [number for number, word in enumerate(ZH.split()) for _ in word]
    assert [source for source, _ in from_words.alignment] == owner


def test_characters_of_a_line_in_parts_are_numbered_on(chinese):
    line = ZH.replace(" ", "") * 6
    [[whole]] = chinese("zh", "zh").translations([line], alignment=True)
    cut = chinese("zh", "zh", 40, 30)
    [[found]] = cut.translations([line], alignment=True)
    assert len(cut.engine.sentences) > 2
    assert "".join(found.text.split()) == line
    assert {(i, i) for i in range(len(line))} <= set(found.alignment)
    assert max(abs(source - target) for source, target in found.alignment) <= 2
    assert (
        {target for _, target in whole.alignment} == {target for _, target in found.alignment} == set(range(len(line)))
    )


def test_a_model_s_languages_decide_what_alignments_are_of(model_dir, tmp_path):
    copy = shutil.copytree(model_dir, tmp_path / "model")
    config = copy / "config.yaml"
    config.write_text(config.read_text().replace("target_language: de", "target_language: zho_Hans"))
    renew_sums(copy)
    [[words]] = Translator.load(model_dir, "cpu").translations(["A dog sleeps."], alignment=True)
    [[characters]] = Translator.load(copy, "cpu").translations(["A dog sleeps."], alignment=True)
    assert words.text == characters.text
    assert len(words.alignment) == len(words.text.split()) < len(characters.alignment)
    assert len(characters.alignment) == len("".join(words.text.split()))


def test_every_word_of_a_prefix_is_aligned_too(echo):
    [[found]] = echo().translations(["A dog"], prefixes=["Ja ja ja"], alignment=True)
    assert found.text == "Ja ja ja A dog"
    assert found.alignment == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 4)]


class Says(Engine):
    """Translates whatever it is given into these tokens, which look at these positions."""

    def __init__(self, tokens, looked_at):
        super().__init__()
        self.max_positions, self.tokens, self.looked_at = 100, tokens, looked_at

    def translate_unordered(self, sentences, decoding, wanted=WITH_SCORES):
        for number in range(len(sentences)):
            yield [number], [[Hypothesis([*self.tokens, EOS], -1.0, -1.0, self.looked_at)]]

    def score(self, pairs):
        raise AssertionError("not asked for")


def test_pieces_vote_and_of_equals_the_first_counts(translator):
    tokenizer = translator.tokenizer
    source = tokenizer.source_pieces(tokenizer.encode_source(["A dog"])[0])
    a, dog = 0, len(source) - 2
    space, letter = tokenizer.target_ids(["▁", "<0x41>"])
    tokens = [space, letter, letter, space, letter, space, letter, letter]
    engine = Says(tokens, [dog, a, a, dog, a, a, dog, dog])
    [[found]] = Translator(engine, tokenizer, DecodingConfig(), LONG_LINES).translations(["A dog"], alignment=True)
    assert (found.text, found.alignment) == ("AA A AA", [(0, 0), (1, 1), (1, 2)])


def test_words_are_those_of_the_text_whatever_pieces_a_model_writes(translator):
    tokenizer = translator.tokenizer
    space, newline, letter = tokenizer.target_ids(["▁", "<0x0A>", "<0x41>"])
    tokens = [letter, space, space, letter, newline, letter, space]
    engine = Says(tokens, [0, 0, 0, 1, 1, 1, 0])
    [[found]] = Translator(engine, tokenizer, DecodingConfig(), LONG_LINES).translations(["A dog"], alignment=True)
    assert found.text == "A A A"
    assert [target for _, target in found.alignment] == [0, 1, 2]


@pytest.fixture
def long_line():
    return " ".join(SENTENCES)


def test_a_long_line_is_the_join_of_its_sentences(echo, long_line, caplog):
    lengths = [len(ids) for ids in echo().tokenizer.encode_source(SENTENCES)]
    whole = sum(lengths) - len(lengths)
    fits, cut = echo(whole + 1, max(lengths) - 1), echo(whole, max(lengths) - 1)
    [[expected]] = fits.translations([long_line], alignment=True)
    assert len(fits.engine.sentences) == 1 and caplog.messages == []
    [[first], [found]] = cut.translations(["A", long_line], alignment=True, first_line=4)
    assert found.text == expected.text == long_line
    assert (found.pieces, found.alignment) == (expected.pieces, expected.alignment)
    parts = cut.engine.sentences[1:]
    assert 1 < len(parts) <= len(SENTENCES)
    assert {sentence.number % 2**32 for sentence in parts} == {5}
    assert (found.score, found.log_prob) == (-len(parts), -float(sum(len(part.source) for part in parts)))
    [warning] = caplog.records
    assert warning.levelno == logging.WARNING
    assert f"line 5: {whole + 1} subword pieces" in warning.getMessage()
    assert f"in {len(parts)} parts" in warning.getMessage()
    assert first.text == "A"


def test_ranks_of_the_parts_of_a_long_line_are_joined(echo, long_line):
    translator = echo(60, 30)
    [ranks] = translator.translations([long_line], n_best=2, prefixes=["Ja"])
    parts = translator.engine.sentences
    assert [bool(part.prefix) for part in parts] == [True] + [False] * (len(parts) - 1)
    assert [translation.score for translation in ranks] == [-len(parts), -2.0 * len(parts)]
    assert ranks[0].text == f"Ja {long_line}"


def test_a_line_without_spaces_of_any_length_is_translated_whole(echo):
    line = "donaudampfschiff" * 6000 + "日本" * 2000
    translator = echo(64)
    assert translator.translate([line])[0].replace(" ", "") == line
    assert max(len(part.source) for part in translator.engine.sentences) <= 64


def test_no_part_is_longer_than_positions_or_training(model_dir):
    translator = Translator.load(model_dir, "cpu")
    longest = TrainingLines.load(model_dir).most_pieces
    assert (translator.engine.max_positions, translator.cutter.longest) == (1024, longest)
    assert longest < translator.cutter.max_positions


def test_progress_is_told_of_every_sentence(echo):
    told = []
    echo().translations(["A", "", "B"], progress=told.append)
    assert sum(told) == 2


@pytest.mark.thorough
def test_progress_moves_while_a_long_line_is_translated(model_dir):
    told = []
    with Translator.load(model_dir, "cpu", workers=1) as translator:
        settings = DecodingConfig(tokens_per_batch=100)
        translator.translations(["donaudampfschiff" * 200, "A"], settings, beam_size=1, progress=told.append)
    assert len(told) > 2
    assert all(0 < count < 1.9 for count in told)
    assert sum(told) == pytest.approx(2)


@pytest.mark.parametrize("settings", [{"beam_size": 0}, {"n_best": 9}, {"length_penalty": -1.0}])
def test_a_setting_that_is_not_allowed_is_an_error(echo, settings):
    with pytest.raises(ConfigError, match=f"decoding.*{next(iter(settings))}"):
        echo().translations(["A"], **settings)


@pytest.mark.parametrize(
    ("lines", "prefixes", "name"),
    [
        ("A dog.", None, "lines"),
        (b"A dog.", None, "lines"),
        (None, None, "lines"),
        (iter(["A dog."]), None, "lines"),
        (["A dog.", None], None, "lines"),
        ([b"A dog."], None, "lines"),
        (["A", "B"], "AB", "prefixes"),
        (["A", "B"], ["A", None], "prefixes"),
    ],
)
def test_what_is_no_list_of_texts_is_named(echo, lines, prefixes, name):
    with pytest.raises(TypeError, match=f"^{name}: give a list of texts, each a str"):
        echo().translations(lines, prefixes=prefixes)


def test_the_attention_of_what_is_no_text_is_refused(echo):
    with pytest.raises(TypeError, match="source and target: give a list of texts"):
        echo().attention(["A dog."])
    with pytest.raises(TypeError, match="source and target: give a list of texts"):
        echo().attention("A dog.", 1)


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_fewer_than_no_workers_are_refused(model_dir, engine):
    with pytest.raises(TranslationError, match=message("workers-negative", "-1")):
        Translator.load(model_dir, "cpu", engine=engine, workers=-1)


@pytest.mark.parametrize(
    ("decoding", "expected"),
    [
        (DecodingConfig(sampling=True, top_k=501), ("top-k-too-large", "=501", "500")),
        (DecodingConfig(min_length=1024), ("min-length-too-large", "=1024")),
        (DecodingConfig(alignment_layer=3), ("no-such-alignment-layer", "=3", "2")),
    ],
)
def test_a_setting_that_the_model_cannot_follow_is_an_error(translator, decoding, expected):
    with pytest.raises(ConfigError, match=message(*expected)):
        translator.translate(["A dog."], decoding)


def test_a_line_in_capitals_is_read_as_usual_text_and_written_in_capitals(echo):
    lines = ["THE DOG SLEEPS.", "The dog sleeps.", "", "The Dog Sees The House There."]
    translator = echo()
    assert translator.translate(lines) == lines
    texts = [translator.tokenizer.decode_target(each.source) for each in translator.engine.sentences]
    assert texts[0] == texts[1] == "The dog sleeps."
    assert texts[2] == "The dog sees the house there."
    whole = DecodingConfig(split_sentences="never", recase=False)
    translator.translate(lines[:1], whole)
    assert translator.tokenizer.decode_target(translator.engine.sentences[-1].source) == "THE DOG SLEEPS."
    translator.translations(lines[:1], prefixes=["THE"])
    assert translator.tokenizer.decode_target(translator.engine.sentences[-1].source) == "THE DOG SLEEPS."
