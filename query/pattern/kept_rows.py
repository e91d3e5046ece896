"""Per-partition row storage in one block with slack: a step moves no rows of other partitions.

``cells`` has a row per kind (bits, absences, tick, number in the input, rank, marks) and a column
per event.  Partition ``g`` owns the columns ``at[g] .. at[g] + room[g]``; used ones come first::

    at[g]                                    at[g] + room[g]
      | first | ... | position | ... end - 1 | free ... |      numbers of rows in the partition

A row's *local* number counts the rows of its partition and never changes; its column is
``at[g] + local - first[g]``.  A full partition moves to the end with twice the room; a full block
is copied.  An event moves a constant number of times (amortised).
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.times import INT64_MAX, INT64_MIN
from .groups import take_ranges

__all__ = [
    "ABSENT",
    "COVERED",
    "EVENT",
    "FAILED",
    "FAR",
    "MARKS",
    "RANK",
    "TAKEN",
    "TIME",
    "WORDS",
    "KeptRows",
    "ranks",
]

IntArray = npt.NDArray[np.int64]
WORDS, ABSENT, TIME, EVENT, RANK, MARKS = range(6)
KINDS = 6
COVERED, FAILED, TAKEN = 1, 2, 4
"""Marks: part of a match; not computable; a match has ended there (INCREMENTAL MATCH)."""

FAR = np.int64(INT64_MAX)
"""``due`` of a partition that waits for no tick."""


@kernel
def _make_room(groups, counts, at, first, end, room, used, cells):
    """Move full partitions to the end of the block; returns the new used size."""
    for i in range(groups.shape[0]):
        g = groups[i]
        n = end[g] - first[g]
        wanted = n + counts[i]
        if wanted <= room[g]:
            continue
        begin = at[g]
        for k in range(cells.shape[0]):
            for j in range(n):
                cells[k, used + j] = cells[k, begin + j]
        at[g] = used
        room[g] = max(4, 2 * wanted)
        used += room[g]
    return used


@kernel
def _repack(at, first, end, room, cells, out):
    """Copy every partition to a new block without gaps; returns the used size."""
    used = 0
    for g in range(at.shape[0]):
        n = end[g] - first[g]
        begin = at[g]
        for k in range(cells.shape[0]):
            for j in range(n):
                out[k, used + j] = cells[k, begin + j]
        at[g] = used
        room[g] = n
        used += n
    return used


@kernel
def ranks(groups, offsets, time, tick, rank, out):
    """Rank of each row in its partition and tick, by arrival; updates last ``tick``, ``rank``."""
    for i in range(groups.shape[0]):
        g = groups[i]
        for r in range(offsets[i], offsets[i + 1]):
            rank[g] = rank[g] + 1 if time[r] == tick[g] else 0
            tick[g] = time[r]
            out[r] = rank[g]


class KeptRows:
    """Rows by partition.  Local numbers: ``position``, next row at which a match may begin;
    ``ready``, first row whose conditions are not evaluated; ``told``, first row not yet output as
    (un)matched.  ``seen``: rows were dropped.  ``tick``, ``rank``: of the last row.  ``due``:
    greatest tick that the partition waits for.
    """

    def __init__(self) -> None:
        self.cells = np.zeros((KINDS, 1024), np.int64)
        self.used = 0
        self.rows = 0
        for name in ("at", "room", "first", "end", "position", "ready", "told", "number"):
            setattr(self, name, np.zeros(0, np.int64))
        self.at: IntArray
        self.room: IntArray
        self.first: IntArray
        self.end: IntArray
        self.position: IntArray
        self.ready: IntArray
        self.told: IntArray
        self.number: IntArray
        self.seen: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.tick: IntArray = np.zeros(0, np.int64)
        self.rank: IntArray = np.zeros(0, np.int64)
        self.due: IntArray = np.zeros(0, np.int64)

    PER_PARTITION = (
        "at", "room", "first", "end", "position", "ready", "told", "number", "seen", "tick",
        "rank", "due",
    )  # fmt: skip

    @property
    def partitions(self) -> int:
        return len(self.at)

    @property
    def nbytes(self) -> int:
        return int(self.cells.nbytes + sum(getattr(self, n).nbytes for n in self.PER_PARTITION))

    def grow(self, partitions: int) -> None:
        more = partitions - self.partitions
        if more <= 0:
            return
        for name in self.PER_PARTITION:
            before = getattr(self, name)
            value = {"due": FAR, "rank": -1, "tick": INT64_MIN}.get(name, 0)
            setattr(self, name, np.concatenate([before, np.full(more, value, before.dtype)]))

    def select(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop the other partitions, which have no rows, and renumber in order."""
        for name in self.PER_PARTITION:
            setattr(self, name, getattr(self, name)[kept].copy())

    def append(self, groups: IntArray, counts: IntArray) -> IntArray:
        """Allocate ``counts`` more rows in each partition; returns their columns, in that order."""
        wanted = self.end[groups] - self.first[groups] + counts
        need = int(np.where(wanted > self.room[groups], np.maximum(4, 2 * wanted), 0).sum())
        if self.used + need > self.cells.shape[1]:
            size = max(1024, 2 * self.rows + 2 * need)
            out = np.zeros((KINDS, size), np.int64)
            self.used = int(_repack(self.at, self.first, self.end, self.room, self.cells, out))
            self.cells = out
            need = int(np.where(wanted > self.room[groups], np.maximum(4, 2 * wanted), 0).sum())
            if self.used + need > size:
                self.cells = np.concatenate(
                    [out, np.zeros((KINDS, self.used + need - size), np.int64)], axis=1
                )
        self.used = int(
            _make_room(
                groups, counts, self.at, self.first, self.end, self.room, self.used, self.cells
            )
        )
        begin = self.at[groups] + self.end[groups] - self.first[groups]
        self.end[groups] += counts
        self.rows += int(counts.sum())
        return take_ranges(begin, begin + counts)

    def place(self, groups: IntArray, local: IntArray) -> IntArray:
        return self.at[groups] + local - self.first[groups]

    def columns(self, groups: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        moved = self.at[groups] - self.first[groups]
        return take_ranges(begin + moved, end + moved)

    def drop(self, groups: IntArray, upto: IntArray) -> None:
        gone = np.maximum(np.minimum(upto, self.end[groups]) - self.first[groups], 0)
        self.first[groups] += gone
        self.rows -= int(gone.sum())
        self.at[groups] += gone
        self.room[groups] -= gone
        self.seen[groups] |= gone > 0

    def all_columns(self) -> IntArray:
        return take_ranges(self.at, self.at + self.end - self.first)
