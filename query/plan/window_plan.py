"""Plan of windows; the cost model chooses tree or events (thesis section 3.3.2).

A roll-up may answer windows: which one, for which range, and what the stream must supply.  A
roll-up's windows are *grains*, and a query window is a run of them::

    query      |--------------|--------------|--------------|---
    grains     |    |    |    |    |    |    |    |    :    :
               events         roll-up        ^watermark  events
               (before the roll-up begins)

Conditions: query windows begin at grain borders; the roll-up has the query's keys and partial
aggregates; its conditions are among the query's, the others on its keys or a time range; it has
processed everything in the query's snapshot, or the events are gone.

========================  =====================================================
of the query              computed from the grains'
========================  =====================================================
count, sum, min, max      the same; floating-point sums only where the events
                          are gone, as rounding would differ
avg                       sum and count
first, last, any_value    the same, with the same keys
anything else             the same, with the roll-up's windows and keys
========================  =====================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.times import half_open
from ...store.options import retention_limits
from ...store.snapshot import Snapshot
from ..binding.window_binding import (
    BoundWindows,
    Fused,
    aggregate_text,
    condition_text,
    key_text,
    names_in,
)
from ..conditions.predicates import (
    TICK_MAX,
    TICK_MIN,
    PredicateCompiler,
    all_of,
    only_time,
    shown_time,
    time_bounds,
)
from ..contract.catalog import Rollup
from ..sql.dialect import error_on
from ..sql.nesting import all_true
from ..windows.aggregation import Costs, SelectedRange, estimate, result_schema
from ..windows.fields import Aggregate, FieldPlan, aggregate_column, in_tree, key_column
from ..windows.spec import AnyWindows, Calendar, CalendarWindows, SessionWindows, TimeWindows
from .nodes import (
    FilledWindows,
    Leaf,
    QueryPlan,
    RollupWindows,
    Scan,
    WindowAggregate,
    WindowedEvents,
)
from .planner import Planning, bounded


def plan_windows(bound: BoundWindows, planning: Planning) -> WindowAggregate | WindowedEvents:
    call, fused = bound.call, bound.fused
    windows = call.windows(planning.folder)
    snapshot = planning.snapshot(call.stream)
    scan = windowed_range(bound, planning)
    events: Scan | QueryPlan = scan
    if scan.low <= scan.high and (not scan.exact or (fused is not None and fused.derived)):
        events = planning.query(_query(bound))
    if isinstance(windows, TimeWindows) and windows.origin is None and scan.exact:
        start, end = half_open(scan.low, scan.high)
        windows = replace(windows, origin=snapshot.aggregate((), start, end).first or 0)
    if fused is None:
        return WindowedEvents(
            call.stream, bound.schema, events, bound.event_schema, windows, call.keys
        )
    strategy, reason, costs = _choice(bound, fused, windows, scan, snapshot)
    return WindowAggregate(
        call.stream, bound.schema, events, bound.event_schema, windows, tuple(fused.aggregates),
        tuple(fused.keys), frozenset(fused.derived), strategy, reason, costs, hook=planning.hook,
    )  # fmt: skip


def windowed_range(bound: BoundWindows, planning: Planning) -> Scan:
    """The time range of the events; exact if there are no other conditions."""
    return bounded(_scan(bound, planning), planning)


def _scan(bound: BoundWindows, planning: Planning) -> Scan:
    schema = planning.snapshot(bound.call.stream).schema
    if not bound.conditions:
        low, high = time_bounds(None, schema.time)
        return Scan(bound.call.stream, schema, low, high)
    columns = {name.lower(): name for name in schema.names}
    compiler = PredicateCompiler(schema, planning.folder, lambda c: columns.get(c.name.lower()))
    compiled = all_of([compiler.compile(condition) for condition in bound.conditions])
    low, high = time_bounds(compiled.prune, schema.time)
    exact = low > high or (compiled.exact and only_time(compiled.prune, schema.time))
    return Scan(bound.call.stream, schema, low, high, decided=exact)


def _query(bound: BoundWindows) -> Any:
    names = bound.call.schema.names
    columns: list[Any] = [exp.column(exp.to_identifier(name, quoted=True)) for name in names]
    derived = {} if bound.fused is None else bound.fused.derived
    columns += [exp.alias_(node.copy(), name, quoted=True) for name, node in derived.items()]
    stream = exp.to_identifier(bound.call.stream, quoted=True)
    query = exp.select(*columns).from_(exp.Table(this=stream))
    if bound.conditions:
        query.set("where", exp.Where(this=all_true(bound.conditions)))
    return query


def _choice(
    bound: BoundWindows, fused: Fused, windows: AnyWindows, scan: Scan, snapshot: Snapshot
) -> tuple[str, str, Costs | None]:
    if isinstance(windows, SessionWindows):
        return "replay", "sessions depend on every event", None
    if fused.keys:
        return "replay", "the tree does not keep aggregates by key", None
    if fused.derived:
        return "replay", "expressions are not in the tree", None
    ordered = [str(a) for a in fused.aggregates if not in_tree(a)]
    if ordered:
        return "replay", f"{ordered[0]} is not in the tree", None
    if not scan.exact:
        return "replay", "conditions on attributes", None
    names = dict.fromkeys(a.attribute for a in fused.aggregates if a.attribute is not None)
    names.pop(snapshot.schema.time, None)
    selected = SelectedRange(scan.low, scan.high) if scan.low <= scan.high else SelectedRange(0, 0)
    if isinstance(windows, CalendarWindows):
        windows = windows.typical(snapshot.schema.ticks_per_second or 1)
    costs = estimate(snapshot, windows, selected, tuple(names))
    if bound.strategy in ("replay", "index"):
        return bound.strategy, "hint", costs
    return "index" if costs.index <= costs.replay else "replay", "cheaper", costs


GRAIN_NS, QUERY_NS = 150, 6_000_000
"""Approximate nanoseconds per roll-up row, and to plan and run its query."""

_ORDERED = ("first", "last", "any_value")
_MERGED = ("count", "sum", "min", "max", "avg", *_ORDERED)


def plan_windowed(bound: BoundWindows, planning: Planning) -> Leaf:
    leaf = _unfilled(bound, planning)
    fill = bound.call.filled(planning.folder)
    if fill is None or isinstance(leaf, WindowedEvents):
        return leaf
    fused, windows = bound.fused, bound.call.windows(planning.folder)
    assert fused is not None
    if isinstance(windows, TimeWindows) and windows.origin is None:
        what = "windows that begin with the first event are not filled: give a time as origin"
        raise error_on(bound.call.text, bound.call.fill, what)
    assert isinstance(windows, TimeWindows | CalendarWindows)
    scan = windowed_range(bound, planning)
    counts = tuple(aggregate.function == "count" for aggregate in fused.aggregates)
    return FilledWindows(
        leaf, bound.schema, windows, fill, len(fused.keys), counts, scan.low, scan.high,
        planning.snapshot(bound.call.stream).schema.ticks_per_second,
    )  # fmt: skip


def _unfilled(
    bound: BoundWindows, planning: Planning
) -> WindowAggregate | WindowedEvents | RollupWindows:
    if not planning.rollups or bound.fused is None or bound.rollup == "none":
        return plan_windows(bound, planning)
    rollups = planning.catalog.rollups_of(bound.call.stream)
    if not rollups:
        return plan_windows(bound, planning)
    plans: list[RollupWindows] = []
    if bound.call.name == "tumble" and bound.strategy == "auto":
        for rollup in rollups:
            plan = _Answer(bound, bound.fused, rollup, planning).plan()
            if plan is not None:
                plans.append(plan)
    if plans:  # the one that leaves least to read, then the coarsest
        return max(plans, key=lambda plan: (plan.until - max(plan.since, TICK_MIN // 2), plan.size))
    plain = plan_windows(bound, planning)
    gone = _gone(planning, bound.call.stream)
    if gone is None or not isinstance(plain, WindowAggregate):
        return plain
    low = TICK_MIN if isinstance(plain.events, QueryPlan) else plain.events.low
    if low >= gone:
        return plain
    schema = planning.snapshot(bound.call.stream).schema
    shown = shown_time(gone, schema.time_type)
    note = (
        f"events of {bound.call.stream} before {shown} were dropped by retention, and no roll-up "
        "answers this query for them"
    )
    return replace(plain, notes=(note,))


def _gone(planning: Planning, stream: str) -> int | None:
    """Tick before which retention may have dropped events; None if it has dropped none."""
    snapshot = planning.snapshot(stream)
    state = snapshot.state
    if state.dropped_before is not None:
        return state.dropped_before
    if not state.dropped or state.truncated or state.last is None:
        return None  # otherwise an older release has dropped some
    gone = TICK_MIN
    if state.segments:
        gone = state.segments[0].first
    elif state.tail is not None:
        gone = state.tail().first
    retention = planning.catalog.stream_options(stream).get("retention")
    age, _ = retention_limits(retention, snapshot.schema)
    return gone if age is None else max(gone, state.last - age)


@dataclass(frozen=True)
class _Covered:
    """Ticks ``since`` to ``until`` of valid grains; events before ``gone`` were dropped."""

    since: int
    until: int
    gone: int | None


class _Answer:
    def __init__(
        self, bound: BoundWindows, fused: Fused, rollup: Rollup, planning: Planning
    ) -> None:
        self._bound = bound
        self._fused = fused
        self._rollup = rollup
        self._planning = planning
        self._kept = planning.snapshot(
            rollup.sink
        )  # before the stream's snapshot: the roll-up must not be ahead
        state = rollup.last_mark()
        mark = self._kept.state.marks.get(rollup.name)
        if mark is not None and state is not None and all(
            state.get(each) == mark.get(each) for each in ("rows", "retractions")
        ):  # fmt: skip
            mark = state  # later steps emitted nothing
        self._mark: Mapping[str, Any] | None = mark
        self._snapshot: Snapshot = planning.snapshot(bound.call.stream)

    def plan(self) -> RollupWindows | None:
        rollup, mark = self._rollup, self._mark
        if mark is None or mark.get("watermark") is None:
            return None
        keys = [rollup.keys.get(key_text(self._fused, name)) for name in self._fused.keys]
        conditions = self._conditions()
        if None in keys or conditions is None:
            return None
        low, high, residual = conditions
        if low > high:
            return None
        covered = self._covered(mark)
        windows = self._bound.call.windows(self._planning.folder)
        if isinstance(windows, TimeWindows):
            if windows.origin is None or windows.size != windows.slide:
                return None
            if windows.size % rollup.size or not rollup.aligned(windows.origin):
                return None
        same = (
            isinstance(windows, TimeWindows)
            and windows.size == rollup.size
            and len(set(keys)) == len(rollup.keys)
        )
        aggregates, inexact = list(self._fused.aggregates), False
        if not same or not self._has(aggregates):
            partials = self._partials(same, len(set(keys)) == len(rollup.keys))
            if partials is None:
                return None
            same, (aggregates, inexact) = False, partials
        until = covered.until
        if inexact:  # different rounding: only where events are gone
            if covered.gone is None:
                return None
            until = min(until, self._grain_from(covered.gone))
        since = max(low, covered.since)
        since = since if since == TICK_MIN else self._grain_from(since)
        until = min(until, rollup.begin(high + 1) if high < TICK_MAX else until)
        if since >= until:
            return None
        if isinstance(windows, CalendarWindows):
            calendar = self._calendar(windows, low, high, since, until)
            if calendar is None:
                return None
            form: TimeWindows | Calendar = calendar
        else:
            assert isinstance(windows, TimeWindows)
            form = windows
        low_time = self._time_of(since)
        grains = self._kept.events_between(low_time, until)
        if not grains or self._cheaper_without(covered, since, until, grains):
            return None
        before = self._raw(aggregates, low, since - 1) if since > low else None
        after = self._raw(aggregates, until, high) if until <= high else None
        with self._planning.within(rollup.sink, low_time, until):
            tree = self._selected([str(key) for key in keys], aggregates, residual)
            rolled = self._planning.query(tree)
        pieces = tuple(piece for piece in (before, rolled, after) if piece is not None)
        described = windows.describe(self._snapshot.schema.time_type)
        return RollupWindows(
            self._bound.call.stream, rollup.name, self._bound.schema, form, described,
            rollup.size, since, until, pieces, tuple(self._fused.aggregates), tuple(aggregates),
            len(keys), self._fused.schema, same, self._notes(covered, low, since, until, inexact),
        )  # fmt: skip

    # -- what it has ------------------------------------------------------------------------------

    def _conditions(self) -> tuple[int, int, list[Any]] | None:
        """Time range, and conditions on keys; None if there are others."""
        bound, schema = self._bound, self._snapshot.schema
        missing, times, residual = set(self._rollup.conditions), [], []
        for node in bound.conditions:
            names, text = names_in(node), condition_text(node)
            if text is None:
                return None
            if text in self._rollup.conditions:
                missing.discard(text)
            elif names == {schema.time.lower()}:
                times.append(node)
            elif names and names <= {name.lower() for name in self._rollup.attributes}:
                residual.append(node)
            else:
                return None
        if missing:
            return None
        compiler = PredicateCompiler(schema, self._planning.folder, lambda _: schema.time)
        compiled = all_of([compiler.compile(node) for node in times])
        if times and not (compiled.exact and only_time(compiled.prune, schema.time)):
            return None
        low, high = time_bounds(compiled.prune if times else None, schema.time)
        return low, high, residual

    def _covered(self, mark: Mapping[str, Any]) -> _Covered:
        """Grains that are complete and consistent with the query's snapshot."""
        rollup, state, watermark = self._rollup, self._snapshot.state, int(mark["watermark"])
        gone = _gone(self._planning, rollup.stream)
        until = rollup.begin(min(watermark, TICK_MAX - 1) + 1)
        position = int(mark["positions"].get(rollup.stream, 0))
        _, end = half_open(TICK_MIN, watermark)
        events = self._snapshot.events_between(None, end) + state.gone
        if (
            events != int(mark["events"].get(rollup.stream, 0))
            or max(state.rewritten, state.truncated) > position
        ):  # unprocessed late events: read the stream where it exists
            until = TICK_MIN if gone is None else min(until, self._grain_from(gone))
        since = TICK_MIN
        lost = _gone(self._planning, rollup.sink)
        if lost is not None:  # the roll-up's own retention
            since = rollup.begin(lost) + rollup.size
        return _Covered(since, until, gone)

    def _grain_from(self, tick: int) -> int:
        begin = self._rollup.begin(tick)
        return begin if begin == tick else begin + self._rollup.size

    def _time_of(self, begin: int) -> int | None:
        return None if begin == TICK_MIN else begin + self._rollup.size - 1

    def _has(self, aggregates: list[Aggregate]) -> bool:
        stored = self._rollup.aggregates
        return all(aggregate_text(self._bound, aggregate) in stored for aggregate in aggregates)

    def _partials(self, same: bool, same_keys: bool) -> tuple[list[Aggregate], bool] | None:
        """Partial aggregates, and whether sums are rounded again."""
        wanted: dict[Aggregate, None] = {}
        inexact = False
        for aggregate in self._fused.aggregates:
            function, name = aggregate.function, aggregate.attribute
            if not same and (function not in _MERGED or (function in _ORDERED and not same_keys)):
                return None
            if function in ("sum", "avg") and not same:
                assert name is not None
                type_ = self._fused.schema.attribute(name).type
                inexact = inexact or pa.types.is_floating(type_)
            parts = [aggregate]
            if function == "avg" and not (same and self._has(parts)):
                parts = [Aggregate("sum", name), Aggregate("count", name)]
            wanted.update(dict.fromkeys(parts))
        return (list(wanted), inexact) if self._has(list(wanted)) else None

    def _calendar(
        self, windows: CalendarWindows, low: int, high: int, since: int, until: int
    ) -> Calendar | None:
        """The calendar over the present range, if its windows begin at grain borders."""
        size, spans = self._rollup.size, []
        if self._snapshot.time_range is not None:
            spans.append(self._snapshot.time_range)
        if self._kept.time_range is not None:
            first, last = self._kept.time_range
            spans.append((first - size + 1, last))
        if not spans:
            return None
        first = max(low, min(first for first, _ in spans))
        last = min(high, max(last for _, last in spans))
        per_second = self._snapshot.schema.ticks_per_second
        if first > last or per_second is None:
            return None
        calendar = windows.calendar(first, last, per_second)
        inside = calendar.edges[(calendar.edges > since) & (calendar.edges < until)]
        if ((inside - self._rollup.origin) % size).any():
            return None
        return calendar

    def _cheaper_without(self, covered: _Covered, since: int, until: int, grains: int) -> bool:
        """Whether the tree answers the range, with no events gone, at less cost."""
        fused, bound = self._fused, self._bound
        if bound.rollup == "always" or fused.keys or fused.derived:
            return False
        if covered.gone is not None and since < covered.gone:
            return False
        with self._planning.within(self._rollup.stream, None if since == TICK_MIN else since,
                                   until):  # fmt: skip
            plain = plan_windows(bound, self._planning)
        if not isinstance(plain, WindowAggregate) or plain.costs is None:
            return False
        return plain.strategy == "index" and plain.costs.index <= QUERY_NS + grains * GRAIN_NS

    # -- what is planned --------------------------------------------------------------------------

    def _raw(self, aggregates: list[Aggregate], low: int, high: int) -> WindowAggregate:
        bound, fused = self._bound, self._fused
        schema = result_schema(FieldPlan(fused.schema, aggregates), TimeWindows(1, 1), fused.keys)
        partial = replace(bound, fused=replace(fused, aggregates=list(aggregates)), schema=schema)
        with self._planning.within(bound.call.stream, *half_open(low, high)):
            leaf = plan_windows(partial, self._planning)
        assert isinstance(leaf, WindowAggregate)
        return leaf

    def _selected(self, keys: list[str], aggregates: list[Aggregate], residual: list[Any]) -> Any:
        rollup = self._rollup
        columns = [("_time", "_time"), *((key, key_column(i)) for i, key in enumerate(keys))]
        for i, aggregate in enumerate(aggregates):
            text = aggregate_text(self._bound, aggregate)
            columns.append((rollup.aggregates[text], aggregate_column(i)))
        call = exp.Anonymous(this="NET", expressions=[_column(rollup.sink)])
        query = exp.select(
            *(exp.alias_(_column(name), alias, quoted=True) for name, alias in columns)
        ).from_(exp.Table(this=call))
        if residual:
            names = {name.lower(): column for name, column in rollup.attributes.items()}
            made = [node.copy() for node in residual]
            for node in made:
                for column in list(node.find_all(exp.Column)):
                    column.set("this", exp.to_identifier(names[column.name.lower()], quoted=True))
            query.set("where", exp.Where(this=all_true(made)))
        return query

    def _notes(
        self, covered: _Covered, low: int, since: int, until: int, inexact: bool
    ) -> tuple[str, ...]:
        gone, stream, name = covered.gone, self._rollup.stream, self._rollup.name
        if gone is None or low >= gone:
            return ()
        type_ = self._snapshot.schema.time_type

        dropped = f"events of {stream} before {shown_time(gone, type_)} were dropped by retention"
        answered = f"the roll-up {name} answers up to {shown_time(until, type_)}"
        if since > low:
            answered += f", from {shown_time(since, type_)} on: of what is before, nothing is known"
        if until < gone:
            answered += f"; of what is between, only {stream} tells, which has not all"
        rounded = "; sums of floating-point numbers are those of its windows, added" * inexact
        return (f"{dropped}: {answered}{rounded}",)


def _column(name: str) -> Any:
    return exp.column(exp.to_identifier(name, quoted=True))
