"""Matches of situations: a search from the instant at which each becomes known.

Purpose
    A match is a function of its situations, and so is the instant at which it is completed or
    detected.  That instant is one of few of a situation: its end, or the time at which it is known
    to count.  These are the *triggers*.  Joining the other names around each trigger, in the order
    of instants, and keeping what becomes known at just this instant finds every match once,
    whatever is known already and however the input is cut.

Layout
    Situations lie sorted by partition, name and time; those of one name and partition are disjoint,
    so their starts and their ends ascend alike.  For one situation z the others of a name fall into
    contiguous classes, the thirteen relations in their order, and two searches tell where::

        BEFORE ...  MEETS | crosses z.ts | same start | DURING ... | crosses z.te | MET BY | AFTER
        te < z.ts        ^ first te >= z.ts                         first ts >= z.te ^

    Any set of relations is a range between these; within it each candidate is looked at.

Guarantee
    A situation that lasts still has the end OPEN, later than any time.  Of two such the relation is
    one of those that their starts leave, and they match where all of these are allowed.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...compiled import kernel
from .derive_kernels import OPEN
from .relations import ALL, BEGIN_TOGETHER, INTERSECTS, LEFT_FIRST, RIGHT_FIRST

__all__ = [
    "ENOUGH",
    "TOO_MANY_RESULTS",
    "TOO_MANY_STEPS",
    "certain_instants",
    "find_triggers",
    "join",
]

_ALL = np.int64(ALL)
_INTERSECTS = np.int64(INTERSECTS)
_GROUP_LEFT = np.int64(LEFT_FIRST)
_GROUP_SAME = np.int64(BEGIN_TOGETHER)
_GROUP_RIGHT = np.int64(RIGHT_FIRST)
_BEFORE, _MEETS, _DURING, _MET_BY, _AFTER = (np.int64(1 << i) for i in (0, 1, 8, 11, 12))

ENOUGH, TOO_MANY_RESULTS, TOO_MANY_STEPS = 0, 1, 2
"""How :func:`join` came to its end."""


@kernel
def _first_at_least(values, low, high, wanted):
    """First place in an ascending range whose value is at least ``wanted``."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _relation(a_start, a_end, b_start, b_end):
    """The relation of a to b as a mask; while both last, of all that their starts leave."""
    one = np.int64(1)
    if a_end <= b_start:
        return one << (0 if a_end < b_start else 1)
    if b_end <= a_start:
        return one << (12 if b_end < a_start else 11)
    if a_end == OPEN and b_end == OPEN:
        if a_start < b_start:
            return _GROUP_LEFT
        return _GROUP_SAME if a_start == b_start else _GROUP_RIGHT
    shift = 2
    if a_start == b_start:
        shift = 5
    elif a_start > b_start:
        shift = 8
    if a_end < b_end:
        return one << shift
    return one << (shift + 1 if a_end == b_end else shift + 2)


@kernel
def _certain(a_start, a_end, b_start, b_end, allowed):
    """The instant from which on a pair is in its set however the stream goes on."""
    later = max(a_start, b_start)
    sooner = min(a_end, b_end)
    if sooner <= later:
        return later
    group = _GROUP_LEFT
    if a_start == b_start:
        group = _GROUP_SAME
    elif a_start > b_start:
        group = _GROUP_RIGHT
    return later if group & ~allowed == 0 else sooner


@kernel
def _known(start, end, least, bounded):
    """The instant from which on a situation is known to count."""
    return end if bounded else start + least


@kernel
def certain_instants(starts, ends, least, bounded, allowed, instants):
    """When each combination was certain: the instant of its detection."""
    for i in range(starts.shape[0]):
        found = np.int64(-(2**63))
        for p in range(starts.shape[1]):
            found = max(found, _known(starts[i, p], ends[i, p], least[p], bounded[p]))
            for q in range(p):
                if allowed[p, q] != _ALL:
                    at = _certain(starts[i, p], ends[i, p], starts[i, q], ends[i, q], allowed[p, q])
                    found = max(found, at)
        instants[i] = found


@kernel
def find_triggers(
    fresh, name, group, start, end, least, bounded, by_end, early, since, until, where, instant
):
    """Triggers of the situations that are new or last; returns how many.

    ``by_end``: per name, whether its end can be the last thing to be known of a match.
    """
    count = 0
    for k in range(start.shape[0]):
        if not fresh[k]:
            continue
        p = name[k]
        limit = until[group[k]]
        known = OPEN
        if early:
            if bounded[p] or start[k] <= OPEN - least[p]:
                known = _known(start[k], end[k], least[p], bounded[p])
            if since < known <= limit and known < OPEN:
                where[count] = k
                instant[count] = known
                count += 1
        if by_end[p] and since < end[k] <= limit and end[k] != known and end[k] != OPEN:
            where[count] = k
            instant[count] = end[k]
            count += 1
    return count


@kernel
def _range_of(allowed, low, high, first_end, first_start):
    """Places between ``low`` and ``high`` that a set of relations can be at."""
    if allowed & _BEFORE == 0:
        low = first_end if allowed & ~(_MET_BY | _AFTER) else max(first_end, first_start)
    if allowed & _AFTER == 0:
        if allowed & (_INTERSECTS | _MET_BY):
            high = min(high, first_start + 1 if allowed & _MET_BY else first_start)
        elif allowed & _MEETS:
            high = min(high, first_end + 1)
        else:
            high = first_end
    return low, high


@kernel
def _hits(allowed, low, high, first_end, first_start, start, end, z_start, z_end):
    """How many of the situations of a range are in a set of relations; at most four are looked at.

    All others are BEFORE, AFTER or DURING, as their place says.
    """
    found = 0
    if allowed & _BEFORE:
        found += first_end - low
    if allowed & _AFTER:
        found += high - first_start
    if allowed & _DURING:
        found += max(0, first_start - first_end - 3)
    looked = -1
    for j in range(4):
        k = first_end + j if j < 2 else first_start - 3 + j
        if k > looked and first_end <= k < high and k <= first_start:
            looked = k
            bits = _relation(start[k], end[k], z_start, z_end)
            if bits & allowed and (bits & _AFTER == 0):
                found += 1
    return found


@kernel
def _complete(chosen, count, start, end, instant, trigger, least, bounded, by_end, allowed, early):
    """Whether a combination becomes known at an instant, and at no trigger of an earlier name."""
    known = np.int64(-(2**63))
    for p in range(count):
        k = chosen[p]
        at = end[k]
        if early:
            at = _known(start[k], end[k], least[p], bounded[p])
        if at > instant:
            return False
        if p < trigger and (at == instant or (by_end[p] and end[k] == instant)):
            return False
        known = max(known, at)
    if early:
        for p in range(count):
            for q in range(p + 1, count):
                if allowed[p, q] != _ALL:
                    at = _certain(
                        start[chosen[p]], end[chosen[p]], start[chosen[q]], end[chosen[q]],
                        allowed[p, q],
                    )  # fmt: skip
                    if at > instant:
                        return False
                    known = max(known, at)
    return known == instant


@kernel
def join(
    where, instant, begin, name, group, start, end, offsets, count, orders, allowed, implied,
    least, bounded, by_end, window, early, sizes, shares, alpha, enough, most, steps_max,
):  # fmt: skip
    """Find the matches of triggers from number ``begin`` on.

    Parameters
    ----------
    where, instant : int64 arrays
        Triggers in ascending order of instants: place of the situation, and instant.
    name, group, start, end : arrays
        The situations; ``offsets[g * count + p]``: where those of name p in partition g begin.
    orders : int64[count, count]
        Per name of a trigger: the names in the order in which they are joined, itself first.
    allowed, implied : int64[count, count]
        Sets of relations as written, and as they follow.
    sizes, shares : float64 arrays
        Averages of what was found, moved by ``alpha``: situations of each name in a window, and
        the share of them that is in the set of each pair.
    enough, most : int
        Results after which to stop before another instant, and results that are too many.
    steps_max : int
        Candidates that may be looked at for one trigger.

    Returns
    -------
    results : int64[n, count + 1]
        Places of the situations, by name, and the instant.
    n : int
    next : int
        Trigger to go on with.
    status : int
    """
    out = np.empty((1024, count + 1), np.int64)
    found = 0
    chosen = np.empty(count, np.int64)
    place = np.empty(count, np.int64)
    limit = np.empty(count, np.int64)
    at = begin
    while at < where.shape[0]:
        if found >= enough and instant[at] != instant[at - 1]:
            break
        now = instant[at]
        trigger = name[where[at]]
        g = group[where[at]]
        oldest = -OPEN
        if window < OPEN and now >= window - OPEN:
            oldest = now - window
        at += 1
        if start[where[at - 1]] < oldest:
            continue
        chosen[trigger] = where[at - 1]
        steps = 0
        step = 0
        entering = True
        while True:
            if entering and step == count - 1:  # all names have a situation
                if _complete(
                    chosen, count, start, end, now, trigger, least, bounded, by_end, allowed, early
                ):
                    if found == out.shape[0]:
                        if found >= most:
                            return out, found, at, TOO_MANY_RESULTS
                        larger = np.empty((2 * found, count + 1), np.int64)
                        for i in range(found):
                            for j in range(count + 1):
                                larger[i, j] = out[i, j]
                        out = larger
                    for p in range(count):
                        out[found, p] = chosen[p]
                    out[found, count] = now
                    found += 1
                entering = False
            if entering:  # where the situations of the next name can be
                step += 1
                p = orders[trigger, step]
                low = offsets[g * count + p]
                high = offsets[g * count + p + 1]
                if oldest > -OPEN:
                    low = _first_at_least(start, low, high, oldest)
                if not early or bounded[p]:
                    high = _first_at_least(end, low, high, now + 1)
                elif now >= least[p] - OPEN:
                    high = _first_at_least(start, low, high, now - least[p] + 1)
                else:
                    high = low
                size = high - low
                sizes[p] += alpha * (size - sizes[p])
                from_place = low
                to_place = high
                for i in range(step):
                    q = orders[trigger, i]
                    if implied[p, q] == _ALL:
                        continue
                    z = chosen[q]
                    first_end = _first_at_least(end, low, high, start[z])
                    first_start = _first_at_least(start, first_end, high, end[z])
                    a, b = _range_of(implied[p, q], low, high, first_end, first_start)
                    from_place = max(from_place, a)
                    to_place = min(to_place, b)
                    if allowed[p, q] != _ALL and size > 0:
                        hits = _hits(
                            allowed[p, q], low, high, first_end, first_start, start, end, start[z],
                            end[z],
                        )  # fmt: skip
                        share = alpha * (hits / size - shares[p, q])
                        shares[p, q] += share
                        shares[q, p] = shares[p, q]
                place[step] = from_place
                limit[step] = to_place
                entering = False
            if step == 0:
                break
            if place[step] >= limit[step]:
                step -= 1
                continue
            p = orders[trigger, step]
            k = place[step]
            place[step] += 1
            steps += 1
            if steps > steps_max:
                return out, found, at, TOO_MANY_STEPS
            fits = True
            for i in range(step):
                q = orders[trigger, i]
                if implied[p, q] == _ALL:
                    continue
                z = chosen[q]
                bits = _relation(start[k], end[k], start[z], end[z])
                if bits & implied[p, q] == 0 or (
                    allowed[p, q] != _ALL
                    and (
                        bits & ~allowed[p, q]
                        or (
                            early
                            and _certain(start[k], end[k], start[z], end[z], allowed[p, q]) > now
                        )
                    )
                ):
                    fits = False
                    if bits == _DURING:  # all that follow within z are the same
                        place[step] = max(place[step], _first_at_least(end, k, limit[step], end[z]))
                    break
            if fits:
                chosen[p] = k
                entering = True
        # the next trigger
    return out, found, at, ENOUGH
