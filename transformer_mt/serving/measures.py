"""What a server counts and logs of its requests: no texts, no keys, and no paths that a client has chosen."""

import json
import logging
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

if TYPE_CHECKING:
    from transformer_mt.serving.service import Service


@dataclass(frozen=True)
class Handled:
    """A request that has been answered, or whose client has left."""

    method: str
    route: str
    """The path of the route, such as /download_file/{name}; "other" for an unknown path."""
    status: int
    seconds: float
    sentences: int
    client: str
    """The address of the client."""
    failure: list[str] | None
    """The kind of an unexpected error, and the places in the code that it went through."""


class Measures:
    """Metrics for Prometheus, and a log of JSON lines on standard error."""

    def __init__(self, service: "Service") -> None:
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

    def handled(self, request: Handled) -> None:
        """Count and log a request."""
        method = request.method if request.method in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        self._requests.labels(method, request.route, request.status).inc()
        self._seconds.labels(method, request.route).observe(request.seconds)
        if request.sentences and request.status == 200:
            self._sentences.inc(request.sentences)
            self._sizes.observe(request.sentences)
        fields = asdict(request) | {"method": method, "seconds": round(request.seconds, 4)}
        log_line({name: value for name, value in fields.items() if value is not None})


def log_line(fields: dict[str, object]) -> None:
    """Write a line of JSON with the time to standard error."""
    print(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **fields}), file=sys.stderr, flush=True)


class JsonLines(logging.Handler):
    """Writes the warnings and errors of other parts in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        log_line({"level": record.levelname.lower(), "message": record.getMessage()})
