"""Filters through indexes: a condition is a pattern of one event, planned as such.

Omitted events do not satisfy the predicate; the exact filter is applied to the rest.  The lookup is
made before the decision, because only it shows whether the hits lie together.

A subquery of plain columns over one stream, filtered row by row, has intervals too.  ``FROM (SELECT
t, x FROM s WHERE x > 3) MATCH_RECOGNIZE (...)`` is planned over the stream, and the intervals are
added to the subquery's WHERE.  Its neighbouring rows may lie anywhere in the stream, so symbols are
compared by time alone, and the filter is a further condition of each.  Rows and order are those of
the whole subquery: all rows within an interval are present, and a match across two intervals would
be a candidate, covered by one.  Limits: WITHIN is required, and no rows outside of a match are
looked at.  All partitions share one set of intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from ...indexes.opened import RunsChanged
from ...indexes.stream_indexes import StreamIndexes
from ...schema import StreamSchema
from ...store.prune import AllOf, Never, Prune, RowFilter
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..conditions.constants import Folder
from ..conditions.predicates import PredicateCompiler
from ..pattern.compiled import CompiledMatch
from .applicability import Demands, demands, not_applicable
from .coarse import coarse_map
from .context import Costs, PlanContext
from .cost import CostModel
from .offers import list_offers
from .planning import consider, considered, located_plan, retrying
from .reading import read_spans
from .replay_plan import ReplayPlan, TermChoice
from .spans import READ_GAP
from .symbols import Block, Outline, Symbol, outline
from .terms import index_terms

SCAN_EVENT_NS = 3.0
SPAN_NS = 30_000.0
SHARE_MAX = 0.02
"""Most events, as a share, that may satisfy a term for a lookup to be worth it."""


@dataclass(frozen=True)
class FilterPlan:
    """Where the events that may satisfy a predicate are."""

    snapshot: Snapshot
    replay: ReplayPlan

    def details(self) -> tuple[str, ...]:
        return tuple(text.partition(": ")[2] for text in self.replay.chosen)

    def scan(
        self,
        low: int,
        high: int,
        columns: Sequence[str] | None,
        filter: RowFilter | None,
        limit: int | None,
        metrics: ScanMetrics,
        check: Callable[[], None],
    ) -> Iterator[pa.RecordBatch]:
        """Events with low <= t <= high (ticks) that satisfy a filter, in time order."""
        schema, timeline = self.snapshot.schema, self.replay.timeline
        intervals = self.replay.intervals
        assert timeline is not None
        assert intervals is not None
        wanted = schema.select(columns)
        read = () if filter is None else filter.columns
        needed = wanted + [name for name in read if name not in wanted]
        with_time = needed if schema.time in needed else [*needed, schema.time]
        pieces = read_spans(
            self.snapshot, timeline, replace(intervals, before=0, after=0), with_time, metrics,
            check,
        )  # fmt: skip
        remaining = limit
        for batch, _ in pieces:
            rows = _within(batch, with_time.index(schema.time), low, high)
            if filter is not None and rows.num_rows:
                rows = filter(rows)
            if not rows.num_rows:
                continue
            if remaining is not None:
                rows = rows.slice(0, remaining)
                remaining -= rows.num_rows
            yield rows.select(wanted)
            if remaining == 0:
                return


def _within(batch: pa.RecordBatch, column: int, low: int, high: int) -> pa.RecordBatch:
    from ...store.tail import ticks_of_column

    ticks = ticks_of_column(batch.column(column))
    if not len(ticks) or (ticks[0] >= low and ticks[-1] <= high):
        return batch
    first = int(ticks.searchsorted(low, "left"))
    end = int(ticks.searchsorted(high, "right"))
    return batch.slice(first, max(0, end - first))


def plan_filter(
    snapshot: Snapshot,
    indexes: StreamIndexes,
    prune: Prune,
    low: int,
    high: int,
    check: Callable[[], None] | None = None,
) -> FilterPlan | None:
    """Plan a filter, which implies ``prune``; None if a pruned scan should be as good."""
    terms = index_terms(prune, snapshot.schema, frozenset(indexes.attributes))
    if not terms or isinstance(prune, Never):
        return None
    symbol = Symbol("filter", prune, terms)
    pattern = Outline((Block((symbol,)),), False, False, 1, None, True, False)
    context = PlanContext.of(
        snapshot, pattern, Demands((), False, False, 0, 0), indexes, None, check
    )
    if not context.total:
        return None
    timeline = context.timeline
    first = int(timeline.lower(np.array([low], np.int64))[0])
    end = int(timeline.upper(np.array([high], np.int64))[0])
    # the alternative to a filter is a pruned scan, which reads zones itself
    coarse = coarse_map(timeline, pattern, first, end, zones=False, histogram=context.histogram)
    available = list_offers(context, coarse)
    rare = [one for one in available.items if one.entries <= SHARE_MAX * context.total]
    picked = tuple(sorted(rare, key=lambda offer: offer.entries)[:2])
    model = CostModel(context, coarse, available, coarse.allowed.total)
    plan = considered(context, "filter", model, TermChoice(available.items, picked))
    if not picked:
        return None
    try:
        located = located_plan([plan])
    except RunsChanged:
        return None
    scanned = coarse.allowed.total * SCAN_EVENT_NS
    spans = located.spans
    if spans is None or len(spans) * SPAN_NS + spans.total * SCAN_EVENT_NS > 0.8 * scanned:
        return None
    return FilterPlan(snapshot, located)


SPANS_MAX = 64
"""Most intervals of one subquery; near ones are joined until there are so few."""
ROW_NS = 60.0
"""Running one event through the subquery, sorting and matching it."""
_TYPES = {"s": "TIMESTAMP_S", "ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}


def local_stream(query: Any, streams: Sequence[str]) -> str | None:
    """The stream whose plain columns a query selects row by row; None for other queries."""
    if not isinstance(query, exp.Select):
        return None
    clauses = {"expressions", "from", "from_", "where", "kind", "operation_modifiers"}
    if any(value for key, value in query.args.items() if key not in clauses):
        return None
    source = query.args.get("from_") or query.args.get("from")
    table = None if source is None else source.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return None
    if any(value for key, value in table.args.items() if key not in ("this", "alias")):
        return None
    for item in query.expressions:
        if not isinstance(item, exp.Star | exp.Column) or (
            isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        ):
            return None
        if isinstance(item, exp.Star) and any(item.args.values()):
            return None
    where = query.args.get("where")
    if where is not None and where.find(exp.Query, exp.Window, exp.AggFunc):
        return None
    folded = {name.lower(): name for name in streams}
    return table.name if table.name in streams else folded.get(table.name.lower())


def plan_subquery(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    query: Any,
    indexes: StreamIndexes | None,
    strategy: str,
    folder: Folder,
    check: Callable[[], None] | None = None,
) -> ReplayPlan:
    """Plan a clause over a subquery of ``local_stream``; with a reason, all of it must run."""
    reason = _obstacle(snapshot.schema, compiled, strategy)
    if reason:
        return ReplayPlan(strategy, reason)
    schema = snapshot.schema
    pattern = outline(compiled, schema, folder, _filter(query, schema, folder), skipping=True)
    if not pattern.blocks:
        return ReplayPlan(strategy, "no symbol is needed by every match", outline=pattern)

    def plan() -> ReplayPlan:
        wants = Demands((), True, False, 0, 0)
        context = PlanContext.of(snapshot, pattern, wants, indexes, Costs(event=ROW_NS), check)
        return located_plan([consider(context, strategy)])

    spans = retrying(plan)
    if spans is None:
        return ReplayPlan(strategy, "the indexes kept changing", outline=pattern)
    return _fewer(spans)


def _obstacle(schema: StreamSchema, compiled: CompiledMatch, strategy: str) -> str:
    if strategy == "replay":
        return "asked for"
    columns = compiled.columns
    time = schema.arrow.field(schema.time).type
    # the rows are sorted before they are matched, so their order in the subquery does not matter
    by_time = bool(compiled.order_by) and compiled.order_by[0][:2] == (schema.time, False)
    if any(name not in schema for name in columns.arrow.names):
        return "the subquery has columns that the stream does not have"
    if not by_time or columns.time != schema.time or columns.arrow.field(schema.time).type != time:
        return "ORDER BY does not begin with the stream's time"
    if pa.types.is_timestamp(time) and time.tz is not None:
        return "the stream's time has a time zone"
    if compiled.within is None:
        return "the pattern has no WITHIN, and its rows may lie anywhere in the stream"
    if demands(compiled).neighbours:
        return "PREV, NEXT, ^ or $ look at rows of the subquery outside of a match"
    return not_applicable(compiled, ordered=True)


def _fewer(plan: ReplayPlan) -> ReplayPlan:
    gap = READ_GAP
    while plan.intervals is not None and len(plan.intervals.spans) > SPANS_MAX:
        gap *= 2
        if not plan.intervals.by_time:
            spans = plan.intervals.spans.joined(gap)
            plan = replace(plan, intervals=replace(plan.intervals, spans=spans))
        elif gap > plan.total:
            plan = replace(plan, intervals=None, reason="there are too many intervals")
    return plan


def _filter(query: Any, schema: StreamSchema, folder: Folder) -> Prune | None:
    where = query.args.get("where")
    if where is None:
        return None
    names = {name.lower(): name for name in schema.names}

    def column_of(node: Any) -> str | None:
        if not isinstance(node, exp.Column):
            return None
        return node.name if node.name in schema else names.get(node.name.lower())

    prune = PredicateCompiler(schema, folder, column_of).compile(where.this).prune
    return None if prune == AllOf(()) else prune


def restricted(query: Any, plan: ReplayPlan, schema: StreamSchema) -> Any:
    assert plan.intervals is not None
    spans, by_time = plan.intervals.spans, plan.intervals.by_time
    timeline, type_ = plan.timeline, schema.arrow.field(schema.time).type
    time = exp.column(schema.time, quoted=True)
    ranges: list[Any] = []
    for number, (start, end) in enumerate(
        zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)
    ):
        assert timeline is not None
        ticks = by_time.get(number) or (timeline.tick(start), timeline.tick(end - 1))
        low, high = (_literal(tick, type_) for tick in ticks)
        inside = exp.and_(
            exp.true() if low is None else exp.GTE(this=time.copy(), expression=low),
            exp.true() if high is None else exp.LTE(this=time.copy(), expression=high),
        )
        ranges.append(exp.paren(inside, copy=False))
    within_spans = exp.paren(exp.or_(*ranges)) if ranges else exp.false()
    where = query.args.get("where")
    narrowed = query.copy()
    condition = (
        within_spans if where is None else exp.and_(exp.paren(where.this.copy()), within_spans)
    )
    narrowed.set("where", exp.Where(this=condition))
    return narrowed


def _literal(tick: int, type_: pa.DataType) -> Any:
    """A tick as a constant; None for times that no text gives, which are left without a bound."""
    if not pa.types.is_timestamp(type_):
        return exp.Literal.number(str(tick))
    text = str(pa.scalar(tick, type_).cast(pa.string()).as_py())
    if text.startswith("<"):  # <value out of range: ...>
        return None
    return exp.cast(exp.Literal.string(text), _TYPES[type_.unit], dialect="duckdb")
