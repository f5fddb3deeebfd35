"""Files of a run, damaged in every place: each value of their JSON, and each file as a whole."""

import copy
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MARK = "in the place of this"
_HUGE = "1" + "0" * 400
VALUES = ["null", "{}", "[]", '""', "NaN", "1e999", _HUGE, "-1", "true", '"\\ud800"', "[[]]", "1e308", "5e-324"]
"""JSON, or nearly, that stands in the place of a value."""
_LONG = b"word " * 200_000


@dataclass(frozen=True)
class Damage:
    """What becomes of one file: other bytes, or a function that puts something else there."""

    file: Path
    what: str
    then: bytes | Callable[[Path], object]

    @contextmanager
    def done(self) -> Iterator[None]:
        """The file is damaged inside, and whole again afterwards."""
        whole = self.file.read_bytes()
        self.file.unlink()
        try:
            if callable(self.then):
                self.then(self.file)
            else:
                self.file.write_bytes(self.then)
            yield
        finally:
            if self.file.is_dir():
                shutil.rmtree(self.file)
            self.file.unlink(missing_ok=True)
            self.file.write_bytes(whole)


def damaged_files(directory: Path, read: Callable[[Path], bool]) -> Iterator[Damage]:
    """Each file below the directory that `read` chooses: cut short, overwritten, or something else than a file."""
    for file in sorted(file for file in directory.rglob("*") if file.is_file() and read(file)):
        content = file.read_bytes()
        for what, then in {
            "empty": b"",
            "cut": content[: len(content) // 2],
            "without its end": content[:-1],
            "a long line before it": _LONG + content,
            "a long line": b"x" * 1_000_000,
            "any bytes": bytes(range(256)) * 9,
            "NULs": content[:50] + bytes(50) + content[100:],
            "nested": b"[" * 100_000,
            "missing": lambda path: None,
            "a directory": Path.mkdir,
            "a pipe": os.mkfifo,
            "a link to itself": lambda path: path.symlink_to(path.name),
        }.items():
            yield Damage(file, what, then)


def damaged_json(file: Path) -> Iterator[Damage]:
    """A JSON file in which one value is another, or is missing."""
    for what, text in _texts(json.loads(file.read_text(encoding="utf-8"))):
        yield Damage(file, what, text.encode())


def damaged_lines(file: Path) -> Iterator[Damage]:
    """A file of JSON lines: of each kind of lines, those of the same fields, the first and the last are damaged."""
    lines = file.read_text(encoding="utf-8").splitlines()
    kinds: dict[tuple[str, ...], list[int]] = {}
    for number, line in enumerate(lines):
        kinds.setdefault(tuple(json.loads(line)), []).append(number)
    for number in sorted({number for kind in kinds.values() for number in (kind[0], kind[-1])}):
        for what, text in _texts(json.loads(lines[number])):
            changed = [*lines[:number], text, *lines[number + 1 :]]
            yield Damage(file, f"line {number + 1}, {what}", "".join(f"{line}\n" for line in changed).encode())


def _texts(content: Any) -> Iterator[tuple[str, str]]:
    for path in _paths(content, ()):
        for value in [*VALUES, None]:
            damaged: Any = {"": copy.deepcopy(content)}
            inside = damaged
            for key in ["", *path][:-1]:
                inside = inside[key]
            if value is None:
                del inside[["", *path][-1]]
            else:
                inside[["", *path][-1]] = _MARK
            text = json.dumps(damaged.get("", None), ensure_ascii=False)
            yield f"{'.'.join(map(str, path))}: {value and value[:10]}", text.replace(f'"{_MARK}"', value or "")


def _paths(content: Any, before: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    yield before
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from _paths(value, (*before, key))
