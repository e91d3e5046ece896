"""Times in two columns: date and time of day joined as text, which is then read as usual.

A row that lacks either has no time.  A timestamp column counts as dates if all are at midnight.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidData
from .convert import flatten
from .times import is_text


def joined(dates: pa.Array, clocks: pa.Array, column: str, clock_column: str) -> pa.Array:
    """Dates and times of day as text, null where either is missing."""
    days = _text_of_dates(flatten(dates), column)
    times = _text_of_clocks(flatten(clocks), clock_column)
    return pc.binary_join_element_wise(days, times, pa.scalar(" ", pa.large_string()))


def _text_of_dates(values: pa.Array, column: str) -> pa.Array:
    type_ = values.type
    if pa.types.is_timestamp(type_) and type_.tz is None:
        days = pc.floor_temporal(values, unit="day")
        if pc.all(pc.equal(values, days)).as_py() is False:
            raise InvalidData(
                f"column {column!r} has a time of day itself: leave out the column for it, or name "
                "one that holds dates"
            )
        return days.cast(pa.date32()).cast(pa.large_string())
    if pa.types.is_date(type_):
        return values.cast(pa.date32()).cast(pa.large_string())
    return _text(values, column, "dates")


def _text_of_clocks(values: pa.Array, column: str) -> pa.Array:
    if pa.types.is_time(values.type):
        return values.cast(pa.large_string())
    return _text(values, column, "times of day")


def _text(values: pa.Array, column: str, what: str) -> pa.Array:
    type_ = values.type
    if is_text(type_):
        return pc.utf8_trim_whitespace(values.cast(pa.large_string()))
    if pa.types.is_integer(type_) or pa.types.is_null(type_):
        return values.cast(pa.large_string())
    raise InvalidData(f"column {column!r} is a {type_}, which holds no {what}")
