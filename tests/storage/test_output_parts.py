"""Parts of an output: whole or absent, joined as they were written, and nobody else's."""

import os
from functools import partial

import pytest
from helpers.directories import tree
from helpers.killed import killed_before_change

from transformer_mt.errors import DirectoryError
from transformer_mt.storage.output_parts import RECORD, OutputParts


@pytest.fixture
def parts(tmp_path):
    """Parts of an output, of which the first is there."""
    found = OutputParts(tmp_path / "out")
    with found.held():
        found.begin({"lines": 2})
        write(found, 0, b"one\n")
    return found


def write(parts, number, *contents):
    with parts.writing(number, f"digest {number}", lambda: {"number": number}) as file:
        for content in contents:
            file.write(content)


def joined(parts, *numbers):
    path = parts.directory.with_name("joined")
    with path.open("wb") as file:
        ends = [parts.copy(number, file) for number in numbers]
    return path.read_bytes(), ends


@pytest.mark.parametrize("content", [b"", b"two\n", b"\n", b"\n\n", b"\0\n{}\n", b'\n{"bytes": 0}\n', b"x" * 3_000_000])
def test_parts_are_joined_as_they_were_written(parts, content):
    write(parts, 1, content[:2], content[2:])
    found, ends = joined(parts, 0, 1)
    assert found == b"one\n" + content
    assert [(end.made_from, end.notes) for end in ends] == [(f"digest {n}", {"number": n}) for n in (0, 1)]
    assert parts.end_of(1) == ends[1]
    assert parts.count() == 2


def test_a_part_is_there_only_when_it_is_whole(parts):
    assert parts.end_of(1) is None
    with pytest.raises(KeyboardInterrupt), parts.writing(1, "", dict) as file:
        file.write(b"two")
        assert parts.end_of(1) is None and parts.count() == 1
        raise KeyboardInterrupt
    assert parts.end_of(1) is None and parts.count() == 1


def test_a_part_that_was_cut_short_is_missing_wherever_it_was_cut(parts):
    whole = parts.path(0).read_bytes()
    for length in range(len(whole)):
        parts.path(0).write_bytes(whole[:length])
        assert parts.end_of(0) is None, whole[:length]
    parts.path(0).write_bytes(b"more" + whole)
    assert parts.end_of(0) is None
    parts.path(0).write_bytes(whole)
    assert parts.end_of(0) is not None


def test_a_part_that_was_changed_is_not_joined_and_is_made_again(parts):
    parts.path(0).write_bytes(parts.path(0).read_bytes().replace(b"one", b"eno"))
    with pytest.raises(DirectoryError, match=r"000000: is not as it was written, and was deleted\. The same command"):
        joined(parts, 0)
    assert parts.end_of(0) is None


def test_a_link_leads_to_the_directory_beside_the_file(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "out")
    assert OutputParts(tmp_path / "link").directory == tmp_path / "elsewhere" / "out.parts"


def test_what_was_recorded_is_read_and_damage_is_named(parts, tmp_path):
    assert parts.read_record() == {"lines": 2}
    for text in ("{", "[]", "NaN", ""):
        (parts.directory / RECORD).write_text(text)
        with pytest.raises(DirectoryError, match=r"parts\.json: cannot be read .* delete the directory .*out\.parts"):
            parts.read_record()
    assert OutputParts(tmp_path / "other").read_record() is None
    assert not (tmp_path / "other.parts").exists()


def test_somebody_elses_directory_is_neither_used_nor_deleted(tmp_path):
    (tmp_path / "out.parts").mkdir()
    (tmp_path / "out.parts" / "000000").write_text("mine")
    parts = OutputParts(tmp_path / "out")
    with pytest.raises(DirectoryError, match="`translate` did not make it: it holds 000000, "):
        parts.read_record()
    with pytest.raises(DirectoryError, match="`translate` did not make it: it holds 000000, "), parts.held():
        pass
    parts.delete()
    assert tree(tmp_path) == {"out.parts": False, "out.parts/000000": b"mine"}


def test_all_is_deleted_except_what_somebody_else_put_there(parts, tmp_path):
    (parts.directory / ".000001.transformer_mt-partial").touch()  # as a kill leaves it
    (parts.directory / "notes.txt").write_text("mine")
    parts.delete()
    assert tree(tmp_path) == {"out.parts": False, "out.parts/notes.txt": b"mine"}
    (parts.directory / "notes.txt").unlink()
    parts.delete()
    parts.delete()
    assert not parts.directory.exists()


def test_parts_of_something_unknown_are_not_taken_for_those_of_what_begins(parts):
    (parts.directory / RECORD).unlink()
    assert parts.read_record() is None
    with parts.held():
        parts.begin({"lines": 2})
    assert parts.end_of(0) is None


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


def begin_and_write(parts):
    with parts.held():
        if parts.read_record() is None:
            parts.begin({"lines": 1})
        write(parts, 0, b"one\n")


def test_killed_at_any_instant_a_part_is_whole_or_absent_and_is_made_again(tmp_path):
    for number in range(1, 100):
        parts = OutputParts(tmp_path / f"{number}")
        if not stopped_before_change(number, partial(begin_and_write, parts)):
            break
        if parts.end_of(0) is not None:
            assert joined(parts, 0)[0] == b"one\n"
        begin_and_write(parts)
        assert (parts.read_record(), joined(parts, 0)[0]) == ({"lines": 1}, b"one\n")
        parts.delete()
        assert not parts.directory.exists()
    assert number > 10


def test_killed_at_any_instant_of_their_deletion_no_part_stays_without_what_it_belongs_to(tmp_path):
    for number in range(1, 100):
        parts = OutputParts(tmp_path / f"{number}")
        begin_and_write(parts)
        if not stopped_before_change(number, parts.delete):
            break
        assert parts.count() == 0 or parts.read_record() is not None
        parts.delete()
        assert not parts.directory.exists()
    assert number > 3
