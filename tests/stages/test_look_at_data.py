"""`prepare --look` shows what `prepare` would leave out, with examples, and writes nothing."""

import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from helpers.messages import message

from transformer_mt import prepare
from transformer_mt.base.errors import ConfigError
from transformer_mt.corpora.corpus import BLOCK, OTHER_LANGUAGES, BadPair, Corpus, blocks_of_file
from transformer_mt.preparing import fill_data_dir, look_at_data
from transformer_mt.preparing.look_at_data import Sample

GOOD = [(f"Good sentence of words {'x' * (i % 7)} and {i}.", f"Guter Satz {i} von {i * i % 97}!") for i in range(400)]
PLANTED = {
    "identical": ("Berlin is big", "Berlin is big"),
    "too_short": ("a", "ein Wort"),
    "too_long": ("long " * 30, "lang"),
    "control_characters": ("with \x1b[31m color", "mit Farbe"),
    "wrong_script": ("Привет мир", "Hallo Welt"),
    "digits": ("12345 67890 ab", "Zahlen"),
    "punctuation": ("?!?!?!?! hm", "Zeichen"),
    "duplicate": GOOD[3],
    "held_out": ("Held out.", "Etwas anderes"),
    "blank": ("", "leer"),
}
ALL = [
    *("filters.identical=true", "filters.duplicates=true", "filters.control_characters=true"),
    *("filters.min_characters=2", "filters.max_characters=100", "filters.min_script_share=0.5"),
    *("filters.max_digit_share=0.5", "filters.max_punctuation_share=0.5"),
]


def write(directory: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    for language, side in (("en", 0), ("de", 1)):
        (directory / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write(tmp_path, "train", [*GOOD, *PLANTED.values()])
    write(tmp_path, "valid", [("Held out.", "Zurückgehalten."), ("Not there.", "Nicht da.")])
    content = {
        "data_dir": str(tmp_path / "data"),
        "run_dir": str(tmp_path / "run"),
        "corpus": {
            **{"source_language": "en", "target_language": "de"},
            **{name: str(tmp_path / name) for name in ("train", "valid")},
            "test": {},
        },
        "tokenizer": {"vocab_size": 350},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def look(config: Path, *arguments: str) -> int:
    return prepare.main([str(config), "--look", "9999", *arguments])


def rows(text: str) -> dict[str, int]:
    """The numbers of the table by their labels."""
    return {
        label.strip(): int(number) for label, number in re.findall(r"^( *[a-z]\D*?) +(\d+) +\d", text, re.MULTILINE)
    }


def test_each_planted_pair_is_counted_and_shown_with_its_place(config, capsys):
    before = sorted(os.listdir(config.parent))
    assert look(config, *ALL) == 0
    said = capsys.readouterr()
    table = rows(said.out)
    words = {reason: look_at_data.REASONS[reason] for reason in PLANTED}
    assert {reason: table[words[reason]] for reason in PLANTED} == dict.fromkeys(PLANTED, 1)
    assert (table["kept"], table["left out"]) == (400, 10)
    for number, (reason, pair) in enumerate(PLANTED.items(), start=401):
        place, source, target = said.out.split(f"\n\n{words[reason]}:\n")[1].split("\n")[:3]
        assert place == f"  {config.parent / 'train.en'}:{number}"
        assert target.strip() == pair[1].strip()
        assert source.strip()[:7].strip() == (pair[0].replace("\x1b", "\\x1b")[:7].strip() or "(blank)")
    assert "train: looked at 410 pairs of 410; nothing is written" in said.out
    assert "looks for duplicates" not in said.out
    assert "lengths in subword pieces" in said.err and "there is no tokenizer yet" in said.err
    assert sorted(os.listdir(config.parent)) == before


def test_it_finds_what_prepare_leaves_out(config, capsys):
    assert prepare.main([str(config), *ALL, "corpus.max_length=70"]) == 0
    prepared = capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in config.parent.rglob("*")}
    assert look(config, *ALL, "corpus.max_length=70") == 0
    looked = capsys.readouterr()
    assert rows(looked.out) == rows(prepared)
    assert rows(looked.out)["left out"] > 9, "lengths in pieces are looked at with the tokenizer of data_dir"
    assert looked.err == ""
    assert {path: path.stat().st_mtime_ns for path in config.parent.rglob("*")} == before
    assert look(config, "data_dir=elsewhere", f"tokenizer.from={config.parent / 'data'}", "corpus.max_length=5") == 0
    assert rows(capsys.readouterr().out)["too long"] > 400


def test_a_line_that_seems_to_name_the_columns_is_told_once(config, capsys):
    table = config.parent / "train.tsv"
    table.write_text("en\tde\n" + "".join(f"{source}\t{target}\n" for source, target in GOOD), encoding="utf-8")
    assert look(config, f"corpus.train={{path: {table}}}") == 0
    looked = capsys.readouterr()
    assert looked.err.count(f"warning: {table}:1: is read as a pair, but seems to name the columns (en, de)") == 1
    assert rows(looked.out)["kept"] == 401
    assert prepare.main([str(config), f"corpus.train={{path: {table}}}"]) == 0
    assert capsys.readouterr().err.count("seems to name the columns") == 1
    assert look(config, f"corpus.train={{path: {table}, source: en, target: de}}") == 0
    looked = capsys.readouterr()
    assert "columns" not in looked.err and rows(looked.out)["kept"] == 400


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_texts_fit_the_terminal(config, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    write(config.parent, "train", [*GOOD, ("很" * 300, "長い" * 300), ("é\x07" * 200, "x" * 500)])
    assert look(config, "filters.max_characters=100") == 0
    texts = [
        line
        for line in capsys.readouterr().out.split("too long:\n")[1].split("\n\n")[0].splitlines()
        if line.startswith("      ")
    ]
    assert len(texts) == 4 and all(line.endswith("…") for line in texts)
    width = max(len(line) + sum(char in "很長い" for char in line) for line in texts)
    assert columns - 4 <= width <= columns


def test_the_sample_is_spread_over_the_whole_corpus():
    pairs = [(str(i), str(i)) for i in range(10_007)]
    corpus = Corpus(lambda: blocks_of_file("f", iter(pairs)), lambda: "", None)
    for most in (1, 10, 100, 9_999):
        sample = Sample.of(corpus, most)
        numbers = [int(pair[0]) for _, pair in sample.pairs if not isinstance(pair, BadPair)]
        assert [place for place, _ in sample.pairs] == [f"f:{number + 1}" for number in numbers]
        assert len(numbers) == most and sample.num_read == 10_007
        steps = [b - a for a, b in pairwise(numbers)] + [10_007 - numbers[-1], numbers[0] + 1]
        assert max(steps) <= 4 * 10_007 / most
    assert Sample.of(corpus, 10_007).pairs == Sample.of(corpus, 99_999).pairs
    assert len(Sample.of(corpus, 99_999).pairs) == 10_007


@pytest.mark.parametrize("on_bad_line", ["stop", "skip"])
def test_bad_lines_are_counted_and_what_prepare_does_there_is_said(config, on_bad_line, capsys, monkeypatch):
    bad = {5: BadPair("has 1 column instead of 2; add a tab."), 350: BadPair("is no object")}
    bad[2] = BadPair("has no text in de", OTHER_LANGUAGES)  # which is no mistake
    pairs = [bad.get(number, pair) for number, pair in enumerate(GOOD, start=1)]
    corpus = Corpus(lambda: blocks_of_file("a.tsv", iter(pairs)), lambda: "d", len(pairs))
    really, of = fill_data_dir.open_corpus, {"train": corpus}
    monkeypatch.setattr(fill_data_dir, "open_corpus", lambda text: of.get(text.name) or really(text))
    assert look(config, f"filters.on_bad_line={on_bad_line}") == 0
    out = capsys.readouterr().out
    assert rows(out)["unreadable"] == 2
    assert rows(out)["of other languages"] == 1
    assert "  a.tsv:5\n      has 1 column instead of 2; add a tab.\n" in out
    note = "note: `prepare` would stop at a.tsv:5: has 1 column instead of 2; add a tab. train has 2 unreadable lines"
    assert (note in out) == (on_bad_line == "stop")
    if on_bad_line == "stop":
        with pytest.raises(ValueError, match=r"^a\.tsv:5: has 1 column instead of 2; add a tab\.$"):
            prepare.main([str(config)])
    else:
        assert prepare.main([str(config), "filters.on_bad_line=skip"]) == 0
        table = rows(capsys.readouterr().out)
        assert (table["unreadable"], table["of other languages"], table["kept"]) == (2, 1, 397)


def test_of_a_streamed_data_set_only_the_first_pairs_are_read():
    read = []
    corpus = Corpus(lambda: blocks_of_file("f", ((read.append(i) or str(i), "x") for i in range(10_007))), str, None)
    sample = Sample.of(corpus, 50, only_first=True)
    assert [pair[0] for _, pair in sample.pairs] == [str(i) for i in range(50)] and sample.num_read == 50
    assert len(read) <= 2 * BLOCK


def test_a_streamed_corpus_is_said_to_be_read_in_part(config, capsys, monkeypatch):
    corpus = Corpus(lambda: blocks_of_file("f", iter([*GOOD, GOOD[0]] * 30)), lambda: "d", None)
    really = fill_data_dir.open_corpus
    monkeypatch.setattr(fill_data_dir, "open_corpus", lambda text: corpus if text.streaming else really(text))
    streamed = "corpus.train={hub: x, split: train, streaming: true}"
    assert prepare.main([str(config), streamed, "filters.duplicates=true", "--look", "300"]) == 0
    out = capsys.readouterr().out
    assert "train: looked at 300 pairs, the first of a streamed data set, which is not read further; nothing" in out
    assert "note: this looks for duplicates only among these pairs" in out


def test_pairs_that_are_kept_are_shown_so_that_mixed_up_sides_are_seen(config, capsys):
    assert look(config) == 0
    kept = capsys.readouterr().out.split("\n\nkept, each source above its target:\n")[1].splitlines()
    train = config.parent / "train.en"
    assert kept[0].startswith(f"  {train}:") and kept[9] == ""
    assert kept[:3] == [f"  {train}:1", "      " + GOOD[0][0], "      " + GOOD[0][1]]


def test_the_number_of_pairs_is_checked(config, capsys):
    with pytest.raises(SystemExit):
        prepare.main([str(config), "--look", "filters.identical=true"])
    assert "filters.identical=true is not a whole number of at least 1" in capsys.readouterr().err
    assert prepare.main([str(config), "--look"]) == 0
    assert prepare.main([str(config), "filters.duplicates=true", "--look", "7"]) == 0
    said = capsys.readouterr().out
    assert "looked at 7 pairs of 410, spread evenly over it" in said
    assert "note: this looks for duplicates only among these pairs" in said


def test_a_script_that_is_not_known_is_said_before_anything_is_read(config):
    for arguments in (["--look"], []):
        with pytest.raises(ConfigError, match=message("script-of-language-unknown", "corpus.source_language=xx")):
            prepare.main(
                [
                    *(str(config), "corpus.source_language=xx", "filters.min_script_share=0.5"),
                    *(
                        f"corpus.{name}={{source: {config.parent}/{name}.en, target: {config.parent}/{name}.de}}"
                        for name in ("train", "valid")
                    ),
                    *arguments,
                ]
            )
    assert not (config.parent / "data").exists()
