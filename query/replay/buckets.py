"""Buckets: the entries just above the leaves, as a histogram of the stream over time.

Thesis section 3.4.3: each TAB+-tree leaf is a bucket with times, minima and maxima.  Only index
nodes are read; the zones of a leaf are in its header.

Memo keys contain all that values depend on except the snapshot and indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from ...core.caches import Lru
from ...store.layout import (
    ROW_ATTRIBUTES,
    ROW_COUNT,
    ROW_FIRST,
    ROW_LAST,
    ROWS_PER_ATTRIBUTE,
    ZONE_EVENTS,
)
from ...store.prune import Prune, Pruner
from .timeline import Timeline, TimelinePart

Value = TypeVar("Value")


MEMO_BYTES = 16 << 20
ENTRY_BYTES = 64 << 10
"""Least weight of a value."""


def _bytes_of(value: object) -> int:
    arrays = value if isinstance(value, tuple) else (value,)
    return max(ENTRY_BYTES, sum(getattr(array, "nbytes", 0) for array in arrays))


class PlanMemo:
    """Values that all plans over one state of a stream share; those used last, up to a weight."""

    def __init__(self, limit: int = MEMO_BYTES, weigh: Callable[[object], int] = _bytes_of) -> None:
        self._known = Lru[Hashable, object](limit, weigh)

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        value = self._known.get(key)
        if value is None:
            value = make()
            self._known.put(key, value)
        return cast(Value, value)

    def knows(self, key: Hashable) -> bool:
        return self._known.get(key) is not None


Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Buckets:
    """Buckets of one part of the timeline.  ``starts`` and ``ends``: positions; ``first`` and
    ``last``: inclusive ticks; ``table``: index entries as in ``chronicle.store.layout``, None for
    the tail.
    """

    part: TimelinePart
    starts: Ints
    ends: Ints
    first: Ints
    last: Ints
    table: Ints | None

    @classmethod
    def of(cls, part: TimelinePart) -> Buckets:
        """One bucket per leaf; one without statistics for the tail."""
        leaves = part.leaves
        if leaves is not None:
            starts = part.start + leaves.starts  # the first may begin before what is shown
            begins = np.maximum(starts[:-1], 0)
            return cls(
                part, begins, starts[1:], leaves.first_ticks, leaves.last_ticks, leaves.table
            )
        assert part.tail is not None
        one = [np.array([x]) for x in (part.start, part.end, part.tail.first, part.tail.last)]
        return cls(part, one[0], one[1], one[2], one[3], None)

    def may_satisfy(self, prune: Prune) -> Mask:
        if self.table is None:
            return np.ones(len(self.starts), np.bool_)
        assert self.part.view is not None
        return Pruner(prune, self.part.view.file.schema).mask(self.table)

    def zoned(self, chosen: Mask, columns: Collection[str] | None = None) -> Buckets:
        """With the zones of the chosen leaves in place of these leaves.  ``columns``: attributes to
        fill in (None: all); other rows of the table are left uninitialised.
        """
        leaves = self.part.leaves
        if self.table is None or leaves is None or not chosen.any():
            return self
        tables, starts = [], []
        stored = self.part.start + leaves.starts
        done = 0
        leaves.fetch(np.flatnonzero(chosen).tolist())
        for number in [*np.flatnonzero(chosen).tolist(), len(self.starts)]:
            if done < number:
                tables.append(self.table[:, done:number])
                starts.append(stored[done:number])
            if number < len(self.starts):
                zones = leaves.leaf(number).zones
                tables.append(zones)
                within = np.arange(zones.shape[1], dtype=np.int64) * ZONE_EVENTS
                starts.append(stored[number] + within)
            done = number + 1
        begins = np.concatenate(starts)
        table = np.empty((len(self.table), len(begins)), np.int64)
        for row in self._rows(columns):
            np.concatenate([part[row] for part in tables], out=table[row])
        ends = begins + table[ROW_COUNT]
        if begins[0] < 0:  # zones that retention hides
            shown = ends > 0
            begins, ends = np.maximum(begins[shown], 0), ends[shown]
            table = np.ascontiguousarray(table[:, shown])
        return Buckets(self.part, begins, ends, table[ROW_FIRST], table[ROW_LAST], table)

    def _rows(self, columns: Collection[str] | None) -> list[int]:
        assert self.table is not None
        assert self.part.view is not None
        if columns is None:
            return [*range(len(self.table))]
        schema = self.part.view.file.schema
        fields = [ROW_COUNT]
        if schema.time in columns:
            fields += [ROW_FIRST, ROW_LAST]
        for position, attribute in enumerate(schema.payload):
            if attribute.name in columns:
                first = ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * position
                fields += [first, first + 1, first + 2]
        return fields


class Histogram:
    """The buckets of all parts of a timeline; answers are cached and must not be modified."""

    def __init__(self, parts: Sequence[Buckets]) -> None:
        self.parts = parts
        self.starts = _side_by_side([part.starts for part in parts])
        self.ends = _side_by_side([part.ends for part in parts])
        self.first = _side_by_side([part.first for part in parts])
        self.last = _side_by_side([part.last for part in parts])
        self._memo, self._zoned = PlanMemo(), PlanMemo(2, lambda _: 1)

    @classmethod
    def of(cls, timeline: Timeline) -> Histogram:
        return cls([Buckets.of(part) for part in timeline.parts])

    def may_satisfy(self, prune: Prune | None) -> Mask:

        def asked() -> Mask:
            if prune is None:
                return np.ones(len(self.starts), np.bool_)
            return np.concatenate([part.may_satisfy(prune) for part in self.parts])

        return self._memo.once(("may satisfy", prune), asked)

    def reachable(
        self, within: int | None, longest: int | None, find: Callable[[], tuple[Ints, Ints]]
    ) -> tuple[Ints, Ints]:
        """What matches of a window can reach from each bucket, computed once per window."""
        return self._memo.once(("reachable", within, longest), find)

    def zoned(self, chosen: Mask) -> Histogram:

        def read() -> Histogram:
            parts, at = [], 0
            for part in self.parts:
                parts.append(part.zoned(chosen[at : at + len(part.starts)]))
                at += len(part.starts)
            return Histogram(parts)

        return self._zoned.once(chosen.tobytes(), read)


def _side_by_side(arrays: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *arrays])
