"""Validation and test sets that are shares of the training text: no source is on two sides, and they stay the same."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers.messages import message
from helpers.tiny import demo_pairs

from transformer_mt import prepare
from transformer_mt.base.errors import UserError
from transformer_mt.batches.encoded import EncodedCorpus, places_of_pairs
from transformer_mt.corpora.opening import place_of
from transformer_mt.text.tokenizer import Tokenizer

SETS = ("valid", "test/talks")
# The same source with other targets, and pairs whose sources are equal once they are clean.
REPEATED = [("The same source.", f"Die gleiche Quelle {number}.") for number in range(20)]
SPACED = [("a  cafe\u0301", "ein Café"), ("a café", "ein Kaffeehaus"), (" ", "nichts"), ("nothing", "")]
PAIRS = [*demo_pairs(380), *REPEATED, *SPACED]


class Experiment:
    """A configuration of one file, of which shares are held out."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.text, self.data = directory, directory / "pairs.tsv", directory / "data"
        self.write(PAIRS)
        corpus = {"source_language": "en", "target_language": "de", "train": str(self.text)}
        sets = {"valid": {"share": 0.1}, "test": {"talks": {"share": 0.2}}}
        content = {"data_dir": str(self.data), "run_dir": str(directory / "run"), "corpus": corpus | sets}
        self.config = directory / "config.yaml"
        self.config.write_text(yaml.safe_dump(content | {"tokenizer": {"vocab_size": 400}}))

    def write(self, pairs) -> None:
        self.text.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")

    def prepare(self, *settings, data="data") -> None:
        self.data = self.directory / data
        assert prepare.main([str(self.config), f"data_dir={self.data}", *settings]) == 0

    def held(self, name) -> list[tuple[str, str]]:
        sides = [(self.data / f"{name}.{side}.txt").read_text(encoding="utf-8") for side in ("source", "target")]
        return list(zip(*map(str.splitlines, sides), strict=True))

    def trained(self) -> list[tuple[str, str]]:
        """The training pairs, by their lines in the file."""
        corpus = EncodedCorpus.load(self.data / "train")
        lines = self.text.read_text(encoding="utf-8").splitlines()
        places = places_of_pairs(self.data, np.arange(len(corpus)))
        return [tuple(lines[line - 1].split("\t")) for _, line in places]


@pytest.fixture
def experiment(tmp_path):
    return Experiment(tmp_path)


def cleaned(sources) -> set[str]:
    return {" ".join(source.replace("e\u0301", "é").split()) for source in sources}


@pytest.mark.parametrize("leaves_all_held_out", ["true", "false"])
def test_no_source_is_on_two_sides_and_every_pair_is_somewhere(experiment, leaves_all_held_out):
    experiment.prepare(f"filters.held_out={leaves_all_held_out}")
    valid, talks = ([source for source, _ in experiment.held(name)] for name in SETS)
    trained = cleaned(source for source, _ in experiment.trained())
    assert len(valid) == len(set(valid)) and len(talks) == len(set(talks)), "a source counts once"
    assert not {*valid} & {*talks} and not {*valid, *talks} & trained
    assert 20 < len(valid) < 60 and 50 < len(talks) < 110
    if leaves_all_held_out == "false":  # otherwise also pairs whose target is held out
        assert {*valid, *talks} | trained == cleaned(source for source, target in PAIRS if source.strip() and target)
    summary = json.loads((experiment.data / "prepare.json").read_text())
    counts = summary["counts"]["train"]
    assert counts["read"] == len(PAIRS) and counts["kept"] == len(experiment.trained())
    assert all(of_set["pairs"] == 0 for of_set in summary["also_in_training"].values()), "only what is left is counted"


def test_the_same_pairs_stay_held_out_when_the_corpus_grows(experiment):
    experiment.prepare()
    before = {name: experiment.held(name) for name in SETS}
    trained = {*experiment.trained()}
    more = [(f"Also {source}", f"Auch {target}") for source, target in PAIRS[:200]]
    experiment.write([*more[:100], *PAIRS, *more[100:]])
    with pytest.raises(UserError):
        experiment.prepare()
    experiment.prepare(data="larger")
    for name in SETS:
        assert {*before[name]} < {*experiment.held(name)}
    assert trained < {*experiment.trained()}


def test_prepared_again_it_is_known_and_another_share_is_another_text(experiment, capsys):
    experiment.prepare()
    capsys.readouterr()
    experiment.prepare()
    assert capsys.readouterr().out == f"already prepared: {experiment.data}\n"
    with pytest.raises(UserError):
        experiment.prepare("corpus.valid={share: 0.15}")


def test_the_tokenizer_does_not_see_what_is_held_out(experiment):
    """A letter that only held-out sources have is no piece."""
    letters = {True: "ж", False: "щ"}
    more = [(f"{number} {letters[place_of(f'{number} ж') < 0.3]}", "ein Buchstabe") for number in range(40)]
    held = {source for source, _ in more if place_of(source) < 0.3}
    experiment.write([*PAIRS, *((source, target) for source, target in more if (source in held) == ("ж" in source))])
    experiment.prepare("tokenizer.character_coverage=1.0")
    tokenizer = Tokenizer.load(experiment.data)
    pieces = "".join(tokenizer.source_pieces(range(tokenizer.source_vocab_size)))
    assert "щ" in pieces and "ж" not in pieces


def test_of_the_other_direction_the_same_pairs_are_held_out(experiment):
    """Also if only the share decides what is left out, and the tokenizer does not see them there."""
    letters = {True: "ж", False: "щ"}
    more = [(f"{number} {letters[place_of(f'{number} ж') < 0.3]}", f"{number} Buchstaben") for number in range(40)]
    held = {source for source, _ in more if place_of(source) < 0.3}
    experiment.write([*PAIRS, *((source, target) for source, target in more if (source in held) == ("ж" in source))])
    path = experiment.text
    other = f"{{name: b, path: {path}, source: 2, target: 1, source_language: de, target_language: en}}"
    experiment.prepare(
        f"corpus.train=[{{name: a, path: {path}}}, {other}]",
        "corpus.valid={share: 0.1, name: a}",
        "corpus.test={talks: {share: 0.2, name: a}}",
        "filters.held_out=false",
        "tokenizer.character_coverage=1.0",
    )
    corpora = json.loads((experiment.data / "prepare.json").read_text())["corpora"]
    assert corpora["a"]["kept"] == corpora["b"]["kept"] > 250
    tokenizer = Tokenizer.load(experiment.data)
    pieces = "".join(tokenizer.source_pieces(range(tokenizer.source_vocab_size)))
    assert "щ" in pieces and "ж" not in pieces


def test_of_several_corpora_the_same_pairs_are_held_out_as_of_all_in_one(experiment, capsys):
    experiment.prepare()
    before = {name: experiment.held(name) for name in SETS}
    sources = {source for held in before.values() for source, _ in held}
    parts = {"a": PAIRS[:250], "b": PAIRS[250:]}
    for name, pairs in parts.items():
        experiment.text = experiment.directory / f"{name}.tsv"
        experiment.write(pairs)
    corpora = [f"{{name: {name}, path: {experiment.directory}/{name}.tsv}}" for name in parts]
    setting = f"corpus.train=[{', '.join(corpora)}]"
    experiment.prepare(setting, data="parts")
    assert {name: experiment.held(name) for name in SETS} == before
    assert {source for source, _ in before["valid"]} & cleaned(source for source, _ in parts["a"])
    assert {source for source, _ in before["valid"]} & cleaned(source for source, _ in parts["b"])
    trained = places_of_pairs(experiment.data, np.arange(len(EncodedCorpus.load(experiment.data / "train"))))
    texts = {str(experiment.directory / f"{name}.tsv"): pairs for name, pairs in parts.items()}
    assert trained and not cleaned(texts[file][line - 1][0] for file, line in trained) & sources
    capsys.readouterr()
    experiment.prepare(setting, data="parts")
    assert capsys.readouterr().out == f"already prepared: {experiment.data}\n"


def test_look_shows_them_as_held_out(experiment, capsys):
    assert prepare.main([str(experiment.config), "--look"]) == 0
    assert "also in validation or test" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("shares-too-large", ["corpus.valid={share: 0.3}", "corpus.test={a: {share: 0.3}}"]),
        ("share-with-other-keys", ["corpus.valid={share: 0.1, path: x.tsv}"]),
        ("share-of-training-set", ["corpus.train={share: 0.1}"]),
        ("share-of-different-corpora", ["corpus.train=[{name: a, path: x.tsv, tag: <a>}, {name: b, path: x.tsv}]"]),
        (
            "share-of-different-corpora",
            ["corpus.train=[{name: a, path: x.tsv}, {name: b, source: x.de, target: y.en}]"],
        ),
        ("share-of-unknown-corpus", ["corpus.valid={name: elsewhere, share: 0.1}"]),
        (
            "share-of-all-and-of-one",
            [
                "corpus.train=[{name: a, path: x.tsv}]",
                "corpus.valid={name: a, share: 0.1}",
                "corpus.test={b: {share: 0.1}}",
            ],
        ),
        ("share-without-pairs", ["corpus.valid={share: 1e-9}"]),
        ("value-not-allowed", ["corpus.valid={share: 0.6}"]),
    ],
)
def test_shares_that_cannot_be_are_named(experiment, code, settings):
    with pytest.raises(UserError, match=message(code)):
        prepare.main([str(experiment.config), *settings])
    assert not experiment.data.exists()


def test_if_no_line_can_be_read_the_first_is_named(experiment):
    experiment.text.write_text("no second column\n" * 20)
    with pytest.raises(UserError, match=message("no-readable-line", f"{experiment.text}:1: has 1 column")):
        experiment.prepare()


def test_a_share_of_a_named_corpus_has_pairs_of_this_corpus_only(experiment):
    for name, pairs in {"old": PAIRS[:250], "new": PAIRS[250:380]}.items():
        experiment.text = experiment.directory / f"{name}.tsv"
        experiment.write(pairs)
    old, new = (f"{{name: {name}, path: {experiment.directory}/{name}.tsv}}" for name in ("old", "new"))
    sets = ("corpus.valid={name: new, share: 0.2}", "corpus.test={talks: {name: new, share: 0.2}}")
    experiment.prepare(f"corpus.train=[{old}, {new}]", *sets)
    held = {name: experiment.held(name) for name in SETS}
    alone = [setting.replace("name: new, ", "") for setting in sets]
    experiment.prepare(f"corpus.train={experiment.directory}/new.tsv", *alone, data="alone")
    assert held == {name: experiment.held(name) for name in SETS}
    assert all(held.values()) and {*held["valid"]} <= {*PAIRS[250:380]}


def test_shares_of_two_corpora_begin_anew_for_each(experiment):
    for name, pairs in {"a": PAIRS[:190], "b": PAIRS[190:380]}.items():
        experiment.text = experiment.directory / f"{name}.tsv"
        experiment.write(pairs)
    corpora = ", ".join(f"{{name: {name}, path: {experiment.directory}/{name}.tsv}}" for name in "ab")
    experiment.prepare(
        f"corpus.train=[{corpora}]", "corpus.valid=[{name: a, share: 0.3}, {name: b, share: 0.3}]", "corpus.test={}"
    )
    held = experiment.held("valid"), experiment.held("valid/b")
    for pairs, part in zip(held, (PAIRS[:190], PAIRS[190:380]), strict=True):
        assert {source for source, _ in pairs} == {source for source, _ in part if place_of(source) < 0.3}
