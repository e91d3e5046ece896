"""Leaving rows out of a batch: what is between them is copied in one piece.

Purpose
    A delete takes some of a leaf's rows out of every column.  A filter asks each row; here the
    stretches between the rows that go are copied, which costs what copying a column costs.

Guarantee
    What comes back has the rows that stay, in their order, and shares no memory with the batch but
    dictionaries.  A batch that nobody else has may be given away: then columns in lent memory
    close up where they lie, and need no other.

Limits
    Columns of fixed width without nulls, and codes of texts; others are filtered.
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
"""What values of so many bytes are copied as."""


@kernel
def _copy_between(values, places, out):  # type: ignore[no-untyped-def]
    """Copy all values but those at some places, which ascend; ``out`` may begin where they do."""
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
    """A batch without some rows.

    Parameters
    ----------
    places : int64[n]
        Row numbers, ascending, each once.
    given : bool
        Nobody uses the batch or its memory any more, which may be overwritten.
    """

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
        # by itself: a whole batch is filtered by way of positions, in three times the time
        return pc.filter(column, mask())
    memory = column.buffers()[1]
    values = np.frombuffer(memory, _WORDS[width], len(column), column.offset * width)
    if given and is_lent(memory.address):  # what lies in a file may be writable, too
        kept = values[: values.size - places.size]
    else:
        kept = pooled(values.size - places.size, _WORDS[width])
    values.flags.writeable = False
    _copy_between(values, places, kept)
    return pa.Array.from_buffers(column.type, kept.size, [None, pa.py_buffer(kept)], 0)


def _width(column: pa.Array) -> int:
    """Bytes of a value, where each has so many and none is null; else 0."""
    type_ = column.type
    if column.null_count or isinstance(column, pa.ExtensionArray) or pa.types.is_nested(type_):
        return 0
    try:
        bits = type_.bit_width
    except ValueError:  # texts and the like
        return 0
    return bits // 8 if bits // 8 in _WORDS and not bits % 8 else 0
