"""Processes that hold models: every job is answered, whatever dies, is replaced or ends."""

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from helpers.processes import wait_until
from helpers.thorough import thorough
from helpers.tiny import ROOT, demo_pairs, renew_sums
from helpers.untrained import write_untrained

from transformer_mt.base.errors import CheckpointError, ConfigError, TranslationError
from transformer_mt.decoding.loading import EngineOptions
from transformer_mt.decoding.translator import Translator
from transformer_mt.serving import model_process
from transformer_mt.serving.jobs import Job, answer
from transformer_mt.serving.model_process import Copies, Model, Unavailable

OPTIONS = EngineOptions(device="cpu", workers=1)
LINES = tuple(source for source, _ in demo_pairs(12))
LONG, SHORT = Job(LINES * 100), Job(LINES[:1])


@pytest.fixture(scope="module")
def two_models(joint_tokenizer, tmp_path_factory):
    """Directories of two models that translate differently."""
    directory = tmp_path_factory.mktemp("models")
    return [
        write_untrained(directory / name, joint_tokenizer, encoder_layers=n) for n, name in enumerate("ab", start=1)
    ]


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = set(multiprocessing.active_children())
    yield
    left = set(multiprocessing.active_children()) - before
    for process in left:
        process.kill()
    assert not left


def served(directories, use):
    """What `use(model)` gives with a model that has started, which is closed at the end."""

    async def run():
        model = Model(directories, OPTIONS)
        await model.start()
        try:
            return await use(model)
        finally:
            await model.close()

    return asyncio.run(run())


@pytest.mark.slow
def test_copies_of_a_model_share_the_texts_of_a_job_in_order(two_models):
    many, bad = Job(LINES * 3, prefixes=("",) * 36, n_best=2), Job(LINES * 3, prefixes=("Das",))

    async def run():
        copies = Copies(two_models[:1], OPTIONS, number=2)
        await copies.start()
        try:
            assert len(multiprocessing.active_children()) == 2
            with pytest.raises(TranslationError):
                await copies.answer(bad)
            return await asyncio.gather(copies.answer(many), copies.answer(SHORT))
        finally:
            await copies.close()

    found = asyncio.run(run())
    assert [texts(each) for each in found] == [texts(each) for each in expected(two_models[0], many, SHORT)]


@pytest.mark.thorough
def test_copies_that_cannot_be_loaded_raise_what_a_model_raises(tmp_path):
    copies = Copies([tmp_path], OPTIONS, number=2)

    async def run():
        try:
            await copies.start()
        finally:
            await copies.close()

    with pytest.raises(CheckpointError):
        asyncio.run(run())


def kill_all():
    for process in multiprocessing.active_children():
        os.kill(process.pid, signal.SIGKILL)


def expected(directory, *jobs):
    translator = Translator.load(directory, "cpu", workers=1)
    return [answer(translator, job) for job in jobs]


def texts(found):
    return [[one["text"] for one in sentence.translations] for of_text in found for sentence in of_text]


@pytest.mark.slow
def test_many_jobs_at_once_are_answered_as_one_alone(two_models):
    jobs = [Job(LINES[number : number + 1 + number % 3], n_best=1 + number % 2) for number in range(20)]

    async def use(model):
        assert (model.info.name, model.info.engine, model.info.hardware) == ("a", "torch", "CPU")
        assert model.info.pairs == [("en", "de", None)]
        found = await asyncio.gather(
            *map(model.answer, jobs), model.answer(Job(LINES, n_best=2, beam_size=1)), return_exceptions=True
        )
        assert model.pending == 0
        return found

    *found, error = served(two_models[:1], use)
    assert list(map(texts, found)) == list(map(texts, expected(two_models[0], *jobs)))
    assert isinstance(error, ConfigError)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.05, *(pytest.param(delay, marks=pytest.mark.slow) for delay in (0.0, 0.3, 1.0))])
def test_jobs_of_a_process_that_dies_are_answered_by_another(delay, two_models, caplog):
    jobs, were_done = [Job(LINES)] * 3, []

    async def use(model):
        asked = [asyncio.ensure_future(model.answer(job)) for job in jobs]
        await asyncio.sleep(delay)
        were_done.append(all(each.done() for each in asked))
        kill_all()
        return await asyncio.gather(*asked)

    assert list(map(texts, served(two_models[:1], use))) == list(map(texts, expected(two_models[0], *jobs)))
    died = sum("the process of the model died" in record.message for record in caplog.records)
    assert died == 1 or were_done == [True]  # a fast machine may have done all before, and then nobody waits for it


@pytest.mark.slow
def test_a_job_whose_processes_die_twice_is_given_up_and_later_ones_are_answered(two_models):
    async def use(model):
        asked = asyncio.ensure_future(model.answer(LONG))
        for _ in range(2):
            await model.answer(SHORT)  # so the process is ready
            assert not asked.done() and model.pending == len(LONG.texts)
            kill_all()
            await asyncio.sleep(0.2)
        with pytest.raises(Unavailable, match="died twice"):
            await asked
        return await model.answer(SHORT)

    assert texts(served(two_models[:1], use)) == texts(*expected(two_models[0], SHORT))


@pytest.mark.slow
def test_a_process_that_dies_idle_is_replaced(two_models):
    async def use(model):
        kill_all()
        await asyncio.sleep(0.2)
        assert len(multiprocessing.active_children()) == 1
        return await model.answer(SHORT)

    assert texts(served(two_models[:1], use)) == texts(*expected(two_models[0], SHORT))


@pytest.mark.slow
def test_a_replaced_model_finishes_its_jobs_and_the_new_one_does_the_later_ones(two_models, tmp_path, caplog):
    directory = shutil.copytree(two_models[0], tmp_path / "model")
    job = Job(LINES)

    async def use(model):
        asked = asyncio.ensure_future(model.answer(job))
        await asyncio.sleep(0.1)
        shutil.rmtree(directory)
        shutil.copytree(two_models[1], directory)
        await model.replace()
        assert len(multiprocessing.active_children()) == 1
        return await asyncio.gather(asked, model.answer(job))

    with caplog.at_level(logging.INFO):
        before, after = served([directory], use)
    assert "the model is loaded again" in caplog.text
    assert [texts(before), texts(after)] == [texts(*expected(each, job)) for each in two_models]
    assert texts(before) != texts(after)


@pytest.mark.thorough
def test_a_model_that_cannot_be_loaded_leaves_the_old_one(two_models, tmp_path, caplog):
    directory = shutil.copytree(two_models[0], tmp_path / "model")

    async def use(model):
        (directory / "model.safetensors").write_bytes(b"damaged")
        await model.replace()
        return await model.answer(SHORT)

    assert texts(served([directory], use)) == texts(*expected(two_models[0], SHORT))
    assert "the model stays as it was" in caplog.text
    assert "model.safetensors" in caplog.text


@pytest.mark.thorough
def test_a_model_of_other_languages_does_not_replace(two_models, tmp_path, caplog):
    directory = shutil.copytree(two_models[0], tmp_path / "model")

    async def use(model):
        config = (directory / "config.yaml").read_text()
        assert "source_language: en" in config
        (directory / "config.yaml").write_text(config.replace("source_language: en", "source_language: fr"))
        renew_sums(directory)
        await model.replace()
        assert model.info.pairs == [("en", "de", None)]
        return await model.answer(SHORT)

    assert texts(served([directory], use)) == texts(*expected(two_models[0], SHORT))
    assert "start the server again" in caplog.text


@pytest.mark.thorough
def test_close_does_not_wait_for_a_replacement(two_models, caplog):
    async def use(model):
        replacing = asyncio.ensure_future(model.replace())
        await asyncio.sleep(0.1)
        await model.close()
        await replacing

    with caplog.at_level(logging.INFO):
        served(two_models[:1], use)
    assert not caplog.records


@pytest.mark.thorough
def test_a_model_that_cannot_be_loaded_at_all_says_why(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere: no such directory"):
        asyncio.run(Model([tmp_path / "nowhere"], OPTIONS).start())


@pytest.mark.thorough
def test_close_answers_what_was_accepted_and_takes_no_more(two_models):
    job = Job(LINES)

    async def use(model):
        asked = [asyncio.ensure_future(model.answer(job)) for _ in range(3)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(model.close())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="ending"):
            await model.answer(job)
        await closing
        assert all(each.done() for each in asked)
        return await asyncio.gather(*asked)

    assert list(map(texts, served(two_models[:1], use))) == [texts(*expected(two_models[0], job))] * 3


@pytest.mark.thorough
def test_signals_for_the_server_do_not_end_the_process_of_a_model(two_models):
    async def use(model):
        [process] = multiprocessing.active_children()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, number)
        found = await model.answer(SHORT)
        assert multiprocessing.active_children() == [process]
        return found

    assert texts(served(two_models[:1], use)) == texts(*expected(two_models[0], SHORT))


@pytest.mark.thorough
def test_an_asker_who_goes_away_does_no_harm(two_models):
    async def use(model):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(model.answer(Job(LINES)), 0.01)
        asking = asyncio.create_task(model.answer(LONG))
        await asyncio.sleep(0.1)
        asking.cancel()
        await asyncio.sleep(0.01)
        assert model.pending == len(LONG.texts), "the process is still busy with it"
        await asyncio.wait([asking])
        assert asking.cancelled() and model.pending == 0
        return await model.answer(SHORT)

    assert texts(served(two_models[:1], use)) == texts(*expected(two_models[0], SHORT))


def test_a_job_for_which_nobody_waits_is_given_up(translator, monkeypatch):
    """A process does it up to the next slice of texts, and all others completely."""
    begun, goes_on = threading.Event(), threading.Event()
    begin = translator.engine.translate_unordered

    def translate(*arguments):
        begun.set()
        assert goes_on.wait(60)
        return begin(*arguments)

    monkeypatch.setattr(translator.engine, "translate_unordered", translate)
    here, there = multiprocessing.Pipe()
    doing = threading.Thread(target=model_process._do_jobs, args=(there, translator))
    doing.start()
    here.send((0, LONG))
    assert begun.wait(60)
    for message in ((1, SHORT), (0, None), (2, None), None):
        here.send(message)
    goes_on.set()
    replies = dict(here.recv() for _ in range(2))
    doing.join()
    assert isinstance(replies[0], TimeoutError)
    assert texts(replies[1]) == texts(answer(translator, SHORT))


def test_mistakes_of_the_program_are_logged_without_texts(translator, caplog, monkeypatch):
    monkeypatch.setattr(translator.engine, "translate_unordered", lambda *_: [][LINES[0]])
    with caplog.at_level(logging.ERROR):
        reply = model_process._reply(translator, Job(("a secret",)))
    assert isinstance(reply, RuntimeError)
    assert "TypeError" in caplog.text
    assert "translate" in caplog.text
    assert "secret" not in caplog.text + str(reply)


# Its argument: a model directory. It is killed while a job runs.
SERVER = """
import asyncio, multiprocessing, sys
from pathlib import Path
from transformer_mt.decoding.loading import EngineOptions
from transformer_mt.serving.jobs import Job
from transformer_mt.serving.model_process import Model

async def main():
    model = Model([Path(sys.argv[1])], EngineOptions(device="cpu", workers=1))
    await model.start()
    asked = asyncio.ensure_future(model.answer(Job(("The house.",) * 100_000)))
    await model.answer(Job(("The house.",)))  # now the process has the long job
    print(*[process.pid for process in multiprocessing.active_children()], "torch" in sys.modules, flush=True)
    if sys.argv[2] == "ends":
        return
    await asked

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["is killed", *thorough("ends")])
def test_the_process_of_a_model_ends_with_its_parent(how, two_models, tmp_path):
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, program, two_models[0], how], stdout=subprocess.PIPE, env=environment, text=True
    ) as server:
        process_id, has_torch = server.stdout.readline().split()
        assert has_torch == "False"
        if how == "is killed":
            server.kill()
        server.wait(60)
        wait_until(lambda: not is_alive(int(process_id)))


def is_alive(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    time.sleep(0.01)
    return True
