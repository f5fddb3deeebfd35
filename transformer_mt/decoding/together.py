"""Translates the sentences of several threads in one call of the engine. Imports no PyTorch.

The thread that has its turn takes the requests of those that wait, as far as they want the same, and gives each its
hypotheses. No further thread is needed, and a thread that is alone finds everything as if there were no others.
"""

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

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
    found: list[list[Hypothesis]] | None = None
    """The hypotheses of each sentence, if another thread has translated them."""
    is_alone: bool = False
    """Whether a call for several threads has failed, so that it has to be translated alone."""


class Together:
    """The requests of all threads that use one engine for translating."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        lock = threading.Lock()
        # Two conditions, so that a request that comes wakes only the thread that waits for it, not all others.
        self._came, self._ended = threading.Condition(lock), threading.Condition(lock)
        self._waiting: list[_Request] = []  # in the order in which they came
        self._leader: int | None = None  # the thread that has its turn
        # Until this time, a turn waits for so many requests, its own included; and the time when the last turn began.
        self._size, self._until, self._begun = 1, 0.0, 0.0

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
        request, others = _Request(sentences, decoding, wanted), list[_Request]()
        if self._has_turn(request):
            try:
                with self._engine.turn():
                    others += self._taken(request)
                    if others:
                        self._translate_all([request, *others])
                    if request.found is None:
                        yield from self._engine.translate_unordered(sentences, decoding, wanted)
            finally:
                self._end(others)
        if request.found:
            if wanted.progress is not None:
                wanted.progress(len(sentences))
            yield list(range(len(sentences))), request.found

    def _has_turn(self, request: _Request) -> bool:
        """Wait until it is this thread's turn, or until another thread has translated its request."""
        with self._ended:
            self._waiting.append(request)
            self._came.notify()
            try:
                self._ended.wait_for(
                    lambda: request.found is not None or (self._leader is None and self._waiting[:1] == [request])
                )
            except BaseException:  # it was interrupted
                self._waiting = [other for other in self._waiting if other is not request]
                self._ended.notify_all()
                raise
            if request.found is None:
                self._waiting.remove(request)
                self._leader, self._begun = threading.get_ident(), time.monotonic()
            return request.found is None

    def _taken(self, request: _Request) -> list[_Request]:
        """Take the requests that can be translated together with this one.

        As many threads as were there in the last turn probably ask again, so a turn that comes soon waits for them.
        """
        others: list[_Request] = []
        if request.is_alone or (request.decoding.sampling and not self._engine.samples_by_number):
            return others
        with self._came:
            self._came.wait_for(lambda: len(self._waiting) + 1 >= self._size, self._until - time.monotonic())
            size = len(request.sentences)
            for other in list(self._waiting):
                joins = other.wanted == request.wanted and other.decoding == request.decoding and not other.is_alone
                if joins and size + len(other.sentences) <= MOST_TOGETHER:
                    size += len(other.sentences)
                    self._waiting.remove(other)
                    others.append(other)
        return others

    def _translate_all(self, requests: Sequence[_Request]) -> None:
        """Find the hypotheses of all requests in one call; of none if it fails, perhaps because of one of them."""
        sentences = [sentence for request in requests for sentence in request.sentences]
        wanted = replace(requests[0].wanted, progress=None)
        try:
            found = iter(self._engine.translate(sentences, requests[0].decoding, wanted))
        except Exception:
            return
        for request in requests:
            request.found = list(islice(found, len(request.sentences)))

    def _end(self, others: Sequence[_Request]) -> None:
        """End the turn of this thread. The others that it has not translated are translated alone, and next."""
        with self._ended:
            undone = [other for other in others if other.found is None]
            for other in undone:
                other.is_alone = True
            self._waiting[:0] = undone
            self._size, now = 1 + len(others) + len(self._waiting), time.monotonic()
            self._until = now + PATIENCE * (now - self._begun)
            self._leader = None
            self._ended.notify_all()
