"""What Prometheus reads at /metrics: counts from the ledger, and how long requests take."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.alarms import AlarmGauges

_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """The registry of one API process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.latency = Histogram(
            "drystone_api_request_seconds",
            "Time from a request to the start of its answer.",
            ["method", "route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.answers = Counter(
            "drystone_api_answers",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.tasks = Gauge("drystone_tasks", "Tasks by phase.", ["phase"], registry=self.registry)
        self.clusters = Gauge(
            "drystone_clusters", "Clusters by state.", ["state"], registry=self.registry
        )
        self.machines = Gauge("drystone_machines", "Machines known.", registry=self.registry)
        self.brake = Gauge("drystone_brake", "1 while nothing is replaced.", registry=self.registry)
        self.alarms = AlarmGauges(self.registry)

    def forget_ledger(self) -> None:
        """Rather no number than an old one."""
        self.tasks.clear()
        self.clusters.clear()
        self.alarms.forget()

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


class LatencyMeter:
    """Times each request under its route's pattern, so that ids never become label values."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(scope, time.perf_counter() - began, message["status"])
            await send(message)

        await self.app(scope, receive, timed)

    def _note(self, scope: Scope, seconds: float, status: int) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = str(getattr(scope.get("route"), "path", "unknown"))
        self.metrics.latency.labels(method, route).observe(seconds)
        self.metrics.answers.labels(method, route, str(status)).inc()


_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
