"""Maps the aggregates of a query to the fields of partials, and partials to Arrow columns.

Result types are those of the executor: count int64, avg float64, min and max the attribute's type,
sum float64 or, for integers and booleans, decimal128(38, 0), exact (InvalidArgument beyond 38
digits).  first and last include nulls.  The relative error of deviations is below ``n * 2**-52 * (1
+ |mean| / deviation)`` for n values.  The tree stores no min and max of strings, binaries and
decimals, and no sums of decimals; ``supports`` is then false.

A roll-up's smaller windows (grains) have partial aggregates, from which larger windows are
computed.  Grains become events whose time is the number of the query's window.  A 128-bit partial
becomes two attributes: ``sum = 2**64 * sum(upper, signed) + sum(lower, unsigned)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import InvalidArgument
from ...schema import Attribute, Storage, StreamSchema
from ...store.layout import ROW_ATTRIBUTES, ROW_COUNT, ROW_FIRST, ROW_LAST, ROWS_PER_ATTRIBUTE
from . import kernels as k

Words = npt.NDArray[np.int64]

FUNCTIONS = ("count", "sum", "min", "max", "avg")
"""Aggregates that the tree stores."""

_ORDERED = {"first": k.FIRST, "last": k.LAST, "any_value": k.FIRST_VALUE}
_DEVIATIONS = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
_NUMBERS = (Storage.SIGNED, Storage.UNSIGNED, Storage.FLOAT)
_FIXED = (*_NUMBERS, Storage.BOOL)
_WIDTHS = {k.SUM_WIDE: 2, k.SUM_FLOAT: 2, k.FIRST: 2, k.LAST: 2, k.FIRST_VALUE: 2, k.MOMENTS: 3}

COLUMN_MISSING = -3  # the segment lacks the field's attribute

_LOADS = {8: 0, 4: 1, 2: 2, 1: 3}
_LOAD_BOOL = 10
_LOAD_VALIDITY = 11

_MIN = {Storage.SIGNED: k.MIN_SIGNED, Storage.FLOAT: k.MIN_FLOAT}
_MAX = {Storage.SIGNED: k.MAX_SIGNED, Storage.FLOAT: k.MAX_FLOAT}
_HIGH_WORD_MAX = 10**38 >> 64


@dataclass(frozen=True)
class Aggregate:
    """A function and its attribute (None: ``count(*)``)."""

    function: str
    attribute: str | None = None

    def __str__(self) -> str:
        return f"{self.function}({self.attribute or '*'})"


def aggregate_column(position: int) -> str:
    return f"$a{position}"


def key_column(position: int) -> str:
    return f"$k{position}"


def supports(schema: StreamSchema, aggregate: Aggregate) -> bool:
    if aggregate.attribute is None:
        return aggregate.function == "count"
    attribute = schema.attribute(aggregate.attribute)
    if aggregate.function == "count":
        return True
    if attribute.name == schema.time:
        return aggregate.function in ("min", "max")
    if attribute.storage not in _FIXED:
        return False
    if aggregate.function in _ORDERED:
        return True
    if aggregate.function in _DEVIATIONS:
        return attribute.storage in _NUMBERS and attribute.summable
    if aggregate.function not in FUNCTIONS:
        return False
    return aggregate.function in ("min", "max") or attribute.summable


def in_tree(aggregate: Aggregate) -> bool:
    """Whether the tree stores what an aggregate needs; others must read events."""
    return aggregate.function in FUNCTIONS


def keyable(attribute: Attribute) -> bool:
    return attribute.comparable


@dataclass(frozen=True)
class SchemaFields:
    """The fields of a plan in one schema: see ``kernels``; columns with position and load kind."""

    fields: Words
    columns: Words
    names: tuple[str, ...]
    time_position: int


class FieldPlan:
    """The fields of some supported aggregates; ``span``: also first and last tick."""

    def __init__(
        self, schema: StreamSchema, aggregates: Sequence[Aggregate], *, span: bool = False
    ) -> None:
        self.schema = schema
        self.aggregates = tuple(aggregates)
        self.width = 0
        self.names: tuple[str, ...] = ()
        self._at: dict[tuple[str, str | None], int] = {}
        self._rows: list[tuple[int, str | None, int, int]] = []  # op, attribute, offset, table row
        for aggregate in aggregates:
            self._need(aggregate)
        if span:
            self._time_field("first", k.MIN_SIGNED, ROW_FIRST)
            self._time_field("last", k.MAX_SIGNED, ROW_LAST)
        if not self._rows:
            self._add("events", None, k.ADD, ROW_COUNT)
        self.own = self.of(schema)

    def _add(self, quantity: str, attribute: str | None, op: int, offset: int) -> None:
        key = (quantity, attribute)
        if key in self._at:
            return
        self._at[key] = self.width
        self._rows.append((op, attribute, self.width, offset))
        self.width += _WIDTHS.get(op, 1)
        if attribute is not None and attribute not in self.names:
            self.names = (*self.names, attribute)

    def _time_field(self, quantity: str, op: int, row: int) -> None:
        self._add(quantity, None, op, row)

    def _need(self, aggregate: Aggregate) -> None:
        name = None if aggregate.attribute is None else self.schema.resolve(aggregate.attribute)
        if name is None or (name == self.schema.time and aggregate.function == "count"):
            self._add("events", None, k.ADD, ROW_COUNT)
            return
        if name == self.schema.time:
            self._add("events", None, k.ADD, ROW_COUNT)
            if aggregate.function == "min":
                self._time_field("first", k.MIN_SIGNED, ROW_FIRST)
            else:
                self._time_field("last", k.MAX_SIGNED, ROW_LAST)
            return
        storage = self.schema.attribute(name).storage
        if in_tree(aggregate):
            self._add("n", name, k.ADD, 0)
        if aggregate.function == "min":
            self._add("min", name, _MIN.get(storage, k.MIN_UNSIGNED), 1)
        elif aggregate.function == "max":
            self._add("max", name, _MAX.get(storage, k.MAX_UNSIGNED), 2)
        elif aggregate.function in ("sum", "avg"):
            op = k.SUM_FLOAT if storage is Storage.FLOAT else k.SUM_WIDE
            self._add("sum", name, op, 3)
        elif aggregate.function in _ORDERED:
            self._add(aggregate.function, name, _ORDERED[aggregate.function], 0)
        elif aggregate.function in _DEVIATIONS:
            self._add("moments", name, k.MOMENTS, 0)

    def of(self, schema: StreamSchema) -> SchemaFields:
        """The fields in a segment's schema, which may lack attributes added later."""
        order = {attribute.name: i for i, attribute in enumerate(schema.attributes)}
        payload = {attribute.name: i for i, attribute in enumerate(schema.payload)}
        names = tuple(name for name in self.names if name in order)
        fields = np.zeros((len(self._rows), 6), np.int64)
        values = {name for op, name, _, _ in self._rows if name is not None and op != k.ADD}
        for row, (op, name, at, offset) in zip(fields, self._rows, strict=True):
            row[0], row[1] = op, at
            if name is None:
                row[2], row[3] = offset, ROW_COUNT
                row[4] = k.EVENTS if op == k.ADD else k.TIME
            elif name in payload:
                base = ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * payload[name]
                row[2], row[3] = base + offset, base
                row[4] = names.index(name)
                storage = schema.attribute(name).storage
                row[5] = storage in (Storage.UNSIGNED, Storage.BOOL)
            else:
                row[2], row[4] = -1, COLUMN_MISSING
        columns = np.zeros((len(names), 2), np.int64)
        for i, name in enumerate(names):
            columns[i] = order[name], _load_kind(schema.attribute(name), name in values)
        return SchemaFields(fields, columns, names, order[schema.time])

    # ------------------------------------------------------------------ results

    def _quantity(self, words: Words, quantity: str, attribute: str | None) -> Words:
        return words[:, self._at[quantity, attribute]]

    def span(self, words: Words) -> tuple[Words, Words]:
        return (
            np.ascontiguousarray(self._quantity(words, "first", None)),
            np.ascontiguousarray(self._quantity(words, "last", None)),
        )

    def column_type(self, aggregate: Aggregate) -> pa.DataType:
        if aggregate.function == "count":
            return pa.int64()
        if aggregate.function == "avg" or aggregate.function in _DEVIATIONS:
            return pa.float64()
        assert aggregate.attribute is not None
        attribute = self.schema.attribute(aggregate.attribute)
        if aggregate.function in ("min", "max") or aggregate.function in _ORDERED:
            return attribute.type
        return pa.float64() if attribute.storage is Storage.FLOAT else pa.decimal128(38, 0)

    def columns(self, words: Words) -> list[pa.Array]:
        return [self._column(words, aggregate) for aggregate in self.aggregates]

    def _column(self, words: Words, aggregate: Aggregate) -> pa.Array:
        name = None if aggregate.attribute is None else self.schema.resolve(aggregate.attribute)
        function = aggregate.function
        if name is None or name == self.schema.time:
            if function == "count":
                return pa.array(np.ascontiguousarray(self._quantity(words, "events", None)))
            ticks = self._quantity(words, "first" if function == "min" else "last", None)
            empty = self._quantity(words, "events", None) == 0
            return pa.array(ticks, pa.int64(), mask=_mask(empty)).view(self.schema.time_type)
        attribute = self.schema.attribute(name)
        if function in _ORDERED:
            at = self._at[function, name]
            return _bound_array(words[:, at + 1], words[:, at] != 2, attribute)
        if function in _DEVIATIONS:
            at = self._at["moments", name]
            return _deviations(words[:, at : at + 3], function)
        count = self._quantity(words, "n", name)
        if function == "count":
            return pa.array(np.ascontiguousarray(count))
        empty = count == 0
        if function in ("min", "max"):
            return _bound_array(self._quantity(words, function, name), empty, attribute)
        at = self._at["sum", name]
        if attribute.storage is Storage.FLOAT:
            pair = np.ascontiguousarray(words[:, at : at + 2]).view(np.float64)
            total = pair[:, 0] + pair[:, 1]
            if function == "avg":
                total = total / np.where(empty, 1, count)
            return pa.array(total, mask=_mask(empty))
        low = np.ascontiguousarray(words[:, at]).view(np.uint64)
        high = words[:, at + 1]
        if function == "avg":
            return pa.array(wide_mean(low, high, np.where(empty, 1, count)), mask=_mask(empty))
        return wide_sum(words[:, at : at + 2], empty, str(aggregate))


def _mask(empty: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    return empty if empty.any() else None


def _load_kind(attribute: Attribute, values: bool) -> int:
    if not values:
        return _LOAD_VALIDITY
    if attribute.storage is Storage.BOOL:
        return _LOAD_BOOL
    width = attribute.type.bit_width // 8
    if attribute.storage is Storage.FLOAT:
        return 8 if width == 8 else 9
    return _LOADS[width] + (4 if attribute.storage is Storage.UNSIGNED else 0)


def _bound_array(words: Words, empty: npt.NDArray[np.bool_], attribute: Attribute) -> pa.Array:
    words = np.ascontiguousarray(np.where(empty, 0, words))
    type_ = attribute.type
    if attribute.storage is Storage.FLOAT:
        floats = words.view(np.float64)
        values: Any = floats if type_.bit_width == 64 else floats.astype(np.float32)
        return pa.array(values, type_, mask=_mask(empty))
    if attribute.storage is Storage.BOOL:
        return pa.array(words != 0, type_, mask=_mask(empty))
    width = type_.bit_width // 8
    if attribute.storage is Storage.UNSIGNED:
        return pa.array(words.view(np.uint64).astype(f"u{width}"), type_, mask=_mask(empty))
    plain = pa.array(words.astype(f"i{width}"), mask=_mask(empty))
    return plain if plain.type == type_ else plain.view(type_)


def _deviations(moments: Words, function: str) -> pa.Array:
    """Variances or standard deviations from (count, mean, squared distances)."""
    count, mean, squares = np.ascontiguousarray(moments).view(np.float64).T
    sample = function.endswith("_samp")
    with np.errstate(invalid="ignore"):
        values = squares / np.maximum(count - 1 if sample else count, 1)
        # distances from an infinite mean are NaN
        values = np.where(np.isfinite(mean) & ~np.isnan(values), np.maximum(values, 0), np.nan)
        values[count == 1] = 0.0
        if function.startswith("stddev"):
            values = np.sqrt(values)
    return pa.array(values, mask=_mask(count < (2 if sample else 1)))


def wide_sum(pairs: Words, empty: npt.NDArray[np.bool_], what: str) -> pa.Array:
    """128-bit sums as decimals without fraction."""
    pairs = np.ascontiguousarray(np.where(empty[:, None], 0, pairs))
    if len(pairs) and (
        int(pairs[:, 1].max()) >= _HIGH_WORD_MAX or int(pairs[:, 1].min()) <= -_HIGH_WORD_MAX
    ):
        raise InvalidArgument(f"{what} of a window has more than 38 digits; cast it to DOUBLE")
    validity = None
    if empty.any():
        validity = pa.py_buffer(np.packbits(~empty, bitorder="little"))
    return pa.Array.from_buffers(
        pa.decimal128(38, 0), len(pairs), [validity, pa.py_buffer(pairs.view(np.uint8))]
    )


def wide_mean(low: npt.NDArray[np.uint64], high: Words, count: Words) -> npt.NDArray[np.float64]:
    """128-bit sums divided by counts, as doubles."""
    signed = low.view(np.int64)
    short = high == (signed >> 63)
    mean = signed / count
    if not short.all():
        wide = ~short
        mean[wide] = [
            ((int(h) << 64) + int(part)) / int(n)
            for h, part, n in zip(high[wide], low[wide], count[wide], strict=True)
        ]
    return mean


NUMBER = "#number"
"""Time attribute of grains: the number of the window."""

_MERGED = {
    "count": "sum", "sum": "sum", "min": "min", "max": "max", "first": "first", "last": "last",
    "any_value": "any_value",
}  # fmt: skip
"""How partials are merged; functions not listed have one grain per window."""

_UPPER, _LOWER = "#upper", "#lower"


class GrainFold:
    """Merges ``partials`` of grains to ``aggregates``.  ``events``: schema of grains as events.
    ``merged``: aggregates to compute over these, by ``keys``.
    """

    def __init__(
        self,
        schema: StreamSchema,
        partials: Sequence[Aggregate],
        aggregates: Sequence[Aggregate],
        keys: Sequence[pa.DataType],
    ) -> None:
        plan = FieldPlan(schema, partials)
        self._partials = tuple(partials)
        self._aggregates = tuple(aggregates)
        self._types = [plan.column_type(partial) for partial in partials]
        self.keys = [key_column(i) for i in range(len(keys))]
        self.merged: list[Aggregate] = []
        fields = [pa.field(NUMBER, pa.int64(), False)]
        fields += [pa.field(name, type_) for name, type_ in zip(self.keys, keys, strict=True)]
        for i, (partial, type_) in enumerate(zip(partials, self._types, strict=True)):
            name = aggregate_column(i)
            if _is_wide(type_):
                fields.append(pa.field(name + _UPPER, pa.int64()))
                fields.append(pa.field(name + _LOWER, pa.uint64()))
                self.merged += [Aggregate("sum", name + _UPPER), Aggregate("sum", name + _LOWER)]
            else:
                fields.append(pa.field(name, type_))
                self.merged.append(Aggregate(_MERGED.get(partial.function, "first"), name))
        self.events = StreamSchema(pa.schema(fields), NUMBER)

    def rows(
        self, numbers: Words, keys: Sequence[pa.Array], partials: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        arrays: list[pa.Array] = [pa.array(numbers), *keys]
        for column, type_ in zip(partials, self._types, strict=True):
            if not _is_wide(type_):
                arrays.append(column if column.type == type_ else column.cast(type_))
                continue
            pairs, empty = _pairs(column)
            mask = empty if empty.any() else None
            arrays.append(pa.array(np.ascontiguousarray(pairs[:, 1]), mask=mask))
            arrays.append(pa.array(np.ascontiguousarray(pairs[:, 0]).view(np.uint64), mask=mask))
        schema = self.events.arrow
        cast = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(cast, schema=schema)

    def results(self, merged: Sequence[pa.Array]) -> list[pa.Array]:
        left, values = iter(merged), dict[Aggregate, tuple[pa.Array, ...]]()
        for partial, type_ in zip(self._partials, self._types, strict=True):
            first = next(left)
            if _is_wide(type_):
                values[partial] = (first, next(left))
            else:
                values[partial] = (first,)
        return [self._result(aggregate, values) for aggregate in self._aggregates]

    def _result(
        self, aggregate: Aggregate, found: dict[Aggregate, tuple[pa.Array, ...]]
    ) -> pa.Array:
        name = aggregate.attribute
        if aggregate.function == "count":
            return found[aggregate][0].cast(pa.int64())
        if aggregate.function != "sum" and aggregate in found:
            return found[aggregate][0]
        total = found[Aggregate("sum", name)]
        if len(total) == 2:
            upper, empty = _pairs(total[0])
            lower, _ = _pairs(total[1])
            pairs = np.stack([lower[:, 0], lower[:, 1] + upper[:, 0]], axis=1)
        if aggregate.function == "sum":
            return total[0] if len(total) == 1 else wide_sum(pairs, empty, str(aggregate))
        counts, _ = _pairs(found[Aggregate("count", name)][0])
        count = np.where(counts[:, 0] == 0, 1, counts[:, 0])
        if len(total) == 2:
            low = np.ascontiguousarray(pairs[:, 0]).view(np.uint64)
            mean = wide_mean(low, pairs[:, 1], count)
            return pa.array(mean, mask=empty if empty.any() else None)
        sums = total[0]
        values = sums.to_numpy(zero_copy_only=False) / count
        return pa.array(values, mask=np.asarray(sums.is_null()))


def _is_wide(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_))


def _pairs(column: pa.Array) -> tuple[Words, npt.NDArray[np.bool_]]:
    """Lower and upper words of integers or decimals without fraction, and a null mask."""
    empty = np.asarray(column.is_null())
    if not _is_wide(column.type):
        low = column.fill_null(0).cast(pa.int64()).to_numpy()
        return np.stack([low, low >> 63], axis=1), empty
    whole = column.cast(pa.decimal128(38, 0))
    words = np.frombuffer(whole.buffers()[1], np.int64).reshape(-1, 2)
    pairs = words[whole.offset : whole.offset + len(whole)]
    return np.where(empty[:, None], 0, pairs), empty
