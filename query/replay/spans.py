"""Sets of positions as sorted, disjoint, half-open spans; all operations are vectorised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.sorting import order_of, places_in

Ints = npt.NDArray[np.int64]

READ_GAP = 2048
"""Events between two spans that are decoded rather than skipped: a seek costs about as much."""


@dataclass(frozen=True)
class Spans:
    """Invariant: ``starts[i] < ends[i] <= starts[i + 1]``; ``of`` merges spans that touch."""

    starts: Ints
    ends: Ints

    @classmethod
    def empty(cls) -> Spans:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of(cls, starts: Ints | Sequence[int], ends: Ints | Sequence[int], gap: int = 0) -> Spans:
        """From spans in any order; those at most ``gap`` apart are merged, empty ones dropped."""
        first = np.asarray(starts, np.int64)
        last = np.asarray(ends, np.int64)
        filled = last > first
        if not filled.all():
            first, last = first[filled], last[filled]
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
        return int((self.ends - self.starts).sum())

    def __len__(self) -> int:
        return len(self.starts)

    def positions(self, first: int, most: int) -> Iterator[Ints]:
        """The positions in ascending pieces, of ``first`` and then of at most ``most`` each."""
        behind = np.cumsum(self.ends - self.starts)
        shift = self.starts - (behind - (self.ends - self.starts))
        at, size, total = 0, first, self.total
        while at < total:
            stop = min(total, at + size)
            low, high = np.searchsorted(behind, [at, stop - 1], side="right").tolist()
            counts = np.diff(np.clip(behind[low : high + 1], at, stop), prepend=at)
            yield np.arange(at, stop) + np.repeat(shift[low : high + 1], counts)
            at, size = stop, most

    def joined(self, gap: int) -> Spans:
        return Spans.of(self.starts, self.ends, gap)

    def union(self, other: Spans) -> Spans:
        if not len(other):
            return self
        if not len(self):
            return other
        return Spans.of(
            np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends])
        )

    def intersect(self, other: Spans) -> Spans:
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
        return Spans.of(np.concatenate(([0], self.ends)), np.concatenate((self.starts, [total])))

    def minus(self, other: Spans) -> Spans:
        if not len(self) or not len(other):
            return self
        return self.intersect(other.complement(int(max(self.ends[-1], other.ends[-1]))))

    def clip(self, low: int, high: int) -> Spans:
        return Spans.of(np.maximum(self.starts, low), np.minimum(self.ends, high))

    def touches(self, other: Spans) -> npt.NDArray[np.bool_]:
        """For each span whether it overlaps the other set."""
        if not len(other) or not len(self):
            return np.zeros(len(self), np.bool_)
        at = places_in(other.ends, self.starts, "right")
        inside = at < len(other)
        result: npt.NDArray[np.bool_] = inside & (
            other.starts[np.minimum(at, len(other) - 1)] < self.ends
        )
        return result
