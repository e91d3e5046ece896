"""A tap of commits: the time ranges of each commit's events, for followers in this process.

A live query reads a stream in time order, behind a watermark, and must know which commits brought
events before it, and where.  A tap also keeps the late events of the latest commits, if few::

    position    late events, by ranges of ticks     in order, first and last tick
    17          -                                   1000 .. 1040
    18          (310, 310) (955, 960)               1040 .. 1052
    19          (12, 12)                            -

Guarantee: every commit is noted before readers see it.  The ranges cover its events and may be
wider: above ``RANGES_MAX`` late ticks of one commit near ones are merged, above ``ARRIVALS_MAX``
commits the oldest ones are.  At most ``EVENTS_MAX`` late events are kept, none of bulk commits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Spans = tuple[tuple[int, int], ...]
"""Inclusive ranges of ticks, disjoint and ascending."""

RANGES_MAX = 64
ARRIVALS_MAX = 4096
EVENTS_MAX = 1 << 16


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
    return _covering(distinct, distinct)


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
    if len(spans) < 2:
        return spans
    ordered = np.array(sorted(spans), np.int64)
    ends = np.maximum.accumulate(ordered[:, 1])
    cut = np.concatenate(([True], ordered[1:, 0] > ends[:-1]))
    begins = np.flatnonzero(cut)
    return _covering(ordered[begins, 0], ends[np.append(begins[1:], len(ordered)) - 1])


def _covering(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> Spans:
    if len(first) > RANGES_MAX:
        # unsigned: a gap may need all 64 bits
        gaps = first[1:].view(np.uint64) - last[:-1].view(np.uint64)
        widest = np.sort(np.argpartition(gaps, -(RANGES_MAX - 1))[-(RANGES_MAX - 1) :])
        first = np.concatenate((first[:1], first[widest + 1]))
        last = np.concatenate((last[widest], last[-1:]))
    return tuple(zip(first.tolist(), last.tolist(), strict=True))


class CommitTap:
    def __init__(self, position: int) -> None:
        self._lock = threading.Lock()
        self._begun = position
        self._arrivals: deque[Arrival] = deque()
        self._held: deque[tuple[int, pa.RecordBatch]] = deque()
        """Positions and late events of the commits after ``_held_from``."""
        self._held_from = position
        self._held_events = 0

    def note(self, arrival: Arrival, events: pa.RecordBatch | None = None) -> None:
        """Add a commit, in the order of positions, with its late events if available."""
        with self._lock:
            self._arrivals.append(arrival)
            if arrival.late:
                self._hold(arrival.position, events)
            if len(self._arrivals) > ARRIVALS_MAX:
                oldest = [self._arrivals.popleft() for _ in range(ARRIVALS_MAX // 2)]
                self._arrivals.appendleft(_joined(oldest))

    def _hold(self, position: int, events: pa.RecordBatch | None) -> None:
        if events is None or events.num_rows > EVENTS_MAX:
            self._held_from = position
            self._let_go(position)
            return
        # a copy, or the whole commit would stay in memory
        self._held.append((position, events.take(pa.array(np.arange(events.num_rows)))))
        self._held_events += events.num_rows
        while self._held_events > EVENTS_MAX:
            self._held_from = self._held[0][0]
            self._let_go(self._held_from)

    def _let_go(self, upto: int) -> None:
        while self._held and self._held[0][0] <= upto:
            self._held_events -= self._held.popleft()[1].num_rows

    def cut(self, position: int) -> None:
        with self._lock:
            self._begun = position
            self._arrivals.clear()
            self._let_go(position)

    def between(self, after: int, upto: int) -> list[Arrival] | None:
        """The commits after one position and up to another; None where unknown."""
        with self._lock:
            if after < self._begun:
                return None
            return [each for each in self._arrivals if after < each.position and each.since < upto]

    def late_events(self, after: int, upto: int) -> list[pa.RecordBatch] | None:
        """Late events of the commits between two positions, by commit; None if not kept."""
        with self._lock:
            if after < self._begun or after < self._held_from:
                return None
            return [events for position, events in self._held if after < position <= upto]

    def forget(self, upto: int) -> None:
        with self._lock:
            self._let_go(upto)
            while self._arrivals and self._arrivals[0].position <= upto:
                self._begun = self._arrivals.popleft().position


def _joined(arrivals: list[Arrival]) -> Arrival:
    fresh = [each.fresh for each in arrivals if each.fresh is not None]
    hull = (min(first for first, _ in fresh), max(last for _, last in fresh)) if fresh else None
    late = united(tuple(span for each in arrivals for span in each.late))
    count = sum(each.late_events for each in arrivals)
    return Arrival(arrivals[0].since, arrivals[-1].position, late, hull, count)
