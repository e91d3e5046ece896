"""Parts of one query in threads of this process, their rows in the order of the parts.

Guarantee
    Rows come part by part, whichever is done first.  Parts run at most :data:`AHEAD` ahead of what
    was taken, so that what waits is bounded; a consumer that stops ends those that run at their
    next check.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from ..contract.cancellation import QueryControl

__all__ = ["Task", "processors", "side_by_side"]

AHEAD = 1
Check = Callable[[], None]
Task = Callable[[Check], Iterator[pa.RecordBatch]]


class _Stopped(Exception):
    """The consumer has gone."""


def processors() -> int:
    """How many threads are worth having."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(
    tasks: Sequence[Task], threads: int, control: QueryControl
) -> Iterator[pa.RecordBatch]:
    """Run tasks, each of which gives batches and calls the check that it is given.

    Parameters
    ----------
    tasks : sequence of callable
    threads : int
    control : QueryControl
        Of the query; it is checked in every thread.
    """
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise _Stopped
        control.check()

    def run(task: Task) -> list[pa.RecordBatch]:
        return list(task(check))

    pool = ThreadPoolExecutor(threads, thread_name_prefix="chronicle-part")
    waiting: deque[Future[list[pa.RecordBatch]]] = deque()
    left = iter(tasks)
    try:
        while True:
            while len(waiting) < threads + AHEAD and (task := next(left, None)) is not None:
                waiting.append(pool.submit(run, task))
            if not waiting:
                return
            yield from waiting.popleft().result()
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)
