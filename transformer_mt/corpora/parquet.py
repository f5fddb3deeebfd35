"""Reads Parquet files, two columns of which, or two fields of a column, are the sides of a pair."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from transformer_mt.corpora.corpus import BadPair, Block, Corpus, blocks_of_file, pair_of_texts
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
            yield from blocks_of_file(str(path), _parquet_pairs(text, file, path), "row")
            content.seek(0)  # its columns are not read in the order of its bytes, so these are read once more
            check_same(survey_of(content).digest, digest, str(path))

    def count(path: Path, of_file: Survey) -> int:
        with _parquet(path) as (_, file):
            _columns(text, file, path)
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


def _columns(text: PairedText, file: Any, path: Path) -> list[str]:
    """Return the names of the two columns. Raises CorpusError if one is missing or is no text."""
    there = [file.schema.column(number) for number in range(len(file.schema))]
    names, found = [column.path for column in there], []
    for key, wanted in (("source", str(text.source)), ("target", str(text.target))):
        name = next((name for name in (wanted, f"translation.{wanted}") if name in names), None)
        if name is None:
            raise CorpusError(
                f"{path}: has no column {wanted}, but: {', '.join(names)}. Set {key} to one of these, or correct "
                f"corpus.{key}_language"
            )
        if names.count(name) > 1:
            raise CorpusError(f"{path}: several columns have the name {name}; give each its own, or set {key}")
        column = there[names.index(name)]
        if column.logical_type.type != "STRING":
            raise CorpusError(f"{path}: column {name} holds {column.physical_type}, not text; set {key} to another")
        found.append(name)
    return found


def _parquet_pairs(text: PairedText, file: Any, path: Path) -> Iterator[tuple[str, str] | BadPair]:
    import pyarrow

    names, num_read = _columns(text, file, path), 0
    for batch in file.iter_batches(columns=names):
        num_read += batch.num_rows
        table = pyarrow.Table.from_batches([batch])
        while any(pyarrow.types.is_struct(kind) for kind in table.schema.types):
            table = table.flatten()  # the field en of a column translation becomes the column translation.en
        sources, targets = (table.column(name).to_pylist() for name in names)
        yield from (pair_of_texts(source or "", target or "") for source, target in zip(sources, targets, strict=True))
    if num_read != file.metadata.num_rows:
        raise CorpusError(
            f"{path}: is damaged: {num_read:,} of {counted(file.metadata.num_rows, 'row')} can be read; get it again"
        )
