"""Lines come out whole in blocks that depend only on the text, in time and memory that long lines do not change."""

import io
import random
import resource
import time

import pytest
from helpers.messages import message, says

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.corpus import BLOCK, LONGEST, blocks_of_file
from transformer_mt.corpora.text_files import BadLine, all_lines, decode_lines, limited_lines, survey_of


class Trickle(io.BytesIO):
    """Gives fewer bytes than are asked for, as files that are unpacked do."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 1, random.randint(1, 5000)))


class ThreeBytes(io.BytesIO):
    """Gives parts of characters."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(3)


def lines_of(content: bytes) -> list[str | BadLine]:
    return list(all_lines(io.BytesIO(content), "text"))


def test_lines_are_those_of_the_reader_that_goes_line_by_line() -> None:
    dice = random.Random(1)
    for _ in range(200):
        parts = dice.choices(["a", "ü", "\n", "\r\n", "\r", "\u2028", "🙂", "\ufeff", "\x0b"], k=dice.randint(0, 40))
        content = "".join(parts).encode()
        assert lines_of(content) == list(decode_lines(io.BytesIO(content), "text"))


def test_blocks_depend_on_the_text_only() -> None:
    content = b"".join(b"line %d\n" % number for number in range(5 * BLOCK + 7))
    expected = lines_of(content)
    blocks = list(blocks_of_file("text", ((str(line), "") for line in expected)))
    assert [len(block.pairs) for block in blocks] == [BLOCK] * 5 + [7]
    assert list(all_lines(Trickle(content), "text")) == expected
    assert survey_of(Trickle(content)) == survey_of(io.BytesIO(content))


@pytest.mark.parametrize("line", [b"M\xfcll", b"a\0b", b"x" * (LONGEST + 1), b"x" * 5_000_000, b"\xc3"])
@pytest.mark.parametrize("at", [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK])
def test_a_bad_line_leaves_the_others_as_they_are(line: bytes, at: int) -> None:
    lines = [b"line %d" % number for number in range(3 * BLOCK + 1)]
    expected: list[str | None] = [text.decode() for text in lines]
    lines[at], expected[at] = line, None
    found = lines_of(b"\n".join(lines))
    assert [text if isinstance(text, str) else None for text in found] == expected
    bad = found[at]
    assert isinstance(bad, BadLine) and len(bad.text) < 1000


def test_the_longest_line_is_whole() -> None:
    assert lines_of(b"a\n" + b"x" * LONGEST + b"\r\nb") == ["a", "x" * LONGEST, "b"]


def test_a_line_without_end_takes_little_memory_and_linear_time() -> None:
    class Endless(io.RawIOBase):
        def __init__(self, size: int) -> None:
            self.left = size

        def read(self, size: int = -1) -> bytes:
            self.left -= (given := min(size, self.left))
            return b"x" * given

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    [bad] = all_lines(Endless(1_000_000_000), "text")  # type: ignore[arg-type]
    assert isinstance(bad, BadLine) and says(bad.fault, "corpus-line-too-long", "1,000,000")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB
    assert time.process_time() - start < 5


TEXTS = ["a\nb\n", "", "\n", "Ein Hund.\r\n\r\nEine Katze.", "ਅ ਊ\nਊਊ\n\nਅ", "Дом этот.\nНе дом.\n", "🙂\n一二"]  # noqa: RUF001


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", TEXTS)
def test_utf16_with_a_byte_order_mark_is_read_as_utf8_is(text: str, encoding: str) -> None:
    content, expected = ("\ufeff" + text).encode(encoding), lines_of(text.encode())
    for kind in (io.BytesIO, ThreeBytes):
        assert list(all_lines(kind(content), "text")) == expected
        assert list(decode_lines(limited_lines(kind(content), "text"), "text")) == expected
        assert survey_of(kind(content)).num_lines == len(expected)


@pytest.mark.parametrize("read", [lines_of, lambda content: [*limited_lines(io.BytesIO(content), "text")]])
@pytest.mark.parametrize("text", ["Ein Hund.\nEine Katze.\n", "Этот большой дом и не дом.\nДом.\n"])  # noqa: RUF001
def test_utf16_without_a_mark_is_told_with_what_converts_it(text: str, read) -> None:
    for kind in ("LE", "BE"):
        with pytest.raises(CorpusError, match=message("text-is-utf-16", "text", kind)):
            read(text.encode(f"utf-16-{kind}"))
    with pytest.raises(CorpusError, match=message("utf-16-damaged", "text")):
        read(("\ufeff" + text).encode("utf-16-le")[:-1])


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_lines_of_an_old_macintosh_are_told_at_once(mark: str) -> None:
    with pytest.raises(CorpusError, match=message("carriage-returns-only")):
        lines_of((mark + "a\r" * 11 + "b").encode())
    assert lines_of(b"a\rb\r" * 20 + b"\n") == ["a\rb\r" * 19 + "a\rb"]


def test_what_to_do_with_another_encoding_keeps_the_quotes_of_windows() -> None:
    [bad] = lines_of("“don’t” – now".encode("cp1252"))
    assert isinstance(bad, BadLine) and "iconv -f WINDOWS-1252 -t UTF-8" in bad.fault
