"""Stores suspended attempts between the steps of a stream, as the stacks of ``waiting``.
The block is compacted when more than half is garbage.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .waiting import Waiting

__all__ = ["OpenAttempts"]

IntArray = npt.NDArray[np.int64]
NONE: IntArray = np.zeros(0, np.int64)


@kernel
def _gather(where, sizes, stack, out):  # type: ignore[no-untyped-def]
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
    """Partition and first local row of each; ``go_on``: starts after one are searched too."""

    def __init__(self, go_on: bool) -> None:
        self.go_on = go_on
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
        room = max(64, len(self._given[0]) + 64)
        return Waiting(
            *self._given, self._stack, np.empty((room, 3), np.int64),
            np.empty(max(1024, self._used), np.int64), np.zeros(3, np.int64), self.go_on,
            self._keep,
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
        kept = ~gone
        self.group = np.concatenate([self.group[kept], group])
        self.start = np.concatenate([self.start[kept], start])
        self._where = np.concatenate([self._where[kept], where])
        self._size = np.concatenate([self._size[kept], size])
        if self._used > 4096 and self._used > 2 * int(self._size.sum()):
            out = np.zeros(max(256, 2 * int(self._size.sum())), np.int64)
            self._used = int(_gather(self._where, self._size, self._stack, out))
            self._stack = out

    def drop(self, gone: npt.NDArray[np.bool_]) -> None:
        kept = ~gone
        self.group, self.start = self.group[kept], self.start[kept]
        self._where, self._size = self._where[kept], self._size[kept]

    def renumber(self, numbers: IntArray) -> None:
        self.group = numbers[self.group]
