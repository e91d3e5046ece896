"""Where partners of some rows can lie: ranges of time, for all partitions or single keys::

    live rows      [ts ... te]            archive rows lie in   [te - P, te - 1]
    archive rows   [ts ... te]            live rows lie in      [ts + 1, ts + P]

The union replaces DejaVu's result cache: each event of the other side is read once, however regions
overlap (its equation 2).  Bounds are inclusive and saturate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.sorting import order_of
from ...core.times import INT64_MAX, INT64_MIN, TICKS_PER_SECOND, moved
from ..replay.replay_plan import ReplayIntervals
from ..replay.timeline import Timeline
from .pairs import Events, ahead, back

Ints = npt.NDArray[np.int64]


@kernel
def _furthest(key, high, reach):  # type: ignore[no-untyped-def]
    """The running maximum of ends among the ranges of each key."""
    for i in range(key.shape[0]):
        reach[i] = high[i]
        if i and key[i] == key[i - 1] and reach[i - 1] > high[i]:
            reach[i] = reach[i - 1]


@dataclass(frozen=True)
class Regions:
    """Disjoint, inclusive tick ranges, by key and time.  ``key``: codes (0 without keys);
    ``columns`` and ``values``: key columns of the side that is read, and their values by code.
    """

    low: Ints
    high: Ints
    key: Ints
    columns: tuple[str, ...] = ()
    values: tuple[pa.Array, ...] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.low)

    @classmethod
    def of(
        cls,
        low: Ints,
        high: Ints,
        key: Ints | None = None,
        columns: tuple[str, ...] = (),
        values: tuple[pa.Array, ...] = (),
    ) -> Regions:
        """The union of ranges in any order; empty ones are dropped."""
        key = np.zeros(len(low), np.int64) if key is None else key
        kept = low <= high
        low, high, key = low[kept], high[kept], key[kept]
        if not len(low):
            return cls(low, high, key, columns, values)
        order = order_of(low, key)
        low, high, key = low[order], high[order], key[order]
        reach = np.empty_like(high)
        _furthest(key, high, reach)
        new = np.ones(len(low), np.bool_)  # starts of merged ranges
        new[1:] = (low[1:] > moved(reach[:-1], 1)) | (key[1:] != key[:-1])
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(low)) - 1
        return cls(low[first], reach[last], key[first], columns, values)

    def hull(self) -> Regions:
        return self if not self.columns else Regions.of(self.low, self.high)

    def widened(self, before: int, after: int) -> Regions:
        low = moved(self.low, -before)
        return Regions.of(low, moved(self.high, after), self.key, self.columns, self.values)

    def coarser(self, factor: int) -> Regions:
        """The regions in ticks that are ``factor`` times as long."""
        if factor == 1:
            return self
        low = np.where(self.low == INT64_MIN, INT64_MIN, -(-self.low // factor))
        high = np.where(self.high == INT64_MAX, INT64_MAX, self.high // factor)
        return Regions.of(low, high, self.key, self.columns, self.values)


def factor_of(type_: pa.DataType, unit: pa.DataType) -> int:
    """Ticks of a finer unit in one of a type of time."""
    if not pa.types.is_timestamp(type_):
        return 1
    return TICKS_PER_SECOND[unit.unit] // TICKS_PER_SECOND[type_.unit]


def regions_for_archive(live: Events, distance: int | None) -> tuple[Ints, Ints, Ints]:
    rows = live.taking_part()
    end = live.end[rows]
    return back(end, distance), moved(end, -1), live.key[rows]


def regions_for_live(archive: Events, distance: int | None) -> tuple[Ints, Ints, Ints]:
    rows = archive.taking_part()
    start = archive.start[rows]
    return moved(start, 1), ahead(start, distance), archive.key[rows]


def regions_of_spans(
    intervals: ReplayIntervals, timeline: Timeline, distance: int | None, for_archive: bool
) -> Regions:
    """Where partners of the matches in replay intervals can lie, before any match is known.
    ``for_archive``: the partners are archive rows.
    """
    spans = intervals.spans
    if not len(spans):
        return Regions.of(np.zeros(0, np.int64), np.zeros(0, np.int64))
    low, high = timeline.ticks_at(spans.starts), timeline.ticks_at(spans.ends - 1)
    for number, (first, last) in intervals.by_time.items():
        low[number], high[number] = min(low[number], first), max(high[number], last)
    if not for_archive:
        return Regions.of(low, ahead(high, distance))
    return Regions.of(back(low, distance), high)
