"""Lines come from a file, a pipe or a terminal, and none is lost or doubled."""

import gzip
import os
import pty
import sys
import termios
import threading
from itertools import islice
from pathlib import Path

import pytest
from helpers.messages import message, says

from transformer_mt.base.errors import CorpusError, UserError
from transformer_mt.terminal.line_input import LineInput, beside, open_lines, read_document


@pytest.fixture
def standard_input(monkeypatch):
    """A function that makes a file descriptor standard input."""
    files = []

    def put(descriptor):
        files.append(os.fdopen(descriptor, encoding="utf-8"))
        monkeypatch.setattr(sys, "stdin", files[-1])

    yield put
    for file in files:
        file.close()


CONTENT = b"\xef\xbb\xbfone\r\ntwo\xe2\x80\xa8still two\n\n\x00\x01\xf0\x9f\x99\x82\nlast"
LINES = ["one", "two\u2028still two", "", "\x00\x01🙂", "last"]


def test_a_file_comes_in_full_blocks_and_is_counted(tmp_path, standard_input):
    path = tmp_path / "lines"
    path.write_bytes(CONTENT)
    standard_input(os.open(path, os.O_RDONLY))
    for lines in (open_lines(path, "strict", 2), open_lines(None, "strict", 2)):
        assert (lines.is_file, lines.num_lines) == (True, 5)
        assert list(lines.blocks) == [LINES[:2], LINES[2:4], LINES[4:]]


def change(path, how):
    content = path.read_bytes()
    path.unlink() if how == "gone" else path.write_bytes(content[:20] if how == "shorter" else content + b"more\n")


@pytest.mark.parametrize("how", ["shorter", "longer", "gone"])
@pytest.mark.parametrize("source", ["file", "compressed", "standard input"])
def test_a_file_that_changes_is_an_error_at_the_next_block(tmp_path, standard_input, how, source):
    """Also if the change comes before the first block, when a command loads its model."""
    path = tmp_path / ("lines.gz" if source == "compressed" else "lines")
    content = gzip.compress(CONTENT) if source == "compressed" else CONTENT
    path.write_bytes(content)
    for num_blocks in (0, 1, 3):
        if source == "standard input":
            if how == "gone":
                return  # who has opened a file keeps it
            standard_input(os.open(path, os.O_RDONLY))
        lines = open_lines(None if source == "standard input" else path, "strict", 2)
        assert len(list(islice(lines.blocks, num_blocks))) == num_blocks
        change(path, how)
        name = source if source == "standard input" else str(path)
        with pytest.raises(CorpusError, match=message("text-changed-while-read", name)):
            next(lines.blocks)
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["shorter", "longer", "gone"])
@pytest.mark.parametrize("which", ["lines", "others"])
def test_a_change_of_two_files_is_said_before_a_difference_of_their_lengths(tmp_path, how, which):
    for name in ("lines", "others"):
        (tmp_path / name).write_bytes(CONTENT)
    for num_blocks in (1, 3):
        pairs = beside(open_lines(tmp_path / "lines", "strict", 2), tmp_path / "others", "strict")
        assert len(list(islice(pairs, num_blocks))) == num_blocks
        change(tmp_path / which, how)
        with pytest.raises(CorpusError, match=message("text-changed-while-read", str(tmp_path / which))):
            next(pairs)
        (tmp_path / which).write_bytes(CONTENT)


def test_a_pipe_is_read_as_it_fills(standard_input):
    read_end, write_end = os.pipe()
    standard_input(read_end)
    lines = open_lines(None, "strict", 100)
    assert (lines.is_file, lines.num_lines) == (False, None)
    os.write(write_end, b"one\n")
    assert next(lines.blocks) == ["one"]
    os.write(write_end, b"two")
    os.close(write_end)
    assert list(lines.blocks) == [["two"]]


def test_a_named_pipe_is_read_as_it_fills(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    lines = open_lines(path, "strict", 100)
    with path.open("wb", buffering=0) as file:
        file.write(b"one\n")
        assert next(lines.blocks) == ["one"]
    assert list(lines.blocks) == []


def test_a_terminal_has_a_prompt_for_each_line_and_ctrl_d_ends(standard_input, capsys):
    keyboard, terminal = pty.openpty()
    settings = termios.tcgetattr(terminal)
    standard_input(terminal)
    lines = open_lines(None, "strict", 100)
    os.write(keyboard, b"one\n")
    assert next(lines.blocks) == ["one"]
    os.write(keyboard, "zwölf\n".encode())
    assert next(lines.blocks) == ["zwölf"]
    os.write(keyboard, settings[6][termios.VEOF])
    assert list(lines.blocks) == []
    assert capsys.readouterr() == ("", "> > > \n")
    os.close(keyboard)


def test_bytes_that_are_not_utf8_stop_or_are_replaced(tmp_path, caplog):
    path = tmp_path / "lines"
    path.write_bytes(b"fine\nbr\xf6ken\n\xff\xfe\n")
    strict = open_lines(path, "strict", 1).blocks
    assert next(strict) == ["fine"]
    with pytest.raises(CorpusError, match=message("line-not-utf-8", "lines:2")):
        next(strict)
    assert list(open_lines(path, "replace", 9).blocks) == [["fine", "br\ufffdken", "\ufffd\ufffd"]]
    [warning] = caplog.messages
    assert says(warning, "line-not-utf-8", "lines:2")


def test_no_standard_input_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError, match=message("standard-input-closed")):
        open_lines(None, "strict", 1)


def test_lines_beside_others_are_as_many(tmp_path):
    path = tmp_path / "others"
    path.write_text("A\nB\nC\n")
    pairs = beside(LineInput(iter([["a", "b"], ["c"]])), path, "strict")
    assert list(pairs) == [(["a", "b"], ["A", "B"]), (["c"], ["C"])]
    with pytest.raises(CorpusError, match=message("line-beside-missing", "4")):
        list(beside(LineInput(iter([["a", "b"], ["c", "d", "e"]])), path, "strict"))
    with pytest.raises(CorpusError, match=message("line-beside-too-many", "others", "3", "2 lines")):
        list(beside(LineInput(iter([["a", "b"]])), path, "strict"))


@pytest.mark.parametrize(
    ("others", "code", "line"), [("A\n", "line-beside-missing", "2"), ("A\nB\nC", "line-beside-too-many", "3")]
)
def test_files_are_counted_before_a_line_is_taken(tmp_path, others, code, line):
    (tmp_path / "lines").write_text("a\nb")
    (tmp_path / "others").write_text(others)
    with pytest.raises(CorpusError, match=message(code, "others", line)):
        next(beside(open_lines(tmp_path / "lines", "strict", 1), tmp_path / "others", "strict"))


def test_a_pipe_beside_a_file_is_not_read_to_be_counted(tmp_path):
    (tmp_path / "lines").write_text("a\nb\n")
    read_end, write_end = os.pipe()
    os.write(write_end, b"A\nB\n")
    os.close(write_end)
    pairs = beside(open_lines(tmp_path / "lines", "strict", 2), Path(f"/dev/fd/{read_end}"), "strict")
    assert list(pairs) == [(["a", "b"], ["A", "B"])]
    os.close(read_end)


def test_no_thread_is_needed_for_a_file(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(CONTENT)
    before = threading.active_count()
    assert list(open_lines(path, "strict", 9).blocks) == [LINES]
    assert threading.active_count() == before


TEXTS = {"srt": "1\n00:00:01,000 --> 00:00:02,000\nM\u00fcll\n", "vtt": "WEBVTT\n\n", "html": "<p>\u4e00</p>\r\n"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("form", TEXTS)
def test_text_with_a_byte_order_mark_is_read_as_a_document_and_as_lines(tmp_path, standard_input, form, encoding):
    path, text = tmp_path / "text", TEXTS[form]
    path.write_bytes(text.encode(encoding))
    lines = [line.rstrip("\r") for line in text.split("\n")][:-1]
    for place in (path, None):
        standard_input(os.open(path, os.O_RDONLY))
        assert read_document(place, "strict", form) == text
        standard_input(os.open(path, os.O_RDONLY))
        found = open_lines(place, "strict", 100)
        assert found.num_lines == len(lines) and list(found.blocks) == [lines]


def test_all_readers_say_the_same_about_utf16_without_a_mark(tmp_path, standard_input):
    path = tmp_path / "text"
    path.write_bytes("A dog.\nA cat.\n".encode("utf-16-le"))
    readers = [
        lambda place: read_document(place, "strict", "srt"),
        lambda place: [*open_lines(place, "strict", 9).blocks],
    ]
    for place in (path, None):
        for read in readers:
            standard_input(os.open(path, os.O_RDONLY))
            with pytest.raises(CorpusError, match=message("text-is-utf-16", str(place or "standard input"), "LE")):
                read(place)
