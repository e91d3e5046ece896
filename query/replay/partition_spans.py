"""Intervals of single partitions: which rows of which partition a pattern query replays.

One number per event, so that ``Spans`` does the set algebra; no span crosses a partition's end::

    place = code * stride + position          stride > every position

    partition 0        partition 1        partition 2
    |...xxx.....xx...||....xxxxx.......||xx..............|     sorted, disjoint spans
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.sorting import distinct, order_of
from ...core.times import moved
from .partition_keys import PartitionKeys
from .spans import Spans
from .timeline import Timeline

__all__ = ["PartitionSpans", "RowFlags", "positions", "ranks", "united_partitions"]

Ints = npt.NDArray[np.int64]


@kernel
def _flag_rows(codes, base, stride, lows, highs, cursor, stops, flags, value):  # type: ignore[no-untyped-def]
    """Set ``flags[i]`` where row ``base + i`` lies in a span of its partition; return how many."""
    count = 0
    for i in range(codes.shape[0]):
        code = codes[i]
        if code < 0:
            continue
        place = code * stride + base + i
        j = cursor[code]
        stop = stops[code]
        while j < stop and highs[j] <= place:
            j += 1
        cursor[code] = j
        if j < stop and lows[j] <= place:
            flags[i] = value
            count += 1
    return count


@kernel
def _flag_places(codes, at, stride, lows, highs, cursor, stops, flags, value):  # type: ignore[no-untyped-def]
    """``_flag_rows`` for the rows ``at[i]``."""
    for i in range(codes.shape[0]):
        code = codes[i]
        if code < 0:
            continue
        place = code * stride + at[i]
        j = cursor[code]
        stop = stops[code]
        while j < stop and highs[j] <= place:
            j += 1
        cursor[code] = j
        if j < stop and lows[j] <= place:
            flags[i] = value


@dataclass(frozen=True)
class PartitionSpans:
    """Places that may be part of a match (``inside``), and those only around them (``shown``).  The
    two may overlap; ``keys`` numbers the partitions.
    """

    keys: PartitionKeys
    inside: Spans
    shown: Spans
    stride: int

    @classmethod
    def of(
        cls, keys: PartitionKeys, codes: Ints, low: Ints, high: Ints, stride: int
    ) -> PartitionSpans:
        """From ranges [low, high) of partitions, in any order."""
        at = codes * stride
        return cls(keys, Spans.of(at + low, at + high), Spans.empty(), stride)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.keys.columns

    @property
    def partitions(self) -> int:
        return len(distinct(self.inside.starts // self.stride))

    def hull(self) -> Spans:
        both = self.inside.union(self.shown)
        base = both.starts // self.stride * self.stride
        return Spans.of(both.starts - base, both.ends - base)

    def whole_ticks(self, timeline: Timeline) -> PartitionSpans:
        base = self.inside.starts // self.stride * self.stride
        low, high = self.inside.starts - base, self.inside.ends - base
        order = order_of(low)
        low[order] = timeline.lower(timeline.ticks_at(low[order]))
        order = order_of(high)
        high[order] = timeline.upper(timeline.ticks_at(high[order] - 1))
        return PartitionSpans(self.keys, Spans.of(base + low, base + high), self.shown, self.stride)

    def bridged(self, timeline: Timeline, within: int, others: Spans) -> PartitionSpans:
        """Without gaps shorter than the window, across which rows would look like neighbours."""
        code = self.inside.starts // self.stride
        low, high = self.inside.starts - code * self.stride, self.inside.ends - code * self.stride
        after = np.full(len(code), self.stride, np.int64)  # where the next rows are
        after[:-1][code[1:] == code[:-1]] = low[1:][code[1:] == code[:-1]]
        at = np.searchsorted(others.starts, high)
        after = np.minimum(after, np.append(others.starts, self.stride)[at])
        order = order_of(high)
        reach = np.empty(len(code), np.int64)
        reach[order] = timeline.upper(moved(timeline.ticks_at(high[order] - 1), within))
        high = np.where(after < reach, after, high)
        at = np.searchsorted(others.ends, low, side="right") - 1
        before = np.append(others.ends, 0)[at]
        order = order_of(low)
        reach[order] = timeline.lower(moved(timeline.ticks_at(low[order]), -within))
        low = np.where((at >= 0) & (before > reach), before, low)
        base = code * self.stride
        return PartitionSpans(self.keys, Spans.of(base + low, base + high), self.shown, self.stride)

    def intersect(self, positions: Spans) -> PartitionSpans:
        code = self.inside.starts // self.stride
        first = np.searchsorted(positions.ends, self.inside.starts - code * self.stride, "right")
        last = np.searchsorted(positions.starts, self.inside.ends - code * self.stride, "left")
        counts = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(len(code)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        theirs = first[mine] + within
        at = code[mine] * self.stride
        low = np.maximum(self.inside.starts[mine], at + positions.starts[theirs])
        high = np.minimum(self.inside.ends[mine], at + positions.ends[theirs])
        return PartitionSpans(self.keys, Spans.of(low, high), self.shown, self.stride)


def united_partitions(found: Sequence[PartitionSpans]) -> PartitionSpans:
    """The union of several sets, which may number their partitions differently."""
    first = found[0].keys
    if all(some.keys is first for some in found):
        inside, shown = Spans.empty(), Spans.empty()
        for some in found:
            inside, shown = inside.union(some.inside), shown.union(some.shown)
        return PartitionSpans(first, inside, shown, found[0].stride)
    keys = copy.copy(first)
    places = np.concatenate([some.keys.places for some in found])
    order = order_of(places)
    codes = np.empty(len(places), np.int64)
    codes[order] = keys.learn(places[order])
    others = {id(some.keys): some.keys.events_read for some in found if some.keys is not first}
    keys.events_read += sum(others.values())
    sets: list[Spans] = []
    stride, begin = found[0].stride, 0
    for some in found:
        code_of = codes[begin : begin + some.keys.count] * stride
        begin += some.keys.count
        for spans in (some.inside, some.shown):
            own = spans.starts // stride
            moved = code_of[own] - own * stride
            sets.append(Spans.of(spans.starts + moved, spans.ends + moved))
    inside, shown = Spans.empty(), Spans.empty()
    for one, other in zip(sets[::2], sets[1::2], strict=True):
        inside, shown = inside.union(one), shown.union(other)
    return PartitionSpans(keys, inside, shown, stride)


class RowFlags:
    """Flags rows by ascending position: 2 inside, 1 shown, 0 neither."""

    def __init__(self, spans: PartitionSpans) -> None:
        self._stride = spans.stride
        edges = np.arange(spans.keys.count + 1) * spans.stride
        self._sets = []
        for value, some in ((1, spans.shown), (2, spans.inside)):
            if len(some):
                at = np.searchsorted(some.starts, edges).astype(np.int64)
                self._sets.append((value, some, at[:-1].copy(), at[1:]))

    def at(self, codes: Ints, positions: Ints) -> npt.NDArray[np.uint8]:
        flags = np.zeros(len(codes), np.uint8)
        for value, some, cursor, stops in self._sets:
            _flag_places(
                codes, positions, self._stride, some.starts, some.ends, cursor, stops, flags, value
            )
        return flags

    def of(self, codes: Ints, first: int) -> npt.NDArray[np.uint8]:
        """Flags of the rows from a position on, given the codes of their partitions."""
        flags = np.zeros(len(codes), np.uint8)
        for value, some, cursor, stops in self._sets:
            _flag_rows(
                codes, first, self._stride, some.starts, some.ends, cursor, stops, flags, value
            )
        return flags


@kernel
def _count_rows(codes, base, counts, wanted, wanted_codes, at, out):  # type: ignore[no-untyped-def]
    """Advance through rows; answer queries (position, code), sorted by position, from ``at`` on."""
    size = wanted.shape[0]
    for i in range(codes.shape[0]):
        while at < size and wanted[at] <= base + i:
            out[at] = counts[wanted_codes[at]]
            at += 1
        if codes[i] >= 0:
            counts[codes[i]] += 1
    return at


@kernel
def _place_rows(codes, base, counts, wanted, cursor, stops, out):  # type: ignore[no-untyped-def]
    """Advance through rows; answer queries for the row of a rank, sorted by (code, rank)."""
    for i in range(codes.shape[0]):
        code = codes[i]
        if code < 0:
            continue
        j = cursor[code]
        while j < stops[code] and wanted[j] <= counts[code]:
            out[j] = base + i
            j += 1
        cursor[code] = j
        counts[code] += 1


def ranks(keys: PartitionKeys, total: int, codes: Ints, places: Ints) -> Ints:
    """How many events of its partition lie before each position."""
    order = order_of(places)
    wanted, wanted_codes = places[order], codes[order]
    counts, found = np.zeros(max(1, keys.count), np.int64), np.zeros(len(order), np.int64)
    at = 0
    for base, some in keys.pieces(0, total):
        at = _count_rows(some, base, counts, wanted, wanted_codes, at, found)
    found[at:] = counts[wanted_codes[at:]]
    out = np.empty(len(order), np.int64)
    out[order] = found
    return out


def positions(keys: PartitionKeys, total: int, codes: Ints, rank: Ints) -> Ints:
    """Position of the event with ``rank`` events of its partition before it, or -1."""
    order = order_of(rank, codes)
    wanted, edges = rank[order], np.arange(keys.count + 1)
    at = np.searchsorted(codes[order], edges).astype(np.int64)
    cursor = at[:-1].copy()
    found = np.full(len(order), -1, np.int64)
    counts = np.zeros(max(1, keys.count), np.int64)
    for base, some in keys.pieces(0, total):
        _place_rows(some, base, counts, wanted, cursor, at[1:], found)
    found[wanted < 0] = -1
    out = np.empty(len(order), np.int64)
    out[order] = found
    return out
