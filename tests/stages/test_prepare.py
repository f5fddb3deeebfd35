"""The stage from text to ids: what stays, what is counted, what a rerun does, and that it may be killed."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from helpers.messages import message
from sacrebleu.tokenizers import tokenizer_ja_mecab

from transformer_mt.base.errors import ConfigError, CorpusError, DirectoryError, EvaluationError
from transformer_mt.base.languages import UNK
from transformer_mt.batches.encoded import EncodedCorpus, Text, places_of_pairs
from transformer_mt.prepare import main
from transformer_mt.preparing.text_warnings import twice_warnings
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.storage.checksums import SUMS
from transformer_mt.storage.files import OWN_SUFFIX
from transformer_mt.text.tokenizer import Tokenizer

WORDS = [
    *("red", "blue", "green", "big", "small", "old", "new", "fast", "slow", "quiet"),
    *("dog", "cat", "horse", "bird", "fish", "runs", "sleeps", "eats", "sees"),
]


def sentence(number: int) -> str:
    return " ".join(WORDS[(number * step + step) % len(WORDS)] for step in range(3, 6 + number % 7))


TRAIN = [(sentence(i), sentence(i).upper()) for i in range(400)]
VALID = [(f"{sentence(i)} .", f"{sentence(i).upper()} .") for i in range(500, 540)]
SHARD = "train/train/00000"
TEST = [("A dog .", "EIN HUND ."), ("", "nothing"), ("two\u2028lines", " spaces  kept ")]


class Experiment:
    """A small corpus with its configuration; `prepare` runs the stage on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.write("train", TRAIN)
        self.write("valid", VALID)
        self.write("test", TEST)
        corpus = {name: str(directory / name) for name in ("train", "valid")}
        content = {
            "data_dir": str(self.data_dir),
            "run_dir": str(directory / "run"),
            "corpus": {
                "source_language": "en",
                "target_language": "de",
                **corpus,
                "test": {"small": str(directory / "test")},
            },
            "tokenizer": {"vocab_size": 360},
        }
        (directory / "config.yaml").write_text(yaml.safe_dump(content))

    def write(self, name: str, pairs: list[tuple[str, str]]) -> None:
        for language, side in (("en", 0), ("de", 1)):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (self.directory / f"{name}.{language}").write_bytes(text.encode())

    def prepare(self, *overrides: str) -> int:
        return main([str(self.directory / "config.yaml"), *overrides])

    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.data_dir / "prepare.json").read_text())
        return content

    def ids(self, split: str) -> list[tuple[list[int], list[int]]]:
        corpus = EncodedCorpus.load(self.data_dir / split)
        return list(zip(sentences(corpus.source), sentences(corpus.target), strict=True))

    def encoded(self, pairs: list[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        tokenizer = Tokenizer.load(self.data_dir)
        sources = tokenizer.encode_source([source for source, _ in pairs])
        return list(zip(sources, tokenizer.encode_target([target for _, target in pairs]), strict=True))


def sentences(text: Text) -> list[list[int]]:
    ids, lengths = text.gather(np.arange(len(text)))
    return [sentence.tolist() for sentence in np.split(ids, lengths.cumsum()[:-1])]


def files(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return Experiment(tmp_path)


def test_a_word_segmenter_that_bleu_lacks_is_said_first(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(EvaluationError, match=message("word-segmenter-missing", "ja")):
        experiment.prepare("corpus.target_language=ja", "corpus.train=no/such/text")
    assert not experiment.data_dir.exists()


def test_a_warm_up_that_never_ends_is_told(experiment: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    experiment.prepare("training.max_steps=6", "training.warmup_steps=2000")
    [line] = [line for line in capsys.readouterr().err.splitlines() if "tokenised" not in line]
    assert line.startswith("warning: training.warmup_steps=2000 is not less than training.max_steps=6: ")


@pytest.mark.parametrize("joint", ["true", "false"])
def test_what_is_written(experiment: Experiment, joint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment.prepare(f"tokenizer.joint={joint}", "model.tied_embeddings=target") == 0
    assert experiment.ids("train") == experiment.encoded(TRAIN)
    assert experiment.ids("valid") == experiment.encoded(VALID)
    for name, pairs in (("valid", VALID), ("test/small", TEST)):
        for side, suffix in enumerate(("source", "target")):
            text = (experiment.data_dir / f"{name}.{suffix}.txt").read_bytes().decode()
            assert text == "".join(pair[side] + "\n" for pair in pairs)
    counts = experiment.summary()["counts"]["train"]
    assert counts["read"] == counts["kept"] == 400
    assert counts["target_tokens"] == sum(len(target) for _, target in experiment.encoded(TRAIN))
    assert experiment.summary()["tokenizer_digest"] == Tokenizer.load(experiment.data_dir).digest
    printed = capsys.readouterr().out
    for word in ("train: 400 pairs of 400", "valid: 40 pairs", "test/small: 3 pairs", "vocabulary: 360"):
        assert word in printed
    assert str(experiment.data_dir) in printed


def test_what_is_left_out_of_training_is_counted_by_reason(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(WORDS * 4)
    odd = [("", "blank"), ("blank", " \t"), ("dog", long), (long, long), ("dog cat", " ".join(WORDS))]
    experiment.write("train", [*TRAIN, *odd])
    assert experiment.prepare("corpus.max_length=60") == 0
    counts = experiment.summary()["counts"]["train"]
    lengths = [(len(source), len(target)) for source, target in experiment.encoded(odd)]
    assert lengths[3][0] > 60 and lengths[2][1] > 60 >= lengths[4][1] > 4 * lengths[4][0]
    assert [counts[key] for key in ("read", "kept", "blank", "too_long", "bad_ratio")] == [405, 400, 2, 2, 1]
    assert experiment.ids("train") == experiment.encoded(TRAIN)
    assert "2 with a blank side, 2 too long, 1 with a bad length ratio" in capsys.readouterr().out


def test_a_ratio_is_bad_above_the_bound_and_ten_pieces(experiment: Experiment) -> None:
    pairs = [(" ".join(["dog"] * m), " ".join(["cat"] * n)) for m in range(1, 5) for n in range(1, 18)]
    experiment.write("train", TRAIN + pairs)
    assert experiment.prepare() == 0
    encoded = experiment.encoded(pairs)
    pieces = [(len(source) - 1, len(target) - 1) for source, target in encoded]
    assert {(2, 8), (2, 9), (1, 10), (1, 11), (3, 12), (3, 13), (4, 16), (4, 17)} <= set(pieces)
    expected = [pair for pair, (s, t) in zip(encoded, pieces, strict=True) if t <= 10 or t <= 4 * s]
    assert experiment.ids("train")[400:] == expected


def test_of_each_training_pair_its_line_in_the_text_is_known(experiment: Experiment) -> None:
    long = " ".join(WORDS * 4)
    odd = [("", "blank"), *TRAIN[:200], (long, long), (" ", ""), *TRAIN[200:], ("blank", "")]
    experiment.write("train", odd)
    assert experiment.prepare("corpus.max_length=60") == 0
    lines = np.fromfile(experiment.data_dir / SHARD / "lines", "<i8").tolist()
    text = (experiment.directory / "train.en").read_text().splitlines()
    assert [text[line - 1] for line in lines] == [source for source, _ in TRAIN]
    assert lines == [*range(2, 202), *range(204, 404)]


def test_the_longest_pair_that_may_stay_stays(experiment: Experiment) -> None:
    assert experiment.prepare() == 0
    longest = max(len(side) for pair in experiment.encoded(TRAIN) for side in pair)
    for limit, too_long in ((longest, False), (longest - 1, True)):
        (experiment.data_dir / "prepare.json").unlink()
        assert experiment.prepare(f"corpus.max_length={limit}") == 0
        assert (experiment.summary()["counts"]["train"]["too_long"] > 0) == too_long


def test_validation_text_and_ids_are_of_the_same_pairs(experiment: Experiment) -> None:
    long = " ".join(WORDS * 4)
    uneven = ("dog", " ".join(WORDS))
    experiment.write("valid", [VALID[0], ("", "blank"), uneven, (long, long), VALID[1]])
    assert experiment.prepare("corpus.max_length=60") == 0
    kept = [VALID[0], uneven, VALID[1]]
    assert experiment.ids("valid") == experiment.encoded(kept)
    sources = (experiment.data_dir / "valid.source.txt").read_text().splitlines()
    targets = (experiment.data_dir / "valid.target.txt").read_text().splitlines()
    assert list(zip(sources, targets, strict=True)) == kept
    counts = experiment.summary()["counts"]["valid"]
    assert (counts["blank"], counts["too_long"], counts["bad_ratio"]) == (1, 1, 0)


def test_two_runs_write_the_same_bytes(experiment: Experiment) -> None:
    experiment.prepare()
    experiment.prepare(f"data_dir={experiment.directory / 'again'}")
    assert files(experiment.data_dir) == files(experiment.directory / "again")


def test_a_rerun_does_nothing(experiment: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    experiment.prepare()
    before = {path: path.stat().st_mtime_ns for path in experiment.data_dir.rglob("*")}
    capsys.readouterr()
    # Settings of other stages make no difference to the data.
    assert experiment.prepare("training.max_steps=7") == 0
    assert capsys.readouterr().out == f"already prepared: {experiment.data_dir}\n"
    assert {path: path.stat().st_mtime_ns for path in experiment.data_dir.rglob("*")} == before


def test_other_settings_or_text_are_refused(experiment: Experiment) -> None:
    experiment.prepare()
    before = files(experiment.data_dir)
    with pytest.raises(CorpusError, match=message("data-dir-unfit", "tokenizer.vocab_size: 360, now 350")):
        experiment.prepare("tokenizer.vocab_size=350")
    with pytest.raises(CorpusError, match=message("data-dir-unfit", "corpus.max_length: 256, now 99")):
        experiment.prepare("corpus.max_length=99")
    experiment.write("valid", VALID[:-1])
    with pytest.raises(CorpusError, match=message("data-dir-unfit", "the text of valid has changed")):
        experiment.prepare()
    (experiment.data_dir / "prepare.json").write_text("{}")
    with pytest.raises(CorpusError, match=message("data-dir-unfit", "prepare.json cannot be read")):
        experiment.prepare()
    (experiment.data_dir / "prepare.json").write_bytes(before["prepare.json"])
    (experiment.data_dir / SUMS).unlink()
    with pytest.raises(CorpusError, match=message("prepared-data-damaged")):
        experiment.prepare()
    (experiment.data_dir / SUMS).write_bytes(before[SUMS])
    assert files(experiment.data_dir) == before


def test_other_filters_are_refused_unless_they_make_no_difference(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment.prepare()
    with pytest.raises(CorpusError, match=message("data-dir-unfit", "filters.held_out: True, now False")):
        experiment.prepare("filters.held_out=false")
    capsys.readouterr()
    # Where no bad line stopped it, there was none to skip; but what was skipped once would stop it now.
    assert experiment.prepare("filters.on_bad_line=skip") == 0
    assert "already prepared" in capsys.readouterr().out
    skipped = f"data_dir={experiment.directory / 'skipped'}"
    experiment.prepare(skipped, "filters.on_bad_line=skip")
    with pytest.raises(CorpusError, match=message("data-dir-unfit", "filters.on_bad_line: skip, now stop")):
        experiment.prepare(skipped)


def test_validation_on_the_training_text_says_which_filter_is_in_the_way(experiment: Experiment) -> None:
    experiment.write("valid", TRAIN)
    with pytest.raises(CorpusError, match=message("no-pairs-left")):
        experiment.prepare()
    assert experiment.prepare("filters.held_out=false") == 0
    assert experiment.ids("train") == experiment.encoded(TRAIN)


def test_the_first_of_duplicates_stays(experiment: Experiment) -> None:
    again = [TRAIN[7], ("new", "neu"), (f" {TRAIN[8][0]}  ", TRAIN[8][1]), (TRAIN[9][0], "other"), ("new", "neu")]
    experiment.write("train", [*TRAIN[:10], *again, *TRAIN[40:]])
    different = dict.fromkeys([*TRAIN[:10], again[1], again[3], *TRAIN[40:]])
    assert experiment.prepare("filters.duplicates=true") == 0
    assert experiment.ids("train") == experiment.encoded(list(different))
    assert experiment.summary()["counts"]["train"]["duplicate"] == 10 + 5 + 360 - len(different)
    places = places_of_pairs(experiment.data_dir, np.arange(12))
    assert [line for _, line in places] == [*range(1, 11), 12, 14]


def test_sentences_of_duplicates_are_not_counted(experiment: Experiment) -> None:
    experiment.write("train", [*TRAIN, *[("One. Two. Three.", "Eins. Zwei. Drei.")] * 200])
    assert experiment.prepare("filters.duplicates=true") == 0
    lines = json.loads((experiment.data_dir / "training_lines.json").read_text())
    assert (lines["pairs"], lines["usual_sentences"], lines["most_sentences"]) == (len({*TRAIN}) + 1, 1, 3)


def test_a_corpus_that_is_listed_twice_is_told(experiment: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    path = experiment.directory / "train"
    assert experiment.prepare(f"corpus.train=[{{name: a, path: {path}}}, {{name: b, path: {path}}}]") == 0
    assert "warning: train/a and train/b are the same text" in capsys.readouterr().err


def test_the_same_file_with_other_sides_or_another_tag_is_another_text() -> None:
    texts = [PairedText(path="a.tsv", source=1, target=2), PairedText(path="a.tsv", source=2, target=1)]
    texts.append(PairedText(path="a.tsv", source=1, target=2, tag="<2de>"))
    corpora = {f"train/{number}": text for number, text in enumerate(texts)}
    assert not list(twice_warnings(corpora, dict.fromkeys(corpora, "same")))


@pytest.mark.parametrize("name", ["shards.json", "kept.rows"])
def test_a_corpus_is_not_called_like_a_file_beside_it(experiment: Experiment, name: str) -> None:
    with pytest.raises(ConfigError, match=message("corpus-name-of-file", name)):
        experiment.prepare(f"corpus.train=[{{name: {name}, path: {experiment.directory / 'train'}}}]")


def test_killed_at_any_instant_a_rerun_ends_the_same(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops before every rename, removal and encoding in turn, each time with what the stops before left."""
    experiment.prepare(f"data_dir={experiment.directory / 'whole'}")
    calls = {"left": 0}

    def dying(function: Any) -> Any:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            calls["left"] -= 1
            if calls["left"] < 0:
                raise KeyboardInterrupt
            return function(*arguments, **keywords)

        return wrapper

    monkeypatch.setattr(os, "replace", dying(os.replace))
    monkeypatch.setattr(os, "unlink", dying(os.unlink))
    monkeypatch.setattr(shutil, "rmtree", dying(shutil.rmtree))
    monkeypatch.setattr(Tokenizer, "encode_target", dying(Tokenizer.encode_target))
    stops = 0
    while not (experiment.data_dir / "prepare.json").exists():
        calls["left"] = stops
        try:
            experiment.prepare()
        except KeyboardInterrupt:
            stops += 1
    assert stops > 8
    # A stop at the very end may leave the claim of this step, which nobody needs any more.
    found = {name: content for name, content in files(experiment.data_dir).items() if not name.endswith(OWN_SUFFIX)}
    assert found == files(experiment.directory / "whole")


def test_a_corpus_of_nothing_is_refused(experiment: Experiment) -> None:
    with pytest.raises(CorpusError, match=message("no-pairs-left", "400", "400 too long")):
        experiment.prepare("corpus.max_length=2")
    experiment.write("valid", [("", "a")])
    with pytest.raises(CorpusError, match=message("no-pairs-left", "1", "1 with a blank side")):
        experiment.prepare()
    assert not (experiment.data_dir / "prepare.json").exists()
    experiment.write("valid", VALID)
    assert experiment.prepare() == 0


def test_all_files_are_looked_for_before_anything_is_done(experiment: Experiment) -> None:
    (experiment.directory / "test.de").write_text("one line\n")
    with pytest.raises(CorpusError, match=message("line-counts-differ", "test.en", "3 lines", "test.de", "1")):
        experiment.prepare()
    assert not experiment.data_dir.exists()


@pytest.mark.parametrize("name", ["../up", "a b", ".hidden", "", "é"])
def test_names_of_test_sets_are_file_names(experiment: Experiment, name: str) -> None:
    path = experiment.directory / "config.yaml"
    content = yaml.safe_load(path.read_text())
    content["corpus"]["test"] = {name: str(experiment.directory / "test")}
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=message("name-not-allowed", "corpus.test", f"'{name}'", "pattern")):
        experiment.prepare()


@pytest.mark.parametrize("held_out", [True, False])
def test_what_stands_in_training_too_is_told_of_validation_and_test_sets(
    experiment: Experiment, held_out: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    # A pair of the test set, then its source and its target alone, spelled with other spaces; the same of validation,
    # whose second pair is there twice. What is left out of training, such as the blank one, does not count.
    same = ("the same", "dasselbe")
    both = [TEST[0], ("A  dog .", "again"), ("A cat .", f" {TEST[0][1]}"), TEST[1]]
    experiment.write("train", [*TRAIN, *both, ("e\u0301", "new"), same, same])
    experiment.write("valid", [("\u00e9", "old"), same, ("never", "nie"), ("never again", same[1])])
    assert experiment.prepare(f"filters.held_out={str(held_out).lower()}") == 0
    assert experiment.summary()["also_in_training"] == {
        "valid": {"sources": 2, "targets": 2, "pairs": 1},
        "test/small": {"sources": 1, "targets": 1, "pairs": 1},
    }
    printed = capsys.readouterr().out
    fate = "; the training pairs with them are left out" if held_out else ", and stay there"
    assert f"valid: of 4 pairs, these are also in the training text{fate}: 2 sources, 2 targets, 1" in printed
    text = experiment.directory / "train.en"
    assert f"by their pair: line 2 is {text}:406\n" in printed
    assert f"by their pair: line 1 is {text}:401\n" in printed
    kept = TRAIN if held_out else [*TRAIN, *both[:3], ("e\u0301", "new"), same, same]
    assert experiment.ids("train") == experiment.encoded(kept)
    assert experiment.summary()["counts"]["train"]["held_out"] == (6 if held_out else 0)
    found = {"blank": 1, "held_out": 6} if held_out else {"blank": 1}
    assert experiment.summary()["corpora"] == {"train": {"kept": len(kept), **found}}


def test_of_what_stands_in_training_too_three_lines_are_shown(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment.write("train", [*TRAIN, *((source, "other") for source, _ in VALID[:5])])
    experiment.write("valid", [(source, "another") for source, _ in VALID[:5]])
    assert experiment.prepare() == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: valid: ")]
    assert "5 sources, 0 targets, 0 complete pairs. The first by their source: line 1 is /" in line
    assert line.count("train.en:") == 3


def test_the_tokenizer_sees_all_parts_of_the_corpus(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    train = Tokenizer.train

    def listening(sources: Any, targets: Any, *more: Any) -> Tokenizer:
        seen.extend([list(sources), list(targets)])
        return train(seen[0], seen[1], *more)

    monkeypatch.setattr(Tokenizer, "train", listening)
    experiment.prepare("tokenizer.sample_sentences=150")
    assert seen == [[pair[side] for pair in TRAIN[::3]] for side in (0, 1)]


def test_what_the_filters_leave_out_by_its_text_gives_the_tokenizer_no_pieces(experiment: Experiment) -> None:
    junk = [(f"ЖЖЖ {i}", "ЖЖЖ ЖЖЖ") for i in range(200)]
    experiment.prepare()
    clean = (experiment.data_dir / "tokenizer.model").read_bytes()
    experiment.write("train", [*TRAIN[:100], *junk, *TRAIN[100:]])
    for number, filters in enumerate(([], ["filters.min_script_share=0.5"])):
        data_dir = experiment.directory / f"junk{number}"
        experiment.prepare(f"data_dir={data_dir}", *filters)
        tokenizer = Tokenizer.load(data_dir)
        assert (tokenizer.source.piece_to_id("ЖЖЖ") == UNK) == bool(filters)
        assert ((data_dir / "tokenizer.model").read_bytes() == clean) == bool(filters)


def test_somebody_elses_directory_is_not_removed(experiment: Experiment) -> None:
    (experiment.data_dir / "train").mkdir(parents=True)
    (experiment.data_dir / "train" / "corpus.en").write_text("mine\n")
    with pytest.raises(DirectoryError, match=message("directory-of-others", "data", "prepare", "train")):
        experiment.prepare()
    assert (experiment.data_dir / "train" / "corpus.en").read_text() == "mine\n"


def test_a_data_dir_that_cannot_be_made_is_named(experiment: Experiment) -> None:
    experiment.data_dir.write_text("a file\n")
    with pytest.raises(DirectoryError, match=message("file-cannot-be-written", "another data_dir")):
        experiment.prepare()


def test_a_test_line_that_the_model_cannot_read_is_named(experiment: Experiment) -> None:
    experiment.write("test", [("short", "kurz"), ("long " * 40, "lang")])
    with pytest.raises(CorpusError, match=message("source-line-too-long", "test", "small", "2", "32")):
        experiment.prepare("model.max_positions=32", "corpus.max_length=32")


@pytest.mark.parametrize("joint", [True, False])
def test_a_vocabulary_that_is_too_large_for_the_text_is_said(
    experiment: Experiment, capsys: pytest.CaptureFixture[str], joint: bool
) -> None:
    means = []
    for copies in (20, 1):
        shutil.rmtree(experiment.data_dir, ignore_errors=True)
        experiment.write("train", [pair for pair in TRAIN[:14] for _ in range(copies)])
        settings = ["tokenizer.vocab_size=305", f"tokenizer.joint={joint}".lower()]
        assert experiment.prepare(*settings, f"model.tied_embeddings={'all' if joint else 'none'}") == 0
        counts = experiment.summary()["counts"]["train"]
        tokens = [counts["source_tokens"], counts["target_tokens"]]
        means.append((sum(tokens) if joint else min(tokens)) / 305)
    assert means[0] > 3 > means[1]
    notes = [line for line in capsys.readouterr().out.splitlines() if "piece of the vocabulary" in line]
    assert len(notes) == 1 and f"occurs only {means[1]:.0f} times" in notes[0]


def test_a_test_set_that_was_cut_or_tokenised_is_warned_of_before_training(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert experiment.prepare() == 0
    assert "subword" not in capsys.readouterr().err
    shutil.rmtree(experiment.data_dir)
    experiment.write("valid", [("A dog .", "EIN HUND .")] * 5)
    experiment.write("test", [("A dog.", "EIN HUND."), ("A cat.", "EINE KAT@@ ZE.")])
    assert experiment.prepare() == 0
    said = capsys.readouterr().err
    assert "warning: 5 of 5 lines of the targets of valid look tokenised" in said
    assert "warning: targets of test/small, line 2: contains subword pieces" in said
    assert said.count("warning") == 2
