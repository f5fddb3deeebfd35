"""What every request passes: time limits, the largest size, headers of security, the access log and metrics.

The log and the metrics have no texts, no keys, and no paths that a client has chosen.
"""

import asyncio
import time
import traceback

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from transformer_mt.serving.json_log import log_line
from transformer_mt.serving.limits import Limits
from transformer_mt.serving.service import Service

_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Measures:
    """Metrics for Prometheus, and a log of JSON lines on standard error."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        name, registry = "transformer_mt", self.registry
        labels = ["method", "route"]
        self._requests = Counter(f"{name}_requests", "Requests by status", [*labels, "status"], registry=registry)
        self._seconds = Histogram(
            f"{name}_request_seconds",
            "Time from the head of a request to its answer",
            labels,
            buckets=[0.01, 0.03, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60],
            registry=registry,
        )
        self._sentences = Counter(f"{name}_sentences", "Sentences of translated requests", registry=registry)
        self._sizes = Histogram(
            f"{name}_request_sentences",
            "Sentences of a translated request",
            buckets=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
            registry=registry,
        )
        waiting = Gauge(f"{name}_waiting_sentences", "Sentences that wait or are being translated", registry=registry)
        waiting.set_function(lambda: service.waiting)

    def handled(self, scope: Scope, status: int, seconds: float, failure: list[str] | None) -> None:
        """Count and log a request. `failure` is the kind of an unexpected error, and where in the code it arose."""
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        route = getattr(scope.get("route"), "path", "other")  # such as /download_file/{name}, without the name
        sentences = scope.get("state", {}).get("sentences", 0)
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)
        if sentences and status == 200:
            self._sentences.inc(sentences)
            self._sizes.observe(sentences)
        client = (scope.get("client") or ("",))[0]
        fields = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4), "client": client}
        log_line(fields | {"sentences": sentences} | ({"failure": failure} if failure else {}))


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, limits: Limits, measures: Measures) -> None:
        self.app, self.limits, self.measures = app, limits, measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. An error becomes status 500, and a line of the log without the texts of the request."""
        begun, status, failure = time.perf_counter(), 0, None

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(_SECURITY)
            await send(message)

        try:
            await self.app(scope, self._limited(scope, receive), sending)
        except Exception as error:  # the application has answered already
            # Where in the code it was raised. Its message stays out, because it may quote a text.
            places = traceback.extract_tb(error.__traceback__)
            failure = [type(error).__name__, *(f"{place.filename}:{place.lineno} {place.name}" for place in places)]
        finally:
            self.measures.handled(scope, status, time.perf_counter() - begun, failure)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that raises HTTPException for a body that is too large, or too long on its way."""
        size = int(Headers(scope=scope).get("content-length", "0"))
        until = asyncio.get_running_loop().time() + self.limits.seconds
        received = 0

        async def limited() -> Message:
            nonlocal received
            if size <= self.limits.body:
                try:
                    async with asyncio.timeout_at(until):
                        message = await receive()
                except TimeoutError:
                    raise HTTPException(408, f"the request did not arrive in {self.limits.seconds:g} seconds") from None
                received += len(message.get("body", b""))
            if max(size, received) > self.limits.body:
                raise HTTPException(413, f"the request has more than {self.limits.body:,} bytes: send less text")
            return message

        return limited


_SECONDS = 30.0  # how long the head of a request may be on its way


class Connection(H11Protocol):
    """A connection of uvicorn, which by itself would wait without end for the rest of the head of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_without_request(None)

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        self._close_without_request(answered)

    def _close_without_request(self, last: object) -> None:
        def close() -> None:
            if self.cycle is last:
                self.transport.close()

        self.loop.call_later(_SECONDS, close)
