"""Reading ISO 8601 times from text, millions a second.

Purpose
    Event times mostly arrive as text.  :func:`parse_iso` turns a string column into seconds and
    nanoseconds since 1970-01-01 00:00 UTC in one pass of a compiled kernel, and says for each value
    whether it was understood, so that a bad one is found without parsing anything twice.

Layout
    Understood, blanks around it ignored::

        2018-08-01                      a date: midnight
        2018-08-01 05:00[:SS[.fff...]]  blank, 'T' or 't' between; '.' or ',' before 1-9 digits
        2018/08/01 05:00:00             slashes as well
        20180801T050000[.fff]           the basic form (a bare 20180801 is a number, not a time)
        ...Z  ...+02:00 ...+0200 ...+02 an offset; without one the time is UTC

    The year is four digits, 0000-9999; 24:00:00 is the next midnight; second 60 (a leap second)
    is the first second of the next minute, as POSIX has it.

Guarantee
    Days are checked against the month and leap year.  Digits beyond nanoseconds must be zero.

Limits
    Week dates, ordinal dates, named zones and signed years are not read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..compiled import interpretable, kernel
from .times_alike import HAS_CLOCK, HAS_OFFSET, OK, read_alike

__all__ = ["IsoTimes", "parse_iso"]


@kernel
def _days_from_civil(year, month, day):  # type: ignore[no-untyped-def]
    """Days since 1970-01-01 in the proleptic Gregorian calendar (years counted from March)."""
    y = year - 1 if month <= 2 else year
    era = y // 400
    year_of_era = y - era * 400
    shifted = month - 3 if month > 2 else month + 9
    day_of_year = (153 * shifted + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146097 + day_of_era - 719468


@kernel
def _number(data, start, end, digits):  # type: ignore[no-untyped-def]
    """Value of exactly `digits` decimal digits at `start`; -1 when they are not there."""
    if start + digits > end:
        return -1
    value = np.int64(0)
    for i in range(start, start + digits):
        c = np.int64(data[i])
        if c < 48 or c > 57:
            return -1
        value = value * 10 + (c - 48)
    return value


@kernel
def _days_in_month(year, month):  # type: ignore[no-untyped-def]
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if leap else 28
    if month == 4 or month == 6 or month == 9 or month == 11:
        return 30
    return 31


@kernel
def _parse_one(data, start, end, seconds, nanos, flags, at):  # type: ignore[no-untyped-def]
    """Parse one text into slot `at`; leaves flags[at] = 0 when it is not understood."""
    while start < end and (data[start] == 32 or data[start] == 9):
        start += 1
    while end > start and (data[end - 1] == 32 or data[end - 1] == 9):
        end -= 1
    year = _number(data, start, end, 4)
    if year < 0 or start + 8 > end:
        return
    p = start + 4
    separator = data[p]
    basic = separator >= 48 and separator <= 57
    if not basic:
        if separator != 45 and separator != 47:  # - or /
            return
        p += 1
    month = _number(data, p, end, 2)
    p += 2
    if not basic:
        if p >= end or data[p] != separator:
            return
        p += 1
    day = _number(data, p, end, 2)
    p += 2
    if month < 1 or month > 12 or day < 1 or day > _days_in_month(year, month):
        return
    total = _days_from_civil(year, month, day) * 86400
    fraction = np.int64(0)
    flag = OK
    if p == end:
        if basic:
            return
        seconds[at] = total
        nanos[at] = 0
        flags[at] = flag
        return
    c = data[p]
    if c != 84 and c != 116 and c != 32:  # T t blank
        return
    flag |= HAS_CLOCK
    p += 1
    hour = _number(data, p, end, 2)
    p += 2
    colon = p < end and data[p] == 58
    if colon:
        p += 1
    minute = _number(data, p, end, 2)
    p += 2
    second = 0
    if p < end and ((colon and data[p] == 58) or (not colon and data[p] >= 48 and data[p] <= 57)):
        if colon:
            p += 1
        second = _number(data, p, end, 2)
        p += 2
        if second < 0:
            return
        if p < end and (data[p] == 46 or data[p] == 44):  # . ,
            p += 1
            first = p
            scale = 100_000_000
            while p < end and data[p] >= 48 and data[p] <= 57:
                if scale > 0:
                    fraction += (np.int64(data[p]) - 48) * scale
                    scale //= 10
                elif data[p] != 48:
                    return
                p += 1
            if p == first:
                return
    if hour < 0 or minute < 0 or minute > 59 or second > 60 or hour > 24:
        return
    if hour == 24 and (minute > 0 or second > 0 or fraction > 0):
        return
    total += hour * 3600 + minute * 60 + second
    if p < end:
        if data[p] == 32 and p + 1 < end:  # "05:00:00 +0200", "05:00:00 Z"
            p += 1
        c = data[p]
        if c == 90 or c == 122:  # Z z
            p += 1
        elif c == 43 or c == 45:  # + -
            sign = 1 if c == 43 else -1
            p += 1
            offset_hours = _number(data, p, end, 2)
            p += 2
            offset_minutes = 0
            if p < end:
                if data[p] == 58:
                    p += 1
                offset_minutes = _number(data, p, end, 2)
                p += 2
            if offset_hours < 0 or offset_hours > 23 or offset_minutes < 0 or offset_minutes > 59:
                return
            total -= sign * (offset_hours * 3600 + offset_minutes * 60)
        else:
            return
        flag |= HAS_OFFSET
        if p != end:
            return
    seconds[at] = total
    nanos[at] = fraction
    flags[at] = flag


def _parse_alike(data, offsets, seconds, nanos, flags):  # type: ignore[no-untyped-def]
    for i in read_alike(data, offsets, seconds, nanos, flags).tolist():
        _parse_one(data, offsets[i], offsets[i + 1], seconds, nanos, flags, i)


@interpretable(instead=_parse_alike)
@kernel
def _parse_all(data, offsets, seconds, nanos, flags):  # type: ignore[no-untyped-def]
    for i in range(len(flags)):
        flags[i] = 0
        seconds[i] = 0
        nanos[i] = 0
        _parse_one(data, offsets[i], offsets[i + 1], seconds, nanos, flags, i)


class IsoTimes(NamedTuple):
    """Times read from text; the arrays have one entry per value.

    Attributes
    ----------
    seconds : int64 array
        Whole seconds since the epoch, UTC.
    nanos : int64 array
        Nanoseconds within the second, 0 to 999,999,999.
    ok, has_offset, has_clock : bool arrays
        Whether the text was understood, carried an offset or ``Z``, and had a time of day.
        Nulls are not ``ok``.
    """

    seconds: npt.NDArray[np.int64]
    nanos: npt.NDArray[np.int64]
    ok: npt.NDArray[np.bool_]
    has_offset: npt.NDArray[np.bool_]
    has_clock: npt.NDArray[np.bool_]


def parse_iso(texts: pa.Array) -> IsoTimes:
    """Read a ``string`` or ``large_string`` array as ISO 8601 times."""
    if not pa.types.is_large_string(texts.type):
        texts = texts.cast(pa.large_string())
    count = len(texts)
    seconds = np.empty(count, np.int64)
    nanos = np.empty(count, np.int64)
    flags = np.empty(count, np.uint8)
    if count:
        _, offset_buffer, data_buffer = texts.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64, count + 1, texts.offset * 8)
        data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)
        _parse_all(_frozen(data), _frozen(offsets), seconds, nanos, flags)
        if texts.null_count:
            flags[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return IsoTimes(
        seconds, nanos, (flags & OK) != 0, (flags & HAS_OFFSET) != 0, (flags & HAS_CLOCK) != 0
    )


def _frozen(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """A read-only view, so that the kernel is compiled for one kind of array only."""
    view = array.view()
    view.flags.writeable = False
    return view
