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
        everything -> ReplayPlan       considered.located, ways.united

    What the coarse map excludes costs nothing further.  A pattern with PERMUTE or alternatives has
    several outlines: each is taken as far as the choice, and the cheapest is looked up.

Guarantee
    Whatever is chosen, the intervals contain every match of the snapshot.  A run that disappears
    while it is read makes the plan start again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...indexes.stream_indexes import RunsChanged, StreamIndexes
from ...store.snapshot import Snapshot
from ..conditions.constants import Folder
from ..pattern.compiled import CompiledMatch
from .applicability import Demands, demands, not_applicable
from .choosing import CLEARLY, Picker
from .considered import Considered, consider
from .context import READ_GAP, REPLAY_GAP, PlanContext
from .cost import Weights
from .near import Near
from .replay_plan import ReplayPlan
from .symbols import Outline, known_outlines
from .ways import expected_together, united

__all__ = ["STRATEGIES", "plan_match", "retrying"]

STRATEGIES = ("auto", "replay", "none", "all", "greedy", "optimal")
RETRIES = 4
ELSEWHERE = 0.15
"""Part of what a full replay is expected to cost that may be spent on looking for other plans."""
FURTHER = 0.3
"""The same where the best so far does not replay everything, so that it is below that anyway."""
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
    gap: int | None = None,
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
    gap : int, optional
        Events between two intervals that are replayed as one; :data:`.context.REPLAY_GAP`, or
        under PARTITION BY, where keys are read between them, :data:`.cost.READ_GAP`.
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
            """The outlines of a set; none where they are not expected to cost less."""
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
        for option in sorted(options[1:], key=len, reverse=True):  # ways say most
            cost = len(option) * context.weights.outline
            most = (ELSEWHERE if best[0].whole else FURTHER) * least
            dear = strategy == "auto" and spent + cost > most
            if least == math.inf or dear or (len(option) > 1 and near is not None):
                continue
            spent += cost
            # what replays a part must clearly be cheaper than all of it: one outline sees to that
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


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000
