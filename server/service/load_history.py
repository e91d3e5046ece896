"""Load of the last quarter of an hour: a ring of ``SAMPLES`` samples in memory, for the console.
``LoadHistory`` reads the server's counters every ``EVERY_S`` seconds and stores rates and means.
"""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .state import Server


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
