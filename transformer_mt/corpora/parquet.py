"""Reads Parquet files, two columns of which, or two fields of a column, are the sides of a pair."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from transformer_mt.corpora.corpus import BadPair, Block, Corpus, blocks_of_file, pair_of_texts
from transformer_mt.corpora.fields import FieldPath, find_field, names_of_fields
from transformer_mt.corpora.packages import needed
from transformer_mt.corpora.packed import is_compressed
from transformer_mt.corpora.single_files import open_files
from transformer_mt.corpora.text_files import Survey, check_same, opened, survey_of
from transformer_mt.errors import CorpusError
from transformer_mt.settings.corpus import PairedText
from transformer_mt.wording import counted


def open_parquet(text: PairedText) -> Corpus:
    """Open Parquet files. Raises CorpusError if one cannot be read, lacks a field, or has one that is no text."""

    def read(path: Path, digest: str) -> Iterator[Block]:
        with _parquet(path) as (content, file):
            yield from blocks_of_file(str(path), _pairs(text, file, path), "row")
            content.seek(0)  # its columns are not read in the order of its bytes, so these are read once more
            check_same(survey_of(content).digest, digest, str(path))

    def count(path: Path, of_file: Survey) -> int:
        with _parquet(path) as (_, file):
            _fields(text, file, path)
            return int(file.metadata.num_rows)

    return open_files(text, read, count)


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[IO[bytes], Any]]:
    """Open a file, decompressed, and a pyarrow.parquet.ParquetFile of it. An error of reading becomes a CorpusError."""
    parquet = needed("pyarrow.parquet", f"{path} is Parquet", "write it as another form")
    arrow_errors = needed("pyarrow", f"{path} is Parquet", "write it as another form").ArrowException
    try:
        with _seekable(path) as file, parquet.ParquetFile(file, pre_buffer=False) as opened_file:
            yield file, opened_file
    except (OSError, arrow_errors, UnicodeDecodeError) as error:  # the last of text that is not UTF-8
        raise CorpusError(f"{path}: cannot be read ({error}); name a complete Parquet file") from None


@contextmanager
def _seekable(path: Path) -> Iterator[IO[bytes]]:
    """Open a file; what is compressed is written to a nameless file first, because the end of Parquet is read first."""
    if not is_compressed(path):
        with path.open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        with opened(path) as file:
            shutil.copyfileobj(file, copy, 1 << 20)
        copy.seek(0)
        yield copy


def _fields(text: PairedText, file: Any, path: Path) -> list[FieldPath]:
    """Return where the two sides are. Raises CorpusError if a field is missing or is no text."""
    found = []
    schema = {field.name: _types(field.type) for field in file.schema_arrow}
    for key, name in (("source", str(text.source)), ("target", str(text.target))):
        field = find_field(schema, name)
        if field is None:
            raise CorpusError(
                f"{path}: has no column {name}, but: {names_of_fields(schema)}. Set {key} to one of these, or correct "
                f"corpus.{key}_language"
            )
        if file.schema_arrow.names.count(field[0]) > 1:
            raise CorpusError(f"{path}: several columns have the name {field[0]}; give each its own, or set {key}")
        kind: Any = schema
        for part in field:
            kind = kind[part]
        if kind not in ("string", "large_string", "string_view", "dictionary"):
            shown = "fields" if isinstance(kind, dict) else kind
            raise CorpusError(f"{path}: column {'.'.join(field)} holds {shown}, not text; set {key} to another")
        found.append(field)
    return found


def _types(kind: Any) -> Any:
    """Return the name of an arrow type; of a struct, those of its fields."""
    import pyarrow.types

    if pyarrow.types.is_struct(kind):
        return {field.name: _types(field.type) for field in kind}
    if pyarrow.types.is_dictionary(kind):
        return "dictionary" if "string" in str(kind.value_type) else str(kind)
    return str(kind)


def _pairs(text: PairedText, file: Any, path: Path) -> Iterator[tuple[str, str] | BadPair]:
    fields, num_read = _fields(text, file, path), 0
    for batch in file.iter_batches(columns=[".".join(field) for field in fields]):
        num_read += batch.num_rows
        sources, targets = (_column(batch, field).to_pylist() for field in fields)
        yield from (pair_of_texts(source or "", target or "") for source, target in zip(sources, targets, strict=True))
    if num_read != file.metadata.num_rows:
        raise CorpusError(
            f"{path}: is damaged: {num_read:,} of {counted(file.metadata.num_rows, 'row')} can be read; get it again"
        )


def _column(batch: Any, field: FieldPath) -> Any:
    import pyarrow.compute

    column = batch.column(field[0])
    return pyarrow.compute.struct_field(column, list(field[1:])) if field[1:] else column
