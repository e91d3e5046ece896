"""Which rows of a batch satisfy a condition: the evaluator over arrays.

``row_truths`` decides a predicate exactly, in the executor's order: NaN equals itself and is
greater than every number, texts compare by bytes, remainders have the sign of the dividend.  A null
satisfies only IS NULL; negations are already resolved, so there is no third value.  Limits: bytes
and decimals only by their nulls.

A scan filters its batches by a ``prune.RowFilter``: a predicate, or an Arrow expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...schema import Attribute, Storage
from ...store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range, Remainder

Truths = npt.NDArray[np.bool_]
OnColumn = Range | Remainder | IsNull | NotNull
PARTS_MAX = 64
"""Of more comparisons the executor makes a hash table."""
_OPAQUE = (Storage.BINARY, Storage.DECIMAL, Storage.JSON, Storage.NESTED)


class _Members(NamedTuple):
    """A choice of equalities on a text column, which Arrow looks up in a set."""

    column: str
    texts: list[Any]

    @classmethod
    def of(cls, prune: AnyOf) -> _Members | None:
        ranges = [item for item in prune.items if isinstance(item, Range)]
        texts = [r.low for r in ranges if isinstance(r.low, str) and r.low == r.high]
        closed = not any(r.low_open or r.high_open for r in ranges)
        columns = columns_of(prune)
        if not closed or len(texts) < len(prune.items) or len(columns) != 1:
            return None
        return cls(columns[0], texts)


class Columns(Protocol):
    """A stream's schema, or the columns of any relation."""

    def attribute(self, name: str) -> Attribute: ...


@dataclass(frozen=True)
class PredicateFilter:
    """Rows that satisfy a predicate for which ``has_row_truths``."""

    predicate: Prune
    schema: Columns

    @property
    def columns(self) -> Sequence[str]:
        return columns_of(self.predicate)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        truths = row_truths(self.predicate, batch, self.schema)
        return batch if truths.all() else batch.filter(pa.array(truths))


@dataclass(frozen=True)
class ExpressionFilter:
    """Rows for which an Arrow expression is true; ``columns`` may name more than it reads."""

    expression: pc.Expression
    columns: tuple[str, ...]

    @classmethod
    def of(cls, expression: pc.Expression, names: Sequence[str]) -> ExpressionFilter:
        text = str(expression)
        return cls(expression, tuple(name for name in names if name in text))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(self.expression)


def has_row_truths(prune: Prune | None, schema: Columns) -> bool:
    """Whether ``row_truths`` supports an exact predicate."""
    for number, part in enumerate(_parts(prune)):
        if number >= PARTS_MAX:
            return False
        if isinstance(part, Range):
            storage = schema.attribute(part.column).storage
            if storage in _OPAQUE or any(bound != bound for bound in (part.low, part.high)):
                return False
    return True


def _parts(prune: Prune | None) -> Iterator[Prune]:
    if isinstance(prune, AllOf | AnyOf):
        for item in prune.items:
            yield from _parts(item)
    elif prune is not None:
        yield prune


def columns_of(prune: Prune) -> Sequence[str]:
    one = (part for part in _parts(prune) if isinstance(part, OnColumn))
    return list(dict.fromkeys(part.column for part in one))


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


def row_truths(prune: Prune, batch: pa.RecordBatch, schema: Columns) -> Truths:
    """Which rows satisfy an exact predicate; texts may be dictionary-encoded."""
    members = _Members.of(prune) if isinstance(prune, AnyOf) else None
    if members is not None:
        return _column_truths(members, batch, schema)
    if isinstance(prune, AllOf | AnyOf):
        every = isinstance(prune, AllOf)
        truths = np.full(batch.num_rows, every, np.bool_)
        for item in prune.items:
            of_item = row_truths(item, batch, schema)
            (np.logical_and if every else np.logical_or)(truths, of_item, out=truths)
        return truths
    if isinstance(prune, Never):
        return np.zeros(batch.num_rows, np.bool_)
    return _column_truths(prune, batch, schema)


def _column_truths(test: OnColumn | _Members, batch: pa.RecordBatch, schema: Columns) -> Truths:
    column = batch.column(batch.schema.get_field_index(test.column))
    if isinstance(test, IsNull):
        return _bits(column.is_null())
    if isinstance(test, NotNull):
        return _bits(column.is_valid())
    attribute = schema.attribute(test.column)
    if pa.types.is_dictionary(column.type):
        of_values = pa.array(_of_values(test, column.dictionary, attribute))
        return _bits(of_values.take(column.indices).fill_null(False))
    truths = _of_values(test, column, attribute)
    return truths & _bits(column.is_valid()) if column.null_count else truths


def _of_values(
    prune: Range | Remainder | _Members, column: pa.Array, attribute: Attribute
) -> Truths:
    """Which values satisfy a comparison; undefined for nulls."""
    if isinstance(prune, _Members):
        return _bits(pc.is_in(column, value_set=pa.array(prune.texts, column.type)))
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
