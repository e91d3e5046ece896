"""Ranges of time as parts: their cuts, and what they read beyond.

Finding cuts reads a share of the stream (``reach.Budget``) on one processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from ...store.snapshot import Snapshot
from ..pattern.compiled import CompiledMatch
from .cuts import find_cut, independent
from .expected import Work
from .index_parts import IndexPart
from .parts import Cut, MatchPart, RangePart
from .reach import MOST, Budget, Reach, reach_of

__all__ = ["between", "find_cuts", "weighted_ranges", "whole_ranges"]

TRIES = 3
Check = Callable[[], None] | None


def find_cuts(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    reach: Reach,
    goals: Iterable[int],
    bounds: tuple[int, int],
    budget: Budget,
    check: Check = None,
) -> tuple[list[Cut], int]:
    """Cuts near ascending ticks within ``bounds``, and at how many places there was none."""
    first, last = bounds
    cuts: list[Cut] = []
    failed = 0
    for goal in goals:
        tick = goal
        for _ in range(TRIES):
            # a part should be longer than its overlap
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
    """The parts between neighbouring cuts; ``last``: greatest tick that their matches can have."""
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
    """About ``wanted`` ranges of all time and a description; or none and the reason."""
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


def weighted_ranges(
    compiled: CompiledMatch, work: Work, wanted: int
) -> tuple[tuple[MatchPart, ...], str]:
    """About ``wanted`` ranges with balanced work, for independent matches, and a description."""
    stretches, reach = work.ranges(wanted), work.reach
    bounds = [stretches[0].low, *(stretch.high for stretch in stretches)]
    cuts = [None if tick is None else Cut(tick, last=tick - 1) for tick in bounds]
    parts: list[MatchPart] = []
    shared = 0
    for part, stretch in zip(between(cuts, compiled, reach), stretches, strict=True):
        shares = stretch.shares if compiled.clause.rows == "one" else 1
        shared += shares > 1
        parts += [IndexPart(part, i, shares) for i in range(shares)] if shares > 1 else [part]
    told = f"{len(stretches)} ranges of time of about equal events and matches"
    if shared:
        told += f", {shared} of them in shares of their matches"
    return tuple(parts), told + ", overlapping by what a match can reach"
