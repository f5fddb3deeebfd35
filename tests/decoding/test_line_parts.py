"""Properties of lines that hold several sentences: none is left out, and single sentences are translated as ever."""

import json
import random
import shutil

import pytest
from helpers.echo import Echo
from helpers.tiny import demo_pairs

from transformer_mt import export, translate
from transformer_mt.decoding.line_parts import together
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.text.training_lines import TrainingLines

SENTENCES = [source for source, _ in demo_pairs(10)]
ONE = TrainingLines(pairs=9, usual_sentences=1, most_sentences=2, usual_pieces=30, most_pieces=60, least_ratio=0.5)


@pytest.fixture
def echo(translator):
    """A function that makes a Translator which echoes, of a model trained on such lines."""

    def make(trained=ONE, max_positions=1000, source_language="en", target_language="de"):
        return Translator(
            Echo(max_positions),
            translator.tokenizer,
            DecodingConfig(),
            languages=(source_language, target_language),
            trained=trained,
        )

    return make


def parts_of(translator, line, **settings):
    """What is translated apart of a line."""
    translator.translate([line], DecodingConfig(**settings))
    return [translator.tokenizer.decode_target(part.source) for part in translator.engine.sentences]


def test_each_sentence_is_translated_apart_where_training_had_one_a_line(echo):
    assert parts_of(echo(), " ".join(SENTENCES)) == SENTENCES


def test_as_many_stay_together_as_were_usual(echo):
    three = ONE.model_copy(update={"usual_sentences": 3, "usual_pieces": 1000})
    assert parts_of(echo(three), " ".join(SENTENCES[:3])) == [" ".join(SENTENCES[:3])]
    found = parts_of(echo(three), " ".join(SENTENCES))
    assert found == [" ".join(SENTENCES[i : i + 3]) for i in range(0, 10, 3)]


def test_a_line_that_is_longer_than_usual_is_split_even_if_its_sentences_are_few(echo):
    lengths = [len(ids) - 1 for ids in echo().tokenizer.encode_source(SENTENCES[:3])]
    few = ONE.model_copy(update={"usual_sentences": 3, "usual_pieces": sum(lengths) - 1})
    assert parts_of(echo(few), " ".join(SENTENCES[:3])) == [" ".join(SENTENCES[:2]), SENTENCES[2]]
    enough = few.model_copy(update={"usual_pieces": sum(lengths)})
    assert parts_of(echo(enough), " ".join(SENTENCES[:3])) == [" ".join(SENTENCES[:3])]


@pytest.mark.parametrize(
    ("lengths", "sentences", "pieces", "groups"),
    [
        ([5, 5, 5], 1, 100, [(0, 1), (1, 2), (2, 3)]),
        ([5, 5, 5], 2, 100, [(0, 2), (2, 3)]),
        ([5, 5, 5], 9, 10, [(0, 2), (2, 3)]),
        ([50, 5, 5, 50], 9, 10, [(0, 1), (1, 3), (3, 4)]),
    ],
)
def test_neighbours_are_together_as_far_as_they_may(lengths, sentences, pieces, groups):
    assert list(together(lengths, sentences, pieces)) == groups


def test_always_and_never(echo):
    two = " ".join(SENTENCES[:2])
    many = ONE.model_copy(update={"usual_sentences": 9, "usual_pieces": 1000})
    assert parts_of(echo(many), two) == [two]
    assert parts_of(echo(many), two, split_sentences="always") == SENTENCES[:2]
    assert parts_of(echo(ONE), two, split_sentences="never") == [two]


def test_translations_are_joined_by_the_lines_own_white_space(echo):
    line = "  A dog.  He runs.\tSo?\u3000Yes. "
    assert echo().translate([line]) == ["  A dog.  He runs. So?\u3000Yes. "]
    assert echo(target_language="zh_Hans").translate([line]) == ["  A dog.He runs.So?Yes. "]
    assert echo().translate(["A dog.He runs."]) == ["A dog. He runs."]
    assert echo(source_language="zh").translate(["一。二。"]) == ["一。 二。"]
    assert echo(source_language="zh", target_language="ja").translate(["一。二。"]) == ["一。二。"]


def test_white_space_and_bullets_around_a_text_stay(echo):
    draw = random.Random(1)
    bullets = ["- ", "* ", "• ", "1. ", "12) ", "a) ", "> ", "## ", "— ", " ", "\t", "\u3000"]
    for _ in range(300):
        start = "".join(draw.choices(bullets, k=draw.randint(0, 4)))
        end = "".join(draw.choices(" \t\u3000", k=draw.randint(0, 2)))
        texts = draw.choices(SENTENCES, k=draw.randint(1, 3))
        translator, line = echo(), start + " ".join(texts) + end
        assert translator.translate([line]) == [line]
        assert [translator.tokenizer.decode_target(part.source) for part in translator.engine.sentences] == texts


@pytest.mark.parametrize("text", ["-5 is cold", "3.5 is it", "a dog - a cat", "ab) is", "2020. is"])
def test_what_is_no_bullet_is_translated(echo, text):
    translator = echo()
    assert translator.translate([text]) == [text]
    assert [part.source for part in translator.engine.sentences] == translator.tokenizer.encode_source([text])


def test_numbers_stay_where_they_may_be_ordinals_and_bullets_where_lines_stay_whole(echo):
    assert parts_of(echo(), "1. a dog") == ["a dog"]
    assert parts_of(echo(source_language="de"), "1. a dog") == ["1. a dog"]
    assert parts_of(echo(source_language="de"), "1) a dog") == ["a dog"]
    assert parts_of(echo(), " - a dog", split_sentences="never") == ["- a dog"]


def test_a_line_feed_at_the_end_of_a_line_stays_out_of_the_translation(echo):
    assert echo().translate([" A dog.\r\n"]) == [" A dog."]


def test_a_prefix_stands_for_the_bullet_too(echo):
    [[found]] = echo().translations([" - A dog. "], prefixes=["- Ein"])
    assert found.text == "- Ein - A dog. "


def test_a_bullet_is_a_word_of_the_alignment(echo):
    line = " - > A dog.  He runs fast."
    [[found]] = echo().translations([line], alignment=True)
    assert found.alignment == [(number, number) for number in range(len(line.split()))]
    [[found]] = echo(source_language="zh", target_language="ja").translations(["1) 一二。三四"], alignment=True)
    assert found.alignment == [(number, number) for number in range(len("1)一二。三四"))]
    [[found]] = echo(source_language="zh").translations(["1) 一二"], alignment=True)
    assert found.alignment == [(0, 0), (2, 1)]


def test_words_are_aligned_across_the_parts(echo):
    line = "A dog.  He runs fast.\tSo it is."
    [[found]] = echo().translations([line], alignment=True)
    assert found.alignment == [(number, number) for number in range(len(line.split()))]
    assert found.num_parts == 3
    [[found]] = echo().translations(["A dog.He runs."], alignment=True)
    assert found.text == "A dog. He runs." and found.alignment == [(0, 0), (1, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("line", ["一二。三四五。六。", "一二。 三四五。　六。"])
def test_characters_are_aligned_across_the_parts_where_there_are_no_spaces(echo, line):
    [[found]] = echo(source_language="zh", target_language="ja").translations([line], alignment=True)
    assert (found.text, found.num_parts) == ("一二。三四五。六。", 3)
    assert found.alignment == [(number, number) for number in range(len(found.text))]


def test_a_prefix_stays_with_as_many_sentences_as_it_has(echo):
    line = "A dog. He runs. So?"
    for prefix, parts in [("Ein", ["A dog.", "He runs.", "So?"]), ("Ein Hund. Er", ["A dog. He runs.", "So?"])]:
        translator = echo()
        [[found]] = translator.translations([line], prefixes=[prefix])
        assert found.text == f"{prefix} {line}"
        assert [translator.tokenizer.decode_target(part.source) for part in translator.engine.sentences] == parts
        assert [part.prefix != [] for part in translator.engine.sentences] == [True] + [False] * (len(parts) - 1)


def test_equal_sentences_of_a_line_have_samples_of_their_own(translator):
    of_model = Translator(
        translator.engine, translator.tokenizer, translator.decoding, languages=("en", "de"), trained=ONE
    )
    sampling = DecodingConfig(sampling=True, temperature=3.0, max_extra_length=3)
    [[three]] = of_model.translations(["The dog. The dog. The dog."], sampling)
    [[first]] = of_model.translations(["The dog."], sampling)
    assert three.num_parts == 3 and three.text.startswith(first.text)
    assert three.text != " ".join([first.text] * 3)


def test_parts_of_a_sentence_that_is_too_long_are_joined_as_the_language_is_written(echo):
    line = "一二三四五六七八九十"
    translator = echo(source_language="zh", target_language="ja", max_positions=12)
    assert translator.translate([line]) == [line]
    assert len(translator.engine.sentences) > 1


def test_ranks_are_joined_and_scores_added(echo):
    [[first, second]] = echo().translations([" ".join(SENTENCES[:3])], n_best=2)
    assert (first.score, second.score, first.num_parts) == (-3.0, -6.0, 3)


def test_progress_is_told_of_lines(echo):
    told = []
    echo().translations([" ".join(SENTENCES), "A", "", " ".join(SENTENCES[:3])], progress=told.append)
    assert sum(told) == 3


class Cuts(Echo):
    """Leaves out all but the first pieces of a sentence, or goes on to the greatest length."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def order(self, items, rank):
        return (list(items) * 200)[: self.kept]


@pytest.mark.parametrize(("kept", "short", "at_limit"), [(3, True, False), (12, False, False), (10**3, False, True)])
def test_what_is_too_short_or_at_its_limit_is_marked(translator, kept, short, at_limit):
    line = "We see this week his lamp."
    num_pieces = len(translator.tokenizer.encode_source([line])[0]) - 1
    assert 8 <= num_pieces <= 24
    engine = Cuts(kept if kept < 100 else num_pieces + 5)
    cuts = Translator(engine, translator.tokenizer, DecodingConfig(max_extra_length=5), trained=ONE)
    [[one]] = cuts.translations([line])
    assert (one.is_short, one.at_limit) == (short, at_limit)
    [[joined]] = cuts.translations([f"Yes. {line}"])
    assert (joined.num_parts, joined.is_short) == (2, short)


@pytest.fixture(params=["torch", "ctranslate2"])
def engine_dir(request, model_dir, tmp_path):
    """An engine's name, and a model for it."""
    if request.param == "torch":
        return "torch", shutil.copytree(model_dir, tmp_path / "model")
    pytest.importorskip("ctranslate2")
    export.main([str(model_dir), str(tmp_path / "exported"), "--format", "ctranslate2"])
    return "ctranslate2", tmp_path / "exported"


@pytest.mark.thorough
def test_ten_joined_sentences_are_translated_as_the_ten_apart_by_either_engine(engine_dir, run_stage, capsys):
    engine, directory = engine_dir
    assert TrainingLines.load(directory).usual_sentences == 1

    def translated(text, *arguments):
        own = ("--engine", engine, "--device=cpu")
        status, output = run_stage(translate.main, text.encode(), directory, *own, *arguments)
        assert status == 0
        return output.decode()

    apart = translated("".join(f"{sentence}\n" for sentence in SENTENCES))
    assert translated(" ".join(SENTENCES)).split("\n")[0] == " ".join(apart.splitlines())
    assert "1 line in" in (said := capsys.readouterr().err) and "1 split into 10 parts" in said
    [whole] = translated(" ".join(SENTENCES), "split_sentences=never").splitlines()
    assert whole != " ".join(apart.splitlines())
    found = json.loads(translated(" ".join(SENTENCES), "--json"))
    assert (found["parts"], found["translation"]) == (10, " ".join(apart.splitlines()))
    # That lines may be split changes nothing for single sentences, not a bit of their scores.
    alone = "".join(f"{sentence}\n" for sentence in SENTENCES)
    known = translated(alone, "--scores")
    assert translated(alone, "--scores", "split_sentences=never") == known
