import errno
import os
import threading
from pathlib import Path

import pytest
from safetensors import SafetensorError

from transformer_mt.errors import UserError
from transformer_mt.files import cure, replacing, write_whole


def test_the_old_content_stands_until_the_new_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_is_raised_while_writing_leaves_the_old_content(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_text_is_utf8_and_its_line_ends_stay(tmp_path):
    write_whole(tmp_path / "file", "ü\r\n")
    assert (tmp_path / "file").read_bytes() == b"\xc3\xbc\r\n"


def test_what_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "below", tmp_path / "nowhere" / "file", tmp_path):
        with pytest.raises(UserError, match=rf"{path}: cannot be written"):
            write_whole(path, "text")


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, "text")
    reader.join()
    assert read == [b"text"]
    assert pipe.is_fifo()


# What to do


def test_room_is_asked_for_only_where_it_is_missing(tmp_path):
    with pytest.raises(UserError, match=r"No space left on device\); make room on the disk, or name another place"):
        write_whole(Path("/dev/full"), "text")
    with pytest.raises(UserError, match=r"make sure that the directory exists and that you may write to it, or name"):
        write_whole(tmp_path / "nowhere" / "file", "text")


@pytest.mark.parametrize(
    ("number", "room"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False), (errno.EROFS, False)]
)
def test_errors_of_weights_are_understood_as_well(number, room):
    error = SafetensorError(f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})")
    assert cure(error) == cure(OSError(number, os.strerror(number)))
    assert ("make room" in cure(error)) == room
