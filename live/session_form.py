"""Live sessions: one result per run of nearby events, final when the gap behind it has passed.

A region is read with a margin, which is doubled while a wanted session may have begun before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ..core.identity import digests
from ..core.times import INT64_MAX, INT64_MIN, moved
from ..store.snapshot import Snapshot
from ..store.tap import Spans, united
from .changes import Results
from .forms import Evaluator, Form, chosen, half_open, ticks_of
from .window_form import END, START

__all__ = ["KEPT", "SessionForm"]

KEPT = "#kept"


class SessionForm(Form):
    """Sessions with a gap in ticks; the evaluator does not apply HAVING (``KEPT``), as sessions
    that fail it still separate others.
    """

    kind = "sessions"
    emits_changes = True

    def __init__(
        self,
        evaluator: Evaluator,
        columns: tuple[str, ...],
        seed: bytes,
        gap: int,
        keys: Sequence[str],
    ) -> None:
        super().__init__(evaluator, columns)
        self._seed = seed
        self._gap = gap
        self._keys = keys
        self._longest = gap

    def closed(self, watermark: int) -> int:
        """A neighbour at exactly a gap still joins: the tick after a session must be past."""
        return watermark if watermark == INT64_MAX else moved(watermark, -1)

    def results(self, snapshot: Snapshot, low: int, high: int, known: int) -> Results:
        if known < INT64_MAX:
            high = min(high, self.closed(known))
        stop = min(known, moved(high, 1))
        back = 2 * (self._longest + self._gap)
        span = snapshot.time_range
        while True:
            begin = INT64_MIN if low <= INT64_MIN else moved(low, -self._gap - back)
            if span is None or begin <= span[0]:
                begin = INT64_MIN
            read = half_open(begin, stop) if low <= high else (0, 0)
            result = self.evaluator.over(snapshot, *read)
            table, ticks = self._table(result, low, high, lambda t: ticks_of(t, END) - 1)
            starts = ticks_of(table, START)
            if begin <= INT64_MIN or not (starts < moved(begin, self._gap)).any():
                break
            back *= 2
        if len(ticks):
            self._longest = max(self._longest, int((ticks - starts).max()))
        keys = [table.column(name) for name in self._keys]
        names = digests(self._seed, [pa.array(starts), *keys])
        found = Results(ticks, names, chosen(table, self.columns))
        if KEPT not in table.schema.names:
            return found
        return found.where(np.array(table.column(KEPT).fill_null(False).to_numpy(), np.bool_))

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        """From the tick before an event to the end of its session."""
        return united(
            tuple(
                (moved(first, -1), max(last, self._end(snapshot, first, last, watermark)))
                for first, last in spans
            )
        )

    def _end(self, snapshot: Snapshot, first: int, last: int, watermark: int) -> int:
        ahead = 2 * (self._longest + self._gap)
        while True:
            stop = moved(last, ahead)
            read = half_open(moved(first, -self._gap), stop)
            table = self.evaluator.over(snapshot, *read).arrow()
            starts, ends = ticks_of(table, START), ticks_of(table, END)
            met = starts <= moved(last, self._gap)
            if stop >= watermark or not (ends[met] > stop).any():
                return min(watermark, int(ends[met].max()) - 1) if met.any() else last
            ahead *= 2

    def explain(self) -> list[tuple[str, str]]:
        return [
            ("class", f"{self.kind} (gap {self._gap} ticks)"),
            ("reach", f"sessions so far up to {self._longest} ticks long"),
            ("closed", "when the watermark passes the end of the pause behind the last event"),
            ("state", "none: what may belong to an open session is read again"),
        ]
