"""Times of streams as people give and read them, and the ticks that they are inside the engine.

Purpose
    :func:`ticks_of` reads whatever a caller means by a time, :func:`time_of` gives one back as
    Python has it, :func:`time_text` writes it.

Guarantee
    Nothing is rounded: a time that is finer than its unit is refused, and digits are never dropped
    in silence.  Every 64-bit count of ticks has a text.

Limits
    Texts without an offset, and naive datetimes, are UTC.  Other formats than ISO 8601 are read by
    :mod:`chronicle.formats`.
"""

from __future__ import annotations

import datetime as dt
import re

import pyarrow as pa

from .errors import InvalidArgument
from .ticks import INT64_MAX, INT64_MIN, NS_PER_SECOND, TICKS_PER_SECOND

__all__ = ["FOUR_DIGIT_YEARS", "ticks_of", "time_of", "time_text"]

FOUR_DIGIT_YEARS = (-62_167_219_200, 253_402_300_800)
"""Seconds from the epoch to the beginnings of the years 0 and 10000."""
_BEYOND_MICROSECONDS = re.compile(r"(.*[.,]\d{6})(\d+)(.*)")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_EPOCH_DATE = dt.date(1970, 1, 1)
_FIRST_CYCLE = dt.date(1600, 1, 1)


def time_text(ticks: int, type_: pa.DataType, separator: str = " ") -> str:
    """A time as ISO 8601 text, whatever 64-bit count of ticks it is.

    Arrow and Python write the years 1 to 9999 only; the years before and after have six digits and
    a sign, as ISO 8601's expanded representation.

    Parameters
    ----------
    ticks : int
        Since the epoch, in the unit of the type.
    type_ : pyarrow.TimestampType
        A zoned one is written in UTC, with ``Z``.
    separator : str
        Between date and clock.
    """
    per_second = TICKS_PER_SECOND[type_.unit]
    seconds, fraction = divmod(ticks, per_second)
    days, clock = divmod(seconds, 86_400)
    # the Gregorian calendar repeats every 400 years, which are 146,097 days
    cycles, day = divmod(days - (_FIRST_CYCLE - _EPOCH_DATE).days, 146_097)
    date = _FIRST_CYCLE + dt.timedelta(days=day)
    year = date.year + 400 * cycles
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+07d}"
    text = f"{shown}-{date.month:02d}-{date.day:02d}{separator}"
    text += f"{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
    if fraction:
        text += f".{fraction:0{len(str(per_second)) - 1}d}"
    return text + ("Z" if type_.tz is not None else "")


def ticks_of(value: object, name: str, unit: str | None) -> int:
    """Convert a time given by a user to ticks.

    Parameters
    ----------
    value : int, str, datetime, date, numpy.datetime64, pyarrow.Scalar
        An integer is taken as ticks.
    name : str
        Of the time attribute, for errors.
    unit : str, optional
        Of its timestamps; None where it counts plain integers.

    Raises
    ------
    InvalidArgument
        When the value is no time, or does not fit the unit or 64 bits.
    """
    ticks = _ticks(value, name, unit)
    if not INT64_MIN <= ticks <= INT64_MAX:
        raise InvalidArgument(f"the time {value!r} does not fit 64-bit ticks")
    return ticks


def time_of(ticks: int, type_: pa.DataType) -> object:
    """Convert ticks to what a time attribute of a type holds: a datetime, or an integer.

    Timestamps that Python's ``datetime`` cannot hold exactly (years outside 1-9999, nanoseconds)
    come back as ``pyarrow`` scalars.
    """
    if not pa.types.is_timestamp(type_):
        return ticks
    scalar = pa.scalar(ticks, type=type_)
    try:
        if type_.unit == "ns" and ticks % 1000:
            return scalar
        value = (
            scalar if type_.unit != "ns" else pa.scalar(ticks // 1000, pa.timestamp("us", type_.tz))
        )
        return value.as_py()
    except (ValueError, OverflowError):
        return scalar


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
    if isinstance(value, dt.datetime):
        stamp = int(getattr(value, "nanosecond", 0))  # pandas.Timestamp carries nanoseconds
        return _rescaled(_microseconds(value) * 1000 + stamp, NS_PER_SECOND, value, name, unit)
    if isinstance(value, dt.date):
        return (value - _EPOCH_DATE).days * 86_400 * TICKS_PER_SECOND[unit]
    if type(value).__module__ == "numpy":
        return _ticks(pa.scalar(value), name, unit)
    integral = getattr(value, "__index__", None)
    if integral is not None:
        return int(integral())
    raise InvalidArgument(f"expected a time, found {value!r} of type {type(value).__name__}")


def _nanoseconds(text: str, digits: str, value: object) -> int:
    """Nanoseconds since the epoch of a time whose fraction goes on beyond microseconds."""
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
            f"time attribute {name!r} counts plain integers; found the timestamp {value!r}"
        )
    ticks, rest = divmod(count * TICKS_PER_SECOND[unit], per_second_in)
    if rest:
        raise InvalidArgument(f"{value!r} is finer than the stream's time unit {unit}; round it")
    return ticks


def _no_time(value: object) -> InvalidArgument:
    return InvalidArgument(f"expected a time such as 2018-08-01T06:00:00Z, found {value!r}")
