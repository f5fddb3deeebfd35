"""What a log says of work that takes long."""

import re

import pytest
from helpers.tiny import prepared_experiment

from transformer_mt import average, evaluate, rerank, score, translate
from transformer_mt.base.wording import LineProgress


@pytest.mark.parametrize(("num_lines", "of", "left"), [(1200, r" of 1,200", r", \d+ s left"), (None, "", "")])
def test_a_log_gets_a_line_with_the_rate_now_and_then(num_lines, of, left, monkeypatch, capsys):
    monkeypatch.setattr("transformer_mt.base.wording._EVERY", 0.0)
    with LineProgress(num_lines) as progress:
        progress.more(3)
        progress.more(997)
        progress.reached(1001)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    for line, done in zip(lines, ["3", "1,000", "1,001"], strict=True):
        assert re.fullmatch(rf"{done}{of} lines, [\d,]+\.\d a second{left}", line)


@pytest.mark.parametrize(
    ("done", "left"),
    [
        (300, "15 s"),
        (200, "40 s"),
        (110, "8 min"),
        (101, "1 h 23 min"),
        (100.1, "13 h 53 min"),
        (100.01, "5 days 19 h"),
    ],
)
def test_the_rate_and_the_time_left_are_of_the_lines_that_are_done_now(done, left, monkeypatch, capsys):
    monkeypatch.setattr("transformer_mt.base.wording._EVERY", 1.0)
    clock = iter([0.0, 10.0])
    monkeypatch.setattr("transformer_mt.base.wording.time.monotonic", lambda: next(clock))
    with LineProgress(600, done_before=100) as progress:
        progress.reached(done)
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(f" of 600 lines, {(done - 100) / 10:.1f} a second, {left} left")


def test_of_many_lines_only_whole_ones_are_shown(monkeypatch, capsys):
    monkeypatch.setattr("transformer_mt.base.wording._EVERY", 0.0)
    with LineProgress(60_000) as progress:
        progress.reached(18_939.8)
        progress.reached(99.99999)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("18,939 of 60,000 lines, ") and second.startswith("100 of 60,000 lines, ")


def test_a_short_translation_says_nothing_in_a_log(capsys):
    with LineProgress(5) as progress:
        progress.more(5)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with LineProgress(4, doing="train: ") as progress:
        progress.more(2)
        progress.reached(4)
    assert re.search(r"\rtrain: 100%.* 4/4 ", capsys.readouterr().err)


@pytest.mark.parametrize("terminal", [True, False])
def test_it_moves_inside_a_long_line(terminal, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    monkeypatch.setattr("transformer_mt.base.wording._EVERY", 0.0)
    with LineProgress(2) as progress:
        for _ in range(6):
            progress.more(0.1)
        if progress._bar is not None:
            progress._bar.refresh()
    assert ("0.6/2" if terminal else "\n0.6 of 2 lines, ") in capsys.readouterr().err


@pytest.fixture
def talkative(monkeypatch):
    """A line in the log whenever more is done, not only every half minute."""
    monkeypatch.setattr("transformer_mt.base.wording._EVERY", 0.0)


@pytest.mark.usefixtures("talkative")
def test_prepare_says_in_a_log_how_many_training_pairs_are_done(tmp_path, capsys):
    prepared_experiment(tmp_path)
    error = capsys.readouterr().err
    assert re.search("^train: 300 of 300 pairs, ", error, re.MULTILINE), error


@pytest.mark.thorough
@pytest.mark.usefixtures("talkative")
def test_evaluate_says_in_a_log_how_many_lines_of_each_set_are_done(run, capsys):
    average.main([str(run), "choose=last"])
    capsys.readouterr()
    assert evaluate.main([str(run), "--tune", "beam_size=1,2", "--device", "cpu"]) == 0
    error = capsys.readouterr().err
    for name, number, times in (("validation set", 8, 2), ("tiny", 20, 1)):
        # At least one line while the set is translated, and one when all of it is.
        assert len(re.findall(rf"^{name}: [\d.]+ of {number} lines, ", error, re.MULTILINE)) >= 2 * times
        assert len(re.findall(rf"^{name}: {number} of {number} lines, ", error, re.MULTILINE)) >= times


@pytest.mark.usefixtures("talkative")
def test_what_reads_a_file_of_lines_says_in_a_log_how_many_are_done(model_dir, tmp_path, run_stage, capsys):
    source, lists = tmp_path / "source.txt", tmp_path / "lists.jsonl"
    source.write_text("The child is sleeping.\n" * 5)
    commands = [
        (translate, [model_dir, "--input", source, "--json", "n_best=2"]),
        (score, [model_dir, source, source]),
        (rerank, [lists, "log_prob=2"]),
    ]
    for stage, arguments in commands:
        status, written = run_stage(stage.main, b"", *arguments, "--buffer-lines", "2")
        assert status == 0
        error = capsys.readouterr().err
        for number in (2, 4, 5):
            assert re.search(rf"^{number} of 5 lines, ", error, re.MULTILINE), stage
        if stage is translate:
            lists.write_bytes(written)
