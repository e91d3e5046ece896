"""A tap of commits: what each brought, in times, for one that follows in the same process.

Purpose
    A live query reads a stream in order of time, behind a watermark.  What it must hear of besides
    is which commits brought events that lie before the watermark, and where.  A tap notes that for
    each commit, and holds the late events of the latest ones, where they are few.

Layout
    ::

        position    late events, by ranges of ticks     in order, first and last tick
        17          -                                   1000 .. 1040
        18          (310, 310) (955, 960)               1040 .. 1052
        19          (12, 12)                            -

Guarantee
    Every commit is noted before readers see it.  The ranges cover its events: what a tap tells of
    two positions is never less than what was committed between them, and may be more: beyond
    :data:`RANGES_MAX` late times of one commit near ones are joined, beyond :data:`ARRIVALS_MAX`
    commits the oldest ones are.

    What :meth:`CommitTap.late_events` gives are all late events of those commits, or it says that
    it has not got them.

Limits
    Late events are held up to :data:`EVENTS_MAX` in all, those of bulk commits never.
    A tap knows nothing of commits before it was opened, and nothing more of a stream once it was
    truncated: :meth:`CommitTap.between` then answers None.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Arrival", "CommitTap", "Spans", "tick_ranges", "united"]

Spans = tuple[tuple[int, int], ...]
"""Ranges of ticks, both ends inclusive, disjoint and ascending."""

RANGES_MAX = 64
ARRIVALS_MAX = 4096
EVENTS_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a commit brought, or several that were joined.

    Attributes
    ----------
    since, position : int
        The position before the first commit, and of the last one.
    late : tuple of (int, int)
        Ranges of ticks with events that were late.
    fresh : (int, int) or None
        First and last tick of the events in order; None without any.
    """

    since: int
    position: int
    late: Spans
    fresh: tuple[int, int] | None
    late_events: int = 0

    @property
    def spans(self) -> Spans:
        """All of its ranges; they may touch."""
        return self.late if self.fresh is None else (*self.late, self.fresh)


def tick_ranges(ticks: npt.NDArray[np.int64]) -> Spans:
    """Ranges that cover ascending ticks: one for each, or fewer, cut at the widest gaps."""
    if not len(ticks):
        return ()
    distinct = ticks[np.concatenate(([True], ticks[1:] != ticks[:-1]))]
    return _covering(distinct, distinct)


def united(spans: Spans) -> Spans:
    """Disjoint ranges, at most :data:`RANGES_MAX`, that cover some which may overlap."""
    if len(spans) < 2:
        return spans
    ordered = np.array(sorted(spans), np.int64)
    ends = np.maximum.accumulate(ordered[:, 1])
    cut = np.concatenate(([True], ordered[1:, 0] > ends[:-1]))
    begins = np.flatnonzero(cut)
    return _covering(ordered[begins, 0], ends[np.append(begins[1:], len(ordered)) - 1])


def _covering(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> Spans:
    """Ascending disjoint ranges, those with the narrowest gaps joined where there are too many."""
    if len(first) > RANGES_MAX:
        # as unsigned numbers: the gap between the first and the last time needs all 64 bits
        gaps = first[1:].view(np.uint64) - last[:-1].view(np.uint64)
        kept = np.sort(np.argpartition(gaps, -(RANGES_MAX - 1))[-(RANGES_MAX - 1) :])
        first = np.concatenate((first[:1], first[kept + 1]))
        last = np.concatenate((last[kept], last[-1:]))
    return tuple(zip(first.tolist(), last.tolist(), strict=True))


class CommitTap:
    """What commits brought since a position.

    Parameters
    ----------
    position : int
        Of the last commit that is not noted.
    """

    def __init__(self, position: int) -> None:
        self._lock = threading.Lock()
        self._begun = position
        self._arrivals: deque[Arrival] = deque()
        self._held: deque[tuple[int, pa.RecordBatch]] = deque()
        """Late events of the commits behind ``_held_from``, with the positions of these."""
        self._held_from = position
        self._held_events = 0

    def note(self, arrival: Arrival, events: pa.RecordBatch | None = None) -> None:
        """A commit has happened; called in the order of positions.

        ``events``: those that were late, in the order of time; None where they are not at hand.
        """
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
        # a copy, else the whole commit would stay in memory with them
        self._held.append((position, events.take(pa.array(np.arange(events.num_rows)))))
        self._held_events += events.num_rows
        while self._held_events > EVENTS_MAX:
            self._held_from = self._held[0][0]
            self._let_go(self._held_from)

    def _let_go(self, upto: int) -> None:
        """Hold no events of the commits up to a position."""
        while self._held and self._held[0][0] <= upto:
            self._held_events -= self._held.popleft()[1].num_rows

    def cut(self, position: int) -> None:
        """The stream was truncated: what was before cannot be followed."""
        with self._lock:
            self._begun = position
            self._arrivals.clear()
            self._let_go(position)

    def between(self, after: int, upto: int) -> list[Arrival] | None:
        """What commits brought behind one position and up to another; None where unknown."""
        with self._lock:
            if after < self._begun:
                return None
            return [each for each in self._arrivals if after < each.position and each.since < upto]

    def late_events(self, after: int, upto: int) -> list[pa.RecordBatch] | None:
        """The late events of the commits behind one position and up to another, commit by commit.

        None where they are not held.
        """
        with self._lock:
            if after < self._begun or after < self._held_from:
                return None
            return [events for position, events in self._held if after < position <= upto]

    def forget(self, upto: int) -> None:
        """Nobody asks for what was up to a position any more."""
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
