"""Work shared by processes: all of it is done, mishaps are told, and nothing remains of the processes."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from helpers.messages import message
from helpers.processes import ended, start, wait_until
from helpers.thorough import thorough
from helpers.tiny import demo_pairs

from transformer_mt.base.errors import UserError
from transformer_mt.base.worker_pool import Workers
from transformer_mt.decoding.engine import Sentence
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.search_settings import DecodingConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere this process does the work itself")
several_workers = pytest.mark.parametrize("workers", [1, 2, *thorough(3, 5)])

# Its arguments: a directory, into which each worker writes a file that is named by its id.
ENDLESS_WORK = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from transformer_mt.base.worker_pool import Workers

def work(task):
    (Path(sys.argv[1]) / str(os.getpid())).touch()
    time.sleep(600)

list(Workers(work, 3).map_unordered(range(10)))
"""


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = {child.pid for child in multiprocessing.active_children()}  # of other tests' translators
    yield
    assert {child.pid for child in multiprocessing.active_children()} <= before


def is_alive(process_id):
    """Whether it runs; one that has ended may wait for whoever asks how."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def map_unordered(work, tasks, number):
    workers = Workers(work, number)
    try:
        yield from workers.map_unordered(tasks)
    finally:
        workers.close()


def square(task):
    return task * task


@several_workers
@pytest.mark.parametrize("num_tasks", [0, 1, 2, 4, 30])
def test_every_task_is_done_once_and_known_by_its_number(workers, num_tasks):
    tasks = [7 * number + 1 for number in range(num_tasks)]
    found = list(map_unordered(square, tasks, workers))
    assert sorted(found) == [(number, task * task) for number, task in enumerate(tasks)]


def test_there_is_a_worker_for_each_core_unless_a_number_is_asked_for(model_dir, monkeypatch):
    monkeypatch.setattr("transformer_mt.decoding.torch_engine.num_cores", lambda: 3)
    for asked, expected in ((0, 3), (2, 2)):
        engine = Translator.load(model_dir, "cpu", workers=asked).engine
        assert (engine.translators.number, engine.scorers.number) == (expected, expected)


@pytest.mark.thorough
def test_processes_are_others_and_no_more_than_asked_for():
    def worker(task):
        time.sleep(0.02)
        return os.getpid()

    for workers in (2, 3):
        processes = {process for _, process in map_unordered(worker, range(12), workers)}
        assert os.getpid() not in processes
        assert 1 < len(processes) <= workers
    assert {process for _, process in map_unordered(worker, range(3), 1)} == {os.getpid()}
    assert {process for _, process in map_unordered(worker, range(1), 3)} == {os.getpid()}


def test_workers_leave_what_they_were_forked_with_to_no_garbage_collector():
    held = [object()]

    def worker(task):
        return any(one is held for one in gc.get_objects())

    assert worker(0)
    assert not any(found for _, found in map_unordered(worker, range(4), 2))


def test_a_result_comes_as_soon_as_it_is_there(tmp_path):
    """The second task waits for what is done with the result of the first."""
    seen = tmp_path / "seen"

    def work(task):
        until = time.monotonic() + 60
        while task == 1 and not seen.exists():
            assert time.monotonic() < until
            time.sleep(0.01)

    numbers = []
    for number, _ in map_unordered(work, [0, 1, 2], 2):
        numbers.append(number)
        if number == 0:
            seen.touch()
    assert sorted(numbers) == [0, 1, 2]


def test_work_shared_at_the_same_time_does_not_mix():
    one, other = map_unordered(square, range(10), 2), map_unordered(str, range(10), 3)
    pairs = list(zip(one, other, strict=True))
    assert sorted(found for found, _ in pairs) == [(number, number * number) for number in range(10)]
    assert sorted(found for _, found in pairs) == [(number, str(number)) for number in range(10)]


@several_workers
def test_the_error_of_a_task_is_raised(workers):
    def work(task):
        if task == 3:
            raise UserError("sentence 3 is too strange")
        return task

    with pytest.raises(UserError, match="sentence 3 is too strange"):
        list(map_unordered(work, range(10), workers))
    assert len(list(map_unordered(square, range(10), workers))) == 10


@pytest.mark.thorough
@pytest.mark.parametrize("number", [2, 3])
def test_a_worker_that_is_killed_is_told_of_and_others_take_its_place(number):
    def work(task):
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    workers = Workers(work, number)
    with pytest.raises(UserError, match=message("worker-killed")):
        list(workers.map_unordered(range(10)))
    assert len(list(workers.map_unordered(range(10, 20)))) == 10
    workers.close()


@pytest.mark.thorough
def test_processes_end_when_nobody_holds_what_they_were_forked_for(model_dir, lines):
    before = multiprocessing.active_children()
    translator = Translator.load(model_dir, device="cpu", workers=2)
    translator.translate(lines)
    assert len(multiprocessing.active_children()) == len(before) + 2
    del translator
    assert len(multiprocessing.active_children()) == len(before)


def test_processes_stay_for_more_tasks():
    workers = Workers(lambda task: (time.sleep(0.02), os.getpid())[1], 2)
    first = {process for _, process in workers.map_unordered(range(8))}
    assert {process for _, process in workers.map_unordered(range(8))} == first
    workers.close()


def test_nothing_remains_where_not_all_results_are_taken():
    before = multiprocessing.active_children()
    results = map_unordered(square, range(10), 3)
    next(results)
    assert len(multiprocessing.active_children()) == len(before) + 3
    results.close()
    assert len(multiprocessing.active_children()) == len(before)


# Its argument says when a signal comes: before or after a fork. A thread like that of `Claims` may get it.
INTERRUPTED_START = """
import os, signal, sys, threading, time
from transformer_mt.base.worker_pool import Workers

def interrupt():
    if os.getpid() == parent:
        os.kill(parent, getattr(signal, sys.argv[2]))

def terminated(*_):
    raise KeyboardInterrupt

parent = os.getpid()
signal.signal(signal.SIGTERM, terminated)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
os.register_at_fork(**{sys.argv[1]: interrupt})
try:
    list(Workers(time.sleep, 3).map_unordered([600] * 6))
except KeyboardInterrupt:
    print("interrupted", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("when", ["before", *thorough("after_in_parent")])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_during_the_start_of_workers_is_not_lost(when, name, tmp_path):
    """Python ignores exceptions of the functions that it calls around a fork."""
    parent = start(tmp_path, "parent", "-c", INTERRUPTED_START, when, name)
    assert ended(parent, within=60) == [0]
    assert (parent.out.read_text(), parent.err.read_text()) == ("interrupted\n", "")


# The thread that reads results is busy with the first while a worker has written a part of the second.
HALF_A_RESULT = """
import multiprocessing, os, threading, time
from transformer_mt.base.worker_pool import Workers

def work(task):
    begins.wait()
    time.sleep(task / 10)
    return bytes(1 << task)

begins, is_read, goes_on = multiprocessing.get_context("fork").Event(), threading.Event(), threading.Event()
workers = Workers(work, 2)
workers._submit(0).add_done_callback(lambda _: is_read.set() or goes_on.wait())
workers._submit(22)
begins.set()  # only now: if the first were done before it had its callback, this thread would call it, and wait
assert is_read.wait(60)
assert workers._executor._result_queue._reader.poll(60)
time.sleep(0.5)  # the pipe is full now
threading.Timer(0.5, goes_on.set).start()  # when the workers are dead
workers.close()
os._exit(0)
"""


@pytest.mark.thorough
def test_nobody_waits_for_the_rest_of_a_result_of_a_killed_worker(tmp_path):
    assert ended(start(tmp_path, "parent", "-c", HALF_A_RESULT), within=60) == [0]


def test_workers_go_with_their_parent_even_if_it_is_killed(tmp_path):
    workers = tmp_path / "workers"
    workers.mkdir()
    parent = start(tmp_path, "parent", "-c", ENDLESS_WORK, workers)
    wait_until(lambda: len(list(workers.iterdir())) == 3, parent)
    processes = [int(path.name) for path in workers.iterdir()]
    assert all(map(is_alive, processes))
    parent.process.kill()
    parent.process.wait()
    until = time.monotonic() + 60
    while any(map(is_alive, processes)):
        assert time.monotonic() < until, "a worker lives on"
        time.sleep(0.01)


# Translation


@pytest.fixture(scope="module")
def lines():
    return [source for source, _ in demo_pairs(60)] + ["", " ", "a", "unheard of"]


@pytest.fixture
def translators(model_dir):
    translators = {workers: Translator.load(model_dir, device="cpu", workers=workers) for workers in (1, 2, 3)}
    yield translators
    for translator in translators.values():
        translator.engine.translators.close()
        translator.engine.scorers.close()


@pytest.mark.parametrize(
    "settings",
    [
        *thorough({"beam_size": 1}),
        {"beam_size": 3, "n_best": 3, "coverage_penalty": 0.2},
        *thorough({"sampling": True, "n_best": 2, "seed": 4}),
    ],
    ids=["greedy", "beam", "samples"],
)
def test_translations_do_not_depend_on_the_number_of_workers(settings, translators, lines):
    decoding = translators[1].decoding.model_copy(update=settings)
    expected = translators[1].translations(lines, decoding, alignment=True)
    assert len({line[0].text for line in expected}) > 10  # they differ
    for workers in (2, 3):
        found = translators[workers].translations(lines, decoding, alignment=True)
        for ours, theirs in zip(found, expected, strict=True):
            assert [(one.text, one.pieces, one.alignment) for one in ours] == [
                (one.text, one.pieces, one.alignment) for one in theirs
            ]
            assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], rel=1e-4)


@pytest.mark.thorough
def test_forced_decoding_does_not_depend_on_the_number_of_workers(translators, lines):
    tokenizer = translators[1].tokenizer
    sources = tokenizer.encode_source(lines)
    pairs = list(zip(sources, tokenizer.encode_target(translators[1].translate(lines)), strict=True))
    expected = translators[1].engine.score(pairs)
    for workers in (2, 3):
        found = translators[workers].engine.score(pairs)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("tokens_per_batch", [*thorough(40), 150, *thorough(100_000)])
def test_workers_share_evenly(tokens_per_batch, translators, lines):
    sources = [ids for ids in translators[1].tokenizer.encode_source(lines) if len(ids) > 1]
    decoding = DecodingConfig(beam_size=1, tokens_per_batch=tokens_per_batch, max_extra_length=2)
    for workers in (2, 3):
        found = translators[workers].engine.translate_unordered(list(map(Sentence, sources)), decoding)
        together = [numbers for numbers, _ in found]
        assert sorted(number for numbers in together for number in numbers) == list(range(len(sources)))
        assert len(together) % workers == 0
        positions = [len(numbers) * max(len(sources[number]) for number in numbers) for numbers in together]
        assert max(positions) <= max(tokens_per_batch, *map(len, sources))
        # The shortest lines are what is left, and may be a line fewer than would be even.
        assert min(positions) >= max(positions) - 2 * max(map(len, sources))


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [1, 2])
def test_threads_are_as_many_as_before_and_do_no_harm(workers, translators, lines):
    """Also where threads of this process have worked, which a fork does not take along."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.randn(500, 500) @ torch.randn(500, 500)
        assert len(translators[workers].translate(lines)) == len(lines)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.thorough
def test_progress_tells_of_every_sentence_once(translators, lines):
    for workers in (1, 3):
        told = []
        translators[workers].translations(lines, progress=told.append)
        assert sum(told) == len([line for line in lines if line.strip()])


@pytest.mark.thorough
def test_sentences_are_given_as_soon_as_their_batch_is_done(translators, lines, monkeypatch):
    engine, begun, given = translators[1].engine, [], []
    work = engine.translators.work
    monkeypatch.setattr(engine.translators, "work", lambda task: begun.extend(task[0]) or work(task))
    sources = [ids for ids in translators[1].tokenizer.encode_source(lines) if len(ids) > 1]
    decoding = DecodingConfig(beam_size=1, tokens_per_batch=150, max_extra_length=2)
    for numbers, hypotheses_of in engine.translate_unordered(list(map(Sentence, sources)), decoding):
        assert len(numbers) == len(hypotheses_of)
        given += numbers
        assert begun == [Sentence(sources[number]) for number in given]
    assert sorted(given) == list(range(len(sources))) != given


def test_one_thread_works_for_all_threads_but_the_main_one():
    def work(_):
        return threading.get_ident()

    workers = Workers(work, 1, in_one_thread=True)
    with ThreadPoolExecutor(5) as threads:
        found = set(threads.map(lambda task: dict(workers.map_unordered([task]))[0], range(50)))
    assert len(found) == 1
    assert dict(workers.map_unordered([0]))[0] == threading.get_ident() not in found
    workers.close()


LATE_WORK = """
import threading, time
from transformer_mt.base.worker_pool import Workers

workers = Workers(str, 1, in_one_thread=True)

def late():
    threading.main_thread().join()
    print(dict(workers.map_unordered([7])))

threading.Thread(target=late).start()
"""


def test_a_thread_that_outlives_the_main_one_still_has_its_work_done(tmp_path):
    late = start(tmp_path, "late", "-c", LATE_WORK)
    assert ended(late) == [0]
    assert late.out.read_text() == "{0: '7'}\n"
