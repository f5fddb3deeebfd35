"""Parts of an output: whole or absent, joined as they were written, and nobody else's."""

import io
import os
from functools import partial

import pytest
from helpers.directories import tree
from helpers.killed import killed_before_change
from helpers.messages import message

from transformer_mt.base.errors import DirectoryError, UserError
from transformer_mt.terminal.output_parts import DONE, ONCE, RECORD, OutputParts


def begin_and_write(parts):
    with parts.locked():
        if not parts.numbers():
            parts.write_record({"lines": 2})
        parts.write(0, {"number": 0}, b"one\n")


def delete(parts, **more):
    with parts.locked():
        parts.write_record({DONE: "all", **more})
        parts.tidy(has_others=False)


@pytest.fixture
def parts(tmp_path):
    """Parts of an output, of which the first is there."""
    found = OutputParts(tmp_path / "out")
    begin_and_write(found)
    return found


@pytest.mark.parametrize("content", [b"", b"two\n", b"\n", b"\n\n", b"\0\n{}\n", b'\n{"bytes": 0}\n', b"x" * 3_000_000])
def test_parts_are_joined_as_they_were_written(parts, tmp_path, content):
    parts.write(1, {"number": 1}, content)
    with (tmp_path / "joined").open("wb") as file:
        assert [parts.read(number, file) for number in (0, 1)] == [{"number": 0}, {"number": 1}]
    assert (tmp_path / "joined").read_bytes() == b"one\n" + content
    assert parts.read(1) == {"number": 1}
    assert parts.numbers() == [0, 1]


def test_a_part_that_cannot_be_written_is_not_there(parts, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=message("file-cannot-be-written")):
        parts.write(1, {}, b"two")
    assert parts.numbers() == [0]


@pytest.mark.parametrize("content", [b"", b"[1]\none\n", b'{"number"', b"\xff\n"])
def test_a_part_of_other_content_is_named(parts, content):
    parts.path(0).write_bytes(content)
    with pytest.raises(DirectoryError, match=message("part-damaged", "000000")):
        parts.read(0)


def test_a_part_with_any_byte_changed_or_cut_off_is_named_and_nothing_of_it_joined(parts):
    written = parts.path(0).read_bytes()
    damaged = [written[:at] + bytes([byte ^ 1]) + written[at + 1 :] for at, byte in enumerate(written)]
    for content in [*damaged, *(written[:at] for at in range(len(written))), written + b"\n"]:
        parts.path(0).write_bytes(content)
        joined = io.BytesIO()
        with pytest.raises(DirectoryError, match=message("part-damaged", "000000")):
            parts.read(0, joined)
        assert joined.getvalue() == b""


def test_a_link_leads_to_the_directory_beside_the_file(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "out")
    assert OutputParts(tmp_path / "link").directory == tmp_path / "elsewhere" / "out.parts"


def test_what_was_recorded_is_read_and_damage_is_named(parts):
    assert parts.record() == {"lines": 2}
    for text in ("{", "[1]", "NaN", ""):
        (parts.directory / RECORD).write_text(text)
        with pytest.raises(
            DirectoryError, match=message("part-cannot-be-read", "parts.json", "delete the directory", "out.parts")
        ):
            parts.record()


def test_somebody_elses_directory_is_neither_used_nor_deleted(tmp_path):
    (tmp_path / "out.parts").mkdir()
    (tmp_path / "out.parts" / "000000").write_text("mine")
    parts = OutputParts(tmp_path / "out")
    with pytest.raises(DirectoryError, match=message("directory-of-others", "000000")), parts.locked():
        pass
    assert tree(tmp_path) == {"out.parts": False, "out.parts/000000": b"mine"}


def test_all_is_deleted_except_what_somebody_else_put_there(parts, tmp_path):
    (parts.directory / ".000001.transformer_mt-partial").touch()  # as a kill leaves it
    (parts.directory / "notes.txt").write_text("mine")
    for _ in range(2):
        delete(parts)
        assert tree(tmp_path) == {"out.parts": False, "out.parts/notes.txt": b"mine"}
        (parts.directory / "notes.txt").unlink()
        parts.directory.rmdir()
        begin_and_write(parts)
        (parts.directory / "notes.txt").write_text("mine")
    (parts.directory / "notes.txt").unlink()
    delete(parts)
    assert not parts.directory.exists()


def test_while_others_need_the_directory_it_stays(parts):
    for record in ({}, {DONE: "all"}):
        parts.write_record(record)
        parts.delete_all()
        with parts.locked():
            parts.tidy(has_others=True)
        assert parts.record() == record
    delete(parts)
    assert not parts.directory.exists()


def test_of_an_output_that_is_made_once_the_record_stays(parts):
    delete(parts, **{ONCE: True})
    assert tree(parts.directory).keys() == {"lock", RECORD}
    delete(parts)
    assert not parts.directory.exists()


def stopped_before_change(number, action):
    """Whether a process that does it was stopped so, as `killed_before_change` says; it lets go of its locks."""
    child = os.fork()
    if not child:
        try:
            os._exit(killed_before_change(number, action))
        finally:
            os._exit(2)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 1)
    return status == 1


@pytest.mark.thorough
def test_killed_at_any_instant_a_part_is_whole_or_absent_and_is_made_again(tmp_path):
    for number in range(1, 100):
        parts = OutputParts(tmp_path / f"{number}")
        if not stopped_before_change(number, partial(begin_and_write, parts)):
            break
        if parts.numbers():
            assert (parts.read(0), parts.record()) == ({"number": 0}, {"lines": 2})
        begin_and_write(parts)
        assert (parts.read(0), parts.record()) == ({"number": 0}, {"lines": 2})
        delete(parts)
        assert not parts.directory.exists()
    assert number > 10


@pytest.mark.thorough
def test_killed_at_any_instant_of_their_deletion_no_part_stays_without_what_it_belongs_to(tmp_path):
    for number in range(1, 100):
        parts = OutputParts(tmp_path / f"{number}")
        begin_and_write(parts)
        if not stopped_before_change(number, partial(delete, parts)):
            break
        assert parts.numbers() == [] or parts.record() in ({"lines": 2}, {DONE: "all"})
        delete(parts)
        assert not parts.directory.exists()
    assert number > 3
