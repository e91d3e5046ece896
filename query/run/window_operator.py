"""Window functions as relations of a query: bound once, opened for each execution.

Purpose
    The planner's side of windows: TUMBLE, HOP, TUMBLE_ROWS, HOP_ROWS and SESSION in FROM become
    :class:`BoundWindows`.  It is opened either as aggregates of windows
    (:class:`AggregateRelation`), where :mod:`..binding.window_fusion` found that possible, or as
    events with their windows (:class:`EventRelation`).

Guarantee
    Conditions on the stream's attributes are applied to events before windows are made, so count
    windows and sessions, and the origin ``'first'``, see only events that satisfy them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...errors import InvalidArgument
from ...schema import StreamSchema
from ...store.prune import AllOf, Prune, Range
from ...store.snapshot import Snapshot
from ..binding.operators import OperatorSite, RunContext, register_table_function
from ..binding.window_call import NAMES, WindowCall
from ..binding.window_fusion import Fused, fuse, move_conditions
from ..binding.window_keys import session_keys
from ..binding.window_select import Place
from ..conditions.bounds import all_of
from ..conditions.predicates import PredicateCompiler
from ..conditions.ranges import time_bounds
from ..contract.explanation import Operator
from ..windows.aggregation import (
    IndexAggregation,
    ReplayAggregation,
    Selected,
    WindowAggregation,
    result_schema,
    window_fields,
)
from ..windows.cost import Costs, estimate, load_calibration
from ..windows.expand import expand_counts, expand_sessions, expand_times
from ..windows.fields import FieldPlan, in_tree
from ..windows.keyed import KeyedAggregation
from ..windows.keyed_sessions import KeyedSessionAggregation, expand_keyed_sessions
from ..windows.slices import ticks_of
from ..windows.spec import CountWindows, SessionWindows, TimeWindows, Windows

__all__ = ["AggregateRelation", "BoundWindows", "EventRelation", "WindowFactory"]


HALVES_FROM_NS = 1_500_000
HALVES_SLICES_MAX = 1 << 18
"""A sweep that is estimated as longer than this, of fewer slices than that, uses two threads."""


class WindowFactory:
    """Binds window functions; one for all of them."""

    def bind(self, site: OperatorSite) -> BoundWindows:
        """Check the call and rewrite the SELECT around it where the operator can aggregate."""
        call = WindowCall.read(site)
        place = Place(call, site.select, (site.item.alias or call.name).lower())
        fused = fuse(place) if isinstance(site.select, exp.Select) else None
        conditions = fused.conditions if fused else []
        if fused is None and isinstance(site.select, exp.Select):
            if call.name == "session" and not call.keys:
                call = replace(call, keys=session_keys(place))
            conditions = move_conditions(place)
        return BoundWindows(
            call, fused, conditions, site.hints.get("strategy", "auto"),
            getattr(site.catalog, "path", None),
        )  # fmt: skip


class BoundWindows:
    """A window function bound to its stream.

    Parameters
    ----------
    call : WindowCall
    fused : Fused, optional
        What the SELECT asks of windows; None to deliver events.
    conditions : list of sqlglot trees
        What must hold of events.
    strategy : str
        The hint.
    store : path, optional
        Where calibration is kept.
    """

    def __init__(
        self,
        call: WindowCall,
        fused: Fused | None,
        conditions: list[Any],
        strategy: str,
        store: Any,
    ) -> None:
        self.call = call
        self.fused = fused
        self.conditions = conditions
        self.strategy = strategy
        self.store = store
        kind: Windows = SessionWindows(1)
        if call.counts:
            kind = CountWindows(1, 1)
        if fused is None:
            self._schema = pa.schema([*call.schema.arrow, *window_fields(call.schema, kind)])
        else:
            plan = FieldPlan(fused.schema, fused.aggregates)
            self._schema = result_schema(plan, kind, fused.keys)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the relation."""
        return self._schema

    @property
    def event_schema(self) -> StreamSchema:
        """Attributes of the stream and derived columns."""
        return self.call.schema if self.fused is None else self.fused.schema

    @property
    def ordered_by(self) -> Sequence[str]:
        """Columns by which rows come in ascending order."""
        if self.fused is None or (self.call.name == "session" and self.fused.keys):
            return ()
        return ("window_id",) if self.call.counts else ("window_start", "window_end")

    @property
    def streams(self) -> Sequence[str]:
        """The stream that it reads."""
        return (self.call.stream,)

    def open(self, run: RunContext) -> AggregateRelation | EventRelation:
        """Fix measures, snapshot and conditions for one execution."""
        windows = self.call.windows(run.folder)
        snapshot = run.snapshot(self.call.stream)
        source = _Source(self, run, snapshot)
        if isinstance(windows, TimeWindows) and windows.origin is None:
            windows = replace(windows, origin=source.first_tick())
        if self.fused is None:
            return EventRelation(self, windows, source)
        return AggregateRelation(self, self.fused, windows, source)


class _Source:
    """The events that are windowed, in one execution."""

    def __init__(self, bound: BoundWindows, run: RunContext, snapshot: Snapshot) -> None:
        self.run = run
        self.snapshot = snapshot
        self._bound = bound
        schema = snapshot.schema
        self.prune: Prune | None = None
        exact = True
        if bound.conditions:
            known = {name.lower(): name for name in schema.names}
            compiler = PredicateCompiler(schema, run.folder, lambda c: known.get(c.name.lower()))
            compiled = all_of([compiler.compile(c) for c in bound.conditions])
            self.prune, exact = compiled.prune, compiled.exact
        start, last = time_bounds(self.prune, schema.time)
        self.empty = start > last
        self.selected = Selected(start, last) if not self.empty else Selected(0, 0)
        # a range of time is all that is asked of events
        self.by_time_only = exact and _only_time(self.prune, schema.time)

    def first_tick(self) -> int:
        """Tick of the first event that is windowed; 0 when there is none."""
        schema = self.snapshot.schema
        if self.empty:
            return 0
        if self.by_time_only:
            return self.snapshot.aggregate((), self.selected.start, self.selected.end).first or 0
        for batch in self.batches([schema.time], {}):
            if batch.num_rows:
                return int(ticks_of(batch.column(0))[0])
        return 0

    def batches(self, columns: Sequence[str], derived: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Events in time order: attributes as stored, derived columns as the executor has them."""
        schema = self.snapshot.schema
        if self.empty:
            return
        if self.by_time_only and not derived:
            selected = self.selected
            yield from self.snapshot.scan(
                selected.start, selected.end, columns, check=self.run.control.check
            )
            return
        wanted: list[Any] = [exp.column(exp.to_identifier(name, quoted=True)) for name in columns]
        wanted += [exp.alias_(node.copy(), name, quoted=True) for name, node in derived.items()]
        stream = exp.to_identifier(self._bound.call.stream, quoted=True)
        query = exp.select(*wanted).from_(exp.Table(this=stream))
        for condition in self._bound.conditions:
            query = query.where(condition.copy())
        _, batches = self.run.subquery(query)
        last: int | None = None
        for batch in batches:
            self.run.control.check()
            batch = _as_stored(batch, self._bound.event_schema, len(columns))
            if schema.time in columns and batch.num_rows:
                ticks = ticks_of(batch.column(columns.index(schema.time)))
                if last is not None and int(ticks[0]) < last:
                    raise InvalidArgument(
                        "the executor gave events out of time order; please report this query"
                    )
                last = int(ticks[-1])
            yield batch


def _as_stored(batch: pa.RecordBatch, schema: StreamSchema, columns: int) -> pa.RecordBatch:
    """Undo what the executor does to types of attributes on the way."""
    arrays = list(batch.columns)
    names = batch.schema.names
    for i, name in enumerate(names):
        type_ = schema.attribute(name).type
        if arrays[i].type == type_:
            continue
        if i >= columns:
            raise InvalidArgument(
                f"a windowed expression was planned as {type_} and came as {arrays[i].type}; "
                "please report this query, and cast the expression meanwhile"
            )
        arrays[i] = arrays[i].cast(type_)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _only_time(prune: Prune | None, time: str) -> bool:
    if prune is None:
        return True
    if isinstance(prune, Range):
        return prune.column == time
    return isinstance(prune, AllOf) and all(_only_time(item, time) for item in prune.items)


class AggregateRelation:
    """Windows with their aggregates."""

    def __init__(
        self, bound: BoundWindows, fused: Fused, windows: Windows, source: _Source
    ) -> None:
        self._bound = bound
        self._fused = fused
        self._windows = windows
        self._source = source
        self._figures: list[tuple[str, int | float]] = []
        self._costs: Costs | None = None
        self._reason = ""
        self.strategy = self._choose()

    @property
    def schema(self) -> pa.Schema:
        """Window columns, then one column for each aggregate."""
        return self._bound.schema

    def _choose(self) -> str:
        windows, source = self._windows, self._source
        if isinstance(windows, SessionWindows):
            self._reason = "sessions depend on every event"
            return "replay"
        if self._fused.keys:
            self._reason = "the tree does not keep aggregates by key"
            return "replay"
        if self._fused.derived:
            self._reason = "expressions are not in the tree"
            return "replay"
        ordered = [str(a) for a in self._fused.aggregates if not in_tree(a)]
        if ordered:
            self._reason = f"{ordered[0]} is not in the tree"
            return "replay"
        if not source.by_time_only and not source.empty:
            self._reason = "conditions on attributes"
            return "replay"
        names = tuple(
            dict.fromkeys(a.attribute for a in self._fused.aggregates if a.attribute is not None)
        )
        names = tuple(name for name in names if name != source.snapshot.schema.time)
        calibration = load_calibration(self._bound.store)
        self._costs = estimate(source.snapshot, windows, source.selected, names, calibration)
        if self._bound.strategy in ("replay", "index"):
            self._reason = "hint"
            return self._bound.strategy
        self._reason = "cheaper"
        return "index" if self._costs.index <= self._costs.replay else "replay"

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Windows in the order of their starts."""
        source = self._source
        wanted = list(self.schema.names if columns is None else columns)
        if source.empty:
            return
        aggregation = self._aggregation()
        busy = 0.0
        begin = time.perf_counter()
        for batch in aggregation.batches():
            if batch.num_rows:
                busy += time.perf_counter() - begin
                yield batch.select(wanted)
                begin = time.perf_counter()
        busy += time.perf_counter() - begin
        metrics = aggregation.metrics
        self._figures = [
            ("windows", metrics.windows), ("slices", metrics.slices), ("events", metrics.events),
            ("merges", metrics.merges), ("zones", metrics.zones), ("leaves", metrics.leaves),
            ("nodes", metrics.nodes), ("time_ms", round(busy * 1000, 3)),
        ]  # fmt: skip

    def _aggregation(self) -> WindowAggregation:
        source, windows, aggregates = self._source, self._windows, self._fused.aggregates
        check = source.run.control.check
        if self.strategy == "index" and not isinstance(windows, SessionWindows):
            costs = self._costs
            halves = (
                costs is not None
                and costs.index > HALVES_FROM_NS
                and costs.slices < HALVES_SLICES_MAX
                and isinstance(windows, TimeWindows)
            )
            return IndexAggregation(
                source.snapshot, windows, aggregates, source.selected, check, halves=halves
            )
        if self._fused.keys:
            given = (aggregates, self._fused.keys, self._events, check)
            if isinstance(windows, SessionWindows):
                return KeyedSessionAggregation(self._fused.schema, windows, *given)
            return KeyedAggregation(self._fused.schema, windows, *given)
        return ReplayAggregation(self._fused.schema, windows, aggregates, self._events, check)

    def _events(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        derived = {name: node for name, node in self._fused.derived.items() if name in names}
        plain = [name for name in names if name not in derived]
        return self._source.batches(plain, derived)

    def explain(self) -> Operator:
        """The node of the plan: what was chosen, what both would cost, and what was touched."""
        details: list[tuple[str, Any]] = [
            ("stream", self._bound.call.stream),
            ("windows", self._windows.describe()),
            ("aggregates", tuple(str(a) for a in self._fused.aggregates)),
            *([("keys", tuple(self._fused.keys))] if self._fused.keys else []),
            ("strategy", self.strategy),
            ("because", self._reason),
        ]
        if self._costs is not None:
            details += [
                ("cost_replay_ms", round(self._costs.replay / 1e6, 3)),
                ("cost_index_ms", round(self._costs.index / 1e6, 3)),
                ("estimated_slices", int(self._costs.slices)),
            ]
            if self._costs.break_even is not None:
                details.append(("break_even_slide", int(self._costs.break_even)))
        return Operator("WindowAggregate", tuple(details), tuple(self._figures))


class EventRelation:
    """Events, once for each window that holds them."""

    def __init__(self, bound: BoundWindows, windows: Windows, source: _Source) -> None:
        self._bound = bound
        self._windows = windows
        self._source = source
        self._rows = 0

    @property
    def schema(self) -> pa.Schema:
        """The stream's attributes, then the window columns."""
        return self._bound.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Events in time order with their windows."""
        wanted = list(self.schema.names if columns is None else columns)
        schema = self._source.snapshot.schema
        attributes = [name for name in schema.names if name in wanted or name == schema.time]
        keys = self._bound.call.keys
        attributes += [name for name in keys if name not in attributes]
        events = self._source.batches(attributes, {})
        check = self._source.run.control.check
        windows, clock = self._windows, schema.time
        if isinstance(windows, TimeWindows):
            rows = expand_times(events, windows, clock, wanted, check)
        else:
            ahead = self._source.batches([clock, *keys], {})
            if isinstance(windows, CountWindows):
                rows = expand_counts(events, ahead, windows, clock, wanted, check)
            elif keys:
                rows = expand_keyed_sessions(events, ahead, windows, clock, keys, wanted, check)
            else:
                rows = expand_sessions(events, ahead, windows, clock, wanted, check)
        for batch in rows:
            self._rows += batch.num_rows
            yield batch

    def explain(self) -> Operator:
        """The node of the plan."""
        details = (
            ("stream", self._bound.call.stream),
            ("windows", self._windows.describe()),
            ("keys", self._bound.call.keys),
            ("strategy", "replay"),
            ("because", "the query needs the events of each window"),
        )
        figures = (("rows", self._rows),) if self._rows else ()
        return Operator("WindowEvents", details, figures)


_factory = WindowFactory()
for _name in NAMES:
    register_table_function(_name, _factory)
