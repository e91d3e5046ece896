"""Filters through indexes: a condition is a pattern of one event, planned as such.

Omitted events do not satisfy the predicate; the exact filter is applied to the rest.  The lookup is
made before the decision, because only it shows whether the hits lie together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from ...indexes.stream_indexes import RunsChanged, StreamIndexes
from ...store.prune import Never, Prune
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from .applicability import Demands
from .considered import plan_intervals
from .context import PlanContext
from .cost import Weights
from .offers import Offer
from .reader import read_spans
from .replay_plan import ReplayPlan
from .symbols import Block, Outline, Symbol
from .terms import index_terms

__all__ = ["FilterPlan", "plan_filter"]

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
        filter: pc.Expression | None,
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
        text = "" if filter is None else str(filter)
        needed = wanted + [n for n in schema.names if n not in wanted and n in text]
        with_time = needed if schema.time in needed else [*needed, schema.time]
        pieces = read_spans(
            self.snapshot, timeline, replace(intervals, before=0, after=0), with_time, metrics,
            check,
        )  # fmt: skip
        remaining = limit
        for batch, _ in pieces:
            kept = _within(batch, with_time.index(schema.time), low, high)
            if filter is not None and kept.num_rows:
                kept = kept.filter(filter)
            if not kept.num_rows:
                continue
            if remaining is not None:
                kept = kept.slice(0, remaining)
                remaining -= kept.num_rows
            yield kept.select(wanted)
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
    nothing = Demands((), False, False, 0, 0)
    context = PlanContext.of(
        snapshot, pattern, nothing, indexes, Weights(event=SCAN_EVENT_NS), check
    )
    most = SHARE_MAX * max(1, context.total)

    def rarest(offers: Sequence[Offer]) -> Sequence[int]:
        rare = [i for i, offer in enumerate(offers) if offer.entries <= most]
        return sorted(rare, key=lambda i: offers[i].entries)[:2]

    try:
        plan = plan_intervals(context, "filter", picker=rarest, bounds=(low, high))
    except RunsChanged:
        return None
    spans = plan.spans
    if spans is None or not plan.picked:
        return None
    scanned = plan.allowed * SCAN_EVENT_NS
    if len(spans) * SPAN_NS + spans.total * SCAN_EVENT_NS > 0.8 * scanned:
        return None
    return FilterPlan(snapshot, plan)
