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
from pathlib import Path

import numpy as np

from ...indexes.lookup import IndexMetrics
from ...indexes.stream_indexes import Catalogue, RunsChanged, StreamIndexes
from ...store.snapshot import Snapshot
from ..constants import Folder
from ..match import CompiledMatch
from .applicability import Demands, demands, not_applicable
from .candidates import Offer
from .choosing import Chooser
from .coarse import CoarseMap, coarse_map
from .cost import Weights, load_weights
from .located import READ_GAP, Locator, ReplayIsCheaper
from .replay_plan import ReplayPlan
from .spans import Spans
from .symbols import Outline, outline
from .timeline import Timeline

__all__ = ["STRATEGIES", "Offer", "Planner", "ReplayPlan", "plan_match"]

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
    indexed = frozenset() if indexes is None else frozenset(indexes.attributes)
    pattern = outline(compiled, snapshot.schema, folder, indexed=indexed)
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


def _store_of(indexes: StreamIndexes | None) -> Path | None:
    """The directory of the store: indexes lie in ``<store>/streams/<stream>/indexes``."""
    above = [] if indexes is None else list(indexes.path.absolute().parents)
    return above[2] if len(above) > 2 else None


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
        self.weights = weights or load_weights(_store_of(indexes))
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
        # a filter's alternative, a pruned scan, looks at zones by itself
        self.coarse: CoarseMap = coarse_map(timeline, pattern, low, high, zones=bounds is None)
        plan.allowed = self.coarse.allowed.total
        plan.phases["coarse_ms"] = _since(begun)
        begun = time.perf_counter()
        everything = self.wants.partition_by and (choose is not None or plan.strategy == "auto")
        chooser = Chooser(
            self.snapshot.schema, pattern, self.indexes, self.catalogue, self.coarse, plan,
            self.wants, self.weights, READ_GAP,
        )  # fmt: skip
        offers = chooser.offers(bool(everything))
        plan.offers, plan.show = offers, self._shown
        picked = chooser.pick(offers, choose)
        probed: list[Offer] = []
        if picked is None:
            picked = probed = chooser.probe(offers) or []
        plan.phases["selection_ms"] = _since(begun)
        if plan.reason and not probed:
            return
        begun = time.perf_counter()
        plan.picked = picked
        unknown = self.wants.partition_by and self.wants.neighbours
        if unknown and not picked and len(self.coarse.allowed):
            plan.reason = "no index can be used, and neighbours in the partition are looked at"
            return
        judge = chooser if choose is None and plan.strategy == "auto" else None
        locator = Locator(
            self.snapshot, timeline, pattern, self.coarse, self.wants, self.indexes,
            self.catalogue, plan, self.check, READ_GAP, judge,
        )  # fmt: skip
        worth = True
        try:
            locator.run(picked)
        except ReplayIsCheaper:
            worth = False
        plan.phases["lookup_ms"] = _since(begun)
        if probed:
            worth = chooser.worth(probed)
            plan.reason = "" if worth else plan.reason
        elif worth and judge is not None and picked:
            worth = chooser.pays()
        if not worth:
            plan.spans, plan.partitions, plan.by_time, plan.picked = None, None, {}, ()

    def _shown(self, offer: Offer) -> str:
        from ..ranges import describe

        parts = [describe(atom, self.snapshot.schema) or "true" for atom in offer.term.atoms]
        known = () if self.catalogue is None else self.catalogue.attributes
        how = "" if all(n in known for n in offer.term.attributes) else " (no index: evaluated)"
        return f"{self.pattern.symbols[offer.symbol].name}: {' or '.join(parts)}{how}"
