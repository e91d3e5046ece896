"""Joins events with their windows (one row per window), where windows cannot be built from slices.
Cost: rows times ``size / slide``, ``ROWS_AT_ONCE`` at a time.  Events of count windows wait until
the window is complete; incomplete windows are omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...store.segment import counted
from ...store.tail import ticks_of_column
from .aggregation import times_array
from .spec import TICK_MAX, Calendar, CountWindows, TimeWindows

Words = npt.NDArray[np.int64]
Batches = Iterable[pa.RecordBatch]

ROWS_AT_ONCE = 1 << 16


def _spread(counts: Words, check: Callable[[], None]) -> Iterator[tuple[Words, Words]]:
    """Repeat row i ``counts[i]`` times; yields (rows, index of the repetition) in pieces."""
    if counts.size > 1 and int(counts.max()) > TICK_MAX // counts.size:
        # the total may not fit 64 bits, but each row does
        for row in range(counts.size):
            for rows, before in _spread(counts[row : row + 1], check):
                yield rows + row, before
        return
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    starts = ends - counts
    for first in range(0, total, ROWS_AT_ONCE):
        check()
        places = np.arange(first, min(first + ROWS_AT_ONCE, total))
        rows = np.searchsorted(ends, places, "right")
        yield rows, places - starts[rows]


def with_bounds(
    batch: pa.RecordBatch,
    rows: Words,
    ids: Words | None,
    start: Words,
    end: Words,
    columns: Sequence[str],
    time_type: pa.DataType,
) -> pa.RecordBatch:
    made = {
        "window_start": lambda: times_array(start, time_type),
        "window_end": lambda: times_array(end, time_type),
    }
    if ids is not None:
        made["window_id"] = lambda: pa.array(ids)
    picked = batch.take(pa.array(rows))
    arrays, names = [], []
    for name in columns:
        build = made.get(name)
        arrays.append(build() if build else picked.column(picked.schema.get_field_index(name)))
        names.append(name)
    if not arrays:
        return counted(len(rows))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def expand_times(
    batches: Batches,
    windows: TimeWindows | Calendar,
    time: str,
    columns: Sequence[str],
    check: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        column = batch.column(batch.schema.get_field_index(time))
        first, last = windows.windows_of(ticks_of_column(column))
        for rows, nth in _spread(last - first + 1, check):
            start, end = windows.bounds(first[rows] + nth)
            yield with_bounds(batch, rows, None, start, end, columns, column.type)


def expand_counts(
    batches: Batches,
    ahead: Batches,
    windows: CountWindows,
    time: str,
    columns: Sequence[str],
    check: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    """One row per event and complete count window; ``ahead``: the same events, time only."""
    clock = _Clock(ahead, time)
    size, slide = windows.size, windows.slide
    position = 0
    for batch in batches:
        places = position + np.arange(batch.num_rows)
        position += batch.num_rows
        highest = places // slide
        lowest = np.maximum(0, -((size - 1 - places) // slide))
        final = int(highest[-1]) * slide + size if batch.num_rows else 0
        clock.read_to(final)
        complete = windows.complete(clock.events)
        highest = np.minimum(highest, complete - 1)
        time_type = batch.schema.field(time).type
        if batch.num_rows:
            clock.forget(int(lowest[0]) * slide)
        for rows, nth in _spread(np.maximum(0, highest - lowest + 1), check):
            ids = lowest[rows] + nth
            start = clock.ticks(ids * slide)
            end = clock.ticks(ids * slide + size - 1)
            yield with_bounds(batch, rows, ids, start, end, columns, time_type)


class _Clock:
    """Times of events by position: reads ahead, and forgets passed positions."""

    def __init__(self, batches: Batches, time: str) -> None:
        self._batches = iter(batches)
        self._time = time
        self._known = np.empty(0, np.int64)
        self._base = 0

    @property
    def events(self) -> int:
        return self._base + self._known.size

    def read_to(self, position: int) -> None:
        """Read until the event before ``position`` is known, or to the end."""
        pieces = [self._known]
        events = self.events
        while events < position:
            batch = next(self._batches, None)
            if batch is None:
                break
            pieces.append(ticks_of_column(batch.column(batch.schema.get_field_index(self._time))))
            events += batch.num_rows
        if len(pieces) > 1:
            self._known = np.concatenate(pieces)

    def forget(self, position: int) -> None:
        position = min(position, self.events)  # between two windows it is that of the next
        if position - self._base > self._known.size // 2:
            self._known = self._known[position - self._base :].copy()
            self._base = position

    def ticks(self, positions: Words) -> Words:
        ticks: Words = self._known[positions - self._base]
        return ticks
