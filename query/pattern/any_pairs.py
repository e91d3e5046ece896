"""Finds the conditions between variables in DEFINE, and the positions where they can be evaluated.

A *slot* is a variable whose event other conditions read.  It has a single position, outside every
loop, and every path to the conditions that read it leads through that position.  ``keeps[p, s]``:
something after position ``p`` still reads slot ``s``::

    A B C D   DEFINE C AS x > A.x, D AS x = B.x        slots: A, B
    after A: A       after B: A, B       after C: B       after D: -

Conditions with aggregates, CLASSIFIER, offsets in FIRST and LAST, or a union variable are not
joined.  Patterns with ``^``, ``$`` or a repeated group are left to the search.

Kernels join rows: for each condition between two variables, the pairs that satisfy it.  ``join``
tests each pair in a window once; ``narrow`` clears rows without partners.  A pair is stored if and
only if ``machine.holds`` is true for it.  Partners of row ``x`` are ``partner[first[x] .. first[x +
1]]``, later rows in order.  Encoding of a condition::

    kind     EQUAL     lookup by the keys of both sides
             COMPARE   comparison of two columns of the image
             PROGRAM   bytecode
    number   of its bytecode
    op, x, y, turned, negated    COMPARE: operator; columns of both rows; whether y is the left
                                 operand; whether the result is negated

``Asking`` evaluates a condition between two variables in parts, one for each thread.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel, trailing_zeros
from . import machine
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
    ROW_ROW,
    holds,
    value_at,
)
from .search import Rows, Task, horizon_of

if TYPE_CHECKING:
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


EQUAL, COMPARE, PROGRAM = range(3)
KIND, NUMBER, OP, X_COLUMN, Y_COLUMN, TURNED, NEGATED = range(7)
FAILED = -1
"""A condition cannot be computed."""
NEXT, USED, TESTED, LOW = range(4)


class Buffer(NamedTuple):
    """What conditions read: the image as integers and as floats, and the ends of the partitions."""

    image: IntArray
    floats: npt.NDArray[np.float64]
    offsets: IntArray


@kernel
def count_by_place(words, count):
    """Count the rows of each position; bit 0 is position 1."""
    one = np.uint64(1)
    for r in range(words.shape[0]):
        rest = words[r]
        while rest:
            count[trailing_zeros(rest) + 1] += 1
            rest &= rest - one


@kernel
def rows_by_place(words, place, row):
    """Rows of bit ``i`` as ``row[place[i + 1] .. place[i + 2]]`` (bit 0 is position 1); False when
    ``row`` is too small.
    """
    place[:] = 0
    one = np.uint64(1)
    for r in range(words.shape[0]):
        rest = words[r]
        while rest:
            place[trailing_zeros(rest) + 2] += 1
            rest &= rest - one
    for i in range(1, place.shape[0]):
        place[i] += place[i - 1]
    if place[-1] > row.shape[0]:
        return False
    at = place[1:].copy()
    for r in range(words.shape[0]):
        rest = words[r]
        while rest:
            i = trailing_zeros(rest)
            row[at[i]] = r
            at[i] += 1
            rest &= rest - one
    return True


@kernel
def first_of_rows(rows, counts, begun, first):
    """Fill ``first`` for all rows from the pair counts of some; first pair: ``begun``."""
    at = 0
    for i in range(rows.shape[0]):
        first[at : rows[i] + 1] = begun
        at = rows[i] + 1
        begun += counts[i]
    first[at:] = begun


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
def compare(op, image, floats, left, x, right, y):
    """Compare two values: 1 or 0, -2 where one is null, -1 when not computable."""
    a_i, a_f, a_null = value_at(image, floats, left, x)
    b_i, b_f, b_null = value_at(image, floats, right, y)
    if a_null or b_null:
        return -1 if max(a_null, b_null) == 2 else -2
    if op == LT_F:
        truth = a_f < b_f or (b_f != b_f and a_f == a_f)
    elif op == LE_F:
        truth = a_f <= b_f or b_f != b_f
    elif op == EQ_F:
        truth = a_f == b_f or (a_f != a_f and b_f != b_f)
    elif op == LT_I:
        truth = a_i < b_i
    elif op == LE_I:
        truth = a_i <= b_i
    else:
        truth = a_i == b_i
    return np.int64(truth)


@kernel
def ask(spec, image, floats, depth, place, x, y, begin, end):
    """Whether a condition holds for row ``y``: 1, 0, or ``FAILED``; ``x``: its only other row."""
    if spec[KIND] != PROGRAM:
        if spec[TURNED]:
            truth = compare(spec[OP], image, floats, spec[Y_COLUMN], y, spec[X_COLUMN], x)
        else:
            truth = compare(spec[OP], image, floats, spec[X_COLUMN], x, spec[Y_COLUMN], y)
        if truth == -1:
            return FAILED
        if truth < 0:
            return 0
        return 1 - truth if spec[NEGATED] else truth
    truth = holds(
        image, floats, spec[NUMBER], np.int64(0), depth, place, y, begin, end, np.int64(0),
        np.bool_(True),
    )  # fmt: skip
    return FAILED if truth < 0 else truth


@kernel
def first_behind(rows, low, row):
    """Binary search in ascending rows, from ``low`` on: first entry after ``row``."""
    high = rows.shape[0]
    while low < high:
        middle = (low + high) // 2
        if rows[middle] > row:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def first_key(keys, key):
    """Binary search in ascending keys: first entry that is not below ``key``."""
    low = np.int64(0)
    high = keys.shape[0]
    while low < high:
        middle = (low + high) // 2
        if keys[middle] >= key:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def join(spec, asking, slot, depth, place, left, groups, right, key, keys, keyed, time, task,
         budget, progress, counts, partner):  # fmt: skip
    """Continue joining ``left`` (in ``groups``) and ``right``; 1: done, 0: out of room or budget,
    or FAILED.  EQUAL: ``key`` per entry of ``left`` or negative; sorted ``keys`` of ``right`` and
    their rows ``keyed``.  ``progress``: next entry of ``left``, pairs, tests, first entry of
    ``right`` to try.
    """
    image, floats, offsets = asking
    image, floats = machine.borrowed(image), machine.borrowed(floats)
    row_of = image[H_PATH] + ROW_ROW * image[H_STRIDE]
    used = progress[USED]
    low = progress[LOW]
    tested = np.int64(0)
    for i in range(progress[NEXT], left.shape[0]):
        if tested > budget:
            progress[NEXT] = i
            progress[USED] = used
            progress[LOW] = low
            progress[TESTED] += tested
            return 0
        x = np.int64(left[i])
        begin = offsets[groups[i]]
        end = offsets[groups[i] + 1]
        horizon = horizon_of(time, x, task)
        if spec[KIND] == PROGRAM:
            image[row_of + slot] = x
        before = used
        equal = spec[KIND] == EQUAL
        if equal:
            if key[i] < 0:
                counts[i] = 0
                continue
            j = first_key(keys, key[i])
            j = first_behind(keyed[: first_key(keys, key[i] + 1)], j, x)
        else:
            while low < right.shape[0] and right[low] <= x:
                low += 1
            j = low
        stop = keyed.shape[0] if equal else right.shape[0]
        while j < stop:
            if equal:
                if keys[j] != key[i]:
                    break
                y = keyed[j]
            else:
                y = right[j]
            if y >= end or time[y] > horizon:
                break
            tested += 1
            truth = np.int64(1)
            if not equal:
                truth = ask(spec, image, floats, depth, place, x, y, begin, end)
                if truth < 0:
                    return FAILED
            if truth:
                if used == partner.shape[0]:
                    progress[NEXT] = i
                    progress[USED] = before
                    progress[LOW] = low
                    progress[TESTED] += tested
                    return 0
                partner[used] = y
                used += 1
            j += 1
        counts[i] = used - before
    progress[NEXT] = left.shape[0]
    progress[USED] = used
    progress[TESTED] += tested
    return 1


@kernel
def narrow(words, p, q, must, left, groups, first, partner, right, known, time, task, mark):
    """Clear position ``p`` of rows without a partner at ``q``, and vice versa; returns the bits
    cleared.  ``must``: matches with ``p`` have ``q``; a row stays while its partner may arrive,
    after ``known``.
    """
    one = np.uint64(1)
    own = one << np.uint64(p - 1)
    other = one << np.uint64(q - 1)
    cleared = 0
    for i in range(left.shape[0]):
        x = left[i]
        if words[x] & own == 0:
            continue
        found = False
        for j in range(first[x], first[x + 1]):
            y = partner[j]
            if words[y] & other:
                mark[y] = 1
                found = True
        complete = task.final or horizon_of(time, x, task) < known[groups[i]]
        if not found and must and complete:
            words[x] &= ~own
            cleared += 1
    for i in range(right.shape[0]):
        y = right[i]
        if words[y] & other and mark[y] == 0:
            words[y] &= ~other
            cleared += 1
        mark[y] = 0
    return cleared


Check = Callable[[], None] | None

SLICE_TESTS = 20_000_000
PAIRS_FIRST = 1 << 12
SAMPLED_ROWS, SAMPLED_TESTS = 64, 2000
NONE = np.zeros(0, np.int64)


class CannotAsk(Exception):
    """A condition cannot be computed for some pair of rows."""


class Pairs(NamedTuple):
    """Partners per row of the earlier variable (``counts``), all partners, and pairs tested."""

    counts: IntArray
    partner: npt.NDArray[np.int32]
    tested: int


@dataclass(frozen=True)
class Asking:
    """A condition that reads one other variable, encoded as ``spec``, and the
    ascending rows ``left`` (in partitions ``groups``) and ``right`` to test.  ``depth``: slots of
    the path.
    """

    one: Asked
    spec: IntArray
    depth: int
    left: IntArray
    groups: IntArray
    right: IntArray
    image: IntArray
    offsets: IntArray
    rows: Rows
    task: Task
    key: IntArray = field(default_factory=lambda: NONE)
    keys: IntArray = field(default_factory=lambda: NONE)
    keyed: IntArray = field(default_factory=lambda: NONE)

    def share(self) -> float:
        """Estimated selectivity, from a sample; 1 if the condition fails on a pair of it."""
        # a strided view would need another kernel form
        some = np.arange(0, len(self.left), max(1, len(self.left) // SAMPLED_ROWS))
        sampled = replace(self, left=self.left[some], groups=self.groups[some])
        progress, counts = np.zeros(4, np.int64), np.zeros(len(some), np.int64)
        partner = np.empty(SAMPLED_TESTS * 8, np.int32)
        status = sampled._join(SAMPLED_TESTS, progress, counts, partner)
        tested = int(progress[TESTED])
        if status == FAILED or not tested:
            return 1.0
        return max(1, int(progress[USED])) / tested

    def pairs(self, most: int, check: Check) -> Pairs | None:
        """All pairs; None when there are more than ``most``.  Raises CannotAsk."""
        counts, progress = np.zeros(len(self.left), np.int64), np.zeros(4, np.int64)
        partner = np.empty(max(PAIRS_FIRST, 2 * len(self.left)), np.int32)
        while True:
            before = progress[NEXT]
            status = self._join(SLICE_TESTS, progress, counts, partner)
            if check is not None:
                check()
            if status == FAILED:
                raise CannotAsk
            if status:
                used = int(progress[USED])
                return Pairs(counts, partner[:used], int(progress[TESTED]))
            full = progress[NEXT] == before
            if full or progress[USED] * 2 > len(partner):
                if 2 * len(partner) > most:
                    return None
                partner = np.concatenate([partner, np.empty_like(partner)])

    def by_keys(self) -> Asking:
        """The same condition, with an equality of two columns turned into a key lookup."""
        spec = self.spec
        is_float = bool(spec[OP] == m.EQ_F)
        equality = (is_float or spec[OP] == m.EQ_I) and not spec[NEGATED]
        if spec[KIND] != COMPARE or not equality:
            return self
        own, own_valid = self._column(int(spec[X_COLUMN]), self.left, is_float)
        other, valid = self._column(int(spec[Y_COLUMN]), self.right, is_float)
        there = np.flatnonzero(valid)
        there = there[np.argsort(other[there], kind="stable")]
        ordered = other[there]  # NaN sorts last
        key, keys = np.searchsorted(ordered, own), np.searchsorted(ordered, ordered)
        if len(ordered):
            found = ordered[np.minimum(key, len(ordered) - 1)]
            own_valid = own_valid & ((found == own) | ((found != found) & (own != own)))
        key[~own_valid] = -1
        keyed = spec.copy()
        keyed[KIND] = EQUAL
        return replace(self, spec=keyed, key=key, keys=keys, keyed=self.right[there])

    def parts(self, count: int) -> Iterator[Asking]:
        cuts = np.linspace(0, len(self.left), count + 1).astype(np.int64).tolist()
        for low, high in pairwise(cuts):
            image = self.image
            if count > 1 and self.spec[KIND] == PROGRAM:
                image = image.copy()  # the kernel writes to its path
            yield replace(
                self, left=self.left[low:high], groups=self.groups[low:high],
                key=self.key[low:high], image=image,
            )  # fmt: skip

    def _join(
        self, budget: int, progress: IntArray, counts: IntArray, partner: npt.NDArray[np.int32]
    ) -> int:
        asking = Buffer(self.image, self.image.view(np.float64), self.offsets)
        status: int = join(
            self.spec, asking, self.one.slots[0], self.depth, self.one.place, self.left,
            self.groups, self.right, self.key, self.keys, self.keyed, self.rows.time, self.task,
            budget, progress, counts, partner,
        )  # fmt: skip
        return status

    def _column(
        self, column: int, chosen: IntArray, is_float: bool
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        image = self.image
        at = int(image[H_COLUMN]) + 3 * column
        values = (image.view(np.float64) if is_float else image)[int(image[at]) + chosen]
        bits = int(image[at + 1])
        if bits < 0:
            return values, np.ones(len(chosen), np.bool_)
        return values, (image[bits + (chosen >> 6)] >> (chosen & 63)) & 1 == 1
