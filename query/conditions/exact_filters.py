"""Exact predicates as Arrow filter expressions, so that simple SELECTs need no executor.

The filter is true of exactly the events that satisfy the predicate, in the executor's order: NaN
equals itself and is greater than every number, texts compare by bytes, nulls satisfy only IS NULL.
Limits: ``PARTS_MAX`` comparisons, because Arrow evaluates recursively; bytes and decimals only by
their nulls.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...schema import Attribute, Storage, StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range, Remainder

__all__ = ["exact_filter", "has_exact_filter", "whole_bounds"]

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
