import os
import signal
import threading

import pytest

from transformer_mt.training.distributed import Ranks
from transformer_mt.training.run.running import STOPPING, StopSignal


def send(number):
    os.kill(os.getpid(), number)


def handlers():
    return [signal.getsignal(number) for number in STOPPING]


@pytest.fixture(autouse=True)
def handlers_are_left_as_they_were():
    before = handlers()
    yield
    for number, handler in zip(STOPPING, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_only_answers_the_question(number, capfd):
    with StopSignal(Ranks()) as stop:
        assert stop.number() == 0
        send(number)
        assert stop.number() == stop.number() == number
    assert capfd.readouterr().err == "\nStopping after this update; Ctrl-C again stops at once.\n"


def test_a_reader_of_messages_that_the_same_signal_has_ended_does_no_harm():
    read_end, write_end = os.pipe()
    os.close(read_end)
    before = os.dup(2)
    os.dup2(write_end, 2)
    try:
        with StopSignal(Ranks()) as stop:
            send(signal.SIGINT)
            assert stop.number() == signal.SIGINT
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(write_end)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_stops_at_once_and_the_first_signal_stays_the_answer(first):
    with StopSignal(Ranks()) as stop:
        send(first)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        assert stop.number() == first


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_repeated_sigterm_changes_nothing(first):
    with StopSignal(Ranks()) as stop:
        send(first)
        send(signal.SIGTERM)
        assert stop.number() == first


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_afterwards_signals_do_what_they_did_before(error):
    def own(number, frame):
        pass

    signal.signal(signal.SIGTERM, own)
    before = handlers()
    try:
        with StopSignal(Ranks()):
            assert not set(before) & set(handlers())
            if error:
                raise error
    except (ValueError, KeyboardInterrupt) as raised:
        assert type(raised) is error
    assert handlers() == before
    assert own in before


def test_a_new_context_knows_nothing_of_signals_before_it():
    with StopSignal(Ranks()):
        send(signal.SIGTERM)
    with StopSignal(Ranks()) as stop:
        assert stop.number() == 0


def test_work_that_no_signal_ends_has_its_result_or_its_error():
    with StopSignal(Ranks()) as stop:
        assert stop.unless_it_comes(lambda: sum(range(10))) == 45
        with pytest.raises(ZeroDivisionError):
            stop.unless_it_comes(lambda: 1 // 0)


def test_without_memory_for_a_thread_the_work_is_done_all_the_same(monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with StopSignal(Ranks()) as stop:
        assert stop.unless_it_comes(lambda: sum(range(10))) == 45
        with pytest.raises(ZeroDivisionError):
            stop.unless_it_comes(lambda: 1 // 0)
        assert stop.unless_it_comes(lambda: send(signal.SIGTERM)) is None
        assert stop.number() == signal.SIGTERM


def test_work_that_has_no_end_is_no_longer_waited_for_when_the_signal_comes():
    ended = threading.Event()
    with StopSignal(Ranks()) as stop:
        threading.Timer(0.3, send, [signal.SIGTERM]).start()
        assert stop.unless_it_comes(ended.wait) is None
        assert stop.unless_it_comes(ended.wait) is None
        assert stop.number() == signal.SIGTERM
    ended.set()
