"""Reads tables: lines with columns between tabs (TSV), and comma-separated values (CSV)."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.remote import Place
from transformer_mt.base.wording import counted, cut
from transformer_mt.corpora.corpus import LOW_SCORE, BadPair, Corpus, open_lines, pair_of_texts
from transformer_mt.corpora.text_files import BadLine
from transformer_mt.settings.corpus_settings import PairedText

_SEPARATORS = (",", ";", "\t")  # spreadsheets use semicolons in languages that write 0,5 for 0.5


def open_tsv(text: PairedText) -> Corpus:
    """Open lines with columns between tabs. If `text` has names of columns, the first line contains these names.

    Raises CorpusError if the file cannot be read or is empty, if a name is missing in the first line, or if there are
    more than two columns and `text` does not choose two of them.
    """
    header = int(isinstance(text.source, str))
    return open_lines(text, _pairs_of_lines, lambda num_lines: max(0, num_lines - header), first=1 + header)


def open_csv(text: PairedText) -> Corpus:
    """Open comma-separated values (or ; or tabs) with names of columns in the first row. Raises CorpusError."""
    # A quoted cell can have several lines, so the number of rows is unknown, unless there is only a header.
    return open_lines(text, _rows, lambda num_lines: 0 if num_lines <= 1 else None, "row", first=2)


def _wanted(text: PairedText) -> list[str | int]:
    """Return what names the columns of source, target and, if there is one, score."""
    return [text.source or 1, text.target or 2, *([] if text.score is None else [text.score])]


def _columns_of_tsv(text: PairedText, path: Place, header: str | BadLine) -> list[int]:
    """Return the indices, from 0, of the columns of `_wanted`. Raises CorpusError like `open_tsv`."""
    num_columns = 0 if isinstance(header, BadLine) else header.count("\t") + 1
    if text.source is None and num_columns > 2 + (text.score is not None):
        raise CorpusError(
            f"{path}:1: has {num_columns} columns; write which are the source and the target: {{path: {path}, "
            f"source: NUMBER, target: NUMBER}}. Found: {cut(str(header))}"
        )
    wanted = _wanted(text)
    if numbers := [part - 1 for part in wanted if isinstance(part, int)]:
        return numbers
    if isinstance(header, BadLine):
        raise CorpusError(f"{path}:1: {header.fault}")
    return [_index(str(name), header.split("\t"), path) for name in wanted]


def _index(name: str, names: Sequence[str], path: Place) -> int:
    if names.count(name) == 1:
        return names.index(name)
    found = ", ".join(names)
    if name in names:
        raise CorpusError(f"{path}:1: two columns have the name {name} (found: {cut(found, 200)}); rename one of them")
    raise CorpusError(
        f"{path}:1: no column has the name {name}; the first line has: {cut(found, 200)}. Set the keys of "
        "the columns (source, target, score) to names from this list"
    )


def _pairs_of_lines(
    text: PairedText, path: Place, lines: Iterator[str | BadLine]
) -> Iterator[tuple[str, str] | BadPair]:
    """Read the pair of each line. All must have as many columns as the line of names, or as the first good line."""
    first = next(lines, None)
    if first is None:
        return
    columns, has_names = _columns_of_tsv(text, path, first), isinstance(text.source, str)
    num_columns = first.count("\t") + 1 if has_names and isinstance(first, str) else 0
    for line in lines if has_names else chain([first], lines):
        if isinstance(line, BadLine):
            yield BadPair(line.fault)
            continue
        pair = _pair_of_cells(line.split("\t"), columns, num_columns, text.min_score)
        if not num_columns and not isinstance(pair, BadPair):
            num_columns = line.count("\t") + 1
        yield pair


def _pair_of_cells(
    cells: list[str], columns: Sequence[int], num_columns: int, min_score: float | None, separator: str = "\t"
) -> tuple[str, str] | BadPair:
    if len(cells) == (num_columns or len(cells)) > max(columns):
        source, target, *scores = (cells[number] for number in columns)
        return _scored(source, target, scores[0], min_score) if min_score is not None else (source, target)
    has, found = counted(len(cells), "column"), cut(separator.join(cells)) or "nothing"
    if num_columns:  # the cells may be in the wrong columns
        return BadPair(f"has {has}, but the first line has {num_columns}; correct it. Found: {found}")
    named = zip(("source", "target", "score"), columns, strict=False)
    missing, number = next((name, number) for name, number in named if number >= len(cells))
    return BadPair(f"has {has}, but the {missing} is column {number + 1}; found: {found}")


def _scored(source: str, target: str, cell: str, min_score: float) -> tuple[str, str] | BadPair:
    """Return a pair, or the reason to leave it out: its score is too low, or no number."""
    try:
        score = float(cell)
    except ValueError:
        return BadPair(f"its score is no number, such as -0.5 with a point; found: {cut(cell) or 'nothing'}")
    if score >= min_score:
        return source, target
    return BadPair(f"has the score {score:g}, below min_score={min_score:g}: {cut(source)} | {cut(target)}", LOW_SCORE)


def _rows(text: PairedText, path: Place, lines: Iterator[str | BadLine]) -> Iterator[tuple[str, str] | BadPair]:
    first = next(lines, None)
    if first is None:
        return
    header = first.text if isinstance(first, BadLine) else first
    separator = max(_SEPARATORS, key=header.count)
    faults = list[str]()
    rows = csv.reader(_with_ends(chain([first], lines), faults), delimiter=separator, strict=True)
    names, begin = list[str](), 1
    while True:
        try:
            cells = next(rows, None)
        except csv.Error as error:
            # An unknown number of rows is lost.
            if any(kind in str(error) for kind in ("unexpected end", "field larger")):
                raise CorpusError(
                    f"{path}:{begin}: a quotation mark opens in this row and is not closed up to line {rows.line_num}; "
                    "close it"
                ) from None
            yield BadPair(f"is not CSV ({error}); it begins in line {begin}")
        else:
            if cells is None:
                return
            if not names:
                names = cells
                columns = [_index(str(name), names, path) for name in _wanted(text)]
            elif faults:
                yield BadPair(faults[0])
            else:
                pair = _pair_of_cells(cells, columns, len(names), text.min_score, separator)
                yield pair if isinstance(pair, BadPair) else pair_of_texts(*pair)
            faults.clear()
        begin = rows.line_num + 1


def _with_ends(lines: Iterable[str | BadLine], faults: list[str]) -> Iterator[str]:
    """Yield the lines with "\\n", which counts in a quoted cell, and add the faults of bad lines to `faults`."""
    for line in lines:
        if isinstance(line, BadLine):
            faults.append(line.fault)
        yield (line.text if isinstance(line, BadLine) else line) + "\n"
