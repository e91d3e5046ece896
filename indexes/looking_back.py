"""The last events of partitions before a place: what values look back at.

Purpose
    A value like ``price - PREV(price) PARTITION BY symbol`` needs the event of the symbol before,
    which may lie before the part that is computed.  :func:`last_events` goes back from there.

Layout
    ::

        lowest   |<-  16384 events  ->|<- 8192 ->|<- 4096 ->| first       the part
                    .                     b            a a  .             a  b  a  c
                    .                 found in the second piece,   c has none: read down to lowest

Cost
    The columns of PARTITION BY are read until each partition of the part has its events, or down
    to the lowest place; the others where such events are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.sorting import firsts, order_of
from .derived_values import partition_codes

__all__ = ["ColumnReader", "as_array", "last_events"]

ColumnReader = Callable[[str, int, int], "pa.Array | pa.ChunkedArray | None"]
"""An attribute at positions [first, end) of a segment, or of all; None where it is older."""

Ints = npt.NDArray[np.int64]
PIECE_FIRST = 1 << 12
PIECE_MOST = 1 << 18


def as_array(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Values in one piece, decoded."""
    if isinstance(found, pa.ChunkedArray):
        found = found.chunk(0) if found.num_chunks == 1 else pa.concat_arrays(found.chunks)
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def last_events(
    read: ColumnReader,
    columns: Sequence[str],
    partition: Sequence[str],
    keys: Sequence[pa.Array],
    count: int,
    lowest: int,
    first: int,
) -> dict[str, pa.Array]:
    """Of each partition the last ``count`` events at positions [lowest, first), in their order.

    Parameters
    ----------
    read : callable
        Every column has values there.
    columns : sequence of str
        What is wanted of them.
    partition : sequence of str
        PARTITION BY.
    keys : sequence of pyarrow.Array
        Of events of the partitions that are wanted.
    """
    _, places = firsts(partition_codes(keys))
    wanted = [as_array(key).take(pa.array(places)) for key in keys]
    left = np.full(len(places), count, np.int64)
    found: list[dict[str, pa.Array]] = []
    high, size = first, PIECE_FIRST
    while len(left) and high > lowest:
        low = max(lowest, high - size)
        rows, of = _last_rows(wanted, [_at(read, name, low, high) for name in partition], left)
        if len(rows):
            at, end = low + int(rows[0]), low + int(rows[-1]) + 1
            taken = pa.array(rows - rows[0])
            found.append({name: _at(read, name, at, end).take(taken) for name in columns})
            left -= np.bincount(of, minlength=len(left))
            if not left.all():
                still = pa.array(np.flatnonzero(left))
                wanted, left = [key.take(still) for key in wanted], left[left > 0]
        high, size = low, min(2 * size, PIECE_MOST)
    if not found:
        return {name: _at(read, name, first, first + 1).slice(0, 0) for name in columns}
    return {name: pa.concat_arrays([some[name] for some in found[::-1]]) for name in columns}


def _at(read: ColumnReader, name: str, first: int, end: int) -> pa.Array:
    values = read(name, first, end)
    assert values is not None
    return as_array(values)


def _last_rows(
    wanted: Sequence[pa.Array], keys: Sequence[pa.Array], left: Ints
) -> tuple[Ints, Ints]:
    """Of each wanted partition the last ``left`` rows: their places, ascending, and whose.

    Parameters
    ----------
    wanted : sequence of pyarrow.Array
        Keys of one event of each partition.
    keys : sequence of pyarrow.Array
        Of the rows.
    """
    codes = partition_codes([pa.concat_arrays(pair) for pair in zip(wanted, keys, strict=True)])
    place = np.full(int(codes.max()) + 1, -1, np.int64)
    place[codes[: len(left)]] = np.arange(len(left))
    of = place[codes[len(left) :]]
    rows = np.flatnonzero(of >= 0)
    order = rows[order_of(of[rows])]
    ends = np.searchsorted(of[order], of[order], side="right")
    kept = np.sort(order[ends - np.arange(len(order)) <= left[of[order]]])
    return kept, of[kept]
