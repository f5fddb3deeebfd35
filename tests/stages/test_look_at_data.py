"""`prepare --look` shows what `prepare` would leave out, with examples, and writes nothing."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from helpers.messages import message
from helpers.thorough import thorough

from transformer_mt import prepare
from transformer_mt.base.errors import ConfigError
from transformer_mt.corpora.corpus import BLOCK, OTHER_LANGUAGES, BadPair, Corpus, blocks_of_file
from transformer_mt.corpora.filters import REASONS
from transformer_mt.preparing import fill_data_dir

GOOD = [
    (f"Good sentence of words {'x' * (i % 7)}, {i} of {i * i % 97}.", f"Guter Satz {i} von {i * i % 97}!")
    for i in range(400)
]
PLANTED = {
    "identical": ("Berlin is big", "Berlin is big"),
    "number_mismatch": ("It is 1987", "Es ist 1978"),
    "too_short": ("a", "ein Wort"),
    "too_long": ("long " * 30, "lang"),
    "control_characters": ("with \x1b[31m color", "mit Farbe"),
    "wrong_script": ("Привет мир", "Hallo Welt"),
    "digits": ("12345 67890 ab", "Zahlen 12345 67890"),
    "punctuation": ("?!?!?!?! hm", "Zeichen"),
    "duplicate": GOOD[3],
    "held_out": ("Held out.", "Etwas anderes"),
    "blank": ("", "leer"),
}
ALL = [
    *("filters.identical=true", "filters.duplicates=true", "filters.control_characters=true"),
    *("filters.min_characters=2", "filters.max_characters=100", "filters.min_script_share=0.5"),
    "filters.number_mismatch=true",
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
    words = {reason: REASONS[reason] for reason in PLANTED}
    assert {reason: table[words[reason]] for reason in PLANTED} == dict.fromkeys(PLANTED, 1)
    assert (table["kept"], table["left out"]) == (400, 11)
    for number, (reason, pair) in enumerate(PLANTED.items(), start=401):
        place, source, target = said.out.split(f"\n\n{words[reason]}:\n")[1].split("\n")[:3]
        assert place == f"  {config.parent / 'train.en'}:{number}"
        assert target.strip() == pair[1].strip()
        assert source.strip()[:7].strip() == (pair[0].replace("\x1b", "\\x1b")[:7].strip() or "(blank)")
    assert re.match("pairs +411\n +repeat an earlier pair: 1; have equal sides: 1\n", said.out)
    assert "reads only the first" not in said.out
    assert "lengths in subword pieces" in said.err and "there is no tokenizer yet" in said.err
    assert sorted(os.listdir(config.parent)) == before


@pytest.mark.parametrize("form", ["one corpus", *thorough("shares", "tags")])
def test_it_finds_what_prepare_leaves_out(config, form, capsys):
    path, tagged = {"path": str(config.parent / "train")}, {"name": "c", "tag": "<t>"}
    of_corpus = {
        "one corpus": [],
        "shares": ["corpus.valid={share: 0.1}", "corpus.test={own: {share: 0.2}}"],
        "tags": ["corpus.train=" + json.dumps([{"name": "a", **path}, {"name": "b", **path}, {**tagged, **path}])],
    }[form]
    settings = [*ALL, "corpus.max_length=70", *of_corpus]
    assert prepare.main([str(config), *settings]) == 0
    prepared = capsys.readouterr()
    before = {path: path.stat().st_mtime_ns for path in config.parent.rglob("*")}
    assert look(config, *settings) == 0
    looked = capsys.readouterr()
    table = looked.out[looked.out.index(" " * 20 + ("train" if form != "tags" else "a")) :]
    table = table[: table.index("\n\nkept")]
    assert table in prepared.out
    assert rows(table)["left out"] > 9, "lengths in pieces are looked at with the tokenizer of data_dir"
    assert "no tokenizer" not in looked.err
    assert {path: path.stat().st_mtime_ns for path in config.parent.rglob("*")} == before
    assert look(config, "data_dir=elsewhere", f"tokenizer.from={config.parent / 'data'}", "corpus.max_length=5") == 0
    assert rows(capsys.readouterr().out)["too long"] > 400


def test_of_a_long_text_the_beginning_is_shown(config, capsys):
    write(config.parent, "train", [*GOOD, ("word " * 100, "é\x07" * 200)])
    assert look(config, "filters.max_characters=100") == 0
    source, target = capsys.readouterr().out.split("too long:\n")[1].splitlines()[1:3]
    assert source == "      " + ("word " * 100)[:80] + "… (500 characters)"
    assert target == "      " + "é\\x07" * 40 + "… (400 characters)"


@pytest.mark.parametrize("on_bad_line", ["stop", "skip"])
def test_bad_lines_are_counted_and_what_prepare_does_there_is_said(config, on_bad_line, capsys, monkeypatch):
    bad = {5: BadPair("has 1 column instead of 2; add a tab."), 350: BadPair("is no object")}
    bad[2] = BadPair("has no text in de", OTHER_LANGUAGES)  # which is no mistake
    pairs = [bad.get(number, pair) for number, pair in enumerate(GOOD, start=1)]
    corpus = Corpus(lambda: blocks_of_file("a.tsv", iter(pairs)), lambda: "d", len(pairs))
    really, of = fill_data_dir.open_corpus, {"train": corpus}
    monkeypatch.setattr(fill_data_dir, "open_corpus", lambda text: of.get(text.name) or really(text))
    assert look(config, f"filters.on_bad_line={on_bad_line}") == 0
    out, err = capsys.readouterr()
    assert rows(out)["unreadable"] == 2
    assert rows(out)["of other languages"] == 1
    assert "  a.tsv:5\n      has 1 column instead of 2; add a tab.\n" in out
    assert ("`prepare` would stop at the first, a.tsv:5: has 1 column" in err) == (on_bad_line == "stop")
    if on_bad_line == "stop":
        with pytest.raises(ValueError, match=r"^a\.tsv:5: has 1 column instead of 2; add a tab\.$"):
            prepare.main([str(config)])
    else:
        assert prepare.main([str(config), "filters.on_bad_line=skip"]) == 0
        table = rows(capsys.readouterr().out)
        assert (table["unreadable"], table["of other languages"], table["kept"]) == (2, 1, 397)


def test_of_a_streamed_data_set_only_the_first_pairs_are_read(config, capsys, monkeypatch):
    read = []
    pairs = [*GOOD, GOOD[0]] * 30
    corpus = Corpus(lambda: blocks_of_file("f", ((read.append(a), (a, b))[1] for a, b in pairs)), lambda: "d", None)
    really = fill_data_dir.open_corpus
    monkeypatch.setattr(fill_data_dir, "open_corpus", lambda text: corpus if text.streaming else really(text))
    streamed = "corpus.train={hub: x, split: train, streaming: true}"
    assert prepare.main([str(config), streamed, "--look", str(BLOCK)]) == 0
    out = capsys.readouterr().out
    assert rows(out.replace(",", ""))["kept"] == BLOCK == len(read)
    assert f"note: this reads only the first {BLOCK:,} pairs of each corpus" in out


def test_pairs_that_are_kept_are_shown_so_that_mixed_up_sides_are_seen(config, capsys):
    assert look(config) == 0
    kept = capsys.readouterr().out.split("\n\nkept, each source above its target:\n")[1].splitlines()
    train = config.parent / "train.en"
    assert kept[9] == ""
    for place, source, target in zip(kept[:9:3], kept[1:9:3], kept[2:9:3], strict=True):
        number = int(place.removeprefix(f"  {train}:"))
        assert [source, target] == [f"      {text}" for text in GOOD[number - 1]]


def test_mistakes_in_the_text_are_told(config, capsys):
    write(config.parent, "train", [(pair[0], "Immer derselbe Satz.") for pair in GOOD])
    (config.parent / "test.en").write_text("a\n")
    (config.parent / "test.de").write_text("b\n")
    assert look(config, f"corpus.test={{own: {{path: {config.parent / 'test'}, tag: <t>}}}}") == 0
    warnings = capsys.readouterr().err
    assert "warning: the 400 different pairs have only 1 different target" in warnings
    assert "warning: corpus.test.own has the tag <t>" in warnings


def test_the_number_of_pairs_is_checked(config, capsys):
    with pytest.raises(SystemExit):
        prepare.main([str(config), "--look", "filters.identical=true"])
    assert "filters.identical=true is not a whole number of at least 1" in capsys.readouterr().err
    assert prepare.main([str(config), "--look"]) == 0
    assert prepare.main([str(config), "filters.duplicates=true", "--look", "7"]) == 0
    said = capsys.readouterr().out
    assert "note: this reads only the first 7 pairs of each corpus" in said and rows(said)["kept"] == 7


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
