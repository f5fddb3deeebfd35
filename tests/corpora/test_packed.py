"""Packed files are read as their text, and one that is cut off, damaged or misnamed is never taken for whole."""

import bz2
import re
import sys
from pathlib import Path

import pytest
from helpers.forms import PACKINGS, opened, pack, write, write_form
from helpers.messages import message, says

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.text_files import opened as opened_bytes
from transformer_mt.corpora.text_files import read_lines, survey
from transformer_mt.terminal.line_input import beside, open_lines

TEXT = b"".join(b"This is line %d, with words.\n" % (number * 7919 % 100_003) for number in range(30_000))
PACKED = [packing for packing in PACKINGS if packing]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("content", [TEXT, b"", b"a", "é\r\nü\n".encode()])
def test_every_reader_unpacks(tmp_path: Path, packing: str, content: bytes) -> None:
    path = Path(write(tmp_path / "a.en", content, packing))
    lines = content.decode().replace("\r", "").splitlines()
    assert list(read_lines(path)) == lines
    assert survey(path).num_lines == len(lines)
    assert survey(path).digest == survey(Path(write(tmp_path / "plain", content))).digest
    given = open_lines(path, "strict", 2048)
    assert given.is_file and given.num_lines == (None if packing else len(lines))
    assert [line for block, others in beside(given, path, "strict") for line in others] == lines


@pytest.mark.parametrize("packing", PACKED)
def test_several_packed_parts_in_a_row_are_one_text(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"a{packing}"
    path.write_bytes(pack(b"a\nb", packing) + pack(b"c\nd\n", packing))
    assert list(read_lines(path)) == ["a", "bc", "d"]


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("kept", [0.999, 0.5, 0.01])
def test_a_file_that_is_cut_off_is_refused_before_anything_is_used(tmp_path: Path, packing: str, kept: float) -> None:
    keys = write_form(tmp_path, "files", [(line, line) for line in TEXT.decode().splitlines()], packing)
    path = Path(keys["target"])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(CorpusError, match=message("text-cannot-be-read", str(path))):
        opened(keys)
    with pytest.raises(CorpusError, match=message("text-cannot-be-read")):
        list(read_lines(path))


@pytest.mark.parametrize("packing", PACKED)
def test_a_file_that_is_damaged_or_of_another_kind_is_refused(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"a.en{packing}"
    packed = pack(TEXT, packing)
    middle = len(packed) // 2
    for content in (packed[:middle] + b"\x55" * 50 + packed[middle + 50 :], b"plain text\n", packed + b"more"):
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=message("text-cannot-be-read", str(path))):
            survey(path)


def read_whole(path: Path, content: bytes) -> bytes | None:
    """What is read of a packed file with this content; None: it is refused, and the message names it."""
    path.write_bytes(content)
    try:
        with opened_bytes(path) as file:
            return file.read()
    except CorpusError as error:
        assert says(str(error), "text-cannot-be-read", f"{path}:")
        return None


@pytest.mark.thorough
@pytest.mark.parametrize("packing", PACKED)
def test_of_two_parts_neither_is_left_out_wherever_the_file_is_cut_or_a_byte_is_wrong(
    tmp_path: Path, packing: str
) -> None:
    path, text = tmp_path / f"a{packing}", TEXT[:60]
    first, whole = pack(text[:20], packing), pack(text[:20], packing) + pack(text[20:], packing)
    for length in range(len(whole)):
        assert read_whole(path, whole[:length]) == (text[:20] if length == len(first) else None), length
    for place in range(len(whole)):
        for mask in (0x01, 0x80, 0xFF):
            found = read_whole(path, whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            # What pyarrow writes as .zst has no checksum, so a letter can be wrong there without a fault of the form.
            assert found is None or (len(found) == 60 if packing == ".zst" else found == text), place


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize(
    "rubbish", [b"x", b"rubbish " * 5000, b"\0" * 8192 + b"rubbish", b"\xfd7zXZ\0", b"\x1f\x8b\x08\0"]
)
def test_rubbish_after_a_part_is_refused(tmp_path: Path, packing: str, rubbish: bytes) -> None:
    part = pack(TEXT, packing)
    for content in (part + rubbish, part + part + rubbish, part + rubbish + part):
        assert read_whole(tmp_path / f"a{packing}", content) is None


def test_a_few_bytes_after_an_xz_may_be_rubbish_as_well_as_a_part_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a.xz").write_bytes(pack(TEXT, ".xz") + b"junk")
    with pytest.raises(
        CorpusError,
        match=message("text-cannot-be-read", "it ends inside a stream, or something else follows its last one"),
    ):
        survey(tmp_path / "a.xz")


@pytest.mark.parametrize("num_zeros", [*range(1, 9), 8188, 8192, 65_537])
def test_an_xz_may_have_zero_bytes_after_a_part(tmp_path: Path, num_zeros: int) -> None:
    part, zeros = pack(TEXT, ".xz"), b"\0" * num_zeros
    for content, copies in ((part + zeros, 1), (part + zeros + part, 2), (part + part + zeros, 2)):
        assert read_whole(tmp_path / "a.xz", content) == TEXT * copies


@pytest.mark.parametrize("packing", PACKED)
def test_a_packed_file_with_a_plain_name_is_told(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "a.en"
    path.write_bytes(pack(TEXT, packing))
    with pytest.raises(CorpusError, match=message("compressed-without-suffix", "a.en", packing)):
        opened({"source": str(path), "target": str(path)})


@pytest.mark.parametrize(
    ("content", "kind"), [(bz2.compress(TEXT), "bzip2"), (b"PK\x03\x04...", "zip"), (b"7z\xbc\xaf\x27\x1c", "7")]
)
def test_a_file_that_is_packed_otherwise_is_told(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "a.en"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=message("unknown-compression", str(path), kind)):
        survey(path)


def test_a_file_that_changed_since_it_was_counted_is_told(tmp_path: Path) -> None:
    keys = write_form(tmp_path, "files", [("a", "b")] * 9)
    corpus = opened(keys)
    Path(keys["target"]).write_text("b\n" * 8)
    with pytest.raises(CorpusError, match=message("text-changed-while-read", keys["target"])):
        list(corpus.pairs())


@pytest.mark.parametrize(
    ("form", "packing", "package", "facts"),
    [
        ("files", ".zst", "pyarrow", ["as .zst", "zstd -d a.en.zst"]),
        ("parquet", "", "pyarrow", ["is Parquet", "another form"]),
        ("tmx", "", "lxml", ["is TMX", "another form"]),
    ],
)
def test_a_missing_package_is_named_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, packing: str, package: str, facts: list[str]
) -> None:
    keys = write_form(tmp_path, form, [("a", "b")])
    if packing:
        keys = {"source": write(tmp_path / "a.en", "a\n", packing), "target": write(tmp_path / "b.de", "b\n")}
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CorpusError, match=message("reader-package-missing", *facts)) as raised:
        list(opened(keys).pairs())
    assert f"{sys.executable} -m pip install {package}" in str(raised.value)
    # Plain files need none of them.
    plain = write_form(tmp_path, "files", [("a", "b")])
    assert list(opened(plain).pairs()) == [("a", "b")]
    assert re.search(rf"import of {package}", str(raised.value))
