"""Reads what both APIs have in common from requests: objects of JSON, and API keys."""

from typing import Any

from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request


def json_object(body: bytes) -> dict[str, Any]:
    """Parse an object of JSON. Raises HTTPException. No text has half a surrogate pair, which UTF-8 cannot write."""
    try:
        fields = from_json(body, allow_inf_nan=False)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise HTTPException(400, "Invalid JSON format")
    return fields


def key_of(request: Request, field: object) -> str:
    """Return the API key of a request: its field api_key, else the header Authorization: Bearer; "" without one."""
    if isinstance(field, str) and field:
        return field
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
