"""Describes the routes of both APIs as a document of OpenAPI 3.1."""

from typing import Any

from pydantic import TypeAdapter

from transformer_mt.serving.v1 import AnswerJson, Wanted
from transformer_mt.version import __version__

_TEXT = {"type": "string"}
_TEXTS = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_LANGUAGE = {"type": "object", "properties": {"code": _TEXT, "name": _TEXT, "targets": {"type": "array", "items": _TEXT}}}
_CONFIDENCE = {"type": "object", "properties": {"language": _TEXT, "confidence": {"type": "number"}}}
_KEY = {"api_key": _TEXT}
_PAIR = {"source": {**_TEXT, "description": "a language code, or auto"}, "target": _TEXT}
_STATUSES = {
    400: "The request is wrong, too large in characters or texts, or lacks an API key",
    403: "The API key is wrong, or the function is disabled",
    404: "No such file or route",
    408: "The request did not arrive in time",
    413: "The request has too many bytes",
    429: "Too many sentences are waiting; see the header Retry-After",
    500: "Internal error",
    503: "The model is not available now",
    504: "The answer took too long",
}


def openapi() -> dict[str, Any]:
    """Return the document, which refers to nothing outside of itself."""
    wanted, answer = Wanted.model_json_schema(ref_template=_PLACE), TypeAdapter(AnswerJson).json_schema(ref_template=_PLACE)
    schemas = {**wanted.pop("$defs", {}), **answer.pop("$defs", {}), "Wanted": wanted, "Answer": answer}
    q = {"q": _TEXTS, "format": {"enum": ["text", "html"]}, "alternatives": {"type": "integer"}}
    translated = {"translatedText": _TEXTS, "detectedLanguage": _CONFIDENCE, "alternatives": {"type": "array"}}
    file = {"file": {"type": "string", "contentMediaType": "application/octet-stream"}}
    paths = {
        "/v1/translate": _post("Translate texts, with scores, alternatives and alignments", _ref("Wanted"), _ref("Answer")),
        "/v1/models": _get("List the models", _object({"models": {"type": "array", "items": {"type": "object"}}})),
        "/translate": _post("Translate a text or a list of texts", _object(q | _PAIR | _KEY, "q", "source", "target"), _object(translated)),
        "/detect": _post("Find the language of a text", _object({"q": _TEXT} | _KEY, "q"), {"type": "array", "items": _CONFIDENCE}),
        "/languages": _get("List the languages", {"type": "array", "items": _LANGUAGE}),
        "/frontend/settings": _get("List the limits and what this server offers", {"type": "object"}),
        "/translate_file": _post("Translate a file", _object(file | _PAIR | _KEY, *file, *_PAIR), _object({"translatedFileUrl": _TEXT}), "multipart/form-data"),
        "/download_file/{name}": _get("Get the translation of a file", _TEXT, "name", "application/octet-stream"),
        "/health": _get("Say whether the server runs", _object({"status": _TEXT})),
        "/metrics": _get("Metrics for Prometheus", _TEXT, media_type="text/plain"),
    }
    schemas["Error"] = _object({"error": _TEXT}, "error")
    info = {"title": "transformer_mt", "version": __version__, "summary": "Machine translation; the routes outside of /v1 are those of LibreTranslate"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


_PLACE = "#/components/schemas/{model}"


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _PLACE.format(model=name)}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


def _content(schema: dict[str, Any], media_type: str) -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema}}}


def _answers(schema: dict[str, Any], media_type: str) -> dict[str, Any]:
    errors = {str(status): {"description": text, **_content(_ref("Error"), "application/json")} for status, text in _STATUSES.items()}
    return {"responses": {"200": {"description": "The answer", **_content(schema, media_type)}, **errors}}


def _post(summary: str, body: dict[str, Any], answer: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    request = {"requestBody": {"required": True, **_content(body, media_type)}}
    return {"post": {"summary": summary, **request, **_answers(answer, "application/json")}}


def _get(summary: str, answer: dict[str, Any], parameter: str = "", media_type: str = "application/json") -> dict[str, Any]:
    named = {"name": parameter, "in": "path", "required": True, "schema": _TEXT}
    parameters = {"parameters": [named]} if parameter else {}
    return {"get": {"summary": summary, **parameters, **_answers(answer, media_type)}}
