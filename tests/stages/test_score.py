"""The stage score."""

import json

import pytest
from helpers.messages import says
from helpers.thorough import thorough
from helpers.tiny import demo_pairs

from transformer_mt import score, translate
from transformer_mt.decoding.scorer import Scorer

SENTENCES, REFERENCES = zip(*demo_pairs(6), strict=True)


@pytest.fixture
def run_score(run_stage, model_dir):
    """A function that scores these bytes with these arguments: exit status, and what was written."""
    return lambda content, *arguments: run_stage(score.main, content, model_dir, *arguments, "--device", "cpu")


@pytest.fixture
def files(tmp_path):
    """The names of a file of sources and one of targets, with a blank pair."""
    paths = [tmp_path / "sources", tmp_path / "targets"]
    for path, lines in zip(paths, (SENTENCES, REFERENCES), strict=True):
        path.write_text("".join(f"{line}\n" for line in [*lines, ""]), encoding="utf-8")
    return paths


def test_a_line_a_pair_of_sum_and_mean(run_score, model_dir, files):
    status, output = run_score(b"", *files, "--buffer-lines", 2)
    expected = Scorer.load(model_dir, "cpu").score([*SENTENCES, ""], [*REFERENCES, ""])
    assert status == 0
    lines = [[float(column) for column in line.split("\t")] for line in output.decode().splitlines()]
    for line, pair in zip(lines, expected, strict=True):
        assert line == pytest.approx([pair.log_prob, pair.average], abs=1e-4)


def test_pairs_of_standard_input_are_those_of_files(run_score, files):
    pairs = "".join(f"{source}\t{target}\n" for source, target in zip(SENTENCES, REFERENCES, strict=True)) + "\t\n"
    assert run_score(pairs.encode()) == run_score(b"", *files)


def test_flags_may_stand_before_the_files(run_score, files):
    assert run_score(b"", "--json", *files) == run_score(b"", *files, "--json")


def test_json_has_each_piece(run_score, files):
    _, columns = run_score(b"", *files)
    status, output = run_score(b"", *files, "--json")
    assert status == 0
    objects = [json.loads(line) for line in output.decode().splitlines()]
    assert [found["line"] for found in objects] == list(range(1, 8))
    for found, line in zip(objects, columns.decode().splitlines(), strict=True):
        # Both round the same number, to six and to four digits, so rounding the first again may differ.
        assert [*map(float, line.split("\t"))] == pytest.approx([found["log_prob"], found["average"]], abs=6e-5)
        assert sum(token["log_prob"] for token in found["tokens"]) == pytest.approx(found["log_prob"], abs=1e-4)
    assert "".join(token["piece"] for token in objects[0]["tokens"]).replace("▁", " ") == f" {REFERENCES[0]}</s>"
    assert objects[-1] == {"line": 7, "log_prob": 0.0, "average": 0.0, "tokens": []}


@pytest.mark.parametrize(
    "settings", [*thorough(["beam_size=1"]), ["beam_size=4"], *thorough(["sampling=true", "seed=3"])]
)
def test_pieces_that_translate_wrote_have_the_probability_that_it_reported(run_stage, run_score, model_dir, settings):
    lines = "\n".join([*SENTENCES, ""]).encode()
    _, output = run_stage(translate.main, lines, model_dir, "--device", "cpu", "--json", *settings)
    found = [json.loads(line) for line in output.decode().splitlines()]
    pairs = [f"{source}\t{' '.join(line['pieces'])}\n" for source, line in zip(SENTENCES, found, strict=True)]
    status, output = run_score("".join(pairs).encode(), "--pieces")
    assert status == 0
    for line, scored in zip(found, output.decode().splitlines(), strict=True):
        assert float(scored.split("\t")[0]) == pytest.approx(line["log_prob"], abs=1e-4)


@pytest.mark.parametrize(("content", "tabs"), [(b"a\tb\na\n", 0), (b"a\tb\na\tb\tc\n", 2), (b"a\tb\n\n", 0)])
def test_a_line_that_is_no_pair_is_named(run_score, content, tabs, capsys):
    status, output = run_score(content, "--buffer-lines", 1)
    assert (status, output.count(b"\n")) == (2, 1), "the pair before it is not lost"
    assert says(capsys.readouterr().err, "tabs-in-pair-wrong", "standard input:2", f" {tabs} ")


def test_files_that_do_not_go_together_are_named(run_score, files, capsys):
    sources, targets = files
    targets.write_text("Ein Hund.\n")
    assert run_score(b"", sources, targets)[0] == 2
    assert run_score(b"", targets, sources)[0] == 2
    assert run_score(b"", sources)[0] == 2
    assert run_score(b"", sources, "nowhere")[0] == 2
    errors = capsys.readouterr().err.splitlines()
    first, second, third, fourth = errors
    assert says(first, "line-beside-missing", "targets:", "2")
    assert says(second, "line-beside-too-many", "sources:", "2")
    assert says(third, "target-file-not-named")
    assert "nowhere: " in fourth
