"""All patterns of a bank in one set of flat tables; equal structures stand there once.

Purpose
    Ten thousand patterns are few structures with many constants: ``A B+ C`` is one automaton
    whoever uses it.  :class:`Automata` keeps the edges, stars and bits of each structure behind
    each other, as the search of :mod:`chronicle.query.pattern.jumping` reads them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...query.pattern.compiled import CompiledMatch
from ...query.pattern.jumping import stars_of
from ...query.pattern.matcher import SKIPS

__all__ = ["Automata", "Tables"]

IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class Tables(NamedTuple):
    """Automaton ``a`` has positions ``place[a] .. place[a + 1]``, and edges from ``edge[a]`` on.

    Positions have ``first`` (one more of them), ``bit``, ``kind``, ``exits``, ``star_first``,
    ``star_last`` and ``member`` (those that SKIP TO means); edges ``target`` and ``flag``.  Per
    automaton: ``first_bits``, ``star_bits``, ``gap`` (bits of positions that ask nothing),
    ``skip``, ``alone`` (whether one event can be a match).
    """

    place: IntArray
    edge: IntArray
    first: IntArray
    bit: IntArray
    kind: IntArray
    exits: Words
    star_first: IntArray
    star_last: IntArray
    member: npt.NDArray[np.bool_]
    target: IntArray
    flag: IntArray
    first_bits: Words
    star_bits: Words
    gap: Words
    skip: IntArray
    alone: npt.NDArray[np.bool_]


class Automata:
    """Structures by number."""

    def __init__(self) -> None:
        self._number: dict[Any, int] = {}
        self._parts: list[tuple[Any, ...]] = []
        self.places_max = 1

    def number(self, compiled: CompiledMatch) -> int:
        """Number of the structure of a pattern that can share a bank."""
        automaton, plan = compiled.automaton, compiled.conditions
        clause_skip = compiled.clause.skip
        skip = SKIPS[clause_skip.mode if clause_skip else "past last"]
        chosen = compiled.variables.get(clause_skip.variable, frozenset()) if clause_skip else ()
        member = tuple(name in chosen for name in automaton.names)
        tested = 0
        for test in plan.tests.tests:
            tested |= test.bits
        key = (automaton.edges, tuple(plan.bit.tolist()), tested, skip, member)
        if key in self._number:
            return self._number[key]
        stars = stars_of(automaton, plan)
        first, target, flags = automaton.tables
        gap = first_bits = 0
        for p in range(1, len(automaton.names)):
            if not tested >> int(plan.bit[p]) & 1:
                gap |= 1 << int(plan.bit[p])
        for edge in automaton.edges[0]:
            if edge.target > 0:
                first_bits |= 1 << int(plan.bit[edge.target])
        alone = any(
            other.target < 0
            for edge in automaton.edges[0]
            for other in automaton.edges[edge.target]
        )
        self._number[key] = len(self._parts)
        self._parts.append(
            (first, plan.bit, stars, member, target, flags, first_bits, gap, skip, alone)
        )
        self.places_max = max(self.places_max, len(automaton.names))
        return len(self._parts) - 1

    def tables(self) -> Tables:
        """Everything behind each other."""
        parts = self._parts
        places = np.concatenate([[0], np.cumsum([len(part[1]) for part in parts])])
        edges = np.concatenate([[0], np.cumsum([len(part[4]) for part in parts])])
        ints, none = np.int64, np.zeros(0, np.int64)

        def joined(arrays: list[Any], kind: Any) -> Any:
            return np.concatenate([none.astype(kind), *arrays]).astype(kind)

        stars = [part[2] for part in parts]
        return Tables(
            places.astype(ints), edges.astype(ints), joined([part[0] for part in parts], ints),
            joined([part[1] for part in parts], ints), joined([s.kind for s in stars], ints),
            joined([s.exits for s in stars], np.uint64), joined([s.first for s in stars], ints),
            joined([s.last for s in stars], ints), joined([part[3] for part in parts], np.bool_),
            joined([part[4] for part in parts], ints), joined([part[5] for part in parts], ints),
            np.array([part[6] for part in parts], np.uint64),
            np.array([s.bits for s in stars], np.uint64),
            np.array([part[7] for part in parts], np.uint64),
            np.array([part[8] for part in parts], ints),
            np.array([part[9] for part in parts], np.bool_),
        )  # fmt: skip
