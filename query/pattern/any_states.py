"""The states of a row pattern under SKIP TILL ANY MATCH.

They are those of a deterministic automaton over sets of labelings (a subset construction), built
lazily.  The continuations of a set of events depend only on the positions that its labelings have
reached.  A state is these positions in preference order, the absences ``[^X]`` violated since its
last event, and, with ``$``, whether that event is the last of the partition.  State 0 is the entry.
The effect of a row depends on its *class*::

    class of a row  (word, extra)     extra: absences, FIRST, LAST
    consume         state, class  ->  a transition: next state, parent of each position
    pass over       state, class  ->  a state

The first position of a state at which the match may end belongs to the labeling that the pattern
prefers.  Beyond ``STATES_MAX``, ``CLASSES_MAX`` or ``MOVES_MAX`` ``TooManyStates`` is raised.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .automaton import ACCEPT, ANCHOR_END, ANCHOR_START, Automaton

IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

FIRST, LAST = 1 << 61, 1 << 62
"""Bits of ``extra``: the first row of a partition (``^``), and its last (``$``)."""
STATES_MAX = 256
CLASSES_MAX = 4096
MOVES_MAX = 20_000


class TooManyStates(Exception):
    """The pattern has too many states over these rows for lists to pay."""


class Tables(NamedTuple):
    """Moves of class ``c`` are ``first[c] .. first[c + 1]``: from ``source``, consuming the row
    takes ``transition`` (-1: impossible), passing over it leads to ``passed``; ``entry[c]`` for a
    first row.  Transitions: ``target`` state, whose labeling ``i`` extends ``parent[parents + i]``.
    Positions of a state begin at ``place[places[state]]``; ``choice``: labeling with which the
    match may end, or -1.
    """

    first: IntArray
    source: IntArray
    transition: IntArray
    passed: IntArray
    entry: IntArray
    target: IntArray
    parents: IntArray
    parent: IntArray
    places: IntArray
    place: IntArray
    choice: IntArray


class _State(NamedTuple):
    threads: tuple[int, ...]
    absent: int
    last: bool


class States:
    """The automaton; grows with the row classes it meets.  At most 64 positions."""

    def __init__(self, automaton: Automaton) -> None:
        self.edges = automaton.edges
        every = [edge for edges in automaton.edges for edge in edges]
        self.from_start = any(edge.anchor & ANCHOR_START for edge in every)
        self.to_end = any(edge.anchor & ANCHOR_END for edge in every)
        self.reaches_on = any(edge.target == ACCEPT and edge.absent for edge in every)
        """Rows after the last event matter: an absence ends the pattern."""
        self._number: dict[_State, int] = {}
        self._states: list[_State] = []
        self._follow: list[int] = []
        self._asked: list[int] = []
        self._choice: list[int] = []
        self._moves: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._transitions: dict[tuple[int, tuple[int, ...]], int] = {}
        self._add(_State((0,), 0, False))

    def _add(self, state: _State) -> int:
        number = self._number.get(state)
        if number is not None:
            return number
        if len(self._states) >= STATES_MAX:
            raise TooManyStates(f"the pattern has more than {STATES_MAX} states")
        number = len(self._states)
        self._number[state] = number
        self._states.append(state)
        follow = absent = 0
        choice = -1
        for i, p in enumerate(state.threads):
            for edge in self.edges[p]:
                absent |= edge.absent
                if edge.target != ACCEPT:
                    follow |= 1 << (edge.target - 1)
                    continue
                blocked = edge.anchor & ANCHOR_START or edge.absent & state.absent
                if choice < 0 and not blocked and (state.last or not edge.anchor & ANCHOR_END):
                    choice = i
        self._follow.append(follow)
        self._asked.append(absent)
        self._choice.append(choice if number else -1)
        return number

    def _move(self, number: int, word: int, extra: int) -> tuple[int, int]:
        """Transition for consuming a row, or -1, and state after passing over it."""
        key = (number, word & self._follow[number], extra & (self._asked[number] | FIRST | LAST))
        cached = self._moves.get(key)
        if cached is not None:
            return cached
        if len(self._moves) >= MOVES_MAX:
            raise TooManyStates(f"the pattern has more than {MOVES_MAX} moves between its states")
        state = self._states[number]
        threads: list[int] = []
        parents: list[int] = []
        for i, p in enumerate(state.threads):
            for edge in self.edges[p]:
                q = edge.target
                if q == ACCEPT or q in threads or not word >> (q - 1) & 1:
                    continue
                if edge.anchor & ANCHOR_END or edge.absent & state.absent:
                    continue
                if edge.anchor & ANCHOR_START and (number or not extra & FIRST):
                    continue
                threads.append(q)
                parents.append(i)
        transition = -1
        if threads:
            target = self._add(_State(tuple(threads), 0, bool(extra & LAST)))
            transition = self._transitions.setdefault(
                (target, tuple(parents)), len(self._transitions)
            )
        absent = state.absent | (extra & self._asked[number])
        passed = number if absent == state.absent else self._add(state._replace(absent=absent))
        self._moves[key] = transition, passed
        return transition, passed

    def tables(self, words: Words, extras: IntArray) -> Tables:
        moves: list[list[tuple[int, int, int]]] = [[] for _ in range(len(words))]
        entry = np.full(len(words), -1, np.int64)
        waiting, visited = [0], {0}
        while waiting:
            number = waiting.pop()
            follow, absent = self._follow[number], self._asked[number]
            masked = np.empty((len(words), 2), np.uint64)
            masked[:, 0] = words & np.uint64(follow)
            masked[:, 1] = extras.view(np.uint64) & np.uint64(absent | FIRST | LAST)
            kinds, which = np.unique(masked, axis=0, return_inverse=True)
            results = [self._move(number, int(word), int(extra)) for word, extra in kinds]
            for c, kind in enumerate(which.reshape(-1).tolist()):
                transition, passed = results[kind]
                if number == 0:
                    entry[c] = transition
                elif transition >= 0 or passed != number:
                    moves[c].append((number, transition, passed))
            targets = [target for target, _ in self._transitions]
            reached = {targets[transition] for transition, _ in results if transition >= 0}
            if number:
                reached |= {passed for _, passed in results}
            waiting += sorted(reached - visited)
            visited |= reached
        flat = np.array([move for listed in moves for move in listed], np.int64).reshape(-1, 3)
        sizes = [len(parents) for _, parents in self._transitions]
        threads = [len(state.threads) for state in self._states]
        return Tables(
            offsets_of([len(listed) for listed in moves]),
            np.ascontiguousarray(flat[:, 0]),
            np.ascontiguousarray(flat[:, 1]),
            np.ascontiguousarray(flat[:, 2]),
            entry,
            np.array([target for target, _ in self._transitions], np.int64),
            offsets_of(sizes),
            np.array([i for _, parents in self._transitions for i in parents], np.int64),
            offsets_of(threads),
            np.array([p for state in self._states for p in state.threads], np.int64),
            np.array(self._choice, np.int64),
        )


def offsets_of(sizes: list[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def classes_of(words: Words, extras: IntArray) -> tuple[npt.NDArray[np.int32], Words, IntArray]:
    """Class of each row (-1: no bits), and word and extra of each class; raises TooManyStates."""
    classes = np.empty(len(words), np.int32)
    pairs = np.zeros((2, CLASSES_MAX), np.uint64)
    count = _classify(words, extras.view(np.uint64), classes, pairs)
    if count < 0:
        raise TooManyStates(f"rows satisfy more than {CLASSES_MAX} combinations of the conditions")
    return classes, pairs[0, :count], pairs[1, :count].view(np.int64)


@kernel
def _classify(words, extras, classes, known):
    """Number the distinct pairs by open addressing; -1 when there are too many."""
    size = 4 * known.shape[1]
    slots = np.full(size, np.int32(-1), np.int32)
    count = 0
    for r in range(words.shape[0]):
        word = words[r]
        extra = extras[r]
        if word == 0 and extra == 0:
            classes[r] = -1
            continue
        mixed = (word ^ (extra * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xD6E8FEB86659FD93)
        at = np.int64((mixed >> np.uint64(32)) % np.uint64(size))
        while True:
            c = slots[at]
            if c < 0:
                if count == known.shape[1]:
                    return -1
                slots[at] = count
                known[0, count] = word
                known[1, count] = extra
                classes[r] = count
                count += 1
                break
            if known[0, c] == word and known[1, c] == extra:
                classes[r] = c
                break
            at = (at + 1) % size
    return count
