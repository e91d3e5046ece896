"""Stores the partials of output groups (window, key), so that late events can update them.

A *hook* stores the groups of an aggregation, or merges them into stored groups and outputs those.
A merged group equals one computed from all its events, except for the sign of a zero minimum or
maximum.  Only order-independent aggregates are stored (``is_mergeable``).
Beyond ``GROUPS_MAX`` groups the earlier half of the windows is dropped.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.pair_numbers import PairNumbers, Pairs
from ..pattern.columns import StoredKeys
from . import kernels as k
from .fields import FieldPlan
from .kernels import absorb_row
from .spec import TimeWindows

Words = npt.NDArray[np.int64]


Groups = tuple[Words, Words, Words]

GROUPS_MAX = 1 << 17
_IN_ANY_ORDER = (
    k.ADD, k.MIN_SIGNED, k.MAX_SIGNED, k.MIN_UNSIGNED, k.MAX_UNSIGNED, k.MIN_FLOAT, k.MAX_FLOAT,
    k.SUM_WIDE,
)  # fmt: skip


def is_mergeable(plan: FieldPlan) -> bool:
    """Whether the partials of a plan can be merged in any order."""
    return all(op in _IN_ANY_ORDER for op in plan.own.fields[:, 0].tolist())


@kernel
def merge_rows(fields, words, row, others):
    """Merge partials into some rows."""
    floats = words.view(np.float64)
    other_floats = others.view(np.float64)
    for j in range(row.shape[0]):
        absorb_row(fields, words, floats, row[j], others, other_floats, j)


class GroupCache:
    """Stored groups of windows whose last tick is ``first`` or later; ``able``: storable."""

    def __init__(self, windows: TimeWindows, first: int) -> None:
        self.windows = windows
        self.first = first
        self.able = False
        self.types: tuple[pa.DataType, ...] = ()
        self._keys: StoredKeys | None = None
        self._fields: Words = np.empty((0, 6), np.int64)
        self._numbers = PairNumbers()
        self._words: Words = np.empty((0, 0), np.int64)

    @property
    def nbytes(self) -> int:
        return int(self._numbers.nbytes + self._words.nbytes)

    def keys(self, plan: FieldPlan, names: Sequence[str]) -> StoredKeys:
        if self._keys is None:
            self.able = is_mergeable(plan)
            self._keys = StoredKeys(plan.schema.arrow, names)
            self.types = tuple(self._keys.table.schema.types)
            self._fields = plan.own.fields
            self._words = np.empty((0, plan.width), np.int64)
        return self._keys

    def named(self, codes: Words) -> list[pa.Array]:
        assert self._keys is not None
        return self._keys.arrays(codes)

    def keep(self, groups: Groups) -> None:
        """Store groups, replacing those of the same window and key."""
        if self.able:
            rows = self._rows(groups)
            self._words[rows] = groups[2]
            if self._numbers.count > GROUPS_MAX:
                self._forget()

    def merge(self, groups: Groups) -> Groups:
        """Merge groups into the stored ones; returns these."""
        assert self.able
        rows = self._rows(groups)
        merge_rows(self._fields, self._words, rows, np.ascontiguousarray(groups[2]))
        return groups[0], groups[1], self._words[rows]

    def _rows(self, groups: Groups) -> Words:
        rows = self._numbers.take(_pairs(groups))
        had = len(self._words)
        if self._numbers.count > had:
            capacity = max(self._numbers.count, 2 * had)
            longer = np.empty((capacity, self._words.shape[1]), np.int64)
            longer[:had] = self._words
            k.fill_identity(longer, had, capacity, self._fields)
            self._words = longer
        return rows

    def _forget(self) -> None:
        """Drop the earlier half of the windows; disable the store if there are too many keys."""
        assert self._keys is not None
        number = self._numbers.pairs[:, 0].astype(np.int64)
        last = self.windows.last_ticks(number)
        self.first = int(np.sort(last)[len(last) // 2]) + 1
        later = last >= self.first
        if self._keys.count > 4 * GROUPS_MAX:
            self.able = False
        self._words = self._words[: self._numbers.count][later]
        self._numbers.keep(later)


def _pairs(groups: Groups) -> Pairs:
    return np.ascontiguousarray(np.stack(groups[:2], axis=1)).view(np.uint64)


class GroupHook(ABC):
    """Processes output groups of windows whose last tick is in ``low .. high``."""

    def __init__(self, kept: GroupCache, low: int, high: int) -> None:
        self.kept = kept
        self._low, self._high = low, high

    def _mine(self, numbers: Words) -> npt.NDArray[np.bool_]:
        last = self.kept.windows.last_ticks(numbers)
        mine: npt.NDArray[np.bool_] = (last >= self._low) & (last <= self._high)
        return mine

    @abstractmethod
    def through(self, groups: Groups) -> Groups:
        """The groups to output in place of these."""


class Keeping(GroupHook):
    def through(self, groups: Groups) -> Groups:
        numbers, codes, words = groups
        mine = self._mine(numbers)
        self.kept.keep((numbers[mine], codes[mine], words[mine]))
        return groups


class Merging(GroupHook):
    """Outputs stored groups with partials merged in, and records ``numbers`` and ``codes``."""

    def __init__(self, kept: GroupCache, low: int, high: int) -> None:
        super().__init__(kept, low, high)
        self.numbers: Words = np.empty(0, np.int64)
        self.codes: Words = np.empty(0, np.int64)

    def through(self, groups: Groups) -> Groups:
        numbers, codes, words = groups
        mine = self._mine(numbers)
        merged = self.kept.merge((numbers[mine], codes[mine], words[mine]))
        self.numbers = np.concatenate([self.numbers, merged[0]])
        self.codes = np.concatenate([self.codes, merged[1]])
        return merged


class MergingAndKeeping(Merging):
    """Merges, and stores groups of windows after ``high`` whose last tick is at most ``last``; only
    for windows that share no events.
    """

    def __init__(self, kept: GroupCache, low: int, high: int, last: int) -> None:
        super().__init__(kept, low, high)
        self._behind = Keeping(kept, high + 1, last)

    def through(self, groups: Groups) -> Groups:
        new = self.kept.windows.last_ticks(groups[0]) > self._high
        merged = super().through((groups[0][~new], groups[1][~new], groups[2][~new]))
        rest = self._behind.through((groups[0][new], groups[1][new], groups[2][new]))
        joined = [np.concatenate(pair) for pair in zip(merged, rest, strict=True)]
        return joined[0], joined[1], joined[2]
