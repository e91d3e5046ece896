"""Dividing a pattern query into parts: by replay intervals, by time, or by partitions.

Purpose
    :func:`split_match` takes what :func:`~chronicle.query.replay.planning.plan_match` has found
    and makes parts of about the same weight, to be run in any process.

Layout
    =================================================  =====================================
    the plan, the clause                               parts
    =================================================  =====================================
    replay intervals                                   groups of intervals
    whole stream; WITHIN or a greatest length          ranges of time, where there are cuts
    whole stream; PARTITION BY                         groups of partitions
    anything else                                      one
    =================================================  =====================================

Guarantee
    The parts together find the matches of the whole, each once.  Between replay intervals there
    is no match, so a search arrives at each of them with nothing behind it; for cuts of time see
    :mod:`.cuts`.

Limits
    Finding cuts reads about :data:`PROBE_SHARE` of the stream at most, on one processor: where
    WITHIN is long, there are fewer parts than were asked for.  One interval is never divided,
    unless intervals leave so much that the whole stream is cut by time instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from ...store.snapshot import Snapshot
from ..match import CompiledMatch
from ..pattern.binding import MatchNumber
from ..replay.applicability import demands, not_applicable
from ..replay.replay_plan import ReplayPlan
from .cuts import find_cut, independent
from .intervals import interval_parts
from .parts import Cut, MatchPart, RangePart, SharePart
from .reach import MOST, Reach

__all__ = ["MatchSplit", "split_match"]

PROBE_SHARE = 0.125
PROBE_LEAST = 1 << 18
"""So many events are looked at however small the stream is."""
UNEVEN_SHARE = 0.5
"""From this share of the stream on, one long interval is better cut by time."""
SHARES_MAX = 32
"""Most groups of partitions: every one of them reads the keys of the whole stream."""
TRIES = 3


@dataclass(frozen=True)
class MatchSplit:
    """Parts of a query, and why they are what they are.

    Attributes
    ----------
    parts : tuple of MatchPart
        Empty: there is nothing to find.  One part that is None: the query as it is.
    reason : str
        For people.
    """

    parts: tuple[MatchPart | None, ...]
    reason: str


def split_match(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    plan: ReplayPlan,
    parts: Callable[[float], int],
    check: Callable[[], None] | None = None,
) -> MatchSplit:
    """Divide a pattern query.

    Parameters
    ----------
    snapshot : Snapshot
    compiled : CompiledMatch
    plan : ReplayPlan
        Of the two.
    parts : callable
        Parts to aim for, when a share of the stream (0 to 1) is to be read.
    check : callable, optional
        Called now and then; may raise.
    """
    numbered = _numbered(compiled)
    if numbered and not compiled.partition_by:
        if plan.spans is not None:
            return MatchSplit(interval_parts(plan, 1), "MATCH_NUMBER counts over the whole stream")
        return MatchSplit((None,), "MATCH_NUMBER counts over the whole stream")
    why = ""
    if plan.spans is not None:
        wanted = 1 if numbered else max(1, parts(plan.replayed))
        found = interval_parts(plan, wanted)
        intervals = len(plan.spans if plan.partitions is None else plan.partitions.inside)
        told = f"{intervals} replay intervals in {len(found)} groups"
        longest = int((plan.spans.ends - plan.spans.starts).max()) if intervals else 0
        if wanted > 1 and plan.partitions is None and longest > UNEVEN_SHARE * plan.total:
            ranges, why = _ranges(snapshot, compiled, parts(1.0), check)
            if len(ranges) > len(found):
                return MatchSplit(ranges, why)
        return MatchSplit(found, told)
    wanted = parts(1.0)
    if wanted <= 1:
        return MatchSplit((None,), "one part was asked for, or the stream is small")
    if numbered:
        why = "MATCH_NUMBER counts over a whole partition"
    else:
        ranges, why = _ranges(snapshot, compiled, wanted, check)
        if len(ranges) > 1:
            return MatchSplit(ranges, why)
    if compiled.partition_by:
        count = min(wanted, SHARES_MAX)
        shares = tuple(SharePart(share, count) for share in range(count))
        return MatchSplit(shares, f"{count} groups of partitions, because {why}")
    return MatchSplit((None,), f"one part, because {why}")


def _numbered(compiled: CompiledMatch) -> bool:
    bounds = [*compiled.measures, *compiled.definitions.values()]
    return any(isinstance(leaf, MatchNumber) for bound in bounds for leaf in bound.leaves)


def _ranges(
    snapshot: Snapshot, compiled: CompiledMatch, wanted: int, check: Callable[[], None] | None
) -> tuple[tuple[MatchPart, ...], str]:
    """Ranges of time, and what is to be said about them; none where that is not right."""
    # further keys of ORDER BY reorder the events of one time only, and those are not torn apart
    reason = not_applicable(replace(compiled, order_by=compiled.order_by[:1]))
    if reason:
        return (), reason
    if compiled.partition_by and demands(compiled).neighbours:
        return (), "^, $, PREV or NEXT of a partition may look at events far away"
    if not snapshot.count:
        return (), "the stream has no events"
    reach = Reach(snapshot, compiled)
    if not reach.bounded:
        return (), "the pattern has no WITHIN and no bound on its events"
    cuts: list[Cut] = []
    budget = max(float(PROBE_LEAST), PROBE_SHARE * snapshot.count)
    failed = 0
    for goal, _ in snapshot.ranges(wanted):
        if goal is None:
            continue
        tick = goal
        for _ in range(TRIES):
            # a part should be longer than what it reads twice
            room = reach.back(reach.back(tick))
            if tick > reach.last or room <= (cuts[-1].last if cuts else reach.first):
                break
            cut, looked = find_cut(snapshot, compiled, reach, tick, check)
            budget -= looked
            if cut is not None:
                cuts.append(cut)
                break
            failed += 1
            if budget < 0:
                break
            tick = reach.ahead(tick)
        if budget < 0:
            break
    if not cuts:
        if failed:
            return (), "no place was found in time that no match can cross"
        return (), "a match may reach over a large part of the stream"
    parts: list[MatchPart] = []
    alone = independent(compiled)
    bounds: list[Cut | None] = [None, *cuts, None]
    for low, high in pairwise(bounds):
        before = reach.first if low is None else reach.before(low.tick)
        stop = after = MOST
        if high is not None:
            stop = reach.ahead(high.tick - 1) if alone else high.last
            after = reach.after(max(stop, high.tick - 1))
        parts.append(RangePart(low, high, before, stop, after))
    carried = sum(len(cut.carried) for cut in cuts)
    told = f"{len(parts)} ranges of time"
    if alone:
        told += ", overlapping by what a match can reach"
    elif carried:
        told += f", {carried} rows carried over their cuts"
    return tuple(parts), told
