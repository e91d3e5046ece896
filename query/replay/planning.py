"""Planning a pattern query: the whole stream, with the reason, or intervals with every match.

Each stage is a function from values to an immutable value::

    clause     -> Outline          symbols.outline            what every match contains
    Outline    -> PlanContext      context.PlanContext.of     of one snapshot and its indexes
    context    -> CoarseMap        coarse.coarse_map          pruning by leaves
    + map      -> Offers           offers.list_offers         terms, and how often they hold
    + offers   -> TermChoice       cost.choose_terms          terms to look up
    + choice   -> spans            locating.located           that contain every match
    + spans    -> ReplayIntervals  intervals                  with late events

``consider`` makes the choice without reading an index block.  If a run disappears while it is read,
planning restarts.  A pattern may be restricted to tick ranges, wide enough to hold every relevant
match.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.caches import Lru
from ...core.sorting import numbered
from ...indexes.opened import RunsChanged
from ...indexes.stream_indexes import StreamIndexes
from ...schema import StreamSchema
from ...store.prune import IsNull
from ...store.snapshot import Snapshot
from ..conditions.constants import Folder
from ..conditions.predicates import describe
from ..pattern.compiled import CompiledMatch
from .applicability import Demands, demands, not_applicable
from .coarse import coarse_map
from .context import REPLAY_GAP, Costs, PlanContext
from .cost import CostModel, choose_terms
from .intervals import intervals_of_partitions, intervals_of_stream
from .locating import located
from .lookups import Lookups
from .offers import Offer, list_offers
from .partitions import PartitionKeys, PartitionSpans
from .replay_plan import ReplayIntervals, ReplayPlan, TermChoice
from .spans import READ_GAP, Spans
from .symbols import Outline, cached_outline
from .timeline import Timeline

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyedRanges:
    """Inclusive tick ranges, each for one ``key`` code; ``values``: by column, indexed by code."""

    low: Ints
    high: Ints
    key: Ints
    columns: Sequence[str]
    values: Sequence[pa.Array]

    def partitions(self, timeline: Timeline, schema: StreamSchema) -> PartitionSpans:
        keys = PartitionKeys(timeline, self.columns, schema)
        code = keys.number(self.values)[self.key]
        low, high = _positions(timeline, self.low, self.high)
        return PartitionSpans.of(keys, code, low, high, timeline.total + 1)


@dataclass(frozen=True)
class Near:
    """Inclusive, disjoint, ascending tick ranges, each with ``rows`` events around it.  ``keyed``:
    the same by key, if rows of other keys do not matter.
    """

    low: Ints
    high: Ints
    rows: int = 0
    keyed: KeyedRanges | None = None

    def spans(self, timeline: Timeline) -> Spans:
        low, high = _positions(timeline, self.low, self.high)
        return Spans.of(
            np.maximum(low - self.rows, 0), np.minimum(high + self.rows, timeline.total)
        )


def _positions(timeline: Timeline, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    first, last = numbered(low), numbered(high)
    return timeline.lower(first[0])[first[1]], timeline.upper(last[0])[last[1]]


@dataclass(frozen=True)
class Considered:
    """The choice for one outline; its ``plan`` has no intervals yet.  ``model`` is None if there is
    nothing to look up; ``nothing``: the outline has no match.
    """

    context: PlanContext
    plan: ReplayPlan
    model: CostModel | None = None
    nothing: bool = False

    def located(self, near: Near | None = None) -> ReplayPlan:
        """The plan with its intervals, or with the reason to replay the whole stream.  With
        ``near``, there are always intervals.
        """
        plan, spans = self._spans()
        if spans is not None:
            intervals, needed = self._intervals(spans)
            model = self.model
            if plan.strategy != "auto" or not plan.picked or model is None or model.pays(intervals):
                return self._near(replace(plan, intervals=intervals, needed=needed), spans, near)
            cost, full = model.found_ns(intervals) / 1e6, model.full_ns / 1e6
            why = f"the intervals found would cost {cost:.1f} ms, a full replay {full:.1f} ms"
            plan = replace(plan, reason=why)
        plan = replace(plan, picked=())
        if near is None or self.model is None:
            return plan
        allowed = self.model.coarse.allowed
        intervals, needed = self._intervals(allowed)
        plan = replace(plan, reason="", intervals=intervals, needed=needed)
        return self._near(plan, allowed, near)

    def _spans(self) -> tuple[ReplayPlan, Spans | PartitionSpans | None]:
        """The plan with the terms that were looked up, and spans that contain its matches; None,
        with a reason, for the whole stream.
        """
        context, plan, model = self.context, self.plan, self.model
        if self.nothing:
            return plan, Spans.empty()
        picked = plan.choice.picked
        if model is None or picked is None:
            return replace(plan, reason=plan.choice.reason or plan.reason), None
        allowed = model.coarse.allowed
        if not picked:
            if context.partitioned and context.wants.neighbours and len(allowed):
                why = "no index can be used, and neighbours in the partition are looked at"
                return replace(plan, reason=why), None
            return plan, allowed
        lookups = Lookups.of(context, model.coarse, picked)
        plan = replace(plan, covered=lookups.indexed / context.total)
        result = located(lookups, model if plan.strategy == "auto" else None)
        if result.spans is None:
            return replace(plan, reason=result.reason), None
        return replace(plan, picked=result.used, shared=result.shared), result.spans

    def _intervals(self, spans: Spans | PartitionSpans) -> tuple[ReplayIntervals, int]:
        if isinstance(spans, PartitionSpans):
            return intervals_of_partitions(self.context, spans), spans.hull().total
        return intervals_of_stream(self.context, spans), spans.total

    def _near(
        self, plan: ReplayPlan, spans: Spans | PartitionSpans, near: Near | None
    ) -> ReplayPlan:
        """The plan narrowed to the keys that matter."""
        context = self.context
        if near is None or near.keyed is None or isinstance(spans, PartitionSpans):
            return plan
        if not context.total:
            return plan
        assert plan.intervals is not None
        keyed = near.keyed.partitions(context.timeline, context.schema)
        intervals, needed = self._intervals(keyed.intersect(plan.intervals.spans))
        return replace(plan, intervals=intervals, needed=needed)


def consider(
    context: PlanContext,
    strategy: str,
    *,
    near: Near | None = None,
    evaluating: bool = True,
) -> Considered:
    """Choose the terms of one outline, without reading an index block.  With ``near`` only matches
    there matter; ``evaluating``: terms without an index may be evaluated.
    """
    if not context.total:
        why = "there are only late events" if context.snapshot.count else "no events"
        return considered(context, strategy, reason=why)
    if context.pattern.impossible:
        return replace(considered(context, strategy), nothing=True)
    coarse = coarse_map(
        context.timeline, context.pattern, 0, context.total, ties=context.wants.ties,
        histogram=context.histogram,
    )  # fmt: skip
    if near is not None:
        coarse = coarse.narrowed(near.spans(context.timeline))
    terms = list_offers(context, coarse, evaluating and context.partitioned and strategy == "auto")
    whole = context.total if near is None else coarse.allowed.total
    model = CostModel(context, coarse, terms, whole)
    if strategy == "replay":
        choice = TermChoice(terms.items)
    else:
        choice = choose_terms(model, strategy)
    return considered(context, strategy, model, choice)


def considered(
    context: PlanContext,
    strategy: str,
    model: CostModel | None = None,
    choice: TermChoice | None = None,
    reason: str = "",
) -> Considered:
    plan = ReplayPlan(
        strategy, reason, outline=context.pattern, timeline=context.timeline,
        choice=choice or TermChoice(), metrics=context.metrics,
        show=_Shown(context.schema, frozenset(context.indexed)),
        unavailable="" if context.indexes is None else context.indexes.trouble(),
        allowed=0 if model is None else model.coarse.allowed.total,
    )  # fmt: skip
    return Considered(context, plan, model)


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000


@dataclass(frozen=True)
class _Shown:
    schema: StreamSchema
    indexed: frozenset[str]

    def __call__(self, offer: Offer) -> str:
        schema, atoms = self.schema, offer.term.atoms
        shown = [a for a in atoms if a.column in schema or not isinstance(a, IsNull)] or atoms
        parts = [describe(atom, schema) or "true" for atom in shown]
        if offer.term.text:
            parts = [offer.term.text]
        indexed = all(name in self.indexed for name in offer.term.attributes)
        how = "" if indexed else " (no index: evaluated)"
        return f"{offer.name}: {' or '.join(parts)}{how}"


STRATEGIES = ("auto", "replay", "all")
RETRIES = 4
NEIGHBOURS_MAX = 64
"""Rows around an interval that are searched in its partition."""

SPANS_CACHED = 1 << 18
"""Spans of all plans that are cached for one state of a stream."""
PLANS_CACHED = 32


def _weight(cached: tuple[CompiledMatch, object, ReplayPlan]) -> int:
    plan = cached[2]
    spans = 0 if plan.spans is None else len(plan.spans)
    inside = 0 if plan.partitions is None else len(plan.partitions.inside)
    return max(SPANS_CACHED // PLANS_CACHED, spans + inside)


def cached_plan(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None,
    strategy: str,
    folder: Folder,
    check: Callable[[], None],
) -> ReplayPlan:
    """``plan_match`` of a clause without parameters, or the earlier plan, if neither the stream
    nor its indexes have changed.
    """
    plans = snapshot.state.notes.setdefault("plans", Lru(SPANS_CACHED, _weight))
    cached = plans.get((id(compiled), strategy))
    catalogue = None if indexes is None else indexes.catalogue()
    if cached is not None and cached[0] is compiled and cached[1] is catalogue:
        plan: ReplayPlan = cached[2]
        return plan.again()
    plan = plan_match(snapshot, compiled, indexes, strategy, folder=folder, check=check)
    plans.put((id(compiled), strategy), (compiled, catalogue, plan))
    return plan


def plan_match(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None = None,
    strategy: str = "auto",
    *,
    folder: Folder | None = None,
    costs: Costs | None = None,
    check: Callable[[], None] | None = None,
    gap: int | None = None,
    near: Near | None = None,
    locate: bool = True,
) -> ReplayPlan:
    """Plan a pattern query over all events of a snapshot.  ``strategy``: ``replay`` the whole
    stream; ``all`` terms that indexes have; ``auto``: those that pay, or a replay.  ``gap``: events
    between intervals that are merged; with ``near`` only matches there matter and the plan always
    has intervals; without ``locate`` nothing is looked up and the plan is an estimate.
    """
    if strategy == "replay" and near is None:
        return ReplayPlan(strategy, "asked for")
    reason = not_applicable(compiled)
    if reason:
        return ReplayPlan(strategy, reason)
    begun = time.perf_counter()
    wants, prices = demands(compiled), costs or Costs()
    each = prices.keyed if wants.partition_by else prices.event
    if strategy == "auto" and near is None and locate and snapshot.count * each < prices.plan:
        return ReplayPlan(strategy, "a replay takes less time than planning")
    indexed = frozenset() if indexes is None else frozenset(indexes.attributes)
    pattern = cached_outline(compiled, snapshot.schema, folder, indexed)
    reason = _obstacle(snapshot, pattern, wants, near is not None)
    if reason:
        return ReplayPlan(strategy, reason, outline=pattern)
    phases = {"outline_ms": _since(begun)}
    if gap is None:
        gap = READ_GAP if wants.partition_by else REPLAY_GAP

    def attempt() -> ReplayPlan:
        started = time.perf_counter()
        context = PlanContext.of(snapshot, pattern, wants, indexes, costs, check, gap)

        choice = consider(context, strategy, near=near)
        phases["selection_ms"] = _since(started)
        if not locate:
            plan = choice.plan
            return replace(plan, reason=plan.choice.reason or plan.reason, phases=phases)
        started = time.perf_counter()
        plan = choice.located(near)
        phases["lookup_ms"] = _since(started)
        return replace(plan, phases=phases)

    return retrying(attempt) or ReplayPlan(
        strategy, "the indexes kept changing", outline=pattern, phases=phases
    )


def retrying(plan: Callable[[], ReplayPlan]) -> ReplayPlan | None:
    """A plan, retried when runs that it reads are replaced; None after ``RETRIES``."""
    for _ in range(RETRIES):
        try:
            return plan()
        except RunsChanged:
            continue
    return None


def _obstacle(snapshot: Snapshot, pattern: Outline, wants: Demands, near: bool) -> str:
    if not pattern.blocks and not near:
        return "no symbol is needed by every match"
    if not pattern.bounded:
        return "the pattern has no WITHIN and no bound on its events"
    if not wants.partition_by or (pattern.within is not None and not wants.neighbours):
        return ""
    if wants.ties:
        return "ORDER BY has keys besides time: an event has no certain neighbours in its partition"
    if snapshot.dirty_ranges():
        return "late events may be neighbours in a partition; they have no place until compaction"
    if wants.before + wants.after > NEIGHBOURS_MAX:
        return "PREV or NEXT look at too many events of the partition"
    if pattern.within is None and (pattern.longest_partition or 0) > NEIGHBOURS_MAX:
        return f"the pattern has no WITHIN, and a match may have over {NEIGHBOURS_MAX} events"
    return ""
