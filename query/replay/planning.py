"""Planning a pattern query: the whole stream, with the reason, or intervals with every match.

Each stage is a function from values to an immutable value::

    clause     -> Outline          symbols.outline            what every match contains
    Outline    -> PlanContext      context.PlanContext.of     of one snapshot and its indexes
    context    -> CoarseMap        coarse.coarse_map          pruning by leaves
    + map      -> Offers           offers.list_offers         terms, and how often they hold
    + offers   -> TermChoice       choosing.choose_terms      terms to look up
    + choice   -> spans            stream_intervals, partition_intervals
    + spans    -> ReplayIntervals  late_ranges                with late events
    everything -> ReplayPlan       considered.located, ways.united

Of several outlines (PERMUTE, alternatives), each is planned up to the choice of terms, and the
cheapest is looked up.  If a run disappears while it is read, planning restarts.
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
"""Cost of considering other outlines, as a fraction of the expected full replay."""
FURTHER = 0.3
"""The same if the best plan so far has intervals, by its expected cost."""
NEIGHBOURS_MAX = 64
"""Rows around an interval that are searched in its partition."""


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
    """Plan a pattern query over all events of a snapshot.  ``strategy``: ``replay`` the whole
    stream; ``none`` the coarse pattern map alone; ``all``, ``greedy`` or ``optimal`` choice of
    terms; ``auto``: ``optimal``, or ``replay`` if cheaper.  ``choose`` picks offers by number;
    ``gap``: events between intervals that are merged; with ``near`` only matches there matter and
    the plan always has intervals; without ``locate`` nothing is looked up and the plan is an
    estimate.
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


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000
