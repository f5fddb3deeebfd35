"""How many cores this process may use, and how many of them other programs take."""

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from helpers.processes import python_path
from helpers.tiny import ROOT

from transformer_mt.base import cores, system
from transformer_mt.base.cores import OtherPrograms, num_cores
from transformer_mt.decoding import torch_engine
from transformer_mt.decoding.translator import Translator

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how busy its cores are")


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A function that makes these the control groups: /proc/self/cgroup, and the files below /sys/fs/cgroup."""
    monkeypatch.setattr(cores, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(cores, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(cores, "own_cores", lambda: set(range(64)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)

    def make(own, files):
        write(tmp_path / "own", own)
        for path, content in files.items():
            write(tmp_path / "groups" / path, f"{content}\n")

    return make


ROOT_2, JOB_2 = "0::/\n", "0::/system.slice/job.scope\n"
ALONE_1 = "3:cpu:/\n2:cpuacct:/\n"
DOCKER_1 = "12:memory:/docker/5a\n4:cpu,cpuacct:/docker/5a\n1:name=systemd:/docker/5a\n0::/docker/5a\n"


def quota_1(group, quota, period=100000):
    return {f"{group}/cpu.cfs_quota_us": quota, f"{group}/cpu.cfs_period_us": period}


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("", {}, 64),
        (JOB_2, {}, 64),
        (ROOT_2, {"cpu.max": "max 100000"}, 64),
        (ROOT_2, {"cpu.max": "150000 100000"}, 2),
        (ROOT_2, {"cpu.max": "5000 100000"}, 1),
        (ROOT_2, {"cpu.max": "300000 100000"}, 3),
        (ROOT_2, {"cpu.max": "12800000 100000"}, 64),
        (JOB_2, {"system.slice/job.scope/cpu.max": "max 100000", "system.slice/cpu.max": "80000 20000"}, 4),
        (JOB_2, {"system.slice/job.scope/cpu.max": "300000 100000", "system.slice/cpu.max": "500000 100000"}, 3),
        (JOB_2, {"system.slice/job.scope/cpu.max": "max 100000", "cpu.max": "700000 100000"}, 7),
        (JOB_2, {"system.slice/other.scope/cpu.max": "100000 100000"}, 64),
        ("0::/../../pod\n", {"cpu.max": "200000 100000"}, 2),
        (ALONE_1, quota_1("cpu", -1), 64),
        (ALONE_1, quota_1("cpu", 250000), 3),
        (ALONE_1, quota_1("cpuacct", 250000), 64),
        (DOCKER_1, quota_1("cpu,cpuacct", 90000, 50000), 2),
        (DOCKER_1, quota_1("cpu/docker/5a", 500000) | quota_1("cpu/docker", 400000) | quota_1("cpu", -1), 4),
    ],
)
def test_a_process_uses_no_more_cores_than_its_quota_and_those_of_the_groups_above(groups, own, files, expected):
    groups(own, files)
    assert num_cores() == expected


@pytest.mark.parametrize(
    ("wanted", "ranks", "expected"),
    [
        (None, None, 5),
        ("3", None, 3),
        (" 4,2", None, 4),
        ("4,2", "1", 4),
        ("9", None, 5),
        *((nothing, None, 5) for nothing in ("", "0", "-2", "many", ",3")),
        ("1", "2", 5),  # torchrun has set it
    ],
)
def test_omp_num_threads_lowers_the_number_of_cores(groups, monkeypatch, wanted, ranks, expected):
    groups(ROOT_2, {"cpu.max": "450000 100000"})
    for name, value in (("OMP_NUM_THREADS", wanted), ("LOCAL_WORLD_SIZE", ranks)):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert num_cores() == expected


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not say which cores one may use")
def test_a_process_uses_no_other_cores_than_the_system_gives_it(monkeypatch):
    monkeypatch.setattr(cores, "_quota", lambda: 4.5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5})
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert num_cores() == 3


@on_linux
@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        (ROOT_2, {"memory.max": "max"}, None),
        (ROOT_2, {"memory.max": "3000000"}, 3000000),
        (JOB_2, {"system.slice/job.scope/memory.max": "max", "system.slice/memory.max": "2000000"}, 2000000),
        (DOCKER_1, {"memory/docker/5a/memory.limit_in_bytes": 9223372036854771712}, None),
        (DOCKER_1, {"memory/memory.limit_in_bytes": 4000000}, 4000000),
        (DOCKER_1, {"memory/docker/5a/memory.limit_in_bytes": 9000000, "memory/docker/memory.limit_in_bytes": 5}, 5),
    ],
)
def test_a_container_has_the_least_memory_of_its_groups(groups, own, files, expected):
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    groups(own, files)
    assert system.machine_memory() == (expected or installed)
    assert 0 < system.free_memory() <= (expected or installed)


def test_translations_are_made_by_as_many_workers(groups, model_dir, monkeypatch):
    monkeypatch.setattr(torch_engine, "num_cores", num_cores)
    groups(ROOT_2, {"cpu.max": "250000 100000"})
    assert Translator.load(model_dir, "cpu").engine.translators.number == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert Translator.load(model_dir, "cpu").engine.translators.number == 2


IN_A_CONTAINER = """
import sys
from pathlib import Path
from transformer_mt.base import cores
cores.GROUPS, cores.OWN_GROUPS = Path(sys.argv[1]), Path(sys.argv[1], "own")
from transformer_mt import train
train.main(sys.argv[2:])
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("quota", "wanted"), [("max", "1"), ("70000", "64"), ("70000", None)])
def test_training_uses_as_many_threads(tmp_path, experiment, quota, wanted):
    write(tmp_path / "own", ROOT_2)
    write(tmp_path / "cpu.max", f"{quota} 100000\n")
    settings = [f"run_dir={tmp_path / 'run'}", "training.max_steps=1", "training.num_threads=0"]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    ended = subprocess.run(
        [sys.executable, "-c", IN_A_CONTAINER, tmp_path, experiment, *settings],
        env=environment | {"PYTHONPATH": python_path(ROOT)} | ({"OMP_NUM_THREADS": wanted} if wanted else {}),
        check=True,
        capture_output=True,
        text=True,
    )
    assert "CPU, 1 thread, " in ended.stdout


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


CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")

needs_two_cores = pytest.mark.skipif(num_cores() < 2, reason="one core needs no threads that wait for each other")


@on_linux
@pytest.mark.parametrize(
    ("threads", "variables", "num_cores", "spares"),
    [
        *((2, {}, num_cores, [spare]) for num_cores, spare in ((1, 0), (2, 0), (3, 1), (18, 16))),
        (2, {}, 19, []),
        (1, {}, 2, []),
        *((2, {name: "1"}, 2, []) for name in CHOSEN),
    ],
)
def test_threads_are_watched_once_if_several_wait_and_the_user_has_not_chosen_how(
    monkeypatch, threads, variables, num_cores, spares
):
    monkeypatch.setattr(cores, "own_cores", lambda: set(range(num_cores)))
    for name in CHOSEN:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    is_over, started = threading.Event(), []
    monkeypatch.setattr(cores, "_watch", lambda spare: started.append(spare) or is_over.wait(60))
    for _ in range(2):
        cores.sleep_beside_others(threads)
    is_over.set()
    for thread in threading.enumerate():
        if thread.name == "<lambda>":
            thread.join()
    assert started == spares


@pytest.mark.parametrize("spare", [0, 3])
def test_threads_sleep_as_soon_as_others_take_needed_cores_and_until_they_have_not_for_a_while(monkeypatch, spare):
    taken = iter([None, *(spare + taken for taken in [0.1, 0.29, 0.5, *[0.0] * 5, 2.0, *[0.0] * 7, 0.0, 1.0])])
    crowds, seen = [], []
    monkeypatch.setattr(cores, "OtherPrograms", lambda: SimpleNamespace(cores=lambda: next(taken)))
    thread = lambda target, args, daemon: SimpleNamespace(start=lambda: crowds.append(*args))  # noqa: E731
    monkeypatch.setattr("threading.Thread", thread)
    monkeypatch.setattr("time.sleep", lambda seconds: seen.append(any(not is_over.is_set() for is_over in crowds)))
    with pytest.raises(StopIteration):
        cores._watch(spare)
    assert seen == [*[False] * 4, *[True] * 12, *[False] * 3, True][: len(seen)]
    assert len(seen) == 20


SPINNING = """
import os, signal, subprocess, sys, threading, time
import torch
from transformer_mt.base import cores

numbers = torch.ones(1 << 16)

def spun():
    '''The processor time in ms that other threads than this one have used after each of 50 short steps.'''
    before = time.process_time() - time.thread_time()
    for _ in range(50):
        numbers.add(1)
        time.sleep(0.01)
    return 20 * (time.process_time() - time.thread_time() - before)

torch.set_num_threads(2)
awake = spun()
"""
CROWDED = """
is_over = threading.Event()
crowd = threading.Thread(target=cores.crowd, args=(is_over,))
crowd.start()
time.sleep(0.1)
asleep = spun()
is_over.set()
crowd.join()
print(awake, asleep, spun())
"""
WATCHED = """
start = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'while True: pass'], stdout=2).pid)"
not_a_child = int(subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, check=True).stdout)
cores.sleep_beside_others(2)
try:
    for _ in range(60):
        time.sleep(0.5)
        if (asleep := spun()) < 0.2 * awake:
            break
finally:
    os.kill(not_a_child, signal.SIGKILL)
print(awake, asleep)
"""


@needs_two_cores
@on_linux
@pytest.mark.thorough
@pytest.mark.parametrize("then", [CROWDED, WATCHED])
def test_threads_that_wait_sleep_beside_others_and_spin_otherwise(then):
    environment = {name: value for name, value in os.environ.items() if name not in (*CHOSEN, "OMP_NUM_THREADS")}
    ended = subprocess.run(
        [sys.executable, "-c", SPINNING + then], env=environment, check=True, capture_output=True, text=True, cwd=ROOT
    )
    awake, asleep, *awake_again = map(float, ended.stdout.split())
    assert asleep < 0.2 * awake
    assert then == WATCHED or awake_again[0] > 0.5 * awake  # other tests run beside this one
