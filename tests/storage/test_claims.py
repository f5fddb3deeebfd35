"""Claims: each part has one worker, whoever hangs or dies; and nothing of them stays."""

import os
import signal
import time
from types import SimpleNamespace

import pytest
from helpers.processes import PATIENCE

from transformer_mt.base.errors import UserError
from transformer_mt.storage import claims
from transformer_mt.storage.claims import Claims


@pytest.fixture
def clock(monkeypatch):
    """The clock by which claims are judged; it stands still. Workers show every 10 ms that they live."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr(claims, "LEASE", 0.06)
    monkeypatch.setattr(claims, "time", SimpleNamespace(monotonic=lambda: found.now, sleep=time.sleep))
    return found


@pytest.fixture
def without_locks(monkeypatch):
    """A file system that has no locks, where every attempt to lock a file seems to succeed."""
    monkeypatch.setattr(claims, "lock", lambda descriptor: True)


@pytest.fixture(autouse=True)
def children():
    """The processes that a test has started; they are killed at its end."""
    CHILDREN.clear()
    yield
    for process in CHILDREN:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


CHILDREN = []


def until(condition):
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def child(work):
    """The id of a process that does this, and then sleeps until it is killed."""
    process = os.fork()
    if not process:
        try:
            work()
            time.sleep(600)
        finally:
            os._exit(1)
    CHILDREN.append(process)
    return process


def make_young(directory):
    """By the clock of the disk, which does not stand still, no sign is older than one that is made now."""
    for sign in directory.glob(claims._SIGN):
        os.utime(sign, (time.time() + 1000,) * 2)


def kill(process):
    CHILDREN.remove(process)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def claiming(tmp_path, *names):
    """The id of a process that has claimed these parts."""

    def work():
        with Claims(tmp_path) as own:
            for name in names:
                assert own.take(tmp_path / name)
            (tmp_path / "has claimed").touch()
            until((tmp_path / "give back").exists)
            for name in names:
                own.give_back(tmp_path / name)
            (tmp_path / "has given back").touch()
            time.sleep(600)

    process = child(work)
    until((tmp_path / "has claimed").exists)
    return process


def test_a_part_has_one_worker_until_this_gives_it_back_or_ends(tmp_path):
    part, other = tmp_path / "000001", tmp_path / "000002"
    with Claims(tmp_path) as second:
        with Claims(tmp_path) as first:
            assert first.take(part) and first.take(part) and second.take(other)
            assert not second.take(part) and not first.take(other)
            first.give_back(part)
            assert second.take(part) and not first.take(part)
            second.give_back(part)
            assert first.take(part)
        assert second.take(part)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("clock")
def test_after_an_error_nothing_is_claimed(tmp_path):
    with pytest.raises(KeyboardInterrupt), Claims(tmp_path) as own:
        own.take(tmp_path / "part")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_of_a_worker_that_is_killed_others_on_the_machine_take_the_part_at_once(tmp_path, clock):
    process = claiming(tmp_path, "part")
    with Claims(tmp_path) as own:
        assert not own.take(tmp_path / "part") and len(own.others()) == 1
        kill(process)
        assert own.take(tmp_path / "part") and own.others() == []


@pytest.mark.usefixtures("without_locks")
def test_without_locks_they_take_it_when_the_lease_is_over(tmp_path, clock):
    process = claiming(tmp_path, "part")
    kill(process)
    make_young(tmp_path)
    with Claims(tmp_path) as own:
        for _ in range(2):
            assert not own.take(tmp_path / "part") and len(own.others()) == 1
            clock.now += claims.LEASE * 0.6
        assert own.take(tmp_path / "part") and own.others() == []


@pytest.mark.usefixtures("without_locks")
def test_without_locks_a_claim_that_was_cut_off_lasts_for_a_lease(tmp_path, clock):
    (claims._claim(tmp_path / "part")).touch()
    with Claims(tmp_path) as own:
        assert not own.take(tmp_path / "part")
        clock.now += claims.LEASE
        assert own.take(tmp_path / "part")


@pytest.mark.parametrize("locks", [True, False])
def test_a_worker_that_lives_keeps_its_part(tmp_path, clock, monkeypatch, locks):
    if not locks:
        monkeypatch.setattr(claims, "lock", lambda descriptor: True)
    with Claims(tmp_path) as first, Claims(tmp_path) as second:
        assert first.take(tmp_path / "part")
        for _ in range(5):
            before = first._sign.read_bytes()
            assert not second.take(tmp_path / "part")
            until(lambda before=before: first._sign.read_bytes() != before)
            clock.now += claims.LEASE * 0.9
        assert not second.take(tmp_path / "part")


def test_a_worker_that_hangs_loses_its_part_and_takes_nothing_from_others_when_it_goes_on(tmp_path, clock):
    process, part = claiming(tmp_path, "part"), tmp_path / "part"
    os.kill(process, signal.SIGSTOP)
    make_young(tmp_path)
    with Claims(tmp_path) as own, Claims(tmp_path) as third:
        assert not own.take(part)
        clock.now += claims.LEASE * 0.9
        assert not own.take(part)
        clock.now += claims.LEASE * 0.2
        assert own.take(part) and not third.take(part)
        (tmp_path / "give back").touch()
        os.kill(process, signal.SIGCONT)
        until((tmp_path / "has given back").exists)
        assert not third.take(part)
        until(lambda: all(map(own._lives, tmp_path.glob(claims._SIGN))))


@pytest.mark.thorough
def test_workers_with_the_same_work_are_no_rivals(tmp_path):
    with Claims(tmp_path, "work of a kind") as first, Claims(tmp_path, "work of a kind"):
        assert not first.rivals()
        with Claims(tmp_path, "x") as third:
            assert first.rivals() and third.rivals()
        assert not first.rivals()


@pytest.mark.thorough
@pytest.mark.parametrize("content", [b"", b"another machine 000000007 x"])
def test_the_sign_of_a_worker_that_died_elsewhere_is_no_rival(tmp_path, monkeypatch, content):
    monkeypatch.setattr(claims, "LEASE", 4.0)
    (tmp_path / claims._SIGN.replace("*", "dead")).write_bytes(content)
    with Claims(tmp_path, "work") as own:
        assert not own.rivals()


@pytest.mark.thorough
def test_a_worker_that_lives_elsewhere_is_a_rival(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "LEASE", 4.0)
    monkeypatch.setattr(claims.cores, "text", lambda path: "another machine")
    with Claims(tmp_path, "x"):
        monkeypatch.setattr(claims.cores, "text", lambda path: "this machine")
        with Claims(tmp_path, "work") as own:
            assert own.rivals()


def test_an_old_sign_is_dead_at_first_sight(tmp_path):
    sign = tmp_path / claims._SIGN.replace("*", "dead")
    sign.write_bytes(b"another machine 000000007 work")
    with Claims(tmp_path, "work") as own:
        assert own.others() == [sign]
    before = time.time() - claims.LEASE - 1  # the clock of the disk may be some milliseconds behind
    os.utime(sign, (before, before))
    with Claims(tmp_path, "work") as own:
        assert own.others() == []


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match="no_directory"), Claims(tmp_path / "no_directory"):
        pass


@pytest.mark.thorough
def test_of_many_workers_each_part_has_one(tmp_path):
    parts = [tmp_path / f"{number:06}" for number in range(300)]

    def work():
        with Claims(tmp_path) as own:
            taken = [part.name for part in parts if own.take(part)]
            partial = tmp_path / f"partial of {os.getpid()}"
            partial.write_text("\n".join(taken))
            partial.rename(tmp_path / f"taken by {os.getpid()}")
            time.sleep(600)

    workers = [child(work) for _ in range(9)]
    until(lambda: len(list(tmp_path.glob("taken by *"))) == len(workers))
    taken = [name for path in tmp_path.glob("taken by *") for name in path.read_text().split()]
    assert sorted(taken) == [part.name for part in parts]


@pytest.mark.thorough
def test_a_step_is_done_by_one_after_the_other(tmp_path):
    def work():
        with Claims(tmp_path) as own:
            for _ in range(3):
                with own.alone(tmp_path / "step"):
                    (tmp_path / "doing").mkdir()
                    time.sleep(0.01)
                    (tmp_path / "doing").rmdir()
        (tmp_path / f"done by {os.getpid()}").touch()

    workers = [child(work) for _ in range(4)]
    until(lambda: len(list(tmp_path.glob("done by *"))) == len(workers))
