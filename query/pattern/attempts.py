"""Suspends attempts at the end of the rows and resumes them when their partition has more.

An attempt is saved to a *stack* in one block of words.  Rows in it refer to the buffer at that time
and are shifted with the start of the attempt on restore::

    start, top, marked, ready, reach, steps | frames | known | visited | columns of the path

A stack is a cache: without it the attempt restarts and finds the same.  Resuming copies it: a few
words per run (``jumping``) or row (``contiguous``) of the partial match.  The block is compacted
when more than half is garbage.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .machine import H_FIRST_N, H_LAST_N, H_PATH, H_SETS, H_STRIDE, H_SUM_N, ROW_LAST, ROW_ROW

IntArray = npt.NDArray[np.int64]


class Waiting(NamedTuple):
    """Suspended attempts.
    Before a search: ``start[g]`` is the first row of group ``g``'s attempt, or -1, and ``where[g]``
    the offset of its ``stack``, -1 if it must restart.  After: ``entry`` has group, start and
    offset in ``saved`` of each; ``count`` their number, the words used, and the words needed.
    ``keep``: stacks are reusable.
    """

    start: IntArray
    where: IntArray
    stack: IntArray
    entry: IntArray
    saved: IntArray
    count: IntArray
    keep: bool


NONE: IntArray = np.zeros(0, np.int64)
NOTHING = Waiting(NONE, NONE, NONE, np.zeros((0, 3), np.int64), NONE, np.zeros(3, np.int64), False)


@kernel
def has_stack(waiting, g, s):
    """Offset of the stack of the attempt that begins at row ``s``; -1 when there is none."""
    if g < waiting.start.shape[0] and waiting.start[g] == s:
        return waiting.where[g]
    return np.int64(-1)


@kernel
def _entry(waiting, g, s, words):
    """Reserve ``words`` words; returns their offset, -1: not wanted, -2: no room."""
    n = waiting.count[0]
    at = waiting.count[1]
    if n == waiting.entry.shape[0]:
        return np.int64(-2)
    place = np.int64(-1)
    if waiting.keep:
        if at + words > waiting.saved.shape[0]:
            waiting.count[2] = at + words
            return np.int64(-2)
        place = at
        waiting.count[1] = at + words
    waiting.entry[n, 0] = g
    waiting.entry[n, 1] = s
    waiting.entry[n, 2] = place
    waiting.count[0] = n + 1
    return place


@kernel
def star_end(words, time, reach, usable, horizon, star_bits):
    """How far the stars of a start reach, and the row from which there are no candidates."""
    past = reach
    while reach < usable and time[reach] <= horizon:
        if words[reach] & star_bits == 0:
            past = reach + 1
            break
        reach += 1
        past = reach
    return reach, past


@kernel
def _path_rows(conditional, image):
    slots = image[H_LAST_N] + image[H_FIRST_N] + image[H_SETS] + 2 * image[H_SUM_N]
    return ROW_LAST + slots if conditional else np.int64(0)


@kernel
def save_attempt(
    waiting, g, s, top, marked, ready, reach, steps, again, conditional, image, frame, known,
    visited, visited_words,
):  # fmt: skip
    """Save an attempt; False: no room.  ``again``: retry the current edge."""
    frames = top + 4
    n = known.shape[0]
    rows = _path_rows(conditional, image)
    out = waiting.saved
    at = _entry(waiting, g, s, 6 + frames + n + marked * visited_words + rows * (frames >> 2))
    if at < 0:
        return at == -1
    out[at] = s
    out[at + 1] = top
    out[at + 2] = marked
    out[at + 3] = ready
    out[at + 4] = reach
    out[at + 5] = steps
    at += 6
    for i in range(frames):
        out[at + i] = frame[i]
    if again:
        out[at + top + 1] -= 1
    at += frames
    for i in range(n):
        out[at + i] = known[i]
    at += n
    for i in range(marked * visited_words):
        out[at + i] = np.int64(visited[i])
    at += marked * visited_words
    for r in range(rows):
        path = image[H_PATH] + r * image[H_STRIDE]
        for i in range(frames >> 2):
            out[at + i] = image[path + i]
        at += frames >> 2
    return True


@kernel
def restore_attempt(stack, at, s, conditional, image, frame, known, visited, visited_words):
    """Restore an attempt: top (-1: does not fit), marked, ready, reach and steps."""
    moved = s - stack[at]
    top = stack[at + 1]
    marked = stack[at + 2]
    ready = stack[at + 3]
    reach = stack[at + 4]
    steps = stack[at + 5]
    if top + 12 > frame.shape[0] or marked * visited_words > visited.shape[0]:
        return np.int64(-1), marked, ready, reach, steps
    at += 6
    for i in range(0, top + 4, 4):
        frame[i] = stack[at + i]
        frame[i + 1] = stack[at + i + 1]
        frame[i + 2] = stack[at + i + 2] + moved
        frame[i + 3] = stack[at + i + 3] + moved
    at += top + 4
    for i in range(known.shape[0]):
        known[i] = stack[at + i] + moved if stack[at + i] >= 0 else -1
    at += known.shape[0]
    for i in range(marked * visited_words):
        visited[i] = np.uint64(stack[at + i])
    at += marked * visited_words
    columns = (top >> 2) + 1
    for r in range(_path_rows(conditional, image)):
        path = image[H_PATH] + r * image[H_STRIDE]
        for i in range(columns):
            image[path + i] = stack[at + i] + (moved if r == ROW_ROW else 0)
        at += columns
    return top, marked, ready, reach + moved if reach >= 0 else reach, steps


@kernel
def _gather(where, sizes, stack, out):
    """Copy stacks to a new block, without gaps; updates ``where``."""
    used = 0
    for i in range(where.shape[0]):
        if where[i] >= 0:
            begin = where[i]
            for j in range(sizes[i]):
                out[used + j] = stack[begin + j]
            where[i] = used
            used += sizes[i]
    return used


class OpenAttempts:
    """Partition and first local row of each."""

    def __init__(self) -> None:
        self.group = self.start = NONE
        self._where = self._size = NONE
        self._stack = np.zeros(256, np.int64)
        self._used = 0
        self._given: tuple[IntArray, IntArray] = (NONE, NONE)
        self._saved, self._saved_words = NONE, 0
        self._keep = True
        self.entries: npt.NDArray[np.int64] = np.zeros((0, 3), np.int64)

    @property
    def nbytes(self) -> int:
        return int(self._stack.nbytes + 4 * self.group.nbytes)

    def offer(self, start: IntArray, which: IntArray, keep: bool) -> None:
        """Set the input of the next search: per group, first row and number of its attempt, or -1.
        ``keep``: stacks stay valid.
        """
        where = np.full(len(start), -1, np.int64)
        if keep and len(self._where):
            where = np.where(which >= 0, self._where[which], -1)
        self._given = (start, where)
        self._keep = keep

    def opened(self) -> Waiting:
        capacity = max(64, len(self._given[0]) + 64)
        return Waiting(
            *self._given, self._stack, np.empty((capacity, 3), np.int64),
            np.empty(max(1024, self._used), np.int64), np.zeros(3, np.int64), self._keep,
        )  # fmt: skip

    def grown(self, waiting: Waiting) -> Waiting:
        entry = np.empty((2 * len(waiting.entry), 3), np.int64)
        entry[: len(waiting.entry)] = waiting.entry
        saved = np.empty(2 * max(len(waiting.saved), int(waiting.count[2])), np.int64)
        saved[: len(waiting.saved)] = waiting.saved
        return waiting._replace(entry=entry, saved=saved)

    def close(self, waiting: Waiting) -> None:
        """Take over what is suspended now; ``settle`` assigns it to partitions."""
        self.entries = waiting.entry[: int(waiting.count[0])].copy()
        self._saved, self._saved_words = waiting.saved, int(waiting.count[1])

    def settle(self, gone: npt.NDArray[np.bool_], group: IntArray, start: IntArray) -> None:
        """Replace the offered attempts (``gone``) by the entries of the search."""
        place = self.entries[:, 2]  # ascending, or all -1
        size = np.where(place >= 0, np.append(place[1:], self._saved_words) - place, 0)
        where = np.where(place >= 0, place + self._used, -1)
        if self._used + self._saved_words > len(self._stack):
            grown = np.zeros(2 * (self._used + self._saved_words), np.int64)
            grown[: self._used] = self._stack[: self._used]
            self._stack = grown
        self._stack[self._used : self._used + self._saved_words] = self._saved[: self._saved_words]
        self._used += self._saved_words
        still_open = ~gone
        self.group = np.concatenate([self.group[still_open], group])
        self.start = np.concatenate([self.start[still_open], start])
        self._where = np.concatenate([self._where[still_open], where])
        self._size = np.concatenate([self._size[still_open], size])
        if self._used > 4096 and self._used > 2 * int(self._size.sum()):
            out = np.zeros(max(256, 2 * int(self._size.sum())), np.int64)
            self._used = int(_gather(self._where, self._size, self._stack, out))
            self._stack = out

    def renumber(self, numbers: IntArray) -> None:
        self.group = numbers[self.group]
