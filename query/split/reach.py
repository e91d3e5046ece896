"""How far a match reaches from an event, in ticks, and where the rows around a range lie.

A match with an event on each side of ``tick`` begins at or after ``back(tick)``; one that begins at
or before ``tick`` ends at or before ``ahead(tick)``.  A greatest length bounds only matches of
neighbouring rows; above ``LENGTH_MAX`` it counts as no bound.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.times import INT64_MAX, INT64_MIN
from ...store.snapshot import Snapshot
from ...store.tail import ticks_of_column
from ..conditions.ranges import tail_start
from ..pattern.compiled import CompiledMatch
from ..replay.applicability import demands, not_applicable

__all__ = ["Budget", "Reach", "reach_of"]

LENGTH_MAX = 100_000
PROBE_SHARE = 0.125
PROBE_LEAST = 1 << 18
"""Events that may be read however small the stream is."""
LEAST, MOST = INT64_MIN, INT64_MAX


class Reach:
    """WITHIN, a greatest length, and row counts in ticks of one snapshot, which is not empty."""

    def __init__(self, snapshot: Snapshot, compiled: CompiledMatch) -> None:
        span = snapshot.time_range
        assert span is not None
        self.first, self.last = span
        self._snapshot = snapshot
        self._within = compiled.within
        self._length: int | None = None
        if not compiled.partition_by and compiled.clause.selection in (None, "contiguous"):
            length = compiled.automaton.length_max
            if length is not None and length <= LENGTH_MAX:
                self._length = max(1, length)
        self._history = max(1, compiled.history)
        self._lookahead = max(1, compiled.lookahead)

    @property
    def bounded(self) -> bool:
        return self._within is not None or self._length is not None

    def back(self, tick: int) -> int:
        """Earliest begin of a match that has events before and at or after a tick."""
        found = LEAST
        if self._within is not None:
            found = max(found, tick - self._within)
        if self._length is not None:
            found = max(found, self._rows_before(tick, self._length))
        return found

    def ahead(self, tick: int) -> int:
        """Latest tick of a match that begins at or before a tick."""
        found = MOST
        if self._within is not None:
            found = min(found, tick + self._within)
        if self._length is not None and found > tick:
            found = min(found, self._rows_after(tick, self._length))
        return found

    def before(self, tick: int) -> int:
        """Tick of the first context row that conditions may need before a tick."""
        return self._rows_before(tick, self._history)

    def after(self, tick: int) -> int:
        return self._rows_after(tick, self._lookahead)

    def events(self, low: int, high: int) -> int:
        start = None if low <= LEAST else low
        end = None if high >= MOST else high + 1
        return int(self._snapshot.aggregate((), start, end).count)

    def _rows_before(self, tick: int, rows: int) -> int:
        if tick <= self.first:
            return self.first
        return tail_start(self._snapshot, self.first, tick - 1, rows)

    def _rows_after(self, tick: int, rows: int) -> int:
        if tick >= self.last:
            return MOST
        left = rows
        for batch in self._snapshot.scan(tick + 1, None, [self._snapshot.schema.time], limit=rows):
            left -= batch.num_rows
            if left == 0:
                return int(ticks_of_column(batch.column(0))[-1])
        return MOST


class Budget:
    """Events that may still be read to find cuts."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.left = max(float(PROBE_LEAST), PROBE_SHARE * snapshot.count)


def reach_of(snapshot: Snapshot, compiled: CompiledMatch) -> Reach | str:
    """How far a match reaches, or the reason why time must not be cut."""
    # further keys of ORDER BY reorder only events of one time, which stay together
    reason = not_applicable(replace(compiled, order_by=compiled.order_by[:1]))
    if reason:
        return reason
    if compiled.partition_by and demands(compiled).neighbours:
        return "^, $, PREV or NEXT of a partition may look at events far away"
    if not snapshot.count:
        return "the stream has no events"
    reach = Reach(snapshot, compiled)
    if not reach.bounded:
        return "the pattern has no WITHIN and no bound on its events"
    return reach
