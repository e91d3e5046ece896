"""Planning a pattern query: the whole stream, with the reason, or intervals with every match.

Each stage is a function from values to an immutable value::

    clause     -> Outline          symbols.outlines           what every match contains
    Outline    -> PlanContext      context.PlanContext.of     of one snapshot and its indexes
    context    -> CoarseMap        coarse.coarse_map          pruning by leaves
    + map      -> Offers           offers.list_offers         terms, and how often they hold
    + offers   -> TermChoice       cost.choose_terms          terms to look up
    + choice   -> spans            locating.located           that contain every match
    + spans    -> ReplayIntervals  intervals                  with late events

``consider`` makes the choice for one outline without reading an index block.  A pattern with
alternatives, one of which every match follows, has an outline for each; leaf masks (``memo``) and
lookups (``looked_up``) are shared, and the spans are united.  If a run disappears
while it is read, planning restarts.  A pattern may be restricted to tick ranges, wide enough to
hold every relevant match.
"""

from __future__ import annotations

import math
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
from .buckets import PlanMemo
from .coarse import CoarseMap, coarse_map
from .context import REPLAY_GAP, SHARED_BYTES, Costs, PlanContext
from .cost import CostModel, choose_terms
from .intervals import intervals_of_partitions, intervals_of_stream
from .locating import Located, located
from .lookups import Lookups
from .offers import Offer, list_offers
from .partitions import PartitionKeys, PartitionSpans, united_partitions
from .replay_plan import Estimate, ReplayIntervals, ReplayPlan, TermChoice
from .spans import READ_GAP, Spans
from .symbols import Outline, cached_outlines
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

    @property
    def expected_ns(self) -> float:
        """Expected cost of the intervals or, if that is less, of a full replay."""
        if self.nothing or self.model is None:
            return 0.0
        return min(self.plan.choice.expected_ns, self.model.full_ns)

    def without_lookups(self) -> Considered:
        choice = replace(self.plan.choice, picked=())
        return replace(self, plan=replace(self.plan, choice=choice))

    def located(self) -> tuple[ReplayPlan, Located]:
        """The plan with the terms that were looked up, and spans that contain its matches; without
        spans, the whole stream.
        """
        context, plan, model = self.context, self.plan, self.model
        if self.nothing:
            return plan, Located(Spans.empty())
        picked = plan.choice.picked
        if model is None or picked is None:
            return replace(plan, reason=plan.choice.reason or plan.reason), Located(None)
        allowed = model.coarse.allowed
        if not picked:
            if context.partitioned and context.wants.neighbours and len(allowed):
                why = "no index can be used, and neighbours in the partition are looked at"
                return replace(plan, reason=why), Located(None)
            return plan, Located(allowed)
        lookups = Lookups.of(context, model.coarse, picked)
        plan = replace(plan, covered=lookups.indexed / context.total)
        found = located(lookups, model if plan.strategy == "auto" else None)
        if found.spans is None:
            return replace(plan, reason=found.reason), found
        return replace(plan, picked=found.used, shared=found.shared), found


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
    coarse = whole_map(context)
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


def whole_map(context: PlanContext) -> CoarseMap:
    return coarse_map(
        context.timeline, context.pattern, 0, context.total, ties=context.wants.ties,
        histogram=context.histogram,
    )  # fmt: skip


def located_plan(ways: Sequence[Considered], near: Near | None = None) -> ReplayPlan:
    """One plan for all alternatives, with its intervals, or with the reason to replay the whole
    stream.  With ``near``, there are always intervals.
    """
    plans: list[ReplayPlan] = []
    found: list[Spans | PartitionSpans] = []
    for way in ways:
        plan, one = way.located()
        plans.append(plan)
        if one.spans is None:
            break
        found.append(one.spans)
    else:
        plan, united = _united_plan(plans), _united_spans(found)
        intervals, needed = _intervals(ways, united)
        if len(ways) == 1 and near is None:
            intervals = replace(intervals, deciding=one.deciding)
        plan = replace(plan, intervals=intervals, needed=needed)
        model = ways[0].model
        if plan.strategy != "auto" or not plan.picked or model is None or model.pays(intervals):
            return plan if near is None else _near_keys(ways, plan, united, near)
        if near is None and len(ways) == 1 and model.coarse_pays:
            return located_plan([ways[0].without_lookups()])
        plan = replace(plan, intervals=None, needed=0, reason=_dear(model, intervals))
    plan = replace(plan, picked=())
    if near is None or ways[0].model is None:
        return plan
    allowed = ways[0].model.coarse.allowed
    intervals, needed = _intervals(ways, allowed)
    plan = replace(plan, reason="", intervals=intervals, needed=needed)
    return _near_keys(ways, plan, allowed, near)


def _dear(model: CostModel, intervals: ReplayIntervals) -> str:
    cost, full = model.found_ns(intervals), model.full_ns
    return f"the intervals found would cost {cost / 1e6:.1f} ms, a full replay {full / 1e6:.1f} ms"


def _intervals(
    ways: Sequence[Considered], spans: Spans | PartitionSpans
) -> tuple[ReplayIntervals, int]:
    context = max((way.context for way in ways), key=lambda one: one.back)
    if isinstance(spans, PartitionSpans):
        return intervals_of_partitions(context, spans), spans.hull().total
    return intervals_of_stream(context, spans), spans.total


def _near_keys(
    ways: Sequence[Considered], plan: ReplayPlan, spans: Spans | PartitionSpans, near: Near
) -> ReplayPlan:
    context = ways[0].context
    if near.keyed is None or isinstance(spans, PartitionSpans) or not context.total:
        return plan
    assert plan.intervals is not None
    keyed = near.keyed.partitions(context.timeline, context.schema)
    intervals, needed = _intervals(ways, keyed.intersect(plan.intervals.spans))
    return replace(plan, intervals=intervals, needed=needed)


def _united_plan(plans: Sequence[ReplayPlan]) -> ReplayPlan:
    if len(plans) == 1:
        return plans[0]
    choices = [plan.choice for plan in plans]
    estimates = [choice.estimate for choice in choices if choice.estimate is not None]
    together = Estimate(
        sum(one.intervals for one in estimates), sum(one.events for one in estimates),
        sum(one.replay_ns for one in estimates), sum(one.lookup_ns for one in estimates),
    )  # fmt: skip
    shared = {plan.shared for plan in plans}
    return replace(
        plans[0],
        choice=TermChoice(
            tuple(offer for choice in choices for offer in choice.offers),
            tuple(offer for choice in choices for offer in choice.picked or ()),
            estimate=together,
        ),
        picked=tuple(offer for plan in plans for offer in plan.picked),
        ways=tuple(str(plan.outline) for plan in plans),
        shared=plans[0].shared if len(shared) == 1 else None,
        allowed=max(plan.allowed for plan in plans),
        covered=max(plan.covered for plan in plans),
    )


def _united_spans(found: Sequence[Spans | PartitionSpans]) -> Spans | PartitionSpans:
    keyed = [spans for spans in found if isinstance(spans, PartitionSpans)]
    whole = [spans for spans in found if isinstance(spans, Spans) and len(spans)]
    if keyed and not whole:
        return united_partitions(keyed)
    united = Spans.empty()
    for one in [*whole, *(some.hull() for some in keyed)]:
        united = united.union(one)
    return united


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
APART_NS = 10_000_000.0
"""Cost of the best plan for one outline from which on those of alternatives are considered."""


SPANS_CACHED = 1 << 18
"""Spans of all plans that are cached for one state of a stream."""
PLANS_CACHED = 32


RUNS_EXPECTED = 8.0
"""Of a clause that is run again on the same events."""


def _weight(cached: tuple[CompiledMatch, object, ReplayPlan, float]) -> int:
    intervals, weight = cached[2].intervals, 0
    if intervals is not None:
        inside = () if intervals.partitions is None else intervals.partitions.inside
        decided = () if intervals.decided is None else intervals.decided
        weight = len(intervals.spans) + len(inside) + len(decided)
    return max(SPANS_CACHED // PLANS_CACHED, weight)


def cached_plan(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None,
    strategy: str,
    folder: Folder,
    check: Callable[[], None],
) -> ReplayPlan:
    """``plan_match`` of a clause without parameters, or the earlier plan, if neither the stream
    nor its indexes have changed.  What is asked again is expected to be asked often: where lookups
    did not pay for one run, it is planned once more.
    """
    plans = snapshot.state.notes.setdefault("plans", Lru(SPANS_CACHED, _weight))
    cached = plans.get((id(compiled), strategy))
    catalogue = None if indexes is None else indexes.catalogue()
    costs = Costs()
    if cached is not None and cached[0] is compiled and cached[1] is catalogue:
        plan: ReplayPlan = cached[2]
        if not plan.lookups_declined or cached[3] > 1:
            return plan.again()
        costs = Costs(runs=RUNS_EXPECTED)
    plan = plan_match(
        snapshot, compiled, indexes, strategy, folder=folder, check=check, costs=costs
    )
    plans.put((id(compiled), strategy), (compiled, catalogue, plan, costs.runs))
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
    small = snapshot.count * each < prices.plan / prices.runs
    if small and strategy == "auto" and near is None and locate:
        return ReplayPlan(strategy, "a replay takes less time than planning")
    indexed = frozenset() if indexes is None else frozenset(indexes.attributes)
    options = cached_outlines(compiled, snapshot.schema, folder, indexed)
    pattern = options[0][0]
    reason = _obstacle(snapshot, pattern, wants, near is not None)
    if reason:
        return ReplayPlan(strategy, reason, outline=pattern)
    phases = {"outline_ms": _since(begun)}
    if gap is None:
        gap = READ_GAP if wants.partition_by else REPLAY_GAP

    def attempt() -> ReplayPlan:
        started = time.perf_counter()
        context = PlanContext.of(snapshot, pattern, wants, indexes, costs, check, gap)

        def considered_of(option: Sequence[Outline]) -> list[Considered]:
            shared = PlanMemo(SHARED_BYTES) if len(option) > 1 else context.looked_up
            each = [replace(context, pattern=one, looked_up=shared) for one in option]
            return [consider(one, strategy, near=near) for one in each]

        choices = considered_of(options[0])
        best = math.inf if strategy == "all" else sum(way.expected_ns for way in choices)
        if len(options) > 1 and near is None and best > APART_NS:
            apart = considered_of(options[1])
            if sum(way.expected_ns for way in apart) < best:
                choices = apart
        phases["selection_ms"] = _since(started)
        if not locate:
            plan = choices[0].plan
            return replace(plan, reason=plan.choice.reason or plan.reason, phases=phases)
        started = time.perf_counter()
        plan_located = located_plan(choices, near)
        phases["lookup_ms"] = _since(started)
        return replace(plan_located, phases=phases)

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
