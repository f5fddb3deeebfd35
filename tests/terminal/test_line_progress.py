"""What a log says of a long translation."""

import re

import pytest

from transformer_mt.terminal.line_progress import LineProgress


@pytest.mark.parametrize(("num_lines", "of", "left"), [(1200, r" of 1,200", r", \d+ s left"), (None, "", "")])
def test_a_log_gets_a_line_with_the_rate_now_and_then(num_lines, of, left, capsys):
    with LineProgress(num_lines, every=0.0) as progress:
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
    clock = iter([0.0, 10.0])
    monkeypatch.setattr("transformer_mt.terminal.line_progress.time.monotonic", lambda: next(clock))
    with LineProgress(600, every=1.0, done_before=100) as progress:
        progress.reached(done)
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(f" of 600 lines, {(done - 100) / 10:.1f} a second, {left} left")


def test_a_short_translation_says_nothing_in_a_log(capsys):
    with LineProgress(5) as progress:
        progress.more(5)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with LineProgress(4) as progress:
        progress.more(2)
        progress.reached(4)
    assert "4/4" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [True, False])
def test_it_moves_inside_a_long_line(terminal, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    with LineProgress(2, every=0.0) as progress:
        for _ in range(6):
            progress.more(0.1)
        if progress._bar is not None:
            progress._bar.refresh()
    assert ("0.6/2" if terminal else "\n0.6 of 2 lines, ") in capsys.readouterr().err
