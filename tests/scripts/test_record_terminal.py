"""The script record_terminal.py: what its picture shows is what a terminal showed."""

import re
from xml.etree import ElementTree

import pytest
import record_terminal
from helpers.tiny import ROOT
from record_terminal import COLUMNS, LINES, drawn, lines_of, recorded, shortened

SVG = "{http://www.w3.org/2000/svg}"


def last_screen(svg: str) -> list[str]:
    """What is seen without animation, from the top of the window down."""
    root = ElementTree.fromstring(svg)
    [moved] = re.findall(r"#lines \{ transform: translateY\(-(\d+)px\)", svg)
    texts = [text for text in root.iter(f"{SVG}text") if not {"old", "head"} & set(text.get("class", "").split())]
    return [str(text.text) for text in texts if float(text.get("y", "")) > int(moved)]


def delays(svg: str) -> list[float]:
    """How many seconds each of its animations waits. Without an animation that runs, the last screen is seen."""
    return [float(after or 0) for after in re.findall(r"animation:\s*\w+ [\d.]+s(?: ([\d.]+)s)?", svg)]


def test_a_command_runs_in_a_terminal_and_is_drawn(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    events = recorded("test -t 1 && stty size && printf '50 %%\\r99 %%\\n' && echo '<über>'")
    svg = drawn(shortened(events), seconds=100.0)
    command, *output = last_screen(svg)
    assert command.startswith("$ test -t 1")
    assert output == [f"{LINES} {COLUMNS}", "99 %", "<über>"]
    assert "2 minutes of work" in svg


def test_a_command_that_fails_is_not_drawn():
    with pytest.raises(SystemExit, match=r"failed.*: false"):
        recorded("false")


def test_a_line_that_is_written_over_has_versions_and_a_long_one_goes_on_below():
    film = [(1.0, "10 %"), (2.0, "\r20"), (3.0, "\r    \rdone\r\n"), (4.0, "x" * COLUMNS + "y")]
    assert lines_of(film) == [
        [(1.0, "10 %"), (2.0, "20 %"), (3.0, "done")],
        [(3.0, ""), (4.0, "x" * COLUMNS)],
        [(4.0, "y")],
    ]


def test_waits_are_shortened_and_typing_takes_time():
    film = shortened([(0.0, "$ "), (0.0, "l"), (100.0, "a\r\n"), (100.1, "b\r\n"), (200.0, "\r5 %")])
    shown = [time for time, _ in film]
    typed, waited, bar = record_terminal.TYPED, record_terminal.LINE_WAIT, record_terminal.BAR_WAIT
    assert shown == pytest.approx([typed, 2 * typed, 2 * typed + waited, 2 * typed + waited + 0.1, shown[3] + bar])


def test_the_first_picture_is_the_last_screen():
    """As readers see it where animations do not run, as in PDF."""
    film = [(0.0, "1 %"), (1.0, "\r2 %\r\n"), *((float(number), f"{number}\r\n") for number in range(LINES + 5))]
    for svg in (drawn(film, seconds=5.0), (ROOT / record_terminal.OUTPUT).read_text(encoding="utf-8")):
        assert min(delays(svg)) >= 1 and len(delays(svg)) > LINES
        assert "@media print" in svg


def test_the_window_ends_with_the_newest_line():
    film = [(float(number), f"line {number}\r\n") for number in range(LINES + 5)]
    assert last_screen(drawn(film, seconds=5.0)) == [f"line {number}" for number in range(6, LINES + 5)]
