"""Progress of long operations: ``each`` reports items to the callback of ``watched_by``, if any.

An exception of the callback ends the work between two items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")


class _Watch:
    def __init__(self, tell: Callable[[float], None]) -> None:
        self.tell = tell
        self.loops: list[tuple[int, int]] = []

    @property
    def done(self) -> float:
        share, width = 0.0, 1.0
        for done, count in self.loops:
            share += width * done / count
            width /= count
        return share


_watch: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched_by(tell: Callable[[float], None]) -> Iterator[None]:
    """Call ``tell`` with the share of the block's work that is done, before each item."""
    token = _watch.set(_Watch(tell))
    try:
        yield
    finally:
        _watch.reset(token)


def each(items: Sequence[Item]) -> Iterator[Item]:
    """Iterate over the items; inner loops count as part of an item."""
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
