"""Choosing the terms of a pattern that are looked up in indexes.

Purpose
    :class:`Chooser` lists what indexes offer for an outline, makes the cost model of
    :mod:`.cost` from what the coarse pattern map and the runs' fences say, and picks: by the model
    (:mod:`.selection`), everything, or nothing.

Guarantee
    Costs no block of an index: only what is in memory about runs and leaves is looked at.  In
    ``auto`` an index plan is taken only where the model expects it to be clearly cheaper than
    replay (:data:`CLEARLY`), because near the break-even point the model's error decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...indexes.kernels import count_bits
from ...indexes.stream_indexes import Catalogue, StreamIndexes
from ...schema import StreamSchema
from .applicability import Demands
from .candidates import Chunk, Offer, chunks_of
from .coarse import CoarseMap
from .cost import (
    BlockCosts,
    CostModel,
    Model,
    PartitionedModel,
    Weights,
    coarser,
    priced,
)
from .evaluated import mark_events
from .partition_keys import PartitionKeys
from .rates import RateMap, strata
from .replay_plan import ReplayPlan
from .selection import greedy, optimal
from .spans import Spans
from .symbols import Outline, Term

__all__ = ["Chooser"]

CLEARLY = 0.75
"""Part of the cost of a full replay that an index plan may be expected to cost in ``auto``."""
PROBE = 0.3
"""Part of the cost of a full replay that may be spent on looking before deciding."""
SURPRISE = 2.0
"""Occurrences of a block, by how many are expected, from which the choice is made again."""
SAMPLES = 12
"""Pieces of the stream in which terms without an index are counted."""
CROWD_EVENTS = 1 << 15
"""Events that are looked at to see how many partitions lie between one another."""


class Chooser:
    """See the module.

    Parameters
    ----------
    schema : StreamSchema
    pattern : Outline
    indexes, catalogue : optional
        Without them nothing is offered.
    coarse : CoarseMap
    plan : ReplayPlan
        Its timeline, total, allowed and strategy are read; estimates are filled in.
    wants : Demands
        Whether the clause has partitions and looks at neighbours in them.
    weights : Weights
    gap : int
        Intervals nearer than that are read as one.
    """

    def __init__(
        self,
        schema: StreamSchema,
        pattern: Outline,
        indexes: StreamIndexes | None,
        catalogue: Catalogue | None,
        coarse: CoarseMap,
        plan: ReplayPlan,
        wants: Demands,
        weights: Weights,
        gap: int,
    ) -> None:
        self.schema = schema
        self.wants = wants
        self.pattern = pattern
        self.indexes = indexes
        self.catalogue = catalogue
        self.coarse = coarse
        self.plan = plan
        self.weights = weights
        self.gap = gap
        self.chunks: list[Chunk] = []
        self._chosen: tuple[Model, tuple[int, ...]] | None = None

    # -- what there is ------------------------------------------------------------------------

    def offers(self, evaluated: bool = False) -> list[Offer]:
        """Terms that can be looked up, each with how often it holds.

        Parameters
        ----------
        evaluated : bool
            Also those without an index, which take a look at all events.
        """
        known = {} if self.catalogue is None or self.indexes is None else self.catalogue.attributes
        usable: list[Offer] = []
        if not len(self.coarse.allowed):
            return usable
        symbol = 0
        for number, block in enumerate(self.pattern.blocks):
            for offset, wanted in enumerate(block.symbols):
                usable.extend(
                    Offer(term, symbol, number, offset)
                    for term in wanted.terms
                    if evaluated or all(name in known for name in term.attributes)
                )
                symbol += 1
        names = sorted({name for offer in usable for name in offer.term.attributes} & set(known))
        chunks: list[Chunk] = []
        if names:
            assert self.catalogue is not None
            assert self.plan.timeline is not None
            chunks = chunks_of(self.catalogue, self.plan.timeline, names)
        starts = np.array([chunk.start for chunk in chunks], np.int64)
        spans = Spans(starts, np.array([chunk.end for chunk in chunks], np.int64))
        self.covered = spans.total
        self.chunks = [chunks[i] for i in np.flatnonzero(spans.touches(self.coarse.allowed))]
        if not chunks and not evaluated:
            return []
        rates = RateMap(self.schema, self.coarse, self.chunks, self.indexes)
        entries: dict[Term, npt.NDArray[np.float64]] = {}
        measured: dict[tuple[Term, bytes], tuple[npt.NDArray[np.float64], float, int]] = {}
        for offer in usable:
            alive = self.coarse.alive[offer.symbol]
            key = (offer.term, alive.tobytes())
            if key not in measured:
                if offer.term not in entries:
                    indexed = self.chunks and all(n in known for n in offer.term.attributes)
                    entries[offer.term] = (
                        rates.entries(offer.term) if indexed else self._guess(offer.term, rates)
                    )
                found = rates.rates(offer.term, offer.symbol, entries[offer.term])
                held = float(found @ rates.sizes)
                share = held / max(1.0, float(rates.sizes[alive].sum()))
                measured[key] = found, share, rates.chunks_with(found)
            offer.rates, offer.share, offer.runs = measured[key]
            offer.entries = float(entries[offer.term].sum())
        return usable

    def _guess(self, term: Term, rates: RateMap) -> npt.NDArray[np.float64]:
        """About how many events satisfy a term without an index, from pieces of the stream."""
        assert self.plan.timeline is not None
        allowed, size, hits, seen = self.coarse.allowed, 4096, 0, 0
        bits = np.zeros(size // 64, np.uint64)
        for number in np.unique(np.linspace(0, len(allowed) - 1, SAMPLES).astype(np.int64)):
            low, high = int(allowed.starts[number]), int(allowed.ends[number])
            first = low if len(allowed) > 1 else low + max(0, high - low - size) // 2
            end = min(high, first + size)
            bits[:] = 0
            for name in term.attributes:
                atoms = [atom for atom in term.atoms if atom.column == name]
                mark_events(self.plan.timeline, self.schema, atoms, first, end, first, bits, size)
            hits, seen = hits + int(count_bits(bits)), seen + end - first
        # a term that no sample meets is rare, not absent
        return rates.spread(max(hits, 0.5) / max(1, seen))

    # -- the model ----------------------------------------------------------------------------

    def _model(self, by_block: Sequence[Sequence[Offer]], uniform: bool = False) -> Model:
        """The cost model of the rarest terms of each block."""
        pattern, plan = self.pattern, self.plan
        shape = (len(by_block), max(map(len, by_block), default=0) + 1)
        entries, runs, passes = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        region = self.coarse.events_allowed().astype(np.float64)
        reach = self._reach()
        if uniform:
            events = np.array([float(max(1, plan.total))])
            rates = np.ones((1, *shape))
            inside = np.zeros(0, np.bool_)
            label, weight = np.zeros(0, np.int64), np.zeros(0)
        else:
            every = [offer.rates for listed in by_block for offer in listed]
            label = strata(every, region)
            inside = label >= 0
            events = np.bincount(label[inside], region[inside], minlength=1)
            rates = np.ones((len(events), *shape))
            label, weight = label[inside], region[inside]
        for b, listed in enumerate(by_block):
            for k, offer in enumerate(listed, 1):
                if uniform:
                    rate = np.array([offer.entries / max(1.0, float(self.covered))])
                else:
                    held = np.bincount(label, weight * offer.rates[inside], minlength=len(events))
                    rate = held / np.maximum(events, 1.0)
                rates[:, b, k] = rates[:, b, k - 1] * np.clip(rate, 1e-12, 1.0)
                # events that no run covers are looked at: like entries, but with their values
                opened, looked = self._opened(offer)
                entries[b, k] = entries[b, k - 1] + offer.entries + looked
                runs[b, k] = runs[b, k - 1] + opened
                passes[b, k] = passes[b, k - 1] + reach * (2 if k == 1 else 3)
        kept = events > 0
        costs = BlockCosts(
            events[kept], np.ascontiguousarray(rates[kept]), entries, runs, passes,
            np.array([len(block.symbols) for block in pattern.blocks], np.int64),
        )  # fmt: skip
        window = self._window(uniform)
        about = CostModel(costs, window, pattern.leading, pattern.trailing, self.weights, self.gap)
        if not self.wants.partition_by:
            return about
        over_keys = 0.0
        if self.wants.neighbours or pattern.within is None:
            over_keys = 5.0 * plan.total * self.weights.key
        return PartitionedModel(about, self._crowd(window), float(plan.allowed), over_keys)

    def _reach(self) -> int:
        """Positions from the first to the last that is looked up: how long bitmaps are."""
        if not self.chunks or self.covered < self.plan.total:
            return self.plan.total
        return self.chunks[-1].end - self.chunks[0].start

    def _opened(self, offer: Offer) -> tuple[int, float]:
        """Runs that looking a term up opens, and events that it takes a look at."""
        known = {} if self.catalogue is None else self.catalogue.attributes
        runs, looked = 0, 0.0
        for name in offer.term.attributes:
            indexed = name in known
            runs += offer.runs if indexed else 0
            looked += max(0, self.plan.allowed - (self.covered if indexed else 0))
        return runs, looked

    def _crowd(self, window: float) -> float:
        """Partitions whose events lie between one another: about how many a window meets."""
        assert self.plan.timeline is not None
        keys = PartitionKeys(self.plan.timeline, self.wants.partition_by, self.schema)
        allowed, sizes = self.coarse.allowed, []
        for number in {0, len(allowed) // 2, len(allowed) - 1}:
            if not 0 <= number < len(allowed):
                continue
            low, high = int(allowed.starts[number]), int(allowed.ends[number])
            first = (low + high) // 2
            end = min(high, first + int(min(window, CROWD_EVENTS)) + 1)
            keys.learn(np.arange(first, end))
            sizes.append(keys.count)
        return max(1.0, float(np.median(sizes))) if sizes else 1.0

    def _window(self, uniform: bool) -> float:
        """Events that a match can span, about."""
        coarse, pattern = self.coarse, self.pattern
        window = float(max(1, self.plan.total))
        if pattern.longest is not None:
            window = min(window, float(pattern.longest))
        if pattern.within is not None and len(coarse.starts):
            inside = np.ones(len(coarse.starts), np.bool_)
            if not uniform:
                inside = Spans(coarse.starts, coarse.ends).touches(coarse.allowed)
            events = (coarse.ends - coarse.starts)[inside].sum()
            ticks = (coarse.last - coarse.first)[inside].astype(np.float64).sum()
            if events and ticks > 0:
                window = min(window, 1.0 + pattern.within * float(events) / float(ticks))
        return max(1.0, window)

    # -- choosing -----------------------------------------------------------------------------

    def pick(
        self,
        offers: list[Offer],
        choose: Callable[[Sequence[Offer]], Sequence[int]] | None = None,
    ) -> list[Offer] | None:
        """The terms to look up; None for a replay of the whole stream.

        Parameters
        ----------
        offers : list of Offer
        choose : callable, optional
            Chooses by number, instead of the cost model.
        """
        plan = self.plan
        if choose is not None:
            return [offers[i] for i in choose(offers)]
        if plan.strategy == "none" or not offers:
            if plan.strategy == "auto" and self.coarse.allowed.total > 0.9 * plan.total:
                plan.reason = "no index can be used and the coarse pattern map excludes too little"
                return None
            return []
        by_block: list[list[Offer]] = [[] for _ in self.pattern.blocks]
        for offer in offers:
            by_block[offer.block].append(offer)
        for listed in by_block:
            listed.sort(key=lambda offer: offer.share)
        model = self._model(by_block)
        sizes = [len(listed) for listed in by_block]
        if plan.strategy == "all":
            plan.examined = 1
            counts: tuple[int, ...] = tuple(sizes)
            plan.estimate = priced(model, counts)
        elif plan.strategy == "auto" and plan.allowed * self._event_ns() < self.weights.query:
            # less than choosing would cost
            plan.examined = 1
            counts = (0,) * len(sizes)
            plan.estimate = priced(model, counts)
        else:
            rough = coarser(model)
            if plan.strategy == "greedy":
                rarest = sorted(offers, key=lambda offer: offer.share)
                found = greedy([offer.block for offer in rarest], sizes, rough)
            else:
                found = optimal(sizes, rough)
            counts = found.choice.counts
            plan.examined, plan.estimate = found.examined, priced(model, counts)
            if plan.strategy == "auto" and self._replay_is_cheaper(plan.estimate.total_ns):
                return None
        self._chosen = model, counts
        plan.estimate_uniform = lambda: priced(self._model(by_block, uniform=True), counts)
        return [
            offer
            for listed, count in zip(by_block, counts, strict=True)
            for offer in listed[:count]
        ]

    def probe(self, offers: Sequence[Offer]) -> list[Offer] | None:
        """The rarest term, where looking it up is cheap beside a replay; else None.

        A term often holds for many events of few partitions (an aircraft that is low stays low),
        which the model cannot know: under PARTITION BY it is better to look and then decide.
        """
        if not offers or not self.wants.partition_by or self.pattern.within is None:
            return None
        rarest = min(offers, key=lambda offer: offer.share)
        if self._probe_ns(rarest) > PROBE * self.plan.total * self._event_ns():
            return None
        return [rarest]

    def _probe_ns(self, offer: Offer) -> float:
        opened, looked = self._opened(offer)
        entry = (offer.entries + looked) * self.weights.entry + opened * self.weights.run
        passes = 5.0 * self.plan.total * self.weights.key if self.wants.neighbours else 0.0
        return entry + offer.entries * self.weights.key + passes

    def worth(self, probed: Sequence[Offer]) -> bool:
        """Whether replaying the intervals that a probe has found is clearly cheaper than all."""
        plan = self.plan
        if plan.spans is None or plan.partitions is None:
            return False
        events = plan.partitions.inside.total / self._crowd(self._window(False))
        whole = sum(int(plan.spans.ends[i] - plan.spans.starts[i]) for i in plan.by_time)
        cost = (events + whole) * self._event_ns() + plan.spans.total * self.weights.key
        cost += len(plan.spans) * self.weights.interval + sum(map(self._probe_ns, probed))
        if plan.estimate is not None:  # now something better is known
            plan.estimate = replace(plan.estimate, events=events + whole)
        return cost <= CLEARLY * plan.total * self._event_ns()

    # -- deciding again, with what lookups have found -----------------------------------------

    def hopeless(self, block: int, occurrences: int) -> bool:
        """See :class:`.located.Judge`: the model once more, with the rate that was found.

        Rates of single terms are known well, those of neighbouring symbols are multiplied as if
        they were independent: where they are not, a block occurs far more often than expected.
        """
        model, counts = self._chosen or (None, ())
        if not isinstance(model, CostModel):
            return False
        costs = model.costs
        expected = float(costs.rates[:, block, counts[block]] @ costs.events)
        if occurrences <= SURPRISE * max(expected, 1.0):
            return False
        rates = costs.rates.copy()
        rates[:, block, 1:] *= occurrences / max(expected, 1.0)
        known = replace(model, costs=replace(costs, rates=np.minimum(rates, 1.0)))
        left, full = priced(known, counts).primary_ns, self.plan.total * self._event_ns()
        if left < full:
            return False
        self.plan.reason = (
            f"{self.pattern.symbols[self._symbol(block)].name} and its neighbours occur "
            f"{occurrences} times, {expected:.0f} were expected: intervals would cost "
            f"{left / 1e6:.1f} ms, a full replay {full / 1e6:.1f} ms"
        )
        return True

    def _symbol(self, block: int) -> int:
        """Place of a block's first symbol."""
        return sum(len(b.symbols) for b in self.pattern.blocks[:block])

    def enough(self, spans: Spans, rest: Sequence[tuple[Offer, float]]) -> bool:
        """See :class:`.located.Judge`."""
        weights = self.weights
        further = 0.0
        for offer, part in rest:
            opened, looked = self._opened(offer)
            further += part * ((offer.entries + looked) * weights.entry + opened * weights.run)
        return self._spans_ns(spans) <= further

    def pays(self) -> bool:
        """Whether the intervals that were found are cheaper than a full replay; else says so."""
        plan = self.plan
        if plan.spans is None or self.wants.partition_by:
            return True
        cost, full = self._spans_ns(plan.spans), plan.total * self._event_ns()
        if cost < full:
            return True
        plan.reason = (
            f"the intervals found would cost {cost / 1e6:.1f} ms, a full replay {full / 1e6:.1f} ms"
        )
        return False

    def _spans_ns(self, spans: Spans) -> float:
        """What replaying spans costs."""
        return spans.total * self._event_ns() + len(spans) * self.weights.interval

    def _event_ns(self) -> float:
        """What replaying one event costs."""
        return self.weights.grouped if self.wants.partition_by else self.weights.event

    def _replay_is_cheaper(self, cost: float) -> bool:
        plan = self.plan
        full = plan.total * self._event_ns()
        if cost <= CLEARLY * full:
            return False
        plan.reason = f"indexes would cost {cost / 1e6:.1f} ms, a full replay {full / 1e6:.1f} ms"
        return True
