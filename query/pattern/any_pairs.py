"""Finds the conditions between variables in DEFINE, and the positions where they can be evaluated.

A *slot* is a variable whose event other conditions read.  It has a single position, outside every
loop, and every path to the conditions that read it leads through that position.  ``keeps[p, s]``:
something after position ``p`` still reads slot ``s``::

    A B C D   DEFINE C AS x > A.x, D AS x = B.x        slots: A, B
    after A: A       after B: A, B       after C: B       after D: -

Conditions with aggregates, CLASSIFIER, offsets in FIRST and LAST, or a union variable are not
joined.  Patterns with ``^``, ``$`` or a repeated group are left to the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from .automaton import ACCEPT, Automaton

if TYPE_CHECKING:
    from .conditions import Across, ConditionPlan

__all__ = ["Asked", "Pairing", "Shape", "pairing"]

IntArray = npt.NDArray[np.int64]


class Asked(NamedTuple):
    """A conjunct at a position: number of its bytecode, slots that it reads, and its origin."""

    number: int
    place: int
    slots: tuple[int, ...]
    origin: Across


class Shape(NamedTuple):
    """The pattern in arrays.
    ``order``: topological.  Edges of position ``p`` are ``first[p] .. first[p + 1]``: to
    ``target``, with index of an ``absence`` or -1.  ``gap[p]``: index of the union of absences
    after ``p``, or -1.  ``ends[p]``: -1 if a match cannot end there, 0 if it can, else 1 plus the
    index of the absence that must hold.  Conditions of ``p`` are ``asks[p] .. asks[p + 1]``; those
    from ``later[p]`` on read the first event, slot ``origin`` (or -1), which is not in ``keeps``.
    Condition ``c`` reads the slots ``slots[reads[c] .. reads[c + 1]]``; ``keeps[p]`` marks the
    slots ``held[holds[p] .. holds[p + 1]]``.
    """

    order: IntArray
    first: IntArray
    target: IntArray
    absence: IntArray
    gap: IntArray
    ends: IntArray
    slot: IntArray
    keeps: npt.NDArray[np.bool_]
    asks: IntArray
    later: IntArray
    reads: IntArray
    slots: IntArray
    holds: IntArray
    held: IntArray
    origin: int


@dataclass(frozen=True)
class Pairing:
    """Conjuncts ``asked`` by position, and positions of slots.
    ``always``: pairs (p, q) of positions such that every match with ``p`` later has ``q``.
    ``shape``: None for the reason in ``obstacle``.  ``masks``: absences by index.  ``plain``: all
    matches have the same length, hence one labeling.
    """

    asked: tuple[Asked, ...]
    places: tuple[int, ...]
    always: frozenset[tuple[int, int]]
    shape: Shape | None
    obstacle: str
    masks: tuple[int, ...]
    plain: bool

    def describe(self, names: tuple[str, ...]) -> str:
        texts = []
        for one in {a.origin: a for a in self.asked}.values():
            others = " and ".join(names[self.places[s]] for s in one.slots)
            texts.append(f"{one.origin.variable} with {others}")
        bound = {names[p] for p in self.places} | {a.origin.variable for a in self.asked}
        free = [name for name in dict.fromkeys(names[1:]) if name not in bound]
        joined = f"joined: {', '.join(texts)}" if texts else "nothing is joined"
        return joined + (f"; {', '.join(free)} between their neighbours" if free else "")


def pairing(automaton: Automaton, plan: ConditionPlan) -> Pairing:
    follow = [[e.target for e in edges if e.target != ACCEPT] for edges in automaton.edges]
    order = _order(follow)
    obstacle = ""
    if any(edge.anchor for edges in automaton.edges for edge in edges):
        obstacle = "the pattern has ^ or $"
    elif order is None:
        obstacle = "a group of the pattern repeats"
    asked: list[Asked] = []
    slots: dict[int, int] = {}
    names = automaton.names
    for conjunct in plan.across:
        targets = [q for q, name in enumerate(names) if name == conjunct.variable]
        read = None if conjunct.reads is None else [_only(names, n) for n in conjunct.reads]
        joined = bool(read) and all(
            p is not None and p not in follow[p] and _before(follow, p, q)
            for p in read or ()
            for q in targets
        )
        if order is None or not joined:
            obstacle = obstacle or (
                f"the condition of {conjunct.variable} asks for more of the match than single "
                "events before"
            )
            continue
        found = tuple(slots.setdefault(int(p or 0), len(slots)) for p in read or ())
        asked += [Asked(conjunct.number, q, found, conjunct) for q in targets]
    begun = follow[0][0] if len(follow[0]) == 1 else -1
    origin = slots.get(begun, -1)
    asked.sort(key=lambda a: (a.place, origin in a.slots))
    if any(len({e.target for e in edges}) < len(edges) for edges in automaton.edges):
        obstacle = obstacle or "the pattern has ways that differ only in what must be absent"
    ends = [any(e.target == ACCEPT for e in edges) for edges in automaton.edges]
    always = frozenset(
        (p, a.place)
        for a in asked
        for p in (list(slots)[s] for s in a.slots)
        if _behind(follow, ends, p, a.place)
    )
    plain = all(len(f) <= 1 for f in follow) and not any(
        ends[p] and follow[p] for p in range(len(follow))
    )
    shape: Shape | None = None
    masks: tuple[int, ...] = ()
    if not obstacle and order is not None:
        shape, masks = _shape(automaton, order, asked, slots, origin)
    return Pairing(tuple(asked), tuple(slots), always, shape, obstacle, masks, plain)


def _only(names: tuple[str, ...], name: str) -> int | None:
    """The position of a variable; None when it has several."""
    return names.index(name) if names.count(name) == 1 else None


def _order(follow: list[list[int]]) -> list[int] | None:
    """A topological order of the positions; None when a group repeats."""
    before = [0] * len(follow)
    for p, targets in enumerate(follow):
        for q in set(targets) - {p}:
            before[q] += 1
    ready, found = [0], []
    while ready:
        p = ready.pop()
        found.append(p)
        for q in set(follow[p]) - {p}:
            before[q] -= 1
            if not before[q]:
                ready.append(q)
    return found[1:] if len(found) == len(follow) else None


def _reached(follow: list[list[int]], begin: int, without: int) -> set[int]:
    seen, waiting = {begin}, [begin]
    while waiting:
        for q in follow[waiting.pop()]:
            if q != without and q not in seen:
                seen.add(q)
                waiting.append(q)
    return seen


def _before(follow: list[list[int]], p: int, q: int) -> bool:
    return p != q and q not in _reached(follow, 0, p)


def _behind(follow: list[list[int]], ends: list[bool], p: int, q: int) -> bool:
    return not any(ends[r] for r in _reached(follow, p, q))


def _shape(
    automaton: Automaton, order: list[int], asked: list[Asked], slots: dict[int, int], origin: int
) -> tuple[Shape, tuple[int, ...]]:
    size = len(automaton.names)
    masks: dict[int, int] = {}
    first, target, absence = [0], [], []
    gap, ends = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    for p, edges in enumerate(automaton.edges):
        union = 0
        for edge in edges:
            number = masks.setdefault(edge.absent, len(masks)) if edge.absent else -1
            if edge.target == ACCEPT:
                ends[p] = number + 1
                continue
            union |= edge.absent
            target.append(edge.target)
            absence.append(number)
        first.append(len(target))
        if union:
            gap[p] = masks.setdefault(union, len(masks))
    keeps = np.zeros((size, len(slots)), np.bool_)
    for p in reversed(order):
        for q in target[first[p] : first[p + 1]]:
            if q != p:
                keeps[p] |= keeps[q]
            for a in asked:
                if a.place == q:
                    keeps[p, list(a.slots)] = True
    behind: list[set[int]] = [{p} for p in range(size)]
    for p in order:
        for q in target[first[p] : first[p + 1]]:
            behind[q] |= behind[p]
    for place, s in slots.items():  # events still to come are not bound
        keeps[[p for p in order if place not in behind[p]], s] = False
    slot = np.full(size, -1, np.int64)
    for place, s in slots.items():
        slot[place] = s
    if origin >= 0:
        keeps[:, origin] = False
        slot[slot == origin] = -1
    counts = np.bincount([a.place for a in asked], minlength=size) if asked else np.zeros(size)
    asks = _offsets(counts)
    first_asked = [a.place for a in asked if origin in a.slots]
    later = asks[1:] - np.bincount(first_asked, minlength=size).astype(np.int64)
    read = [s for a in asked for s in a.slots]
    return Shape(
        np.array(order, np.int64), np.array(first, np.int64), np.array(target, np.int64),
        np.array(absence, np.int64), gap, ends, slot, keeps, asks, later,
        _offsets(np.array([len(a.slots) for a in asked], np.int64)), np.array(read, np.int64),
        _offsets(keeps.sum(axis=1)), np.nonzero(keeps)[1].astype(np.int64),
        origin,
    ), tuple(masks)  # fmt: skip


def _offsets(sizes: npt.NDArray[np.generic]) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
