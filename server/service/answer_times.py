"""The parameter ``time_format``: UTC timestamps as ISO text, RFC 3339 or epoch integers.  RFC 3339
has as many digits as the column's unit.  A coarser epoch is rounded down, also before 1970; a finer
one is exact, or an error where 64 bits overflow.  Dates and integer times stay as they are.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...core.times import TICKS_PER_SECOND
from ...errors import InvalidArgument

__all__ = ["TIME_FORMATS", "with_times"]

TIME_FORMATS = ("iso", "rfc3339", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns")
_UNITS = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def with_times(rows: pa.RecordBatch, form: str) -> pa.RecordBatch:
    for position, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            told = _told(rows.column(position), field, form)
            rows = rows.set_column(position, field.with_type(told.type), told)
    return rows


def _told(column: pa.Array, field: pa.Field, form: str) -> pa.Array:
    unit = field.type.unit
    times = column.cast(pa.int64()).cast(pa.timestamp(unit))
    if form == "rfc3339":
        return pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ")
    wanted = form.removeprefix("epoch_")
    if TICKS_PER_SECOND[wanted] < TICKS_PER_SECOND[unit]:
        times = pc.floor_temporal(times, unit=_UNITS[wanted])
    try:
        return times.cast(pa.timestamp(wanted)).cast(pa.int64())
    except pa.ArrowInvalid:
        raise InvalidArgument(
            f"time_format={form}: a time of {field.name!r} does not fit 64 bits in that unit; take "
            "a coarser one"
        ) from None
