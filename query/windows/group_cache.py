"""Stores the partials of output groups (window, key), so that late events can update them.

A *hook* stores the groups of an aggregation, or merges them into stored groups and outputs those.
A merged group equals one computed from all its events, except for the sign of a zero minimum or
maximum.  Only order-independent aggregates are stored (``is_mergeable``).
Beyond ``GROUPS_MAX`` groups the earlier half of the windows is dropped.

Combinations of group key values get dense codes, stable across batches.  Equality is that of GROUP
BY: null = null, NaN = NaN, -0.0 = 0.0.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.pair_numbers import PairNumbers, Pairs
from ..conditions.constants import comparable
from . import kernels as k
from .fields import FieldPlan
from .kernels import absorb_row
from .spec import TimeWindows

Words = npt.NDArray[np.int64]


class KeyTable:
    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._codes: dict[tuple[Any, ...], int] = {}
        self._values: list[list[pa.Array]] = [[pa.nulls(0, type_)] for type_ in types]

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, columns: Sequence[pa.Array]) -> Words:
        """The code of each row; new combinations get new codes."""
        rows = len(columns[0])
        if not rows:
            return np.empty(0, np.int64)
        plain = [comparable(column) for column in columns]
        local, firsts = codes_of(plain)
        chosen = pa.array(firsts)
        listed = zip(*(column.take(chosen).to_pylist() for column in plain), strict=True)
        by_value = self._codes
        own_codes = np.empty(len(firsts), np.int64)
        fresh: list[int] = []
        for i, values in enumerate(listed):
            code = by_value.get(values)
            if code is None:
                code = by_value[values] = len(by_value)
                fresh.append(i)
            own_codes[i] = code
        if fresh:
            new = pa.array(firsts[np.array(fresh)])
            for pieces, column in zip(self._values, columns, strict=True):
                pieces.append(column.take(new))
        codes: Words = own_codes[local]
        return codes

    def columns(self, codes: Words) -> list[pa.Array]:
        made = []
        for pieces in self._values:
            if len(pieces) > 1:
                pieces[:] = [pa.concat_arrays(pieces)]
            made.append(pieces[0].take(pa.array(codes)))
        return made

    def keep(self, codes: Words) -> None:
        """Forget all other combinations; ``codes[i]`` becomes i."""
        values = self.columns(codes)
        of_code = list(self._codes)
        self._codes = {of_code[code]: i for i, code in enumerate(codes.tolist())}
        self._values = [[column] for column in values]


def codes_of(columns: Sequence[pa.Array]) -> tuple[Words, Words]:
    """Dense codes of value combinations by first appearance, and the first row of each."""
    local: Words | None = None
    for column in columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        encoded = column.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if local is None:
            local = own
        else:  # both are below the number of rows, so the product has 64 bits
            pairs = pa.array(local * len(encoded.dictionary) + own).dictionary_encode()
            local = pairs.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    assert local is not None
    firsts = np.empty(int(local.max()) + 1, np.int64)
    firsts[local[::-1]] = np.arange(len(local) - 1, -1, -1)
    return local, firsts


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
        self._keys: KeyTable | None = None
        self._fields: Words = np.empty((0, 6), np.int64)
        self._numbers = PairNumbers()
        self._words: Words = np.empty((0, 0), np.int64)

    @property
    def nbytes(self) -> int:
        return int(self._numbers.nbytes + self._words.nbytes)

    def keys(self, plan: FieldPlan, types: Sequence[pa.DataType]) -> KeyTable:
        if self._keys is None:
            self.able = is_mergeable(plan)
            self._keys, self.types = KeyTable(types), tuple(types)
            self._fields = plan.own.fields
            self._words = np.empty((0, plan.width), np.int64)
        return self._keys

    def named(self, codes: Words) -> list[pa.Array]:
        assert self._keys is not None
        return self._keys.columns(codes)

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
        if len(self._keys) > 4 * GROUPS_MAX:
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
