"""Sets of positions as sorted, disjoint, half-open spans: union, intersection, dilation.

Purpose
    Replay intervals are such sets.  Everything here is vectorised over ``int64[n]`` starts and
    ends.

Invariants
    ``starts[i] < ends[i] <= starts[i + 1]``; neighbours that touch are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.sorting import order_of, places_in

__all__ = ["Spans"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """See the module."""

    starts: Ints
    ends: Ints

    @classmethod
    def empty(cls) -> Spans:
        """No position."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of(cls, starts: Ints | Sequence[int], ends: Ints | Sequence[int], gap: int = 0) -> Spans:
        """From spans in any order; those at most ``gap`` apart are joined, empty ones left out."""
        first = np.asarray(starts, np.int64)
        last = np.asarray(ends, np.int64)
        kept = last > first
        if not kept.all():
            first, last = first[kept], last[kept]
        if first.size == 0:
            return cls.empty()
        if np.any(first[1:] < first[:-1]):
            order = order_of(first)
            first, last = first[order], last[order]
        reach = np.maximum.accumulate(last)
        breaks = np.flatnonzero(first[1:] > reach[:-1] + gap)
        return cls(
            first[np.concatenate(([0], breaks + 1))],
            reach[np.concatenate((breaks, [first.size - 1]))],
        )

    @property
    def total(self) -> int:
        """Number of positions."""
        return int((self.ends - self.starts).sum())

    def __len__(self) -> int:
        return len(self.starts)

    def joined(self, gap: int) -> Spans:
        """Spans at most ``gap`` apart made one."""
        return Spans.of(self.starts, self.ends, gap)

    def union(self, other: Spans) -> Spans:
        """Positions in either."""
        if not len(other):
            return self
        if not len(self):
            return other
        return Spans.of(
            np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends])
        )

    def intersect(self, other: Spans) -> Spans:
        """Positions in both."""
        if not len(self) or not len(other):
            return Spans.empty()
        first = places_in(other.ends, self.starts, "right")
        last = places_in(other.starts, self.ends)
        counts = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(len(self)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        theirs = first[mine] + within
        return Spans.of(
            np.maximum(self.starts[mine], other.starts[theirs]),
            np.minimum(self.ends[mine], other.ends[theirs]),
        )

    def complement(self, total: int) -> Spans:
        """Positions in [0, total) that are not in the set."""
        return Spans.of(np.concatenate(([0], self.ends)), np.concatenate((self.starts, [total])))

    def minus(self, other: Spans) -> Spans:
        """Positions that are not in another set."""
        if not len(self) or not len(other):
            return self
        return self.intersect(other.complement(int(max(self.ends[-1], other.ends[-1]))))

    def clip(self, low: int, high: int) -> Spans:
        """Positions in [low, high)."""
        return Spans.of(np.maximum(self.starts, low), np.minimum(self.ends, high))

    def touches(self, other: Spans) -> npt.NDArray[np.bool_]:
        """For each span whether it has a position in common with the other set."""
        if not len(other) or not len(self):
            return np.zeros(len(self), np.bool_)
        at = places_in(other.ends, self.starts, "right")
        inside = at < len(other)
        result: npt.NDArray[np.bool_] = inside & (
            other.starts[np.minimum(at, len(other) - 1)] < self.ends
        )
        return result
