"""Converts Arrow columns to contiguous NumPy arrays with a validity mask, for kernels.  A null, or
a value beyond its partition after a shift (PREV, NEXT), is invalid.

Partition keys get dense codes that are stable across batches; rows are grouped stably by counting
sort.  Keys are equal as in GROUP BY: nulls, zeros of both signs, and all NaNs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.native import kernel
from ...core.times import TICKS_PER_SECOND
from ..conditions.constants import comparable

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array, which may be dictionary-encoded."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(column, pa.ChunkedArray):  # zero chunks
            column = pa.array([], column.type)
    return column


def decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return decoded(whole(column))


def codes_and_values(column: pa.Array) -> tuple[IntArray, pa.Array]:
    """Place of each row's value among the values of an encoded array; the last one is null."""
    values = column.dictionary
    codes = column.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return codes, pa.concat_arrays([values, pa.nulls(1, values.type)])


def _valid(array: pa.Array) -> BoolArray | None:
    if array.null_count == 0:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def numbers(array: pa.Array, kind: str) -> tuple[npt.NDArray[np.generic], BoolArray | None]:
    """Values as ``int64`` (kind ``i``) or ``float64`` (``f``), and a validity mask (None: all
    valid).  Times become ticks, decimals floats.
    """
    valid = _valid(array)
    type_ = array.type
    if kind == "f":
        if pa.types.is_decimal(type_) or not pa.types.is_float64(type_):
            array = array.cast(pa.float64(), safe=False)
        if valid is not None:
            array = array.fill_null(0.0)
        return array.to_numpy(zero_copy_only=False), valid
    if pa.types.is_boolean(type_):
        array = array.cast(pa.uint8())
    if pa.types.is_timestamp(type_) or pa.types.is_date64(type_):
        array = array.view(pa.int64())
    elif pa.types.is_date32(type_):
        array = array.view(pa.int32())
    if array.type != pa.int64():
        array = array.cast(pa.int64())
    if valid is not None:
        array = array.fill_null(0)
    return array.to_numpy(zero_copy_only=False), valid


def time_ticks(array: pa.Array, unit: str) -> tuple[npt.NDArray[np.generic], BoolArray | None]:
    values, valid = numbers(array, "i")
    if pa.types.is_timestamp(array.type):
        factor = TICKS_PER_SECOND[unit] // TICKS_PER_SECOND[array.type.unit]
    elif pa.types.is_date64(array.type):
        factor = TICKS_PER_SECOND[unit] // 1_000
    else:
        factor = TICKS_PER_SECOND[unit] * 86_400
    return (values if factor == 1 else values * factor), valid


def string_codes(
    columns: Sequence[pa.Array], literals: Sequence[str]
) -> tuple[list[tuple[IntArray, BoolArray | None]], list[int]]:
    """Codes of string columns and literals that have the byte order of the strings."""
    encoded = [
        column if _sorts_fast(column) else pc.dictionary_encode(column.cast(pa.string()))
        for column in columns
    ]
    known = pa.concat_arrays([e.dictionary for e in encoded] + [pa.array(literals, pa.string())])
    ordered = pc.unique(known)
    ordered = ordered.take(pc.sort_indices(ordered))
    result = []
    for array in encoded:
        mapping = pc.index_in(array.dictionary, value_set=ordered).to_numpy().astype(np.int64)
        valid = _valid(array)
        indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        codes = mapping[indices] if len(mapping) else np.zeros(len(array), np.int64)
        result.append((np.ascontiguousarray(codes), valid))
    places = pc.index_in(pa.array(literals, pa.string()), value_set=ordered).to_pylist()
    return result, [int(place) for place in places]


def _sorts_fast(column: pa.Array) -> bool:
    """Whether the values of an array are encoded, and few beside its rows."""
    encoded = pa.types.is_dictionary(column.type) and column.type.value_type == pa.string()
    return encoded and 4 * len(column.dictionary) <= len(column)


@kernel
def shift_rows(offsets, shift, rows):  # type: ignore[no-untyped-def]
    """Set ``rows[i]`` to ``i + shift``, or -1 where that leaves the partition."""
    for g in range(offsets.shape[0] - 1):
        begin = offsets[g]
        end = offsets[g + 1]
        for i in range(begin, end):
            j = i + shift
            rows[i] = j if begin <= j < end else -1


@kernel
def _shift_valid(offsets, shift, source, valid):  # type: ignore[no-untyped-def]
    """``valid[i] = source[i + shift]`` within the partition, else False."""
    for g in range(offsets.shape[0] - 1):
        begin = offsets[g]
        end = offsets[g + 1]
        low = min(max(begin, begin - shift), end)
        high = max(min(end, end - shift), low)
        for i in range(begin, low):
            valid[i] = False
        for i in range(low, high):
            valid[i] = source[i + shift]
        for i in range(high, end):
            valid[i] = False


def shifted(
    values: npt.NDArray[np.generic], valid: BoolArray | None, offsets: IntArray, shift: int
) -> tuple[npt.NDArray[np.generic], BoolArray]:
    """A numeric column shifted by ``shift`` rows within partitions (PREV: negative)."""
    n = len(values)
    moved = np.zeros(n, values.dtype)
    if abs(shift) < n:
        if shift >= 0:
            moved[: n - shift] = values[shift:]
        else:
            moved[-shift:] = values[:shift]
    source = valid if valid is not None else np.ones(n, np.bool_)
    kept = np.empty(n, np.bool_)
    _shift_valid(offsets, shift, np.array(source), kept)
    return moved, kept


SHORT = 8
"""Texts below so many bytes are compared as one word."""


@kernel
def _word_of(data, low, size):  # type: ignore[no-untyped-def]
    """A short text and its length; of a longer one a hash, with the first bit set."""
    if size < SHORT:
        word = np.uint64(size) << np.uint64(56)
        for k in range(size):
            word |= np.uint64(data[low + k]) << np.uint64(8 * k)
        return np.int64(word)
    word = np.uint64(0xCBF29CE484222325)
    for k in range(size):
        word = (word ^ np.uint64(data[low + k])) * np.uint64(0x100000001B3)
    return np.int64(word | (np.uint64(1) << np.uint64(63)))


@kernel
def _slot_of(word, data, low, size, ends, texts, slots):  # type: ignore[no-untyped-def]
    """The slot that holds a text, or where it belongs."""
    last = np.uint64(slots.shape[0] - 1)
    mixed = np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)
    at = np.int64((mixed ^ (mixed >> np.uint64(32))) & last)
    while slots[at, 1] >= 0:
        same = slots[at, 0] == word
        if same and size >= SHORT:
            known = ends[slots[at, 1]]
            same = ends[slots[at, 1] + 1] - known == size
            k = 0
            while same and k < size:
                same = texts[known + k] == data[low + k]
                k += 1
        if same:
            break
        at = (at + 1) & np.int64(last)
    return at


@kernel
def _number_texts(offsets, data, ends, texts, slots, count, out):  # type: ignore[no-untyped-def]
    """Number each text, new ones from ``count`` on, for which there is room; returns the count."""
    for i in range(out.shape[0]):
        low = np.int64(offsets[i])
        size = np.int64(offsets[i + 1]) - low
        word = _word_of(data, low, size)
        at = _slot_of(word, data, low, size, ends, texts, slots)
        if slots[at, 1] < 0:
            slots[at, 0] = word
            slots[at, 1] = count
            begin = ends[count]
            for k in range(size):
                texts[begin + k] = data[low + k]
            count += 1
            ends[count] = begin + size
        out[i] = slots[at, 1]
    return count


@kernel
def _fill_slots(ends, texts, count, null, slots):  # type: ignore[no-untyped-def]
    for number in range(count):
        if number != null:
            low = ends[number]
            size = ends[number + 1] - low
            word = _word_of(texts, low, size)
            at = _slot_of(word, texts, low, size, ends, texts, slots)
            slots[at, 0] = word
            slots[at, 1] = number


@kernel
def _look_up(codes, places, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        out[i] = codes[places[i]]


def looked_up(codes: IntArray, places: pa.Array) -> IntArray:
    """The code at each place."""
    out = np.empty(len(places), np.int64)
    if len(codes):
        _look_up(codes, places.cast(pa.int32()).to_numpy(), out)
    return out


class _TextNumbers:
    """Numbers of texts in the order of their first occurrence: a hash table with linear probing, at
    most half full, of a word of each text and its number.  Text ``k`` is
    ``texts[ends[k] : ends[k + 1]]``; null has a number of its own.
    """

    AT_ONCE = 1 << 14

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self.count = 0
        self._null = -1
        self._ends: IntArray = np.zeros(1, np.int64)
        self._texts = np.zeros(0, np.uint8)
        self._slots: IntArray = np.zeros((0, 2), np.int64)

    def encode(self, column: pa.Array) -> IntArray:
        if column.null_count:
            if self._null < 0:
                self._reserve(1, 0)
                self._null = self.count
                self._ends[self.count + 1] = self._ends[self.count]
                self.count += 1
            codes = np.full(len(column), self._null)
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            codes[valid] = self.encode(column.drop_null())
            return codes
        column = column.cast(pa.binary())
        codes = np.empty(len(column), np.int64)
        for low in range(0, len(column), self.AT_ONCE):
            part = column.slice(low, self.AT_ONCE)
            _, buffer, data = part.buffers()
            offsets = np.frombuffer(buffer, np.int32, len(part) + 1, 4 * part.offset)
            self._reserve(len(part), int(offsets[-1]) - int(offsets[0]))
            texts = np.frombuffer(data or b"", np.uint8)
            self.count = int(
                _number_texts(
                    offsets,
                    texts,
                    self._ends,
                    self._texts,
                    self._slots,
                    self.count,
                    codes[low : low + len(part)],
                )
            )
        return codes

    def _reserve(self, texts: int, size: int) -> None:
        """Make room for so many more texts, and bytes."""
        if self.count + texts >= len(self._ends):
            more = max(self.count + texts, 2 * len(self._ends))
            self._ends = np.concatenate([self._ends, np.zeros(more, np.int64)])
            self._slots = np.full((1 << (2 * len(self._ends) - 1).bit_length(), 2), -1)
            _fill_slots(self._ends, self._texts, self.count, self._null, self._slots)
        if int(self._ends[self.count]) + size > len(self._texts):
            more = max(size, 2 * len(self._texts))
            self._texts = np.concatenate([self._texts, np.zeros(more, np.uint8)])

    @property
    def values(self) -> pa.Array:
        """The texts by number."""
        ends = pa.array(self._ends[: self.count + 1], pa.int64())
        buffers = [None, ends.buffers()[1], pa.py_buffer(self._texts)]
        texts = pa.Array.from_buffers(pa.large_binary(), self.count, buffers)
        if self._null >= 0:
            texts = pc.if_else(pa.array(np.arange(self.count) != self._null), texts, None)
        return texts.cast(pa.binary()).cast(self._type)


class _ValueNumbers:
    """Numbers of values of any other type."""

    def __init__(self) -> None:
        self._known: pa.Array | None = None

    @property
    def count(self) -> int:
        return 0 if self._known is None else len(self._known)

    def encode(self, column: pa.Array) -> IntArray:
        encoded = pc.dictionary_encode(comparable(column), null_encoding="encode")
        codes = self._codes_of(encoded.dictionary)
        return looked_up(codes, encoded.indices)

    def _codes_of(self, fresh: pa.Array) -> IntArray:
        if self._known is None:
            self._known = fresh
            return np.arange(len(fresh), dtype=np.int64)
        found = pc.index_in(fresh, value_set=self._known)
        missing = found.is_null()
        codes = found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        absent = np.flatnonzero(missing.to_numpy(zero_copy_only=False))
        if len(absent):
            codes[absent] = len(self._known) + np.arange(len(absent))
            self._known = pa.concat_arrays([self._known, fresh.take(pa.array(absent))])
        return codes


class _Codes:
    """Codes of one column.  Values of a dictionary get theirs once, when it is first seen."""

    def __init__(self) -> None:
        self.numbers: _TextNumbers | _ValueNumbers | None = None
        self._dictionary: pa.Array | None = None
        self._mapping: IntArray = np.zeros(0, np.int64)  # code of each value of the dictionary

    def encode(self, column: pa.Array) -> IntArray:
        encoded = pa.types.is_dictionary(column.type)
        if self.numbers is None:
            type_ = column.type.value_type if encoded else column.type
            text = type_ in (pa.string(), pa.binary())
            self.numbers = _TextNumbers(type_) if text else _ValueNumbers()
        if not encoded:
            return self.numbers.encode(column)
        if self._dictionary is None or not _same_buffers(column.dictionary, self._dictionary):
            self._dictionary = column.dictionary
            self._mapping = self.numbers.encode(column.dictionary)
        codes, indices = self._mapping, column.indices
        if column.null_count:
            codes = np.append(codes, self.numbers.encode(pa.nulls(1, column.type.value_type)))
            indices = indices.fill_null(len(codes) - 1)
        return looked_up(codes, indices)


def _same_buffers(a: pa.Array, b: pa.Array) -> bool:
    def place(array: pa.Array) -> tuple[Any, ...]:
        return (len(array), array.offset, *(x and x.address for x in array.buffers()))

    return place(a) == place(b)


class KeyCodes:
    """Codes of partition keys of one or more columns."""

    def __init__(self, columns: int) -> None:
        self.columns = [_Codes() for _ in range(columns)]
        self.pairs = [_Codes() for _ in range(columns - 1)]
        self.count = 0

    def encode(self, keys: list[pa.ChunkedArray]) -> IntArray:
        """Dense codes of the rows of a batch; ``count`` is the number of codes so far."""
        codes = self.columns[0].encode(whole(keys[0]))
        known = self.columns[0]
        for i, key in enumerate(keys[1:]):
            other = self.columns[i + 1].encode(whole(key))
            pair = (codes << 31) | other
            known = self.pairs[i]
            codes = known.encode(pa.array(pair))
        assert known.numbers is not None
        self.count = known.numbers.count
        return codes

    @property
    def texts(self) -> pa.Array:
        """Values by code, of a key that is one column of texts."""
        numbers = self.columns[0].numbers
        assert isinstance(numbers, _TextNumbers)
        return numbers.values


@kernel
def _counting_sort(codes, offsets, order):  # type: ignore[no-untyped-def]
    for i in range(codes.shape[0]):
        offsets[codes[i] + 1] += 1
    for g in range(1, offsets.shape[0]):
        offsets[g] += offsets[g - 1]
    cursor = offsets.copy()
    for i in range(codes.shape[0]):
        code = codes[i]
        order[cursor[code]] = i
        cursor[code] += 1


@kernel
def _live_rows(words, first_bits, codes, live, seen, rows):  # type: ignore[no-untyped-def]
    """Rows of the groups in which a row has one of the bits; other groups that have rows are marked
    as ``seen``.  Returns how many rows.
    """
    for i in range(words.shape[0]):
        if words[i] & first_bits:
            live[codes[i]] = True
    count = 0
    for i in range(words.shape[0]):
        rows[count] = i
        code = codes[i]
        if live[code]:
            count += 1
        else:
            seen[code] = True
    return count


def live_rows(
    words: npt.NDArray[np.uint64], first_bits: Any, codes: IntArray, seen: BoolArray
) -> IntArray:
    """Rows of groups in which a match can begin; ``seen``: groups with rows; updated."""
    rows = np.empty(len(words), np.int64)
    count = _live_rows(words, first_bits, codes, np.zeros(len(seen), np.bool_), seen, rows)
    return rows[:count]


def group_rows(codes: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Row numbers sorted by code, and ``count + 1`` offsets of the codes."""
    offsets = np.zeros(count + 1, np.int64)
    order = np.empty(len(codes), np.int64)
    _counting_sort(codes, offsets, order)
    return order, offsets


def present_groups(codes: IntArray, count: int) -> tuple[IntArray, IntArray, IntArray]:
    """Rows by code (stable), the codes that occur in ascending order, and their offsets."""
    if count == 1:
        return np.arange(len(codes)), codes[:1].copy(), np.array([0, len(codes)], np.int64)
    if len(codes) > count:
        order, offsets = group_rows(codes, count)
        some = np.flatnonzero(offsets[1:] > offsets[:-1])
        return order, some, np.append(offsets[some], len(codes))
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    first = np.flatnonzero(np.diff(in_order, prepend=in_order[0] - 1))
    return order, in_order[first], np.append(first, len(codes)).astype(np.int64)


@kernel
def _fill_ranges(begin, end, out):  # type: ignore[no-untyped-def]
    at = 0
    for g in range(begin.shape[0]):
        for i in range(begin[g], end[g]):
            out[at] = i
            at += 1


def take_ranges(begin: IntArray, end: IntArray) -> IntArray:
    """Concatenation of the ranges ``begin[g] .. end[g]``."""
    total = int(np.maximum(end - begin, 0).sum())
    out = np.empty(total, np.int64)
    _fill_ranges(begin, end, out)
    return out
