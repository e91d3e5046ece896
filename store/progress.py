"""How far long work has come, for who watches it, and may end it.

Purpose
    A backup, a check or a compaction goes over streams and their segments.  It says so by iterating
    with :func:`each`; who has it done within :func:`watched_by` is told before every item.

Guarantee
    Without a watcher :func:`each` gives the items and does nothing else.  What a watcher raises
    ends the work between two items, as an error of the work itself would.

Limits
    A watcher sees the work of its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["each", "watched_by"]

Item = TypeVar("Item")


class _Watch:
    """Who is told, and where the work is: of each loop around it, items done and items in all."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self.tell = tell
        self.loops: list[tuple[int, int]] = []

    @property
    def done(self) -> float:
        """The share of the work that is done, 0 to 1; items count alike."""
        share, width = 0.0, 1.0
        for done, count in self.loops:
            share += width * done / count
            width /= count
        return share


_watch: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched_by(tell: Callable[[float], None]) -> Iterator[None]:
    """Have the work of a block told: the share that is done, before each item."""
    token = _watch.set(_Watch(tell))
    try:
        yield
    finally:
        _watch.reset(token)


def each(items: Sequence[Item]) -> Iterator[Item]:
    """The items, one after the other; loops within one are a share of it."""
    watch = _watch.get()
    if watch is None:
        yield from items
        return
    watch.loops.append((0, max(1, len(items))))
    depth = len(watch.loops)
    try:
        for number, item in enumerate(items):
            watch.loops[depth - 1 :] = [(number, len(items))]
            watch.tell(watch.done)
            yield item
    finally:
        del watch.loops[depth - 1 :]
