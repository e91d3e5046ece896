"""Conditions between events in DEFINE: the positions where they can be evaluated, and how.

A *slot* is a variable whose event other conditions read.  It has a single position, outside every
loop, and every path to the conditions that read it leads through that position.  Lists of
continuations are distinguished by the slots that something later still reads::

    A B C D   DEFINE C AS x > A.x, D AS x = B.x        slots: A, B
    after A: A       after B: A, B       after C: B       after D: -

Conditions with aggregates, CLASSIFIER, offsets in FIRST and LAST, or a union variable are left to
the search, and so are patterns with ``^``, ``$`` or a repeated group.

A condition that reads one slot and compares two columns is evaluated without bytecode.  Encoding::

    kind     COMPARE   comparison of two columns of the image
             PROGRAM   bytecode
    number   of its bytecode
    op, x, y, turned, negated    COMPARE: operator; columns of both rows; whether y is the left
                                 operand; whether the result is negated

For an equality of two columns the rows of the later variable are sorted by key: the *partners* of
row ``x`` are ``partner[ranges[x, 0] .. ranges[x, 1]]``, rows of any time and partition in order.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from . import machine as m
from .automaton import ACCEPT, Automaton
from .machine import (
    EQ_F,
    H_COLUMN,
    H_FIRST_N,
    H_LAST_N,
    H_PATH,
    H_STRIDE,
    LE_F,
    LE_I,
    LT_F,
    LT_I,
    ROW_LAST,
    holds,
    value_at,
)
from .search import LATEST, Rows, Task

if TYPE_CHECKING:
    from .buffers import PreparedRows
    from .conditions import Across, ConditionPlan

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
    index of the absence that must hold.  ``slot[p]``: slot of ``p``, or -1.  Conditions of ``p``
    are ``asks[p] .. asks[p + 1]``; condition ``c`` reads the slots ``slots[reads[c] .. reads[c +
    1]]``.  Slots ``held[holds[p] .. holds[p + 1]]`` are read after ``p``, besides that of the first
    event, ``origin`` (or -1), which each first event's lists have in common.
    """

    order: IntArray
    first: IntArray
    target: IntArray
    absence: IntArray
    gap: IntArray
    ends: IntArray
    slot: IntArray
    asks: IntArray
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
    queries: list[Asked] = []
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
        read_slots = tuple(slots.setdefault(int(p or 0), len(slots)) for p in read or ())
        queries += [Asked(conjunct.number, q, read_slots, conjunct) for q in targets]
    begun = follow[0][0] if len(follow[0]) == 1 else -1
    origin = slots.get(begun, -1)
    queries.sort(key=lambda a: a.place)
    if any(len({e.target for e in edges}) < len(edges) for edges in automaton.edges):
        obstacle = obstacle or "the pattern has ways that differ only in what must be absent"
    ends = [any(e.target == ACCEPT for e in edges) for edges in automaton.edges]
    places = tuple(slots)
    always = frozenset(
        (places[s], one.place)
        for one in queries
        for s in one.slots
        if not any(ends[p] for p in _reached(follow, places[s], one.place))
    )
    plain = all(len(f) <= 1 for f in follow) and not any(
        ends[p] and follow[p] for p in range(len(follow))
    )
    shape: Shape | None = None
    masks: tuple[int, ...] = ()
    if not obstacle and order is not None:
        shape, masks = _shape(automaton, order, queries, slots, origin)
    return Pairing(tuple(queries), places, always, shape, obstacle, masks, plain)


def _only(names: tuple[str, ...], name: str) -> int | None:
    """The position of a variable; None when it has several."""
    return names.index(name) if names.count(name) == 1 else None


def _order(follow: list[list[int]]) -> list[int] | None:
    """A topological order of the positions; None when a group repeats."""
    before = [0] * len(follow)
    for p, targets in enumerate(follow):
        for q in set(targets) - {p}:
            before[q] += 1
    ready, order = [0], []
    while ready:
        p = ready.pop()
        order.append(p)
        for q in set(follow[p]) - {p}:
            before[q] -= 1
            if not before[q]:
                ready.append(q)
    return order[1:] if len(order) == len(follow) else None


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
    if origin >= 0:
        keeps[:, origin] = False
    slot = np.full(size, -1, np.int64)
    for place, s in slots.items():
        if keeps[place, s]:
            slot[place] = s
    counts = np.bincount([a.place for a in asked], minlength=size) if asked else np.zeros(size)
    read = [s for a in asked for s in a.slots]
    return Shape(
        np.array(order, np.int64), np.array(first, np.int64), np.array(target, np.int64),
        np.array(absence, np.int64), gap, ends, slot, _offsets(counts),
        _offsets(np.array([len(a.slots) for a in asked], np.int64)), np.array(read, np.int64),
        _offsets(keeps.sum(axis=1)), np.nonzero(keeps)[1].astype(np.int64),
        origin,
    ), tuple(masks)  # fmt: skip


def _offsets(sizes: npt.NDArray[np.generic]) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


COMPARE, PROGRAM = range(2)
KIND, NUMBER, OP, X_COLUMN, Y_COLUMN, TURNED, NEGATED = range(7)
_COMPARED = {m.LT_F: "f", m.LE_F: "f", m.EQ_F: "f", m.LT_I: "i", m.LE_I: "i", m.EQ_I: "i"}


def specs_of(plan: ConditionPlan, pairing: Pairing) -> IntArray:
    """The encoding of each condition."""
    arrays = plan.builder.arrays()
    specs = np.zeros((len(pairing.asked), 7), np.int64)
    for spec, one in zip(specs, pairing.asked, strict=True):
        spec[KIND], spec[NUMBER] = PROGRAM, one.number
        begin, end = arrays["begin"][one.number : one.number + 2]
        code = arrays["code"][begin:end].tolist()
        negated = code[-1][0] == m.NOT
        code = code[:-1] if negated else code
        if len(code) != 3 or len(one.slots) != 1 or code[2][0] not in _COMPARED or code[2][2]:
            continue
        load = m.LOAD_F if _COMPARED[code[2][0]] == "f" else m.LOAD_I
        (a, left, where, shift), (b, right, other, moved) = code[:2]
        if a != load or b != load or shift or moved or (where < 0) == (other < 0):
            continue
        turned = where < 0
        x, y = (right, left) if turned else (left, right)
        spec[:] = (COMPARE, one.number, code[2][0], x, y, turned, negated)
    return specs


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


@kernel
def _compare(op, a_i, a_f, b_i, b_f):
    if op == LT_F:
        return a_f < b_f or (b_f != b_f and a_f == a_f)
    if op == LE_F:
        return a_f <= b_f or b_f != b_f
    if op == EQ_F:
        return a_f == b_f or (a_f != a_f and b_f != b_f)
    if op == LT_I:
        return a_i < b_i
    if op == LE_I:
        return a_i <= b_i
    return a_i == b_i


@kernel
def filter_rows(spec, image, floats, depth, place, x, rows, count, begin, end):
    """Keep those of the first ``count`` rows for which a condition holds; returns how many, or -1
    less the row where it cannot be computed.  ``x``: the other row of COMPARE.
    """
    passed = np.int64(0)
    if spec[KIND] == PROGRAM:
        for j in range(count):
            y = rows[j]
            truth = holds(
                image, floats, spec[NUMBER], np.int64(0), depth, place, y, begin, end, np.int64(0),
                np.bool_(True),
            )  # fmt: skip
            if truth < 0:
                return -1 - y
            rows[passed] = y
            passed += truth
        return passed
    op = spec[OP]
    turned = spec[TURNED] != 0
    negated = spec[NEGATED] != 0
    x_i, x_f, x_null = value_at(image, floats, spec[X_COLUMN], x)
    for j in range(count):
        y = rows[j]
        y_i, y_f, y_null = value_at(image, floats, spec[Y_COLUMN], y)
        if max(x_null, y_null) == 2:
            return -1 - y
        if turned:
            truth = _compare(op, y_i, y_f, x_i, x_f)
        else:
            truth = _compare(op, x_i, x_f, y_i, y_f)
        rows[passed] = y
        passed += np.int64(truth != negated and x_null == 0 and y_null == 0)
    return passed


def is_equality(spec: IntArray) -> bool:
    return bool(spec[KIND] == COMPARE and spec[OP] in (m.EQ_F, m.EQ_I) and not spec[NEGATED])


def partners_of(
    spec: IntArray, image: IntArray, left: IntArray, right: IntArray
) -> tuple[IntArray, IntArray]:
    """Of an equality: each ``left`` row's range of partners, and the ``right`` rows by key."""
    is_float = bool(spec[OP] == m.EQ_F)
    own, there = _column(image, int(spec[X_COLUMN]), left, is_float)
    other, valid = _column(image, int(spec[Y_COLUMN]), right, is_float)
    partner = right[valid]
    order = np.argsort(other[valid], kind="stable")
    keys = other[valid][order]  # NaN sorts last, and equals itself
    ranges = np.stack([np.searchsorted(keys, own, side=side) for side in ("left", "right")], axis=1)
    ranges[~there] = 0
    return ranges, partner[order]


def clear_without_partner(
    pairing: Pairing, specs: IntArray, prepared: PreparedRows, rows: Rows, task: Task
) -> None:
    """Clear bits of rows without a partner in an equality, before a search; a row stays while its
    partner may arrive.
    """
    words, time, count = prepared.words, rows.time, len(prepared.words)
    sizes = rows.end - rows.begin
    begin, end = np.repeat(rows.begin, sizes), np.repeat(rows.end, sizes)
    horizon = np.full(count, LATEST)
    if task.window >= 0:
        horizon = np.where(time > LATEST - task.window, LATEST, time + task.window)
    usable = np.maximum(rows.end - task.lookahead, rows.begin)
    latest = np.where(usable < rows.end, time[np.minimum(usable, count - 1)], task.now)
    complete = task.final | (horizon < np.repeat(latest, sizes))
    for one, spec in zip(pairing.asked, specs, strict=True):
        if not is_equality(spec):
            continue
        p, q = pairing.places[one.slots[0]], one.place
        bits = np.uint64(1 << (p - 1)), np.uint64(1 << (q - 1))
        left, right = (np.flatnonzero(words & bit) for bit in bits)
        own, other = _keys_and_rows(spec, prepared.image, left, right, count)
        if (p, q) in pairing.always:
            after = np.append(np.sort(other), -1)[np.searchsorted(np.sort(other), own, "right")]
            partnered = (after // count == own // count) & (after % count < end[left])
            partnered &= time[after % count] <= horizon[left]
            words[left[~partnered & complete[left]]] &= ~bits[0]
        before = np.append(-1, np.sort(own))[np.searchsorted(np.sort(own), other)]
        partnered = (before // count == other // count) & (before % count >= begin[right])
        partnered &= time[right] <= horizon[before % count]
        words[right[~partnered]] &= ~bits[1]


def _keys_and_rows(
    spec: IntArray, image: IntArray, left: IntArray, right: IntArray, count: int
) -> tuple[IntArray, IntArray]:
    """Key times ``count`` plus row of the rows of an equality; null equals nothing."""
    is_float = bool(spec[OP] == m.EQ_F)
    own, there = _column(image, int(spec[X_COLUMN]), left, is_float)
    other, valid = _column(image, int(spec[Y_COLUMN]), right, is_float)
    keys = np.unique(np.concatenate([own, other]), return_inverse=True)[1]
    lefts = np.where(there, keys[: len(left)], -2) * count + left
    return lefts, np.where(valid, keys[len(left) :], -3) * count + right


def _column(
    image: IntArray, column: int, rows: IntArray, is_float: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Values of a column of the image, and where they are not null."""
    at = int(image[H_COLUMN]) + 3 * column
    values = (image.view(np.float64) if is_float else image)[int(image[at]) + rows]
    bits = int(image[at + 1])
    if bits < 0:
        return values, np.ones(len(rows), np.bool_)
    return values, (image[bits + (rows >> 6)] >> (rows & 63)) & 1 == 1
