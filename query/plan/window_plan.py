"""Plan of windows; the cost model chooses tree or events (thesis section 3.3.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from ...store.snapshot import Snapshot
from ..binding.window_binding import BoundWindows
from ..binding.window_fusion import Fused
from ..conditions.predicates import PredicateCompiler, all_of
from ..conditions.ranges import half_open, only_time, time_bounds
from ..sql.nesting import all_true
from ..windows.aggregation import SelectedRange
from ..windows.cost import Costs, estimate, load_calibration
from ..windows.fields import in_tree
from ..windows.spec import AnyWindows, CalendarWindows, SessionWindows, TimeWindows
from .nodes import QueryPlan, Scan, WindowAggregate, WindowedEvents
from .planner import Planning, bounded

__all__ = ["plan_windows", "windowed_range"]


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
    strategy, reason, costs = _choice(bound, fused, windows, scan, snapshot, planning)
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
    known = {name.lower(): name for name in schema.names}
    compiler = PredicateCompiler(schema, planning.folder, lambda c: known.get(c.name.lower()))
    compiled = all_of([compiler.compile(condition) for condition in bound.conditions])
    low, high = time_bounds(compiled.prune, schema.time)
    exact = low > high or (compiled.exact and only_time(compiled.prune, schema.time))
    return Scan(bound.call.stream, schema, low, high, exact=exact)


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
    bound: BoundWindows,
    fused: Fused,
    windows: AnyWindows,
    scan: Scan,
    snapshot: Snapshot,
    planning: Planning,
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
    calibration = load_calibration(planning.catalog.path)
    if isinstance(windows, CalendarWindows):
        windows = windows.typical(snapshot.schema.ticks_per_second or 1)
    costs = estimate(snapshot, windows, selected, tuple(names), calibration)
    if bound.strategy in ("replay", "index"):
        return bound.strategy, "hint", costs
    return "index" if costs.index <= costs.replay else "replay", "cheaper", costs
