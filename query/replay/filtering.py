"""Filters through indexes: a condition is a pattern of one event, planned as such.

Omitted events do not satisfy the predicate; the exact filter is applied to the rest.  The lookup is
made before the decision, because only it shows whether the hits lie together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ...indexes.opened import RunsChanged
from ...indexes.stream_indexes import StreamIndexes
from ...store.prune import Never, Prune, RowFilter
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from .applicability import Demands
from .coarse import coarse_map
from .context import PlanContext
from .cost import CostModel
from .offers import list_offers
from .planning import considered
from .reading import read_spans
from .replay_plan import ReplayPlan, TermChoice
from .symbols import Block, Outline, Symbol
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
        located = plan.located()
    except RunsChanged:
        return None
    scanned = coarse.allowed.total * SCAN_EVENT_NS
    spans = located.spans
    if spans is None or len(spans) * SPAN_NS + spans.total * SCAN_EVENT_NS > 0.8 * scanned:
        return None
    return FilterPlan(snapshot, located)
