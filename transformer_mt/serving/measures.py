"""What a server counts and logs of its requests: no texts, no keys, and no paths that a client has chosen."""

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from starlette.types import Scope

from transformer_mt.serving.json_log import log_line

if TYPE_CHECKING:
    from transformer_mt.serving.service import Service


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
