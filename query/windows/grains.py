"""Aggregates of windows from partial aggregates of smaller windows (grains) in a roll-up.
Grains become events whose time is the number of the query's window.  A 128-bit partial becomes two
attributes: ``sum = 2**64 * sum(upper, signed) + sum(lower, unsigned)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schema import StreamSchema
from .fields import Aggregate, FieldPlan, aggregate_column, key_column, wide_mean, wide_sum

__all__ = ["NUMBER", "GrainFold"]

Words = npt.NDArray[np.int64]

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
        left, found = iter(merged), dict[Aggregate, tuple[pa.Array, ...]]()
        for partial, type_ in zip(self._partials, self._types, strict=True):
            first = next(left)
            if _is_wide(type_):
                found[partial] = (first, next(left))
            else:
                found[partial] = (first,)
        return [self._result(aggregate, found) for aggregate in self._aggregates]

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
