"""A pattern stands for all its files, in one order on every machine, and no file stays without its translation."""

from pathlib import Path

import pytest
from helpers.forms import filled, opened, write
from helpers.messages import message

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.opening import corpus_files


def shards(directory: Path, **sides: dict[str, str]) -> str:
    """Write part-NUMBER.LANGUAGE for each; return the pattern of the prefix."""
    for language, texts in sides.items():
        for number, text in texts.items():
            name, _, packing = number.partition(".")
            write(directory / f"part-{name}.{language}", text, f".{packing}" if packing else "")
    return str(directory / "part-*")


def test_a_prefix_may_be_a_pattern(tmp_path: Path) -> None:
    english, german = {"10": "c\n", "1.gz": "a\n", "2": "b\n\n"}, {"2.xz": "B\nD\n", "1": "A\n", "10.zst": "C\n"}
    corpus = opened({"path": shards(tmp_path, en=english, de=german)})
    # In alphabetical order: 1, 10, 2.
    assert list(corpus.pairs()) == [("a", "A"), ("c", "C"), ("b", "B"), ("", "D")]
    assert [Path(block.place(0)).name for block in corpus.blocks()] == ["part-1.en.gz:1", "part-10.en:1", "part-2.en:1"]
    assert [path.name for path in corpus_files(filled({"path": str(tmp_path / "part-*")}))] == [
        *("part-1.en.gz", "part-1.de", "part-10.en", "part-10.de.zst", "part-2.en", "part-2.de.xz")
    ]


def test_a_shard_without_its_translation_is_named(tmp_path: Path) -> None:
    pattern = shards(tmp_path, en={"1": "a\n", "2": "b\n"}, de={"1": "a\n", "3": "b\n"})
    with pytest.raises(CorpusError, match=message("translation-file-missing", "2 files", "en", "2", "de")):
        opened({"path": pattern})
    Path(pattern.replace("*", "2.en")).unlink()
    with pytest.raises(CorpusError, match=message("translation-file-missing", "1 file", "en", "2", "de")):
        opened({"path": pattern})
    shards(tmp_path, en={"3": "b\n", "1.gz": "another\n"})  # of the two, the file that is not compressed is read
    assert list(opened({"path": pattern}).pairs()) == [("a", "a"), ("b", "b")]


def test_the_shard_that_is_misaligned_is_named_with_both_counts(tmp_path: Path) -> None:
    pattern = shards(tmp_path, en={"1": "a\n", "2": "b\n"}, de={"1": "a\n", "2": "b\nc\nd\n"})
    with pytest.raises(CorpusError, match=message("line-counts-differ", "part-2.en", "1 line", "part-2.de", "3")):
        opened({"path": pattern})
    with pytest.raises(CorpusError, match=message("line-counts-differ", "part-2.en", "1 line", "part-2.de", "3")):
        opened({"source": f"{pattern}.en", "target": f"{pattern}.de"})


def test_two_patterns_need_as_many_files(tmp_path: Path) -> None:
    pattern = shards(tmp_path, en={"1": "a\n", "2": "b\n"}, de={"1": "A\n"})
    both = {"source": f"{pattern}.en", "target": f"{pattern}.de"}
    with pytest.raises(CorpusError, match=message("file-counts-differ", "part-*.en", "2 files", "part-*.de", "1")):
        opened(both)
    shards(tmp_path, de={"9": "B\n"})
    assert list(opened(both).pairs()) == [("a", "A"), ("b", "B")]


def test_a_file_with_the_name_of_a_pattern_is_that_file(tmp_path: Path) -> None:
    for name in ("a[1].en", "a[1].de", "a1.en", "a1.de"):
        write(tmp_path / name, f"{name}\n")
    assert list(opened({"path": str(tmp_path / "a[1]")}).pairs()) == [("a[1].en", "a[1].de")]
    both = {"source": str(tmp_path / "a[1].en"), "target": str(tmp_path / "a[1].de")}
    assert list(opened(both).pairs()) == [("a[1].en", "a[1].de")]
    (tmp_path / "a[1].en").unlink()
    (tmp_path / "a[1].de").unlink()
    assert list(opened(both).pairs()) == [("a1.en", "a1.de")]


def test_files_of_one_pattern_are_read_in_alphabetical_order(tmp_path: Path) -> None:
    for number in (2, 10, 1, 3):
        write(tmp_path / f"{number}.tsv", f"{number}\tx\n")
    assert [source for source, _ in opened({"path": f"{tmp_path}/*.tsv"}).pairs()] == ["1", "10", "2", "3"]


def test_a_pattern_without_files_is_named(tmp_path: Path) -> None:
    for code, keys in (
        ("no-file-of-prefix", {"path": f"{tmp_path}/x-*"}),
        ("no-file-of-pattern", {"path": f"{tmp_path}/x-*.tsv"}),
        ("no-file-of-pattern", {"source": f"{tmp_path}/x-*", "target": "y"}),
    ):
        with pytest.raises(CorpusError, match=message(code, "x-*")):
            opened(keys)


def test_a_prefix_that_is_itself_a_file_of_pairs_is_told_how_to_name_it(tmp_path: Path) -> None:
    path = write(tmp_path / "my.txt", "a\tb\n")
    with pytest.raises(CorpusError, match=message("no-file-of-prefix", "my.txt, form: tsv}")):
        opened({"path": path})
    assert list(opened({"path": path, "form": "tsv"}).pairs()) == [("a", "b")]
    with pytest.raises(CorpusError, match=message("no-file-of-prefix", "{source: FILE, target: FILE}")):
        opened({"path": str(tmp_path / "none")})


def test_a_file_of_a_pattern_without_end_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "a\tb\n")
    (tmp_path / "b.tsv").mkdir()
    with pytest.raises(CorpusError, match=message("corpus-not-regular-file", "b.tsv")):
        opened({"path": f"{tmp_path}/*.tsv"})
