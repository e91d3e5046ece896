"""The work of one answer in threads of this process, what comes of it in order.

Purpose
    :func:`in_order` runs tasks side by side and gives what they find task by task, whichever is
    done first.  A task that turns out too large gives what it has and further tasks, which take
    their turn where it stood::

        tasks     1        2                3
        found     a b      c, more: 4 5     f
        given     a b      c  d (of 4)  e (of 5)     f

Guarantee
    At most :data:`AHEAD` tasks more than there are threads have begun and are not taken yet, of
    every level, so that what waits is bounded.  A consumer that stops ends those that run at their
    next check, and no thread is left.  An error comes where what the task found would have come.
    Tasks see the context variables of the thread that asks for the results.

Limits
    Threads help where the work is done outside the interpreter's lock: kernels, NumPy, Arrow.
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

__all__ = ["Busy", "Check", "Done", "Task", "in_order", "processors"]

AHEAD = 1
Found = TypeVar("Found")
Check = Callable[[], None]


@dataclass(frozen=True)
class Done(Generic[Found]):
    """What a task found, and tasks that go on where it stopped."""

    found: Iterable[Found]
    more: Iterator[Task[Found]] | None = None


Task = Callable[[Check], Done[Found]]
"""Calls the check that it is given now and then: it raises when the result is not wanted."""


@dataclass
class Busy:
    """How threads were used.

    Attributes
    ----------
    threads : int
        Most that ran at a time.
    seconds : dict of int to float
        Processor time of each.
    """

    threads: int = 1
    seconds: dict[int, float] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        """Of a task, in the thread that ran it."""
        mine = threading.get_ident()
        self.seconds[mine] = self.seconds.get(mine, 0.0) + seconds

    @property
    def skew(self) -> float:
        """Time of the busiest thread over the mean; 1 where nothing was measured."""
        total = sum(self.seconds.values())
        return max(self.seconds.values()) * len(self.seconds) / total if total else 1.0


class _Stopped(Exception):
    """The consumer has gone."""


def processors() -> int:
    """How many threads are worth having."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    tasks: Iterable[Task[Found]], threads: int, check: Check | None, busy: Busy | None = None
) -> Iterator[Found]:
    """What tasks find, in their order.

    Parameters
    ----------
    tasks : iterable of callable
        Taken one by one, a little ahead of the results.
    threads : int
    check : callable, optional
        Called in every thread; may raise to end the whole.
    busy : Busy, optional
        Added to.
    """
    stopped = threading.Event()

    def wanted() -> None:
        if stopped.is_set():
            raise _Stopped
        if check is not None:
            check()

    def run(task: Task[Found]) -> Done[Found]:
        begun = time.thread_time()
        try:
            return task(wanted)
        finally:
            if busy is not None:
                busy.add(time.thread_time() - begun)

    if busy is not None:
        busy.threads = max(busy.threads, threads)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="chronicle-part")
    levels: list[tuple[Iterator[Task[Found]], deque[Future[Done[Found]]]]]
    levels = [(iter(tasks), deque())]
    try:
        while levels:
            left, waiting = levels[-1]
            while len(waiting) < threads + AHEAD and (task := next(left, None)) is not None:
                waiting.append(pool.submit(contextvars.copy_context().run, run, task))
            if not waiting:
                levels.pop()
                continue
            done = waiting.popleft().result()
            yield from done.found
            if done.more is not None:
                levels.append((done.more, deque()))
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)
