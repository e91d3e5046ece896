"""Finds the last events of partitions before a position.

A value like ``price - PREV(price) PARTITION BY symbol`` needs the symbol's previous event, which
may precede the computed part.  ``last_events`` searches backwards in growing pieces::

    lowest   |<-  16384 events  ->|<- 8192 ->|<- 4096 ->| first       the part
                .                     b            a a  .             a  b  a  c
                .                 found in the second piece,   c has none: read down to lowest

Cost: the PARTITION BY columns are read until each partition has its events, or down to ``lowest``;
other columns only where such events are.
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
"""Reads an attribute at positions [first, end); None where the segment lacks it."""

Ints = npt.NDArray[np.int64]
PIECE_FIRST = 1 << 12
PIECE_MOST = 1 << 18


def as_array(found: pa.Array | pa.ChunkedArray) -> pa.Array:
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
    """The last ``count`` events per partition of ``keys`` in [lowest, first), in order."""
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
    """Ascending positions of the last ``left`` rows of each wanted partition, and whose."""
    codes = partition_codes([pa.concat_arrays(pair) for pair in zip(wanted, keys, strict=True)])
    place = np.full(int(codes.max()) + 1, -1, np.int64)
    place[codes[: len(left)]] = np.arange(len(left))
    of = place[codes[len(left) :]]
    rows = np.flatnonzero(of >= 0)
    order = rows[order_of(of[rows])]
    ends = np.searchsorted(of[order], of[order], side="right")
    kept = np.sort(order[ends - np.arange(len(order)) <= left[of[order]]])
    return kept, of[kept]
