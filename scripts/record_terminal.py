"""Records what a terminal shows while a model is trained and used, and draws it as docs/terminal.svg, an animation.

    git clone . ~/transformer_mt && cd ~/transformer_mt && make setup
    .venv/bin/python scripts/record_terminal.py ["COMMAND" …]

The commands (without arguments: COMMANDS) really run, in a pseudo-terminal, and the picture shortens the waits between
their outputs. It begins with the last screen, which is what readers see where animations do not run: in print, and
where they are turned off. It shows every path that is printed.
"""

import codecs
import html
import os
import pty
import sys
import time
from itertools import pairwise
from pathlib import Path

OUTPUT = Path("docs/terminal.svg")
COMMANDS = (
    "make train",
    "echo 'The child is sleeping.' | .venv/bin/python -m transformer_mt.translate runs/demo_en_de/model",
)
COLUMNS, LINES = 100, 30
TYPED, FRAME = 0.04, 0.2  # seconds for a typed character; least seconds between two pictures of a line
STILL = 2.0  # seconds for which the last screen is shown first
LINE_WAIT, BAR_WAIT = 0.35, 0.03  # longest waits, in seconds, before a new line and before a progress bar moves
WIDTH, HEIGHT, MARGIN, TOP = 8.43, 18, 16, 40  # of a character, of a line, and around the lines, in pixels

Event = tuple[float, str]  # seconds since the start, and what was written
Version = tuple[float, str]  # from when on a line has this text

STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
text { fill: #e6edf3; white-space: pre }
.typed { fill: #7ee787; font-weight: bold }
.head { fill: #9198a1; text-anchor: middle }
.old { opacity: 0 }
@keyframes hide { from, to { opacity: 0 } }
@keyframes show { from, to { opacity: 1 } }
@media print, (prefers-reduced-motion: reduce) { * { animation: none !important } }
"""


def recorded(command: str) -> list[Event]:
    """Run a command of the shell in a pseudo-terminal; the events begin with what a person types. Ends if it fails."""
    begun, decoder = time.monotonic(), codecs.getincrementaldecoder("utf-8")("replace")
    events = [(0.0, "$ "), *((0.0, letter) for letter in command), (0.0, "\r\n")]

    def read(terminal: int) -> bytes:
        data = os.read(terminal, 65536)
        events.append((time.monotonic() - begun, decoder.decode(data)))
        return data

    if pty.spawn(["sh", "-c", f"stty cols {COLUMNS} rows {LINES}; {command}"], read) != 0:
        raise SystemExit(f"error: this command failed, so no picture was written: {command}")
    return events


def shortened(events: list[Event]) -> list[Event]:
    """The same events with the times of the film: typing takes time, and waiting takes less."""
    film, now = [], 0.0
    for (before, _), (at, text) in pairwise([(0.0, ""), *events]):
        now += TYPED if at == 0 else min(at - before, LINE_WAIT if "\n" in text else BAR_WAIT)
        film.append((now, text))
    return film


def lines_of(film: list[Event]) -> list[list[Version]]:
    """The versions of each line that the terminal ever showed. Knows no escape sequences, which dumb terminals lack."""
    lines: list[list[Version]] = [[]]
    text, column = "", 0
    for at, written in film:
        for letter in written:
            if letter == "\r":
                column = 0
            elif letter == "\n" or column == COLUMNS:
                add_version(lines[-1], at, text)
                lines.append([])
                text, column = "", 0
            if letter not in "\r\n":
                text = f"{text[:column]}{letter}{text[column + 1 :]}"
                column += 1
        add_version(lines[-1], at, text)
    return lines


def add_version(versions: list[Version], at: float, text: str) -> None:
    """Show a line from now on with this text; in place of the last version if that was shown a moment ago."""
    text = text.rstrip()
    if versions and at - versions[-1][0] < FRAME:
        versions[-1] = (versions[-1][0], text)
    elif not versions or versions[-1][1] != text:
        versions.append((at, text))


def drawn_line(row: int, versions: list[Version]) -> str:
    """A line as elements of SVG. Without animation, only its last version can be seen."""
    drawn, y = "", (row + 1) * HEIGHT - 4
    kind = "typed" if versions[-1][1].startswith("$") else ""
    for number, (at, text) in enumerate(versions):
        if number + 1 < len(versions):
            names, moves = f"{kind} old", f"show {versions[number + 1][0] - at:.2f}s {at + STILL:.2f}s"
        else:
            names, moves = kind, f"hide {at:.2f}s {STILL:.2f}s"
        if text:
            drawn += f'<text class="{names.strip()}" y="{y}" style="animation:{moves}">{html.escape(text)}</text>\n'
    return drawn


def drawn(film: list[Event], seconds: float) -> str:
    """The film as SVG; `seconds` is how long the commands took."""
    lines, end = lines_of(film), film[-1][0] + 1
    scrolled = [(lines[row][0][0], (row + 1 - LINES) * HEIGHT) for row in range(LINES, len(lines))]
    steps = "\n".join(f"{100 * at / end:.2f}% {{ transform: translateY(-{by}px) }}" for at, by in scrolled)
    last = scrolled[-1][1] if scrolled else 0
    width, height = round(COLUMNS * WIDTH) + 2 * MARGIN, LINES * HEIGHT + TOP + MARGIN
    texts = "".join(drawn_line(row, versions) for row, versions in enumerate(lines))
    took = f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{seconds:.0f} seconds"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" xml:space="preserve">
<title>A terminal: a model is trained and scored, and translates a sentence</title>
<style>{STYLE}@keyframes scroll {{ 0% {{ transform: none }}
{steps} }}
#lines {{ transform: translateY(-{last}px); animation: scroll {end:.2f}s {STILL:.2f}s steps(1, end) }}
</style>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="#0d1117" stroke="#6e7681"/>
<text class="head" x="{width / 2}" y="24">{took} of work, shown in {end:.0f} seconds</text>
<svg x="{MARGIN}" y="{TOP}" width="{width - 2 * MARGIN}" height="{LINES * HEIGHT}"><g id="lines">
{texts}</g></svg>
</svg>
"""


def main() -> int:
    """Record the commands, and write OUTPUT."""
    os.environ["TERM"] = "dumb"  # no colours, and no other escape sequences
    recordings = [recorded(command) for command in sys.argv[1:] or COMMANDS]
    film: list[Event] = []
    for events in [*recordings, [(0.0, "$ ")]]:
        begun = film[-1][0] + LINE_WAIT if film else 0.0
        film += [(begun + at, text) for at, text in shortened(events)]
    OUTPUT.write_text(drawn(film, sum(events[-1][0] for events in recordings)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
