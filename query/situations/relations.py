"""Allen's thirteen interval relations, as signs of endpoint differences and as bit masks.

A relation of A to B is one combination of signs of the differences ``A.ts - B.ts``,
``A.ts - B.te``, ``A.te - B.ts`` and ``A.te - B.te``.  Relations are numbered by moving A from left
to right past B, so the converse of relation ``i`` is relation ``12 - i``::

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

from collections.abc import Iterable
from functools import cache
from itertools import combinations, product

__all__ = [
    "ALL",
    "BEGIN_TOGETHER",
    "DISJOINT",
    "INTERSECTS",
    "LEFT_FIRST",
    "NAMES",
    "PREFIX_GROUPS",
    "RELATIONS",
    "RIGHT_FIRST",
    "SIGNS",
    "compose",
    "converse",
    "describe",
    "differences",
    "needs_an_end",
    "relation_of",
    "relations_in",
    "union",
]

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
DISJOINT = ALL & ~INTERSECTS
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
    found = [[0] * len(NAMES) for _ in NAMES]
    stretches = list(combinations(range(6), 2))  # all orders of six endpoints, with ties
    for a, b, c in product(stretches, repeat=3):
        found[relation_of(a, b)][relation_of(b, c)] |= 1 << relation_of(a, c)
    return tuple(map(tuple, found))


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
