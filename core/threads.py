"""Parallel tasks in a thread pool, with results in task order.

At most ``threads + AHEAD`` tasks have begun and are not consumed.  If the consumer stops, tasks end
at their next check and no thread remains.  Errors come in order; tasks see the consumer's context
variables.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

AHEAD = 1
T = TypeVar("T")
Check = Callable[[], None]


@dataclass(frozen=True)
class Done(Generic[T]):
    """A task's results."""

    values: Iterable[T]


Task = Callable[[Check], Done[T]]
"""Calls its check regularly, which raises if the result is no longer wanted."""


@dataclass
class Busy:
    """Thread use: the most threads at a time, and CPU seconds by thread id."""

    threads: int = 1
    seconds: dict[int, float] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        mine = threading.get_ident()
        self.seconds[mine] = self.seconds.get(mine, 0.0) + seconds

    @property
    def skew(self) -> float:
        """Time of the busiest thread over the mean; 1 if nothing was measured."""
        total = sum(self.seconds.values())
        return max(self.seconds.values()) * len(self.seconds) / total if total else 1.0


class _Stopped(Exception):
    """The consumer has stopped."""


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    tasks: Iterable[Task[T]], threads: int, check: Check | None, busy: Busy | None = None
) -> Iterator[T]:
    """Results of tasks, in order; ``check`` runs in every thread and may raise to stop all."""
    stopped = threading.Event()

    def wanted() -> None:
        if stopped.is_set():
            raise _Stopped
        if check is not None:
            check()

    def run(task: Task[T]) -> Done[T]:
        begun = time.thread_time()
        try:
            return task(wanted)
        finally:
            if busy is not None:
                busy.add(time.thread_time() - begun)

    if busy is not None:
        busy.threads = max(busy.threads, threads)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="chronicle-part")
    left, waiting = iter(tasks), deque[Future[Done[T]]]()
    try:
        while True:
            while len(waiting) < threads + AHEAD and (task := next(left, None)) is not None:
                waiting.append(pool.submit(contextvars.copy_context().run, run, task))
            if not waiting:
                return
            yield from waiting.popleft().result().values
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)
