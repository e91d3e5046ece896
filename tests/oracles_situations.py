"""Matches of situations by definition, in plain Python: what the operator is compared with.

Purpose
    :func:`runs` walks the events of a partition; :func:`matches` tries every combination of
    situations.  When a match is detected is found by trying, tick after tick, every way in which
    the situations that last could end.  Nothing here is shared with the operator but the names of
    relations.

Limits
    Time is an integer, and few ticks long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

INFINITE = 10**9

DEFINITIONS = {
    "BEFORE": lambda a, b, c, d: b < c,
    "MEETS": lambda a, b, c, d: b == c,
    "OVERLAPS": lambda a, b, c, d: a < c < b < d,
    "FINISHED BY": lambda a, b, c, d: a < c and b == d,
    "CONTAINS": lambda a, b, c, d: a < c and d < b,
    "STARTS": lambda a, b, c, d: a == c and b < d,
    "EQUALS": lambda a, b, c, d: a == c and b == d,
    "STARTED BY": lambda a, b, c, d: a == c and d < b,
    "DURING": lambda a, b, c, d: c < a and b < d,
    "FINISHES": lambda a, b, c, d: c < a and b == d,
    "OVERLAPPED BY": lambda a, b, c, d: c < a < d < b,
    "MET BY": lambda a, b, c, d: d == a,
    "AFTER": lambda a, b, c, d: d < a,
}


@dataclass(frozen=True)
class Situation:
    """A run: ``end`` is None while it lasts; numbers of its first and last row."""

    start: int
    end: int | None
    first: int
    last: int


@dataclass
class Pattern:
    """``constraints``: pairs of names and the set of relations; None for no bound."""

    names: Sequence[str]
    constraints: Sequence[tuple[str, str, frozenset[str]]]
    least: dict[str, int]
    most: dict[str, int | None]
    within: int | None = None
    gap: int | None = None


def runs(events: Sequence[tuple[int, bool | None]], gap: int | None, now: int) -> list[Situation]:
    """Runs of one name in one partition: events are (time, whether it holds)."""
    found: list[Situation] = []
    first: int | None = None
    for i, (time, holds) in enumerate(events):
        if first is not None and gap is not None and time - events[i - 1][0] > gap:
            found.append(Situation(events[first][0], events[i - 1][0] + gap, first, i - 1))
            first = None
        if holds and first is None:
            first = i
        elif not holds and first is not None:
            found.append(Situation(events[first][0], time, first, i - 1))
            first = None
    if first is not None:
        last = len(events) - 1
        end = None
        if gap is not None and events[last][0] + gap <= now:
            end = events[last][0] + gap
        found.append(Situation(events[first][0], end, first, last))
    return [s for s in found if s.end is None or s.end > s.start]


def holds(relations: frozenset[str], a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether a stretch is in one of the relations to another."""
    return any(DEFINITIONS[r](*a, *b) for r in relations)


def counts(pattern: Pattern, name: str, s: Situation, at: int) -> bool:
    """Whether a situation is known to count at a tick."""
    most = pattern.most[name]
    if s.end is not None and s.end <= at:
        length = s.end - s.start
        return pattern.least[name] <= length and (most is None or length <= most)
    return most is None and at - s.start >= pattern.least[name]


def sure(relations: frozenset[str], a: Situation, b: Situation, at: int) -> bool:
    """Whether a pair is in its relations however the stream goes on after a tick."""

    def ends(s: Situation) -> list[int]:
        known = s.end is not None and s.end <= at
        return [s.end] if known else [at + 1, at + 2, at + 3]  # type: ignore[list-item]

    return all(holds(relations, (a.start, x), (b.start, y)) for x, y in product(ends(a), ends(b)))


def detected(pattern: Pattern, chosen: dict[str, Situation], now: int) -> int | None:
    """The first tick up to now at which a combination is certain; None: it is not yet."""
    for at in range(max(s.start for s in chosen.values()), now + 1):
        if all(counts(pattern, name, s, at) for name, s in chosen.items()) and all(
            sure(relations, chosen[a], chosen[b], at) for a, b, relations in pattern.constraints
        ):
            return at
    return None


def completed(pattern: Pattern, chosen: dict[str, Situation]) -> int | None:
    """The last end of a combination that matches, where all are known."""
    ends = [s.end for s in chosen.values()]
    if None in ends:
        return None
    last = max(end for end in ends if end is not None)
    return last if detected(pattern, chosen, last) is not None else None


def matches(
    pattern: Pattern, situations: dict[str, list[Situation]], now: int, early: bool
) -> list[tuple[int, dict[str, Situation]]]:
    """Instant and situations of every match of a partition."""
    found = []
    for combination in product(*(situations[name] for name in pattern.names)):
        chosen = dict(zip(pattern.names, combination, strict=True))
        instant = detected(pattern, chosen, now) if early else completed(pattern, chosen)
        if instant is None or instant > now:
            continue
        if pattern.within is None or instant - min(s.start for s in combination) <= pattern.within:
            found.append((instant, chosen))
    return found
