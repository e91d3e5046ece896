"""A pace for work in the background: it rests while the processors are wanted elsewhere.

Purpose
    Compactions and moves take as long as they take; queries and appends beside them shall not.
    :class:`Pace` is asked between two pieces of such work.  While the other threads of the process
    leave less than ``spare`` processors unused, it rests :data:`REST_FACTOR` times as long as the
    work has computed since the last piece: one tenth of a processor is what it takes then.

    ::

        others want more than processors - spare     ####   ####   ####      rests of 9 times
        they do not                                  ####################    no rests

Guarantee
    A rest ends with what it waits by, after :data:`REST_SECONDS_MAX` at the latest, and there is
    none while the work is overdue.

Limits
    What other processes compute is not seen.  Work that goes on in another thread is taken for that
    of others until its second piece.
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
"""Less than that of others is none, also where there is but one processor."""


class Pace:
    """Asked between two pieces of work; see the module.

    Parameters
    ----------
    wait : callable
        Waits for so many seconds, or until the work shall end.
    spare : float
        Processors; while the others leave less, the work rests.
    """

    def __init__(self, wait: Callable[[float], object], spare: float) -> None:
        self._wait = wait
        self._spare = spare
        self._thread = threading.current_thread()
        self._wall, self._all, self._own = self._clocks()
        self._busy = 0.0

    @staticmethod
    def _clocks() -> tuple[float, float, float]:
        """Seconds passed, seconds that all threads have computed, and this one."""
        return time.perf_counter(), time.process_time(), time.thread_time()

    def __call__(self, overdue: Callable[[], bool]) -> None:
        """Rest, if it is time to, and the work is not overdue."""
        thread = threading.current_thread()  # the number of one that has ended is given again
        wall, everybody, own = self._clocks()
        passed = max(wall - self._wall, 1e-6)
        computed = own - self._own if thread is self._thread else 0.0
        others = everybody - self._all - computed
        self._busy += (1 - exp(-passed / BUSY_SECONDS)) * (others / passed - self._busy)
        self._thread, self._wall, self._all, self._own = thread, wall, everybody, own
        if self._busy > max(_processors() - self._spare, BUSY_MIN) and not overdue():
            self._wait(min(REST_FACTOR * computed, REST_SECONDS_MAX))


def _processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
