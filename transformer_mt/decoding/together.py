"""Translates the sentences of several threads in one call of the engine. Imports no PyTorch.

The thread that has its turn takes the requests of those that wait, as far as they want the same, and gives each its
hypotheses. No further thread is needed, and a thread that is alone finds everything as if there were no others.
"""

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

from transformer_mt.decoding.engine import WITH_SCORES, Engine, Sentence, Wanted
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.settings.search_settings import DecodingConfig

Batch = tuple[list[int], list[list[Hypothesis]]]
"""The numbers of some sentences, and the hypotheses of each."""

MOST_TOGETHER = 256  # sentences in a call for several threads: the next call, for those who came later, begins soon
# How long a turn waits for the threads of the last one to ask again, as a share of the time that this took.
PATIENCE = 0.1


@dataclass(eq=False)
class _Request:
    """The sentences of one thread."""

    sentences: Sequence[Sentence]
    decoding: DecodingConfig
    wanted: Wanted
    found: dict[int, list[Hypothesis]] = field(default_factory=dict)
    """The hypotheses of each sentence, by its number among `sentences`."""
    is_taken: bool = False
    """Whether another thread translates it now, or has done so."""
    is_alone: bool = False
    """Whether a call for several threads has failed, so that it has to be translated alone."""

    @property
    def is_done(self) -> bool:
        return len(self.found) == len(self.sentences)

    def joins(self, other: "_Request") -> bool:
        """Whether both may be translated in one call."""
        same = self.wanted.alignment == other.wanted.alignment and self.wanted.scores == other.wanted.scores
        return same and self.decoding == other.decoding and not (self.is_alone or other.is_alone)


class Together:
    """The requests of all threads that use one engine for translating."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        lock = threading.Lock()
        self._changed = threading.Condition(lock)  # a request is done, or a turn has ended
        self._came = threading.Condition(lock)  # a request has come
        self._waiting: list[_Request] = []  # in the order in which they came
        self._leader: int | None = None  # the thread that has its turn
        self._others: list[_Request] = []  # which it translates together with its own
        self._size, self._begun, self._until = 1, 0.0, 0.0  # see `_take`

    def translate(
        self, sentences: Sequence[Sentence], decoding: DecodingConfig, wanted: Wanted = WITH_SCORES
    ) -> Generator[Batch, None, None]:
        """Translate as `translate_unordered` of the engine does, when it is this thread's turn; see `Engine.turn`.

        Close the generator to end the turn. An exception reaches only the thread with whose sentences it comes when
        they are translated alone. `progress` is called by the thread that gave it.
        """
        self._engine.check_process()
        if self._leader == threading.get_ident():  # asked by its own callback
            with self._engine.turn():
                yield from self._engine.translate_unordered(sentences, decoding, wanted)
            return
        request = _Request(sentences, decoding, wanted)
        try:
            self._wait(request)
            if not request.is_taken:
                with self._engine.turn():
                    yield from self._lead(request)
            elif sentences:
                if wanted.progress is not None:
                    wanted.progress(len(sentences))
                yield list(request.found), list(request.found.values())
        finally:
            self._end(request)

    def _wait(self, request: _Request) -> None:
        """Wait until it is this thread's turn to translate, or until another thread has translated its request."""
        with self._changed:
            self._waiting.append(request)
            self._came.notify()
            self._changed.wait_for(
                lambda: request.is_done if request.is_taken else self._leader is None and self._waiting[0] is request
            )
            if not request.is_taken:
                self._leader, self._begun = threading.get_ident(), time.monotonic()
                self._waiting.remove(request)

    def _end(self, request: _Request) -> None:
        """End the turn of this thread, if it has it. Others that it has not translated are translated alone."""
        with self._changed:
            if self._leader == threading.get_ident():
                self._size, now = 1 + len(self._others) + len(self._waiting), time.monotonic()
                self._until = now + PATIENCE * (now - self._begun)
                undone = [other for other in self._others if not other.is_done]
                for other in undone:
                    other.is_taken, other.is_alone = False, True
                self._waiting[:0] = undone
                self._leader, self._others = None, []
                self._changed.notify_all()
            elif request in self._waiting:  # interrupted while it waited
                self._waiting.remove(request)
                self._changed.notify_all()

    def _take(self, request: _Request) -> None:
        """Take the requests that can be translated together with this one.

        As many threads as were there in the last turn probably ask again, so a turn that comes soon waits for them.
        """
        if request.is_alone or (request.decoding.sampling and not self._engine.samples_by_number):
            return
        with self._came:
            if self._size > 1 and (left := self._until - time.monotonic()) > 0:
                self._came.wait_for(lambda: len(self._waiting) + 1 >= self._size, left)
            size = len(request.sentences)
            for other in list(self._waiting):
                if size + len(other.sentences) <= MOST_TOGETHER and request.joins(other):
                    size += len(other.sentences)
                    other.is_taken = True
                    self._waiting.remove(other)
                    self._others.append(other)

    def _lead(self, request: _Request) -> Iterator[Batch]:
        """Translate this request and the others that wait."""
        self._take(request)
        for numbers in self._batches(request, self._others):
            if self._others and request.wanted.progress is not None:
                request.wanted.progress(len(numbers))
            yield numbers, [request.found[number] for number in numbers]

    def _batches(self, request: _Request, others: list[_Request]) -> Iterator[list[int]]:
        """Translate the sentences of all, or, if that fails, of the first; yields the numbers of the latter's."""
        try:
            if others:
                yield from self._translated([request, *others])
        except Exception:  # perhaps because of one of the others
            pass
        if not others or not request.is_done:
            yield from self._translated([request])

    def _translated(self, requests: list[_Request]) -> Iterator[list[int]]:
        """Translate what is left of some requests in one call; yields the numbers of the sentences of the first."""
        places = [
            (request, number)
            for request in requests
            for number in range(len(request.sentences))
            if number not in request.found
        ]
        sentences = [request.sentences[number] for request, number in places]
        first, is_alone = requests[0], len(requests) == 1
        wanted = first.wanted if is_alone else replace(first.wanted, progress=None)
        for numbers, hypotheses_of in self._engine.translate_unordered(sentences, first.decoding, wanted):
            for number, hypotheses in zip(numbers, hypotheses_of, strict=True):
                request, own = places[number]
                request.found[own] = hypotheses
            if not is_alone:
                with self._changed:
                    self._changed.notify_all()
            yield [own for request, own in (places[number] for number in numbers) if request is first]
