"""The routes under /v1: translations with their sentences, scores, alternatives, alignments and doubts."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import TypedDict  # which pydantic needs before Python 3.12

from transformer_mt.serving.jobs import Form, Found, Job, Sentence, text_of
from transformer_mt.serving.limits import MOST_ALTERNATIVES, WIDEST_BEAM, json_object
from transformer_mt.serving.service import Direction, Service


class Term(BaseModel):
    """How to translate a term: by one of the target terms."""

    model_config = ConfigDict(extra="forbid", strict=True)
    source: str
    targets: Annotated[list[str], Field(min_length=1)]


class Wanted(BaseModel):
    """The body of POST /v1/translate. source and target may be left out if the server has only one language pair."""

    model_config = ConfigDict(extra="forbid", strict=True)
    source: str | None = None
    target: str | None = None
    text: str | None = None
    texts: Annotated[list[str], Field(min_length=1)] | None = None
    format: Form = "text"
    n_best: Annotated[int, Field(ge=1, le=MOST_ALTERNATIVES + 1)] = 1
    prefixes: list[str] | None = None
    terms: list[Term] = []
    protect: Literal["auto", "always", "never"] | None = None
    beam_size: Annotated[int, Field(ge=1, le=WIDEST_BEAM)] | None = None
    alignment: bool = False
    by_sentence: bool = False
    api_key: str | None = None


class SentenceJson(Found):
    """A sentence of a text, the white space before it and before its translation, and its best translation."""

    source: str
    space: str
    target_space: str
    alternatives: list[Found]


class TranslationJson(TypedDict):
    """The translation of a text, and its sentences."""

    text: str
    sentences: list[SentenceJson]


class Detected(TypedDict):
    """The language of a text whose source language was given as auto; the confidence is in percent."""

    language: str
    confidence: float


class AnswerJson(TypedDict):
    """The answer of POST /v1/translate."""

    source: str
    target: str
    model: str
    detected: NotRequired[Detected]
    translations: list[TranslationJson]


class V1:
    """The routes under /v1, answered by the models of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> list[Route]:
        return [Route("/v1/translate", self.translate, methods=["POST"]), Route("/v1/models", self.models)]

    async def models(self, request: Request) -> Response:
        models = [
            {"name": model.info.name, "source": source, "target": target, "engine": model.info.engine}
            for (source, target), (model, _) in self.service.pairs.items()
        ]
        return JSONResponse({"models": models})

    async def translate(self, request: Request) -> Response:
        fields = json_object(await request.body())
        self.service.limits.check_key(request, fields.get("api_key"))
        wanted = _wanted(fields)
        texts = [wanted.text] if wanted.text is not None else wanted.texts or []
        terms = tuple((term.source, tuple(term.targets)) for term in wanted.terms)
        words = [word for source, targets in terms for word in (source, *targets)]
        self.service.limits.check_size(texts, [*(wanted.prefixes or []), *words])
        direction = self._direction(wanted, texts)
        same = wanted.model_dump(include={"n_best", "protect", "beam_size", "alignment", "by_sentence"})
        prefixes = None if wanted.prefixes is None else tuple(wanted.prefixes)
        job = Job(tuple(texts), form=wanted.format, prefixes=prefixes, terms=terms, **same)
        answer = await self.service.answer(request, direction, job)
        found = AnswerJson(
            source=direction.source,
            target=direction.target,
            model=self.service.pairs[direction.source, direction.target][0].info.name,
            translations=[
                TranslationJson(text=text_of(sentences), sentences=list(map(_sentence, sentences)))
                for sentences in answer
            ],
        )
        if direction.confidence is not None:
            found["detected"] = Detected(language=direction.source, confidence=direction.confidence)
        return JSONResponse(found)

    def _direction(self, wanted: Wanted, texts: Sequence[str]) -> Direction:
        source, target = wanted.source, wanted.target
        if len(self.service.pairs) == 1:
            [pair] = self.service.pairs
            source, target = source or pair[0], target or pair[1]
        if not source or not target:
            raise HTTPException(400, "give source and target, as this server has several language pairs")
        return self.service.direction(source, target, texts)


def _wanted(fields: dict[str, Any]) -> Wanted:
    """The checked body of a request. Raises HTTPException, which names the field but not its value."""
    try:
        wanted = Wanted.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise HTTPException(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if (wanted.text is None) == (wanted.texts is None):
        raise HTTPException(400, "give either text or texts")
    return wanted


def _sentence(sentence: Sentence) -> SentenceJson:
    best, *others = sentence.translations
    spaces = {"source": sentence.source, "space": sentence.space, "target_space": sentence.target_space}
    return cast(SentenceJson, {**spaces, **best, "alternatives": others})
