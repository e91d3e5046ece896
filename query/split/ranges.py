"""Ranges of time as parts: where they begin and end, and what they read beyond.

Purpose
    :func:`find_cuts` looks for a cut near every place where one is wanted, and :func:`between`
    makes the parts between cuts; of the whole stream (:func:`whole_ranges`) or of one long replay
    interval (:mod:`.long_intervals`).

Limits
    Finding cuts reads about :data:`PROBE_SHARE` of the stream at most, on one processor: where
    WITHIN is long, there are fewer parts than were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from ...store.snapshot import Snapshot
from ..pattern.compiled import CompiledMatch
from ..replay.applicability import demands, not_applicable
from .cuts import find_cut, independent
from .parts import Cut, RangePart
from .reach import MOST, Reach

__all__ = ["Budget", "between", "find_cuts", "reach_of", "whole_ranges"]

PROBE_SHARE = 0.125
PROBE_LEAST = 1 << 18
"""So many events are looked at however small the stream is."""
TRIES = 3
Check = Callable[[], None] | None


class Budget:
    """Events that may still be looked at."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.left = max(float(PROBE_LEAST), PROBE_SHARE * snapshot.count)


def reach_of(snapshot: Snapshot, compiled: CompiledMatch) -> Reach | str:
    """How far a match reaches; a text that says why not, where time must not be cut."""
    # further keys of ORDER BY reorder the events of one time only, and those are not torn apart
    reason = not_applicable(replace(compiled, order_by=compiled.order_by[:1]))
    if reason:
        return reason
    if compiled.partition_by and demands(compiled).neighbours:
        return "^, $, PREV or NEXT of a partition may look at events far away"
    if not snapshot.count:
        return "the stream has no events"
    reach = Reach(snapshot, compiled)
    if not reach.bounded:
        return "the pattern has no WITHIN and no bound on its events"
    return reach


def find_cuts(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    reach: Reach,
    goals: Iterable[int],
    bounds: tuple[int, int],
    budget: Budget,
    check: Check = None,
) -> tuple[list[Cut], int]:
    """Cuts near some ticks, and at how many places there was none.

    Parameters
    ----------
    goals : iterable of int
        Ticks, ascending.
    bounds : (int, int)
        Least and greatest tick of what is divided.
    budget : Budget
        Taken from.
    check : callable, optional
        Called now and then; may raise.
    """
    first, last = bounds
    cuts: list[Cut] = []
    failed = 0
    for goal in goals:
        tick = goal
        for _ in range(TRIES):
            # a part should be longer than what it reads twice
            room = reach.back(reach.back(tick))
            if tick > last or room <= (cuts[-1].last if cuts else first):
                break
            cut, looked = find_cut(snapshot, compiled, reach, tick, check)
            budget.left -= looked
            if cut is not None and cut.last <= last:
                cuts.append(cut)
                break
            failed += 1
            if budget.left < 0:
                break
            tick = reach.ahead(tick)
        if budget.left < 0:
            break
    return cuts, failed


def between(
    bounds: Sequence[Cut | None], compiled: CompiledMatch, reach: Reach, last: int = MOST
) -> list[RangePart]:
    """The parts between neighbouring cuts.

    Parameters
    ----------
    bounds : sequence of Cut or None
        Ascending; None at the ends of the stream.
    last : int
        Greatest tick that a match of these parts can have.
    """
    alone = independent(compiled)
    parts = []
    for low, high in pairwise(bounds):
        before = reach.first if low is None else reach.before(low.tick)
        stop = after = MOST
        if high is not None:
            stop = min(last, reach.ahead(high.tick - 1)) if alone else high.last
            after = reach.after(max(stop, high.tick - 1))
        parts.append(RangePart(low, high, before, stop, after))
    return parts


def whole_ranges(
    snapshot: Snapshot, compiled: CompiledMatch, wanted: int, check: Check = None
) -> tuple[tuple[RangePart, ...], str]:
    """Ranges of all time, and what is to be said about them; none where that is not right.

    Parameters
    ----------
    wanted : int
        Parts to aim for.
    check : callable, optional
        Called now and then; may raise.
    """
    reach = reach_of(snapshot, compiled)
    if isinstance(reach, str):
        return (), reach
    goals = [goal for goal, _ in snapshot.ranges(wanted) if goal is not None]
    ends = (reach.first, reach.last)
    cuts, failed = find_cuts(snapshot, compiled, reach, goals, ends, Budget(snapshot), check)
    if not cuts:
        if failed:
            return (), "no place was found in time that no match can cross"
        return (), "a match may reach over a large part of the stream"
    parts = between([None, *cuts, None], compiled, reach)
    carried = sum(len(cut.carried) for cut in cuts)
    told = f"{len(parts)} ranges of time"
    if independent(compiled):
        told += ", overlapping by what a match can reach"
    elif carried:
        told += f", {carried} rows carried over their cuts"
    return tuple(parts), told
