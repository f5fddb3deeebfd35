"""Threads that share a Translator: translated together, each finds what it finds alone, and no mishap of another."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.echo import Echo
from helpers.thorough import thorough
from helpers.tiny import demo_pairs
from helpers.untrained import LONG_LINES

from transformer_mt import export
from transformer_mt.base.errors import ConfigError, NotFiniteError, TranslationError
from transformer_mt.base.languages import EOS
from transformer_mt.decoding.engine import WITH_SCORES, Sentence, Wanted
from transformer_mt.decoding.together import MOST_TOGETHER, Together
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.search_settings import DecodingConfig

PATIENCE = 60  # seconds for what takes less than one
USUAL = DecodingConfig()
LINES = [source for source, _ in demo_pairs(40)]
SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 2, "n_best": 2},
    {"beam_size": 2, "n_best": 2, "alignment": True},
    {"sampling": True, "n_best": 2, "seed": 3, "first_line": 7},
    {"beam_size": 3, "mbr_candidates": 3},
]


class Held(Echo):
    """An echo that waits in each call until the test lets it go on, and keeps the calls."""

    def __init__(self):
        super().__init__()
        self.calls, self.broken = [], set()
        self.begun, self.goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def translate_unordered(self, sentences, decoding, wanted):
        self.calls.append([sentence.number for sentence in sentences])
        self.begun.release()
        assert self.goes_on.acquire(timeout=PATIENCE)
        if self.broken & set(self.calls[-1]):
            raise ArithmeticError(f"in the sentences {self.calls[-1]}")
        yield from super().translate_unordered(sentences, decoding, wanted)


@pytest.fixture
def crowd():
    """A function that starts a call for each group of sentences while the engine is busy with the sentence 0.

    It returns the engine, and the future of each call, the first one included.
    """
    engine = Held()
    together, threads = Together(engine), ThreadPoolExecutor(16)

    def ask(numbers, decoding=USUAL, wanted=WITH_SCORES):
        sentences = [Sentence([4 + number % 9, EOS], number=number) for number in numbers]
        return [
            (sentences[n].number, [h.tokens for h in found])
            for ns, of in together.translate(sentences, decoding, wanted)
            for n, found in zip(ns, of, strict=True)
        ]

    def start(*calls):
        futures = [threads.submit(ask, [0])]
        assert engine.begun.acquire(timeout=PATIENCE)
        for waiting, call in enumerate(calls, start=1):
            futures.append(threads.submit(ask, *call))
            while len(together._waiting) < waiting:
                assert not futures[-1].done()
        return engine, futures

    yield start
    engine.goes_on.release(100)
    threads.shutdown()


def results(engine, futures):
    engine.goes_on.release(100)
    return [sorted(future.result(PATIENCE)) for future in futures]


def echoed(*numbers):
    return [(number, [[4 + number % 9, EOS]]) for number in numbers]


def test_what_waits_is_translated_in_one_call(crowd):
    engine, futures = crowd(([1, 2],), ([3],), ([],), ([4, 5],))
    assert results(engine, futures) == [echoed(0), echoed(1, 2), echoed(3), [], echoed(4, 5)]
    assert engine.calls[0] == [0]
    assert [sorted(call) for call in engine.calls if call][1:] == [[1, 2, 3, 4, 5]]


def test_calls_that_want_something_else_are_translated_by_themselves(crowd):
    wide, aligned, fast = DecodingConfig(beam_size=7), Wanted(alignment=True), Wanted(scores=False)
    engine, futures = crowd(([1],), ([2], wide), ([3],), ([4], USUAL, aligned), ([5], USUAL, fast), ([6], wide))
    assert results(engine, futures) == [echoed(number) for number in range(7)]
    assert sorted(engine.calls) == [[0], [1, 3], [2, 6], [4], [5]]


def test_a_call_for_several_threads_has_a_bounded_size(crowd):
    many = list(range(1, MOST_TOGETHER))
    engine, futures = crowd((many,), ([901, 902],), ([903],))
    assert results(engine, futures) == [echoed(0), echoed(*many), echoed(901, 902), echoed(903)]
    assert [len(call) for call in engine.calls] == [1, MOST_TOGETHER, 2]


def test_samples_that_depend_on_their_neighbours_have_none(crowd, monkeypatch):
    monkeypatch.setattr(Held, "samples_by_number", False)
    sampling = DecodingConfig(sampling=True)
    engine, futures = crowd(([1], sampling), ([2], sampling))
    assert results(engine, futures) == [echoed(0), echoed(1), echoed(2)]
    assert engine.calls == [[0], [1], [2]]


def test_an_exception_reaches_the_thread_alone_with_whose_sentences_it_comes(crowd):
    engine, futures = crowd(([1, 2],), ([3],), ([4, 5],), ([6],))
    engine.broken = {3, 6}
    engine.goes_on.release(100)
    assert [sorted(futures[place].result(PATIENCE)) for place in (0, 1, 3)] == [echoed(0), echoed(1, 2), echoed(4, 5)]
    for place in (2, 4):
        with pytest.raises(ArithmeticError, match=rf"in the sentences \[{3 * place // 2}\]"):
            futures[place].result(PATIENCE)


def test_progress_counts_the_sentences_of_the_caller_and_harms_no_other(crowd):
    counted = {1: [], 2: []}

    def mishap(count):
        raise ValueError("of who asks for progress")

    wanted = [Wanted(progress=progress) for progress in (counted[1].append, mishap, counted[2].append, mishap)]
    calls = [([10 * place, 10 * place + 1], USUAL, each) for place, each in enumerate(wanted, start=1)]
    engine, futures = crowd(*calls)
    engine.goes_on.release(100)
    for place, future in enumerate(futures[1:], start=1):
        if place % 2:
            assert sorted(future.result(PATIENCE)) == echoed(10 * place, 10 * place + 1)
        else:
            with pytest.raises(ValueError, match="of who asks"):
                future.result(PATIENCE)
    assert [sum(counts) for counts in counted.values()] == [2, 2]


def test_a_thread_that_stops_early_leaves_the_others_their_translations():
    """It has its turn, and two others wait for what it translates."""
    engine = Held()
    together, found = Together(engine), {}

    def ask(number):
        for _, [[hypothesis]] in together.translate([Sentence([number, EOS], number=number)], USUAL):
            found[number] = hypothesis.tokens

    first = threading.Thread(target=ask, args=[4])
    first.start()
    assert engine.begun.acquire(timeout=PATIENCE)
    stops = threading.Thread(target=lambda: next(together.translate([Sentence([5, EOS], number=5)], USUAL)))
    others = [threading.Thread(target=ask, args=[number]) for number in (6, 7)]
    for waiting, thread in enumerate([stops, *others], start=1):
        thread.start()
        while len(together._waiting) < waiting:
            pass
    engine.goes_on.release(100)
    for thread in (first, stops, *others):
        thread.join(PATIENCE)
    assert found == {number: [number, EOS] for number in (4, 6, 7)}


def test_a_callback_may_translate_itself(translator):
    found = []
    translator.translations(LINES[:2], progress=lambda count: found.extend(translator.translate(LINES[2:3])))
    assert found[:1] == translator.translate(LINES[2:3])


@pytest.fixture(scope="module", params=["torch", "ctranslate2"])
def shared(request, model_dir, tmp_path_factory):
    """A translator by each engine in fp32."""
    directory = model_dir
    if request.param == "ctranslate2":
        pytest.importorskip("ctranslate2")
        directory = tmp_path_factory.mktemp("shared") / "export"
        assert export.main([str(model_dir), str(directory), "--format", "ctranslate2"]) == 0
    with Translator.load(directory, "cpu", engine=request.param, workers=1) as translator:
        yield translator


def asked(translator, lines, settings):
    options = dict(settings)
    alignment, first_line = options.pop("alignment", False), options.pop("first_line", 1)
    decoding = DecodingConfig(max_extra_length=10, **options)
    return translator.translations(lines, decoding, alignment=alignment, first_line=first_line)


@pytest.mark.parametrize("seed", [0, *thorough(*range(1, 4))])
def test_many_threads_at_once_find_what_each_finds_alone(seed, shared):
    choose = random.Random(seed)
    calls = [(choose.sample(LINES, choose.randrange(4)), choose.choice(SEARCHES)) for _ in range(24)]
    alone = [asked(shared, *call) for call in calls]
    with ThreadPoolExecutor(12) as threads:
        together = list(threads.map(lambda call: asked(shared, *call), calls))
    for one, other in zip(alone, together, strict=True):
        for of_line, same in zip(one, other, strict=True):
            assert [(each.text, each.alignment) for each in of_line] == [(each.text, each.alignment) for each in same]
            for kind in ("score", "log_prob"):
                numbers = [getattr(each, kind) for each in of_line]
                assert [getattr(each, kind) for each in same] == pytest.approx(numbers, rel=1e-5, abs=1e-5)


def test_coroutines_are_translated_together(translator):
    async def ask():
        return await asyncio.gather(
            *[asyncio.to_thread(translator.translate, [line], beam_size=2) for line in LINES[:6]]
        )

    assert asyncio.run(ask()) == [[text] for text in translator.translate(LINES[:6], beam_size=2)]


class Broken(Echo):
    """An echo whose numbers are not finite for the sentence 99."""

    def translate_unordered(self, sentences, decoding, wanted=WITH_SCORES):
        for numbers, found in super().translate_unordered(sentences, decoding, wanted):
            yield (
                numbers,
                [[] if sentences[number].number == 99 else of for number, of in zip(numbers, found, strict=True)],
            )


def test_a_line_without_finite_numbers_is_that_of_its_thread(translator):
    broken = Translator(Broken(), translator.tokenizer, DecodingConfig(split_sentences="never"), LONG_LINES)

    def ask(number):
        try:
            return broken.translations(LINES[:2], first_line=98 if number % 3 == 0 else 1)[1][0].text
        except NotFiniteError as error:
            return str(error)[:7]

    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(ask, range(60))) == ["line 99", LINES[1], LINES[1]] * 20


def test_a_wrong_request_harms_no_other(shared):
    expected = shared.translate(LINES[:1])

    def ask(number):
        try:
            match number % 4:
                case 0:
                    return shared.translations(LINES[:1], n_best=99)
                case 1:
                    return shared.translations(LINES[:1], prefixes=["house " * 5000])
            return shared.translate(LINES[:1])
        except (ConfigError, TranslationError) as error:
            return type(error)

    with ThreadPoolExecutor(12) as threads:
        found = list(threads.map(ask, range(24)))
    assert found == [ConfigError, TranslationError, expected, expected] * 6
