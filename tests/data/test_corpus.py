"""Lines and pairs come out as they went in, or an error says which file, which line and what to do."""

import gzip
import json
import os
import socket
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from helpers.hostile import time_limit

from transformer_mt.data.corpus import open_pairs, read_lines, split_digest
from transformer_mt.errors import CorpusError
from transformer_mt.settings.experiment import CorpusConfig, FilePair


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
    pair = FilePair(source=str(path), target=str(path))
    if lines:
        assert len(open_pairs(corpus, pair)) == len(lines)
        assert list(open_pairs(corpus, pair)) == [(line, line) for line in lines]
    else:
        with pytest.raises(CorpusError, match=r"empty"):
            open_pairs(corpus, pair)


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a\nb\nM\xfcll\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["a", "b"]
    with pytest.raises(CorpusError, match=r"text:3: is not UTF-8 \(byte 0xfc\).*iconv"):
        next(lines)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"none\.en: cannot be read \(No such file"):
        list(read_lines(tmp_path / "none.en"))
    damaged = tmp_path / "cut.gz"
    damaged.write_bytes(gzip.compress(b"a line\n" * 1000)[:-12])
    with pytest.raises(CorpusError, match=r"cut\.gz: cannot be read"):
        list(read_lines(damaged))
    packed = gzip.compress(b"a line\n" * 1000)
    damaged.write_bytes(packed[:10] + b"\xff" + packed[11:])  # the header is whole, what follows is not
    with pytest.raises(CorpusError, match=r"cut\.gz: cannot be read"):
        list(read_lines(damaged))
    damaged.write_bytes(b"plain text\n")
    with pytest.raises(CorpusError, match=r"cut\.gz: cannot be read"):
        list(read_lines(damaged))


def test_pairs_are_aligned_by_line(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\n\nc", "A\nB\nC\n")
    pairs = open_pairs(corpus, corpus.train)
    assert len(pairs) == 3
    assert list(pairs) == list(pairs) == [("a", "A"), ("", "B"), ("c", "C")]
    assert list(open_pairs(corpus, corpus.train)) == list(pairs)


def test_a_prefix_finds_gzipped_files_too(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\n", "A\n")
    (tmp_path / "train.de").unlink()
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(b"B\n"))
    assert list(open_pairs(corpus, corpus.train)) == [("a", "B")]


def test_two_files_may_have_any_name(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\n", "A\n")
    pair = FilePair(source=str(tmp_path / "train.de"), target=str(tmp_path / "train.en"))
    assert list(open_pairs(corpus, pair)) == [("A", "a")]


def test_files_that_differ_in_length_are_refused_at_once(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\nb\n", "A\n")
    with pytest.raises(CorpusError, match=r"train\.en has 2 lines, but .*train\.de has 1"):
        open_pairs(corpus, corpus.train)  # not even the first pair is asked for


def test_missing_files_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"train\.en: no such file, nor train\.en\.gz.*language 'en'"):
        open_pairs(local(tmp_path), str(tmp_path / "train"))


def test_a_digest_is_of_the_text(tmp_path: Path) -> None:
    corpus = write(tmp_path, "a\n", "A\n")
    before = split_digest(corpus, corpus.train)
    assert split_digest(corpus, corpus.train) == before
    assert split_digest(write(tmp_path, "a\n", "B\n"), corpus.train) != before
    assert split_digest(write(tmp_path, "A\n", "a\n"), corpus.train) != before
    assert split_digest(write(tmp_path, "a\nA\n", ""), corpus.train) != before


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that load_dataset reads as it reads the hub, without network, with its cache beside."""
    datasets = pytest.importorskip("datasets")
    huggingface_hub = pytest.importorskip("huggingface_hub")

    # What HF_HOME and HF_HUB_OFFLINE say is read when these are imported, which may be long ago.
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "hub").mkdir()
    return tmp_path / "hub"


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def hub_corpus(dataset: str, target: str = "de") -> CorpusConfig:
    return CorpusConfig(
        source_language="en", target_language=target, dataset=dataset, train="train", valid="test", test={}
    )


SENTENCES = [("a\nb", "A"), ("c\r\nd", "C\u2028D"), ("e", ""), *((f"s{i}", f"t{i}") for i in range(2500))]
EXPECTED = [("a b", "A"), ("c d", "C\u2028D"), ("e", ""), *SENTENCES[3:]]


@pytest.mark.parametrize("nested", [True, False])
def test_hub_rows_have_either_shape(hub: Path, nested: bool) -> None:
    rows: list[dict[str, object]] = [{"en": source, "de": target or None} for source, target in SENTENCES]
    write_rows(hub / "train.jsonl", [{"translation": row} for row in rows] if nested else rows)
    corpus = hub_corpus(str(hub))
    pairs = open_pairs(corpus, "train")
    assert len(pairs) == len(EXPECTED)
    assert list(pairs) == list(pairs) == EXPECTED
    assert list(open_pairs(corpus, "train[:2]")) == EXPECTED[:2]
    with pytest.raises(CorpusError, match=r"no column 'fr', but: .*en.*source_language"):
        open_pairs(hub_corpus(str(hub), target="fr"), "train")


def test_unknown_hub_splits_are_named(hub: Path) -> None:
    write_rows(hub / "train.jsonl", [{"en": "a", "de": "A"}])
    write_rows(hub / "test.jsonl", [{"en": "b", "de": "B"}])
    with pytest.raises(CorpusError, match=r"\(dev\) cannot be loaded: .*'train'.*'test'"):
        open_pairs(hub_corpus(str(hub)), "dev")


def test_without_network_the_way_to_local_files_is_shown(hub: Path) -> None:
    with pytest.raises(CorpusError, match=r"nobody/nothing \(train\).*corpus\.dataset=null corpus\.train=PREFIX"):
        open_pairs(hub_corpus("nobody/nothing"), "train")


def test_without_the_package_that_reads_the_hub_the_command_that_installs_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(CorpusError) as raised:
        open_pairs(hub_corpus("nobody/nothing"), "train")
    message = str(raised.value)
    assert "corpus.dataset=nobody/nothing is on the Hugging Face hub" in message
    assert f"{sys.executable} -m pip install datasets" in message
    assert "corpus.dataset=null corpus.train=PREFIX" in message


def test_files_are_local_beside_a_hub_data_set(tmp_path: Path) -> None:
    write(tmp_path, "a\n", "A\n")
    pair = FilePair(source=str(tmp_path / "train.en"), target=str(tmp_path / "train.de"))
    assert list(open_pairs(hub_corpus("nobody/nothing"), pair)) == [("a", "A")]


def test_the_digest_of_a_hub_split_is_of_its_names() -> None:
    corpus = hub_corpus("nobody/nothing")
    others = [corpus.model_copy(update={key: "x"}) for key in ("dataset", "subset", "revision")]
    digests = [split_digest(one, "train") for one in [corpus, *others]] + [split_digest(corpus, "test")]
    assert len(set(digests)) == 5
    assert split_digest(corpus, "train") == digests[0]


@pytest.mark.parametrize("kind", ["device", "pipe", "directory", "socket"])
def test_a_corpus_without_end_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd"
    match kind:
        case "device":
            path = Path("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as made, chdir(tmp_path):
                made.bind(path.name)
    for read in (open_pairs, split_digest):
        with (
            time_limit(20),
            pytest.raises(CorpusError, match=f"{path}: is not a regular file"),
        ):
            read(local(tmp_path), FilePair(source=str(path), target=str(path)))


def test_lines_are_read_of_what_ends() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"a\nb")
    os.close(writer)
    assert list(read_lines(Path(f"/dev/fd/{reader}"))) == ["a", "b"]
    os.close(reader)
    assert list(read_lines(Path(os.devnull))) == []
    with time_limit(20), pytest.raises(CorpusError, match="/dev/zero: is a device, which may never end"):
        list(read_lines(Path("/dev/zero")))
