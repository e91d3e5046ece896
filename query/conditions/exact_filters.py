"""Exact predicates as Arrow filter expressions, so that simple SELECTs need no executor.

The filter is true of exactly the events that satisfy the predicate, in the executor's order: NaN
equals itself and is greater than every number, texts compare by bytes, nulls satisfy only IS NULL.
Limits: ``PARTS_MAX`` comparisons, because Arrow evaluates recursively; bytes and decimals only by
their nulls.

``row_truths`` computes which rows of a batch satisfy an exact predicate.  Remainders have the sign
of the dividend.  A null satisfies only IS NULL; negations are already resolved, so there is no
third value.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...schema import Attribute, Storage, StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range, Remainder

PARTS_MAX = 64
_OPAQUE = (Storage.BINARY, Storage.DECIMAL, Storage.JSON, Storage.NESTED)


def has_exact_filter(prune: Prune | None, schema: StreamSchema, remainders: bool = False) -> bool:
    """Whether ``exact_filter`` supports an exact predicate (``remainders``: but for these)."""
    for number, part in enumerate(_parts(prune)):
        if number >= PARTS_MAX:
            return False
        if isinstance(part, Range):
            storage = schema.attribute(part.column).storage
            bounds = (part.low, part.high)
            if storage in _OPAQUE or any(b != b for b in bounds):
                return False
        if isinstance(part, Remainder) and not remainders:
            return False
    return True


def _parts(prune: Prune | None) -> Iterator[Prune]:
    if isinstance(prune, AllOf | AnyOf):
        for item in prune.items:
            yield from _parts(item)
    if prune is not None:
        yield prune


def exact_filter(prune: Prune, schema: StreamSchema) -> pc.Expression:
    if isinstance(prune, Never):
        return pc.scalar(False)
    if isinstance(prune, AllOf):
        return reduce(operator.and_, _each(prune, schema), pc.scalar(True))
    if isinstance(prune, AnyOf):
        return reduce(operator.or_, _each(prune, schema), pc.scalar(False))
    field = pc.field(prune.column)
    if isinstance(prune, IsNull):
        return field.is_null()
    if isinstance(prune, NotNull):
        return field.is_valid()
    assert isinstance(prune, Range)
    attribute = schema.attribute(prune.column)
    if attribute.storage in (Storage.SIGNED, Storage.UNSIGNED):
        return _whole(field, attribute, prune)
    if attribute.storage is Storage.BOOL:
        return _truth(field, prune)
    if attribute.storage is Storage.STRING:
        return _ordered(field, prune, lambda value: pa.scalar(value, attribute.type))
    return _ordered(field, prune, float, nan=True)


def _each(prune: AllOf | AnyOf, schema: StreamSchema) -> list[pc.Expression]:
    return [exact_filter(item, schema) for item in prune.items]


def whole_bounds(attribute: Attribute, range_: Range) -> tuple[int | None, int | None] | None:
    """Inclusive bounds of whole numbers, None per side if not limiting; None if no value fits."""
    bits = attribute.type.bit_width
    signed = attribute.storage is Storage.SIGNED
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    low = least if range_.low is None else int(range_.low) + range_.low_open
    high = most if range_.high is None else int(range_.high) - range_.high_open
    if low > high or low > most or high < least:
        return None
    return low if low > least else None, high if high < most else None


def _whole(field: pc.Expression, attribute: Attribute, range_: Range) -> pc.Expression:
    bounds = whole_bounds(attribute, range_)
    if bounds is None:
        return pc.scalar(False)
    low, high = bounds
    found = field.is_valid()
    if low is not None:
        found = found & (field >= _ticks(low, attribute.type))
    if high is not None:
        found = found & (field <= _ticks(high, attribute.type))
    return found


def _ticks(value: int, type_: pa.DataType) -> pa.Scalar:
    if pa.types.is_integer(type_):
        return pa.scalar(value, type_)
    return pa.scalar(value, pa.int32() if pa.types.is_date32(type_) else pa.int64()).cast(type_)


def _truth(field: pc.Expression, range_: Range) -> pc.Expression:
    low = 0 if range_.low is None else int(range_.low) + range_.low_open
    high = 1 if range_.high is None else int(range_.high) - range_.high_open
    if low > high:
        return pc.scalar(False)
    return field.is_valid() if low < high else field == bool(low)


def _ordered(field: pc.Expression, range_: Range, scalar: Any, nan: bool = False) -> pc.Expression:
    found = field.is_valid()
    if range_.low is not None:
        low = scalar(range_.low)
        above = field > low if range_.low_open else field >= low
        if nan and range_.high is None:
            above = above | field.is_nan()
        found = found & above
    if range_.high is not None:
        high = scalar(range_.high)
        found = found & (field < high if range_.high_open else field <= high)
    return found


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
