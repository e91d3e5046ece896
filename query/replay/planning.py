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
from dataclasses import replace

import numpy as np

from ...indexes.kernels import count_bits
from ...indexes.lookup import IndexMetrics, estimate_run
from ...indexes.stream_indexes import Catalogue, RunsChanged, StreamIndexes
from ...store.snapshot import Snapshot
from ..constants import Folder
from ..match import CompiledMatch
from .applicability import Demands, demands, not_applicable
from .candidates import Chunk, Offer, chunks_of
from .coarse import CoarseMap, coarse_map
from .cost import BlockCosts, Estimate, Weights, estimate, load_weights
from .evaluated import mark_events
from .located import READ_GAP, Locator
from .partition_keys import PartitionKeys
from .replay_plan import ReplayPlan
from .selection import Counts, greedy, optimal
from .spans import Spans
from .symbols import Outline, Term, outline
from .timeline import Timeline

__all__ = ["STRATEGIES", "Offer", "Planner", "ReplayPlan", "plan_match"]

STRATEGIES = ("auto", "replay", "none", "all", "greedy", "optimal")
SAMPLE_CHUNKS = 12
RETRIES = 4
CROWD_EVENTS = 1 << 15
"""Events that are looked at to see how many partitions lie between one another."""
GROUPED_EVENT_NS = 60.0
"""Replaying one event under PARTITION BY: it is read, its key is encoded, and rows are grouped."""
KEY_NS = 4.0
"""Reading the PARTITION BY columns of one event and finding its code."""
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
    wants = demands(compiled)
    pattern = outline(compiled, snapshot.schema, folder)
    plan.outline = pattern
    if not pattern.blocks:
        plan.reason = "no symbol is needed by every match"
    elif not pattern.bounded:
        plan.reason = "the pattern has no WITHIN and no bound on its events"
    plan.reason = plan.reason or _obstacle(snapshot, pattern, wants)
    if plan.reason:
        return plan
    plan.phases["outline_ms"] = _since(begun)
    for _ in range(RETRIES):
        catalogue = None if indexes is None else indexes.catalogue()
        try:
            planner = Planner(snapshot, wants, pattern, indexes, catalogue, plan, weights, check)
            planner.run(choose)
            return plan
        except RunsChanged:
            continue
    plan.reason, plan.spans = "the indexes kept changing", None
    return plan


def _obstacle(snapshot: Snapshot, pattern: Outline, wants: Demands) -> str:
    """Why the rows that a partitioned clause looks at cannot be found; empty when they can."""
    if not wants.partition_by or (pattern.within is not None and not wants.neighbours):
        return ""
    if wants.ties:
        return "ORDER BY has keys besides time: an event has no certain neighbours in its partition"
    if snapshot.dirty_ranges():
        return "late events may be neighbours in a partition; they have no place until compaction"
    if wants.before + wants.after > NEIGHBOURS_MAX:
        return "PREV or NEXT look at too many events of the partition"
    return ""


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000


class Planner:
    """One attempt at a plan.

    Parameters
    ----------
    snapshot : Snapshot
    wants : Demands
        What the clause looks at besides its matches.
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
        wants: Demands,
        pattern: Outline,
        indexes: StreamIndexes | None,
        catalogue: Catalogue | None,
        plan: ReplayPlan,
        weights: Weights | None,
        check: Callable[[], None] | None,
    ) -> None:
        self.snapshot = snapshot
        self.pattern = pattern
        self.wants = wants
        plan.before, plan.after = wants.before, wants.after
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
        everything = self.wants.partition_by and (choose is not None or plan.strategy == "auto")
        offers = self._offers(bool(everything))
        plan.offered = tuple(self._shown(offer) for offer in offers)
        picked = self._pick(offers, choose)
        plan.phases["selection_ms"] = _since(begun)
        if picked is None:
            return
        begun = time.perf_counter()
        plan.chosen = tuple(self._shown(offer) for offer in picked)
        unknown = self.wants.partition_by and self.wants.neighbours
        if unknown and not picked and len(self.coarse.allowed):
            plan.reason = "no index can be used, and neighbours in the partition are looked at"
            return
        Locator(
            self.snapshot, timeline, pattern, self.coarse, self.wants, self.indexes,
            self.catalogue, plan, self.check, READ_GAP,
        ).run(picked)  # fmt: skip
        plan.phases["lookup_ms"] = _since(begun)

    def _shown(self, offer: Offer) -> str:
        from ..ranges import describe

        parts = [describe(atom, self.snapshot.schema) or "true" for atom in offer.term.atoms]
        known = () if self.catalogue is None else self.catalogue.attributes
        how = "" if all(n in known for n in offer.term.attributes) else " (no index: evaluated)"
        return f"{self.pattern.symbols[offer.symbol].name}: {' or '.join(parts)}{how}"

    # -- choosing -----------------------------------------------------------------------------

    def _offers(self, evaluated: bool = False) -> list[Offer]:
        """Terms that indexes can look up, and, if wanted, those that take a look at all events."""
        known = {} if self.catalogue is None else self.catalogue.attributes
        self.chunks: list[Chunk] = []
        if not len(self.coarse.allowed):
            return []
        usable: list[Offer] = []
        symbol = 0
        for number, block in enumerate(self.pattern.blocks):
            for offset, wanted in enumerate(block.symbols):
                usable.extend(
                    Offer(term, symbol, number, offset, 0.0, 0.0)
                    for term in wanted.terms
                    if evaluated or all(name in known for name in term.attributes)
                )
                symbol += 1
        names = sorted({name for offer in usable for name in offer.term.attributes} & set(known))
        if names:
            assert self.catalogue is not None
            assert self.plan.timeline is not None
            self.chunks = chunks_of(self.catalogue, self.plan.timeline, names)
        if not self.chunks and not evaluated:
            return []
        sample = self._sample()
        memo: dict[Term, float] = {}
        for offer in usable:
            if offer.term not in memo:
                indexed = bool(sample) and all(n in known for n in offer.term.attributes)
                memo[offer.term] = self._measure(offer, sample) if indexed else self._guess(offer)
            offer.entries = memo[offer.term]
            alive = max(1, self.coarse.events_alive(offer.symbol))
            offer.share = min(1.0, offer.entries / alive)
        return usable

    def _guess(self, offer: Offer) -> float:
        """About how many events satisfy a term, from a few pieces of the stream."""
        assert self.plan.timeline is not None
        allowed, size, hits, seen = self.coarse.allowed, 4096, 0, 0
        bits = np.zeros(size // 64, np.uint64)
        for number in np.unique(np.linspace(0, len(allowed) - 1, SAMPLE_CHUNKS).astype(np.int64)):
            low, high = int(allowed.starts[number]), int(allowed.ends[number])
            first = low if len(allowed) > 1 else low + max(0, high - low - size) // 2
            end = min(high, first + size)
            bits[:] = 0
            for name in offer.term.attributes:
                atoms = [atom for atom in offer.term.atoms if atom.column == name]
                mark_events(
                    self.plan.timeline, self.snapshot.schema, atoms, first, end, first, bits, size
                )
            hits, seen = hits + int(count_bits(bits)), seen + end - first
        # a term that no sample meets is rare, not absent
        return max(hits, 0.5) / max(1, seen) * allowed.total

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

    def _crowd(self) -> float:
        """Partitions whose events lie between one another: about how many a window meets."""
        if not self.wants.partition_by:
            return 1.0
        assert self.plan.timeline is not None
        keys = PartitionKeys(self.plan.timeline, self.wants.partition_by, self.snapshot.schema)
        allowed, sizes = self.coarse.allowed, []
        for number in {0, len(allowed) // 2, len(allowed) - 1}:
            if not 0 <= number < len(allowed):
                continue
            low, high = int(allowed.starts[number]), int(allowed.ends[number])
            first = (low + high) // 2
            end = min(high, first + int(min(self.window, CROWD_EVENTS)) + 1)
            keys.learn(np.arange(first, end))
            sizes.append(keys.count)
        return max(1.0, float(np.median(sizes))) if sizes else 1.0

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
        self.crowd = self._crowd()
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
            full = plan.total * self._event_ns()
            cost = found.choice.estimate.total_ns
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
                opened, looked = self._opened(offer)
                runs[b, k] = runs[b, k - 1] + opened
                # events that no run covers are looked at: like entries, but with their values
                entries[b, k] += looked
                passes[b, k] = passes[b, k - 1] + self.plan.total * (2 if k == 1 else 3)
        lengths = np.array([len(block.symbols) for block in self.pattern.blocks], np.int64)
        return BlockCosts(rates, entries, runs, passes, lengths)

    def _opened(self, offer: Offer) -> tuple[int, float]:
        """Runs that looking a term up opens, and events that it takes a look at."""
        known = {} if self.catalogue is None else self.catalogue.attributes
        covered = sum(c.end - c.start for c in self.chunks)
        runs, looked = 0, 0.0
        for name in offer.term.attributes:
            indexed = name in known
            runs += len(self.chunks) if indexed else 0
            looked += max(0, self.plan.allowed - (covered if indexed else 0))
        return runs, looked

    def _event_ns(self) -> float:
        """What replaying one event costs."""
        return GROUPED_EVENT_NS if self.wants.partition_by else self.weights.event

    def _estimate(self, costs: BlockCosts, counts: Sequence[int]) -> Estimate:
        def about(window: float, weights: Weights) -> Estimate:
            return estimate(
                counts, costs, float(self.plan.allowed), window, self.pattern.leading,
                self.pattern.trailing, weights, READ_GAP,
            )  # fmt: skip

        if not self.wants.partition_by:
            return about(self.window, self.weights)
        if not any(counts):
            return about(self.window, replace(self.weights, event=GROUPED_EVENT_NS))
        # spans are those of all partitions together, and of their events the keys are read; what
        # is replayed is one partition's share of the window
        wide = about(self.window, replace(self.weights, event=KEY_NS))
        narrow = about(self.window / self.crowd, self.weights)
        passes = 0.0
        if self.wants.neighbours or self.pattern.within is None:
            passes = 3.0 * self.plan.total * KEY_NS
        keys = min(float(self.plan.allowed), narrow.intervals * 16) * KEY_NS
        return replace(
            wide,
            intervals=narrow.intervals,
            events=narrow.events,
            primary_ns=wide.primary_ns + narrow.events * GROUPED_EVENT_NS + keys + passes,
        )

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
