"""Predicate pushdown: what min, max and null counts rule out (queries.md section 1).

A predicate of ranges becomes a mask over the columns of an entry table, for nodes and for the zones
of a leaf.  Sound, with false positives: a masked-out child holds no event for which the predicate
is true.  Nulls never satisfy a range; NaN is the greatest value.  Strings are compared by their
first eight bytes, decimals and remainders not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..schema import StreamSchema
from .layout import ROW_ATTRIBUTES, ROW_COUNT, ROW_FIRST, ROW_LAST, ROWS_PER_ATTRIBUTE, ValueKind
from .layout import value_kind as kind_of

Value = int | float | str | bytes | bool
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Range:
    """True where the value is in a range, open or closed; times are in the column's own unit."""

    column: str
    low: Value | None = None
    high: Value | None = None
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True)
class Remainder:
    """True where the remainder, with the value's sign, is in the inclusive range."""

    column: str
    divisor: int
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class IsNull:
    column: str


@dataclass(frozen=True)
class NotNull:
    column: str


@dataclass(frozen=True)
class AllOf:
    """True where every item is; true without items."""

    items: tuple[Prune, ...]


@dataclass(frozen=True)
class AnyOf:
    """True where some item is; false without items."""

    items: tuple[Prune, ...]


@dataclass(frozen=True)
class Never:
    """True nowhere."""


Prune = Range | Remainder | IsNull | NotNull | AllOf | AnyOf | Never


class RowFilter(Protocol):
    """Which rows of a batch pass, exactly; reads ``columns``."""

    @property
    def columns(self) -> Sequence[str]: ...

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch: ...


class Pruner:
    """A predicate bound to a segment's schema; a missing column is null."""

    def __init__(self, predicate: Prune, schema: StreamSchema) -> None:
        self._predicate = predicate
        self._rows = {
            attribute.name: ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * position
            for position, attribute in enumerate(schema.payload)
        }
        self._kinds = {attribute.name: kind_of(attribute) for attribute in schema.payload}
        self._time = schema.time

    def mask(self, table: npt.NDArray[np.int64]) -> Mask:
        """Which children (or zones) of a table may hold an event that satisfies the predicate."""
        return self._mask(self._predicate, table)

    def _mask(self, predicate: Prune, table: npt.NDArray[np.int64]) -> Mask:
        children = table.shape[1]
        if isinstance(predicate, AllOf):
            result = np.ones(children, np.bool_)
            for item in predicate.items:
                result &= self._mask(item, table)
            return result
        if isinstance(predicate, AnyOf):
            result = np.zeros(children, np.bool_)
            for item in predicate.items:
                result |= self._mask(item, table)
            return result
        if isinstance(predicate, Never):
            return np.zeros(children, np.bool_)
        name = predicate.column
        if name == self._time:
            if isinstance(predicate, Range):
                return _bounds(table[ROW_FIRST], table[ROW_LAST], predicate)
            return np.full(children, isinstance(predicate, NotNull | Remainder), np.bool_)
        row = self._rows.get(name)
        if row is None:  # added after this segment was written: null throughout
            return np.full(children, isinstance(predicate, IsNull), np.bool_)
        valid = table[row]
        if isinstance(predicate, IsNull):
            return np.asarray(valid < table[ROW_COUNT])
        present: Mask = np.asarray(valid > 0)
        if isinstance(predicate, NotNull | Remainder):
            return present
        kind = self._kinds[name]
        low: Any = table[row + 1]
        high: Any = table[row + 2]
        if kind is ValueKind.COUNT:
            return present
        if kind is ValueKind.FLOAT:
            return present & _float_mask(low.view(np.float64), high.view(np.float64), predicate)
        if kind is ValueKind.PREFIX:
            return present & _prefix_mask(low.view(np.uint64), high.view(np.uint64), predicate)
        if kind is ValueKind.UNSIGNED:
            low, high = low.view(np.uint64), high.view(np.uint64)
        return present & _bounds(low, high, predicate)


def integer_bound(value: Value, upper: bool, is_open: bool) -> int | None:
    """The closed integer bound equivalent to a bound; None when it excludes nothing."""
    if isinstance(value, float):
        if math.isnan(value):
            # NaN is greater than every integer: an upper bound excludes nothing, a lower one all
            return None if upper else 2**65
        if math.isinf(value):
            return (2**65 if value > 0 else -(2**65)) if (value > 0) != upper else None
        whole = math.floor(value) if upper else math.ceil(value)
        if whole != value:
            return whole
        value = whole
    if isinstance(value, (str, bytes)):
        return None
    number = int(value)
    if is_open:
        return number - 1 if upper else number + 1
    return number


def _bounds(low: Any, high: Any, predicate: Range) -> Mask:
    result = np.ones(len(low), np.bool_)
    info = np.iinfo(low.dtype)
    if predicate.low is not None:
        bound = integer_bound(predicate.low, False, predicate.low_open)
        if bound is not None:
            if bound > info.max:
                result[:] = False
            elif bound > info.min:
                result &= high >= low.dtype.type(bound)
    if predicate.high is not None:
        bound = integer_bound(predicate.high, True, predicate.high_open)
        if bound is not None:
            if bound < info.min:
                result[:] = False
            elif bound < info.max:
                result &= low <= low.dtype.type(bound)
    return result


def float_bound(value: Value, upper: bool) -> float | None:
    """The double nearest to a bound, on its outer side; None for texts."""
    if isinstance(value, (str, bytes)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    if isinstance(value, int) and int(number) != value if math.isfinite(number) else False:
        return math.nextafter(number, math.inf if upper else -math.inf)
    return number


def _float_mask(
    low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], predicate: Range
) -> Mask:
    result = np.ones(len(low), np.bool_)
    with np.errstate(invalid="ignore"):
        if predicate.low is not None:
            bound = float_bound(predicate.low, upper=False)
            if bound is not None and math.isnan(bound):
                result &= np.isnan(high)
                if predicate.low_open:
                    result[:] = False
            elif bound is not None:
                above = high > bound if predicate.low_open else high >= bound
                result &= above | np.isnan(high)
        if predicate.high is not None:
            bound = float_bound(predicate.high, upper=True)
            if bound is not None and math.isnan(bound):
                if predicate.high_open:
                    result &= ~np.isnan(low)
            elif bound is not None:
                below = low < bound if predicate.high_open else low <= bound
                result &= below
    return result


def prefix_of(value: str | bytes) -> int:
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return int.from_bytes(raw[:8].ljust(8, b"\0"), "big")


def _prefix_mask(
    low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64], predicate: Range
) -> Mask:
    result = np.ones(len(low), np.bool_)
    if isinstance(predicate.low, (str, bytes)):
        result &= high >= np.uint64(prefix_of(predicate.low))
    if isinstance(predicate.high, (str, bytes)):
        result &= low <= np.uint64(prefix_of(predicate.high))
    return result
