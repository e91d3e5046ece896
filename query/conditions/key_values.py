"""Key values whose Arrow equality is that of GROUP BY and PARTITION BY."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["comparable"]


def comparable(column: pa.Array) -> pa.Array:
    """Plain values that are equal where the executor's are.  Floats become their bits, with -0.0 as
    0.0 and one NaN; times and dates become ticks.
    """
    type_ = column.type
    if pa.types.is_floating(type_):
        width = type_.bit_width
        values = pc.add(column, pa.scalar(0.0, type_))  # -0.0 becomes 0.0
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), type_), values)
        return values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width])
    if pa.types.is_temporal(type_):
        return column.view(pa.int32() if type_.bit_width == 32 else pa.int64())
    return column
