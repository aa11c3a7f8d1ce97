"""A tool server's numbers, in Prometheus' text format."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from agar.types import Metrics

_BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Meter:
    """Counts and times calls; one per server, in a registry of its own.

    Args:
        own: the service's own numbers, asked for whenever somebody reads.
    """

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, own: Callable[[], Metrics]) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter("agar_tool_calls", "Calls by outcome", ("tool", "outcome"), registry=self._registry)
        self._seconds = Histogram(
            "agar_tool_call_seconds", "Time of a call", ("tool",), buckets=_BUCKETS_S, registry=self._registry
        )
        self._busy = Counter("agar_tool_busy", "Requests that found no room", ("route",), registry=self._registry)
        self._in_flight = Gauge("agar_tool_calls_in_flight", "Calls under way", registry=self._registry)
        self._registry.register(_Own(own))

    @contextmanager
    def call(self, tool: str) -> Iterator[Callable[[str], None]]:
        """Time a call; the body says how it ended (`ok`, `refused`, `failed`), and one that does not was cancelled."""
        outcome = "cancelled"

        def ended(how: str) -> None:
            nonlocal outcome
            outcome = how

        began = time.monotonic()
        try:
            yield ended
        finally:
            self._seconds.labels(tool).observe(time.monotonic() - began)
            self._calls.labels(tool, outcome).inc()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a request among those under way."""
        self._in_flight.inc()
        try:
            yield
        finally:
            self._in_flight.dec()

    def busy(self, route: str) -> None:
        """Count a request that found no room."""
        self._busy.labels(route).inc()

    def text(self) -> bytes:
        """All of it."""
        return generate_latest(self._registry)


class _Own(Collector):
    """The service's own numbers as gauges."""

    def __init__(self, own: Callable[[], Metrics]) -> None:
        self._own = own

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Ask for them."""
        for name, value in sorted(self._own().items()):
            yield GaugeMetricFamily(f"agar_{name.replace('/', '_')}", f"The service's {name}", value=value)
