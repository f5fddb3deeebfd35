"""Reads tables: lines with columns between tabs (TSV), and comma-separated values (CSV)."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from transformer_mt.corpora.corpus import BadPair, Block, Corpus, blocks_of_file, pair_of_texts
from transformer_mt.corpora.lines import BadLine, all_lines
from transformer_mt.corpora.single_files import open_files
from transformer_mt.corpora.text_files import Survey, opened_again
from transformer_mt.errors import CorpusError
from transformer_mt.languages import name_columns
from transformer_mt.settings.corpus import CorpusConfig, PairedText
from transformer_mt.wording import counted, cut

_SEPARATORS = (",", ";", "\t")  # spreadsheets write semicolons where a comma is the decimal sign


def open_tsv(text: PairedText) -> Corpus:
    """Open lines with columns between tabs, whose first line names the columns if `text` has their names.

    Raises CorpusError if the file cannot be read or is empty, if the first line lacks a name, or if there are more than
    two columns and `text` says nothing of them.
    """
    header = int(isinstance(text.source, str))

    def read(path: Path, digest: str) -> Iterator[Block]:
        with opened_again(path, digest) as file:
            lines = all_lines(file, str(path))
            first = next(lines, None)
            if first is None:
                return
            columns = _columns_of_tsv(text, path, first)
            rest = lines if header else chain([first], lines)
            num_columns = first.count("\t") + 1 if header and isinstance(first, str) else 0
            yield from blocks_of_file(str(path), _pairs_of_lines(rest, columns, num_columns), first=1 + header)

    def count(path: Path, of_file: Survey) -> int:
        _check_beginning(read(path, of_file.digest))
        return max(0, of_file.num_lines - header)

    return open_files(text, read, count)


def open_csv(text: PairedText) -> Corpus:
    """Open comma-separated values, whose first row names the columns; semicolons or tabs can stand for the commas.

    Raises CorpusError if the file cannot be read or is empty, or if the first row lacks a name.
    """

    def read(path: Path, digest: str) -> Iterator[Block]:
        with opened_again(path, digest) as file:
            yield from blocks_of_file(str(path), _rows(text, path, all_lines(file, str(path))), "row", first=2)

    def count(path: Path, of_file: Survey) -> int | None:
        _check_beginning(read(path, of_file.digest))
        # A quoted cell can have several lines, so lines do not tell the number of rows, unless there is only a header.
        return 0 if of_file.num_lines <= 1 else None

    return open_files(text, read, count)


def header_warnings(corpus: CorpusConfig, opened_texts: Iterable[tuple[PairedText, Corpus]]) -> list[str]:
    """Return a warning of each TSV whose columns are not named, though its first line seems to have their names."""
    found = []
    for text, pairs in opened_texts:
        block = next(pairs.blocks(), None) if text.form == "tsv" and not isinstance(text.source, str) else None
        first = block.pairs[0] if block else None
        if block and isinstance(first, tuple) and name_columns(first, corpus.languages_of(text)):
            found.append(
                f"{block.place(0)}: is read as a pair, but seems to name the columns ({first[0]}, {first[1]}). If it "
                f"does, say which is which, and it is no pair: {{path: {text.place}, source: NAME, target: NAME}}"
            )
    return found


def _check_beginning(blocks: Iterator[Block]) -> None:
    """Read the beginning of a file, so that a missing column is found before anything else is done."""
    next(blocks, None)


def _columns_of_tsv(text: PairedText, path: Path, header: str | BadLine) -> tuple[int, int]:
    """Return the indices of the two columns, from 0. Names are looked up in the first line.

    Raises CorpusError if that lacks a name, or if nothing says which of more than two columns are meant.
    """
    if text.source is None:
        num_columns = 0 if isinstance(header, BadLine) else header.count("\t") + 1
        if num_columns > 2:
            raise CorpusError(
                f"{path}:1: has {num_columns} columns; say which are the source and the target: {{path: {path}, "
                f"source: NUMBER, target: NUMBER}}. Found: {cut(str(header))}"
            )
        return 0, 1
    if isinstance(text.source, int) and isinstance(text.target, int):
        return text.source - 1, text.target - 1
    if isinstance(header, BadLine):
        raise CorpusError(f"{path}:1: {header.fault}")
    names = header.split("\t")
    return _index(str(text.source), names, path), _index(str(text.target), names, path)


def _index(name: str, names: Sequence[str], path: Path) -> int:
    if names.count(name) == 1:
        return names.index(name)
    found = ", ".join(names)
    if name in names:
        raise CorpusError(f"{path}:1: two columns have the name {name} (found: {cut(found, 200)}); give each its own")
    raise CorpusError(
        f"{path}:1: no column has the name {name}; the first line has: {cut(found, 200)}. Set source and target to two "
        "of these"
    )


def _pairs_of_lines(
    lines: Iterable[str | BadLine], columns: tuple[int, int], num_columns: int
) -> Iterator[tuple[str, str] | BadPair]:
    """Read the pair of each line. `num_columns` is how many columns each has; 0: as many as the first pair has."""
    for line in lines:
        if isinstance(line, BadLine):
            yield BadPair(line.fault)
            continue
        pair = _pair_of_cells(line.split("\t"), columns, num_columns)
        if not num_columns and not isinstance(pair, BadPair):
            num_columns = line.count("\t") + 1
        yield pair


def _pair_of_cells(cells: list[str], columns: tuple[int, int], num_columns: int) -> tuple[str, str] | BadPair:
    if num_columns and len(cells) != num_columns:
        return _ragged(cells, num_columns, "\t")
    if max(columns) >= len(cells):
        side = "source" if columns[0] >= len(cells) else "target"
        number = (columns[0] if side == "source" else columns[1]) + 1
        found = cut("\t".join(cells)) or "nothing"
        return BadPair(f"has {counted(len(cells), 'column')}, but the {side} is column {number}; found: {found}")
    return cells[columns[0]], cells[columns[1]]


def _rows(text: PairedText, path: Path, lines: Iterator[str | BadLine]) -> Iterator[tuple[str, str] | BadPair]:
    header, faults = next(lines, None), list[str]()
    if header is None:
        return
    separator = _separator(header.text if isinstance(header, BadLine) else header, text)
    rows = csv.reader(_with_ends(chain([header], lines), faults), delimiter=separator, strict=True)
    columns: tuple[int, int] | None = None
    begin, num_columns = 1, 0
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield _bad_row(error, path, begin, rows.line_num)
            begin = rows.line_num + 1
            continue
        if columns is None:
            columns = _index(str(text.source), cells, path), _index(str(text.target), cells, path)
            num_columns = len(cells)
        else:
            yield _pair_of_row(cells, columns, num_columns, faults, separator)
        faults.clear()
        begin = rows.line_num + 1


def _separator(header: str, text: PairedText) -> str:
    """Return the first separator with which the header has both columns; a comma if none does."""
    for separator in _SEPARATORS:
        names = next(csv.reader([header], delimiter=separator), [])
        if text.source in names and text.target in names:
            return separator
    return ","


def _with_ends(lines: Iterable[str | BadLine], faults: list[str]) -> Iterator[str]:
    """Give lines their ends back, which count in a quoted cell, and note what is wrong with a line."""
    for line in lines:
        if isinstance(line, BadLine):
            faults.append(line.fault)
        yield (line.text if isinstance(line, BadLine) else line) + "\n"


def _bad_row(error: csv.Error, path: Path, begin: int, end: int) -> BadPair:
    """Return the fault of a row. Raises CorpusError if nobody can tell how many rows went with it."""
    if "unexpected end" in str(error) or "field larger" in str(error):
        raise CorpusError(
            f"{path}:{begin}: a quotation mark that opens in this row is not closed by line {end}; close it"
        )
    return BadPair(f"is not CSV ({error}); it begins in line {begin}")


def _pair_of_row(
    cells: list[str], columns: tuple[int, int], num_columns: int, faults: list[str], separator: str
) -> tuple[str, str] | BadPair:
    if faults:
        return BadPair(faults[0])
    if len(cells) != num_columns:
        return _ragged(cells, num_columns, separator)
    return pair_of_texts(cells[columns[0]], cells[columns[1]])


def _ragged(cells: list[str], num_columns: int, separator: str) -> BadPair:
    """Return the fault of a row in which what stands in a column may belong to another one."""
    found = cut(separator.join(cells)) or "nothing"
    return BadPair(
        f"has {counted(len(cells), 'column')}, but the first line has {num_columns}; correct it. Found: {found}"
    )
