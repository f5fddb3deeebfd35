import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers.hostile import time_limit
from helpers.messages import message
from helpers.processes import python_path
from helpers.tiny import ROOT
from safetensors import SafetensorError

from transformer_mt.base.errors import UserError
from transformer_mt.storage import files
from transformer_mt.storage.files import (
    cure,
    lock,
    open_regular,
    own_name,
    replacing,
    write_whole,
)


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
@pytest.mark.parametrize("linked", [False, True])
def test_only_a_regular_file_is_opened_and_nothing_is_waited_for(tmp_path, kind, linked):
    path = tmp_path / kind
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path = Path(os.devnull)
        case _:
            path.mkdir()
    if linked:
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    with time_limit(20), pytest.raises(OSError, match="not a regular file"):
        open_regular(path)


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
        with pytest.raises(UserError, match=message("file-cannot-be-written", str(path))):
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


# What lies there


@pytest.mark.parametrize("name", ["file.partial", ".file.partial", "file.tmp", "file.old"])
def test_files_of_the_user_stay_whatever_their_names(tmp_path, name):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / name).symlink_to("victim")
    write_whole(tmp_path / "file", "new")
    assert (tmp_path / name).is_symlink() and (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "hard link", "directory", "pipe"])
def test_what_lies_under_the_name_in_between_is_refused_and_named(tmp_path, kind):
    victim, partial = tmp_path / "victim", tmp_path / own_name("file")
    victim.write_text("mine")
    match kind:
        case "link":
            partial.symlink_to(victim)
        case "hard link":
            partial.hardlink_to(victim)
        case "directory":
            partial.mkdir()
        case "pipe":
            os.mkfifo(partial)
    with pytest.raises(UserError, match=message("partial-in-the-way", str(partial))):
        write_whole(tmp_path / "file", "new")
    assert victim.read_text() == "mine" and os.path.lexists(partial) and not (tmp_path / "file").exists()


def test_what_a_killed_process_left_is_written_anew(tmp_path):
    (tmp_path / own_name("file")).write_text("half of it, and longer than the new one")
    write_whole(tmp_path / "file", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "new"}


def test_a_second_writer_is_refused_at_once_and_the_first_one_writes_on(tmp_path):
    with replacing(tmp_path / "file") as file:
        file.write(b"first")
        with pytest.raises(UserError, match=message("file-being-written")), replacing(tmp_path / "file"):
            pass
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "first"}


def test_small_files_wait_for_each_other(tmp_path):
    with replacing(tmp_path / "file") as file:
        second = threading.Thread(target=write_whole, args=(tmp_path / "file", "second"))
        second.start()
        file.write(b"first")
    second.join()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "second"}


def test_what_has_just_become_the_whole_file_is_not_taken_for_what_was_left(tmp_path, monkeypatch):
    path, partial = tmp_path / "file", tmp_path / own_name("file")
    partial.write_text("first")

    def renamed_before(descriptor):
        if partial.read_text() == "first":
            os.replace(partial, path)  # by the first writer, after the second one has opened it
        return lock(descriptor)

    monkeypatch.setattr(files, "lock", renamed_before)
    with replacing(path) as file:
        file.write(b"second")
        assert path.read_text() == "first"
    assert path.read_text() == "second"


@pytest.mark.parametrize("before", ["old", None])
def test_a_link_stays_and_what_it_names_is_replaced(tmp_path, before):
    (tmp_path / "there").mkdir()
    (tmp_path / "one").symlink_to("there/two")
    (tmp_path / "there" / "two").symlink_to("three")
    if before:
        (tmp_path / "there" / "three").write_text(before)
    write_whole(tmp_path / "one", "new")
    assert (tmp_path / "one").is_symlink() and (tmp_path / "there" / "two").is_symlink()
    assert (tmp_path / "there" / "three").read_text() == "new"
    assert len(list(tmp_path.rglob("*"))) == 4


def test_links_in_a_circle_are_named(tmp_path):
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(UserError, match=message("file-cannot-be-written", str(tmp_path / "one"), "Too many levels")):
        write_whole(tmp_path / "one", "new")


@pytest.mark.parametrize("rights", [0o600, 0o640, None])
def test_rights_stay_and_a_new_file_has_those_of_the_umask(tmp_path, rights):
    if rights is not None:
        (tmp_path / "file").touch()
        (tmp_path / "file").chmod(rights)
    umask = os.umask(0o027)
    try:
        with replacing(tmp_path / "file"):
            assert (tmp_path / own_name("file")).stat().st_mode & 0o777 == (rights or 0o640)
    finally:
        os.umask(umask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == (rights or 0o640)


def test_a_long_name_is_no_obstacle(tmp_path):
    write_whole(tmp_path / ("ü" * 127), "text")
    assert [path.name for path in tmp_path.iterdir()] == ["ü" * 127]


def test_an_open_file_is_written_to_between_what_others_write(tmp_path):
    own = "from pathlib import Path; from transformer_mt.storage import files; "
    own += "files.write_whole(Path('/dev/stdout'), 'b\\n')"
    with (tmp_path / "file").open("w") as file:
        for command in (["echo", "a"], [sys.executable, "-c", own], ["echo", "c"]):
            subprocess.run(command, stdout=file, check=True, env={**os.environ, "PYTHONPATH": python_path(ROOT)})
    assert (tmp_path / "file").read_text() == "a\nb\nc\n"
    assert Path("/dev/stdout").is_symlink()


# What to do


@pytest.mark.skipif(sys.platform != "linux", reason="writes to /dev/full")
def test_room_is_asked_for_only_where_it_is_missing(tmp_path):
    with pytest.raises(UserError, match=message("file-cannot-be-written", "room")):
        write_whole(Path("/dev/full"), "text")
    with pytest.raises(
        UserError,
        match=message("file-cannot-be-written", "make sure that the directory exists and that you may write to it"),
    ):
        write_whole(tmp_path / "nowhere" / "file", "text")


@pytest.mark.parametrize(
    ("number", "room"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False), (errno.EROFS, False)]
)
def test_errors_of_weights_are_understood_as_well(number, room):
    error = SafetensorError(f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})")
    assert cure(error) == cure(OSError(number, os.strerror(number)))
    assert ("make room" in cure(error)) == room
