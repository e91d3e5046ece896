"""Planning one outline; the intervals contain every match that obeys it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...store.prune import IsNull
from ..conditions.ranges import describe
from .choosing import Judge, Picker, choose_terms, probe_pays
from .coarse import CoarseMap, coarse_map
from .context import PlanContext
from .kept_lookups import KeptLookups
from .late_ranges import intervals_of_partitions, intervals_of_stream
from .lookups import Lookups
from .near import Near
from .offers import Offer, Offers, list_offers
from .partition_intervals import partition_intervals
from .partition_spans import PartitionSpans
from .pricing import ROWS, MatcherCosts, Pricing
from .replay_plan import ReplayIntervals, ReplayPlan
from .spans import Spans
from .stream_intervals import stream_intervals

__all__ = ["Considered", "Found", "Looking", "consider", "plan_intervals"]


def plan_intervals(
    context: PlanContext,
    strategy: str,
    *,
    picker: Picker | None = None,
    bounds: tuple[int, int] | None = None,
    phases: Mapping[str, float] | None = None,
    evaluating: bool = True,
    matcher: MatcherCosts = ROWS,
    mapped: tuple[CoarseMap, Offers] | None = None,
) -> ReplayPlan:
    """One attempt at a plan, as by ``consider``; raises RunsChanged if runs are replaced."""
    return consider(
        context, strategy, picker=picker, bounds=bounds, phases=phases, evaluating=evaluating,
        matcher=matcher, mapped=mapped,
    ).located()  # fmt: skip


def consider(
    context: PlanContext,
    strategy: str,
    *,
    picker: Picker | None = None,
    bounds: tuple[int, int] | None = None,
    phases: Mapping[str, float] | None = None,
    near: Near | None = None,
    evaluating: bool = True,
    matcher: MatcherCosts = ROWS,
    mapped: tuple[CoarseMap, Offers] | None = None,
) -> Considered:
    """Choose the terms of one outline and estimate the cost, without reading an index block.
    ``strategy`` as in ``planning.plan_match``; ``bounds``: inclusive ticks; with ``near`` only
    matches there matter, and the plan always has intervals; ``evaluating``: terms without an index
    may be evaluated; ``mapped``: cached inputs.
    """
    trouble = "" if context.indexes is None else context.indexes.trouble()
    plan = ReplayPlan(
        strategy, outline=context.pattern, timeline=context.timeline, metrics=context.metrics,
        show=_Shown(context), unavailable=trouble,
    )  # fmt: skip
    clock = _Clock(dict(phases or {}))
    if not context.total:
        why = "there are only late events" if context.snapshot.count else "no events"
        return Considered(context, replace(plan, reason=why), clock)
    if context.pattern.impossible:
        return Considered(context, plan, clock, nothing=True)
    coarse = _coarse(context, bounds) if mapped is None else mapped[0]
    if near is not None:
        coarse = coarse.narrowed(near.spans(context.timeline))
    clock.mark("coarse_ms")
    everything = evaluating and context.partitioned and (picker is not None or strategy == "auto")
    whole = None if near is None else coarse.allowed.total
    offers = list_offers(context, coarse, everything) if mapped is None else mapped[1]
    pricing = Pricing(context, coarse, offers, whole, matcher)
    choice, judge = choose_terms(pricing, "none" if strategy == "replay" else strategy, picker)
    clock.mark("selection_ms")
    plan = replace(plan, choice=choice, allowed=coarse.allowed.total)
    return Considered(context, plan, clock, Looking(coarse, pricing, judge, near))


@dataclass(frozen=True)
class Looking:
    coarse: CoarseMap
    pricing: Pricing
    judge: Judge | None
    near: Near | None


@dataclass(frozen=True)
class Found:
    """A plan and the spans of its intervals; without spans, the whole stream."""

    plan: ReplayPlan
    spans: Spans | PartitionSpans | None = None

    def finished(self, context: PlanContext) -> ReplayPlan:
        if self.spans is None:
            return self.plan
        if isinstance(self.spans, PartitionSpans):
            needed, intervals = (
                self.spans.hull().total,
                intervals_of_partitions(context, self.spans),
            )
        else:
            needed, intervals = self.spans.total, intervals_of_stream(context, self.spans)
        return replace(self.plan, intervals=intervals, needed=needed)


@dataclass(frozen=True)
class Considered:
    """The choice for one outline; its ``plan`` has no intervals yet.  ``looking`` is None if there
    is nothing to look up; ``nothing``: the outline has no match.
    """

    context: PlanContext
    plan: ReplayPlan
    clock: _Clock
    looking: Looking | None = None
    nothing: bool = False

    @property
    def whole(self) -> bool:
        return not self.nothing and (self.looking is None or self.plan.choice.picked is None)

    @property
    def expected_ns(self) -> float:
        """Expected cost of the plan; infinite if unknown."""
        if self.nothing:
            return 0.0
        if self.looking is None:
            return math.inf
        pricing, choice = self.looking.pricing, self.plan.choice
        if choice.picked is None:
            return pricing.full_ns
        if choice.estimate is not None:
            return choice.estimate.total_ns
        return pricing.spans_ns(self.looking.coarse.allowed)

    def estimated(self) -> ReplayPlan:
        return replace(self.plan, reason=self.plan.choice.reason, phases=self.clock.phases)

    def located(self) -> ReplayPlan:
        """The plan with its intervals, or with the reason to replay the whole stream."""
        if self.looking is None or self.looking.near is None:
            found = self.found()
            plan = found.finished(self.context)
            why = "" if plan.intervals is None else self.too_wide(plan.intervals)
            if why:
                plan = replace(plan, intervals=None, picked=(), reason=why)
            elif plan.choice.probe and plan.intervals is not None:
                plan = self.probed(plan)
        else:
            plan = self._located_near(self.looking.near)
        self.clock.mark("lookup_ms")
        return replace(plan, phases=self.clock.phases)

    def too_wide(self, intervals: ReplayIntervals) -> str:
        judge = None if self.looking is None else self.looking.judge
        return "" if judge is None or not self.plan.choice.picked else judge.too_wide(intervals)

    def found(self, kept: KeptLookups | None = None) -> Found:
        """Spans of the picked terms, or the reason for none."""
        context, plan, looking = self.context, self.plan, self.looking
        if self.nothing:
            return Found(plan, Spans.empty())
        if looking is None:
            return Found(plan)
        picked, allowed = plan.choice.picked, looking.coarse.allowed
        if picked is None:
            return Found(replace(plan, reason=plan.choice.reason))
        if not picked:
            if context.partitioned and context.wants.neighbours and len(allowed):
                why = "no index can be used, and neighbours in the partition are looked at"
                return Found(replace(plan, reason=why))
            return Found(plan, allowed)
        lookups = Lookups.of(context, looking.coarse, picked, kept)
        plan = replace(plan, covered=lookups.indexed / context.total)
        if context.partitioned:
            told = partition_intervals(lookups)
            return Found(replace(plan, picked=picked, fitted=told.fitted), told.spans)
        found = stream_intervals(lookups, looking.judge)
        if found.too_frequent:
            return Found(replace(plan, reason=found.too_frequent))
        return Found(
            replace(plan, picked=found.used, shared=found.shared, fitted=found.fitted), found.spans
        )

    def probed(self, plan: ReplayPlan) -> ReplayPlan:
        assert self.looking is not None
        assert plan.intervals is not None
        pays, choice = probe_pays(self.looking.pricing, plan.choice, plan.intervals)
        plan = replace(plan, choice=choice)
        return plan if pays else replace(plan, intervals=None, picked=(), reason=choice.reason)

    def _located_near(self, near: Near) -> ReplayPlan:
        assert self.looking is not None
        context, plan = self.context, self.plan
        if plan.choice.picked:
            found = self.found().finished(context)
            if found.intervals is not None and not self.too_wide(found.intervals):
                plan = found
        if plan.intervals is None:
            plan = Found(plan, self.looking.coarse.allowed).finished(context)
        assert plan.intervals is not None
        if near.keyed is None or plan.intervals.partitions is not None:
            return plan
        keyed = near.keyed.partitions(context.timeline, context.schema)
        return Found(plan, keyed.intersect(plan.intervals.spans)).finished(context)


def _coarse(context: PlanContext, bounds: tuple[int, int] | None) -> CoarseMap:
    low, high = 0, context.total
    if bounds is not None:
        low = int(context.timeline.lower(np.array([bounds[0]], np.int64))[0])
        high = int(context.timeline.upper(np.array([bounds[1]], np.int64))[0])
    # the alternative to a filter is a pruned scan, which reads zones itself
    return coarse_map(
        context.timeline, context.pattern, low, high, zones=bounds is None, ties=context.wants.ties,
        histogram=context.histogram,
    )  # fmt: skip


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000


@dataclass
class _Clock:
    phases: dict[str, float]
    _begun: float = field(default_factory=time.perf_counter)

    def mark(self, name: str) -> None:
        self.phases[name] = _since(self._begun)
        self._begun = time.perf_counter()

    def resume(self, phases: Mapping[str, float]) -> None:
        self.phases.update(phases)
        self._begun = time.perf_counter()


@dataclass(frozen=True)
class _Shown:
    context: PlanContext

    def __call__(self, offer: Offer) -> str:
        schema, atoms = self.context.schema, offer.term.atoms
        shown = [a for a in atoms if a.column in schema or not isinstance(a, IsNull)] or atoms
        parts = [describe(atom, schema) or "true" for atom in shown]
        if offer.term.text:
            parts = [offer.term.text]
        known = all(name in self.context.indexed for name in offer.term.attributes)
        how = "" if known else " (no index: evaluated)"
        return f"{self.context.pattern.symbols[offer.symbol].name}: {' or '.join(parts)}{how}"
