"""Planning a pattern query: what to look up, what to replay, and saying so.

Purpose
    :func:`plan_match` turns a compiled clause and a snapshot into a :class:`ReplayPlan`: either
    the whole stream, with the reason, or intervals that contain every match.

Layout
    Each stage is a function from values to a value that never changes again::

        clause     -> Outline          symbols.outline            what every match contains
        Outline    -> PlanContext      context.PlanContext.of     of one snapshot and its indexes
        context    -> CoarseMap        coarse.coarse_map          where leaves leave room for it
        + map      -> Offers           offers.list_offers         terms, and how often they hold
        + offers   -> TermChoice           choosing.choose_terms      terms to look up
        + choice   -> spans            stream_intervals, partition_intervals
        + spans    -> ReplayIntervals  late_ranges                with what is late
        everything -> ReplayPlan       planning.plan_intervals

    What the coarse map excludes costs nothing further.

Guarantee
    Whatever is chosen, the intervals contain every match of the snapshot.  A run that disappears
    while it is read makes the plan start again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...indexes.stream_indexes import RunsChanged, StreamIndexes
from ...store.snapshot import Snapshot
from ..conditions.constants import Folder
from ..conditions.ranges import describe
from ..pattern.compiled import CompiledMatch
from .applicability import Demands, demands, not_applicable
from .choosing import Judge, Picker, choose_terms, probe_pays
from .coarse import CoarseMap, coarse_map
from .context import READ_GAP, PlanContext
from .cost import Weights
from .late_ranges import intervals_of_partitions, intervals_of_stream
from .lookups import Lookups
from .near import Near
from .offers import Offer, list_offers
from .partition_intervals import partition_intervals
from .pricing import Pricing
from .replay_plan import ReplayIntervals, ReplayPlan
from .spans import Spans
from .stream_intervals import stream_intervals
from .symbols import Outline, known_outline

__all__ = ["STRATEGIES", "plan_intervals", "plan_match", "retrying"]

STRATEGIES = ("auto", "replay", "none", "all", "greedy", "optimal")
RETRIES = 4
NEIGHBOURS_MAX = 64
"""Rows around an interval that are looked for in its partition."""


def plan_match(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None = None,
    strategy: str = "auto",
    *,
    folder: Folder | None = None,
    weights: Weights | None = None,
    choose: Picker | None = None,
    check: Callable[[], None] | None = None,
    gap: int = READ_GAP,
    near: Near | None = None,
    locate: bool = True,
) -> ReplayPlan:
    """Plan a pattern query over all events of a snapshot.

    Parameters
    ----------
    strategy : str
        ``replay``: the whole stream.  ``none``: the coarse pattern map alone.  ``all``,
        ``greedy``, ``optimal``: how terms are chosen.  ``auto``: ``optimal``, or ``replay`` where
        that is expected to be cheaper.
    folder : Folder, optional
        Knows the parameters of this execution.
    choose : callable, optional
        Chooses among the offered terms, by number, instead of the cost model.
    check : callable, optional
        Called between steps; may raise.
    gap : int
        Intervals nearer than this are read as one.
    near : Near, optional
        Only matches there matter; the plan then has intervals, whatever the strategy.
    locate : bool
        Whether to look up what is chosen; without it the plan is an estimate.
    """
    if strategy == "replay" and near is None:
        return ReplayPlan(strategy, "asked for")
    reason = not_applicable(compiled)
    if reason:
        return ReplayPlan(strategy, reason)
    begun = time.perf_counter()
    wants = demands(compiled)
    indexed = frozenset() if indexes is None else frozenset(indexes.attributes)
    pattern = known_outline(compiled, snapshot.schema, folder, indexed)
    reason = _obstacle(snapshot, pattern, wants, near is not None)
    if reason:
        return ReplayPlan(strategy, reason, outline=pattern)
    phases = {"outline_ms": _since(begun)}

    def plan() -> ReplayPlan:
        context = PlanContext.of(snapshot, pattern, wants, indexes, weights, check, gap)
        return plan_intervals(
            context, strategy, picker=choose, phases=phases, near=near, locate=locate
        )

    return retrying(plan) or ReplayPlan(
        strategy, "the indexes kept changing", outline=pattern, phases=phases
    )


def retrying(plan: Callable[[], ReplayPlan]) -> ReplayPlan | None:
    """A plan, made again when runs that it reads are replaced; None when they keep changing."""
    for _ in range(RETRIES):
        try:
            return plan()
        except RunsChanged:
            continue
    return None


def _obstacle(snapshot: Snapshot, pattern: Outline, wants: Demands, near: bool) -> str:
    """Why intervals cannot be found for a pattern; empty when they can."""
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
    return ""


def plan_intervals(
    context: PlanContext,
    strategy: str,
    *,
    picker: Picker | None = None,
    bounds: tuple[int, int] | None = None,
    phases: Mapping[str, float] | None = None,
    near: Near | None = None,
    locate: bool = True,
    evaluating: bool = True,
) -> ReplayPlan:
    """One attempt at a plan; raises RunsChanged when runs are replaced meanwhile.

    Parameters
    ----------
    strategy : str
        See :func:`plan_match`.
    picker : callable, optional
        Chooses among the offered terms, by number, instead of the cost model.
    bounds : (int, int), optional
        Ticks, inclusive, that matter at all.
    phases : mapping of str to float, optional
        Milliseconds of what was done before.
    near, locate
        See :func:`plan_match`.
    evaluating : bool
        Whether events may be looked at for terms that have no index; where the replay itself is as
        cheap as that, it never pays.
    """
    trouble = "" if context.indexes is None else context.indexes.trouble()
    plan = ReplayPlan(
        strategy, outline=context.pattern, timeline=context.timeline, metrics=context.metrics,
        show=_Shown(context), unavailable=trouble,
    )  # fmt: skip
    clock = _Clock(dict(phases or {}))
    if not context.total:
        why = "there are only late events" if context.snapshot.count else "no events"
        return replace(plan, reason=why, phases=clock.phases)
    if context.pattern.impossible:
        return replace(plan, intervals=ReplayIntervals(Spans.empty()), phases=clock.phases)
    coarse = _coarse(context, bounds)
    if near is not None:
        coarse = coarse.narrowed(near.spans(context.timeline))
    clock.mark("coarse_ms")
    everything = evaluating and context.partitioned and (picker is not None or strategy == "auto")
    whole = None if near is None else coarse.allowed.total
    pricing = Pricing(context, coarse, list_offers(context, coarse, everything), whole)
    choice, judge = choose_terms(pricing, "none" if strategy == "replay" else strategy, picker)
    clock.mark("selection_ms")
    plan = replace(plan, choice=choice, allowed=coarse.allowed.total, phases=clock.phases)
    if not locate:
        return replace(plan, reason=choice.reason)
    if near is not None:
        plan = _located_near(context, plan, coarse, judge, near)
        clock.mark("lookup_ms")
        return replace(plan, phases=clock.phases)
    if choice.picked is None:
        return replace(plan, reason=choice.reason)
    unknown = context.partitioned and context.wants.neighbours
    if unknown and not choice.picked and len(coarse.allowed):
        why = "no index can be used, and neighbours in the partition are looked at"
        return replace(plan, reason=why)
    plan = _located(context, plan, coarse, judge)
    if choice.probe and plan.intervals is not None:
        pays, choice = probe_pays(pricing, choice, plan.intervals)
        plan = replace(plan, choice=choice)
        if not pays:
            plan = replace(plan, intervals=None, picked=(), reason=choice.reason)
    clock.mark("lookup_ms")
    return replace(plan, phases=clock.phases)


def _located_near(
    context: PlanContext, plan: ReplayPlan, coarse: CoarseMap, judge: Judge | None, near: Near
) -> ReplayPlan:
    """The plan with intervals where matches matter: those of terms, else all of it."""
    if plan.choice.picked:
        found = _located(context, plan, coarse, judge)
        if found.intervals is not None:
            plan = found
    if plan.intervals is None:
        plan = replace(
            plan, intervals=intervals_of_stream(context, coarse.allowed),
            needed=coarse.allowed.total,
        )  # fmt: skip
    assert plan.intervals is not None
    if near.keyed is None or plan.intervals.partitions is not None:
        return plan
    keyed = near.keyed.partitions(context.timeline, context.schema)
    keyed = keyed.intersect(plan.intervals.spans)
    return replace(
        plan, intervals=intervals_of_partitions(context, keyed), needed=keyed.hull().total
    )


def _coarse(context: PlanContext, bounds: tuple[int, int] | None) -> CoarseMap:
    low, high = 0, context.total
    if bounds is not None:
        low = int(context.timeline.lower(np.array([bounds[0]], np.int64))[0])
        high = int(context.timeline.upper(np.array([bounds[1]], np.int64))[0])
    # a filter's alternative, a pruned scan, looks at zones by itself
    return coarse_map(context.timeline, context.pattern, low, high, zones=bounds is None)


def _located(
    context: PlanContext, plan: ReplayPlan, coarse: CoarseMap, judge: Judge | None
) -> ReplayPlan:
    """The plan with the intervals of the terms that were picked, or the reason for none."""
    picked = plan.choice.picked
    assert picked is not None
    if not picked:
        return replace(
            plan, intervals=intervals_of_stream(context, coarse.allowed),
            needed=coarse.allowed.total,
        )  # fmt: skip
    lookups = Lookups.of(context, coarse, picked)
    plan = replace(plan, covered=lookups.indexed / context.total)
    if context.partitioned:
        partitions = partition_intervals(lookups)
        return replace(
            plan, intervals=intervals_of_partitions(context, partitions), picked=picked,
            needed=partitions.hull().total,
        )  # fmt: skip
    found = stream_intervals(lookups, judge)
    if found.too_frequent:
        return replace(plan, reason=found.too_frequent)
    intervals = intervals_of_stream(context, found.spans)
    why = "" if judge is None else judge.too_wide(intervals)
    if why:
        return replace(plan, reason=why)
    return replace(plan, intervals=intervals, picked=found.used, needed=found.spans.total)


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000


@dataclass
class _Clock:
    """Milliseconds of each phase."""

    phases: dict[str, float]
    _begun: float = field(default_factory=time.perf_counter)

    def mark(self, name: str) -> None:
        """A phase has ended."""
        self.phases[name] = _since(self._begun)
        self._begun = time.perf_counter()


@dataclass(frozen=True)
class _Shown:
    """Texts of offers for people."""

    context: PlanContext

    def __call__(self, offer: Offer) -> str:
        parts = [describe(atom, self.context.schema) or "true" for atom in offer.term.atoms]
        known = all(name in self.context.indexed for name in offer.term.attributes)
        how = "" if known else " (no index: evaluated)"
        return f"{self.context.pattern.symbols[offer.symbol].name}: {' or '.join(parts)}{how}"
