"""Vectorised evaluation of index expressions over an event and those before it.

Each value has a state; of several operands the highest state wins::

    KNOWN    a number                               compared
    ABSENT   PREV refers to a missing event         NULL, unless it lies before what was read
    NULL     an attribute has no value              NULL: no comparison is true
    UNKNOWN  NaN, infinity, overflow                may be anything

Numbers equal those of a query: doubles in the written order, 32-bit floats in their own precision,
integers exactly or UNKNOWN.

A value like ``price - PREV(price) PARTITION BY symbol`` needs the symbol's previous event, which
may precede the computed part.  ``last_events`` searches backwards in growing pieces::

    lowest   |<-  16384 events  ->|<- 8192 ->|<- 4096 ->| first       the part
                .                     b            a a  .             a  b  a  c
                .                 found in the second piece,   c has none: read down to lowest

Cost: the PARTITION BY columns are read until each partition has its events, or down to ``lowest``;
other columns only where such events are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.sorting import firsts, numbered, order_of

KNOWN, ABSENT, NULL, UNKNOWN = range(4)

_WHOLE_MAX = 2.0**62
"""Integers and results of at least this size are UNKNOWN."""


@dataclass(frozen=True)
class Value:
    """A column of the event ``back`` places before, 0 for the event itself."""

    column: str
    back: int = 0


@dataclass(frozen=True)
class Number:
    value: int | float


@dataclass(frozen=True)
class Operation:
    """``+ - * /`` of two operands, ``-`` or ``ABS`` of one."""

    symbol: str
    operands: tuple[Node, ...]


Node = Value | Number | Operation


def partition_codes(keys: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """A number per event, equal where all keys are; nulls are equal to each other."""
    codes = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        plain = key.dictionary_decode() if pa.types.is_dictionary(key.type) else key
        encoded = plain.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = numbered(codes * len(encoded.dictionary) + own)
    return codes.astype(np.int64)


def previous(keys: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Position of the previous event with the same keys, -1 without one."""
    codes = partition_codes(keys)
    order = order_of(codes)
    before = np.full(len(codes), -1, np.int64)
    same = codes[order[1:]] == codes[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def evaluated(
    tree: Node,
    columns: Mapping[str, pa.Array],
    before: npt.NDArray[np.int64] | None,
    whole: bool,
    count: int,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Values and their states; ``before`` has PREV positions, ``whole`` computes with int64."""
    if isinstance(tree, Number):
        kind = np.int64 if whole else np.float64
        return np.full(count, tree.value, kind), np.zeros(count, np.uint8)
    if isinstance(tree, Value):
        return _shifted(*_read(columns[tree.column], whole), before, tree.back)
    operands = [evaluated(operand, columns, before, whole, count) for operand in tree.operands]
    states: npt.NDArray[np.uint8] = np.maximum.reduce([part[1] for part in operands])
    parts = [part[0] for part in operands]
    values = _operated(tree.symbol, parts)
    if whole:
        about = _operated(tree.symbol, [part.astype(np.float64) for part in parts])
        states[(states == KNOWN) & ~(np.abs(about) < _WHOLE_MAX)] = UNKNOWN
    return values, states


def _operated(symbol: str, parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    values: Any
    if symbol == "ABS":
        values = np.abs(parts[0])
    elif len(parts) == 1:
        values = -parts[0]
    elif symbol == "+":
        values = parts[0] + parts[1]
    elif symbol == "-":
        values = parts[0] - parts[1]
    elif symbol == "*":
        values = parts[0] * parts[1]
    else:
        values = parts[0] / parts[1]
    result: npt.NDArray[Any] = values
    return result


def _read(array: pa.Array, whole: bool) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    null = np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
    states = np.where(null, np.uint8(NULL), np.uint8(KNOWN))
    if array.null_count:
        filler = pa.array(np.zeros(1, np.int64)).cast(array.type)[0]
        array = array.fill_null(filler)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    values = np.asarray(array.to_numpy(zero_copy_only=False))
    if whole:
        states[~null & ~(np.abs(values.astype(np.float64)) < _WHOLE_MAX)] = UNKNOWN
        return values.astype(np.int64), states
    return (values if values.dtype == np.float32 else values.astype(np.float64)), states


def _shifted(
    values: npt.NDArray[Any],
    states: npt.NDArray[np.uint8],
    before: npt.NDArray[np.int64] | None,
    back: int,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    if not back:
        return values, states
    if before is None:
        places = np.arange(len(values)) - back
    else:
        places = before
        for _ in range(back - 1):
            places = np.where(places < 0, -1, before[places])
    there = places >= 0
    at = np.maximum(places, 0)  # there may be fewer events than ``back``
    return np.where(there, values[at], 0), np.where(there, states[at], np.uint8(ABSENT))


ColumnReader = Callable[[str, int, int], "pa.Array | pa.ChunkedArray | None"]
"""Reads an attribute at positions [first, end); None where the segment lacks it."""

Ints = npt.NDArray[np.int64]
PIECE_FIRST = 1 << 12
PIECE_MOST = 1 << 18


def as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def last_events(
    read: ColumnReader,
    columns: Sequence[str],
    partition: Sequence[str],
    keys: Sequence[pa.Array],
    count: int,
    lowest: int,
    first: int,
) -> dict[str, pa.Array]:
    """The last ``count`` events per partition of ``keys`` in [lowest, first), in order."""
    _, places = firsts(partition_codes(keys))
    wanted = [as_array(key).take(pa.array(places)) for key in keys]
    left = np.full(len(places), count, np.int64)
    batches: list[dict[str, pa.Array]] = []
    high, size = first, PIECE_FIRST
    while len(left) and high > lowest:
        low = max(lowest, high - size)
        rows, of = _last_rows(wanted, [_at(read, name, low, high) for name in partition], left)
        if len(rows):
            at, end = low + int(rows[0]), low + int(rows[-1]) + 1
            taken = pa.array(rows - rows[0])
            batches.append({name: _at(read, name, at, end).take(taken) for name in columns})
            left -= np.bincount(of, minlength=len(left))
            if not left.all():
                still = pa.array(np.flatnonzero(left))
                wanted, left = [key.take(still) for key in wanted], left[left > 0]
        high, size = low, min(2 * size, PIECE_MOST)
    if not batches:
        return {name: _at(read, name, first, first + 1).slice(0, 0) for name in columns}
    return {name: pa.concat_arrays([some[name] for some in batches[::-1]]) for name in columns}


def _at(read: ColumnReader, name: str, first: int, end: int) -> pa.Array:
    values = read(name, first, end)
    assert values is not None
    return as_array(values)


def _last_rows(
    wanted: Sequence[pa.Array], keys: Sequence[pa.Array], left: Ints
) -> tuple[Ints, Ints]:
    """Ascending positions of the last ``left`` rows of each wanted partition, and whose."""
    codes = partition_codes([pa.concat_arrays(pair) for pair in zip(wanted, keys, strict=True)])
    place = np.full(int(codes.max()) + 1, -1, np.int64)
    place[codes[: len(left)]] = np.arange(len(left))
    of = place[codes[len(left) :]]
    rows = np.flatnonzero(of >= 0)
    order = rows[order_of(of[rows])]
    ends = np.searchsorted(of[order], of[order], side="right")
    positions = np.sort(order[ends - np.arange(len(order)) <= left[of[order]]])
    return positions, of[positions]
