"""Matches of situations by definition: what the operator is compared with.

Purpose
    :func:`runs` walks the events of a partition; :func:`matches` tries every combination of
    situations.  When a match is certain is found by trying, tick after tick, every way in which
    the situations that last could end.  Nothing here is shared with the operator but the names of
    relations.

    The loops are compiled, so that tens of thousands of random streams can be tried:
    :func:`all_matches` takes the partitions of a stream as arrays.

Limits
    Time is an integer, and few ticks long: every tick between a start and an end is looked at.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

kernel = numba.njit(nogil=True, error_model="numpy")
Ints = npt.NDArray[np.int64]
NEVER = np.int64(10**9)
"""Later than any tick: the end of what lasts."""

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


@kernel
def relation(a, b, c, d):
    """Which of DEFINITIONS holds between two stretches; a test tells that it does."""
    if b < c:
        return 0
    if b == c:
        return 1
    if a < c < b < d:
        return 2
    if a < c and b == d:
        return 3
    if a < c and d < b:
        return 4
    if a == c and b < d:
        return 5
    if a == c and b == d:
        return 6
    if a == c and d < b:
        return 7
    if c < a and b < d:
        return 8
    if c < a and b == d:
        return 9
    if c < a < d < b:
        return 10
    return 11 if d == a else 12


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

    def arrays(self) -> tuple[Ints, Ints, Ints, Ints, int]:
        """Pairs of names, the sets between them as masks, durations, and the window."""
        place = {name: i for i, name in enumerate(self.names)}
        pairs = np.array([(place[a], place[b]) for a, b, _ in self.constraints], np.int64)
        bits = {name: 1 << i for i, name in enumerate(DEFINITIONS)}
        masks = np.array([sum(bits[r] for r in some) for _, _, some in self.constraints], np.int64)
        least = np.array([self.least[name] for name in self.names], np.int64)
        most = np.array([_or(self.most[name], -1) for name in self.names], np.int64)
        return pairs.reshape(-1, 2), masks, least, most, _or(self.within, -1)


def _or(value: int | None, none: int) -> int:
    return none if value is None else value


# ------------------------------------------------------------------------------- by definition


@kernel
def _runs(time, holds, gap, now, found):
    """Runs of a name in one partition: start, end, first and last row; returns how many."""
    count = 0
    first = -1
    for i in range(time.shape[0] + 1):
        over = i == time.shape[0]
        if first >= 0:
            end = NEVER
            if gap >= 0 and (now if over else time[i] - 1) >= time[i - 1] + gap:
                end = time[i - 1] + gap
            elif not over and not holds[i]:
                end = time[i]
            if over or end < NEVER:
                if time[first] < end:
                    found[count, 0], found[count, 1] = time[first], end
                    found[count, 2], found[count, 3] = first, i - 1
                    count += 1
                first = -1
        if not over and holds[i] and first < 0:
            first = i
    return count


@kernel
def _counts(start, end, least, most, at):
    """Whether a situation is known to count at a tick."""
    if end <= at:
        return least <= end - start and (most < 0 or end - start <= most)
    return most < 0 and at - start >= least


@kernel
def _sure(mask, a, b, c, d, at):
    """Whether a pair is in its relations however the stream goes on after a tick."""
    for x in range(1, 4):
        for y in range(1, 4):
            if not mask >> relation(a, b if b <= at else at + x, c, d if d <= at else at + y) & 1:
                return False
    return True


@kernel
def _counts_from(start, end, least, most, now):
    """The first tick up to now at which a situation counts, for ever then."""
    found = NEVER
    for at in range(start, min(end, now) + 1):
        if _counts(start, end, least, most, at):
            found = min(found, at)
        elif found < NEVER:
            raise AssertionError("what has counted counts no longer")
    return found


@kernel
def _sure_from(mask, a, b, c, d, now):
    """The first tick up to now at which a pair is sure, for ever then."""
    found = NEVER
    for at in range(max(a, c), min(max(a, b, c, d), now) + 1):
        if _sure(mask, a, b, c, d, at):
            found = min(found, at)
        elif found < NEVER:
            raise AssertionError("what was sure is sure no longer")
    return found


@kernel
def _matches(runs, offsets, pairs, masks, least, most, within, early, now, out):
    """Every combination that matches: places of the situations, instant, when it was certain."""
    names, count = least.shape[0], 0
    total = offsets[names]
    counted = np.full(total, NEVER, np.int64)
    for p in range(names):
        if offsets[p] == offsets[p + 1]:
            return out, 0
        for i in range(offsets[p], offsets[p + 1]):
            counted[i] = _counts_from(runs[i, 0], runs[i, 1], least[p], most[p], now)
    sure = np.full((masks.shape[0], total, total), NEVER, np.int64)
    for c in range(masks.shape[0]):
        p, q = pairs[c]
        for i in range(offsets[p], offsets[p + 1]):
            for j in range(offsets[q], offsets[q + 1]):
                sure[c, i, j] = _sure_from(
                    masks[c], runs[i, 0], runs[i, 1], runs[j, 0], runs[j, 1], now
                )
    chosen = offsets[:names].copy()
    while True:
        certain, begin, end = -NEVER, NEVER, -NEVER
        for p in range(names):
            certain = max(certain, counted[chosen[p]])
            begin = min(begin, runs[chosen[p], 0])
            end = max(end, runs[chosen[p], 1])
        for c in range(masks.shape[0]):
            certain = max(certain, sure[c, chosen[pairs[c, 0]], chosen[pairs[c, 1]]])
        instant = certain if early else end
        if certain <= instant <= now and (within < 0 or instant - begin <= within):
            if count == out.shape[0]:
                out = np.concatenate((out, np.empty_like(out)))
            for p in range(names):
                out[count, p] = chosen[p]
            out[count, names] = instant
            out[count, names + 1] = certain
            count += 1
        p = names - 1
        while p >= 0:
            chosen[p] += 1
            if chosen[p] < offsets[p + 1]:
                break
            chosen[p] = offsets[p]
            p -= 1
        if p < 0:
            return out, count


@kernel
def _all_matches(
    time, holds, begin, pairs, masks, least, most, within, gap, early, now
):  # fmt: skip
    """Matches of all partitions; see :func:`all_matches`."""
    names, total = least.shape[0], 0
    found = np.empty((1024, 4 * names + 3), np.int64)
    for g in range(begin.shape[0] - 1):
        low, high = begin[g], begin[g + 1]
        runs = np.empty((names * (high - low + 1), 4), np.int64)
        offsets = np.zeros(names + 1, np.int64)
        for p in range(names):
            count = _runs(time[low:high], holds[p, low:high], gap, now, runs[offsets[p] :])
            offsets[p + 1] = offsets[p] + count
        out = np.empty((64, names + 2), np.int64)
        out, count = _matches(runs, offsets, pairs, masks, least, most, within, early, now, out)
        while total + count > found.shape[0]:
            found = np.concatenate((found, np.empty_like(found)))
        for i in range(count):
            found[total, 0] = g
            found[total, 1] = out[i, names]
            found[total, 2] = out[i, names + 1]
            for p in range(names):
                for j in range(4):
                    found[total, 3 + j * names + p] = runs[out[i, p], j]
            total += 1
    return found[:total]


# ------------------------------------------------------------------------------- asked


def all_matches(
    pattern: Pattern, time: Ints, holds: npt.NDArray[np.bool_], begin: Ints, early: bool, now: int
) -> Ints:
    """Matches of every partition of a stream.

    Parameters
    ----------
    time : int64[rows]
        Rows partition by partition, those of ``g`` at ``begin[g] .. begin[g + 1]``.
    holds : bool[names, rows]
    now : int
        The last tick of the stream.

    Returns
    -------
    int64[matches, 3 + 4 * names]
        Partition, instant, when it was certain, then per name the starts, ends (:data:`NEVER`
        where there is none), first and last rows within the partition.
    """
    pairs, masks, least, most, within = pattern.arrays()
    gap = _or(pattern.gap, -1)
    result: Ints = _all_matches(
        time, holds, begin, pairs, masks, least, most, within, gap, early, now
    )
    return result


def runs(events: Sequence[tuple[int, bool | None]], gap: int | None, now: int) -> list[Situation]:
    """Runs of one name in one partition: events are (time, whether it holds)."""
    time = np.array([time for time, _ in events], np.int64)
    holds = np.array([bool(holds) for _, holds in events], np.bool_)
    found = np.empty((len(events) + 1, 4), np.int64)
    count = _runs(time, holds, _or(gap, -1), now, found)
    return [
        Situation(start, None if end == NEVER else end, first, last)
        for start, end, first, last in found[:count].tolist()
    ]


def matches(
    pattern: Pattern, situations: dict[str, list[Situation]], now: int, early: bool
) -> list[tuple[int, int, dict[str, Situation]]]:
    """Instant, when it was certain, and situations of every match of a partition."""
    found = [s for name in pattern.names for s in situations[name]]
    rows = [(s.start, _or(s.end, int(NEVER)), s.first, s.last) for s in found]
    offsets = np.cumsum([0, *(len(situations[name]) for name in pattern.names)])
    table, names = np.array(rows, np.int64).reshape(-1, 4), len(pattern.names)
    out, count = _matches(
        table, offsets, *pattern.arrays(), early, now, np.empty((64, names + 2), np.int64)
    )
    return [
        (instant, certain, {n: found[i] for n, i in zip(pattern.names, places, strict=True)})
        for *places, instant, certain in out[:count].tolist()
    ]
