"""Arrow tables as pandas and polars data frames, without loss of values.

pandas' own conversion turns integers with nulls into floats and the first tick of a unit into a
missing time; polars multiplies seconds without an overflow check.  Columns that pandas' types
cannot hold become nullable integers or Arrow data (``pandas.ArrowDtype``).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.times import INT64_MIN
from ...errors import InvalidArgument, MissingDependency

__all__ = ["pandas_frame", "polars_frame"]

_YEARS = (-719_162, 2_932_896)
"""First and last date of Python, in days from the epoch."""


def pandas_frame(table: pa.Table) -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingDependency("df() needs pandas: pip install pandas") from None
    lossy = [i for i, column in enumerate(table.columns) if _loses(column)]
    plain = table
    for i in lossy:  # a placeholder, which keeps the order of the columns
        plain = plain.set_column(i, table.field(i).name, pa.nulls(table.num_rows, pa.bool_()))
    frame = plain.to_pandas()
    for i in lossy:
        column = table.column(i)
        dtype: Any = pandas.ArrowDtype(column.type)
        if pa.types.is_integer(column.type):
            dtype = pandas.api.types.pandas_dtype(_nullable(column.type))
        frame.isetitem(i, pandas.Series(dtype.__from_arrow__(column), index=frame.index))
    return frame


def polars_frame(table: pa.Table) -> Any:
    """A table as a polars DataFrame; raises InvalidArgument for duplicate names and wide times."""
    try:
        import polars
    except ImportError:
        raise MissingDependency("pl() needs polars: pip install polars") from None
    names = table.schema.names
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise InvalidArgument(
            f"a polars frame needs column names that differ; give {', '.join(doubled)} an alias"
        )
    for i, field in enumerate(table.schema):
        if pa.types.is_interval(field.type):
            raise InvalidArgument(
                f"column {field.name!r} holds intervals with months, which polars has no type for; "
                "cast it to VARCHAR in the query"
            )
        wanted = _without_seconds(field.type)
        if wanted == field.type:
            continue
        try:
            table = table.set_column(i, field.with_type(wanted), table.column(i).cast(wanted))
        except pa.ArrowInvalid as error:
            raise InvalidArgument(
                f"a polars frame counts milliseconds, which a time of {field.name} does not fit "
                f"({str(error).splitlines()[0]}); take arrow() or df()"
            ) from None
    return polars.from_arrow(table)


def _nullable(type_: pa.DataType) -> str:
    return str(type_).replace("uint", "UInt").replace("int", "Int")


def _loses(column: pa.ChunkedArray | pa.Array) -> bool:
    type_ = column.type
    if pa.types.is_integer(type_):
        return bool(column.null_count)
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        least = pc.min(column.cast(pa.int64())).as_py() if len(column) else None
        return bool(least == INT64_MIN)
    if pa.types.is_date32(type_):
        ends = pc.min_max(column.cast(pa.int32())).as_py()
        return ends["min"] is not None and (ends["min"] < _YEARS[0] or ends["max"] > _YEARS[1])
    if pa.types.is_struct(type_):
        return any(_loses(pc.struct_field(column, [i])) for i in range(type_.num_fields))
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if any(is_one(type_) for is_one in lists):
        return _loses(pc.list_flatten(column))
    return False


def _without_seconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) and type_.unit == "s":
        return pa.timestamp("ms", type_.tz)
    if pa.types.is_duration(type_) and type_.unit == "s":
        return pa.duration("ms")
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_without_seconds(field.type)) for field in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        inner = type_.value_field.with_type(_without_seconds(type_.value_type))
        return pa.large_list(inner) if pa.types.is_large_list(type_) else pa.list_(inner)
    return type_
