"""Reads rows of named fields: JSON lines, Parquet, and data sets of the Hugging Face hub."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import reduce
from operator import getitem
from typing import IO, Any

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.remote import Place, check_same
from transformer_mt.base.wording import counted, cut
from transformer_mt.corpora.corpus import BadPair, Block, Corpus, blocks_of_file, open_files, open_lines, pair_of_texts
from transformer_mt.corpora.text_files import BadLine, Survey, needed, survey_of
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.settings.section import fingerprint

FieldPath = tuple[str, ...]


def find_field(row: Mapping[str, Any], name: str) -> FieldPath | None:
    """Return the path to the field `name`, to b in a for a.b, or to `name` in `translation`; None if there is none."""
    for path in ((name,), tuple(name.split(".")), ("translation", name)):
        with suppress(KeyError, TypeError):
            reduce(getitem, path, row)
            return path
    return None


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{below}" for below in _names(value))
        else:
            yield str(name)


def open_jsonl(text: PairedText) -> Corpus:
    """Open JSON lines. Raises CorpusError if the file cannot be read or is empty."""
    return open_lines(text, _json_pairs, lambda num_lines: num_lines)


def _json_pairs(text: PairedText, path: Place, lines: Iterator[str | BadLine]) -> Iterator[tuple[str, str] | BadPair]:
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
        raise ValueError(f"has no field {name}, but: {cut(', '.join(_names(row)) or 'none', 200)}")
    value: Any = reduce(getitem, path, row)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is no text, but: {cut(json.dumps(value))}")
    return value or ""


def open_parquet(text: PairedText) -> Corpus:
    """Open Parquet files. Raises CorpusError if one cannot be read, or if a column is missing or contains no text."""

    def read(path: Place, digest: str) -> Iterator[Block]:
        with _parquet(path) as (content, file):
            yield from blocks_of_file(str(path), _parquet_pairs(text, file, path), "row")
            content.seek(0)  # columns are not read in the order of the bytes, so the digest needs another reading
            check_same(survey_of(content).digest, digest, str(path))

    def count(path: Place, of_file: Survey) -> int:
        with _parquet(path) as (_, file):
            _columns(text, file, path)
            return int(file.metadata.num_rows)

    return open_files(text, read, count)


@contextmanager
def _parquet(path: Place) -> Iterator[tuple[IO[bytes], Any]]:
    """Open a file, and a pyarrow.parquet.ParquetFile of it. Raises CorpusError if reading it fails."""
    parquet = needed("pyarrow.parquet", f"{path} is Parquet", "write it as another form")
    arrow_errors = needed("pyarrow", f"{path} is Parquet", "write it as another form").ArrowException
    try:
        with path.open("rb") as file, parquet.ParquetFile(file, pre_buffer=False) as opened_file:
            yield file, opened_file
    except (OSError, arrow_errors, UnicodeDecodeError) as error:  # the last for text that is not UTF-8
        raise CorpusError(f"{path}: cannot be read ({error}); name a complete Parquet file") from None


def _columns(text: PairedText, file: Any, path: Place) -> list[str]:
    """Return the names of the two columns. Raises CorpusError if one is missing or contains no text."""
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    names, found = [column.path for column in columns], []
    for key, wanted in (("source", str(text.source)), ("target", str(text.target))):
        name = next((name for name in (wanted, f"translation.{wanted}") if name in names), None)
        if name is None:
            raise CorpusError(
                f"{path}: has no column {wanted}, but: {', '.join(names)}. Set {key} to one of these, or correct "
                f"corpus.{key}_language"
            )
        if names.count(name) > 1:
            raise CorpusError(f"{path}: several columns have the name {name}; rename them, or set {key} to another")
        column = columns[names.index(name)]
        if column.logical_type.type != "STRING":
            raise CorpusError(f"{path}: column {name} contains {column.physical_type}, not text; set {key} to another")
        found.append(name)
    return found


def _parquet_pairs(text: PairedText, file: Any, path: Place) -> Iterator[tuple[str, str] | BadPair]:
    import pyarrow

    names, num_read = _columns(text, file, path), 0
    for batch in file.iter_batches(columns=names):
        num_read += batch.num_rows
        table = pyarrow.Table.from_batches([batch])
        while any(pyarrow.types.is_struct(kind) for kind in table.schema.types):
            table = table.flatten()  # the field en of a column translation becomes the column translation.en
        yield from map(_pair, *(table.column(name).to_pylist() for name in names))
    if num_read != file.metadata.num_rows:
        raise CorpusError(
            f"{path}: is damaged: {num_read:,} of {counted(file.metadata.num_rows, 'row')} can be read; get it again"
        )


_LOCAL = "corpus.train=PREFIX corpus.valid=PREFIX 'corpus.test={NAME: PREFIX}'"


def open_hub(text: PairedText) -> Corpus:
    """Open a split of a data set. Raises CorpusError if it cannot be loaded, has no rows, or lacks a column."""
    name = f"{text.hub} ({text.split})"
    what = f"{{hub: {text.hub}}} is on the Hugging Face hub"
    datasets = needed("datasets", what, f"use local files: {_LOCAL}")
    with _loading(name):
        rows = datasets.load_dataset(
            text.hub, text.subset, split=text.split, revision=text.revision, streaming=bool(text.streaming)
        )
        first = next(iter(rows), None)
    if first is None:
        raise CorpusError(f"{name} has no rows; choose another split")
    fields = []
    for key, wanted in (("source", str(text.source)), ("target", str(text.target))):
        field = find_field(first, wanted)
        if field is None:
            raise CorpusError(
                f"{name} has no column '{wanted}', but: {', '.join(_names(first)) or 'none'}; correct "
                f"corpus.{key}_language, or set {key} to one of these"
            )
        fields.append(field)

    def blocks() -> Iterator[Block]:
        return blocks_of_file(name, _hub_pairs(rows, fields, name), "row")

    return Corpus(blocks, lambda: digest_of_hub(text), None if text.streaming else len(rows))


def digest_of_hub(text: PairedText) -> str:
    """Return a hash of the name of a split, without its text."""
    return fingerprint(str(text.hub), text.subset or "", text.revision or "", str(text.split))


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """Turn any error of loading a data set or its rows, which may come from the network, into a CorpusError."""
    import datasets

    try:
        yield
    except Exception as error:  # the hub, its cache and its builders raise errors of many types
        advice = ""
        if "scripts are no longer supported" in str(error):
            advice = "The hub's own copy may work: add revision: refs/convert/parquet to the key hub. "
        elif datasets.config.HF_HUB_OFFLINE:
            advice = (
                "HF_HUB_OFFLINE is set, so only data sets that were downloaded before can be used: unset it, or "
                "download the data set first. "
            )
        raise CorpusError(
            f"{name} cannot be loaded: {cut(str(error), 500).rstrip('.')}. {advice}Check the network, and correct "
            f"the name of the data set, its subset or its split; or use local files: {_LOCAL}"
        ) from error


def _hub_pairs(rows: Any, fields: list[FieldPath], name: str) -> Iterator[tuple[str, str] | BadPair]:
    batches = rows.iter(batch_size=1000)
    while True:
        with _loading(name):  # not the code below: an error in it has nothing to do with the network
            batch = next(batches, None)
        if batch is None:
            return
        yield from map(_pair, *(_column(batch, field) for field in fields))


def _column(batch: dict[str, list[Any]], field: FieldPath) -> list[Any]:
    column = batch[field[0]]
    for part in field[1:]:
        column = [row[part] if row else None for row in column]
    return column


def _pair(source: Any, target: Any) -> tuple[str, str] | BadPair:
    """Return the pair of a row. A missing text becomes an empty text."""
    for text in (source, target):
        if text is not None and not isinstance(text, str):
            return BadPair(f"contains no text, but: {cut(repr(text))}; set source and target to columns of text")
    return pair_of_texts(source or "", target or "")
