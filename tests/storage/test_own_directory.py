"""Directories of one stage: whole or as they were, whoever is killed; and nobody else's, whatever lies there."""

import subprocess
import sys

import pytest
from helpers.directories import tree
from helpers.messages import message
from helpers.processes import python_path
from helpers.tiny import ROOT

from transformer_mt.base.errors import DirectoryError, UserError
from transformer_mt.storage.files import own_name
from transformer_mt.storage.own_directory import LOCK, Owner, hold, replacing_directory

OWNER = Owner("bake", "bakes here", "choose another oven")


# A directory that is held


def test_a_directory_is_taken_if_it_is_new_or_empty_or_ours(tmp_path):
    for _ in range(2):
        with hold(tmp_path / "oven", OWNER):
            (tmp_path / "oven" / "bread").write_text("bread")
    assert tree(tmp_path / "oven") == {LOCK: OWNER.mark, "bread": b"bread"}


@pytest.mark.parametrize("mark", [b"", OWNER.mark[:5]])
def test_a_mark_that_a_kill_has_cut_off_is_ours(tmp_path, mark):
    (tmp_path / LOCK).write_bytes(mark)
    with hold(tmp_path, OWNER):
        pass
    assert tree(tmp_path) == {LOCK: OWNER.mark}


@pytest.mark.parametrize("mark", [None, b"", b"mine\n", Owner("cook", "", "").mark])
def test_any_other_directory_is_refused_and_its_first_entry_named(tmp_path, mark):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "apples").mkdir()
    if mark is not None:
        (tmp_path / LOCK).write_bytes(mark)
    before, first = tree(tmp_path), "lock" if mark else "apples"
    with (
        pytest.raises(DirectoryError, match=rf"`bake` did not make it: it contains {first}\. .*Choose another oven"),
        hold(tmp_path, OWNER),
    ):
        pass
    assert tree(tmp_path) == before


def test_what_has_to_lie_inside_may_lie_there(tmp_path):
    (tmp_path / "store" / "flour").mkdir(parents=True)
    with hold(tmp_path, OWNER, inside=tmp_path / "store" / "flour"):
        pass
    with hold(tmp_path / "store" / "oven", OWNER, inside=tmp_path):  # it does not lie inside
        pass


def test_a_second_one_is_refused_while_the_first_holds_it(tmp_path):
    with (
        hold(tmp_path, OWNER),
        pytest.raises(DirectoryError, match=message("another-process-wait", "bakes here", "choose another oven")),
        hold(tmp_path, OWNER),
    ):
        pass
    with hold(tmp_path, OWNER):
        pass


# A directory that is replaced


def test_the_old_directory_stands_until_the_new_is_whole(tmp_path):
    path = tmp_path / "directory"
    for content in ("old", "new"):
        with replacing_directory(path) as directory:
            (directory / content).write_text(content)
            assert not (path / "new").exists()
            assert (path / "old").exists() == (content == "new")
        assert [entry.name for entry in path.iterdir()] == [content]
    assert [entry.name for entry in tmp_path.iterdir()] == ["directory"]


def test_what_is_raised_while_writing_leaves_the_old_directory_or_none(tmp_path):
    for before in ([], ["directory"]):
        for name in before:
            (tmp_path / name).mkdir()
        with pytest.raises(ZeroDivisionError), replacing_directory(tmp_path / "directory") as directory:
            (directory / "file").write_text("new")
            raise ZeroDivisionError
        assert [entry.name for entry in tmp_path.iterdir()] == before
        assert [entry.name for name in before for entry in (tmp_path / name).iterdir()] == []


def test_a_place_for_a_directory_where_none_can_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=message("cannot-be-written-name", "file/directory")),
        replacing_directory(tmp_path / "file" / "directory"),
    ):
        pass


@pytest.mark.parametrize("left", ["partial", "old"])
def test_directories_of_the_user_stay_whatever_their_names(tmp_path, left):
    (tmp_path / f"directory.{left}").mkdir()
    (tmp_path / f"directory.{left}" / "file").write_text("mine")
    before = tree(tmp_path)
    for _ in range(2):
        with replacing_directory(tmp_path / "directory") as directory:
            (directory / "new").write_text("new")
        assert tree(tmp_path) == before | {"directory": False, "directory/new": b"new"}


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_what_lies_under_the_name_in_between_is_refused_and_named(tmp_path, kind):
    (tmp_path / "victim").mkdir()
    place = tmp_path / own_name("directory")
    match kind:
        case "file":
            place.write_text("mine")
        case "link":
            place.symlink_to(tmp_path / "victim")
        case "directory":
            place.mkdir()
            (place / "new").write_text("mine")
    before = tree(tmp_path)
    with (
        pytest.raises(UserError, match=r"\.directory\.transformer_mt-partial"),
        replacing_directory(tmp_path / "directory") as directory,
    ):
        (directory / "new").write_text("new")
    assert tree(tmp_path) == before


def test_a_second_writer_is_refused_while_the_first_writes(tmp_path):
    with replacing_directory(tmp_path / "directory") as directory:
        (directory / "file").write_text("first")
        with (
            pytest.raises(
                DirectoryError, match=message("another-process-wait", "is writing", "directory", "name another place")
            ),
            replacing_directory(tmp_path / "directory"),
        ):
            pass
    assert tree(tmp_path) == {"directory": False, "directory/file": b"first"}


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path):
    (tmp_path / "there" / "old").mkdir(parents=True)
    (tmp_path / "link").symlink_to("there")
    with replacing_directory(tmp_path / "link") as directory:
        (directory / "new").mkdir()
    assert sorted(tree(tmp_path)) == ["link", "there", "there/new"]


KILLED = """
import os, signal, sys
from pathlib import Path
from transformer_mt.storage.files import own_name, replacing
from transformer_mt.storage.own_directory import replacing_directory

EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}
top, kind = Path(sys.argv[1]), sys.argv[2]
place = top / own_name("it")


def write():
    if kind == "file":
        with replacing(top / "it") as file:
            file.write(b"new")
        return
    with replacing_directory(top / "it") as directory:
        for name in "ab":
            (directory / name).write_text("new")


def killed_before(count):
    # Whether the process was killed before its operation of this number, rather than done with all.
    child = os.fork()
    if child == 0:
        def hook(event, arguments):
            nonlocal count
            if event in EVENTS and (str(top) in str(arguments) or event in ("os.remove", "os.rmdir")):
                count -= 1
                if count < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        write()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def content(path):
    if path.is_dir():
        return {each.name: each.read_text() for each in path.iterdir()}
    return path.read_text()


old, new = ({"a": "old", "b": "old"}, {"a": "new", "b": "new"}) if kind == "directory" else ("old", "new")
count, seen = 0, set()
while True:
    write()
    for each in (top / "it").iterdir() if kind == "directory" else [top / "it"]:
        each.write_text("old")
    was_killed = killed_before(count)
    is_there = (top / "it").exists()
    if is_there:
        found = content(top / "it")
        assert found in (old, new), (count, found)
    else:
        found = content(place / "old")
        assert found == old, (count, found)
        # A call that fails brings it back.
        child = os.fork()
        if child == 0:
            try:
                with replacing_directory(top / "it"):
                    os._exit(0 if content(top / "it") == old else 1)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, count
    seen.add((found == new, is_there))
    write()
    assert content(top / "it") == new, count
    assert [each.name for each in top.iterdir()] == ["it"], (count, list(top.iterdir()))
    if not was_killed:
        break
    count += 1
print(count, len(seen))
"""


@pytest.mark.parametrize(("kind", "least", "states"), [("file", 2, 2), ("directory", 14, 3)])
def test_killed_before_any_operation_there_is_the_old_or_the_new_and_the_next_call_clears_up(
    tmp_path, kind, least, states
):
    """By SIGKILL, before each opening, renaming, making and deleting in turn."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, kind],
        env={"PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills, seen = map(int, done.stdout.split())
    assert kills >= least and seen == states, done.stdout
