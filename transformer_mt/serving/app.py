"""The application of the server: all routes, and what holds for each of them; and how it serves them."""

import asyncio
import logging
import math
import socket
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
from uvicorn import Config, Server

from transformer_mt.base.system import HANGUP
from transformer_mt.serving.gate import Connection, Gate, Measures
from transformer_mt.serving.json_log import JsonLines
from transformer_mt.serving.libretranslate import LibreTranslate
from transformer_mt.serving.limits import Limits
from transformer_mt.serving.model_process import Copies
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


_CONNECTIONS = 500


async def serve(
    models: Sequence[Copies], limits: Limits, listener: socket.socket, keys: Path | None, cors: Sequence[str]
) -> None:
    """Load the models, answer requests until a signal comes, and end the models. SIGHUP reads the file `keys` again."""
    hangup = asyncio.Event()
    if HANGUP is not None:
        asyncio.get_running_loop().add_signal_handler(HANGUP, hangup.set)

    async def replace_models() -> None:
        while await hangup.wait():
            hangup.clear()  # several signals during a replacement lead to one further replacement
            if keys is not None:
                await asyncio.to_thread(service.read_keys, keys)  # it may be a pipe
            await asyncio.gather(*(model.replace() for model in models))

    try:
        await asyncio.gather(*(model.start() for model in models))
        service = Service(models, limits)
        logging.basicConfig(level=logging.WARNING, handlers=[JsonLines()])
        logging.getLogger("transformer_mt").setLevel(logging.INFO)
        for library in ("uvicorn", "python_multipart"):  # which would warn about each broken request
            logging.getLogger(library).setLevel(logging.ERROR)
        server = _server(service, cors)
        replacing = asyncio.create_task(replace_models())  # named, because the loop holds tasks only weakly
        listener.listen()
        host, port, *_ = listener.getsockname()
        pairs = ", ".join(f"{source}-{target}" for source, target in service.pairs)
        print(f"serving http://{f'[{host}]' if ':' in host else host}:{port}: {pairs}", flush=True)
        await server.serve([listener])
        replacing.cancel()
    finally:
        await asyncio.gather(*(model.close() for model in models))


def _server(service: Service, cors: Sequence[str]) -> Server:
    config = Config(
        application(service, cors),
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=math.ceil(2 * service.limits.seconds) + 1,
    )
    return Server(config)
