"""Runs TUMBLE, HOP, TUMBLE_ROWS, HOP_ROWS and SESSION: windows with aggregates, or their events.

``windows.filling`` adds rows for windows without events.  A roll-up answers windows; where it has
no answer, they are computed from events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.times import half_open
from ...errors import InvalidArgument, ResourceLimit
from ...store.segment import ScanMetrics
from ...store.tail import ticks_of_column
from ..conditions.predicates import TICK_MAX, TICK_MIN, shown_time
from ..contract.explanation import Operator, Regions
from ..pattern.compiled import plain_type
from ..plan.nodes import (
    FilledWindows,
    PassThrough,
    QueryPlan,
    Relational,
    RollupWindows,
    Scan,
    WindowAggregate,
    WindowedEvents,
)
from ..replay.regions import regions_of_scan
from ..sql.rendering import identifier
from ..windows.aggregation import (
    IndexAggregation,
    ReplayAggregation,
    SelectedRange,
    WindowAggregation,
    times_array,
)
from ..windows.expand import expand_counts, expand_times
from ..windows.fields import GrainFold, aggregate_column, key_column
from ..windows.filling import HELD_BYTES_MAX, Filler, Grid
from ..windows.keyed import KeyedAggregation, SessionAggregation, expand_sessions
from ..windows.slices import WindowMetrics
from ..windows.spec import (
    AnyWindows,
    Calendar,
    CalendarWindows,
    CountWindows,
    SessionWindows,
    TimeWindows,
)
from .context import LeafOperator, Relation, RunContext


class _Events:
    def __init__(self, node: WindowAggregate | WindowedEvents, run: RunContext) -> None:
        self.run = run
        self.snapshot = run.snapshot(node.stream)
        self._plan = node.events
        self._schema = node.event_schema
        self._derived = node.derived if isinstance(node, WindowAggregate) else frozenset()

    @property
    def selected(self) -> SelectedRange | None:
        """The time range of the events, if that is their only condition."""
        plan = self._plan
        if not isinstance(plan, Scan) or plan.low > plan.high:
            return None
        return SelectedRange(plan.low, plan.high)

    def regions(self, kind: str) -> Regions | None:
        plan = self._plan
        if not isinstance(plan, Scan):
            return None
        return regions_of_scan(self.snapshot, plan.low, plan.high, kind=kind)

    def resolved(self, windows: AnyWindows) -> AnyWindows:
        """The windows with their origin at the first event, if requested."""
        if not isinstance(windows, TimeWindows) or windows.origin is not None:
            return windows
        for batch in self.batches([self._schema.time], first=True):
            if batch.num_rows:
                return replace(windows, origin=int(ticks_of_column(batch.column(0))[0]))
        return replace(windows, origin=0)

    def calendar(self, windows: CalendarWindows) -> Calendar | None:
        span, plan = self.snapshot.time_range, self._plan
        if span is None:
            return None
        low, high = span
        if isinstance(plan, Scan):
            low, high = max(low, plan.low), min(high, plan.high)
        per_second = self._schema.ticks_per_second
        assert per_second is not None
        return windows.calendar(low, high, per_second) if low <= high else None

    def batches(self, columns: Sequence[str], *, first: bool = False) -> Iterator[pa.RecordBatch]:
        """Events in time order, as stored; ``first``: only the first is needed, more may come."""
        plan, time = self._plan, self._schema.time
        if isinstance(plan, Scan):
            if plan.low <= plan.high:
                start, end = half_open(plan.low, plan.high)
                snapshot, control, metrics = self.snapshot, self.run.control, ScanMetrics()
                if not first:
                    control.progress.expect(
                        [metrics], snapshot.count, lambda: snapshot.events_between(start, end)
                    )
                yield from snapshot.scan(
                    start,
                    end,
                    columns,
                    limit=1 if first else None,
                    metrics=metrics,
                    check=control.check,
                )
            return
        _, batches = self.run.rows(_of_columns(plan, columns))
        last: int | None = None
        for batch in batches:
            self.run.control.check()
            batch = self._as_stored(batch)
            if time in columns and batch.num_rows:
                ticks = ticks_of_column(batch.column(columns.index(time)))
                if last is not None and int(ticks[0]) < last:
                    raise InvalidArgument(
                        "the executor gave events out of time order; please report this query"
                    )
                last = int(ticks[-1])
            yield batch

    def _as_stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Undo the executor's changes of attribute types."""
        arrays = list(batch.columns)
        names = batch.schema.names
        for i, name in enumerate(names):
            type_ = self._schema.attribute(name).type
            if arrays[i].type == type_:
                continue
            if name in self._derived and plain_type(arrays[i].type) != type_:
                raise InvalidArgument(
                    f"a windowed expression was planned as {type_} and came as {arrays[i].type}; "
                    "please report this query, and cast the expression meanwhile"
                )
            arrays[i] = arrays[i].cast(type_)
        return pa.RecordBatch.from_arrays(arrays, names=names)


class _Feed:
    """Events in time order, delivered range by range; read once."""

    def __init__(self, events: _Events, time: str) -> None:
        self._events = events
        self._time = time
        self._source: Iterator[pa.RecordBatch] | None = None
        self._held: pa.RecordBatch | None = None

    def upto(self, last: int) -> Callable[[Sequence[str]], Iterator[pa.RecordBatch]]:
        """A scan of the events not yet delivered, up to a tick, always with the same columns."""

        def scan(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            if self._source is None:
                self._source = self._events.batches(columns)
            while True:
                batch, self._held = self._held, None
                if batch is None:
                    batch = next(self._source, None)
                if batch is None:
                    return
                ticks = ticks_of_column(batch.column(batch.schema.get_field_index(self._time)))
                end = int(ticks.searchsorted(last, "right"))
                if end < batch.num_rows:
                    self._held = batch.slice(end)
                if end:
                    yield batch.slice(0, end)
                if self._held is not None:
                    return

        return scan


def _of_columns(plan: QueryPlan, columns: Sequence[str]) -> QueryPlan:
    root = plan.root
    if isinstance(root, PassThrough):
        by_name = {picked.name: picked for picked in root.columns}
        picked = tuple(by_name[name] for name in columns)
        return replace(plan, root=replace(root, columns=picked))
    assert isinstance(root, Relational)
    listed = ", ".join(map(identifier, columns))
    sql = f'SELECT {listed} FROM ({root.sql}) AS "events"'
    return replace(plan, root=replace(root, sql=sql, outputs=None))


def _pieces(
    calendar: Calendar | None, selected: SelectedRange | None
) -> Iterator[tuple[int, int, TimeWindows]]:
    for windows, first, last in () if calendar is None else calendar.pieces():
        if selected is not None:
            first, last = max(first, selected.start), min(last, selected.last)
        if first <= last:
            yield first, last, windows


def _starting(
    batches: Iterator[pa.RecordBatch], starts: tuple[int | None, int | None]
) -> Iterator[pa.RecordBatch]:
    low, high = starts
    for batch in batches:
        if low is not None or high is not None:
            ticks = ticks_of_column(batch.column("window_start"))
            inside = np.ones(len(ticks), bool)
            if low is not None:
                inside &= ticks >= low
            if high is not None:
                inside &= ticks < high
            batch = batch.filter(pa.array(inside))
        if batch.num_rows:
            yield batch


class WindowAggregateOperator(LeafOperator[WindowAggregate]):
    def __init__(self, node: WindowAggregate, run: RunContext) -> None:
        super().__init__(node, run)
        self._events = _Events(node, run)
        self._windows = self._events.resolved(node.windows)
        self._metrics: WindowMetrics | None = None

    def _results(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        metrics = WindowMetrics()
        for aggregation in self._aggregations():
            yield from _starting(aggregation.batches(), self._node.starts)
            metrics.add(aggregation.metrics)
        self._metrics = metrics

    def _figures(self) -> tuple[tuple[str, int | float], ...]:
        metrics = self._metrics
        if metrics is None:
            return ()
        return (
            ("windows", metrics.windows), ("slices", metrics.slices), ("events", metrics.events),
            ("merges", metrics.merges), ("zones", metrics.zones), ("leaves", metrics.leaves),
            ("nodes", metrics.nodes), ("time_ms", round(self._seconds * 1000, 3)),
        )  # fmt: skip

    def _aggregations(self) -> Iterator[WindowAggregation[Any]]:
        windows, events = self._windows, self._events
        selected = events.selected
        if isinstance(self._node.events, Scan) and selected is None:
            return
        if not isinstance(windows, CalendarWindows):
            yield self._aggregation(windows, selected, events.batches)
            return
        calendar = events.calendar(windows)
        feed = _Feed(events, self._node.event_schema.time)
        for first, last, piece in _pieces(calendar, selected):
            if events.snapshot.events_between(first, last + 1):
                yield self._aggregation(piece, SelectedRange(first, last), feed.upto(last))

    def _aggregation(
        self,
        windows: TimeWindows | CountWindows | SessionWindows,
        selected: SelectedRange | None,
        scan: Callable[[Sequence[str]], Iterator[pa.RecordBatch]],
    ) -> WindowAggregation[Any]:
        node, events = self._node, self._events
        check = events.run.control.check
        if node.strategy == "index" and not isinstance(windows, SessionWindows):
            assert selected is not None
            return IndexAggregation(events.snapshot, windows, node.aggregates, selected, check)
        schema, arguments = node.event_schema, (node.aggregates, node.keys, scan, check)
        if isinstance(windows, SessionWindows):
            return SessionAggregation(schema, windows, *arguments)
        if node.keys:
            return KeyedAggregation(schema, windows, *arguments, node.hook)
        return ReplayAggregation(schema, windows, node.aggregates, scan, check)

    def explain(self) -> Operator:
        node = self._node
        details: list[tuple[str, Any]] = [
            ("stream", node.stream),
            ("windows", self._windows.describe(self._node.event_schema.time_type)),
            ("aggregates", tuple(str(a) for a in node.aggregates)),
            *([("keys", node.keys)] if node.keys else []),
            ("strategy", node.strategy),
            ("because", node.reason),
        ]
        if node.costs is not None:
            details += [
                ("cost_replay_ms", round(node.costs.replay / 1e6, 3)),
                ("cost_index_ms", round(node.costs.index / 1e6, 3)),
                ("estimated_slices", int(node.costs.slices)),
            ]
        if node.notes:
            details.append(("notes", node.notes))
        regions = self._events.regions("aggregated" if node.strategy == "index" else "read")
        return Operator("WindowAggregate", tuple(details), self._figures(), regions=regions)


class WindowedEventsOperator(LeafOperator[WindowedEvents]):
    def __init__(self, node: WindowedEvents, run: RunContext) -> None:
        super().__init__(node, run)
        self._events = _Events(node, run)
        self._windows = self._events.resolved(node.windows)

    def _results(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        starts = self._node.starts
        shown = columns if starts == (None, None) else [*columns, "window_start"]
        return _starting(self._expanded(list(dict.fromkeys(shown))), starts)

    def _expanded(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        keys, windows = self._node.keys, self._windows
        clock = self._node.event_schema.time
        attributes = [n for n in self._node.event_schema.names if n in (*wanted, clock, *keys)]
        events = self._events.batches(attributes)
        check = self._events.run.control.check
        if isinstance(windows, CalendarWindows):
            calendar = self._events.calendar(windows)
            return expand_times(events, calendar, clock, wanted, check) if calendar else iter(())
        if isinstance(windows, TimeWindows):
            return expand_times(events, windows, clock, wanted, check)
        ahead = self._events.batches([clock, *keys])
        if isinstance(windows, CountWindows):
            return expand_counts(events, ahead, windows, clock, wanted, check)
        return expand_sessions(events, ahead, windows, clock, keys, wanted, check)

    def explain(self) -> Operator:
        details = (
            ("stream", self._node.stream),
            ("windows", self._windows.describe(self._node.event_schema.time_type)),
            ("keys", self._node.keys),
            ("strategy", "replay"),
            ("because", "the query needs the events of each window"),
        )
        figures = (("rows", self._rows),) if self._rows else ()
        return Operator("WindowEvents", details, figures, regions=self._events.regions("read"))


class FilledOperator(LeafOperator[FilledWindows]):
    def __init__(self, node: FilledWindows, run: RunContext) -> None:
        super().__init__(node, run)
        self._input = run.open(node.input)

    def _results(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        node = self._node
        filler = Filler(node.fill, self.schema, node.keys, node.counts)
        rows = pa.Table.from_batches(self._held(), self.schema)
        first, upto = self._range()
        grid = self._grid(rows, first, upto)
        for batch in filler.batches(grid, rows, first, upto) if grid is not None else ():
            self._run.control.check()
            yield batch

    def _held(self) -> list[pa.RecordBatch]:
        held, size = [], 0
        for batch in self._input.batches(self.schema.names):
            held.append(batch)
            size += batch.nbytes
            if size > HELD_BYTES_MAX:
                raise ResourceLimit(
                    f"windows of {sum(each.num_rows for each in held):,} keys and times take more "
                    "than 1 GiB, and to fill gaps they are held: narrow the range of time in WHERE"
                )
        return held

    def _range(self) -> tuple[int | None, int | None]:
        """First and last tick of the query's range; None if unbounded."""
        low, high = self._node.low, self._node.high
        if low > high:
            return None, None
        return (None if low == TICK_MIN else low), (None if high == TICK_MAX else high)

    def _grid(self, rows: pa.Table, first: int | None, upto: int | None) -> Grid | None:
        """Numbers the windows from the first to the last row or tick; None without any."""
        windows = self._node.windows
        if not isinstance(windows, CalendarWindows):
            return windows
        ticks = [tick for tick in (first, upto) if tick is not None]
        if rows.num_rows:
            starts = ticks_of_column(rows.column(0).combine_chunks())
            ticks += [int(np.min(starts)), int(np.max(starts))]
        if not ticks:
            return None
        per_second = self._node.per_second
        assert per_second is not None
        return windows.calendar(min(ticks), max(ticks), per_second)

    def explain(self) -> Operator:
        figures = (("rows", self._rows),) if self._rows else ()
        details = (
            ("fill", str(self._node.fill)),
            ("windows", self._node.windows.describe(self.schema.field("window_start").type)),
        )
        return Operator("FillGaps", details, figures, inputs=(self._input.explain(),))


Words = npt.NDArray[np.int64]

EACH_NUMBER = TimeWindows(1, 1)


class RollupOperator(LeafOperator[RollupWindows]):
    def __init__(self, node: RollupWindows, run: RunContext) -> None:
        super().__init__(node, run)
        self._raw: dict[int, Relation] = {
            place: run.open(piece)
            for place, piece in enumerate(node.pieces)
            if isinstance(piece, WindowAggregate)
        }
        self._grains = 0

    def _results(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        return self._together() if not self._node.same else self._as_they_are()

    def _as_they_are(self) -> Iterator[pa.RecordBatch]:
        node = self._node
        places = [node.partials.index(aggregate) for aggregate in node.aggregates]
        for numbers, keys, partials in self._pieces():
            yield self._batch(numbers, keys, [partials[place] for place in places])

    def _together(self) -> Iterator[pa.RecordBatch]:
        node = self._node
        types = [self.schema.field(key_column(i)).type for i in range(node.keys)]
        fold = GrainFold(node.event_schema, node.partials, node.aggregates, types)

        def scan(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            for numbers, keys, partials in self._pieces():
                yield fold.rows(numbers, keys, partials).select(list(columns))

        check = self._run.control.check
        merged: WindowAggregation[Any]
        if node.keys:
            merged = KeyedAggregation(fold.events, EACH_NUMBER, fold.merged, fold.keys, scan, check)
        else:
            merged = ReplayAggregation(fold.events, EACH_NUMBER, fold.merged, scan, check)
        for batch in merged.batches():
            numbers = batch.column("window_start").to_numpy()
            keys = [batch.column(name) for name in fold.keys]
            states = [batch.column(aggregate_column(i)) for i in range(len(fold.merged))]
            yield self._batch(numbers, keys, fold.results(states))

    def _batch(
        self, numbers: Words, keys: Sequence[pa.Array], results: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        start, end = self._node.windows.bounds(np.ascontiguousarray(numbers))
        time = self.schema.field("window_start").type
        arrays = [times_array(start, time), times_array(end, time), *keys, *results]
        cast = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(cast, schema=self.schema)

    def _pieces(self) -> Iterator[tuple[Words, list[pa.Array], list[pa.Array]]]:
        node, last = self._node, None
        names = [key_column(i) for i in range(node.keys)]
        names += [aggregate_column(i) for i in range(len(node.partials))]
        for place, piece in enumerate(node.pieces):
            if isinstance(piece, QueryPlan):
                clock = "_time"  # the last tick of a grain, which lies in one window
                _, batches = self._run.rows(piece)
            else:
                clock = "window_start"
                batches = self._raw[place].batches([clock, *names])
            for batch in batches:
                self._run.control.check()
                if not batch.num_rows:
                    continue
                if isinstance(piece, QueryPlan):
                    self._grains += batch.num_rows
                ticks = ticks_of_column(batch.column(batch.schema.get_field_index(clock)))
                numbers = node.windows.windows_of(ticks)[1]
                if (last is not None and int(numbers[0]) < last) or (np.diff(numbers) < 0).any():
                    raise InvalidArgument(
                        "the roll-up gave windows out of order; please report this query, and "
                        "write /*+ rollups(none) */ behind SELECT meanwhile"
                    )
                last = int(numbers[-1])
                columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
                yield numbers, columns[: node.keys], columns[node.keys :]

    def explain(self) -> Operator:
        node = self._node
        type_ = self.schema.field("window_start").type

        details: list[tuple[str, Any]] = [
            ("stream", node.stream),
            ("rollup", node.rollup),
            ("from", "the first" if node.since == TICK_MIN else shown_time(node.since, type_)),
            ("to", shown_time(node.until, type_)),
            ("windows", node.described),
            ("aggregates", tuple(str(a) for a in node.aggregates)),
            ("notes", node.notes),
        ]
        figures = (("rows_of_rollup", self._grains), ("windows", self._rows))
        below = tuple(self._raw[place].explain() for place in sorted(self._raw))
        return Operator(
            "RollupWindows", tuple(details), figures if self._rows else (), inputs=below
        )
