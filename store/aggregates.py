"""Lightweight aggregates: the monoid of zones, entries, tails and query answers (thesis 3.2.1).

Merging is associative and has an identity.  Integer sums are exact: 128 bits, which 2**63 values of
64 bits cannot overflow.  Float sums are an unevaluated pair of doubles (TwoSum, Knuth): the
grouping into blocks changes a result by at most a rounding of the pair, far below one unit in the
last place; a sum that overflows stays infinite.  NaN is the greatest value, as in DuckDB and Spark:
max is NaN when any value is, min only when all are; a sum with NaN, or with infinities of both
signs, is NaN.

Layout: a vector of 64-bit words: event count, first tick, last tick, then for each attribute five
words: non-null values, min, max, sum high part / low word, sum low part / high word, by
``layout.ValueKind``.  The same five words are rows of an entry table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.native import kernel
from .layout import ROW_ATTRIBUTES, ROWS_PER_ATTRIBUTE, ValueKind

Words = npt.NDArray[np.int64]

HEAD_WORDS = 3


@kernel
def aggregate_integers(values, flip, validity, bit_offset, starts, table, row):  # type: ignore[no-untyped-def]
    """Aggregate integers of each range [starts[z], starts[z+1]) into column z of a table.  uint64
    values come as int64 with ``flip`` = the highest bit: XOR with it gives the order of the
    unsigned numbers, each 2^63 smaller.  For all other types ``flip`` is 0.
    """
    nullable = validity.size > 0
    for zone in range(starts.size - 1):
        count = 0
        low = np.int64(9223372036854775807)
        high = np.int64(-9223372036854775807 - 1)
        sum_low = np.int64(0)
        sum_high = np.int64(0)
        part = values[starts[zone] : starts[zone + 1]]
        if nullable:
            for i in range(part.size):
                bit = starts[zone] + i + bit_offset
                if (validity[bit >> 3] >> (bit & 7)) & 1 == 0:
                    continue
                value = np.int64(part[i]) ^ flip
                count += 1
                low = min(low, value)
                high = max(high, value)
                sum_low += value & np.int64(0xFFFFFFFF)
                sum_high += value >> np.int64(32)
        else:
            count = part.size
            for i in range(part.size):
                value = np.int64(part[i]) ^ flip
                low = min(low, value)
                high = max(high, value)
                sum_low += value & np.int64(0xFFFFFFFF)
                sum_high += value >> np.int64(32)
        if flip != 0:
            sum_high += np.int64(count) << np.int64(31)
        part = np.uint64(sum_high) << np.uint64(32)
        total = part + np.uint64(sum_low)
        carry = np.int64(1) if total < part else np.int64(0)
        table[row, zone] = count
        table[row + 1, zone] = low ^ flip if count else 0
        table[row + 2, zone] = high ^ flip if count else 0
        table[row + 3, zone] = np.int64(total)
        table[row + 4, zone] = (sum_high >> np.int64(32)) + carry


@kernel
def aggregate_prefixes(words, codes, validity, bit_offset, starts, table, row):  # type: ignore[no-untyped-def]
    """As ``aggregate_integers``, of uint64 ``words`` that dictionary codes select; without sums."""
    bounds = table.view(np.uint64)
    nullable = validity.size > 0
    for zone in range(starts.size - 1):
        count = 0
        low = np.uint64(0xFFFFFFFFFFFFFFFF)
        high = np.uint64(0)
        part = codes[starts[zone] : starts[zone + 1]]
        for i in range(part.size):
            if nullable:
                bit = starts[zone] + i + bit_offset
                if (validity[bit >> 3] >> (bit & 7)) & 1 == 0:
                    continue
            word = words[np.uint64(part[i])]
            count += 1
            low = min(low, word)
            high = max(high, word)
        table[row, zone] = count
        bounds[row + 1, zone] = low if count else np.uint64(0)
        bounds[row + 2, zone] = high
        table[row + 3, zone] = 0
        table[row + 4, zone] = 0


@kernel
def two_sum(one, other):  # type: ignore[no-untyped-def]
    """A sum of doubles and what rounding takes from it."""
    total = one + other
    back = total - one
    return total, (one - (total - back)) + (other - back)


@kernel
def settled(total, error):  # type: ignore[no-untyped-def]
    """The double nearest to a sum with its error term, and the rest, if all are finite."""
    if not np.isfinite(total) or not np.isfinite(error):
        error = 0.0
    whole = total + error
    if np.isfinite(whole):
        error -= whole - total
        total = whole
    return total, error


@kernel
def aggregate_floats(values, validity, bit_offset, starts, table, row):  # type: ignore[no-untyped-def]
    """Aggregate doubles of each range into column z of a table.  Without nulls the loops vectorise:
    bounds are compared as integers, and the sum runs in 64 lanes of TwoSum pairs.
    """
    floats = table.view(np.float64)
    nullable = validity.size > 0
    lane_sum = np.empty(64, np.float64)
    lane_error = np.empty(64, np.float64)
    magnitude = np.int64(0x7FFFFFFFFFFFFFFF)
    infinite = np.int64(0x7FF0000000000000)
    for zone in range(starts.size - 1):
        first = starts[zone]
        end = starts[zone + 1]
        count = 0
        nans = np.int64(0)
        low = np.inf
        high = -np.inf
        total = 0.0
        error = 0.0
        if nullable:
            for i in range(first, end):
                bit = i + bit_offset
                if (validity[bit >> 3] >> (bit & 7)) & 1 == 0:
                    continue
                value = values[i]
                count += 1
                nans += 1 if value != value else 0
                low = value if value < low else low
                high = value if value > high else high
                total, rest = two_sum(total, value)
                error += rest
        else:
            part = values[first:end]
            count = part.size
            bits = part.view(np.int64)
            least = magnitude
            greatest = -magnitude - np.int64(1)
            for i in range(bits.size):
                word = bits[i]
                key = word ^ ((word >> np.int64(63)) & magnitude)
                least = min(least, key)
                greatest = max(greatest, key)
                nans += np.int64((word & magnitude) > infinite)
            if nans:
                for i in range(part.size):
                    value = part[i]
                    low = value if value < low else low
                    high = value if value > high else high
            elif count:
                bounds = np.empty(2, np.int64)
                bounds[0] = least ^ ((least >> np.int64(63)) & magnitude)
                bounds[1] = greatest ^ ((greatest >> np.int64(63)) & magnitude)
                low = bounds.view(np.float64)[0]
                high = bounds.view(np.float64)[1]
            for k in range(64):
                lane_sum[k] = 0.0
                lane_error[k] = 0.0
            whole = part.size // 64 * 64
            for base in range(0, whole, 64):
                block = part[base : base + 64]
                for k in range(64):
                    lane_sum[k], rest = two_sum(lane_sum[k], block[k])
                    lane_error[k] += rest
            width = 32
            while width:
                for k in range(width):
                    lane_sum[k], rest = two_sum(lane_sum[k], lane_sum[k + width])
                    lane_error[k] += lane_error[k + width] + rest
                width >>= 1
            total = lane_sum[0]
            error = lane_error[0]
            for i in range(whole, part.size):
                total, rest = two_sum(total, part[i])
                error += rest
        total, error = settled(total, error)
        if nans == count:
            low = np.nan
        if nans > 0:
            high = np.nan
        table[row, zone] = count
        floats[row + 1, zone] = low if count else 0.0
        floats[row + 2, zone] = high if count else 0.0
        floats[row + 3, zone] = total
        floats[row + 4, zone] = error


@kernel
def _merged_floats(mine, other):  # type: ignore[no-untyped-def]
    """Bounds, sum and error term of two sets of doubles; NaN is the greatest value."""
    low, high, total, error = mine
    other_low, other_high, other_total, other_error = other
    if other_low < low or (low != low and other_low == other_low):
        low = other_low
    if other_high > high or other_high != other_high:
        high = other_high
    total, rest = two_sum(total, other_total)
    total, error = settled(total, rest + (other_error + error))
    return low, high, total, error


@kernel
def merge_children(table, first, end, selected, kinds, words):  # type: ignore[no-untyped-def]
    """Merge columns [first, end) of an entry table into ``words`` (3 + 5k), in place."""
    if end <= first:
        return
    events = np.int64(0)
    for child in range(first, end):
        events += table[2, child]
    if words[0] == 0:
        words[1] = table[3, first]
        words[2] = table[4, end - 1]
    else:
        words[1] = min(words[1], table[3, first])
        words[2] = max(words[2], table[4, end - 1])
    words[0] += events
    float_table = table.view(np.float64)
    floats = words.view(np.float64)
    for k in range(selected.size):
        row = 5 + 5 * selected[k]
        base = 3 + 5 * k
        kind = kinds[k]
        if kind == 2:  # accumulate in registers: the sum is one dependency chain
            merged = words[base]
            mine = (floats[base + 1], floats[base + 2], floats[base + 3], floats[base + 4])
            for child in range(first, end):
                count = table[row, child]
                if count == 0:
                    continue
                other = (
                    float_table[row + 1, child],
                    float_table[row + 2, child],
                    float_table[row + 3, child],
                    float_table[row + 4, child],
                )
                mine = _merged_floats(mine, other) if merged else other
                merged += count
            words[base] = merged
            floats[base + 1], floats[base + 2], floats[base + 3], floats[base + 4] = mine
            continue
        for child in range(first, end):
            count = table[row, child]
            if count == 0:
                continue
            empty = words[base] == 0
            words[base] += count
            if kind == 4:
                continue
            low = table[row + 1, child]
            high = table[row + 2, child]
            if empty:
                words[base + 1] = low
                words[base + 2] = high
            elif kind == 0:
                words[base + 1] = min(words[base + 1], low)
                words[base + 2] = max(words[base + 2], high)
            else:
                if np.uint64(low) < np.uint64(words[base + 1]):
                    words[base + 1] = low
                if np.uint64(high) > np.uint64(words[base + 2]):
                    words[base + 2] = high
            if kind != 3:
                part = np.uint64(words[base + 3])
                total = part + np.uint64(table[row + 3, child])
                words[base + 3] = np.int64(total)
                words[base + 4] += table[row + 4, child]
                if total < part:
                    words[base + 4] += 1


class AttributeAggregate:
    """Aggregates of one attribute; None without a non-null value.  ``sum`` is exact for integers.
    Strings, binaries and decimals have no bounds; booleans give 0 and 1, times ticks in their own
    unit.
    """

    __slots__ = ("_high", "_kind", "_low", "_sum_a", "_sum_b", "count")

    def __init__(self, words: Sequence[int], floats: Sequence[float], kind: int) -> None:
        self.count: int = int(words[0])
        self._kind = kind
        source: Sequence[Any] = floats if kind == ValueKind.FLOAT else words
        self._low = source[1]
        self._high = source[2]
        self._sum_a = source[3]
        self._sum_b = source[4]

    def _bound(self, word: Any) -> int | float | None:
        if not self.count or self._kind in (ValueKind.PREFIX, ValueKind.COUNT):
            return None
        if self._kind == ValueKind.FLOAT:
            return float(word)
        return int(word) if self._kind == ValueKind.SIGNED else int(word) & 0xFFFFFFFFFFFFFFFF

    @property
    def min(self) -> int | float | None:
        return self._bound(self._low)

    @property
    def max(self) -> int | float | None:
        """NaN when any value is NaN."""
        return self._bound(self._high)

    @property
    def sum(self) -> int | float | None:
        if not self.count or self._kind in (ValueKind.PREFIX, ValueKind.COUNT):
            return None
        if self._kind == ValueKind.FLOAT:
            return float(self._sum_a + self._sum_b)
        return (int(self._sum_b) << 64) + (int(self._sum_a) & 0xFFFFFFFFFFFFFFFF)

    @property
    def avg(self) -> float | None:
        total = self.sum
        return None if total is None else total / self.count

    def __repr__(self) -> str:
        return (
            f"AttributeAggregate(count={self.count}, min={self.min}, max={self.max}, "
            f"sum={self.sum})"
        )


class LightweightAggregates:
    """An element over some attributes, by default the identity; ``first`` and ``last`` in ticks."""

    __slots__ = ("kinds", "names", "words")

    def __init__(self, names: Sequence[str], kinds: Words, words: Words | None = None) -> None:
        self.names = tuple(names)
        self.kinds = kinds
        if words is None:
            words = np.zeros(HEAD_WORDS + ROWS_PER_ATTRIBUTE * len(self.names), np.int64)
        self.words = words

    @property
    def count(self) -> int:
        return int(self.words[0])

    @property
    def first(self) -> int | None:
        return int(self.words[1]) if self.words[0] else None

    @property
    def last(self) -> int | None:
        return int(self.words[2]) if self.words[0] else None

    def __getitem__(self, name: str) -> AttributeAggregate:
        position = self.names.index(name)
        base = HEAD_WORDS + ROWS_PER_ATTRIBUTE * position
        words = self.words[base : base + ROWS_PER_ATTRIBUTE]
        return AttributeAggregate(
            words.tolist(), words.view(np.float64).tolist(), int(self.kinds[position])
        )

    def merge(self, other: LightweightAggregates) -> None:
        if other.words[0]:
            column = np.concatenate((np.zeros(2, np.int64), other.words))[:, None]
            merge_children(column, 0, 1, np.arange(len(self.kinds)), self.kinds, self.words)


assert ROW_ATTRIBUTES == 5  # hard-coded in the kernels above
assert ROWS_PER_ATTRIBUTE == 5
