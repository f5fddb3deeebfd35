"""The measures of a text are those of a plain count, and the table fits into a terminal."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.forms import measured, only_training, write_form
from helpers.tiny import demo_pairs

from transformer_mt.corpora.filters import KEPT, REASONS
from transformer_mt.corpora.text_traits import letters_by_script, telling_words
from transformer_mt.preparing.fill_data_dir import open_texts
from transformer_mt.preparing.measured_text import TextMeasures, measure, table
from transformer_mt.settings.text_settings import FiltersConfig
from transformer_mt.text.tokenizer import clean
from transformer_mt.text.training_lines import quantile

ODD = [
    *[("no", "nein"), ("", "nichts"), (" ", ""), ("nothing", "\t"), ("same", "same"), ("a  same", "a same")],
    *[("cafe\u0301 Москва", "café, Москва!"), ("twice", "zweimal"), (" twice", "zweimal "), ("twice", "doppelt")],
    *[
        (12 * "long ", 12 * "lang "),
        ("tea & milk &amp; more", "x &#39; y"),
        ("a , b .", "@-@ @"),
        ("lo@@ w", "▁nie der"),
    ],
]
PAIRS = [*demo_pairs(2300), *ODD, *demo_pairs(30), *ODD]
ALL = FiltersConfig(identical=True, duplicates=True, min_characters=5, max_characters=90, min_script_share=0.5)


def numbers(measures: TextMeasures) -> dict[str, object]:
    """Everything that is measured, apart from the place."""
    names = ("num_read", "num_pairs", "num_different", "num_repeated", "num_equal", "num_usable", "by_reason")
    of_side = "lengths characters num_own_words num_other_words num_tokenised num_in_pieces num_with_entities"
    sides = {"source": measures.source, "target": measures.target}
    return {name: getattr(measures, name) for name in names} | {
        f"{side}.{name}": getattr(of, name)
        for side, of in sides.items()
        for name in [*of_side.split(), "num_different"]
    }


def measures_of(directory: Path, pairs: list[tuple[str, str]], **languages: str) -> TextMeasures:
    return measured(only_training(write_form(directory, "files", pairs), **languages), FiltersConfig())


@pytest.fixture(scope="module")
def measures(tmp_path_factory) -> TextMeasures:
    return measures_of(tmp_path_factory.mktemp("text"), PAIRS)


def test_pairs_are_counted_as_they_are_once_they_are_clean(measures):
    pairs = [(clean(source), clean(target)) for source, target in PAIRS]
    good = [pair for pair in pairs if all(pair)]
    assert measures.num_read == len(PAIRS) and measures.by_reason["blank"] == len(PAIRS) - len(good) == 6
    assert measures.num_pairs == len(good) and measures.num_different == len(set(good))
    assert measures.num_equal == sum(source == target for source, target in good) == 4
    assert measures.source.num_different == len({source for source, _ in good}) < measures.num_different


def test_lengths_are_words_and_shares_of_lines_do_not_exceed_them(measures):
    for side, texts in ((measures.source, [a for a, b in PAIRS]), (measures.target, [b for a, b in PAIRS])):
        kept = [text for text, pair in zip(texts, PAIRS, strict=True) if clean(pair[0]) and clean(pair[1])]
        lengths = sorted(len(text.split()) for text in kept)
        assert side.mean_length == pytest.approx(sum(lengths) / len(lengths))
        assert side.characters.total() == sum(len(clean(text)) for text in kept)
        for share in (0.0001, 0.5, 0.9, 0.99):
            limit = quantile(side.lengths, share)
            assert sum(length <= limit for length in lengths) >= share * len(lengths)
            assert sum(length < limit for length in lengths) < share * len(lengths)
        assert quantile(side.lengths, 1.0) == lengths[-1]


def test_frequent_words_are_counted_in_capital_letters_too(measures):
    english, german = telling_words("en", "de")
    words = [word.lower() for source, target in PAIRS if clean(source) and clean(target) for word in source.split()]
    assert measures.source.num_own_words == sum(word in english for word in words) > 0
    assert measures.source.num_other_words == sum(word in german for word in words)


def test_signs_are_counted_by_the_lines_that_have_them(measures):
    source, target = measures.source, measures.target
    assert (source.num_in_pieces, target.num_in_pieces) == (2, 2)
    assert (source.num_tokenised, target.num_tokenised) == (2, 0)
    assert (source.num_with_entities, target.num_with_entities) == (2, 2)


def test_letters_belong_to_scripts():
    found = letters_by_script(Counter("aaé Ω ж漢かカー ԱB한ᚠ 12.,"))
    assert found == {"Latin": 4, "Greek": 1, "Cyrillic": 1, "Han": 1, "Hiragana": 1, "Katakana": 1, "Armenian": 1} | {
        "Hangul": 1,
        "other": 1,
    }
    assert next(iter(found)) == "Latin"


def test_a_language_without_spaces_is_measured_in_characters(tmp_path):
    pairs = [("我 喜欢。", "我 喜欢。")] * 2
    assert measures_of(tmp_path, pairs, source="en", target="zh").source.lengths == {2: 2}
    found = measures_of(tmp_path, pairs, source="ko", target="zh-CN")
    assert found.source.lengths == {2: 2} and found.target.lengths == {4: 2}
    assert "2.0 words a line" in table(found) and "4.0 characters a line" in table(found)


def test_one_corpus_or_several_are_measured_the_same(tmp_path):
    pairs = random.Random(1).sample(PAIRS, 400)
    parts = {"whole": pairs, "a": pairs[:250], "b": pairs[250:], "valid": demo_pairs(20)}
    for name in parts:
        (tmp_path / name).mkdir()
    keys = {name: write_form(tmp_path / name, "files", part) for name, part in parts.items()}
    listed = [{"name": name, **keys[name]} for name in ("a", "b")]
    whole, several = (measured(only_training(train, valid=keys["valid"]), ALL) for train in (keys["whole"], listed))
    assert numbers(whole) == numbers(several) and whole.by_reason["held_out"]
    assert whole.correlation == pytest.approx(several.correlation)


def test_the_first_pairs_of_each_corpus_are_measured_as_if_there_were_no_others(tmp_path):
    keys = []
    for name, pairs in {"a": PAIRS, "b": PAIRS[:50], "c": PAIRS[:2100], "d": PAIRS[:50]}.items():
        (tmp_path / name).mkdir()
        keys.append({"name": name, **write_form(tmp_path / name, "files", pairs)})
    large, small = only_training(keys[:2]), only_training(keys[2:])
    assert numbers(measure(large, ALL, open_texts(large), most=2100)) == numbers(measured(small, ALL))


@pytest.mark.thorough
def test_examples_come_from_all_parts_of_the_text(tmp_path):
    places = []
    for number in range(10):
        (tmp_path / str(number)).mkdir()
        pairs = demo_pairs(700)[number:] + [("", "blank")] * 5
        found = measures_of(tmp_path / str(number), pairs).examples
        assert [len(found[reason]) for reason in (KEPT, "blank")] == [3, 3]
        for reason, examples in found.items():
            for place, pair in examples:
                assert pair == pairs[int(place.split(":")[1]) - 1] and (pair[0] == "") == (reason == "blank")
        places += [int(place.split(":")[1]) for place, _ in found[KEPT]]
    assert min(places) < 150 and max(places) > 550 and 250 < sum(places) / len(places) < 450


def test_the_table_fits_into_100_columns_and_has_every_reason(measures):
    reasons = Counter(dict.fromkeys([KEPT, *REASONS], 10**8))
    large = replace(measures, by_reason=reasons, counts={"train": reasons})
    for each in (measures, large):
        lines = table(each).splitlines()
        assert max(map(len, lines)) <= 100
    assert all(f"  {words} " in table(large) for words in REASONS.values())
