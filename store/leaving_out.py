"""Removes rows from a batch by copying the ranges between them, without testing each row.

Fixed-width columns without nulls and dictionary codes are supported, in place if ``given`` in lent
memory; others are filtered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.native import kernel
from .lent_memory import is_lent
from .packing import pooled

__all__ = ["without_rows"]

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@kernel
def _copy_between(values, places, out):  # type: ignore[no-untyped-def]
    """Copy all values except those at ascending places; ``out`` may alias ``values``."""
    first = 0
    at = 0
    for k in range(places.size + 1):
        end = places[k] if k < places.size else values.size
        source = values[first:end]
        target = out[at : at + source.size]
        for i in range(source.size):
            target[i] = source[i]
        at += source.size
        first = end + 1


def without_rows(
    batch: pa.RecordBatch, places: npt.NDArray[np.int64], *, given: bool = False
) -> pa.RecordBatch:
    """A batch without ascending rows; a ``given`` batch's memory may be overwritten."""

    @cache
    def mask() -> pa.Array:
        kept = np.ones(batch.num_rows, np.bool_)
        kept[places] = False
        return pa.array(kept)

    arrays = [_left(column, places, mask, given) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _left(
    column: pa.Array, places: npt.NDArray[np.int64], mask: Callable[[], pa.Array], given: bool
) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        codes = _left(column.indices, places, mask, given)
        return pa.DictionaryArray.from_arrays(codes, column.dictionary, safe=False)
    width = _width(column)
    if not width:
        # per column: filtering a whole batch takes three times as long
        return pc.filter(column, mask())
    memory = column.buffers()[1]
    values = np.frombuffer(memory, _WORDS[width], len(column), column.offset * width)
    if given and is_lent(memory.address):  # a writable buffer may also be a mapped file
        kept = values[: values.size - places.size]
    else:
        kept = pooled(values.size - places.size, _WORDS[width])
    values.flags.writeable = False
    _copy_between(values, places, kept)
    return pa.Array.from_buffers(column.type, kept.size, [None, pa.py_buffer(kept)], 0)


def _width(column: pa.Array) -> int:
    type_ = column.type
    if column.null_count or isinstance(column, pa.ExtensionArray) or pa.types.is_nested(type_):
        return 0
    try:
        bits = type_.bit_width
    except ValueError:  # variable width
        return 0
    return bits // 8 if bits // 8 in _WORDS and not bits % 8 else 0
