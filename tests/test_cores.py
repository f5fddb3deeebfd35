"""How many cores this process may use, and how many of them other programs take."""

import os
import subprocess
import sys

import pytest
from helpers.tiny import ROOT

from transformer_mt.base import cores
from transformer_mt.base.cores import OtherPrograms

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how busy its cores are")


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_process(root, pid, ticks, **children):
    """A process with these ticks (its own, and of the children that have ended), and children of its threads."""
    name = "Ü) 1 2 (überß".encode()[:15]  # ends in the middle of a letter
    write(root / str(pid) / "stat", b"%d (%s) S 1 1 1 0 -1 0 0 0 0 0 " % (pid, name) + ticks.encode() + b" 20 0 1\n")
    for thread, of_thread in (children or {"1": ""}).items():
        write(root / str(pid) / "task" / thread / "children", of_thread)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that lets seconds pass, after which the cores 0, 1 and 2 have been busy for so many ticks."""
    monkeypatch.setattr(cores, "PROCESSES", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2}, raising=False)
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def later(seconds, *busy):
        clock[0] += seconds
        lines = [f"cpu{number} {columns} 9 9" for number, columns in enumerate(busy)]
        write(tmp_path / "stat", "\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "intr 5 0 1"]))

    return later


@on_linux
def test_others_take_what_neither_this_process_nor_its_children_do(machine, tmp_path):
    hertz = os.sysconf("SC_CLK_TCK")
    write_process(tmp_path, os.getpid(), "10 0 0 0", first="81", second="82 83")
    write_process(tmp_path, 81, "3 0 0 0", **{"81": "84"})
    for pid in (82, 84):
        write_process(tmp_path, pid, "0 0 0 0")
    machine(0.0, "500 0 0 1000 0 0 0 0", "500 0 0 1000 0 0 0 0", "500 0 0 1000 0 0 0 0")
    others = OtherPrograms()
    ours = [1, 2, 4, 8, 16, 32]  # of this process, an ended child (user and system), the children 81, 82, 84
    write_process(tmp_path, os.getpid(), f"{10 + ours[0]} 0 {ours[1]} {ours[2]}", first="81", second="82 83")
    write_process(tmp_path, 81, f"{3 + ours[3]} 0 0 0", **{"81": "84"})
    write_process(tmp_path, 82, f"0 {ours[4]} 0 0")
    write_process(tmp_path, 84, f"{ours[5]} 0 0 0")  # a child of a child; 83 has just ended
    taken = [64, 128, 256, 1, 2, 4]  # by user, nice, system, interrupts, soft interrupts, other guests
    busy = f"{500 + taken[0] + sum(ours)} {taken[1]} {taken[2]} 7777 7777 {taken[3]} {taken[4]} {taken[5]}"
    machine(5.0, busy, "999999 0 0 0 0 0 0 0", "501 0 0 9999 0 0 0 0")
    assert others.cores() == pytest.approx((sum(taken) + 1) / hertz / 5.0)


@on_linux
def test_others_are_counted_anew_after_each_answer_and_never_below_0_or_above_the_cores(machine, tmp_path):
    hertz = os.sysconf("SC_CLK_TCK")
    write_process(tmp_path, os.getpid(), "0 0 0 0")
    machine(0.0, "1 0 0 0 0 0 0 0")
    others, found = OtherPrograms(), []
    for seconds, busy in ((0.1, 50), (0.9, 1), (1.0, 1), (1.0, 0.5), (1.0, 1000)):
        machine(seconds, f"{round(busy * hertz) + 1} 0 0 0 0 0 0 0")
        found.append(others.cores())
    assert found == [None, pytest.approx(1.0), 0.0, 0.0, 2]


@pytest.mark.parametrize("counters", [None, "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n"])
def test_a_system_that_does_not_say_what_runs_is_not_called_idle(machine, tmp_path, counters):
    write_process(tmp_path, os.getpid(), "7 0 0 0")
    if counters is not None:
        write(tmp_path / "stat", counters)
    others = OtherPrograms()
    machine(5.0)
    assert others.cores() is None


BESIDE = """
import os, resource, subprocess, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from transformer_mt.base.cores import OtherPrograms
spin = [sys.executable, "-c", "import time\\nend = time.monotonic() + 3\\nwhile time.monotonic() < end: pass"]
subprocess.run([sys.executable, "-c", f"import subprocess; subprocess.Popen({spin})"]) if "orphan" in sys.argv else None
child, others, begin = subprocess.Popen(spin) if "child" in sys.argv else None, OtherPrograms(), time.monotonic()
time.sleep(1)
print(others.cores())
seconds = time.monotonic() - begin
if child:
    child.kill(), child.wait()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print((used.ru_utime + used.ru_stime) / seconds)
"""


@pytest.mark.thorough
@on_linux
@pytest.mark.parametrize("beside", ["child", "orphan"])
def test_a_busy_core_is_taken_by_others_except_for_what_a_child_does(beside):
    """On one core, which may have other work, too."""
    ended = subprocess.run(
        [sys.executable, "-c", BESIDE, beside], check=True, capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    others, children = map(float, ended.stdout.split())
    assert others > 0.7 if beside == "orphan" else others + children < 1.25 and children > 0.05
