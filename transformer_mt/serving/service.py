"""The languages and the models of a server: which model translates a request, and whether it still may wait."""

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from py3langid.langid import MODEL_FILE, LanguageIdentifier
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from transformer_mt.base.errors import UserError
from transformer_mt.base.languages import NAMES, short_code
from transformer_mt.base.wording import cut
from transformer_mt.serving.jobs import Answer, Job
from transformer_mt.serving.limits import Limits, num_sentences, read_keys
from transformer_mt.serving.model_process import Copies, Unavailable

AUTO = "auto"

_log = logging.getLogger(__name__)

# The codes of LibreTranslate, and how the same languages may be written besides.
_SPECIAL = {
    "zh-Hans": ("Chinese", "zh zh-hans zh-cn zh-sg"),
    "zh-Hant": ("Chinese (traditional)", "zt zh-hant zh-tw zh-hk"),
    "pt-BR": ("Portuguese (Brazil)", "pb pt-br"),
}
_SPECIAL_OF = {written: code for code, (_, all_written) in _SPECIAL.items() for written in all_written.split()}
_LONGEST = 1000
"""Characters of a text that decide its language: reading them takes about 10 ms."""

_TAG = re.compile("<[^<>]*>")


def served_code(code: str) -> str:
    """Return the code under which a server has a language: zh-Hans for zh, else the code with hyphens."""
    code = code.replace("_", "-")
    return _SPECIAL_OF.get(code.lower(), code)


def name_of(code: str) -> str:
    """Return the English name of a language, or its code if this module does not know the name."""
    name = NAMES.get(short_code(code))
    if code in _SPECIAL:
        return _SPECIAL[code][0]
    return name if name and code.lower() in NAMES else f"{name} ({code})" if name else code


class Identifier:
    """Finds the language of a text among some languages."""

    def __init__(self, codes: Iterable[str]) -> None:
        """Languages that the package py3langid does not know are never found."""
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = set(self._identifier.labels)
        written = {code: {"nb": "no"}.get(short_code(code), short_code(code)) for code in codes}
        self._codes = {label: code for code, label in reversed(written.items()) if label in known}
        if self._codes:
            self._identifier.set_languages(list(self._codes))

    def ranked(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Return codes and confidences in percent, the likeliest first; none for a text without letters."""
        text = _TAG.sub(" ", " ".join(texts)[: 4 * _LONGEST])[:_LONGEST]
        if not self._codes or not any(map(str.isalpha, text)):
            return []
        return [(self._codes[label], round(100 * share, 1)) for label, share in self._identifier.rank(text)]


@dataclass(frozen=True)
class Direction:
    """From which language to which a request is translated."""

    source: str
    target: str
    confidence: float | None = None
    """In percent, that the source language is right; None if the request has named it."""


class Service:
    """Gives jobs to the models. `pairs` has the model of each language pair, and the tag for it."""

    def __init__(self, models: Sequence[Copies], limits: Limits) -> None:
        """Raises UserError if two models translate the same pair."""
        self.models, self.limits, self.waiting = models, limits, 0
        self.pairs: dict[tuple[str, str], tuple[Copies, str | None]] = {}
        for model in models:
            for source, target, tag in model.info.pairs:
                pair = served_code(source), served_code(target)
                other, _ = self.pairs.setdefault(pair, (model, tag))
                if other is not model:
                    raise UserError(
                        f"{other.info.name} and {model.info.name} both translate from {pair[0]} to {pair[1]}: give one "
                        "of them, or serve the other one on another --port"
                    )
        self.languages = sorted({code for pair in self.pairs for code in pair})
        self.identifier = Identifier(self.languages)

    def read_keys(self, path: Path) -> None:
        """Take the API keys of a file from now on. If it cannot be read, the log says why, and the old keys stay."""
        try:
            self.limits = replace(self.limits, keys=read_keys(path))
        except (OSError, UserError) as error:
            _log.error("the API keys stay as they were: %s", error)

    def targets(self, source: str) -> list[str]:
        return sorted(target for begin, target in self.pairs if begin == source)

    def code(self, given: str) -> str:
        """Return the code of a language as this server writes it. Raises HTTPException for another language."""
        wanted = served_code(given).lower()
        for code in self.languages:
            if code.lower() == wanted:
                return code
        raise HTTPException(400, f"{cut(given, 20)} is not supported")

    def direction(self, source: str, target: str, texts: Sequence[str]) -> Direction:
        """Return the direction of a request; of a source "auto", by the texts. Raises HTTPException."""
        target = self.code(target)
        if source.lower() != AUTO:
            return Direction(self.code(source), target)
        if found := self.identifier.ranked(texts):
            return Direction(found[0][0], target, found[0][1])
        return Direction(next((begin for begin, end in self.pairs if end == target), target), target, 0)

    async def answer(self, request: Request, direction: Direction, job: Job) -> Answer:
        """Translate a job, with the tag of the direction. Raises HTTPException, also if there is too much to do.

        If the client leaves, the job is given up, and ClientDisconnect is raised.
        """
        request.state.sentences = size = num_sentences(job.texts)  # for the log and the metrics
        source, target = direction.source, direction.target
        if (source, target) not in self.pairs:
            raise HTTPException(
                400,
                f"{name_of(target)} ({target}) is not available as a target language from {name_of(source)} ({source})",
            )
        model, tag = self.pairs[source, target]
        # A request that is larger than the queue is accepted by a server that has nothing else to do.
        if self.waiting and self.waiting + size > self.limits.queue:
            raise HTTPException(429, "Slowdown: too many sentences are waiting", {"Retry-After": "2"})
        self.waiting += size
        answering = asyncio.create_task(
            model.answer(replace(job, tag=tag, until=time.monotonic() + self.limits.seconds))
        )
        answering.add_done_callback(partial(self._answered, size))
        leaving = asyncio.create_task(_client_leaves(request))
        # Until the model process has answered the job or given it up, the sentences count as waiting.
        await asyncio.wait((answering, leaving), timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        has_left = leaving.done()
        leaving.cancel()
        if has_left:
            answering.cancel()
            raise ClientDisconnect
        try:
            if not answering.done():
                raise TimeoutError
            return answering.result()
        except TimeoutError:
            raise HTTPException(504, f"no answer after {self.limits.seconds:g} seconds: send less text") from None
        except Unavailable:
            raise HTTPException(503, "the model is not available now: try again", {"Retry-After": "10"}) from None
        except UserError as error:
            raise HTTPException(400, str(error)) from None

    def _answered(self, size: int, answering: asyncio.Task[Answer]) -> None:
        self.waiting -= size
        if not answering.cancelled():
            answering.exception()  # asked for, as asyncio logs an error that nobody has seen


async def _client_leaves(request: Request) -> None:
    """Wait until the client of a request, of which the body is here, closes its connection."""
    with suppress(HTTPException):  # of the gate, which waits only so long for parts of a request
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return
    await asyncio.Event().wait()
