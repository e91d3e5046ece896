"""Parallel tasks in a thread pool, with results in task order.

At most ``threads + AHEAD`` tasks have begun and are not consumed.  If the consumer stops, tasks end
at their next check and no thread remains.  Errors come in order; tasks see the consumer's context
variables.

``Repeated`` is a thread for work that recurs.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
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


class _Stopped(Exception):
    """The consumer has stopped."""


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(tasks: Iterable[Task[T]], threads: int, check: Check | None) -> Iterator[T]:
    """Results of tasks, in order; ``check`` runs in every thread and may raise to stop all."""
    stopped = threading.Event()

    def wanted() -> None:
        if stopped.is_set():
            raise _Stopped
        if check is not None:
            check()

    pool = ThreadPoolExecutor(threads, thread_name_prefix="chronicle-part")
    left, waiting = iter(tasks), deque[Future[Done[T]]]()
    try:
        while True:
            while len(waiting) < threads + AHEAD and (task := next(left, None)) is not None:
                waiting.append(pool.submit(contextvars.copy_context().run, task, wanted))
            if not waiting:
                return
            yield from waiting.popleft().result().values
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


class Repeated:
    """A thread that calls ``work``, which must not raise, after ``pause`` seconds, again and again
    until it is stopped.
    """

    def __init__(self, work: Callable[[], None], pause: Callable[[], float], name: str) -> None:
        self._work = work
        self._pause = pause
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.stopped.wait(self._pause()):
            self._work()

    def stop(self) -> None:
        self.stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
