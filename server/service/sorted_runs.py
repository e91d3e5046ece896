"""Runs of events in time order, out of the batches of one staged part.

Purpose
    A segment is written from left to right.  :func:`runs_in_order` gives a part's events as runs,
    each in time order; what comes in order passes through, the rest is sorted as much as fits into
    memory.

Guarantee
    Every event is in one run; those of equal time keep their order within a run, and runs come in
    the order in which their events did.

Limits
    Input without any order becomes a run for each ``memory_bytes``; they are merged when they are
    read, until compaction.  Sort large parts before sending them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["runs_in_order"]


class _Group(NamedTuple):
    batches: list[pa.RecordBatch]
    first: int
    last: int


def runs_in_order(
    batches: Iterator[pa.RecordBatch], time: str, memory_bytes: int
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Split batches into runs; each is read to its end before the next is asked for.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
    time : str
        Name of the time column: a timestamp or int64, without nulls.
    memory_bytes : int
        Bytes of events that are sorted at a time.
    """
    groups = _groups(batches, time, memory_bytes)
    pending = next(groups, None)

    def run() -> Iterator[pa.RecordBatch]:
        nonlocal pending
        last = None
        while pending is not None and (last is None or pending.first >= last):
            last = pending.last
            yield from pending.batches
            pending = next(groups, None)

    while pending is not None:
        yield run()


def _groups(batches: Iterator[pa.RecordBatch], time: str, memory_bytes: int) -> Iterator[_Group]:
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    last: int | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if not held:
            ticks = batch.column(time).cast(pa.int64()).to_numpy()
            first = int(ticks[0])
            if (last is None or first >= last) and bool(np.all(ticks[1:] >= ticks[:-1])):
                last = int(ticks[-1])
                yield _Group([batch], first, last)
                continue
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= memory_bytes:
            group = _sorted(held, time)
            last = group.last
            yield group
            held, held_bytes = [], 0
    if held:
        yield _sorted(held, time)


def _sorted(batches: list[pa.RecordBatch], time: str) -> _Group:
    table = pa.Table.from_batches(batches)
    ticks = table.column(time).cast(pa.int64())
    order = np.argsort(ticks.to_numpy(), kind="stable")
    bounds = pc.min_max(ticks)
    return _Group(
        table.take(pa.array(order)).to_batches(), bounds["min"].as_py(), bounds["max"].as_py()
    )
