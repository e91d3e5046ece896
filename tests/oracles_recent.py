"""Recency joins by definition: all pairs, and all contiguous matches, tried one by one.

Purpose
    The trusted side of the tests of ``query/recent``.  It imports nothing of the project.  D6 to
    D11 are the definitions of Dindar, Fischer, Soner and Tatbul (DEBS 2011).

Layout
    An event is a tuple whose first two fields are ``ts`` and ``te``; what follows is its value.
    Patterns and conditions are those of :mod:`oracles_patterns`.
"""

from __future__ import annotations

from .oracles_patterns import labelings


def contiguous(rows, pattern, conditions, window=None):
    """Every contiguous match of one partition: (first row, last row, [(row, label)])."""
    found = []
    for first in range(len(rows)):
        for last in range(first, len(rows)):
            if window is not None and rows[last]["t"] - rows[first]["t"] > window:
                break
            chosen = tuple(range(first, last + 1))
            labeled = next(labelings(rows, pattern, chosen, conditions, "contiguous", window), None)
            if labeled is not None:
                found.append((first, last, labeled))
    return found


def maximal(found):
    """D11: of all matches that begin with one event the longest; by first event."""
    longest = {}
    for match in found:
        if match[0] not in longest or match[1] > longest[match[0]][1]:
            longest[match[0]] = match
    return [longest[first] for first in sorted(longest)]


def incremental(found):
    """D10: of all matches that end with one event the longest; by first event, then by last."""
    longest = {}
    for match in found:
        if match[1] not in longest or match[0] < longest[match[1]][0]:
            longest[match[1]] = match
    return sorted(longest.values(), key=lambda match: match[:2])


def before(one, other):
    """D6: one happened before another."""
    return one[1] < other[1] and one[0] < other[0]


def recent(archive, live, distance=None, condition=lambda one, other: True, last=None):
    """D8 and D9: for each live event the numbers of its archive events.

    Parameters
    ----------
    distance : int, optional
        Without it all that happened before.
    condition : callable
        Of a live and an archive event.
    last : int, optional
        Only so many, those with the greatest (ts, te); of equal ones those that come last.
    """
    found = []
    for one in live:
        mine = [
            number
            for number, other in enumerate(archive)
            if one[0] is not None
            and other[0] is not None
            and before(other, one)
            and (distance is None or one[1] - other[0] <= distance)
            and condition(one, other)
        ]
        if last is not None:
            mine.sort(key=lambda number: (archive[number][0], archive[number][1], number))
            mine = sorted(mine[len(mine) - min(last, len(mine)) :])
        found.append(mine)
    return found


def joined(archive, live, kind="inner", **options):
    """Rows of a join: (number in live, number in archive or None), in the order of the result.

    Pairs come by archive.ts, live.te, the number of the archive event, the number of the live one.
    Of a LEFT join the live events without a pair come last, as those of SEMI and ANTI come, in
    their own order.
    """
    partners = recent(archive, live, **options)
    if kind == "semi":
        return [(i, None) for i, mine in enumerate(partners) if mine]
    alone = [(i, None) for i, mine in enumerate(partners) if not mine]
    if kind == "anti":
        return alone
    pairs = [(i, j) for i, mine in enumerate(partners) for j in mine]
    pairs.sort(key=lambda pair: (archive[pair[1]][0], live[pair[0]][1], pair[1], pair[0]))
    return pairs + alone if kind == "left" else pairs
