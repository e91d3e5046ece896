"""Ranges of ticks, and those that a commit's events are in (``recent`` keeps them)::

    position    late events, by ranges of ticks     in order, first and last tick
    17          -                                   1000 .. 1040
    18          (310, 310) (955, 960)               1040 .. 1052
    19          (12, 12)                            -

The ranges cover the events and may be wider: above ``RANGES_MAX`` late ticks of one commit near
ones are merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Spans = tuple[tuple[int, int], ...]
"""Inclusive ranges of ticks, disjoint and ascending."""

RANGES_MAX = 64


@dataclass(frozen=True, slots=True)
class Arrival:
    """Ticks of the commits after ``since`` up to ``position``: ranges of late events, and the
    others'.
    """

    since: int
    position: int
    late: Spans
    fresh: tuple[int, int] | None
    late_events: int = 0

    @property
    def spans(self) -> Spans:
        return self.late if self.fresh is None else (*self.late, self.fresh)


def tick_ranges(ticks: npt.NDArray[np.int64]) -> Spans:
    """Ranges that cover ascending ticks: one per tick, or fewer, cut at the widest gaps."""
    if not len(ticks):
        return ()
    distinct = ticks[np.concatenate(([True], ticks[1:] != ticks[:-1]))]
    return covering(distinct, distinct)


def disjoint(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping inclusive ranges joined, in order."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def united(spans: Spans) -> Spans:
    """At most ``RANGES_MAX`` disjoint ranges that cover some overlapping ones."""
    return spans if len(spans) < 2 else merged(*np.array(spans, np.int64).T)


def merged(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> Spans:
    """As ``united``, of ranges in arrays."""
    order = first.argsort()
    first, ends = first[order], np.maximum.accumulate(last[order])
    begins = np.flatnonzero(first[1:] > ends[:-1]) + 1
    return covering(
        np.concatenate((first[:1], first[begins])), np.concatenate((ends[begins - 1], ends[-1:]))
    )


def covering(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> Spans:
    """At most ``RANGES_MAX`` ranges that cover some ascending, disjoint ones."""
    if len(first) > RANGES_MAX:
        # unsigned: a gap may need all 64 bits
        gaps = first[1:].view(np.uint64) - last[:-1].view(np.uint64)
        widest = np.sort(np.argpartition(gaps, -(RANGES_MAX - 1))[-(RANGES_MAX - 1) :])
        first = np.concatenate((first[:1], first[widest + 1]))
        last = np.concatenate((last[widest], last[-1:]))
    return tuple(zip(first.tolist(), last.tolist(), strict=True))


def joined(arrivals: list[Arrival]) -> Arrival:
    """Commits that follow each other as one."""
    fresh = [each.fresh for each in arrivals if each.fresh is not None]
    hull = (min(first for first, _ in fresh), max(last for _, last in fresh)) if fresh else None
    late = united(tuple(span for each in arrivals for span in each.late))
    count = sum(each.late_events for each in arrivals)
    return Arrival(arrivals[0].since, arrivals[-1].position, late, hull, count)
