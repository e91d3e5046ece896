"""Planning a pattern query: the whole stream, with the reason, or intervals with every match.

Each stage is a function from values to an immutable value::

    clause     -> Outline          symbols.outline            what every match contains
    Outline    -> PlanContext      context.PlanContext.of     of one snapshot and its indexes
    context    -> CoarseMap        coarse.coarse_map          pruning by leaves
    + map      -> Offers           offers.list_offers         terms, and how often they hold
    + offers   -> TermChoice       choosing.choose_terms      terms to look up
    + choice   -> spans            stream_intervals, partition_intervals
    + spans    -> ReplayIntervals  intervals                 with late events
    everything -> ReplayPlan       Considered.located, united

Of several outlines (PERMUTE, alternatives), each is planned up to the choice of terms, and the
cheapest is looked up.  If a run disappears while it is read, planning restarts.

A pattern may be restricted to tick ranges, wide enough to hold every relevant match.  One outline
is planned by ``consider``; its intervals contain every match that obeys it.

Alternatives of a pattern, one of which every match follows, are planned together.  Leaf masks,
rates (``memo``) and lookups (``candidates.KeptLookups``) are shared, so several cost about as much
as one.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import numbered
from ...indexes.opened import RunsChanged
from ...indexes.stream_indexes import StreamIndexes
from ...schema import StreamSchema
from ...store.prune import IsNull
from ...store.snapshot import Snapshot
from ..conditions.constants import Folder
from ..conditions.ranges import describe
from ..pattern.compiled import CompiledMatch
from .applicability import Demands, demands, not_applicable
from .candidates import KeptLookups
from .choosing import CLEARLY, Judge, Picker, choose_terms, probe_pays
from .coarse import CoarseMap, coarse_map
from .context import REPLAY_GAP, PlanContext
from .cost import READ_GAP, Estimate, Weights
from .intervals import intervals_of_partitions, intervals_of_stream
from .lookups import Lookups
from .offers import Offer, Offers, list_offers
from .partition_intervals import partition_intervals
from .partitions import PartitionKeys, PartitionSpans, united_partitions
from .pricing import ROWS, MatcherCosts, Pricing
from .replay_plan import ReplayIntervals, ReplayPlan, TermChoice
from .spans import Spans
from .stream_intervals import stream_intervals
from .symbols import Outline, known_outlines
from .terms import Term
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


def expected_together(ways: Sequence[Considered]) -> float:
    """Expected cost of several alternatives, in nanoseconds."""
    return sum(way.expected_ns for way in ways) - sum(ns for ns, _, _ in _repeated(ways))


def _repeated(ways: Sequence[Considered]) -> list[tuple[float, float, int]]:
    """Lookups that an earlier alternative has made: nanoseconds, entries, and runs opened."""
    known: set[Term] = set()
    found = []
    for way in ways:
        if way.looking is None:
            continue
        pricing, picked = way.looking.pricing, way.plan.choice.picked or ()
        found += [
            (pricing.lookup_ns(offer), *pricing.looked_up(offer))
            for offer in picked
            if offer.term in known
        ]
        known |= {offer.term for offer in picked}
    return found


def united(ways: Sequence[Considered]) -> ReplayPlan:
    """One plan for all alternatives; a full replay if any of them needs one."""
    context = max((way.context for way in ways), key=lambda one: one.back)
    clock, kept = ways[0].clock, KeptLookups()
    found: list[Found] = []
    for way in ways:
        one = way.found(kept)
        if one.spans is None:
            return replace(one.plan, phases=clock.phases)
        found.append(one)
    plans = [one.plan for one in found]
    shared = {plan.shared for plan in plans}
    plan = replace(
        plans[0],
        choice=_choices(ways),
        picked=tuple(offer for plan in plans for offer in plan.picked),
        show=_ShownApart([(plan.choice.offers, plan.show) for plan in plans]),
        ways=tuple(str(plan.outline) for plan in plans),
        shared=plans[0].shared if len(shared) == 1 else None,
        fitted=tuple(text for plan in plans for text in plan.fitted),
        allowed=max(plan.allowed for plan in plans),
        covered=max(plan.covered for plan in plans),
    )
    plan = Found(plan, _together([one.spans for one in found])).finished(context)
    assert plan.intervals is not None
    whys = [way.too_wide(plan.intervals) for way in ways]
    probes = [way for way in ways if way.plan.choice.probe]
    if any(whys):
        plan = replace(plan, intervals=None, picked=(), reason=next(filter(None, whys)))
    elif probes:
        plan = probes[0].probed(plan)
    clock.mark("lookup_ms")
    return replace(plan, phases=clock.phases)


def _together(found: Sequence[Spans | PartitionSpans | None]) -> Spans | PartitionSpans:
    keyed = [one for one in found if isinstance(one, PartitionSpans)]
    whole = [one for one in found if isinstance(one, Spans) and len(one)]
    if keyed and not whole:
        return united_partitions(keyed)
    spans = Spans.empty()
    for one in [*whole, *(some.hull() for some in keyed)]:
        spans = spans.union(one)
    return spans


def _choices(ways: Sequence[Considered]) -> TermChoice:
    choices = [way.plan.choice for way in ways]
    estimates = [choice.estimate for choice in choices if choice.estimate is not None]
    together: Estimate | None = None
    if len(estimates) == len(choices):
        told = [dataclasses.astuple(estimate) for estimate in estimates]
        together = Estimate(*map(sum, zip(*told, strict=True)))
        for ns, entries, runs in _repeated(ways):
            together = replace(
                together,
                entries=together.entries - entries,
                runs=together.runs - runs,
                secondary_ns=together.secondary_ns - ns,
            )
    return TermChoice(
        tuple(offer for choice in choices for offer in choice.offers),
        tuple(offer for choice in choices for offer in choice.picked or ()),
        probe=any(choice.probe for choice in choices),
        estimate=together,
        examined=sum(choice.examined for choice in choices),
        agreeing=tuple(dict.fromkeys(text for choice in choices for text in choice.agreeing)),
    )


@dataclass(frozen=True)
class _ShownApart:
    ways: Sequence[tuple[Sequence[Offer], Callable[[Offer], str]]]

    def __call__(self, offer: Offer) -> str:
        return next(show(offer) for offers, show in self.ways if any(o is offer for o in offers))


STRATEGIES = ("auto", "replay", "none", "all", "greedy", "optimal")
RETRIES = 4
ELSEWHERE = 0.15
"""Cost of considering other outlines, as a fraction of the expected full replay."""
FURTHER = 0.3
"""The same if the best plan so far has intervals, by its expected cost."""
NEIGHBOURS_MAX = 64
"""Rows around an interval that are searched in its partition."""


def plan_match(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None = None,
    strategy: str | Picker = "auto",
    *,
    folder: Folder | None = None,
    weights: Weights | None = None,
    check: Callable[[], None] | None = None,
    gap: int | None = None,
    near: Near | None = None,
    locate: bool = True,
) -> ReplayPlan:
    """Plan a pattern query over all events of a snapshot.  ``strategy``: ``replay`` the whole
    stream; ``none`` the coarse pattern map alone; ``all``, ``greedy`` or ``optimal`` choice of
    terms; ``auto``: ``optimal``, or ``replay`` if cheaper; a function picks offers by number.
    ``gap``: events between intervals that are merged; with ``near`` only matches there matter and
    the plan always has intervals; without ``locate`` nothing is looked up and the plan is an
    estimate.
    """
    strategy, choose = (strategy, None) if isinstance(strategy, str) else ("optimal", strategy)
    if strategy == "replay" and near is None:
        return ReplayPlan(strategy, "asked for")
    reason = not_applicable(compiled)
    if reason:
        return ReplayPlan(strategy, reason)
    begun = time.perf_counter()
    wants = demands(compiled)
    indexed = frozenset() if indexes is None else frozenset(indexes.attributes)
    options = known_outlines(compiled, snapshot.schema, folder, indexed)
    pattern = options[0][0]
    reason = _obstacle(snapshot, pattern, wants, near is not None)
    if reason:
        return ReplayPlan(strategy, reason, outline=pattern)
    phases = {"outline_ms": _since(begun)}
    if gap is None:
        gap = READ_GAP if wants.partition_by else REPLAY_GAP

    def plan() -> ReplayPlan:
        context = PlanContext.of(snapshot, pattern, wants, indexes, weights, check, gap)

        def considered(option: Sequence[Outline], below: float | None = None) -> list[Considered]:
            found: list[Considered] = []
            for one in option:
                here = replace(context, pattern=one)
                found.append(consider(here, strategy, picker=choose, phases=phases, near=near))
                if below is not None and expected_together(found) >= below:
                    return []
            return found

        best, least = considered(options[0]), math.inf
        if choose is None and strategy not in ("none", "replay"):
            least = expected_together(best)
        spent, more = 0.0, time.perf_counter()
        for option in sorted(
            options[1:], key=len, reverse=True
        ):  # alternatives first: most selective
            cost = len(option) * context.weights.outline
            most = (ELSEWHERE if best[0].whole else FURTHER) * least
            dear = strategy == "auto" and spent + cost > most
            if least == math.inf or dear or (len(option) > 1 and near is not None):
                continue
            spent += cost
            # intervals must be clearly cheaper than a full replay (checked by single outlines)
            bar = CLEARLY * least if len(option) > 1 and best[0].whole else least
            other = considered(option, bar)
            if other:
                best, least = other, expected_together(other)
        for one in best:
            one.clock.resume({"other_outlines_ms": _since(more)} if spent else {})
        if not locate:
            return best[0].estimated()
        return united(best) if len(best) > 1 else best[0].located()

    return retrying(plan) or ReplayPlan(
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
    return ""
