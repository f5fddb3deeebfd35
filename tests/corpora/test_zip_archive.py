"""Of an archive the two right members are read, and nothing is unpacked to disk."""

import resource
import zipfile
from pathlib import Path

import pytest
from helpers.forms import opened, write
from helpers.hostile import time_limit
from helpers.messages import message

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.opening import corpus_digest
from transformer_mt.settings.corpus_settings import PairedText

OPUS = {"README": "a.en", "LICENSE": "x", "Tatoeba.de-en.de": "A\nB\n", "Tatoeba.de-en.en": "a\nb\n", "x/x.xml": "<x/>"}


def archive(directory: Path, members: dict[str, str], method: int = zipfile.ZIP_DEFLATED) -> str:
    path = directory / "a.zip"
    with zipfile.ZipFile(path, "w", method) as made:
        for name, text in members.items():
            made.writestr(name, text)
    return str(path)


def test_members_are_found_by_the_ends_of_their_names_or_by_their_names(tmp_path: Path) -> None:
    path = archive(tmp_path, {**OPUS, "de/": "", "__MACOSX/._Tatoeba.de-en.en": "of macOS"})
    corpus = opened({"path": path})
    assert (list(corpus.pairs()), corpus.num_pairs) == ([("a", "A"), ("b", "B")], 2)
    assert [block.place(1) for block in corpus.blocks()] == [f"{path}/Tatoeba.de-en.en:2"]
    whole = {"source": "Tatoeba.de-en.de", "target": "de-en.en"}
    assert list(opened({"path": path, **whole}).pairs()) == [("A", "a"), ("B", "b")]


def test_a_missing_or_ambiguous_member_is_named(tmp_path: Path) -> None:
    path = archive(tmp_path, {**OPUS, "b.en": "x\ny\n"})
    with pytest.raises(CorpusError, match=message("archive-names-unclear")):
        opened({"path": path})
    assert list(opened({"path": path, "source": "b.en"}).pairs()) == [("x", "A"), ("y", "B")]
    with pytest.raises(CorpusError, match=message("archive-names-unclear")):
        opened({"path": path, "source": "fr", "target": "de"})


@pytest.mark.parametrize("keys", [{}, {"source": "x.en", "target": "x.de"}])
def test_two_members_of_one_name_are_refused(tmp_path: Path, keys: dict[str, str]) -> None:
    path = Path(archive(tmp_path, {"x.en": "a\n", "y.en": "b\n", "x.de": "A\n"}))
    path.write_bytes(path.read_bytes().replace(b"y.en", b"x.en"))
    with pytest.raises(CorpusError, match=message("archive-names-unclear", "x")):
        opened({"path": str(path), **keys})


def test_lengths_that_differ_are_both_named(tmp_path: Path) -> None:
    path = archive(tmp_path, {"a.en": "a\nb\nc", "a.de": "A\n"})
    with pytest.raises(CorpusError, match=message("line-counts-differ", "a.zip/a.en", "3 lines", "a.zip/a.de", "1")):
        opened({"path": path})
    with pytest.raises(CorpusError, match=message("empty-corpus")):
        opened({"path": archive(tmp_path, {"a.en": "", "a.de": ""})})


def test_a_digest_is_of_the_text(tmp_path: Path) -> None:
    keys = {"source": "en", "target": "de"}
    digests = {
        corpus_digest(PairedText(path=archive(tmp_path, OPUS, method), **keys))
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)
    }
    assert len(digests) == 1
    assert corpus_digest(PairedText(path=archive(tmp_path, OPUS), source="de", target="en")) not in digests


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_damaged_archive_is_refused(tmp_path: Path, method: int) -> None:
    path = Path(archive(tmp_path, {"a.en": "some words\n" * 9999, "a.de": "Wörter\n" * 9999}, method))
    whole = path.read_bytes()
    for content in (whole[:-30], b"no archive", b"", whole[:60] + b"\xff\xff" + whole[62:]):
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=message("zip-cannot-be-read", "a.zip")):
            opened({"path": str(path)})


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    path = Path(archive(tmp_path, {"a.en": "a\n", "a.de": "b\n"}, zipfile.ZIP_STORED))
    content = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = 0
        while (start := content.find(mark, start)) >= 0:
            content[start + at] |= 1  # what says that a member is encrypted
            start += 4
    path.write_bytes(bytes(content))
    with pytest.raises(CorpusError, match=message("archive-encrypted")):
        opened({"path": str(path)})


def test_a_packed_archive_is_refused(tmp_path: Path) -> None:
    packed = write(tmp_path / "b.zip", Path(archive(tmp_path, OPUS)).read_bytes(), ".gz")
    with pytest.raises(CorpusError, match=message("archive-compressed-again", "b.zip.gz")):
        opened({"path": packed})


def test_no_member_is_written_to_disk_and_a_bomb_fills_no_memory(tmp_path: Path) -> None:
    path = str(tmp_path / "a.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        with made.open("../../escaped.en", "w", force_zip64=True) as file:
            for _ in range(100):
                file.write(b"x" * 1_000_000)
            file.write(b"\nlast\n")
        with made.open("/tmp/escaped.de", "w") as file:
            file.write(b"x\nzuletzt\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with time_limit(60):
        [block] = opened({"path": path}).blocks()
    assert block.pairs[1] == ("last", "zuletzt")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB
    assert [found.name for found in tmp_path.rglob("*")] == ["a.zip"]
    assert not Path("/tmp/escaped.de").exists()
