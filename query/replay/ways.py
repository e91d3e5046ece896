"""Alternatives of a pattern, one of which every match follows, planned together.

Leaf masks, rates (``memo``) and lookups (``kept_lookups``) are shared, so several cost about as
much as one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .choice import TermChoice
from .considered import Considered, Found
from .cost import Estimate
from .kept_lookups import KeptLookups
from .offers import Offer
from .partition_spans import PartitionSpans, united_partitions
from .replay_plan import ReplayPlan
from .spans import Spans
from .terms import Term

__all__ = ["expected_together", "united"]


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
