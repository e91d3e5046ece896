"""Conditions between events in DEFINE that a diagram can evaluate, and the events that they read.

A *slot* is a variable whose event other conditions read.  It has a single position, outside every
loop, and every path to the conditions that read it leads through that position.  Lists of
continuations are distinguished by the slots that something later still reads::

    A B C D   DEFINE C AS x > A.x, D AS x = B.x        slots: A, B
    after A: A       after B: A, B       after C: B       after D: -

Conditions with aggregates, CLASSIFIER, offsets in FIRST and LAST, or a union variable are left to
the search.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .automaton import ACCEPT, Automaton
from .machine import H_FIRST_N, H_LAST_N, H_PATH, H_STRIDE, ROW_LAST

if TYPE_CHECKING:
    from .conditions import Across, ConditionPlan

IntArray = npt.NDArray[np.int64]


class PairCondition(NamedTuple):
    """A conjunct at a position: slots that it reads, and its origin."""

    place: int
    slots: tuple[int, ...]
    origin: Across


@dataclass(frozen=True)
class Pairing:
    """Conjuncts by position (``conditions``), positions of slots (``places``), and per position the
    slots that are read after it (``held``); ``obstacle``: why there can be no diagram.
    """

    conditions: tuple[PairCondition, ...]
    places: tuple[int, ...]
    held: tuple[tuple[int, ...], ...]
    obstacle: str

    def describe(self, names: tuple[str, ...]) -> str:
        texts = []
        for one in {a.origin: a for a in self.conditions}.values():
            others = " and ".join(names[self.places[s]] for s in one.slots)
            texts.append(f"{one.origin.variable} with {others}")
        bound = {names[p] for p in self.places} | {a.origin.variable for a in self.conditions}
        free = [name for name in dict.fromkeys(names[1:]) if name not in bound]
        joined = f"joined: {', '.join(texts)}" if texts else "nothing is joined"
        return joined + (f"; {', '.join(free)} between their neighbours" if free else "")


def pairing(automaton: Automaton, plan: ConditionPlan) -> Pairing:
    follow = [[e.target for e in edges if e.target != ACCEPT] for edges in automaton.edges]
    behind = [_reached(follow, p) for p in range(len(follow))]
    names = automaton.names
    conditions: list[PairCondition] = []
    slots: dict[int, int] = {}
    obstacle = ""
    for conjunct in plan.across:
        targets = [q for q, name in enumerate(names) if name == conjunct.variable]
        read = [_only(names, name) for name in conjunct.reads or ()]
        joined = bool(read) and all(
            p and p not in behind[p] and all(q not in _reached(follow, 0, p) for q in targets)
            for p in read
        )
        if not joined:
            obstacle = obstacle or (
                f"the condition of {conjunct.variable} asks for more of the match than single "
                "events before"
            )
            continue
        own = tuple(slots.setdefault(p, len(slots)) for p in read)
        conditions += [PairCondition(q, own, conjunct) for q in targets]
    conditions.sort(key=lambda a: a.place)
    held = [
        tuple(
            s
            for place, s in slots.items()
            if p in {place, *behind[place]}
            and any(a.place in behind[p] and s in a.slots for a in conditions)
        )
        for p in range(len(follow))
    ]
    return Pairing(tuple(conditions), tuple(slots), tuple(held), obstacle)


def _only(names: tuple[str, ...], name: str) -> int:
    """The position of a variable; 0 when it has several."""
    return names.index(name) if names.count(name) == 1 else 0


def _reached(follow: list[list[int]], begin: int, without: int = -1) -> set[int]:
    """Positions behind one, on paths that avoid another."""
    seen: set[int] = set()
    waiting = [begin]
    while waiting:
        fresh = set(follow[waiting.pop()]) - seen - {without}
        seen |= fresh
        waiting += fresh
    return seen


def trackers_of(plan: ConditionPlan, pairing: Pairing) -> tuple[IntArray, IntArray]:
    """Slots of the LAST and of the FIRST events that the image of a path tracks, or -1."""
    arrays, sets = plan.builder.arrays(), plan.builder.sets
    slots = {frozenset({plan.names[p]}): s for s, p in enumerate(pairing.places)}

    def of(name: str) -> IntArray:
        chosen = [(sets[i], steps) for i, steps in arrays[name].tolist()]
        trackers = [slots.get(c, -1) if c is not None and not s else -1 for c, s in chosen]
        return np.array(trackers, np.int64)

    return of("last_slot"), of("first_slot")


@kernel
def know(image, last, first):
    """Initialise a path on which slot ``s`` is the row at depth ``s``, and its trackers."""
    stride = image[H_STRIDE]
    at = image[H_PATH] + ROW_LAST * stride
    for i in range(image[H_LAST_N]):
        image[at + i * stride] = last[i]
    at += image[H_LAST_N] * stride
    for i in range(image[H_FIRST_N]):
        image[at + i * stride] = first[i]
