"""Choose the terms that are looked up in indexes, without reading an index block, and reconsider.

In ``auto`` an index plan must be clearly cheaper than a replay, because near the break-even point
the model's error decides.  ``Judge`` reconsiders after each lookup.

Terms are chosen greedily inside a block and by Pareto frontiers across blocks.  Algorithm 3.2 of
the thesis.  Within a block the best ``k`` terms are the ``k`` rarest.  Across blocks the best
choice of ``k`` terms lies on the frontier of (replay cost, index cost), and frontiers of disjoint
sets of blocks combine.  One call of the cost model prices all pairs of two halves, so that no
Python runs per choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .coded_spans import told_by
from .cost import CostModel, Estimate, Model, coarser, priced
from .offers import Offer
from .pricing import Pricing
from .replay_plan import ReplayIntervals, TermChoice
from .spans import Spans

Counts = tuple[int, ...]
"""Terms taken of each block, rarest first."""

FRONTIER_MAX = 16
PRIMARY, SECONDARY = 5, 6


@dataclass(frozen=True)
class Assignment:
    """The cheapest number of terms of every block; ``examined``: assignments compared."""

    counts: Counts
    estimate: Estimate
    examined: int


@dataclass(frozen=True)
class _Choices:
    counts: npt.NDArray[np.int64]
    priced: npt.NDArray[np.float64]

    def frontier(self) -> _Choices:
        """For each number of terms, the choices that no other beats in both costs."""
        terms = self.counts.sum(axis=1)
        order = np.lexsort((self.priced[:, SECONDARY], self.priced[:, PRIMARY], terms))
        kept = np.empty(len(order), np.int64)
        count = _unbeaten(order, terms, self.priced[:, SECONDARY].copy(), FRONTIER_MAX, kept)
        return _Choices(self.counts[kept[:count]], self.priced[kept[:count]])


@kernel
def _unbeaten(order, terms, secondary, most, kept):  # type: ignore[no-untyped-def]
    """Choices, by terms and primary cost, whose secondary cost is below all before."""
    count = 0
    here = -1
    of_these = 0
    cheapest = 0.0
    for i in range(order.shape[0]):
        at = order[i]
        if terms[at] != here:
            here = terms[at]
            of_these = 0
        elif secondary[at] >= cheapest or of_these >= most:
            continue
        cheapest = secondary[at]
        kept[count] = at
        count += 1
        of_these += 1
    return count


class _Examiner:
    def __init__(self, sizes: Sequence[int], model: Model) -> None:
        self.sizes = sizes
        self.model = model
        self.examined = 1  # taking nothing

    def priced(self, counts: npt.NDArray[np.int64]) -> _Choices:
        self.examined += len(counts)
        return _Choices(counts, self.model.table(counts))

    def best_of(self, low: int, high: int) -> _Choices:
        blocks = len(self.sizes)
        if high - low == 1:
            counts = np.zeros((self.sizes[low], blocks), np.int64)
            counts[:, low] = np.arange(1, self.sizes[low] + 1)
            return self.priced(counts)  # one choice per number of terms: already a frontier
        middle = (low + high) // 2
        left, right = self.best_of(low, middle), self.best_of(middle, high)
        pairs = (left.counts[:, None, :] + right.counts[None, :, :]).reshape(-1, blocks)
        both = self.priced(pairs)
        return _Choices(
            np.concatenate((left.counts, right.counts, both.counts)),
            np.concatenate((left.priced, right.priced, both.priced)),
        ).frontier()


def _selected(
    counts: npt.NDArray[np.int64], priced: npt.NDArray[np.float64], examined: int
) -> Assignment:
    return Assignment(tuple(counts.tolist()), Estimate(*priced.tolist()), examined)


def optimal(sizes: Sequence[int], model: Model) -> Assignment:
    """The cheapest assignment by Algorithm 3.2; ``sizes``: terms that each block offers."""
    nothing = np.zeros((1, len(sizes)), np.int64)
    taken = model.table(nothing)[0]
    if not sum(sizes):
        return _selected(nothing[0], taken, 1)
    examiner = _Examiner(sizes, model)
    found = examiner.best_of(0, len(sizes))
    total = found.priced[:, PRIMARY] + found.priced[:, SECONDARY]
    at = int(total.argmin())
    if total[at] < taken[PRIMARY] + taken[SECONDARY]:
        return _selected(found.counts[at], found.priced[at], examiner.examined)
    return _selected(nothing[0], taken, examiner.examined)


def greedy(order: Sequence[int], sizes: Sequence[int], model: Model) -> Assignment:
    """The cheapest prefix of the rarest terms; ``order``: block of each term, rarest first."""
    steps = np.zeros((len(order) + 1, len(sizes)), np.int64)
    for step, block in enumerate(order, 1):
        steps[step] = steps[step - 1]
        steps[step, block] += 1
    priced = model.table(steps)
    at = int((priced[:, PRIMARY] + priced[:, SECONDARY]).argmin())
    return _selected(steps[at], priced[at], len(steps))


CLEARLY = 0.75
"""Maximum cost of an index plan in ``auto``, as a fraction of a full replay."""
STILL = 0.85
"""The same after lookups are paid for: the remaining replay, by a full replay."""
PROBE = 0.1
"""Maximum cost of a probe, as a fraction of a full replay."""
SURPRISE = 2.0
"""Actual by expected occurrences of a block from which on the choice is reconsidered."""

_DEAR = "indexes would cost {:.1f} ms, a full replay {:.1f} ms"

Picker = Callable[[Sequence[Offer]], Sequence[int]]


def choose_terms(
    pricing: Pricing, strategy: str, picker: Picker | None = None
) -> tuple[TermChoice, Judge | None]:
    """The terms to look up (``strategy``: see ``planning.plan_match``), and a judge of lookups."""
    offers = pricing.offers.items
    auto = strategy == "auto"
    if picker is not None:
        return TermChoice(offers, tuple(offers[i] for i in picker(offers))), None
    if strategy == "none" or not offers:
        left, total = pricing.coarse.allowed.total, pricing.context.total
        if auto and left > 0.9 * total:
            reason = "no index can be used and the coarse pattern map excludes too little"
            return _probing(pricing, (), TermChoice(offers, None, reason)), None
        return TermChoice(offers, ()), None
    full = pricing.full_ns
    if auto and pricing.context.partitioned and not _cheap(pricing):
        least = min(map(pricing.probe_ns, offers))
        if least > CLEARLY * full:  # a lower bound of every choice
            return TermChoice(offers, None, _DEAR.format(least / 1e6, full / 1e6)), None
    by_block: list[list[Offer]] = [[] for _ in pricing.context.pattern.blocks]
    for offer in offers:
        by_block[offer.block].append(offer)
    for listed in by_block:
        listed.sort(key=lambda offer: offer.share)
    model = pricing.model(by_block)
    counts, examined = _counts(pricing, strategy, by_block, model)
    estimate = priced(model, counts)
    choice = TermChoice(
        offers,
        tuple(offer for listed, n in zip(by_block, counts, strict=True) for offer in listed[:n]),
        counts=counts,
        estimate=estimate,
        estimate_uniform=lambda: priced(pricing.model(by_block, uniform=True), counts),
        examined=examined,
        agreeing=tuple(f"{b.condition.text}: {fit:.2%}" for b, fit in pricing.agreeing.items()),
    )
    if not auto:
        return choice, None
    if not _cheap(pricing) and estimate.total_ns > CLEARLY * full:
        reason = _DEAR.format(estimate.total_ns / 1e6, full / 1e6)
        found = _probing(pricing, by_block, replace(choice, picked=None, reason=reason))
        return found, Judge(pricing) if found.picked is not None and not found.probe else None
    return choice, Judge(pricing, model, counts)


def _counts(
    pricing: Pricing, strategy: str, by_block: Sequence[Sequence[Offer]], model: Model
) -> tuple[tuple[int, ...], int]:
    sizes = [len(listed) for listed in by_block]
    if strategy == "all":
        return tuple(sizes), 1
    if strategy == "auto" and _cheap(pricing):
        return (0,) * len(sizes), 1
    rough = coarser(model)
    if strategy == "greedy":
        rarest = sorted(pricing.offers.items, key=lambda offer: offer.share)
        found = greedy([offer.block for offer in rarest], sizes, rough)
    else:
        found = optimal(sizes, rough)
    return found.counts, found.examined


def _cheap(pricing: Pricing) -> bool:
    return pricing.coarse.allowed.total * pricing.event_ns < pricing.context.weights.query


def _probing(
    pricing: Pricing, by_block: Sequence[Sequence[Offer]], choice: TermChoice
) -> TermChoice:
    """Look up the rarest terms instead of a full replay, where that is cheap: a term often holds
    for many events of few partitions, or of few shared keys, which the model cannot know.
    """
    context = pricing.context
    if not choice.offers or context.pattern.within is None:
        return choice
    if not context.partitioned:
        each = tuple(listed[0] for listed in by_block if listed)
        told = any(
            len(told_by(context, (one.column,), one.variables)) > 1
            for one in context.pattern.shared
        )
        if not told or sum(map(pricing.lookup_ns, each)) > PROBE * pricing.full_ns:
            return choice
        return replace(choice, picked=each)
    rarest = min(choice.offers, key=lambda offer: offer.share)
    if pricing.probe_ns(rarest) > PROBE * pricing.full_ns:
        return choice
    return replace(choice, picked=(rarest,), probe=True)


def probe_pays(
    pricing: Pricing, choice: TermChoice, intervals: ReplayIntervals
) -> tuple[bool, TermChoice]:
    """Whether the probe's intervals are clearly cheaper than a full replay; the new choice."""
    if intervals.partitions is None:
        return False, choice
    if choice.estimate is not None:  # replace the estimate by the actual number
        events = pricing.partition_events(intervals)
        choice = replace(choice, estimate=replace(choice.estimate, events=events))
    cost = pricing.partitions_ns(intervals, choice.picked or ())
    pays = cost <= CLEARLY * pricing.full_ns
    return pays, replace(choice, reason="") if pays else choice


@dataclass(frozen=True)
class Judge:
    """Decides, given what lookups found, whether further ones are worth it."""

    pricing: Pricing
    model: Model | None = None
    counts: tuple[int, ...] = ()

    def too_frequent(self, block: int, occurrences: int) -> str:
        """Why a replay is cheaper, given a block's occurrences, or empty.  Rates of neighbouring
        symbols are multiplied as if independent, so a block may occur far more often than expected.
        """
        if not isinstance(self.model, CostModel):
            return ""
        costs = self.model.costs
        expected = float(costs.rates[:, block, self.counts[block]] @ costs.events)
        if occurrences <= SURPRISE * max(expected, 1.0):
            return ""
        rates = costs.rates.copy()
        rates[:, block, 1:] *= occurrences / max(expected, 1.0)
        known = replace(self.model, costs=replace(costs, rates=np.minimum(rates, 1.0)))
        left, full = priced(known, self.counts).primary_ns, self.pricing.full_ns
        if left < STILL * full:
            return ""
        pattern = self.pricing.context.pattern
        first = sum(len(b.symbols) for b in pattern.blocks[:block])
        return (
            f"{pattern.symbols[first].name} and its neighbours occur "
            f"{occurrences} times, {expected:.0f} were expected: intervals would cost "
            f"{left / 1e6:.1f} ms, a full replay {full / 1e6:.1f} ms"
        )

    def enough(self, spans: Spans, rest: Sequence[tuple[Offer, float]]) -> bool:
        """Whether replaying spans costs less than the lookups left (``rest``: parts of runs)."""
        further = sum(part * self.pricing.lookup_ns(offer) for offer, part in rest)
        near = spans.joined(self.pricing.context.gap)  # joined as they would be read
        return self.pricing.spans_ns(near) <= further

    def too_wide(self, intervals: ReplayIntervals) -> str:
        """Why the whole stream is replayed instead of the intervals, or empty."""
        if self.pricing.context.partitioned:
            return ""
        cost, full = self.pricing.spans_ns(intervals.spans), self.pricing.full_ns
        if cost < STILL * full:
            return ""
        return (
            f"the intervals found would cost {cost / 1e6:.1f} ms, a full replay {full / 1e6:.1f} ms"
        )
