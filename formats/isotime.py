"""Parsing ISO 8601 times from text columns, millions per second.

Accepted forms, surrounding blanks ignored::

    2018-08-01                      a date: midnight
    2018-08-01 05:00[:SS[.fff...]]  blank, 'T' or 't' between; '.' or ',' before 1-9 digits
    2018/08/01 05:00:00             slashes as well
    20180801T050000[.fff]           the basic form (a bare 20180801 is a number, not a time)
    2018-08-01T05Z                  an hour alone, if an offset follows
    ...Z  ...+02:00 ...+0200 ...+02 an offset; without one the time is UTC

Years are 0000-9999; 24:00:00 is the next midnight; second 60 is the first of the next minute, as in
POSIX.  Digits beyond nanoseconds must be zero.  Week dates, ordinal dates, zone names and signed
years are not read.  Texts of one form take one Arrow cast, others a regular expression and NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["IsoTimes", "parse_iso"]

_UNITS = {"us": 10**6, "ns": 10**9}
_DATE, _HOUR, _LONG = 10, 13, 40
_SAMPLE = 100
"""Values tried first: a failing Arrow cast of the whole column is expensive."""
_EDGE_NS = 2**63 - 86_400 * 10**9
"""Beyond this, an offset may overflow int64 nanoseconds, which Arrow does not detect."""
_TIME = re.compile(
    rb"\d{4}-\d\d-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d{1,6}(?P<fine>\d{1,3})?)?)?)?"
    rb"(?P<offset>Z|[+-]\d\d(?::?\d\d)?)?)?"
)
_PARTS = (
    r"^(?P<date>\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d|\d{8})"
    r"(?:[T ](?P<clock>\d\d(?::\d\d(?::\d\d)?|\d\d(?:\d\d)?)?)(?:\.(?P<fraction>\d{1,9})0*)?"
    r"(?: ?(?P<offset>Z|[+-]\d\d(?::?\d\d)?))?)?$"
)


class IsoTimes(NamedTuple):
    """Parsed times, one array entry per value.

    ``seconds`` since 1970-01-01 UTC and ``nanos`` in them are int64.  ``ok``: the text was read
    (not so for nulls); ``has_offset``: with an offset or ``Z``; ``has_clock``: with a time of day.
    """

    seconds: npt.NDArray[np.int64]
    nanos: npt.NDArray[np.int64]
    ok: npt.NDArray[np.bool_]
    has_offset: npt.NDArray[np.bool_]
    has_clock: npt.NDArray[np.bool_]


def parse_iso(texts: pa.Array) -> IsoTimes:
    """Read a ``string`` or ``large_string`` array as ISO 8601 times."""
    count = len(texts)
    some = texts
    if count > _SAMPLE:
        some = texts.take(pa.array(np.linspace(0, count - 1, _SAMPLE).astype(np.int64)))
    times = _cast(some)
    if times is not None and some is not texts:
        times = _cast(texts)
    if times is not None:
        return times
    times = IsoTimes(*(np.zeros(count, kind) for kind in ("i8", "i8", "?", "?", "?")))
    left = _by_length(texts, _cast, np.arange(count), times)
    if left.size:
        blank = pc.ascii_trim(texts.take(pa.array(left)), " \t")
        plain = pc.replace_substring(pc.ascii_upper(blank), ",", ".")
        _by_length(plain, lambda some: _cast(some) or _taken_apart(some), left, times)
    return times


def _by_length(
    texts: pa.Array,
    read: Callable[[pa.Array], IsoTimes | None],
    rows: npt.NDArray[np.int64],
    times: IsoTimes,
) -> npt.NDArray[np.int64]:
    lengths = np.minimum(_lengths(texts), _LONG)
    left = [rows[:0]]
    for length in range(_DATE, _LONG + 1):
        at = np.flatnonzero(lengths == length)
        if not at.size:
            continue
        found = read(texts.take(pa.array(at)))
        if found is None:
            left.append(rows[at])
            continue
        for whole, part in zip(times, found, strict=True):
            whole[rows[at]] = part
    return np.concatenate(left)


def _lengths(texts: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.binary_length(texts)
    if lengths.null_count:
        lengths = lengths.fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _cast(texts: pa.Array) -> IsoTimes | None:
    given = texts.drop_null() if texts.null_count else texts
    form = _TIME.fullmatch(given[0].as_buffer()) if len(given) else None
    if form is None:
        return None
    unit = "ns" if form["fine"] else "us"
    try:
        cast = texts.cast(pa.timestamp(unit, "UTC" if form["offset"] else None))
    except pa.ArrowInvalid:
        return None
    ticks = cast.view(pa.int64())
    if cast.null_count:
        ticks = ticks.fill_null(0)
    numbers = ticks.to_numpy(zero_copy_only=False)
    if form["fine"] and (np.abs(numbers) > _EDGE_NS).any():
        return None
    lengths = _lengths(texts)
    seconds = numbers // _UNITS[unit]
    nanos = (numbers - seconds * _UNITS[unit]) * (10**9 // _UNITS[unit])
    if not form["offset"] and (lengths == _HOUR).any():
        return None
    ok = cast.is_valid().to_numpy(zero_copy_only=False)
    has_offset = ok if form["offset"] else np.zeros_like(ok)
    return IsoTimes(seconds, nanos, ok, has_offset, lengths > _DATE)


def _taken_apart(texts: pa.Array) -> IsoTimes:
    parts = pc.extract_regex(texts, _PARTS)
    date, clock, fraction, offset = (
        pc.struct_field(parts, name).fill_null("")
        for name in ("date", "clock", "fraction", "offset")
    )
    signed = pc.starts_with(offset, "-").to_numpy(zero_copy_only=False)
    has_offset, has_clock = _lengths(offset) > 0, _lengths(clock) > 0
    day, moment = _number(date, 8), _number(clock, 6)
    nanos, shift = _number(fraction, 9), _number(offset, 4)
    year, month, day = day // 10_000, day // 100 % 100, day % 100
    hour, minute, second = moment // 10_000, moment // 100 % 100, moment % 100
    ok = (month >= 1) & (month <= 12) & (day >= 1)  # False if nothing was read
    first, end = (
        (year * 12 + np.where(ok, month, 1) + more - 1 - 1970 * 12)
        .astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        for more in (0, 1)
    )  # fmt: skip
    ok &= (day <= end - first) & (minute <= 59) & (second <= 60)
    ok &= (hour <= 23) | ((moment == 240_000) & (nanos == 0))
    ok &= (shift // 100 <= 23) & (shift % 100 <= 59)
    digits = _lengths(pc.replace_substring(clock, ":", ""))
    ok &= (digits == 6) | (_lengths(fraction) == 0)
    ok &= np.where(digits == 0, _lengths(date) == _DATE, (digits > 2) | has_offset)
    away = shift // 100 * 3600 + shift % 100 * 60
    seconds = (first + day - 1) * 86_400 + hour * 3600 + minute * 60 + second
    seconds += np.where(signed, away, -away)
    found = (seconds, nanos, ok, has_offset, has_clock)
    return IsoTimes(*(np.where(ok, part, part.dtype.type(0)) for part in found))


def _number(texts: pa.Array, digits: int) -> npt.NDArray[np.int64]:
    plain = pc.ascii_rpad(pc.replace_substring_regex(texts, "[^0-9]", ""), digits, "0")
    return np.asarray(plain.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
