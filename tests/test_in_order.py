"""Tasks in threads, what they find in order."""

from __future__ import annotations

import contextvars
import itertools
import random
import threading
import time

import pytest

from chronicle.core.threads import AHEAD, Check, Done, Task, in_order


def gives(*found: int, seconds: float = 0) -> Task[int]:
    def run(check: Check) -> Done[int]:
        time.sleep(seconds)
        return Done(found)

    return run


def test_results_come_in_the_order_of_the_tasks_whichever_is_done_first() -> None:
    r = random.Random(5)
    tasks = [gives(2 * i, 2 * i + 1, seconds=r.random() / 200) for i in range(40)]
    assert [*in_order(tasks, 4, None)] == [*range(80)]
    assert [*in_order([], 4, None)] == []


def test_an_error_comes_where_its_results_would_have_come() -> None:
    def fails(check: Check) -> Done[int]:
        raise ValueError("no")

    stream = in_order([gives(1, seconds=0.02), gives(2), fails, gives(3)], 4, None)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ValueError, match="no"):
        next(stream)


def test_few_tasks_run_ahead_and_none_is_left() -> None:
    begun = itertools.count()
    last = 0

    def task(check: Check) -> Done[int]:
        nonlocal last
        last = next(begun)
        return Done([last])

    stream = in_order(itertools.repeat(task), 2, None)
    assert [next(stream) for _ in range(10)]
    time.sleep(0.05)
    assert last < 10 + 2 + AHEAD
    stream.close()  # type: ignore[attr-defined]
    assert not [t for t in threading.enumerate() if t.name.startswith("chronicle-part")]


def test_tasks_of_a_consumer_that_has_gone_end_at_their_check() -> None:
    begun, ended = threading.Event(), threading.Event()

    def first(check: Check) -> Done[int]:
        begun.wait()
        return Done([1])

    def endless(check: Check) -> Done[int]:
        begun.set()
        try:
            while True:
                check()
                time.sleep(0.001)
        finally:
            ended.set()

    stream = in_order([first, endless], 2, None)
    assert next(stream) == 1
    stream.close()  # type: ignore[attr-defined]
    assert ended.is_set()


def test_tasks_see_the_context_of_who_asks() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    def task(check: Check) -> Done[int]:
        return Done([variable.get()])

    variable.set(7)
    assert [*in_order([task] * 5, 2, None)] == [7] * 5
