"""A signal ends a command at once and in order; an engine is shared by threads, and says so where it cannot work."""

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.messages import message
from helpers.processes import PATIENCE, ended, said, start, wait_until
from helpers.thorough import thorough_rows
from helpers.tiny import demo_pairs

from transformer_mt import export
from transformer_mt.base.errors import TranslationError
from transformer_mt.base.worker_pool import Workers
from transformer_mt.decoding.scorer import Scorer
from transformer_mt.decoding.translator import Translator
from transformer_mt.terminal import cli

LINES = [source for source, _ in demo_pairs(40)]
ENDLESS = [line.encode() + b"\n" for line in LINES] * 500  # with WIDE, for several minutes
WIDE = ["beam_size=40", "min_length=60", "max_extra_length=60"]
EVERY_ENGINE = [("torch", 1), ("torch", 2), ("ctranslate2", 2)]
RACES = [*thorough_rows(*EVERY_ENGINE[:2]), EVERY_ENGINE[2]]


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    pytest.importorskip("ctranslate2")
    directory = tmp_path_factory.mktemp("exported") / "ctranslate2"
    export.export(model_dir, directory, "ctranslate2")
    return directory


@pytest.fixture
def load(model_dir, request):
    """A function that loads a model for an engine."""

    def load(kind, engine, workers):
        directory = request.getfixturevalue("exported") if engine == "ctranslate2" else model_dir
        return kind.load(directory, "cpu", engine=engine, workers=workers)

    return load


def seconds_of_work(running):
    """The time that a process has had on the processors."""
    fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_it_works(running):
    before = seconds_of_work(running)
    wait_until(lambda: seconds_of_work(running) > before + 0.2, running)


@pytest.mark.thorough
def test_control_c_ends_ctranslate2_at_once_after_whole_lines(exported, tmp_path):
    """The work that it has begun would take minutes."""
    command = ["-m", "transformer_mt.translate", exported, "--engine", "ctranslate2", "--workers", 1, *WIDE]
    running = start(tmp_path, "translate", *command, "--buffer-lines", len(ENDLESS), stdin=subprocess.PIPE)
    with running.process.stdin as stdin:
        stdin.write(ENDLESS[0])
        stdin.flush()
        wait_until(running.out.read_bytes, running)
        stdin.write(b"".join(ENDLESS))
        stdin.flush()
        wait_until_it_works(running)
        running.process.send_signal(signal.SIGINT)
        assert ended(running) == [130], said(running)
    assert running.out.read_bytes().endswith(b"\n")
    assert running.err.read_text() == "interrupted\n"


@pytest.mark.thorough
def test_sigterm_leaves_no_file_half_written(exported, tmp_path):
    lines, directory = tmp_path / "lines", tmp_path / "found"
    lines.write_bytes(b"".join(ENDLESS))
    directory.mkdir()
    (directory / "translations").write_text("of yesterday\n")
    command = ["-m", "transformer_mt", "translate", exported, "--engine", "ctranslate2", "--workers", 1, *WIDE]
    files = ["--input", lines, "--output", directory / "translations", "--buffer-lines", len(ENDLESS)]
    running = start(tmp_path, "translate", *command, *files)
    wait_until(lambda: len(list(directory.iterdir())) == 2, running)
    wait_until_it_works(running)
    running.process.send_signal(signal.SIGTERM)
    assert ended(running) == [143], said(running)
    assert running.err.read_text() == "terminated\n"
    assert [path.read_text() for path in directory.iterdir()] == ["of yesterday\n"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_signal_while_the_reader_waits_leaves_whole_lines():
    """The pipe is full, and a part of the block has gone through it."""
    program = (
        "import sys; from transformer_mt.terminal import cli\n"
        "def main(argv):\n"
        "    with cli.output() as output:\n"
        "        while True: output.write(b'x' * 99_999 + b'\\n'); output.flush()\n"
        "sys.exit(cli.run(main))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        begun = process.stdout.read(150_000)
        while not is_waiting(process):
            assert process.poll() is None, "it has ended by itself"
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        read = begun + process.stdout.read(10_000_000)
        process.stdout.close()  # a program that does not end meets with that
        assert (process.wait(), process.stderr.read()) == (130, b"interrupted\n")
    assert read.endswith(b"\n")
    assert {len(line) for line in read.splitlines()} == {99_999}


def is_waiting(process):
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_output_in_the_same_process_can_be_written_again(capfdbinary):
    for _ in range(2):
        with cli.output() as output:
            output.write(b"line\n")
    assert capfdbinary.readouterr().out == b"line\nline\n"


def test_workers_end_at_once_though_a_task_goes_on():
    workers = Workers(lambda task: time.sleep(600 * task), 2)
    results = workers.map_unordered([0, 1, 1])
    next(results)
    processes = list(workers._executor._processes.values())
    results.close()
    assert not any(process.is_alive() for process in processes)


@pytest.mark.parametrize(("engine", "workers"), RACES)
def test_threads_one_after_another_and_together_find_what_one_finds(engine, workers, load):
    translator, scorer = load(Translator, engine, workers), load(Scorer, engine, workers)
    expected = translator.translate(LINES)
    scores = [score.log_prob for score in scorer.score(LINES, expected)]
    found = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(translator.translate(LINES)))
        thread.start()
        thread.join()
    with ThreadPoolExecutor(4) as threads:
        found += threads.map(translator.translate, [LINES] * 8)
        scored = list(threads.map(lambda _: scorer.score(LINES, expected), range(4)))
    assert found == [expected] * 11
    for of_thread in scored:
        assert [score.log_prob for score in of_thread] == pytest.approx(scores, rel=1e-4)
    translator.close()
    scorer.engine.close()


@pytest.mark.thorough
def test_a_worker_outlives_the_thread_that_first_gave_it_work(load):
    translator = load(Translator, "torch", 2)
    thread = threading.Thread(target=translator.translate, args=[LINES])
    thread.start()
    thread.join()
    processes = set(multiprocessing.active_children())
    time.sleep(0.1)  # in which the system would end them
    assert len(translator.translate(LINES)) == len(LINES)
    assert set(multiprocessing.active_children()) == processes
    translator.close()


@pytest.mark.thorough
def test_an_error_in_one_thread_does_no_harm_to_another(load):
    translator = load(Translator, "torch", 2)
    expected = translator.translate(LINES)

    def mishap(count):
        raise ValueError("of who asks for progress")

    def translate(number):
        try:
            found = translator.translations(LINES, progress=mishap if number % 2 else None)
        except ValueError:
            return None
        return [translations[0].text for translations in found]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(translate, range(8)))
    assert found == [expected, None] * 4
    translator.close()


def in_a_fork(work):
    """What `work` gives in a process that was forked from this one."""
    read, write = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        try:
            os.write(write, work().encode())
        finally:
            os._exit(0)
    os.close(write)
    says, _, _ = select.select([read], [], [], PATIENCE)
    if not says:
        os.kill(process_id, signal.SIGKILL)
    with os.fdopen(read) as reader:
        said = reader.read()
    os.waitpid(process_id, 0)
    assert says, "the fork hangs"
    return said


@pytest.mark.thorough
@pytest.mark.parametrize(("engine", "workers"), [*thorough_rows(EVERY_ENGINE[0]), *EVERY_ENGINE[1:]])
def test_a_fork_is_told_to_load_the_model_itself_and_does_no_harm(engine, workers, load):
    translator = load(Translator, engine, workers)
    expected = translator.translate(LINES)

    def translate():
        with pytest.raises(TranslationError, match=message("model-after-fork")):
            translator.translate(LINES)
        return "refused"

    assert in_a_fork(translate) == "refused"
    assert in_a_fork(lambda: str(translator.close())) == "None"
    assert translator.translate(LINES) == expected
    translator.close()


def test_a_fork_does_not_wait_for_a_thread_that_it_does_not_have(load):
    translator = load(Translator, "torch", 1)
    resumes, held = threading.Event(), threading.Event()

    def hold():
        with translator.engine.turn():
            held.set()
            resumes.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    closed = in_a_fork(lambda: str(translator.close()))
    resumes.set()
    thread.join()
    assert closed == "None"
    assert len(translator.translate(LINES[:2])) == 2


@pytest.mark.thorough
@pytest.mark.parametrize(("engine", "workers"), EVERY_ENGINE)
def test_a_translator_that_is_closed_says_so(engine, workers, load):
    with load(Translator, engine, workers) as translator:
        assert len(translator.translate(LINES)) == len(LINES)
    with pytest.raises(TranslationError, match=message("translator-closed")):
        translator.translate(LINES)
    with pytest.raises(TranslationError, match=message("translator-closed")):
        Scorer(translator.engine, translator.tokenizer).score(["a"], ["b"])
    translator.close()
