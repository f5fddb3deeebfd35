"""Reads JSON lines: an object on each line, two fields of which are the sides of a pair."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.corpora.corpus import BadPair, Block, Corpus, blocks_of_file, pair_of_texts
from transformer_mt.corpora.fields import FieldPath, find_field, names_of_fields
from transformer_mt.corpora.lines import BadLine, all_lines
from transformer_mt.corpora.single_files import open_files
from transformer_mt.corpora.text_files import opened_again
from transformer_mt.settings.corpus import PairedText
from transformer_mt.wording import cut


def open_jsonl(text: PairedText) -> Corpus:
    """Open JSON lines. Raises CorpusError if the file cannot be read or is empty."""

    def read(path: Path, digest: str) -> Iterator[Block]:
        with opened_again(path, digest) as file:
            yield from blocks_of_file(str(path), _pairs(text, all_lines(file, str(path))))

    return open_files(text, read, lambda path, of_file: of_file.num_lines)


def _pairs(text: PairedText, lines: Iterator[str | BadLine]) -> Iterator[tuple[str, str] | BadPair]:
    source, target = str(text.source), str(text.target)
    paths: dict[str, FieldPath] = {}
    for line in lines:
        if isinstance(line, BadLine):
            yield BadPair(line.fault)
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield BadPair(f"is not JSON ({cut(str(error))}); found: {cut(line) or 'nothing'}")
            continue
        sides = [_value(row, name, paths) for name in (source, target)]
        faults = [side for side in sides if isinstance(side, BadPair)]
        yield faults[0] if faults else pair_of_texts(*sides)  # type: ignore[arg-type]  # both are texts


def _value(row: Any, name: str, paths: dict[str, FieldPath]) -> str | BadPair:
    """Return the text of a field; a null is an empty text. `paths` keeps where the last row had it."""
    if not isinstance(row, dict):
        return BadPair(f"is JSON, but no object with fields; found: {cut(json.dumps(row))}")
    value: Any = row
    try:
        for part in paths.get(name, (name,)):
            value = value[part]
    except (KeyError, TypeError, IndexError):
        path = find_field(row, name)
        if path is None:
            return BadPair(f"has no field {name}, but: {cut(names_of_fields(row), 200)}")
        paths[name] = path
        return _value(row, name, paths)
    if isinstance(value, str):
        return value
    return "" if value is None else BadPair(f"{name} is no text, but: {cut(json.dumps(value))}")
