"""Kernels that join situations to matches, starting from the instant at which each becomes known.

That instant is one of few of a situation, its *triggers*: its end, or the time at which its
duration suffices.  Joining the other names to each trigger in order of instants, and keeping the
matches known exactly then, finds every match once, however the input is divided.

Situations are sorted by partition, name and time, so starts and ends ascend alike.  Relative to a
situation z, those of a name form contiguous classes, the thirteen relations in order, delimited by
two binary searches (for an end ``te`` the arrays store the tick before, ``until``)::

    BEFORE ...  MEETS | crosses z.ts | same start | DURING ... | crosses z.te | MET BY | AFTER
    te < z.ts        ^ first te >= z.ts                         first ts >= z.te ^

A set of relations is a range between these; each candidate in it is tested.  Open situations have
``until`` = OPEN; two of them have all relations that their starts leave possible, and match where
all of these are allowed.  Times are subtracted only where the difference fits.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel
from ...core.sorting import first_at_least
from .deriving import OPEN
from .network import ALL, BEGIN_TOGETHER, INTERSECTS, LEFT_FIRST, RIGHT_FIRST

_ALL = np.int64(ALL)
_INTERSECTS = np.int64(INTERSECTS)
_GROUP_LEFT = np.int64(LEFT_FIRST)
_GROUP_SAME = np.int64(BEGIN_TOGETHER)
_GROUP_RIGHT = np.int64(RIGHT_FIRST)
_BEFORE, _MEETS, _DURING, _MET_BY, _AFTER = (np.int64(1 << i) for i in (0, 1, 8, 11, 12))
_LEAST = np.int64(-(2**63))

ENOUGH, TOO_MANY_RESULTS, TOO_MANY_STEPS = 0, 1, 2
"""Status of ``join``."""


@kernel
def _near(values, low, high, hint, wanted):
    """As ``first_at_least``, by galloping search from a previous result."""
    if hint <= low or hint >= high:
        return first_at_least(values, low, high, wanted)
    step = 1
    if values[hint] < wanted:
        low = hint + 1
        while low + step < high and values[low + step] < wanted:
            low += step + 1
            step *= 2
        return first_at_least(values, low, min(high, low + step), wanted)
    high = hint
    while high - step > low and values[high - step] >= wanted:
        high -= step
        step *= 2
    return first_at_least(values, max(low, high - step), high, wanted)


@kernel
def _first_ending(until, low, high, hint, start):
    """First situation of a range that ends at or after ``start``."""
    return _near(until, low, high, hint, start - 1 if start > _LEAST else start)


@kernel
def _first_beginning(start, low, high, hint, until):
    """First situation of a range that begins after ``until``."""
    return high if until == OPEN else _near(start, low, high, hint, until + 1)


@kernel
def _relation(a_start, a_until, b_start, b_until):
    """The relation of a to b as a mask; if both are open, all that their starts leave."""
    one = np.int64(1)
    if a_until < b_start:
        return one << (1 if a_until == b_start - 1 else 0)
    if b_until < a_start:
        return one << (11 if b_until == a_start - 1 else 12)
    if a_until == OPEN and b_until == OPEN:
        if a_start < b_start:
            return _GROUP_LEFT
        return _GROUP_SAME if a_start == b_start else _GROUP_RIGHT
    shift = 2
    if a_start == b_start:
        shift = 5
    elif a_start > b_start:
        shift = 8
    if a_until < b_until:
        return one << shift
    return one << (shift + 1 if a_until == b_until else shift + 2)


@kernel
def _certain(a_start, a_until, b_start, b_until, allowed):
    """The instant from which a pair is in its set however the stream continues."""
    later = max(a_start, b_start)
    sooner = min(a_until, b_until)
    if sooner < later:
        return later
    group = _GROUP_LEFT
    if a_start == b_start:
        group = _GROUP_SAME
    elif a_start > b_start:
        group = _GROUP_RIGHT
    return later if group & ~allowed == 0 else sooner + 1  # of two open ones all are allowed


@kernel
def _certain_from(start, until, least, bounded):
    """The instant from which a situation's duration is certain to suffice."""
    return until + 1 if bounded else start + least


@kernel
def certain_instants(starts, untils, least, bounded, allowed, instants):
    """The instant of detection of each combination."""
    for i in range(starts.shape[0]):
        latest = _LEAST
        for p in range(starts.shape[1]):
            latest = max(latest, _certain_from(starts[i, p], untils[i, p], least[p], bounded[p]))
            for q in range(p):
                if allowed[p, q] != _ALL:
                    at = _certain(
                        starts[i, p], untils[i, p], starts[i, q], untils[i, q], allowed[p, q]
                    )
                    latest = max(latest, at)
        instants[i] = latest


@kernel
def find_triggers(
    fresh, name, group, start, until, least, bounded, by_end, early, since, limits, where, instant
):
    """Triggers of new and open situations from instant ``since`` to ``limits[g]``; returns their
    number.  ``by_end``: per name, whether its end can complete a match.
    """
    count = 0
    for k in range(start.shape[0]):
        if not fresh[k]:
            continue
        p = name[k]
        limit = limits[group[k]]
        counts = early and (bounded[p] or start[k] <= OPEN - least[p])
        certain = _LEAST
        if counts:
            certain = _certain_from(start[k], until[k], least[p], bounded[p])
            if since <= certain <= limit:
                where[count] = k
                instant[count] = certain
                count += 1
        if by_end[p] and until[k] != OPEN:
            end = until[k] + 1
            if since <= end <= limit and not (counts and end == certain):
                where[count] = k
                instant[count] = end
                count += 1
    return count


@kernel
def _range_of(allowed, low, high, first_end, first_start, start, z_start):
    """Range within ``low .. high`` where a set of relations can occur."""
    stop = high
    if allowed & _AFTER == 0:
        stop = first_start
        if allowed & _MET_BY:
            stop = min(high, first_start + 1)
        elif allowed & _GROUP_RIGHT == 0:
            stop = first_end  # at most three candidates remain
            while stop < first_start and (
                start[stop] < z_start or (start[stop] == z_start and allowed & _GROUP_SAME)
            ):
                stop += 1
            if allowed & (_INTERSECTS | _MEETS) == 0:
                stop = first_end
    if allowed & _BEFORE == 0:
        low = first_end
        if allowed & (_MEETS | _GROUP_LEFT) == 0:
            while low < stop and start[low] < z_start:
                low += 1
            if allowed & _GROUP_SAME == 0:
                if low < stop and start[low] == z_start:
                    low += 1
                if allowed & _DURING == 0:
                    low = max(low, first_start - 1)
                if allowed & _GROUP_RIGHT == 0:
                    low = max(low, first_start)
    return low, stop


@kernel
def find_lonely(
    fresh, name, group, start, until, offsets, count, closing, allowed, word, open_start, lonely
):
    """Mark new situations that can be in no match.  ``closing[p, q]``: a partner of name q must
    have begun before the one of p ended; all such are finished, or open (``word``, ``open_start``).
    """
    for k in range(start.shape[0]):
        if not fresh[k] or until[k] == OPEN:
            continue
        p, g = name[k], group[k]
        for q in range(count):
            if not closing[p, q]:
                continue
            related = False
            if word[g] >> np.uint64(q) & np.uint64(1) and open_start[g, q] <= until[k]:
                bits = _relation(start[k], until[k], open_start[g, q], OPEN)
                related = bits & allowed[p, q] != 0
            low, high = offsets[g * count + q], offsets[g * count + q + 1]
            if not related and low < high:
                first_end = _first_ending(until, low, high, low, start[k])
                first_start = _first_beginning(start, first_end, high, low, until[k])
                low, high = _range_of(
                    allowed[q, p], low, high, first_end, first_start, start, start[k]
                )
                while low < high and not related:
                    bits = _relation(start[k], until[k], start[low], until[low])
                    related = bits & allowed[p, q] != 0
                    low += 1
            if not related:
                lonely[k] = True
                break


@kernel
def _complete(
    chosen, count, start, until, instant, trigger, least, bounded, by_end, allowed, early
):
    """Whether a combination becomes known at this instant, and at no trigger of an earlier name."""
    certain = _LEAST
    for p in range(count):
        k = chosen[p]
        at = _certain_from(start[k], until[k], least[p], bounded[p] or not early)
        if at > instant:
            return False
        ends = by_end[p] and until[k] != OPEN and until[k] + 1 == instant
        if p < trigger and (at == instant or ends):
            return False
        certain = max(certain, at)
    if early:
        for p in range(count):
            for q in range(p + 1, count):
                if allowed[p, q] != _ALL:
                    at = _certain(
                        start[chosen[p]], until[chosen[p]], start[chosen[q]], until[chosen[q]],
                        allowed[p, q],
                    )  # fmt: skip
                    if at > instant:
                        return False
                    certain = max(certain, at)
    return certain == instant


@kernel
def join(
    where, instant, begin, name, group, start, until, offsets, count, orders, allowed, implied,
    least, bounded, by_end, window, early, enough, most, steps_max,
):  # fmt: skip
    """Find the matches of triggers (``where``, by ascending ``instant``) from number ``begin`` on.
    ``offsets[g * count + p]``: first situation of name p in partition g.  ``orders[p]``: join order
    for triggers of name p.  ``enough``: results after which to stop at the next instant.  Returns
    situations by name and instant, their number, the next trigger, and a status.
    """
    out = np.empty((1024, count + 1), np.int64)
    matches = 0
    chosen = np.empty(count, np.int64)
    place = np.empty(count, np.int64)
    # range of each name's situations, in the window and after each step
    lows = np.empty((count + 1, count), np.int64)
    highs = np.empty((count + 1, count), np.int64)
    hints = np.zeros((count, count, 2), np.int64)  # last search results, by pair of names
    at = begin
    while at < where.shape[0]:
        if matches >= enough and instant[at] != instant[at - 1]:
            break
        now = instant[at]
        first = where[at]
        trigger = name[first]
        g = group[first]
        oldest = _LEAST
        if window < OPEN and now >= _LEAST + window:
            oldest = now - window
        at += 1
        if start[first] < oldest:
            continue
        for p in range(count):
            low = offsets[g * count + p]
            high = offsets[g * count + p + 1]
            if oldest > _LEAST:
                low = first_at_least(start, low, high, oldest)
            if not early or bounded[p]:
                high = first_at_least(until, low, high, now)
            elif now >= _LEAST + least[p]:
                high = _first_beginning(start, low, high, low, now - least[p])
            else:
                high = low
            lows[count, p] = low
            highs[count, p] = high
        steps = 0
        step = 0
        k = first
        while True:
            # take situation k for the name of this step if the other names still have candidates
            p = orders[trigger, step]
            before = step - 1 if step else count
            fits = True
            for i in range(step):
                q = orders[trigger, i]
                if implied[p, q] == _ALL:
                    continue
                z = chosen[q]
                bits = _relation(start[k], until[k], start[z], until[z])
                if bits & implied[p, q] == 0 or (
                    allowed[p, q] != _ALL
                    and (
                        bits & ~allowed[p, q]
                        or (
                            early
                            and _certain(start[k], until[k], start[z], until[z], allowed[p, q])
                            > now
                        )
                    )
                ):
                    fits = False
                    if bits == _DURING:  # skip all others within z
                        place[step] = max(
                            place[step], first_at_least(until, k, highs[before, p], until[z])
                        )
                    break
            if fits:
                chosen[p] = k
                for i in range(step + 1, count):
                    q = orders[trigger, i]
                    low = lows[before, q]
                    high = highs[before, q]
                    if implied[q, p] != _ALL and low < high:
                        first_end = _first_ending(until, low, high, hints[q, p, 0], start[k])
                        first_start = _first_beginning(
                            start, first_end, high, hints[q, p, 1], until[k]
                        )
                        hints[q, p, 0] = first_end
                        hints[q, p, 1] = first_start
                        low, high = _range_of(
                            implied[q, p], low, high, first_end, first_start, start, start[k]
                        )
                    if low >= high:
                        fits = False
                        break
                    lows[step, q] = low
                    highs[step, q] = high
            if fits and step == count - 1:  # all names have a situation
                if _complete(
                    chosen,
                    count,
                    start,
                    until,
                    now,
                    trigger,
                    least,
                    bounded,
                    by_end,
                    allowed,
                    early,
                ):
                    if matches == out.shape[0]:
                        if matches >= most:
                            return out, matches, at, TOO_MANY_RESULTS
                        larger = np.empty((2 * matches, count + 1), np.int64)
                        for i in range(matches):
                            for j in range(count + 1):
                                larger[i, j] = out[i, j]
                        out = larger
                    for i in range(count):
                        out[matches, i] = chosen[i]
                    out[matches, count] = now
                    matches += 1
            elif fits:
                step += 1
                place[step] = lows[step - 1, orders[trigger, step]]
            while step and place[step] >= highs[step - 1, orders[trigger, step]]:
                step -= 1
            if step == 0:
                break
            k = place[step]
            place[step] += 1
            steps += 1
            if steps > steps_max:
                return out, matches, at, TOO_MANY_STEPS
    return out, matches, at, ENOUGH
