"""The routes of LibreTranslate's API, for the clients that exist for it."""

import asyncio
import secrets
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.wording import cut
from transformer_mt.documents.document import ENDINGS, in_utf8
from transformer_mt.serving.jobs import Form, Job, text_of
from transformer_mt.serving.limits import MOST_ALTERNATIVES, MOST_FIELDS, json_object
from transformer_mt.serving.service import Direction, Service, name_of

_FORMS: dict[str, Form] = {".txt": "text", **ENDINGS}
_PACKAGES = {"po": "polib", "markdown": "markdown_it"}  # without them, these forms are not offered
_DETECTED = 3  # languages in an answer of /detect
_SECONDS, _MOST_BYTES = 600.0, 2**26  # how long translations of files are kept, and how much of them


class KeptFiles(dict[str, bytes]):
    """The newest files by their names, for ten minutes, up to 64 MiB together."""

    def keep(self, content: bytes, ending: str) -> str:
        """Keep a file. Returns its name, which is random and has this ending."""
        name = secrets.token_urlsafe(24) + ending
        self[name] = content
        asyncio.get_running_loop().call_later(_SECONDS, self.pop, name, None)
        while sum(map(len, self.values())) > _MOST_BYTES:
            del self[next(iter(self))]  # the oldest
        return name


class LibreTranslate:
    """LibreTranslate's routes, answered by the models of a service."""

    def __init__(self, service: Service) -> None:
        self.service, self.files = service, KeptFiles()
        self.forms = {
            ending: form for ending, form in _FORMS.items() if form not in _PACKAGES or find_spec(_PACKAGES[form])
        }

    def routes(self) -> list[Route]:
        return [
            Route("/translate", self.translate, methods=["POST"]),
            Route("/detect", self.detect, methods=["POST"]),
            Route("/languages", self.languages),
            Route("/frontend/settings", self.settings),
            Route("/translate_file", self.translate_file, methods=["POST"]),
            Route("/download_file/{name}", self.download_file),
            Route("/suggest", self.suggest, methods=["POST"]),
            Route("/health", self.health),
        ]

    async def translate(self, request: Request) -> Response:
        fields = await self._fields(request)
        q = _needed(fields, "q")
        texts = q if isinstance(q, list) else [q]
        if not all(isinstance(text, str) for text in texts):
            raise HTTPException(400, "Invalid request: q parameter is not a text or a list of texts")
        source, target = _text(fields, "source"), _text(fields, "target")
        form, alternatives = _form(fields), _alternatives(fields)
        self.service.limits.check_size(texts)
        direction = self.service.direction(source, target, texts)
        best, others = await self._translated(request, direction, texts, form, alternatives)
        is_list = isinstance(q, list)
        answer: dict[str, Any] = {"translatedText": best if is_list else best[0]}
        if direction.confidence is not None:
            detected = {"confidence": direction.confidence, "language": direction.source}
            answer["detectedLanguage"] = [detected] * len(texts) if is_list else detected
        if alternatives:
            answer["alternatives"] = others if is_list else others[0]
        return JSONResponse(answer)

    async def _translated(
        self, request: Request, direction: Direction, texts: Sequence[str], form: Form, alternatives: int = 0
    ) -> tuple[list[str], list[list[str]]]:
        """The best translation of each text, and up to `alternatives` others: different ones, and none for documents.

        A text whose language is the target language already, and one for which the model finds nothing, stays as it is.
        """
        if direction.source == direction.target and direction.confidence is not None:
            return list(texts), [[] for _ in texts]
        job = Job(tuple(texts), form=form, n_best=alternatives + 1 if form == "text" else 1)
        answer = await self.service.answer(request, direction, job)
        best, others = list[str](), list[list[str]]()
        for text, found in zip(texts, answer, strict=True):
            first, *further = dict.fromkeys(text_of(found, rank) for rank in range(job.n_best))
            best.append(first if first.strip() else text)
            others.append([other for other in further if other.strip()])
        return best, others

    async def detect(self, request: Request) -> Response:
        text = _text(await self._fields(request), "q")
        self.service.limits.check_size([text])
        found = self.service.identifier.ranked([text])[:_DETECTED] or [("en", 0)]
        return JSONResponse([{"confidence": confidence, "language": code} for code, confidence in found])

    async def languages(self, request: Request) -> Response:
        codes = self.service.languages
        return JSONResponse(
            [{"code": code, "name": name_of(code), "targets": self.service.targets(code)} for code in codes]
        )

    async def settings(self, request: Request) -> Response:
        limits, first = self.service.limits, next(iter(self.service.pairs))
        source, target = [{"code": code, "name": name_of(code)} for code in first]
        return JSONResponse(
            {
                "apiKeys": bool(limits.keys),
                "charLimit": limits.characters,
                "filesTranslation": True,
                "frontendTimeout": 500,
                "keyRequired": bool(limits.keys),
                "language": {"source": source, "target": target},
                "suggestions": False,
                "supportedFilesFormat": list(self.forms),
            }
        )

    async def translate_file(self, request: Request) -> Response:
        """Translate a file, and keep the translation for a while under a name that nobody can guess."""
        fields = await self._fields(request)
        source, target, file = _text(fields, "source"), _text(fields, "target"), fields.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise HTTPException(400, "Invalid request: missing file parameter")
        ending = PurePath(file.filename).suffix.lower()
        if ending not in self.forms:
            raise HTTPException(400, f"{cut(ending or file.filename, 20)} format is not supported")
        try:
            text = in_utf8(await file.read(), self.forms[ending]).decode("utf-8-sig")
        except (UnicodeDecodeError, TranslationError):
            raise HTTPException(400, "Invalid request: the file is not a text in UTF-8") from None
        self.service.limits.check_size([text])
        direction = self.service.direction(source, target, [text])
        [translation], _ = await self._translated(request, direction, [text], self.forms[ending])
        name = self.files.keep(translation.encode(), ending)
        return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", name=name))})

    async def download_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self.files.get(name)
        if content is None:
            raise HTTPException(404, "no such file: translations of files are kept only for a while")
        # Never shown as a page of this server, because it may hold scripts.
        disposition = f'attachment; filename="translated{PurePath(name).suffix}"'
        return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": disposition})

    async def suggest(self, request: Request) -> Response:
        raise HTTPException(403, "Suggestions are disabled on this server.")

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _fields(self, request: Request) -> dict[str, Any]:
        """The fields of a request: of its JSON, or of its query string and its form. Checks the API key."""
        kind, options = parse_options_header(request.headers.get("content-type"))
        if kind == b"application/json":
            fields = json_object(await request.body())
        else:
            # Python has charsets that need minutes for a large form, and others that give half a surrogate pair.
            if kind == b"multipart/form-data" and options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
                raise HTTPException(400, "Invalid request: the charset of the form is not UTF-8")
            form = await request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=self.service.limits.body)
            given = [*request.query_params.items(), *form.items()]
            fields = {name: value.replace("\r\n", "\n") if isinstance(value, str) else value for name, value in given}
        self.service.limits.check_key(request, fields.get("api_key"))
        return fields


def _needed(fields: dict[str, Any], name: str) -> Any:
    if not fields.get(name):
        raise HTTPException(400, f"Invalid request: missing {name} parameter")
    return fields[name]


def _text(fields: dict[str, Any], name: str) -> str:
    value = _needed(fields, name)
    if not isinstance(value, str):
        raise HTTPException(400, f"Invalid request: {name} parameter is not a text")
    return value


def _form(fields: dict[str, Any]) -> Form:
    match fields.get("format") or "text":
        case "text" | "html" as form:
            return form
        case other:
            raise HTTPException(400, f"{cut(str(other), 20)} format is not supported")


def _alternatives(fields: dict[str, Any]) -> int:
    try:
        number = int(fields.get("alternatives") or 0)
    except (TypeError, ValueError, OverflowError):  # 1e999 is infinite
        raise HTTPException(400, "Invalid request: alternatives parameter is not a number") from None
    if number < 0:
        raise HTTPException(400, "Invalid request: alternatives parameter must be >= 0")
    if number > MOST_ALTERNATIVES:
        raise HTTPException(400, f"Invalid request: alternatives parameter must be <= {MOST_ALTERNATIVES}")
    return number
