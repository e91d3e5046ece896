"""Durations and calendar intervals: their ISO 8601 text, and when one becomes the other.

Purpose
    SQL has one type INTERVAL for months, days and times of day.  Arrow and its readers want
    ``duration[us]``, a length, which months do not have.  :func:`as_duration` makes one of the
    other where it fits, :func:`iso_text` writes both.

Layout
    ::

        P1Y2M3DT4H5M6.5S      fields that are zero are left out, PT0S is nothing at all
        P-1DT-2H              each field has its own sign, as in PostgreSQL and in Java
        an interval is 16 bytes: months int32, days int32, nanoseconds int64

    A duration is written in days of 24 hours, which are what the difference of two times in UTC is.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .ticks import INT64_MAX, NS_PER_SECOND, TICKS_PER_SECOND

__all__ = ["as_duration", "holds_intervals", "iso_nested", "iso_text", "only_durations"]

_PARTS = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
_DAY_US = 86_400_000_000
_DAYS_MAX = INT64_MAX // _DAY_US - 1_000_000
_TEXT = pa.large_string()

Numbers = npt.NDArray[np.int64]


def holds_intervals(type_: pa.DataType) -> bool:
    """Whether a type is an interval or a duration, or has one inside."""
    if pa.types.is_nested(type_):
        return any(holds_intervals(type_.field(i).type) for i in range(type_.num_fields))
    return bool(pa.types.is_interval(type_) or pa.types.is_duration(type_))


def _parts(values: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """Months, days and nanoseconds of an interval column; zeros for nulls."""
    raw = np.frombuffer(values.buffers()[1], _PARTS, len(values), values.offset * 16)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    months, days, nanos = (
        np.where(valid, raw[name], 0).astype(np.int64) for name in ("months", "days", "nanos")
    )
    return months, days, nanos


def only_durations(values: pa.Array) -> bool:
    """Whether every interval of a column is a length in microseconds: no months in it."""
    if not len(values):
        return True
    months, days, nanos = _parts(values)
    return not (months.any() or (np.abs(days) > _DAYS_MAX).any() or (nanos % 1000).any())


def as_duration(values: pa.Array) -> pa.Array:
    """An interval column as ``duration[us]``.

    Raises
    ------
    pyarrow.ArrowInvalid
        When one is no length in microseconds.
    """
    if not only_durations(values):
        raise pa.ArrowInvalid("an interval has months and so no length in microseconds")
    if not len(values):
        return pa.array([], pa.duration("us"))
    _, days, nanos = _parts(values)
    micros = pa.array(days * _DAY_US + nanos // 1000, mask=values.is_null().to_numpy(False))
    return micros.cast(pa.duration("us"))


def _joined(*parts: Any) -> pa.Array:
    """Text side by side, row by row."""
    typed = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*typed, pa.scalar("", _TEXT))


def _chosen(where: npt.NDArray[np.bool_], text: pa.Array, other: Any) -> pa.Array:
    if isinstance(other, str):
        other = pa.scalar(other, _TEXT)
    return pc.if_else(pa.array(where), text, other)


def _digits(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).cast(_TEXT)


def _field(numbers: Numbers, letter: str) -> pa.Array:
    return _chosen(numbers != 0, _joined(_digits(numbers), letter), "")


def _seconds(numbers: Numbers, nanos: Numbers) -> pa.Array:
    """The field of the seconds, with as many digits as there are."""
    if not nanos.any():
        return _field(numbers, "S")
    fraction = pc.utf8_slice_codeunits(_digits(NS_PER_SECOND + np.abs(nanos)), 1)
    negative = (numbers < 0) | (nanos < 0)
    whole = _digits(np.abs(numbers))
    text = _joined(
        _chosen(negative, pa.scalar("-", _TEXT), ""), whole, ".", pc.utf8_rtrim(fraction, "0"), "S"
    )
    return _chosen(nanos != 0, text, _field(numbers, "S"))


def iso_text(values: pa.Array) -> pa.Array:
    """A column of durations or intervals as ISO 8601 text; null where it is."""
    count = len(values)
    if not count:
        return pa.array([], _TEXT)
    none = np.zeros(count, np.int64)
    if pa.types.is_interval(values.type):
        months, days, nanos = _parts(values)
        seconds, rest = _split(nanos, NS_PER_SECOND)
    else:
        per_second = TICKS_PER_SECOND[values.type.unit]
        ticks = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        months = none
        seconds, rest = _split(ticks, per_second)
        rest = rest * (NS_PER_SECOND // per_second)
        days, seconds = _split(seconds, 86_400)
    years, months = _split(months, 12)
    hours, seconds = _split(seconds, 3600)
    minutes, seconds = _split(seconds, 60)
    clock = _joined(_field(hours, "H"), _field(minutes, "M"), _seconds(seconds, rest))
    timed = (hours != 0) | (minutes != 0) | (seconds != 0) | (rest != 0)
    clock = _chosen(timed, _joined("T", clock), "")
    date = _joined(_field(years, "Y"), _field(months, "M"), _field(days, "D"))
    empty = ~timed & (years == 0) & (months == 0) & (days == 0)
    text = _chosen(empty, pa.scalar("PT0S", _TEXT), _joined("P", date, clock))
    return pc.if_else(values.is_valid(), text, pa.scalar(None, _TEXT))


def _split(numbers: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """Quotient and rest, both with the sign of the number."""
    sign = np.sign(numbers)
    whole, rest = np.divmod(np.abs(numbers), size)
    return sign * whole, sign * rest


def iso_nested(value: Any) -> Any:
    """A Python value of a nested column with the durations in it as ISO 8601 text."""
    if isinstance(value, pa.MonthDayNano):
        return iso_text(pa.array([value]))[0].as_py()
    if isinstance(value, dt.timedelta):
        return iso_text(pa.array([value], pa.duration("us")))[0].as_py()
    if isinstance(value, dict):
        return {name: iso_nested(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [iso_nested(inner) for inner in value]
    return value
