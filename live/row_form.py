"""Live filters and projections: one result per event, final with the event.

A SELECT that picks columns, of events that a predicate decides, is evaluated without the executor,
whose planning would take longer than a step may; rows, order and types are the executor's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ..core.caches import lazy
from ..core.identity import digests, event_bytes
from ..core.times import half_open
from ..query.conditions.predicates import TICK_MAX, TICK_MIN
from ..query.conditions.row_filters import PredicateFilter
from ..query.plan.nodes import PassThrough, QueryPlan, Scan
from ..store.prune import AllOf, Prune, Range
from ..store.snapshot import Snapshot
from ..store.tap import Spans, tick_ranges
from .changes import Corrected, Results
from .forms import Evaluator, LateEvents, Moment, StreamForm, Ticks, chosen, coalesced, ticks_of

EVENTS_MAX = 1 << 20
"""Larger regions use the SELECT's plan."""


@dataclass(frozen=True)
class PlainRows:
    """The ``shown`` attributes, called ``names``, of the events that pass; the time is the last."""

    names: tuple[str, ...]
    shown: tuple[str, ...]
    passing: PredicateFilter

    @lazy
    def read(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.shown, *self.passing.columns)))

    def over(self, snapshot: Snapshot, start: int | None, end: int | None, time: str) -> pa.Table:
        batches = list(snapshot.scan(start, end, self.read))
        arrow = snapshot.schema.arrow
        schema = batches[0].schema if batches else pa.schema(map(arrow.field, self.read))
        return self._rows_of(batches, schema, time)

    def rows_of(self, events: pa.Table, time: str) -> pa.Table:
        return self._rows_of(events.to_batches(), events.schema, time)

    def _rows_of(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, time: str) -> pa.Table:
        rows = pa.Table.from_batches(map(self.passing, batches), schema)
        return pa.table([rows.column(name) for name in self.shown], names=[*self.names, time])

    def narrowed(self, other: PredicateFilter) -> PlainRows:
        """Of the events that another filter passes, too."""
        both = AllOf((other.predicate, self.passing.predicate))
        return replace(self, passing=replace(self.passing, predicate=both))


def plain_rows(plan: QueryPlan, fields: Sequence[pa.Field]) -> PlainRows | None:
    """The plain form of a live SELECT from one stream; None if it has another form."""
    root = plan.root
    if not isinstance(root, PassThrough) or not isinstance(root.input, Scan):
        return None
    scan, schema = root.input, root.input.schema
    columns = {picked.name: picked.column for picked in root.columns}
    shown = [columns[field.name] for field in fields]
    if [schema.arrow.field(name).type for name in shown] != [field.type for field in fields]:
        return None
    parts: list[Prune] = [] if scan.prune is None else [scan.prune]
    if scan.low > TICK_MIN or scan.high < TICK_MAX:
        parts.insert(0, Range(schema.time, scan.low, scan.high))
    names = tuple(field.name for field in fields)
    predicate = parts[0] if len(parts) == 1 else AllOf(tuple(parts))
    passing = PredicateFilter(predicate, schema)
    return PlainRows(names, (*shown, schema.time), passing)


def rows_between(
    plain: PlainRows | None, evaluator: Evaluator, snapshot: Snapshot, low: int, high: int
) -> pa.Table:
    """Rows of a SELECT over the events of a range of ticks, with their ``TIME``; the executor
    evaluates it where it has no plain form, or events are many.
    """
    start, end = half_open(low, high) if low <= high else (0, 0)
    if plain is not None and snapshot.events_between(start, end) <= EVENTS_MAX:
        return plain.over(snapshot, start, end, TIME)
    return evaluator.over(snapshot, start, end)


TIME = "#time"
PLAIN_REGION_EVENTS = 1 << 16
"""See ``Form.region_events``; a predicate costs less than the executor."""


class RowForm(StreamForm):
    """Rows of one stream, identified by tick and rank within it, which never change.  ``hashed``:
    identities are digests, as those of results; else the two numbers as bytes.
    """

    kind = "rows"
    in_order = True
    hashed = True
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
        self.plain = plain
        self._name = name
        self._none: Results | None = None
        if plain is not None:
            self.region_events = PLAIN_REGION_EVENTS

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        snapshot = moment[self.stream]
        table = rows_between(self.plain, self.evaluator, snapshot, low, min(high, known))
        if self._none is not None and not table.num_rows:
            return self._none
        ticks = ticks_of(table, TIME)
        return self._named(table, ticks, ranks(ticks))

    def _named(self, table: pa.Table, ticks: Ticks, rank: Ticks) -> Results:
        self.hits += len(ticks)
        if self._name is not None:
            names = digests(self._seed, [table.column(self._name)])
        elif self.hashed:
            names = digests(self._seed, [pa.array(ticks), pa.array(rank)])
        else:
            names = event_bytes(ticks, rank, np.arange(len(ticks) + 1))
        results = Results(ticks, names, chosen(table, self.columns))
        if not len(results):
            self._none = results
        return results

    def corrected(self, late: LateEvents, known: int) -> Corrected | None:
        """Rows of the events that pass, ranked behind the earlier rows of their ticks."""
        plain, snapshot, events = self.plain, late.moment[self.stream], late.events[self.stream]
        if plain is None or events is None:
            return None
        table = plain.rows_of(events, TIME)
        ticks = ticks_of(table, TIME)
        distinct, first, new = np.unique(ticks, return_index=True, return_counts=True)
        spans = coalesced({self.stream: snapshot}, tick_ranges(distinct), self.region_events)
        between = [half_open(low, high) for low, high in spans]
        if sum(snapshot.events_between(*each) for each in between) > EVENTS_MAX:
            return None
        rows = [ticks_of(plain.over(snapshot, *each, TIME), TIME) for each in between]
        every = np.concatenate([ticks[:0], *rows])
        had = every.searchsorted(distinct, "right") - every.searchsorted(distinct) - new
        added = self._named(table, ticks, np.arange(len(ticks)) + np.repeat(had - first, new))
        return Corrected(added.id[:0], added.time[:0], added)

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        return late.get(self.stream, ())

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        return [("class", self.kind), ("reach", "none"), ("closed", "with the event")]


def ranks(ticks: Ticks) -> Ticks:
    """The rank of each row within its tick; ticks ascend."""
    begins = np.ones(len(ticks), np.bool_)
    begins[1:] = ticks[1:] != ticks[:-1]
    first = begins.nonzero()[0]
    return np.arange(len(ticks)) - first[begins.cumsum() - 1] if len(ticks) else ticks
