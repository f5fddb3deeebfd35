"""Lines and pairs come out as they went in, or an error says which file, which line and what to do."""

import gzip
import os
import socket
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from helpers.hostile import time_limit
from helpers.messages import message
from helpers.splits import digest, opened, read

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText


def local(directory: Path) -> CorpusConfig:
    prefix = str(directory / "train")
    return CorpusConfig(source_language="en", target_language="de", train=prefix, valid=prefix, test={})


def write(directory: Path, source: str, target: str) -> CorpusConfig:
    (directory / "train.en").write_bytes(source.encode())
    (directory / "train.de").write_bytes(target.encode())
    return local(directory)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\n\n", ["", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),
        ("a\u2028b\u0085c\x0bd\x1ce\n".encode(), ["a\u2028b\u0085c\x0bd\x1ce"]),
        (" ä  b \n".encode(), [" ä  b "]),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_only_newlines_end_a_line(tmp_path: Path, content: bytes, lines: list[str], suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    assert list(read_lines(path)) == lines
    # What counts the lines of a corpus must agree with what reads them.
    corpus = CorpusConfig(source_language="en", target_language="de", train="none", valid="none", test={})
    pair = PairedText(source=str(path), target=str(path))
    if lines:
        assert opened(corpus, pair).num_pairs == len(lines)
        assert read(corpus, pair) == [(line, line) for line in lines]
    else:
        with pytest.raises(CorpusError, match=message("empty-corpus")):
            opened(corpus, pair)


@pytest.mark.parametrize("how", ["shorter", "longer", "gone"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, how: str, suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    content = "".join(f"{number} {os.urandom(9).hex()}\n" for number in range(100_000)).encode()
    path.write_bytes(gzip.compress(content, 1) if suffix else content)
    lines = read_lines(path)
    assert next(lines).startswith("0 ")
    if how == "gone":
        path.unlink()
    else:
        with path.open("ab") as file:
            file.truncate(path.stat().st_size // 2 if how == "shorter" else path.stat().st_size + 9)
    with pytest.raises(CorpusError, match=message("text-changed-while-read", str(path))):
        list(lines)


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a\nb\nM\xfcll\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["a", "b"]
    with pytest.raises(CorpusError, match=message("line-not-utf-8", "text:3", "0xfc", "iconv")):
        next(lines)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message("text-cannot-be-read", "No such file")):
        list(read_lines(tmp_path / "none.en"))
    damaged = tmp_path / "cut.gz"
    damaged.write_bytes(gzip.compress(b"a line\n" * 1000)[:-12])
    with pytest.raises(CorpusError, match=message("text-cannot-be-read", "cut.gz")):
        list(read_lines(damaged))
    packed = gzip.compress(b"a line\n" * 1000)
    damaged.write_bytes(packed[:10] + b"\xff" + packed[11:])  # the header is whole, what follows is not
    with pytest.raises(CorpusError, match=message("text-cannot-be-read", "cut.gz")):
        list(read_lines(damaged))
    damaged.write_bytes(b"plain text\n")
    with pytest.raises(CorpusError, match=message("text-cannot-be-read", "cut.gz")):
        list(read_lines(damaged))


def test_pairs_are_aligned_by_line(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\n\nc", "A\nB\nC\n")
    pairs = opened(corpus, corpus.train)
    assert pairs.num_pairs == 3
    assert list(pairs.pairs()) == list(pairs.pairs()) == [("a", "A"), ("", "B"), ("c", "C")]
    assert read(corpus, corpus.train) == list(pairs.pairs())


def test_a_prefix_finds_gzipped_files_too(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\n", "A\n")
    (tmp_path / "train.de").unlink()
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(b"B\n"))
    assert read(corpus, corpus.train) == [("a", "B")]


def test_two_files_may_have_any_name(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\n", "A\n")
    pair = PairedText(source=str(tmp_path / "train.de"), target=str(tmp_path / "train.en"))
    assert read(corpus, pair) == [("A", "a")]


def test_files_that_differ_in_length_are_refused_at_once(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\nb\n", "A\n")
    with pytest.raises(CorpusError, match=message("line-counts-differ", "train.en", "2 lines", "train.de", "1")):
        opened(corpus, corpus.train)  # not even the first pair is asked for


def test_missing_files_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message("no-file-of-prefix", "gz", "en")):
        opened(local(tmp_path), str(tmp_path / "train"))


def test_a_digest_is_of_the_text(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\n", "A\n")
    before = digest(corpus, corpus.train)
    assert digest(corpus, corpus.train) == before
    assert digest(write(tmp_path, "a\n", "B\n"), corpus.train) != before
    assert digest(write(tmp_path, "A\n", "a\n"), corpus.train) != before
    assert digest(write(tmp_path, "a\nA\n", ""), corpus.train) != before


@pytest.mark.parametrize(
    "kind", ["device", "pipe", "directory", "socket", *(["kernel's log"] if sys.platform == "linux" else [])]
)
def test_a_corpus_without_end_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd"
    match kind:
        case "device":
            path = Path("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "kernel's log":
            path.symlink_to("/proc/kmsg")  # looks like a regular file, and waits for new lines at its end
        case "directory":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as made, chdir(tmp_path):
                made.bind(path.name)
    for use in (opened, digest):
        with (
            time_limit(20),
            pytest.raises(CorpusError, match=message("corpus-not-regular-file", str(path))),
        ):
            use(local(tmp_path), PairedText(source=str(path), target=str(path)))


def test_a_side_without_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.en")
    (tmp_path / "train.de").write_text("A\n")
    with time_limit(20), pytest.raises(CorpusError, match=message("corpus-not-regular-file", "train.en")):
        opened(local(tmp_path), str(tmp_path / "train"))


def test_a_line_without_end_is_an_error() -> None:
    with time_limit(60), pytest.raises(CorpusError, match=message("line-too-long", "67,108,864")):
        list(read_lines(Path("/dev/zero")))


def test_lines_are_read_of_what_ends() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"a\nb")
    os.close(writer)
    assert list(read_lines(Path(f"/dev/fd/{reader}"))) == ["a", "b"]
    os.close(reader)
    assert list(read_lines(Path(os.devnull))) == []
