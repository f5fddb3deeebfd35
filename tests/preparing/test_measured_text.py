"""The measures of a text are those of a plain count, and the table fits into a terminal."""

import random
from collections import Counter
from pathlib import Path

import pytest
import yaml
from helpers.forms import only_training, write_form
from helpers.tiny import demo_pairs

from transformer_mt import prepare
from transformer_mt.corpora.filters import REASONS, letters_by_script
from transformer_mt.corpora.text_traits import telling_words
from transformer_mt.preparing.measured_text import TextMeasures, measure, table
from transformer_mt.settings.corpus_settings import FiltersConfig
from transformer_mt.text.tokenizer import clean

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
    names = ("num_read", "num_pairs", "num_different", "num_repeated", "num_equal", "num_usable", "left_out")
    of_side = "lengths characters num_own_words num_other_words num_tokenised num_in_pieces num_with_entities"
    sides = {"source": measures.source, "target": measures.target}
    return {name: getattr(measures, name) for name in names} | {
        f"{side}.{name}": getattr(of, name)
        for side, of in sides.items()
        for name in [*of_side.split(), "num_different"]
    }


def measured(directory: Path, pairs: list[tuple[str, str]], **languages: str) -> TextMeasures:
    return measure(only_training(write_form(directory, "files", pairs), **languages), FiltersConfig())


@pytest.fixture(scope="module")
def measures(tmp_path_factory) -> TextMeasures:
    return measured(tmp_path_factory.mktemp("text"), PAIRS)


def test_pairs_are_counted_as_they_are_once_they_are_clean(measures):
    pairs = [(clean(source), clean(target)) for source, target in PAIRS]
    good = [pair for pair in pairs if all(pair)]
    assert measures.num_read == len(PAIRS) and measures.left_out["blank"] == len(PAIRS) - len(good) == 6
    assert measures.num_pairs == len(good) and measures.num_different == len(set(good))
    assert measures.num_equal == sum(source == target for source, target in good) == 4
    assert measures.source.num_different == len({source for source, _ in good}) < measures.num_different


def test_lengths_are_words_and_shares_of_lines_do_not_exceed_them(measures):
    for side, texts in ((measures.source, [a for a, b in PAIRS]), (measures.target, [b for a, b in PAIRS])):
        kept = [text for text, pair in zip(texts, PAIRS, strict=True) if clean(pair[0]) and clean(pair[1])]
        lengths = sorted(len(text.split()) for text in kept)
        assert side.mean_length == pytest.approx(sum(lengths) / len(lengths))
        assert side.mean_characters == pytest.approx(sum(len(clean(text)) for text in kept) / len(kept), abs=0.05)
        for share in (0.0001, 0.5, 0.9, 0.99):
            limit = side.length_of(share)
            assert sum(length <= limit for length in lengths) >= share * len(lengths)
            assert sum(length < limit for length in lengths) < share * len(lengths)
        assert side.length_of(1.0) == lengths[-1]


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
    assert measured(tmp_path, pairs, source="en", target="zh").source.lengths == {2: 2}
    found = measured(tmp_path, pairs, source="ko", target="zh-CN")
    assert found.source.lengths == {2: 2} and found.target.lengths == {4: 2}
    assert "2.0 words a line" in table(found) and "4.0 characters a line" in table(found)


def test_one_corpus_or_several_are_measured_the_same(tmp_path):
    pairs = random.Random(1).sample(PAIRS, 400)
    parts = {"whole": pairs, "a": pairs[:250], "b": pairs[250:], "valid": demo_pairs(20)}
    for name in parts:
        (tmp_path / name).mkdir()
    keys = {name: write_form(tmp_path / name, "files", part) for name, part in parts.items()}
    listed = [{"name": name, **keys[name]} for name in ("a", "b")]
    whole, several = (measure(only_training(train, valid=keys["valid"]), ALL) for train in (keys["whole"], listed))
    assert numbers(whole) == numbers(several) and whole.left_out["held_out"]
    assert whole.correlation == pytest.approx(several.correlation)


def test_the_filters_leave_out_what_prepare_would(tmp_path, capsys):
    """`prepare --look` counts with the same filters, but from a sample, which holds everything here."""
    (tmp_path / "valid").mkdir()
    train, valid = write_form(tmp_path, "files", PAIRS[-400:]), write_form(tmp_path / "valid", "files", PAIRS[:20])
    corpus = only_training(train, valid=valid)
    content = {"data_dir": str(tmp_path / "data"), "run_dir": str(tmp_path / "run")}
    content |= {"corpus": corpus.model_dump(exclude_defaults=True), "filters": ALL.model_dump(exclude_defaults=True)}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    assert prepare.main([str(tmp_path / "config.yaml"), "--look", "100000"]) == 0
    shown, left_out = capsys.readouterr().out, measure(corpus, ALL).left_out
    assert {"blank", "identical", "duplicate", "held_out", "too_short", "too_long", "wrong_script"} <= {*left_out}
    for reason, words in REASONS.items():
        number = next((line.split()[-2] for line in shown.splitlines() if line.startswith(f"  {words} ")), "0")
        assert left_out[reason] == int(number), reason


def test_the_table_is_short_and_fits_into_100_columns(measures):
    many = measure_of_everything(measures)
    for each in (measures, many):
        lines = table(each).splitlines()
        assert max(map(len, lines)) <= 100 and len(lines) <= 14
    assert all(words in " ".join(table(many).split()) for words in REASONS.values())


def measure_of_everything(measures: TextMeasures) -> TextMeasures:
    """Measures of a large text with every reason to leave pairs out."""
    counts = Counter(dict.fromkeys(REASONS, 10**8))
    return TextMeasures("x", measures.source, measures.target, FiltersConfig(), 10**10, by_text=counts)
