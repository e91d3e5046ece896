"""Divide a pattern query into parts of about the same weight, which together find each match once:

=================================================  =====================================
the plan, the clause                               parts
=================================================  =====================================
replay intervals                                   groups of intervals, long ones divided
whole stream; SKIP TILL ANY MATCH with WITHIN      time ranges of equal expected work
whole stream; WITHIN or a greatest length          time ranges between cuts
whole stream; PARTITION BY                         groups of partitions
anything else                                      one
=================================================  =====================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...store.snapshot import Snapshot
from ..pattern.compiled import CompiledMatch
from ..replay.replay_plan import ReplayPlan
from .expected import expected_work
from .intervals import interval_parts
from .long_intervals import divided
from .parts import MatchPart, SharePart
from .ranges import weighted_ranges, whole_ranges

__all__ = ["MatchSplit", "split_match"]

SHARES_MAX = 32
"""Most groups of partitions, because each reads the keys of the whole stream."""


@dataclass(frozen=True)
class MatchSplit:
    """Parts of a query, and the reason for EXPLAIN.  ``parts``: empty if there is nothing to find;
    a single None: the query as it is.
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
    """Divide a query; ``parts(share of the stream read)``: parts to aim for."""
    numbered = compiled.numbered
    if numbered and not compiled.partition_by:
        if plan.spans is not None:
            return MatchSplit(interval_parts(plan, 1), "MATCH_NUMBER counts over the whole stream")
        return MatchSplit((None,), "MATCH_NUMBER counts over the whole stream")
    why = ""
    if plan.spans is not None:
        wanted = 1 if numbered else max(1, parts(plan.replayed()))
        pieces = divided(snapshot, compiled, plan, wanted, check)
        found = interval_parts(plan, wanted, pieces)
        intervals = len(plan.spans if plan.partitions is None else plan.partitions.inside)
        told = f"{intervals} replay intervals in {len(found)} groups"
        if pieces:
            count = sum(map(len, pieces.values()))
            told = f"{count} ranges of time in {len(pieces)} long replay intervals"
            if intervals > len(pieces):
                told += f", {intervals - len(pieces)} others in {len(found) - count} groups"
        return MatchSplit(found, told)
    work = None if numbered else expected_work(snapshot, compiled, check)
    if work is not None and (wanted := parts(work.share)) > 1:
        return MatchSplit(*weighted_ranges(compiled, work, wanted))
    wanted = parts(1.0)
    if wanted <= 1:
        return MatchSplit((None,), "one part was asked for, or the stream is small")
    if numbered:
        why = "MATCH_NUMBER counts over a whole partition"
    else:
        ranges, why = whole_ranges(snapshot, compiled, wanted, check)
        if len(ranges) > 1:
            return MatchSplit(ranges, why)
    if compiled.partition_by:
        count = min(wanted, SHARES_MAX)
        shares = tuple(SharePart(share, count) for share in range(count))
        return MatchSplit(shares, f"{count} groups of partitions, because {why}")
    return MatchSplit((None,), f"one part, because {why}")
