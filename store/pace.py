"""Throttling of background work while the processors are busy.

``Pace`` is called between two pieces of work.  While the other threads of the process leave less
than ``spare`` processors idle, it rests ``REST_FACTOR`` times as long as the work has computed: one
tenth of a processor is left to the work.  A rest takes at most ``REST_SECONDS_MAX``; overdue work
does not rest.  Other processes are not considered.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from math import exp

__all__ = ["REST_FACTOR", "REST_SECONDS_MAX", "Pace"]

REST_FACTOR = 9
REST_SECONDS_MAX = 0.5
BUSY_SECONDS = 0.05
BUSY_MIN = 0.25
"""A load of others below this is ignored, also with a single processor."""


class Pace:
    """Throttles work; ``wait`` sleeps, or ends with it; ``spare`` are idle processors."""

    def __init__(self, wait: Callable[[float], object], spare: float) -> None:
        self._wait = wait
        self._spare = spare
        self._thread = threading.current_thread()
        self._wall, self._all, self._own = self._clocks()
        self._busy = 0.0

    @staticmethod
    def _clocks() -> tuple[float, float, float]:
        """Wall time, processor time of all threads, and of this one, in seconds."""
        return time.perf_counter(), time.process_time(), time.thread_time()

    def __call__(self, overdue: Callable[[], bool]) -> None:
        """Rest, if the processors are busy and the work is not overdue."""
        thread = threading.current_thread()  # thread ids are reused
        wall, everybody, own = self._clocks()
        passed = max(wall - self._wall, 1e-6)
        computed = own - self._own if thread is self._thread else 0.0
        others = everybody - self._all - computed
        self._busy += (1 - exp(-passed / BUSY_SECONDS)) * (others / passed - self._busy)
        self._thread, self._wall, self._all, self._own = thread, wall, everybody, own
        if self._busy > max(_processors() - self._spare, BUSY_MIN) and not overdue():
            self._wait(min(REST_FACTOR * computed, REST_SECONDS_MAX))


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
