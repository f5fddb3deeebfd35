"""The application of the server: all routes, and what holds for each of them."""

from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer_mt.serving.gate import Gate, Measures
from transformer_mt.serving.libretranslate import LibreTranslate
from transformer_mt.serving.openapi import openapi
from transformer_mt.serving.service import Service
from transformer_mt.serving.v1 import V1

_PAGE = Path(__file__).with_name("page")
_PAGE_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


def application(service: Service, cors: Sequence[str] = ()) -> Gate:
    """Make the ASGI application. Pages of the origins in `cors` may use it; "*" stands for all pages."""
    measures = Measures(service)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(measures.registry), media_type=CONTENT_TYPE_LATEST)

    fixed = {
        path: Response((_PAGE / name).read_bytes(), media_type=media_type)
        for path, (name, media_type) in _PAGE_FILES.items()
    } | dict.fromkeys(("/openapi.json", "/spec"), JSONResponse(openapi()))  # LibreTranslate has it at /spec
    routes = [
        *(Route(path, answer, methods=["GET"]) for path, answer in fixed.items()),
        *LibreTranslate(service).routes(),
        *V1(service).routes(),
        Route("/metrics", metrics),
    ]
    allowed = Middleware(
        CORSMiddleware,
        allow_origins=cors,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After"],
    )
    handlers = {HTTPException: _refusal, ClientDisconnect: _left, Exception: _failure}
    app = Starlette(routes=routes, middleware=[allowed] if cors else [], exception_handlers=handlers)  # type: ignore[arg-type]
    return Gate(app, service.limits, measures)


async def _refusal(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _left(request: Request, error: ClientDisconnect) -> Response:
    return JSONResponse({"error": "the client left before its answer"}, 400)


async def _failure(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "internal error"}, 500)
