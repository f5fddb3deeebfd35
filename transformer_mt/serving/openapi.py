"""Describes the routes of both APIs as a document of OpenAPI 3.1."""

from typing import Any

from pydantic import TypeAdapter

from transformer_mt.serving.v1 import AnswerJson, Wanted
from transformer_mt.version import __version__

_JSON, _BYTES = "application/json", "application/octet-stream"
_PLACE = "#/components/schemas/{model}"
_ABOUT = "Machine translation. The routes outside of /v1 are those of LibreTranslate, and take forms and queries, too."


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _PLACE.format(model=name)}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


_TEXT = {"type": "string"}
_TEXTS = {"oneOf": [_TEXT, _array(_TEXT)]}
_LANGUAGE = _object({"code": _TEXT, "name": _TEXT, "targets": _array(_TEXT)})
_CONFIDENCE = _object({"language": _TEXT, "confidence": {"type": "number"}})
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
    wanted, answer = (TypeAdapter(each).json_schema(ref_template=_PLACE) for each in (Wanted, AnswerJson))
    schemas = {**wanted.pop("$defs"), **answer.pop("$defs"), "Wanted": wanted, "Answer": answer}
    schemas["Error"] = _object({"error": _TEXT}, "error")
    return {
        "openapi": "3.1.0",
        "info": {"title": "transformer_mt", "version": __version__, "description": _ABOUT},
        "paths": {path: _route(*route) for path, route in _routes().items()},
        "components": {"schemas": schemas},
    }


def _routes() -> dict[str, tuple[str, Any, Any, str]]:
    """For each path: a summary, the schema of the body or None, the schema of the answer, and the media type."""
    q = {"q": _TEXTS, "format": {"enum": ["text", "html"]}, "alternatives": {"type": "integer"}}
    asked = _object(q | _PAIR | _KEY, "q", *_PAIR)
    translated = _object({"translatedText": _TEXTS, "detectedLanguage": _CONFIDENCE, "alternatives": {"type": "array"}})
    file = _object({"file": {"contentMediaType": _BYTES}} | _PAIR | _KEY, "file", *_PAIR)
    return {
        "/v1/translate": ("Translate texts, with scores and alternatives", _ref("Wanted"), _ref("Answer"), _JSON),
        "/v1/models": ("List the models", None, _object({"models": _array({"type": "object"})}), _JSON),
        "/translate": ("Translate a text or a list of texts", asked, translated, _JSON),
        "/detect": ("Find the language of a text", _object({"q": _TEXT} | _KEY, "q"), _array(_CONFIDENCE), _JSON),
        "/languages": ("List the languages", None, _array(_LANGUAGE), _JSON),
        "/frontend/settings": ("List the limits of this server", None, {"type": "object"}, _JSON),
        "/translate_file": ("Translate a file", file, _object({"translatedFileUrl": _TEXT}), _JSON),
        "/download_file/{name}": ("Get the translation of a file", None, _TEXT, _BYTES),
        "/health": ("Say whether the server runs", None, _object({"status": _TEXT}), _JSON),
        "/metrics": ("Numbers for Prometheus", None, _TEXT, "text/plain"),
    }


def _route(summary: str, body: dict[str, Any] | None, answer: dict[str, Any], media_type: str) -> dict[str, Any]:
    right, error = {media_type: {"schema": answer}}, {_JSON: {"schema": _ref("Error")}}
    responses = {"200": {"description": "The answer", "content": right}}
    responses |= {str(status): {"description": text, "content": error} for status, text in _STATUSES.items()}
    described: dict[str, Any] = {"summary": summary, "responses": responses}
    if media_type == _BYTES:
        described["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": _TEXT}]
    if body is None:
        return {"get": described}
    form = "multipart/form-data" if "file" in body.get("properties", {}) else _JSON
    return {"post": described | {"requestBody": {"required": True, "content": {form: {"schema": body}}}}}
