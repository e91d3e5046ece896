"""Times in answers, as a client wants them.

Purpose
    A time without a zone is UTC here, and local time to JavaScript and to much else.  With
    ``time_format`` the rows of a text format have RFC 3339 with ``Z``, or integers since the epoch.

Guarantee
    RFC 3339 has as many digits as the column's unit.  An epoch coarser than the unit is rounded
    down, also before 1970; one that is finer is exact, or refused where it does not fit 64 bits.

Limits
    Timestamps only: a date has no zone, and a time attribute that is an integer stays one.
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
    """The rows with timestamps in a form; other columns as they are."""
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
