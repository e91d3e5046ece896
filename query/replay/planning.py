"""Planning a pattern query: what to look up, what to replay, and saying so.

Purpose
    :func:`plan_match` turns a compiled clause and a snapshot into a :class:`ReplayPlan`: either
    the whole stream, with the reason, or spans of positions that contain every match.

Layout
    ::

        clause -> outline -> coarse pattern map -> choice of terms -> candidates -> spans
                                    |                                             + uncovered, late
                                    '-- what it excludes costs nothing further

Guarantee
    Whatever is chosen, the spans contain every match of the snapshot.  A run that disappears while
    it is read makes the plan start again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...indexes.lookup import IndexMetrics, estimate_run
from ...indexes.stream_indexes import Catalogue, RunsChanged, StreamIndexes
from ...store.snapshot import Snapshot
from ..constants import Folder
from ..match import CompiledMatch
from .applicability import not_applicable
from .candidates import (
    ChosenBlock,
    ChosenTerm,
    Chunk,
    chunks_of,
    find_candidates,
    occurrences,
)
from .coarse import CoarseMap, coarse_map
from .cost import BlockCosts, Estimate, Weights, estimate, load_weights
from .intervals import candidate_spans, dirty_spans, widened
from .replay_plan import ReplayPlan
from .selection import Counts, greedy, optimal
from .spans import Spans
from .symbols import Outline, Term, outline
from .timeline import Timeline

__all__ = ["STRATEGIES", "Offer", "Planner", "ReplayPlan", "plan_match"]

STRATEGIES = ("auto", "replay", "none", "all", "greedy", "optimal")
READ_GAP = 2048
"""Events between two spans that are read, not skipped: beginning a span costs about as much."""
SAMPLE_CHUNKS = 12
RETRIES = 4


@dataclass
class Offer:
    """A term that could be looked up."""

    term: Term
    symbol: int
    block: int
    offset: int
    share: float  # of the events of its alive buckets that satisfy it
    entries: float


def plan_match(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None = None,
    strategy: str = "auto",
    *,
    folder: Folder | None = None,
    weights: Weights | None = None,
    choose: Callable[[Sequence[Offer]], Sequence[int]] | None = None,
    check: Callable[[], None] | None = None,
) -> ReplayPlan:
    """Plan a pattern query over all events of a snapshot.

    Parameters
    ----------
    snapshot : Snapshot
    compiled : CompiledMatch
    indexes : StreamIndexes, optional
    strategy : str
        ``replay``: the whole stream.  ``none``: the coarse pattern map alone.  ``all``,
        ``greedy``, ``optimal``: how terms are chosen.  ``auto``: ``optimal``, or ``replay`` where
        that is expected to be cheaper.
    folder : Folder, optional
        Knows the parameters of this execution.
    weights : Weights, optional
    choose : callable, optional
        Chooses among the offered terms, by number, instead of the cost model.
    check : callable, optional
        Called between steps; may raise.
    """
    plan = ReplayPlan(strategy)
    if strategy == "replay":
        plan.reason = "asked for"
        return plan
    plan.reason = not_applicable(compiled)
    if plan.reason:
        return plan
    begun = time.perf_counter()
    pattern = outline(compiled, snapshot.schema, folder)
    plan.outline = pattern
    if not pattern.blocks:
        plan.reason = "no symbol is needed by every match"
    elif not pattern.bounded:
        plan.reason = "the pattern has no WITHIN and no bound on its events"
    if plan.reason:
        return plan
    plan.phases["outline_ms"] = _since(begun)
    for _ in range(RETRIES):
        catalogue = None if indexes is None else indexes.catalogue()
        try:
            planner = Planner(
                snapshot, max(1, compiled.history), max(1, compiled.lookahead), pattern, indexes,
                catalogue, plan, weights, check,
            )  # fmt: skip
            planner.run(choose)
            return plan
        except RunsChanged:
            continue
    plan.reason, plan.spans = "the indexes kept changing", None
    return plan


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000


class Planner:
    """One attempt at a plan.

    Parameters
    ----------
    snapshot : Snapshot
    before, after : int
        Rows around an interval that are read with it.
    pattern : Outline
    indexes, catalogue : optional
    plan : ReplayPlan
        Filled in.
    weights : Weights, optional
    check : callable, optional
    """

    def __init__(
        self,
        snapshot: Snapshot,
        before: int,
        after: int,
        pattern: Outline,
        indexes: StreamIndexes | None,
        catalogue: Catalogue | None,
        plan: ReplayPlan,
        weights: Weights | None,
        check: Callable[[], None] | None,
    ) -> None:
        self.snapshot = snapshot
        self.pattern = pattern
        plan.before, plan.after = before, after
        self.indexes = indexes
        self.catalogue = catalogue
        self.plan = plan
        self.weights = weights or load_weights()
        self.check = check or (lambda: None)

    def run(
        self,
        choose: Callable[[Sequence[Offer]], Sequence[int]] | None = None,
        bounds: tuple[int, int] | None = None,
    ) -> None:
        """Fill the plan in; ``bounds`` are the ticks, inclusive, that matter at all."""
        plan, pattern = self.plan, self.pattern
        begun = time.perf_counter()
        timeline = Timeline(self.snapshot, self.indexes, self.catalogue)
        plan.timeline, plan.total, plan.metrics = timeline, timeline.total, IndexMetrics()
        if not timeline.total:
            plan.reason = "there are only late events" if self.snapshot.count else "no events"
            return
        if pattern.impossible:
            plan.spans = Spans.empty()
            return
        low, high = 0, timeline.total
        if bounds is not None:
            low = int(timeline.lower(np.array([bounds[0]], np.int64))[0])
            high = int(timeline.upper(np.array([bounds[1]], np.int64))[0])
        self.coarse: CoarseMap = coarse_map(self.snapshot, timeline, pattern, low, high)
        plan.allowed = self.coarse.allowed.total
        plan.phases["coarse_ms"] = _since(begun)
        begun = time.perf_counter()
        offers = self._offers()
        plan.offered = tuple(self._shown(offer) for offer in offers)
        picked = self._pick(offers, choose)
        plan.phases["selection_ms"] = _since(begun)
        if picked is None:
            return
        begun = time.perf_counter()
        plan.chosen = tuple(self._shown(offer) for offer in picked)
        spans = self._lookup(picked) if picked else self.coarse.allowed
        self._finish(spans)
        plan.phases["lookup_ms"] = _since(begun)

    def _shown(self, offer: Offer) -> str:
        from ..ranges import describe

        parts = [describe(atom, self.snapshot.schema) or "true" for atom in offer.term.atoms]
        return f"{self.pattern.symbols[offer.symbol].name}: {' or '.join(parts)}"

    # -- choosing -----------------------------------------------------------------------------

    def _offers(self) -> list[Offer]:
        if self.catalogue is None or not self.catalogue.attributes:
            return []
        known = self.catalogue.attributes
        usable: list[Offer] = []
        symbol = 0
        for number, block in enumerate(self.pattern.blocks):
            for offset, wanted in enumerate(block.symbols):
                usable.extend(
                    Offer(term, symbol, number, offset, 0.0, 0.0)
                    for term in wanted.terms
                    if all(name in known for name in term.attributes)
                )
                symbol += 1
        if not usable:
            return []
        assert self.plan.timeline is not None
        names = sorted({name for offer in usable for name in offer.term.attributes})
        self.chunks = chunks_of(self.catalogue, self.plan.timeline, names)
        if not self.chunks:
            return []
        sample = self._sample()
        memo: dict[Term, float] = {}
        for offer in usable:
            if offer.term not in memo:
                memo[offer.term] = self._measure(offer, sample)
            offer.entries = memo[offer.term]
            alive = max(1, self.coarse.events_alive(offer.symbol))
            offer.share = min(1.0, offer.entries / alive)
        return usable

    def _sample(self) -> list[Chunk]:
        spans = Spans(
            np.array([c.start for c in self.chunks], np.int64),
            np.array([c.end for c in self.chunks], np.int64),
        )
        live = np.flatnonzero(spans.touches(self.coarse.allowed))
        if len(live) > SAMPLE_CHUNKS:
            live = live[np.linspace(0, len(live) - 1, SAMPLE_CHUNKS).astype(np.int64)]
            self.scale = float(spans.touches(self.coarse.allowed).sum()) / SAMPLE_CHUNKS
        else:
            self.scale = 1.0
        return [self.chunks[i] for i in live.tolist()]

    def _measure(self, offer: Offer, sample: list[Chunk]) -> float:
        assert self.indexes is not None
        total = 0.0
        for chunk in sample:
            for name in offer.term.attributes:
                atoms = [atom for atom in offer.term.atoms if atom.column == name]
                attribute = self.snapshot.schema.attribute(name)
                total += estimate_run(self.indexes, chunk.runs[name], atoms, attribute)
        return total * self.scale

    def _pick(
        self, offers: list[Offer], choose: Callable[[Sequence[Offer]], Sequence[int]] | None
    ) -> list[Offer] | None:
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
            listed.sort(key=lambda offer: offer.entries)
        self.window = self._window()
        costs = self._costs(by_block)
        if plan.strategy == "all":
            plan.examined = 1
            plan.estimate = self._estimate(costs, tuple(map(len, by_block)))
            return [offer for listed in by_block for offer in listed]
        used = [i for i, listed in enumerate(by_block) if listed]
        sizes = [len(by_block[i]) for i in used]

        def evaluate(counts: Counts) -> Estimate:
            spread = [0] * len(by_block)
            for i, count in zip(used, counts, strict=True):
                spread[i] = count
            return self._estimate(costs, spread)

        if plan.strategy == "auto":
            alone = evaluate((0,) * len(used))
            if alone.total_ns < self.weights.query:  # less than choosing would cost
                plan.examined, plan.estimate = 1, alone
                return []
        if plan.strategy == "greedy":
            rarest = sorted(offers, key=lambda offer: offer.entries)
            found = greedy([used.index(offer.block) for offer in rarest], sizes, evaluate)
        else:
            found = optimal(sizes, evaluate)
        plan.examined, plan.estimate = found.examined, found.choice.estimate
        if plan.strategy == "auto":
            full = plan.total * self.weights.event
            uncovered = plan.total - sum(c.end - c.start for c in self.chunks)
            cost = found.choice.estimate.total_ns + uncovered * self.weights.event
            if cost > 0.95 * full:
                plan.reason = (
                    f"indexes would cost {cost / 1e6:.1f} ms, a full replay {full / 1e6:.1f} ms"
                )
                return None
        return [
            offer
            for i, count in zip(used, found.choice.counts, strict=True)
            for offer in by_block[i][:count]
        ]

    def _costs(self, by_block: list[list[Offer]]) -> BlockCosts:
        """What taking the rarest terms of each block means, for the cost model."""
        region = float(max(1, self.plan.allowed))
        shape = (len(by_block), max(map(len, by_block)) + 1)
        rates, entries, runs, passes = (
            np.ones(shape),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape),
        )
        for b, listed in enumerate(by_block):
            for k, offer in enumerate(listed, 1):
                if k == 1:
                    alive = min(self.coarse.events_alive(offer.symbol), region)
                    rates[b, 0] = alive / region
                rates[b, k] = rates[b, k - 1] * max(offer.share, 1e-12)
                entries[b, k] = entries[b, k - 1] + offer.entries
                opened = len(self.chunks) * len(offer.term.attributes)
                runs[b, k] = runs[b, k - 1] + opened
                passes[b, k] = passes[b, k - 1] + self.plan.total * (2 if k == 1 else 3)
        lengths = np.array([len(block.symbols) for block in self.pattern.blocks], np.int64)
        return BlockCosts(rates, entries, runs, passes, lengths)

    def _estimate(self, costs: BlockCosts, counts: Sequence[int]) -> Estimate:
        return estimate(
            counts, costs, float(self.plan.allowed), self.window, self.pattern.leading,
            self.pattern.trailing, self.weights, READ_GAP,
        )  # fmt: skip

    def _window(self) -> float:
        """Events that a match can span, about."""
        window = float(self.plan.total)
        pattern = self.pattern
        if pattern.longest is not None:
            window = min(window, float(pattern.longest))
        if pattern.within is not None and len(self.coarse.starts):
            allowed = self.coarse.allowed
            inside = Spans(self.coarse.starts, self.coarse.ends).touches(allowed)
            events = (self.coarse.ends - self.coarse.starts)[inside].sum()
            ticks = (self.coarse.last - self.coarse.first)[inside].astype(np.float64).sum()
            if events and ticks > 0:
                window = min(window, max(1.0, pattern.within * float(events) / float(ticks)))
        return max(1.0, window)

    # -- looking up ---------------------------------------------------------------------------

    def _lookup(self, picked: list[Offer]) -> Spans:
        """Intervals of the candidates of chosen terms, and what their indexes do not cover."""
        pattern, timeline = self.pattern, self.plan.timeline
        assert timeline is not None
        assert self.catalogue is not None
        names = sorted({name for offer in picked for name in offer.term.attributes})
        chunks = chunks_of(self.catalogue, timeline, names)
        starts = np.array([chunk.start for chunk in chunks], np.int64)
        ends = np.array([chunk.end for chunk in chunks], np.int64)
        covered = Spans.of(starts, ends)
        self.plan.covered = covered.total / timeline.total
        allowed = self.coarse.allowed
        uncovered = _complement(covered, timeline.total).intersect(allowed)
        lost = widened(uncovered, timeline, pattern.within, pattern.longest).intersect(allowed)
        each = Spans(starts, ends)
        found: dict[int, np.ndarray] = {}
        spans = allowed
        order = sorted({offer.block for offer in picked}, key=lambda b: self._rarity(picked, b))
        for block in order:
            self.check()
            wanted = each.touches(spans)
            chosen = self._block(picked, block, 0)
            found[block] = occurrences(
                chosen, chunks, wanted, timeline.total, self._indexes(), self.snapshot.schema,
                self.coarse, self.plan.metrics,
            )  # fmt: skip
            if len(order) > 1:
                spans = spans.intersect(self._spans({block: found[block]}, picked))
            if not len(found[block]):
                return lost
        result = self._spans(found, picked)
        return result.intersect(allowed).union(lost)

    def _indexes(self) -> StreamIndexes:
        assert self.indexes is not None
        return self.indexes

    @staticmethod
    def _rarity(picked: list[Offer], block: int) -> float:
        rate = 1.0
        for offer in picked:
            if offer.block == block:
                rate *= max(offer.share, 1e-12)
        return rate

    def _block(self, picked: list[Offer], number: int, between: int) -> ChosenBlock:
        terms = sorted((o for o in picked if o.block == number), key=lambda o: o.entries)
        return ChosenBlock(
            tuple(ChosenTerm(o.term, o.symbol, o.offset) for o in terms),
            len(self.pattern.blocks[number].symbols),
            between,
        )

    def _spans(self, found: dict[int, np.ndarray], picked: list[Offer]) -> Spans:
        """Intervals of the candidates made of some blocks."""
        pattern, timeline = self.pattern, self.plan.timeline
        assert timeline is not None
        lengths = [len(block.symbols) for block in pattern.blocks]
        used = sorted(found)
        blocks = []
        for i, number in enumerate(used):
            between = sum(lengths[used[i - 1] + 1 : number]) if i else 0
            blocks.append(self._block(picked, number, between))
        before, after = sum(lengths[: used[0]]), sum(lengths[used[-1] + 1 :])
        candidates = find_candidates(
            [found[number] for number in used], blocks, before, after, timeline, pattern.within,
            pattern.longest,
        )  # fmt: skip
        leading = pattern.leading or used[0] > 0
        trailing = pattern.trailing or used[-1] < len(lengths) - 1
        return candidate_spans(
            candidates, timeline, leading, trailing, pattern.within, pattern.longest
        )

    # -- what is replayed ---------------------------------------------------------------------

    def _finish(self, spans: Spans) -> None:
        """Add what late events make unsure, join near spans, and fix which are read by time."""
        plan, pattern, timeline = self.plan, self.pattern, self.plan.timeline
        assert timeline is not None
        plan.needed = spans.total
        gap = max(READ_GAP, plan.before + plan.after)
        dirty = self.snapshot.dirty_ranges()
        if not dirty:
            plan.spans = spans.joined(gap)
            return
        unsure, first, last = dirty_spans(dirty, timeline, pattern.within, pattern.longest)
        spans = _whole_ticks(spans.union(unsure), timeline).joined(gap)
        hit = spans.touches(unsure)
        for number in np.flatnonzero(hit).tolist():
            start, end = int(spans.starts[number]), int(spans.ends[number])
            low = timeline.tick(start)
            high = timeline.tick(end - 1)
            # late events in reach may lie before the first or after the last base event of the span
            for a, b in zip(first.tolist(), last.tolist(), strict=True):
                place = int(timeline.lower(np.array([a], np.int64))[0])
                until = int(timeline.upper(np.array([b], np.int64))[0])
                if place <= end and until >= start:
                    low, high = min(low, a), max(high, b)
            plan.by_time[number] = (low, high)
        plan.spans = spans


def _complement(spans: Spans, total: int) -> Spans:
    return Spans.of(np.concatenate(([0], spans.ends)), np.concatenate((spans.starts, [total])))


def _whole_ticks(spans: Spans, timeline: Timeline) -> Spans:
    """Spans that begin and end between two times."""
    if not len(spans):
        return spans
    first = timeline.lower(timeline.ticks_at(spans.starts))
    end = timeline.upper(timeline.ticks_at(spans.ends - 1))
    return Spans.of(first, end)
