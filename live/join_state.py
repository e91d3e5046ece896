"""Cache of the rows in a live join's window, valid for one watermark.

Rows are chained by key (``kernels.following_join``).  Rows that no event can meet any more are
removed once they are half of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.times import moved
from ..query.pattern.columns import KeyCodes
from .kernels.following_join import chain, fill_pairs, follow
from .kernels.window_join import Pairs

__all__ = ["JoinState", "SideRows", "key_codes"]

IntArray = npt.NDArray[np.int64]
SPARE_ROWS = 1 << 10


@dataclass(frozen=True)
class SideRows:
    """Rows of a side in time order; ``rank`` is a position within a tick."""

    tick: IntArray
    rank: IntArray
    table: pa.Table
    keys: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tick)

    def slice(self, begin: int) -> SideRows:
        return SideRows(self.tick[begin:], self.rank[begin:], self.table.slice(begin), self.keys)

    def followed_by(self, more: SideRows) -> SideRows:
        return SideRows(
            np.concatenate([self.tick, more.tick]), np.concatenate([self.rank, more.rank]),
            pa.concat_tables([self.table, more.table]), self.keys,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        return int(self.tick.nbytes + self.rank.nbytes + self.table.nbytes)


def key_codes(known: KeyCodes | None, rows: SideRows) -> IntArray:
    """Key numbers of rows; negative where a key is null, which equals nothing."""
    if known is None:
        return np.zeros(len(rows), np.int64)
    columns = [rows.table.column(name) for name in rows.keys]
    codes = known.encode(columns).copy()
    for column in columns:
        if column.null_count:
            codes[column.is_null().to_numpy()] = -1
    return codes


class _Side:
    def __init__(self, rows: SideRows) -> None:
        self.rows = rows
        self.code = np.zeros(0, np.int64)
        self.before = np.zeros(0, np.int64)
        self.head = np.zeros(0, np.int64)

    def index(self, known: KeyCodes | None) -> None:
        self.code = key_codes(known, self.rows)
        self.before = np.empty(len(self.rows), np.int64)

    def room(self, keys: int) -> None:
        if len(self.head) < keys:
            more = np.full(max(keys - len(self.head), len(self.head), SPARE_ROWS), -1, np.int64)
            self.head = np.concatenate([self.head, more])

    def add(self, rows: SideRows, codes: IntArray) -> None:
        self.rows = self.rows.followed_by(rows)
        if self.rows.table.column(0).num_chunks > 64:
            table = self.rows.table.combine_chunks()
            self.rows = SideRows(self.rows.tick, self.rows.rank, table, rows.keys)
        self.code = np.concatenate([self.code, codes])
        self.before = np.concatenate([self.before, np.full(len(rows), -1, np.int64)])

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.code.nbytes + self.before.nbytes + self.head.nbytes


class JoinState:
    """``met``: left rows that have had a partner."""

    def __init__(
        self, left: SideRows, right: SideRows, before: int, behind: int, watermark: int
    ) -> None:
        self.watermark = watermark
        self.before, self.behind = before, behind
        self.left, self.right = _Side(left), _Side(right)
        self.met = np.zeros(len(left), np.bool_)
        self._codes: KeyCodes | None = None
        self._index()

    def _index(self) -> None:
        keys = len(self.left.rows.keys)
        self._codes = KeyCodes(keys) if keys else None
        for side in (self.left, self.right):
            side.index(self._codes)
        for side in (self.left, self.right):
            side.head = np.full(self._keys + SPARE_ROWS, -1, np.int64)
            chain(side.code, side.head, side.before)

    @property
    def _keys(self) -> int:
        return 1 if self._codes is None else self._codes.count

    @property
    def first(self) -> int | None:
        ticks = [int(side.rows.tick[0]) for side in (self.left, self.right) if len(side.rows)]
        return min(ticks, default=None)

    @property
    def nbytes(self) -> int:
        return self.left.nbytes + self.right.nbytes + self.met.nbytes

    def follow(self, left: SideRows, right: SideRows) -> Pairs:
        """Add new rows; returns the pairs that they complete, as row numbers."""
        old = len(self.left.rows), len(self.right.rows)
        codes = [key_codes(self._codes, rows) for rows in (left, right)]
        for side, rows, code in zip((self.left, self.right), (left, right), codes, strict=True):
            side.room(self._keys)
            side.add(rows, code)
        self.met = np.concatenate([self.met, np.zeros(len(left), np.bool_)])
        one, other = self.left, self.right
        begins = np.empty(len(left), np.int64), np.empty(len(right), np.int64)
        count = follow(
            one.rows.tick, one.code, one.head, one.before,
            other.rows.tick, other.code, other.head, other.before,
            *old, self.before, self.behind, *begins,
        )  # fmt: skip
        pairs = Pairs(np.empty(count, np.int64), np.empty(count, np.int64))
        fill_pairs(
            one.rows.tick, one.before, other.rows.tick, other.before,
            *old, self.before, self.behind, *begins, *pairs,
        )  # fmt: skip
        return pairs

    def let_go(self, watermark: int) -> None:
        """Advance the watermark; remove rows that no later event can meet, if that pays."""
        self.watermark = watermark
        dead_left, dead_right = (
            int(np.searchsorted(side.rows.tick, moved(watermark, -reach), "right"))
            for side, reach in ((self.left, max(0, self.behind)), (self.right, max(0, self.before)))
        )
        total = len(self.left.rows) + len(self.right.rows)
        if 2 * (dead_left + dead_right) <= total or dead_left + dead_right < SPARE_ROWS:
            return
        self.left.rows = self.left.rows.slice(dead_left)
        self.right.rows = self.right.rows.slice(dead_right)
        self.met = self.met[dead_left:].copy()
        for side in (self.left, self.right):
            rows = side.rows
            side.rows = SideRows(
                rows.tick.copy(), rows.rank.copy(), rows.table.combine_chunks(), rows.keys
            )
        self._index()
