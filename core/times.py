"""Times of streams: conversion between ticks, Python values and ISO 8601 text; durations.

``ticks_of`` reads a caller's time, ``time_of`` returns one as a Python value, ``time_text`` writes
it.  Nothing is rounded: a time finer than its unit is refused.  Every 64-bit count of ticks has a
text.  Texts without an offset, and naive datetimes, are UTC.  ``formats`` reads other formats than
ISO 8601.

Times are ``int64`` counts of a unit, *ticks*, since 1970-01-01 00:00 UTC.  Any of the 2**64 ticks
may be the time of an event; none stands for "no time".  A missing time needs a flag, or a bound
that no event reaches.

SQL has one type INTERVAL for months, days and times of day; Arrow's readers want ``duration[us]``,
which has no months.  ``as_duration`` converts what fits, ``iso_text`` writes both::

    P1Y2M3DT4H5M6.5S      zero fields are left out; PT0S is zero
    P-1DT-2H              each field has its own sign, as in PostgreSQL and in Java
    an interval is 16 bytes: months int32, days int32, nanoseconds int64

A duration is written in days of 24 hours, as differences of UTC times have.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidArgument, ResourceLimit

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
NS_PER_SECOND = 1_000_000_000
TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": NS_PER_SECOND}
NS_PER_TICK = {unit: NS_PER_SECOND // ticks for unit, ticks in TICKS_PER_SECOND.items()}

Ticks = TypeVar("Ticks", int, npt.NDArray[np.int64])


def moved(ticks: Ticks, by: int) -> Ticks:
    """Add ticks to one tick or many, clamped to 64 bits."""
    if isinstance(ticks, int):
        return max(INT64_MIN, min(INT64_MAX, ticks + by))
    if abs(by) > INT64_MAX:
        far = INT64_MAX if by > 0 else -INT64_MAX
        return moved(moved(ticks, far), by - far)
    if by >= 0:
        return np.where(ticks > INT64_MAX - by, INT64_MAX, ticks + by)
    return np.where(ticks < INT64_MIN - by, INT64_MIN, ticks + by)


def half_open(low: int, high: int) -> tuple[int | None, int | None]:
    """A range of ticks with both ends as one without its end, None where unbounded."""
    if low > high:
        return 0, 0
    return None if low <= INT64_MIN else low, None if high >= INT64_MAX else high + 1


FOUR_DIGIT_YEARS = (-62_167_219_200, 253_402_300_800)
"""Seconds from the epoch to the beginnings of the years 0 and 10000."""
_BEYOND_MICROSECONDS = re.compile(r"(.*[.,]\d{6})(\d+)(.*)")
_FAR_YEAR = re.compile(r"([+-]\d{5,12})(-.*)")
CYCLE_DAYS = 146_097
"""The Gregorian calendar repeats after so many days, which are 400 years."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_NAIVE_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_DATE = dt.date(1970, 1, 1)
_FIRST_CYCLE = dt.date(1600, 1, 1)


def time_text(ticks: int, type_: pa.DataType, separator: str = " ") -> str:
    """ISO 8601 text of any 64-bit count of ticks in the unit of the type; zoned types in UTC, with
    ``Z``.

    Years before 1 and after 9999, which Arrow and Python cannot write, have six digits and a sign
    (ISO 8601's expanded representation).
    """
    per_second = TICKS_PER_SECOND[type_.unit]
    seconds, fraction = divmod(ticks, per_second)
    days, clock = divmod(seconds, 86_400)
    cycles, day = divmod(days - (_FIRST_CYCLE - _EPOCH_DATE).days, CYCLE_DAYS)
    date = _FIRST_CYCLE + dt.timedelta(days=day)
    year = date.year + 400 * cycles
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+07d}"
    text = f"{shown}-{date.month:02d}-{date.day:02d}{separator}"
    text += f"{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
    if fraction:
        text += f".{fraction:0{len(str(per_second)) - 1}d}"
    return text + ("Z" if type_.tz is not None else "")


_LENGTHS = (
    ("day", 86_400 * NS_PER_SECOND), ("hour", 3600 * NS_PER_SECOND),
    ("minute", 60 * NS_PER_SECOND), ("second", NS_PER_SECOND),
    ("millisecond", 1_000_000), ("microsecond", 1_000), ("nanosecond", 1),
)  # fmt: skip


def length_text(ticks: int, type_: pa.DataType) -> str:
    """A duration for people, as ``1 hour 30 minutes``; of an integer time the number."""
    if not pa.types.is_timestamp(type_):
        return str(ticks)
    left, words = abs(ticks) * NS_PER_TICK[type_.unit], []
    for name, size in _LENGTHS:
        number, left = divmod(left, size)
        if number:
            words.append(f"{number} {name}{'s' * (number > 1)}")
    return ("-" if ticks < 0 else "") + (" ".join(words) or "0 seconds")


def ticks_of(value: object, name: str, unit: str | None) -> int:
    """Convert a user's time to ticks; an integer is taken as ticks.

    ``name`` is the time attribute, for errors; ``unit`` is None for plain integers.  Raises
    ``InvalidArgument`` if the value is no time, or does not fit the unit or 64 bits.
    """
    try:
        ticks = _ticks(value, name, unit)
    except (ValueError, OverflowError, pa.ArrowException):
        raise _no_time(value) from None
    if not INT64_MIN <= ticks <= INT64_MAX:
        raise InvalidArgument(f"the time {_named(value)} does not fit 64-bit ticks")
    return ticks


def moment_of(text: str, zone: str | None = None) -> object:
    """The microsecond that a text says, as the value of a timestamp, of a zone or without one."""
    return time_of(ticks_of(text, "value", "us"), pa.timestamp("us", zone))


def time_of(ticks: int, type_: pa.DataType) -> object:
    """Convert ticks to the value of a time type: a ``datetime`` or an integer.

    An Arrow scalar where ``datetime`` is not exact: years outside 1-9999, nanoseconds.
    """
    if not pa.types.is_timestamp(type_):
        return ticks
    zone = None if type_.tz is None else _zone(type_.tz)
    return _moment(ticks, TICKS_PER_SECOND[type_.unit], zone) or _scalar(ticks, type_)


def times_of(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Convert a column of timestamps as ``time_of``, None for null, without loading pandas."""
    type_ = column.type
    per_second = TICKS_PER_SECOND[type_.unit]
    zone = None if type_.tz is None else _zone(type_.tz)
    return [
        None if ticks is None else _moment(ticks, per_second, zone) or _scalar(ticks, type_)
        for ticks in column.cast(pa.int64()).to_pylist()
    ]


def _scalar(ticks: int, type_: pa.DataType) -> pa.Scalar:
    data = pa.py_buffer(ticks.to_bytes(8, sys.byteorder, signed=True))
    return pa.Array.from_buffers(type_, 1, [None, data])[0]  # pa.scalar loads pandas


def _zone(name: str) -> dt.tzinfo:
    zone: dt.tzinfo = pa.lib.string_to_tzinfo(name)
    return zone


def _moment(ticks: int, per_second: int, zone: dt.tzinfo | None) -> dt.datetime | None:
    """A ``datetime``, naive without a zone; None if Python cannot represent it."""
    microseconds, finer = divmod(ticks * 1_000_000, per_second)
    if finer:
        return None
    try:
        if zone is None:
            return _NAIVE_EPOCH + dt.timedelta(microseconds=microseconds)
        return (_EPOCH + dt.timedelta(microseconds=microseconds)).astimezone(zone)
    except OverflowError:
        return None


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python values; Arrow scalars for times and dates that Python cannot represent."""
    if pa.types.is_timestamp(column.type):
        return times_of(column)
    if not _of_nanoseconds(column.type):  # of which pandas makes NaT where they are the first tick
        try:
            return list(column.to_pylist())
        except (ValueError, OverflowError):
            pass
    return [_python_value(scalar) for scalar in column]


def value_text(value: object) -> str:
    """A value as text for people, also of Arrow where Python has none."""
    if isinstance(value, pa.TimestampScalar) and value.is_valid:
        return time_text(value.value, value.type)
    try:
        return str(value)
    except (ValueError, OverflowError):
        return f"{getattr(value, 'value', '')} as {getattr(value, 'type', 'a value')}"


def _of_nanoseconds(type_: pa.DataType) -> bool:
    """Whether a type is or contains a time in nanoseconds."""
    if pa.types.is_timestamp(type_):
        return bool(type_.unit == "ns")
    if not pa.types.is_nested(type_):
        return False
    return any(_of_nanoseconds(type_.field(i).type) for i in range(type_.num_fields))


def _python_value(scalar: pa.Scalar) -> Any:
    type_ = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(type_):
        return time_of(scalar.value, type_)
    if pa.types.is_struct(type_):
        return {name: _python_value(scalar[name]) for name in scalar}
    if pa.types.is_map(type_):
        return [(_python_value(one["key"]), _python_value(one["value"])) for one in scalar.values]
    if pa.types.is_nested(type_):
        return [_python_value(one) for one in scalar.values]
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar


_COARSE = ("Y", "M", "W", "D", "h", "m", "generic")
"""Units of numpy above a second, and of NaT."""


def _ticks(value: object, name: str, unit: str | None) -> int:
    if isinstance(value, bool):
        raise InvalidArgument(f"expected a time, found {value!r}")
    if isinstance(value, int):
        return value
    if isinstance(value, pa.Scalar):
        if pa.types.is_timestamp(value.type) and value.is_valid:
            return _rescaled(value.value, TICKS_PER_SECOND[value.type.unit], value, name, unit)
        return _ticks(value.as_py(), name, unit)
    if unit is None:
        integral = getattr(value, "__index__", None)
        if integral is not None:
            return int(integral())
        raise InvalidArgument(f"time attribute {name!r} counts plain integers; found {value!r}")
    if isinstance(value, str):
        text = value.strip()
        far = _FAR_YEAR.fullmatch(text)
        if far is not None:
            cycles, year = divmod(int(far[1]) - 2000, 400)
            near = _ticks(f"{2000 + year}{far[2]}", name, unit)
            return near + cycles * CYCLE_DAYS * 86_400 * TICKS_PER_SECOND[unit]
        beyond = _BEYOND_MICROSECONDS.fullmatch(text)
        if beyond is not None:  # digits that datetime would drop in silence
            ticks_ns = _nanoseconds(beyond[1] + beyond[3], beyond[2], value)
            return _rescaled(ticks_ns, NS_PER_SECOND, value, name, unit)
        try:
            parsed = dt.datetime.fromisoformat(text)
        except ValueError:
            try:
                ticks_ns = pa.scalar(text).cast(pa.timestamp("ns")).value
            except pa.ArrowInvalid:
                raise _no_time(value) from None
            return _rescaled(ticks_ns, NS_PER_SECOND, value, name, unit)
        value = parsed
    if isinstance(value, dt.datetime) and value == value:  # not NaT
        stamp = int(getattr(value, "nanosecond", 0))  # pandas.Timestamp carries nanoseconds
        return _rescaled(_microseconds(value) * 1000 + stamp, NS_PER_SECOND, value, name, unit)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return (value - _EPOCH_DATE).days * 86_400 * TICKS_PER_SECOND[unit]
    if type(value).__module__ == "numpy":
        if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] in _COARSE:
            value = value.astype("datetime64[s]")  # Arrow has no minutes, hours, months
        return _ticks(pa.scalar(value), name, unit)
    integral = getattr(value, "__index__", None)
    if integral is not None:
        return int(integral())
    raise InvalidArgument(f"expected a time, found {value!r} of type {type(value).__name__}")


def _nanoseconds(text: str, digits: str, value: object) -> int:
    """Nanoseconds since the epoch of a time whose fraction is finer than microseconds."""
    try:
        parsed = dt.datetime.fromisoformat(text)
    except ValueError:
        raise _no_time(value) from None
    if digits[3:].strip("0"):
        raise InvalidArgument(f"{value!r} is finer than a nanosecond; round it")
    return _microseconds(parsed) * 1000 + int(digits[:3].ljust(3, "0"))


def _microseconds(value: dt.datetime) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
    return (aware - _EPOCH) // dt.timedelta(microseconds=1)


def _rescaled(count: int, per_second_in: int, value: object, name: str, unit: str | None) -> int:
    if unit is None:
        raise InvalidArgument(
            f"time attribute {name!r} counts plain integers; found the timestamp {_named(value)}"
        )
    ticks, rest = divmod(count * TICKS_PER_SECOND[unit], per_second_in)
    if rest:
        raise InvalidArgument(
            f"{_named(value)} is finer than the stream's time unit {unit}; round it"
        )
    return ticks


def _no_time(value: object) -> InvalidArgument:
    return InvalidArgument(f"expected a time such as 2018-08-01T06:00:00Z, found {_named(value)}")


def _named(value: object) -> str:
    return value_text(value) if isinstance(value, pa.Scalar) else repr(value)


_PARTS = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
_DAY_US = 86_400_000_000
_DAYS_MAX = INT64_MAX // _DAY_US - 1_000_000
_TEXT = pa.large_string()

Numbers = npt.NDArray[np.int64]


def holds_intervals(type_: pa.DataType) -> bool:
    """Whether a type is or contains an interval or a duration."""
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
    """Whether all intervals of a column have a length in microseconds: no months, no odd days."""
    if not len(values):
        return True
    months, days, nanos = _parts(values)
    if (nanos % 1000).any():  # the executor's microseconds, beyond 64 bits of nanoseconds
        raise ResourceLimit(
            "an interval has 292 years or more in hours and shorter units; write them as days"
        )
    return not (months.any() or (np.abs(days) > _DAYS_MAX).any())


def as_duration(values: pa.Array) -> pa.Array:
    """An interval column as ``duration[us]``; ``pyarrow.ArrowInvalid`` if a value does not fit."""
    if not only_durations(values):
        raise pa.ArrowInvalid("an interval has months and so no length in microseconds")
    if not len(values):
        return pa.array([], pa.duration("us"))
    _, days, nanos = _parts(values)
    micros = pa.array(days * _DAY_US + nanos // 1000, mask=values.is_null().to_numpy(False))
    return micros.cast(pa.duration("us"))


def _joined(*parts: Any) -> pa.Array:
    """Concatenate text columns by row."""
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
    """The seconds field, with its significant digits."""
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
    """A column of durations or intervals as ISO 8601 text; null stays null."""
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
    """Quotient and remainder, both with the sign of the number."""
    sign = np.sign(numbers)
    whole, rest = np.divmod(np.abs(numbers), size)
    return sign * whole, sign * rest


def iso_nested(value: Any) -> Any:
    """A Python value of a nested column, its durations as ISO 8601 text."""
    if isinstance(value, pa.MonthDayNano):
        return iso_text(pa.array([value]))[0].as_py()
    if isinstance(value, dt.timedelta):
        return iso_text(pa.array([value], pa.duration("us")))[0].as_py()
    if isinstance(value, dict):
        return {name: iso_nested(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [iso_nested(inner) for inner in value]
    return value
