"""Rows of TSV and CSV are found by number or by name, and a row that is out of step is named."""

from pathlib import Path

import pytest
from helpers.forms import filled, opened, write
from helpers.messages import message, says
from pydantic import ValidationError

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.corpus import BadPair
from transformer_mt.preparing.text_warnings import header_warnings
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText


def pairs_of(keys: dict[str, object]) -> list[object]:
    return [pair for block in opened(keys).blocks() for pair in block.pairs]


def test_columns_of_a_tsv_have_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb\tc\nd\te\tf\n")
    assert pairs_of({"path": path, "source": 1, "target": 2}) == [("a", "b"), ("d", "e")]
    assert pairs_of({"path": path, "source": 3, "target": 1}) == [("c", "a"), ("f", "d")]
    assert pairs_of({"path": path, "source": "c", "target": "a"}) == [("f", "d")]


@pytest.mark.parametrize(
    ("row", "num_columns", "shown"),
    [("only one", "1", "only one"), ("a\tb\tc\td", "4", r"a\tb\tc\td"), ("", "1", "nothing")],
)
def test_a_row_of_a_tsv_that_is_out_of_step_is_named(tmp_path: Path, row: str, num_columns: str, shown: str) -> None:
    keys = {"path": write(tmp_path / "a.tsv", f"a\tb\tc\n{row}\nd\te\tf\n"), "source": 1, "target": 2}
    assert [isinstance(pair, BadPair) for pair in pairs_of(keys)] == [False, True, False]
    with pytest.raises(CorpusError, match=message("columns-differ-from-first", "a.tsv:2", num_columns, "3", shown)):
        list(opened(keys).pairs())


def test_only_two_columns_of_a_tsv_need_no_numbers(tmp_path: Path) -> None:
    assert pairs_of({"path": write(tmp_path / "a.tsv", "a\tb\nd\te\n")}) == [("a", "b"), ("d", "e")]
    path = write(tmp_path / "b.tsv", "1\tHi.\t2\tHallo.\n")
    with pytest.raises(CorpusError, match=message("table-columns-unclear", "b.tsv", "4", "1\\tHi")):
        opened({"path": path})


def warnings_of(keys: dict[str, object], *, codes: tuple[str, str] = ("en", "de")) -> list[str]:
    corpus = CorpusConfig(
        **dict(zip(("source_language", "target_language"), codes, strict=True)), train="none", valid="none", test={}
    )
    return list(header_warnings(corpus, [(filled(keys), opened(keys))]))


@pytest.mark.parametrize(
    ("header", "codes"),
    [
        *((header, ("en", "de")) for header in ("en\tde", "source\ttarget", "SRC\tTGT", "English\tGerman", "eng\tdeu")),
        *((header, ("en", "de")) for header in ("source_text\ttarget_text", "sentence1\tsentence2", "de-AT\ten_US")),
        *[("eng_Latn\tzho_Hans", ("eng_Latn", "zho_Hans")), ("rw\tzh-CN", ("rw", "zh"))],
    ],
)
def test_a_first_line_of_a_tsv_that_seems_to_name_the_columns_is_told(
    tmp_path: Path, header: str, codes: tuple[str, str]
) -> None:
    names = header.split("\t")
    path = write(tmp_path / "a.tsv", f"{header}\na\tb\n")
    [warning] = warnings_of({"path": path}, codes=codes)
    assert warning.startswith(f"{path}:1: is read as a pair, but seems to name the columns ({names[0]}, {names[1]})")
    assert warning.endswith(f"{{path: {path}, source: NAME, target: NAME}}")
    assert warnings_of({"path": path, "source": 2, "target": 1}, codes=codes)
    named = {"path": path, "source": names[0], "target": names[1]}
    assert warnings_of(named, codes=codes) == [] and pairs_of(named) == [("a", "b")]


@pytest.mark.parametrize(
    "first", ["Go.\tGeh.", "text\ttext", "fr\tes", "The source\tDie Quelle", "source\t", "1\t2", "\t", "one column"]
)
def test_a_first_line_of_a_tsv_that_is_a_pair_is_not_warned_of(tmp_path: Path, first: str) -> None:
    assert warnings_of({"path": write(tmp_path / "a.tsv", f"{first}\na\tb\n")}) == []


@pytest.mark.parametrize("first", ["only one", "", "no\xffutf8\tb\tc"])
def test_a_first_row_that_is_out_of_step_spoils_only_itself(tmp_path: Path, first: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(f"{first}\na\tb\tc\nd\te\n".encode("latin-1"))
    bad, good, short = pairs_of({"path": str(path), "source": 1, "target": 2})
    assert isinstance(bad, BadPair) and good == ("a", "b")
    assert isinstance(short, BadPair)
    assert says(short.fault, "columns-differ-from-first", "2", "3")


def test_a_table_of_an_old_macintosh_is_not_called_empty(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "en,de\r" + "a,b\r" * 20)
    with pytest.raises(CorpusError, match=message("carriage-returns-only")):
        opened({"path": path})


def test_an_empty_table_beside_others_has_no_rows(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", "")
    write(tmp_path / "2.csv", "en,de\na,b\n")
    assert pairs_of({"path": str(tmp_path / "*.csv")}) == [("a", "b")]


def test_a_column_that_no_row_has_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb\n")
    with pytest.raises(CorpusError, match=message("column-not-there", "a.tsv:1", "2", "target", "3", r"a\tb")):
        list(opened({"path": path, "source": 1, "target": 3}).pairs())
    path = write(tmp_path / "a.tsv", "a\tb\nc\td\n")
    with pytest.raises(CorpusError, match=message("no-such-table-column", "a.tsv", "en", "a, b")):
        opened({"path": path, "source": "en", "target": "de"})
    path = write(tmp_path / "a.csv", "English,German\na,b\n")
    with pytest.raises(CorpusError, match=message("no-such-table-column", "a.csv", "en", "English, German")):
        opened({"path": path})
    assert pairs_of({"path": path, "source": "English", "target": "German"}) == [("a", "b")]
    path = write(tmp_path / "a.csv", "en,de,en\na,b,c\n")
    with pytest.raises(CorpusError, match=message("table-column-ambiguous", "a.csv", "en")):
        opened({"path": path})


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_of_a_spreadsheet_is_read(tmp_path: Path, separator: str) -> None:
    rows = ['\ufeffid,en,"de"', '1,"a, b","c ""d""\ne"', '2,5" disk,f', "3,,"]
    text = "\r\n".join(row.replace(",", separator).replace(f"a{separator} b", "a, b") for row in rows) + "\r\n"
    assert pairs_of({"path": write(tmp_path / "a.csv", text)}) == [("a, b", 'c "d" e'), ('5" disk', "f"), ("", "")]


def test_a_row_of_a_csv_that_is_out_of_step_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'en,de\na,"b\nc"\nd,e,f\n"g"h,i\n\nj,k\n')
    found = pairs_of({"path": path})
    first, *bad, last = found
    assert (first, last) == (("a", "b c"), ("j", "k"))
    columns = "columns-differ-from-first"
    for pair, expected in zip(bad, [(columns, "3"), ("row-not-csv", "',' expe"), (columns, "0")], strict=True):
        assert isinstance(pair, BadPair) and says(pair.fault, *expected)
    with pytest.raises(CorpusError, match=message("columns-differ-from-first", "a.csv (row 3)", "3", "d,e,f")):
        list(opened({"path": path}).pairs())


@pytest.mark.parametrize("rows", [10, 100_000])
def test_a_quotation_mark_that_is_never_closed_swallows_nothing_in_silence(tmp_path: Path, rows: int) -> None:
    path = write(tmp_path / "a.csv", 'en,de\na,b\n"c,d\n' + "e,f\n" * rows)
    with pytest.raises(CorpusError, match=message("quotation-mark-not-closed")):
        list(opened({"path": path}).blocks())


def test_tables_without_rows_are_empty(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message("empty-corpus")):
        opened({"path": write(tmp_path / "a.tsv", "")})
    with pytest.raises(CorpusError, match=message("empty-corpus")):
        opened({"path": write(tmp_path / "a.tsv", "en\tde\n"), "source": "en", "target": "de"})
    with pytest.raises(CorpusError, match=message("empty-corpus")):
        opened({"path": write(tmp_path / "a.csv", "")})
    with pytest.raises(CorpusError, match=message("empty-corpus")):
        opened({"path": write(tmp_path / "a.csv", "en,de\n")})
    # One of several may be empty.
    write(tmp_path / "b-1.tsv", "a\tb\n")
    write(tmp_path / "b-2.tsv", "")
    assert pairs_of({"path": str(tmp_path / "b-*.tsv")}) == [("a", "b")]


@pytest.mark.parametrize("form", ["tsv", "named.tsv", "csv"])
def test_pairs_with_a_low_score_are_left_out_and_counted_for_it(tmp_path: Path, form: str) -> None:
    rows = [("a", "b", "-1.5"), ("c", "d", "-2.25"), ("e", "f", "-1.75"), ("g", "h", "nan"), ("i", "j", "+1e0")]
    separator, numbers = "," if form == "csv" else "\t", {"source": 1, "target": 2, "score": 3}
    header = [] if form == "tsv" else [("en", "de", "how good")]
    text = "".join(f"{separator.join(row)}\n" for row in [*header, *rows])
    columns = numbers if form == "tsv" else {"source": "en", "target": "de", "score": "how good"}
    keys = {"path": write(tmp_path / f"a.{form}", text), **columns, "min_score": -1.75}
    found = pairs_of(keys)
    assert [pair for pair in found if not isinstance(pair, BadPair)] == [("a", "b"), ("e", "f"), ("i", "j")]
    assert [pair.reason for pair in found if isinstance(pair, BadPair)] == ["low_score", "low_score"]
    assert list(opened(keys).pairs()) == [("a", "b"), ("e", "f"), ("i", "j")], "a low score is no mistake"
    write(tmp_path / f"a.{form}", text.replace("-2.25", "low"))
    with pytest.raises(CorpusError, match=message("score-no-number", f"a.{form}", "low")):
        list(opened(keys).pairs())
    write(tmp_path / f"a.{form}", "a\tb\n")
    if form == "tsv":
        with pytest.raises(CorpusError, match=message("column-not-there", "a.tsv:1", "2", "score", "3", r"a\tb")):
            list(opened(keys).pairs())
        with pytest.raises(CorpusError, match=message("table-columns-unclear", "b.tsv", "4")):
            opened({"path": write(tmp_path / "b.tsv", "url\ta\tb\t0.5\n"), "score": 4, "min_score": 0.0})


@pytest.mark.parametrize(
    "keys",
    [
        {"path": "a.tsv", "score": 3},
        {"path": "a.tsv", "score": 2, "min_score": 0.5},
        {"path": "a.csv", "source": "en", "target": "de", "score": "de", "min_score": 0.5},
        {"path": "a.tsv", "min_score": 0.5},
        {"path": "a.jsonl", "source": "en", "target": "de", "score": "s", "min_score": 0.5},
        {"path": "a.tsv", "source": 1, "target": 2, "score": "s", "min_score": 0.5},
        {"path": "a.tsv", "source": "en", "target": "de", "score": 3, "min_score": 0.5},
    ],
)
def test_a_score_that_cannot_be_read_is_an_error_of_the_configuration(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="score"):
        PairedText.model_validate(keys)
