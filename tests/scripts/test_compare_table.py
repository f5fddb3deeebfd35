"""The table and the picture of the comparison of architectures, on results made up for it."""

import json

import pytest
import torch
from compare_table import figure_of, main, read_row, table
from safetensors.torch import save_file

from transformer_mt.base.errors import EvaluationError
from transformer_mt.evaluation.analysis import Analysis, Group
from transformer_mt.evaluation.metrics import MetricScore
from transformer_mt.evaluation.scores_json import Checksums, TestSetScores, write_scores
from transformer_mt.terminal import cli

NONE = Checksums(references=[], hypotheses="")


def write_run(runs, name, bleu=90.0, speed=None):
    """As evaluate leaves it, with weights of 2 x 3 + 4 parameters; and where `speed` is given, of speed."""
    run = runs / name
    (run / "evaluation").mkdir(parents=True)
    (run / "model").mkdir()
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4)}, run / "model" / "model.safetensors")
    groups = [Group(1, 10, 7, bleu, bleu), Group(21, 30, 3, bleu / 2, bleu / 2)]
    analysis = Analysis("word", groups, 1.0, {}, [])
    score = MetricScore(bleu, "nrefs:1", 1.25)
    found = TestSetScores(num_lines=10, scores={"BLEU": score}, checksums=NONE, analysis=analysis)
    write_scores(run / "evaluation" / "scores.json", {"news": found})
    write_log(run, {"tokens": 600, "tokens_per_second": 1.0}, {"tokens": 120000, "tokens_per_second": 2.0})
    if speed is not None:
        (runs / "speed" / name).mkdir(parents=True)
        write_log(runs / "speed" / name, {"tokens_per_second": 3.0}, {"tokens_per_second": speed})
        found = TestSetScores(num_lines=10, scores={}, checksums=NONE, sentences_per_second=12.34)
        write_scores(runs / "speed" / f"{name}.json", {"news": found})


def write_log(run, *updates):
    records = [{"step": 1, "valid_bleu": 2.0}, *updates, {"step": 3, "valid_bleu": 2.0}]
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_line_an_architecture_in_the_order_asked_for(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    write_run(tmp_path, "rnn-none", bleu=12.345)
    write_run(tmp_path, "transformer-learned", speed=1000.0)
    assert main([str(tmp_path), "transformer-learned", "rnn-none"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| transformer-learned | 10 | 90.0 ± 1.2 | 1,000 | 2 min | 12.3 |"
    assert lines[3] == "| rnn-none | 10 | 12.3 ± 1.2 | – | – | – |"
    assert {line.count("|") for line in lines} == {7} and len(lines) == 4


def test_the_picture_has_a_line_an_architecture_and_says_how_many_sentences_there_are(tmp_path):
    pytest.importorskip("matplotlib")
    write_run(tmp_path, "rnn-none")
    write_run(tmp_path, "rnn-dot", bleu=40.0)
    figure = figure_of([read_row(tmp_path, name) for name in ("rnn-none", "rnn-dot")])
    [axes], [legend] = figure.axes, figure.legends
    assert [list(line.get_ydata()) for line in axes.lines] == [[90.0, 45.0], [40.0, 20.0]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1–10\n7", "21–30\n3"]
    assert [text.get_text() for text in legend.get_texts()] == ["rnn-none", "rnn-dot"]
    main([str(tmp_path), "rnn-none", "rnn-dot"])
    assert (tmp_path / "by_length.png").read_bytes().startswith(b"\x89PNG")


def test_speeds_are_measured_apart(tmp_path):
    """What a run's own log says of speed was measured beside other work."""
    write_run(tmp_path, "rnn-dot", speed=500.0)
    row = read_row(tmp_path, "rnn-dot")
    assert (row.tokens_per_second, row.sentences_per_second, row.num_target_tokens) == (500.0, 12.34, 120000)
    assert "| 500 | 4 min | 12.3 |" in table([row])


@pytest.mark.parametrize("missing", ["evaluation/scores.json", "log.jsonl"])
def test_missing_results_are_named(tmp_path, missing):
    write_run(tmp_path, "rnn-dot")
    (tmp_path / "rnn-dot" / missing).unlink()
    with pytest.raises(EvaluationError, match=r"rnn-dot.*compare_architectures\.sh"):
        read_row(tmp_path, "rnn-dot")
    assert cli.run(main, [str(tmp_path), "rnn-dot"]) == 2
