"""Constraint network of a pattern: implied relations, and bounds between endpoints.

The points of n names are ``n`` starts, ``n`` ends, and the instant of the match; ``within[u, v]``
is an upper bound of ``v - u`` in ticks, ``LIMIT`` for none, closed by shortest paths. No match is
lost. Path consistency does not decide Allen's algebra, so an unsatisfiable pattern can pass; it
then has no matches. ``within`` holds for complete matches. The sets from ``close`` must not decide
when a match is *detected*: a set that lost an impossible relation no longer contains the whole
group of relations that are possible while both are open.

Allen's thirteen interval relations are combinations of signs of endpoint differences.  A relation
of A to B is one combination of signs of the differences ``A.ts - B.ts``, ``A.ts - B.te``, ``A.te -
B.ts`` and ``A.te - B.te``.  Relations are numbered by moving A from left to right past B, so the
converse of relation ``i`` is relation ``12 - i``::

     0 BEFORE          A..   B..            7 STARTED BY      same start, A ends later
     1 MEETS           A..B..               8 DURING          A within B
     2 OVERLAPS        A starts first       9 FINISHES        same end, A starts later
     3 FINISHED BY     same end, A first   10 OVERLAPPED BY   B starts first
     4 CONTAINS        B within A          11 MET BY          B..A..
     5 STARTS          same start          12 AFTER           B..   A..
     6 EQUALS

The composition table is computed by enumerating all orders of endpoints.  ``INTERSECTS`` is the set
of the nine relations of intervals that share an instant.  (Two papers on such queries print the
meaning of FINISHED BY beside the name ``finishes``.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

NAMES = (
    "BEFORE", "MEETS", "OVERLAPS", "FINISHED BY", "CONTAINS", "STARTS", "EQUALS", "STARTED BY",
    "DURING", "FINISHES", "OVERLAPPED BY", "MET BY", "AFTER",
)  # fmt: skip
ALL = (1 << len(NAMES)) - 1


def _mask(*names: str) -> int:
    return sum(1 << NAMES.index(name) for name in names)


LEFT_FIRST = _mask("OVERLAPS", "FINISHED BY", "CONTAINS")
BEGIN_TOGETHER = _mask("STARTS", "EQUALS", "STARTED BY")
RIGHT_FIRST = _mask("DURING", "FINISHES", "OVERLAPPED BY")
PREFIX_GROUPS = (LEFT_FIRST, BEGIN_TOGETHER, RIGHT_FIRST)
"""Relations that remain possible once both have begun and neither has ended."""

INTERSECTS = LEFT_FIRST | BEGIN_TOGETHER | RIGHT_FIRST
RELATIONS: dict[str, int] = {
    **{name: 1 << i for i, name in enumerate(NAMES)},
    "INTERSECTS": INTERSECTS,
}

Stretch = tuple[int, int]


def signs(a: Stretch, b: Stretch) -> tuple[int, int, int, int]:
    """Signs of the four differences of endpoints of two intervals ``(ts, te)``."""
    first, second, third, fourth = ((p > q) - (p < q) for p, q in product(a, b))
    return first, second, third, fourth


_EXAMPLES: tuple[Stretch, ...] = (
    (0, 2), (0, 4), (2, 5), (3, 8), (3, 9), (4, 6), (4, 8), (4, 9), (5, 6), (5, 8), (6, 9),
    (8, 9), (9, 10),
)  # fmt: skip
_BESIDE: Stretch = (4, 8)
SIGNS = tuple(signs(example, _BESIDE) for example in _EXAMPLES)
_NUMBER = {found: number for number, found in enumerate(SIGNS)}


def relation_of(a: Stretch, b: Stretch) -> int:
    return _NUMBER[signs(a, b)]


def relations_in(mask: int) -> list[int]:
    return [i for i in range(len(NAMES)) if mask >> i & 1]


def converse(mask: int) -> int:
    """The set of relations of B to A, from that of A to B."""
    return sum(1 << (12 - i) for i in relations_in(mask))


def describe(mask: int) -> str:
    if mask == INTERSECTS:
        return "INTERSECTS"
    return " | ".join(NAMES[i] for i in relations_in(mask))


@cache
def _table() -> tuple[tuple[int, ...], ...]:
    table = [[0] * len(NAMES) for _ in NAMES]
    stretches = list(combinations(range(6), 2))  # all orders of six endpoints, with ties
    for a, b, c in product(stretches, repeat=3):
        table[relation_of(a, b)][relation_of(b, c)] |= 1 << relation_of(a, c)
    return tuple(map(tuple, table))


@cache
def compose(first: int, second: int) -> int:
    """Composition of sets: relations of A to C from those of A to B and of B to C."""
    table = _table()
    result = 0
    for i, j in product(relations_in(first), relations_in(second)):
        result |= table[i][j]
    return result


def differences(mask: int) -> tuple[tuple[int, int], ...]:
    """Least and greatest sign of each difference, over the relations of a set."""
    columns = zip(*(SIGNS[i] for i in relations_in(mask)), strict=True)
    return tuple((min(column), max(column)) for column in columns)


def needs_an_end(mask: int) -> bool:
    """Whether a set contains a prefix group partly, so that it may depend on an end."""
    return any(mask & group not in (0, group) for group in PREFIX_GROUPS)


def union(masks: Iterable[int]) -> int:
    result = 0
    for mask in masks:
        result |= mask
    return result


FAR = 1 << 63
"""No bound on a duration: more than any that can be written."""
LIMIT = np.int64(1 << 61)
"""No bound; the sum of two fits into 64 bits."""

Masks = tuple[tuple[int, ...], ...]
IntArray = npt.NDArray[np.int64]


class Unsatisfiable(Exception):
    """Nothing can satisfy the pattern."""


@dataclass(frozen=True)
class Durations:
    """Inclusive bounds in ticks, ``FAR`` for none; ``early``: emit on detection."""

    least: tuple[int, ...]
    most: tuple[int, ...]
    window: int = FAR
    early: bool = False


def close(masks: Masks) -> Masks:
    """Path consistency: remove the relations that some third name excludes from the sets between
    each two names, both ways.  Raises Unsatisfiable.
    """
    count = len(masks)
    network = [list(row) for row in masks]
    changed = True
    while changed:
        changed = False
        for k in range(count):
            for i in range(count):
                for j in range(i + 1, count):
                    if k in (i, j):
                        continue
                    composed = network[i][j] & compose(network[i][k], network[k][j])
                    if composed != network[i][j]:
                        if not composed:
                            raise Unsatisfiable
                        network[i][j], network[j][i] = composed, converse(composed)
                        changed = True
    return tuple(map(tuple, network))


def distances(masks: Masks, durations: Durations) -> IntArray:
    """Upper bounds of the differences of all points of a match; raises Unsatisfiable."""
    count = len(masks)
    begin, end, instant = 0, count, 2 * count
    within = np.full((2 * count + 1, 2 * count + 1), LIMIT, np.int64)
    np.fill_diagonal(within, 0)

    def at_most(u: int, v: int, ticks: int) -> None:
        within[u, v] = min(int(within[u, v]), max(-int(LIMIT), min(int(LIMIT), ticks)))

    for i in range(count):
        at_most(end + i, begin + i, -max(durations.least[i], 1))
        at_most(begin + i, end + i, durations.most[i])
        if not durations.early or durations.most[i] < FAR:
            at_most(instant, end + i, 0)
        at_most(instant, begin + i, -durations.least[i])
        at_most(begin + i, instant, durations.window)
    for i in range(count):
        for j in range(i + 1, count):
            points = ((begin + i, begin + j), (begin + i, end + j), (end + i, begin + j),
                      (end + i, end + j))  # fmt: skip
            for (p, q), (least, most) in zip(points, differences(masks[i][j]), strict=True):
                if most <= 0:
                    at_most(q, p, most)
                if least >= 0:
                    at_most(p, q, -least)
    within = _shortest(within)
    # the instant is no later than the last end
    latest = within[:, end:instant].max(axis=1)
    within[:, instant] = np.minimum(within[:, instant], latest)
    return _shortest(within)


def _shortest(within: IntArray) -> IntArray:
    for k in range(len(within)):
        around = np.minimum(within[:, k, None], LIMIT) + np.minimum(within[None, k, :], LIMIT)
        around = np.maximum(around, -LIMIT)
        np.minimum(within, np.where(around >= LIMIT // 2, LIMIT, around), out=within)
    if (np.diagonal(within) < 0).any():
        raise Unsatisfiable
    return within


def dead_relations(
    masks: Masks, closed: Masks, durations: Durations, pairs: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """Written relations that the rest of the pattern excludes: two names and a mask.
    INTERSECTS is exempt, because it names no particular relation.
    """
    dead_ones = []
    for i, j in pairs:
        if masks[i][j] == INTERSECTS:
            continue
        dead = masks[i][j] & ~closed[i][j]
        for relation in relations_in(closed[i][j]):
            single = [list(row) for row in closed]
            single[i][j], single[j][i] = 1 << relation, converse(1 << relation)
            try:
                distances(close(tuple(map(tuple, single))), durations)
            except Unsatisfiable:
                dead |= 1 << relation
        if dead:
            dead_ones.append((i, j, dead))
    return dead_ones


def unrestricted(count: int) -> list[list[int]]:
    return [[ALL] * count for _ in range(count)]
