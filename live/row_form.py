"""Live filters and projections: one result per event, final with the event."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..core.identity import digests
from ..store.snapshot import Snapshot
from ..store.tap import Spans
from .changes import Results
from .forms import Evaluator, Form, Ticks, chosen, half_open, ticks_of
from .plain_rows import EVENTS_MAX, PlainRows

__all__ = ["TIME", "RowForm", "ranks"]

TIME = "#time"
PLAIN_REGION_EVENTS = 1 << 16
"""See ``Form.region_events``; row tests cost less than the executor."""
TICKS_FEW = 64


class RowForm(Form):
    """Rows of one stream, identified by tick and rank within it, which never change."""

    kind = "rows"
    in_order = True
    hits: int = 0

    def __init__(
        self,
        evaluator: Evaluator,
        columns: tuple[str, ...],
        seed: bytes,
        plain: PlainRows | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(evaluator, columns)
        self._seed = seed
        self._plain = plain
        self._name = name
        self._none: Results | None = None
        self.by_event = plain is not None
        if plain is not None:
            self.region_events = PLAIN_REGION_EVENTS

    def results(self, snapshot: Snapshot, low: int, high: int, known: int) -> Results:
        start, end = half_open(low, min(high, known))
        table = self._rows(snapshot, start, end)
        if self._none is not None and not table.num_rows:
            return self._none
        ticks = ticks_of(table, TIME)
        return self._named(table, ticks, ranks(ticks))

    def _named(self, table: pa.Table, ticks: Ticks, rank: Ticks) -> Results:
        self.hits += len(ticks)
        held = [pa.array(ticks), pa.array(rank)]
        if self._name is not None:
            held = [table.column(self._name)]
        names = digests(self._seed, held)
        found = Results(ticks, names, chosen(table, self.columns))
        if not len(found):
            self._none = found
        return found

    def added_by(self, snapshot: Snapshot, events: pa.Table) -> Results | None:
        """Rows of the events that pass, ranked behind the earlier rows of their ticks."""
        plain = self._plain
        if plain is None:
            return None
        table = plain.rows_of(events, TIME)
        ticks = ticks_of(table, TIME)
        distinct, first, new = np.unique(ticks, return_index=True, return_counts=True)
        come = ticks_of(events, snapshot.schema.time)
        had = self._had(snapshot, plain, distinct, new, come)
        if had is None:
            return None
        return self._named(table, ticks, np.arange(len(ticks)) + np.repeat(had - first, new))

    def _had(
        self, snapshot: Snapshot, plain: PlainRows, distinct: Ticks, new: Ticks, come: Ticks
    ) -> Ticks | None:
        if len(distinct) > TICKS_FEW:
            start, end = half_open(int(distinct[0]), int(distinct[-1]))
            if snapshot.aggregate((), start, end).count > EVENTS_MAX:
                return None
            every = ticks_of(plain.over(snapshot, start, end, TIME), TIME)
            return every.searchsorted(distinct, "right") - every.searchsorted(distinct) - new
        had = np.zeros(len(distinct), np.int64)
        events = come.searchsorted(distinct, "right") - come.searchsorted(distinct)
        for i, tick in enumerate(distinct.tolist()):
            start, end = half_open(tick, tick)
            if snapshot.aggregate((), start, end).count > events[i]:  # it had events before
                had[i] = plain.over(snapshot, start, end, TIME).num_rows - new[i]
        return had

    def _rows(self, snapshot: Snapshot, start: int | None, end: int | None) -> pa.Table:
        plain = self._plain
        if plain is not None and snapshot.aggregate((), start, end).count <= EVENTS_MAX:
            return plain.over(snapshot, start, end, TIME)
        return self.evaluator.over(snapshot, start, end).arrow()

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        return spans

    def explain(self) -> list[tuple[str, str]]:
        how = "the executor" if self._plain is None else "row tests, where events are few"
        return [("class", self.kind), ("reach", "none"), ("closed", "with the event"),
                ("evaluated", f"by {how}"), ("state", "none")]  # fmt: skip


def ranks(ticks: Ticks) -> Ticks:
    """The rank of each row within its tick; ticks ascend."""
    begins = np.ones(len(ticks), np.bool_)
    begins[1:] = ticks[1:] != ticks[:-1]
    first = np.flatnonzero(begins)
    return np.arange(len(ticks)) - first[np.cumsum(begins) - 1] if len(ticks) else ticks
