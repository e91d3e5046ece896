"""Row truths: which rows of a batch satisfy an exact predicate, without the executor.

By the rules of ``exact_filters``; remainders have the sign of the dividend.  A null satisfies only
IS NULL; negations are already resolved, so there is no third value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...schema import Attribute, Storage, StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range, Remainder
from .exact_filters import has_exact_filter, whole_bounds

__all__ = ["columns_of", "has_row_truths", "row_truths"]

Truths = npt.NDArray[np.bool_]


def has_row_truths(prune: Prune | None, schema: StreamSchema) -> bool:
    return has_exact_filter(prune, schema, remainders=True)


def columns_of(prune: Prune) -> Sequence[str]:
    if isinstance(prune, AllOf | AnyOf):
        return list(dict.fromkeys(name for item in prune.items for name in columns_of(item)))
    return [] if isinstance(prune, Never) else [prune.column]


def row_truths(prune: Prune, batch: pa.RecordBatch, schema: StreamSchema) -> Truths:
    if isinstance(prune, AllOf | AnyOf):
        every = isinstance(prune, AllOf)
        found = np.full(batch.num_rows, every, np.bool_)
        for item in prune.items:
            truths = row_truths(item, batch, schema)
            (np.logical_and if every else np.logical_or)(found, truths, out=found)
        return found
    if isinstance(prune, Never):
        return np.zeros(batch.num_rows, np.bool_)
    column = batch.column(batch.schema.get_field_index(prune.column))
    if isinstance(prune, IsNull):
        return _bits(column.is_null())
    if isinstance(prune, NotNull):
        return _bits(column.is_valid())
    attribute = schema.attribute(prune.column)
    if pa.types.is_dictionary(column.type):
        of_values = pa.array(_of_values(prune, column.dictionary, attribute))
        return _bits(of_values.take(column.indices).fill_null(False))
    found = _of_values(prune, column, attribute)
    return found & _bits(column.is_valid()) if column.null_count else found


def _of_values(prune: Range | Remainder, column: pa.Array, attribute: Attribute) -> Truths:
    """Which values satisfy a comparison; undefined for nulls."""
    if attribute.storage in (Storage.SIGNED, Storage.UNSIGNED):
        values = _numbers(column)
        if isinstance(prune, Range):
            bounds = whole_bounds(attribute, prune)
            if bounds is None:
                return np.zeros(len(column), np.bool_)
            return _within(values, *bounds)
        most = prune.divisor - 1  # greatest absolute remainder
        low, high = prune.low, prune.high
        if (low is not None and low > most) or (high is not None and high < -most):
            return np.zeros(len(column), np.bool_)
        low = None if low is None or low <= -most else low
        high = None if high is None or high >= most else high
        return _within(np.fmod(values, values.dtype.type(prune.divisor)), low, high)
    assert isinstance(prune, Range)
    if attribute.storage is Storage.FLOAT:
        return _doubles(_numbers(column), prune)
    found = np.ones(len(column), np.bool_)
    for bound, is_open, closed, strict in (
        (prune.low, prune.low_open, pc.greater_equal, pc.greater),
        (prune.high, prune.high_open, pc.less_equal, pc.less),
    ):
        if bound is None:
            continue
        compared = (strict if is_open else closed)(column, pa.scalar(bound, column.type))
        found &= _bits(compared.fill_null(False))
    return found


def _within(values: npt.NDArray[np.integer], low: int | None, high: int | None) -> Truths:
    of = values.dtype.type
    if low is not None and low == high:
        return np.asarray(values == of(low))
    found = np.ones(values.size, np.bool_)
    if low is not None:
        found &= values >= of(low)
    if high is not None:
        found &= values <= of(high)
    return found


def _doubles(values: npt.NDArray[np.floating], range_: Range) -> Truths:
    """Comparisons of floating-point numbers as doubles, with NaN as the greatest."""
    found = np.ones(values.size, np.bool_)
    if range_.low is not None:
        low = np.float64(range_.low)
        found &= values > low if range_.low_open else values >= low
        if range_.high is None:
            found |= np.isnan(values)
    if range_.high is not None:
        high = np.float64(range_.high)
        found &= values < high if range_.high_open else values <= high
    return found


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    type_ = column.type
    if pa.types.is_floating(type_):
        dtype = np.dtype(f"f{type_.bit_width // 8}")
    else:
        dtype = np.dtype(
            f"{'u' if pa.types.is_unsigned_integer(type_) else 'i'}{type_.bit_width // 8}"
        )
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(buffer, dtype, len(column), column.offset * dtype.itemsize)


def _bits(array: pa.BooleanArray) -> Truths:
    if not len(array):
        return np.zeros(0, np.bool_)
    first, end = array.offset, array.offset + len(array)
    packed = np.frombuffer(array.buffers()[1], np.uint8)[first >> 3 : (end + 7) >> 3]
    bits = np.unpackbits(packed, bitorder="little")[first & 7 :][: len(array)]
    return bits.view(np.bool_)
