"""Columns of Parquet are found by their names, and what is no text or no Parquet is refused."""

from pathlib import Path

import pytest
from helpers.forms import opened, parquet, write
from helpers.messages import message

from transformer_mt.base.errors import CorpusError

pyarrow, pyarrow_parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))


def written(path: Path, columns: dict[str, object]) -> str:
    pyarrow_parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def test_columns_of_every_kind_of_text_are_read(tmp_path: Path) -> None:
    words = ["a", None, "c\nd", "a"]
    expected = [("a", "a"), ("", ""), ("c d", "c d"), ("a", "a")]
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())):
        column = pyarrow.array(words).cast(kind)
        path = written(tmp_path / "a.parquet", {"id": [1, 2, 3, 4], "de": column, "en": column})
        assert list(opened({"path": path}).pairs()) == expected
    nested = [{"x": {"en": word}} if word else None for word in words]
    path = written(tmp_path / "a.parquet", {"y": nested, "y.x": words})
    assert list(opened({"path": path, "source": "y.x.en", "target": "y.x"}).pairs()) == expected


def test_a_missing_column_and_one_of_numbers_are_refused_at_once(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"translation": [{"en": "a", "fr": "b"}], "id": [1]})
    with pytest.raises(
        CorpusError, match=message("no-such-parquet-column", "de", "translation.en, translation.fr, id", "target")
    ):
        opened({"path": path})
    with pytest.raises(CorpusError, match=message("parquet-column-not-text", "id", "INT64", "target")):
        opened({"path": path, "source": "en", "target": "id"})
    with pytest.raises(CorpusError, match=message("no-such-parquet-column", "translation", "translation.en")):
        opened({"path": path, "source": "en", "target": "translation"})


def test_of_two_columns_with_one_name_neither_is_taken(tmp_path: Path) -> None:
    path, words = str(tmp_path / "a.parquet"), pyarrow.array(["a"])
    both = pyarrow.StructArray.from_arrays([words, words], names=["en", "de"])
    for column, name in ((words, "en"), (both, "translation")):
        table = pyarrow.Table.from_arrays([column, words, column, words, words], names=[name, "de", name, "x", "x"])
        pyarrow.parquet.write_table(table, path)
        with pytest.raises(CorpusError, match=message("parquet-column-ambiguous", "a.parquet", name, "source")):
            opened({"path": path, "source": name if column is words else f"{name}.en", "target": "de"})
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([words] * 4, names=["en", "de", "x", "x"]), path)
    assert list(opened({"path": path}).pairs()) == [("a", "a")]


def test_a_file_with_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    raw = pyarrow.array([b"a", b"M\xfcll"])
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, raw.buffers())
    path = written(tmp_path / "a.parquet", {"en": text, "de": ["A", "B"]})
    with pytest.raises(
        CorpusError, match=message("parquet-cannot-be-read", path, "'utf-8' codec can't decode byte 0xfc")
    ):
        list(opened({"path": path}).blocks())


def test_a_file_that_is_cut_off_or_none_is_refused(tmp_path: Path) -> None:
    whole = parquet([("a", "b")] * 5000)
    for content in (whole[:-100], b"no Parquet\n", b"PAR1"):
        path = write(tmp_path / "a.parquet", content)
        with pytest.raises(CorpusError, match=message("parquet-cannot-be-read", "a.parquet")):
            opened({"path": path})
    middle = whole[:200] + b"\xff" * 100 + whole[300:]
    with pytest.raises(CorpusError, match=message("parquet-cannot-be-read", "a.parquet")):
        list(opened({"path": write(tmp_path / "a.parquet", middle)}).pairs())


@pytest.mark.thorough
def test_wherever_a_byte_is_wrong_no_row_is_left_out(tmp_path: Path) -> None:
    path, table = tmp_path / "a.parquet", pyarrow.table({"en": ["a b"] * 20, "de": ["c d"] * 20})
    pyarrow.parquet.write_table(table, path, write_statistics=False, store_schema=False)  # few bytes
    whole = path.read_bytes()
    for place in range(len(whole)):
        for mask in (0x40, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            try:
                assert len(list(opened({"path": str(path)}).pairs())) == 20, place
            except CorpusError as error:
                assert str(path) in str(error)
