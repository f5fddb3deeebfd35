"""Reads JSON lines: an object on each line, two fields of which are the sides of a pair."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.corpora.corpus import BadPair, Block, Corpus, blocks_of_file, pair_of_texts
from transformer_mt.corpora.fields import find_field, names_of_fields
from transformer_mt.corpora.lines import BadLine, all_lines
from transformer_mt.corpora.single_files import open_files
from transformer_mt.corpora.text_files import opened_again
from transformer_mt.settings.corpus import PairedText
from transformer_mt.wording import cut


def open_jsonl(text: PairedText) -> Corpus:
    """Open JSON lines. Raises CorpusError if the file cannot be read or is empty."""

    def read(path: Path, digest: str) -> Iterator[Block]:
        with opened_again(path, digest) as file:
            yield from blocks_of_file(str(path), _json_pairs(text, all_lines(file, str(path))))

    return open_files(text, read, lambda path, of_file: of_file.num_lines)


def _json_pairs(text: PairedText, lines: Iterator[str | BadLine]) -> Iterator[tuple[str, str] | BadPair]:
    for line in lines:
        if isinstance(line, BadLine):
            yield BadPair(line.fault)
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield BadPair(f"is not JSON ({cut(str(error))}); found: {cut(line) or 'nothing'}")
            continue
        try:
            yield pair_of_texts(_value(row, str(text.source)), _value(row, str(text.target)))
        except ValueError as error:
            yield BadPair(str(error))


def _value(row: Any, name: str) -> str:
    """Return the text of a field; a null is an empty text. Raises ValueError if there is no such text."""
    if not isinstance(row, dict):
        raise ValueError(f"is JSON, but no object with fields; found: {cut(json.dumps(row))}")
    path = find_field(row, name)
    if path is None:
        raise ValueError(f"has no field {name}, but: {cut(names_of_fields(row), 200)}")
    value: Any = row
    for part in path:
        value = value[part]
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is no text, but: {cut(json.dumps(value))}")
    return value or ""
