"""Ids on disk are the ids that were written, or loading says what is wrong."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.disk import largest_file
from helpers.messages import message

from transformer_mt.base.errors import CorpusError
from transformer_mt.batches.encoded import EncodedCorpus, EncodedText
from transformer_mt.preparing.shards import write_encoded

ROWS = [([5, 6, 3], [7, 3]), ([3], [8, 9, 10, 3]), ([65534, 3], [3])]


def sentences(text: EncodedText) -> list[list[int]]:
    bounds = zip(text.offsets[:-1], text.offsets[1:], strict=True)
    return [text.ids[start:end].tolist() for start, end in bounds]


def test_written_and_loaded(tmp_path: Path) -> None:
    write_encoded(tmp_path / "train", iter(ROWS), 65535, 100)
    corpus = EncodedCorpus.load(tmp_path / "train")
    assert len(corpus) == 3
    assert sentences(corpus.source) == [source for source, _ in ROWS]
    assert sentences(corpus.target) == [target for _, target in ROWS]
    assert np.diff(corpus.source.offsets).tolist() == [3, 1, 2]
    assert np.diff(corpus.target.offsets).tolist() == [2, 4, 1]


@pytest.mark.thorough
def test_more_rows_than_a_block(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = [
        (generator.integers(4, 90, generator.integers(1, 9)).tolist(), generator.integers(4, 90, 3).tolist())
        for _ in range(25_001)
    ]
    write_encoded(tmp_path / "train", rows, 90, 90)
    corpus = EncodedCorpus.load(tmp_path / "train")
    assert sentences(corpus.source) == [source for source, _ in rows]
    assert sentences(corpus.target) == [target for _, target in rows]


def test_a_vocabulary_has_the_bits_that_it_needs(tmp_path: Path) -> None:
    write_encoded(tmp_path / "train", [([65_535, 3], [65_536, 3])], 65_535, 65_537)
    corpus = EncodedCorpus.load(tmp_path / "train")
    assert (corpus.source.ids.dtype.name, corpus.target.ids.dtype.name) == ("uint16", "uint32")
    assert corpus.source.ids.tolist() == [65_535, 3]
    assert corpus.target.ids.tolist() == [65_536, 3]


def test_ids_stay_on_disk(tmp_path: Path) -> None:
    write_encoded(tmp_path / "train", ROWS, 65535, 100)
    corpus = EncodedCorpus.load(tmp_path / "train")
    for array in (corpus.source.ids, corpus.source.offsets, corpus.target.ids, corpus.target.offsets):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


def test_an_older_corpus_goes(tmp_path: Path) -> None:
    write_encoded(tmp_path / "train", ROWS, 65535, 100)
    write_encoded(tmp_path / "train", ROWS[:1], 65535, 100)
    assert len(EncodedCorpus.load(tmp_path / "train")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["train"]


def test_what_is_cut_short_is_not_there(tmp_path: Path) -> None:
    def rows() -> Iterator[tuple[list[int], list[int]]]:
        yield from ROWS
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_encoded(tmp_path / "train", rows(), 65535, 100)
    assert not (tmp_path / "train").exists()
    write_encoded(tmp_path / "train", ROWS, 65535, 100)
    assert [path.name for path in tmp_path.iterdir()] == ["train"]


def test_a_removal_that_is_cut_short_leaves_nothing_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_short(path: Path, ignore_errors: bool = False) -> None:
        if path.exists():
            (path / "sizes.json").unlink()
            raise KeyboardInterrupt

    write_encoded(tmp_path / "train", ROWS, 65535, 100)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", cut_short)
        with pytest.raises(KeyboardInterrupt):
            write_encoded(tmp_path / "train", ROWS, 65535, 100)
    write_encoded(tmp_path / "train", ROWS, 65535, 100)
    assert len(EncodedCorpus.load(tmp_path / "train")) == 3


def test_a_directory_of_somebody_else_stays(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "corpus.en").write_text("mine\n")
    with pytest.raises(CorpusError, match=message("directory-not-by-prepare", "train")):
        write_encoded(tmp_path / "train", ROWS, 65535, 100)
    assert (tmp_path / "train" / "corpus.en").read_text() == "mine\n"


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message("encoded-data-damaged", "train")):
        EncodedCorpus.load(tmp_path / "train")


@pytest.mark.parametrize("name", ["source.ids", "source.offsets", "target.ids", "target.offsets"])
def test_a_truncated_corpus_is_named(tmp_path: Path, name: str) -> None:
    write_encoded(tmp_path / "train", ROWS, 65535, 100)
    path = tmp_path / "train" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorpusError, match=message("encoded-file-size-wrong", "train", name)):
        EncodedCorpus.load(tmp_path / "train")
    path.unlink()
    with pytest.raises(CorpusError, match=message("encoded-data-damaged", "train", name)):
        EncodedCorpus.load(tmp_path / "train")


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({"pairs": 3, "source": 1})])
def test_damaged_sizes_are_named(tmp_path: Path, content: str) -> None:
    write_encoded(tmp_path / "train", ROWS, 65535, 100)
    (tmp_path / "train" / "sizes.json").write_text(content)
    with pytest.raises(CorpusError, match=message("encoded-data-damaged", "train")):
        EncodedCorpus.load(tmp_path / "train")


def test_on_a_full_disk_nothing_is_lost_in_silence(tmp_path: Path) -> None:
    with largest_file(300), pytest.raises(OSError, match="File too large"):  # room for all but the offsets
        write_encoded(tmp_path / "corpus", [([5, 2], [6, 2])] * 60, 40, 40)
    assert not (tmp_path / "corpus").exists()
