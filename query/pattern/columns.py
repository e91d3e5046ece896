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
from ...core.pair_numbers import PairNumbers
from ...core.sorting import counted_order
from ...core.text_numbers import TextNumbers
from ...core.times import TICKS_PER_SECOND
from ...store.packing import pooled
from ..conditions.constants import comparable
from .search import horizon

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


def codes_and_values(column: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Place of each row's value among the values of an encoded array; the last one is null."""
    values = column.dictionary
    codes = column.indices.cast(pa.int32()).fill_null(len(values)).to_numpy(zero_copy_only=False)
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
    strings = pa.concat_arrays([e.dictionary for e in encoded] + [pa.array(literals, pa.string())])
    ordered = pc.unique(strings)
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
    present = np.empty(n, np.bool_)
    _shift_valid(offsets, shift, np.array(source), present)
    return moved, present


@kernel
def _look_up(mapping, places, fresh, out):  # type: ignore[no-untyped-def]
    """Code of each place; ``mapping`` has codes plus one.  Returns how many places have none yet
    (0 in ``mapping``), which are listed in ``fresh``, once each.
    """
    count = 0
    for i in range(out.shape[0]):
        code = mapping[places[i]]
        if code == 0:
            fresh[count] = places[i]
            count += 1
            mapping[places[i]] = -1
        out[i] = code - 1
    return count


class _Codes:
    """Codes of one column.  Values of a dictionary get theirs when a row first has them, so a
    batch costs its rows, however large the dictionary is.
    """

    def __init__(self) -> None:
        self.numbers: TextNumbers | PairNumbers | None = None
        self._dictionary: pa.Array | None = None
        self._mapping: IntArray = np.zeros(0, np.int64)  # code + 1 of each value, then of null

    def encode(self, column: pa.ChunkedArray | pa.Array) -> IntArray:
        if not pa.types.is_dictionary(column.type):
            return self._codes_of(whole(column))
        if isinstance(column, pa.Array):
            return self._looked_up(column)
        # dictionaries of chunks are not joined, which would cost their size
        chunks = [self._looked_up(chunk) for chunk in column.chunks]
        return np.concatenate(chunks or [np.zeros(0, np.int64)])

    def _looked_up(self, column: pa.DictionaryArray) -> IntArray:
        values = column.dictionary
        if self._dictionary is None or not _same_buffers(values, self._dictionary):
            self._dictionary, self._mapping = values, np.zeros(len(values) + 1, np.int64)
        indices = column.indices
        if indices.type != pa.int32():
            indices = indices.cast(pa.int32())
        if indices.null_count:
            indices = indices.fill_null(len(values))
        places, out = indices.to_numpy(), pooled(len(column), np.int64)
        fresh = np.empty(min(len(places), len(self._mapping)), np.int64)
        count = _look_up(self._mapping, places, fresh, out)
        if count:
            fresh = fresh[:count]
            absent = fresh == len(values)
            if 2 * count > len(values) and not absent.any():
                fresh, texts = np.arange(len(values)), values
            else:
                texts = values.take(pa.array(fresh, mask=absent))
            self._mapping[fresh] = self._codes_of(texts) + 1
            _look_up(self._mapping, places, fresh, out)
        return out

    def _codes_of(self, column: pa.Array) -> IntArray:
        column = comparable(column)
        type_ = column.type
        if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
            signed = column.view(pa.int64()) if type_ == pa.uint64() else column
            values, valid = numbers(signed, "i")
            pairs = np.empty((len(column), 2), np.int64)
            pairs[:, 0], pairs[:, 1] = values, 0 if valid is None else ~valid
            self.numbers = self.numbers or PairNumbers()
            return self.numbers.take(pairs.view(np.uint64))
        if type_ not in (pa.string(), pa.binary()):
            column = column.cast(pa.string() if pa.types.is_decimal(type_) else pa.binary())
        self.numbers = self.numbers or TextNumbers()
        return self.numbers.take(column)


def _same_buffers(a: pa.Array, b: pa.Array) -> bool:
    def place(array: pa.Array) -> tuple[Any, ...]:
        return (len(array), array.offset, *(x and x.address for x in array.buffers()))

    return place(a) == place(b)


class KeyCodes:
    """Codes of partition keys; without columns every row has the code 0."""

    def __init__(self, columns: int) -> None:
        self.columns = [_Codes() for _ in range(columns)]
        self.pairs = [PairNumbers() for _ in range(columns - 1)]

    def encode(self, keys: Sequence[pa.ChunkedArray | pa.Array]) -> IntArray:
        """Dense codes of rows by their keys; ``count`` is the number of codes so far."""
        codes = self.columns[0].encode(keys[0])
        for column, pairs, key in zip(self.columns[1:], self.pairs, keys[1:], strict=True):
            other = column.encode(key)
            codes = pairs.take(np.column_stack([codes, other]).view(np.uint64))
        return codes

    def of_rows(self, rows: pa.Table, names: Sequence[str]) -> IntArray:
        """As ``encode``, of the rows of a table."""
        if not names or not rows.num_rows:
            return np.zeros(rows.num_rows, np.int64)
        return self.encode([rows.column(name) for name in names])

    @property
    def count(self) -> int:
        if not self.columns:
            return 1
        last = self.pairs[-1] if self.pairs else self.columns[0].numbers
        return 0 if last is None else last.count

    @property
    def texts(self) -> pa.Array:
        """Values by code, of a key that is one column of texts."""
        assert isinstance(self.columns[0].numbers, TextNumbers)
        return self.columns[0].numbers.values


@kernel
def _first_rows(codes, known, rows):  # type: ignore[no-untyped-def]
    """First row of each new code."""
    for i in range(codes.shape[0] - 1, -1, -1):
        if codes[i] >= known:
            rows[codes[i] - known] = i


def new_rows(codes: IntArray, known: int, count: int) -> IntArray:
    """The first row of each code from ``known`` up to ``count``."""
    first = np.empty(count - known, np.int64)
    _first_rows(codes, known, first)
    return first


class StoredKeys:
    """Dense codes of keys by first appearance, and the keys by code.  Rows are not encoded.
    Equality is that of GROUP BY: null = null, NaN = NaN, -0.0 = 0.0.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        self.columns = list(columns)
        self.table = pa.schema([schema.field(name) for name in columns]).empty_table()
        self._codes = KeyCodes(len(self.columns))

    @property
    def count(self) -> int:
        return self._codes.count

    def encode(self, rows: pa.Table) -> IntArray:
        codes, known = self._codes.of_rows(rows, self.columns), self.table.num_rows
        if self.columns and self._codes.count > known:
            first = new_rows(codes, known, self._codes.count)
            fresh = rows.select(self.columns).take(pa.array(first)).columns
            added = pa.table(fresh, schema=self.table.schema)  # a filter drops NOT NULL
            self.table = pa.concat_tables([self.table, added])
            if self.table.column(0).num_chunks > CHUNKS_MAX:
                self.table = self.table.combine_chunks()
        return codes

    def at(self, codes: IntArray) -> pa.Table:
        return self.table.take(pa.array(codes))

    def arrays(self, codes: IntArray) -> list[pa.Array]:
        return [flat(column) for column in self.at(codes).columns]

    def keep(self, codes: IntArray) -> None:
        """Forget all other keys; ``codes[i]`` becomes i."""
        self.table = self.at(codes).combine_chunks()
        self._codes = KeyCodes(len(self.columns))
        self._codes.of_rows(self.table, self.columns)


CHUNKS_MAX = 64
_OPEN, _KEPT, _PASSED = 1, 2, 4
_PROBE = 1 << 14


@kernel
def _live_rows(words, first_bits, idle, breaks, codes, time, window, state, until, rows):  # type: ignore[no-untyped-def]
    """Rows of groups from one with ``first_bits`` on to the first behind its window or, if rows
    without bits are ``breaks``, the next of those; rows that have just the bits ``idle`` are passed
    over, since they neither continue nor end a match.
    ``state``, per group: a match is ``_OPEN``, rows were ``_KEPT``, rows were ``_PASSED`` over
    before those; ``until``: end of its window.  Returns how many rows, or -1 for all, if leaving a
    few out would not pay.
    """
    count = 0
    timed = time.shape[0] > 0
    for i in range(words.shape[0]):  # without branches, which random rows would mispredict
        if i == _PROBE and 4 * count > 3 * i:
            return -1
        word, code = words[i], codes[i]
        before, first = state[code], word & first_bits != 0
        closes = (word == 0) & breaks
        if timed:
            until[code] = horizon(time[i], window) if first else until[code]
            closes |= time[i] > until[code]
        counts = (word != idle) | (idle == 0)
        rows[count] = i
        count += counts & (first | (before & _OPEN != 0))
        after = (before | _KEPT) if first else (before if before else np.uint8(_PASSED))
        after = (after | _OPEN) if first else (after & ~_OPEN if closes else after)
        state[code] = after if counts else before
    return count


@kernel
def _arrange(rows, codes, words, offsets, order, arranged):  # type: ignore[no-untyped-def]
    for n in range(rows.shape[0]):
        offsets[codes[rows[n]] + 1] += 1
    for g in range(1, offsets.shape[0]):
        offsets[g] += offsets[g - 1]
    cursor = offsets.copy()
    for n in range(rows.shape[0]):
        row = rows[n]
        place = cursor[codes[row]]
        cursor[codes[row]] = place + 1
        order[place], arranged[place] = row, words[row]


def arrange(
    rows: IntArray | None, codes: IntArray, groups: int, words: npt.NDArray[np.uint64]
) -> tuple[IntArray, IntArray, npt.NDArray[np.uint64]]:
    """Rows (None: all) by code, stable; offsets of the ``groups`` codes; the words of the rows."""
    if rows is None:
        order, offsets = counted_order(codes, groups)
        return order, offsets, words[order]
    order, arranged = np.empty(len(rows), np.int64), np.empty(len(rows), np.uint64)
    offsets = np.zeros(groups + 1, np.int64)
    _arrange(rows, codes, words, offsets, order, arranged)
    return order, offsets, arranged


def live_rows(
    words: npt.NDArray[np.uint64],
    first_bits: Any,
    idle: Any,
    breaks: bool,
    codes: IntArray,
    time: IntArray,
    window: int,
    seen: BoolArray,
) -> IntArray | None:
    """Rows that a match can contain or that end one, in order; None: all rows.  ``breaks``: no
    match goes over a row without bits.  ``time``: ascending, or empty without a ``window``.
    ``seen``: groups of which earlier rows were left out; updated.
    """
    rows, state = pooled(len(words), np.int64), np.zeros(len(seen), np.uint8)
    until = np.zeros(len(seen) if len(time) else 0, np.int64)
    count = _live_rows(
        words, first_bits, idle, breaks, codes, time, window, state, until, rows
    )  # fmt: skip
    if count < 0:
        return None
    seen |= state & _PASSED != 0
    return rows[:count]


def present_groups(codes: IntArray, count: int) -> tuple[IntArray, IntArray, IntArray]:
    """Rows by code (stable), the codes that occur in ascending order, and their offsets."""
    if count == 1:
        return np.arange(len(codes)), codes[:1].copy(), np.array([0, len(codes)], np.int64)
    if len(codes) > count:
        order, offsets = counted_order(codes, count)
        some = np.flatnonzero(offsets[1:] > offsets[:-1])
        return order, some, np.append(offsets[some], len(codes))
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    begins = np.ones(len(codes) + 1, np.bool_)
    begins[1:-1] = in_order[1:] != in_order[:-1]
    offsets = begins.nonzero()[0]
    return order, in_order[offsets[:-1]], offsets


@kernel
def ranks(codes, ticks, tick, rank, out):  # type: ignore[no-untyped-def]
    """Rank of each row in its partition and tick, by arrival; ``tick``, ``rank``: of the last row
    of each partition, updated.
    """
    for i in range(codes.shape[0]):
        g = codes[i]
        rank[g] = rank[g] + 1 if ticks[i] == tick[g] else 0
        tick[g] = ticks[i]
        out[i] = rank[g]


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
