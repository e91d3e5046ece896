"""The server's Prometheus metrics, in a registry per server.  Labels are bounded: never SQL text,
paths or tokens; names only in the gauges of indexes and live queries, for clients that may read
them.  Store gauges are computed at each scrape.

``/readyz`` says whether the store and SQL answer, checked at most once per ``KEEP_S`` seconds.  A
query slower than ``LIMIT_S`` counts as failed.  Error texts may name paths: they go to the log, not
to the client.

``LoadHistory`` has the load of the last quarter of an hour, for the console: a ring of ``SAMPLES``
samples in memory, rates and means of the counters every ``EVERY_S`` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from ...catalog.store_catalog import StoreCatalog
    from .state import Server

Figures = dict[str, float]

StreamFigures = dict[str, list[dict[str, Any]]]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
INDEX_GAUGES = {
    "lag_events": "Committed events that the index does not cover yet.",
    "runs": "Runs of the index.",
    "bytes": "Size of the index, without the times that the indexes of a stream share.",
    "covered": "Share of the stream's events that the index covers, from 0 to 1.",
    "usable": "1, or 0 when the index or a run of it is damaged or cannot be read.",
}

LIVE_GAUGES = {
    "lag_events": "Events of the source that the live query has not taken in.",
    "lag_seconds": "Seconds since a commit that the live query has not taken in.",
    "rows": "Results emitted.",
    "retractions": "Results retracted.",
    "late": "Late events that corrected results.",
    "ignored": "Late events that corrected nothing.",
    "state_bytes": "Memory that the live query keeps.",
    "running": "1, or 0 when the live query is paused or has failed.",
}

LIVE_SUMMARIES = {
    "step_seconds": ("steps", "Steps that took something in."),
    "reconcile_seconds": ("reconciles", "Regions of results that were compared with the query."),
}
"""Seconds that a live query spent: the name of the count, and the description."""


class Metrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(namespace="chronicle", registry=registry)
        counter = partial(Counter, namespace="chronicle", registry=registry)
        seconds = partial(Histogram, namespace="chronicle", buckets=SECONDS, registry=registry)
        self.requests = counter(
            "http_requests_total", "Requests answered.", ["method", "route", "status"]
        )
        self.request_seconds = seconds(
            "http_request_duration_seconds",
            "From the first byte of a request to the last of its answer.",
            ["method", "route"],
        )
        self.requests_running = Gauge(
            "chronicle_http_requests_running", "Requests being answered.", registry=registry
        )
        self.received_bytes = counter("http_received_bytes_total", "Body bytes received.")
        self.sent_bytes = counter("http_sent_bytes_total", "Body bytes sent.")
        self.appended_events = counter("appended_events_total", "Events appended.", ["format"])
        self.late_events = counter(
            "late_events_total", "Events appended that were older than what was stored."
        )
        self.append_seconds = seconds(
            "append_duration_seconds", "Parsing and storing one append, without receiving it."
        )
        self.queries = counter("queries_total", "Queries and reads ended.", ["kind", "outcome"])
        self.query_seconds = seconds(
            "query_duration_seconds", "Time of a query or read, its answer included.", ["kind"]
        )
        self.result_rows = counter("result_rows_total", "Rows sent as answers.", ["format"])
        self.follows = counter("follows_total", "Feeds that ended.", ["kind", "outcome"])
        self.followed_rows = counter("followed_rows_total", "Rows sent by feeds.", ["kind"])
        self.rejected = counter(
            "rejected_requests_total", "Requests turned away by a limit.", ["reason"]
        )

    def note_append(self, format: str, events: int, late: int) -> None:
        self.appended_events.labels(format).inc(events)
        self.late_events.inc(late)

    def watch(self, name: str, description: str, read: Callable[[], float]) -> None:
        Gauge(f"chronicle_{name}", description, registry=self.registry).set_function(read)

    def watch_store(self, read: Callable[[], dict[str, float]]) -> None:
        self.registry.register(_Computed(partial(_of_store, read)))

    def render(
        self, indexes: StreamFigures | None = None, live: Mapping[str, Figures] | None = None
    ) -> bytes:
        """The exposition, with given indexes and live queries; reads the store, so use a thread."""
        registry = CollectorRegistry()
        if indexes and any(indexes.values()):
            registry.register(_Computed(partial(_of_indexes, indexes)))
        if live:
            registry.register(_Computed(partial(_of_live, live)))
        return generate_latest(self.registry) + generate_latest(registry)


class _Computed(Collector):
    """Metrics that are computed at each scrape, not when they are registered."""

    def __init__(self, compute: Callable[[], Iterable[Metric]]) -> None:
        self._compute = compute

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        return self._compute()


def _of_store(read: Callable[[], Figures]) -> Iterator[Metric]:
    for name, value in sorted(read().items()):
        yield GaugeMetricFamily(
            f"chronicle_store_{name}", f"Of all streams: {name.replace('_', ' ')}.", value=value
        )


def _of_indexes(indexes: StreamFigures) -> Iterator[Metric]:
    for name, description in INDEX_GAUGES.items():
        gauge = GaugeMetricFamily(
            f"chronicle_index_{name}", description, labels=["stream", "attribute"]
        )
        for stream, listed in sorted(indexes.items()):
            for index in listed:
                gauge.add_metric([stream, index["attribute"]], index[name])
        yield gauge


def _of_live(live: Mapping[str, Figures]) -> Iterator[Metric]:
    gauges = {**LIVE_GAUGES, "hits": "Events of which a condition held."}
    for name, description in gauges.items():
        gauge = GaugeMetricFamily(f"chronicle_live_{name}", description, labels=["query"])
        for query, figures in sorted(live.items()):
            if name in figures:
                gauge.add_metric([query], figures[name])
        yield gauge
    for name, (times, description) in LIVE_SUMMARIES.items():
        seconds = SummaryMetricFamily(f"chronicle_live_{name}", description, labels=["query"])
        for query, figures in sorted(live.items()):
            if times in figures:
                seconds.add_metric([query], int(figures[times]), figures[name])
        yield seconds


logger = logging.getLogger("chronicle.server")
KEEP_S = 1.0
LIMIT_S = 10.0


class Probe:
    def __init__(self, catalog: StoreCatalog) -> None:
        self._catalog = catalog
        self._checked_at = float("-inf")
        self._problem: str | None = None
        self._lock = asyncio.Lock()

    async def trouble(self) -> str | None:
        """What is wrong, for people; None when everything answers."""
        async with self._lock:
            if time.monotonic() - self._checked_at > KEEP_S:
                # in its own thread: the server's may all be waiting for a disk
                self._problem = await asyncio.to_thread(self._ask)
                self._checked_at = time.monotonic()
            return self._problem

    def _ask(self) -> str | None:
        what = "the store cannot be read"
        try:
            self._catalog.streams()
            what = "SQL cannot be answered"
            if self._catalog.engine.executor.serves(LIMIT_S):
                return None
        except Exception:
            logger.exception("not ready: %s", what)
        return f"{what}; the server's log says why"


EVERY_S = 5.0
SAMPLES = 180
_PAGE = os.sysconf("SC_PAGE_SIZE")


class LoadHistory:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.started = self._at = time.monotonic()
        self._samples: deque[dict[str, float | None]] = deque(maxlen=SAMPLES)
        self._before = self._sums()

    def sample(self) -> None:
        now, sums = time.monotonic(), self._sums()
        seconds = max(1e-3, now - self._at)
        gone = {name: value - self._before[name] for name, value in sums.items()}
        self._at, self._before = now, sums
        server = self._server
        self._samples.append(
            {
                "appended_events_per_s": gone["events"] / seconds,
                "append_ms": _mean_ms(gone["append_s"], gone["appends"]),
                "queries_per_s": gone["queries"] / seconds,
                "query_ms": _mean_ms(gone["query_s"], gone["queries"]),
                "queries_running": float(server.queries.running),
                "memory_bytes": float(resident_bytes()),
            }
        )

    def columns(self) -> dict[str, list[float | None]]:
        samples = list(self._samples)
        return {name: [one[name] for one in samples] for name in (samples[0] if samples else ())}

    def _sums(self) -> dict[str, float]:
        metrics = self._server.metrics
        return {
            "events": _sum(metrics.appended_events, "_total"),
            "appends": _sum(metrics.append_seconds, "_count"),
            "append_s": _sum(metrics.append_seconds, "_sum"),
            "queries": _sum(metrics.query_seconds, "_count"),
            "query_s": _sum(metrics.query_seconds, "_sum"),
        }


def _sum(metric: Any, end: str) -> float:
    return sum(
        float(sample.value)
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith(end)
    )


def _mean_ms(seconds: float, count: float) -> float | None:
    return seconds / count * 1000 if count else None


def resident_bytes() -> int:
    """Resident memory of this process, or its peak, where the present value is unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
