"""Where partners of some rows can lie: ranges of time, for all partitions or of single keys.

Purpose
    The regions of the live rows found say where archive rows matter, and the other way round.  What
    DejaVu keeps in a result cache is their union here: however regions overlap, each event of the
    other side is read once (its equation 2).

Layout
    ::

        live rows      [ts ... te]            archive rows lie in   [te - P, te - 1]
        archive rows   [ts ... te]            live rows lie in      [ts + 1, ts + P]

Guarantee
    All events of any partner lie in one region.  Bounds are inclusive and do not wrap.
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

__all__ = ["Regions", "factor_of", "regions_for_archive", "regions_for_live", "regions_of_spans"]

Ints = npt.NDArray[np.int64]


@kernel
def _furthest(key, high, reach):  # type: ignore[no-untyped-def]
    """The greatest end so far among the ranges of each key."""
    for i in range(key.shape[0]):
        reach[i] = high[i]
        if i and key[i] == key[i - 1] and reach[i - 1] > high[i]:
            reach[i] = reach[i - 1]


@dataclass(frozen=True)
class Regions:
    """Disjoint ranges of ticks, in order.

    Attributes
    ----------
    low, high : int64[n]
        Inclusive; by key and time, or by time where there are no keys.
    key : int64[n]
        Code of the key; all 0 where there are no keys.
    columns : tuple of str
        Columns of the side that is read which tell its keys apart; none: regions are for all.
    values : tuple of pyarrow.Array
        Of these columns, by code.
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
        """The union of ranges in any order; empty ones are left out."""
        key = np.zeros(len(low), np.int64) if key is None else key
        kept = low <= high
        low, high, key = low[kept], high[kept], key[kept]
        if not len(low):
            return cls(low, high, key, columns, values)
        order = order_of(low, key)
        low, high, key = low[order], high[order], key[order]
        reach = np.empty_like(high)
        _furthest(key, high, reach)
        new = np.ones(len(low), np.bool_)  # a range begins: it does not touch the one before
        new[1:] = (low[1:] > moved(reach[:-1], 1)) | (key[1:] != key[:-1])
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(low)) - 1
        return cls(low[first], reach[last], key[first], columns, values)

    def hull(self) -> Regions:
        """The same for all keys."""
        return self if not self.columns else Regions.of(self.low, self.high)

    def widened(self, before: int, after: int) -> Regions:
        """Each range longer by so many ticks."""
        low = moved(self.low, -before)
        return Regions.of(low, moved(self.high, after), self.key, self.columns, self.values)

    def coarser(self, factor: int) -> Regions:
        """The same in ticks of which each is so many of these."""
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
    """Low, high and key of where the archive rows of live rows lie."""
    rows = live.taking_part()
    end = live.end[rows]
    return back(end, distance), moved(end, -1), live.key[rows]


def regions_for_live(archive: Events, distance: int | None) -> tuple[Ints, Ints, Ints]:
    """Low, high and key of where the live rows of archive rows lie."""
    rows = archive.taking_part()
    start = archive.start[rows]
    return moved(start, 1), ahead(start, distance), archive.key[rows]


def regions_of_spans(
    intervals: ReplayIntervals, timeline: Timeline, distance: int | None, for_archive: bool
) -> Regions:
    """Where partners of the matches in replay intervals can lie, before any of them is found.

    Parameters
    ----------
    for_archive : bool
        Whether the partners are archive rows, and the intervals those of the live side.
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
