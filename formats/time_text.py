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

Local times of a named zone become UTC a column at a time, by Arrow's time zone kernels.  A time in
a DST gap has no instant, one in an overlap two; both are reported.  A *date* is the instant at
which its day begins: the first of two midnights, or the transition if it skips midnight.  Times by
strptime patterns are read by DuckDB's parser, as Arrow's lacks fractions and zones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.ownership import LOADING, ModuleLock, leave_to_parent
from ..core.sql_text import quoted_text
from ..errors import InvalidArgument

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


AMBIGUOUS = ("refuse", "earlier", "later")
DAY_SECONDS = 86_400
FIRST_S, LAST_S = -62_135_596_800 + 2 * DAY_SECONDS, 253_402_300_800 - 2 * DAY_SECONDS
"""The years 1 to 9999, less the largest offset."""

Seconds = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Instants(NamedTuple):
    """Seconds since 1970-01-01 UTC of local times; the earlier neighbour in a gap or overlap.

    ``skipped``: in a gap; ``twice``: in an overlap, and the choice is "refuse".
    """

    seconds: Seconds
    skipped: Mask
    twice: Mask


def check_zone(zone: str) -> None:
    """Raise ``InvalidArgument`` for a name that the time zone database lacks."""
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("s")), zone, ambiguous="earliest")
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):
        raise InvalidArgument(
            f"expected the name of a time zone such as 'Europe/Berlin', found {zone!r}"
        ) from None


def instants_of(walls: Seconds, zone: str, ambiguous: str, dates: Mask | bool) -> Instants:
    """Instants of local times (seconds since 1970-01-01 00:00 there); ``dates`` begin a day."""
    within = np.clip(walls, FIRST_S, LAST_S)
    local = pa.array(within, pa.timestamp("s"))
    early, late = (
        pc.assume_timezone(local, zone, ambiguous=side, nonexistent=side)
        for side in ("earliest", "latest")
    )
    first, last = (side.cast(pa.int64()).to_numpy() for side in (early, late))
    skipped = np.zeros(len(walls), np.bool_)
    twice = np.zeros(len(walls), np.bool_)
    seconds = first
    changed = np.flatnonzero(first != last)
    if changed.size:
        shown = pc.local_timestamp(early.take(pa.array(changed))).cast(pa.int64()).to_numpy()
        was_shown = shown == within[changed]
        of_date = np.broadcast_to(np.asarray(dates, np.bool_), len(walls))[changed]
        skipped[changed] = ~was_shown & ~of_date
        twice[changed] = was_shown & ~of_date & (ambiguous == "refuse")
        take_last = (~was_shown & of_date) | (was_shown & ~of_date & (ambiguous == "later"))
        seconds = first.copy()
        seconds[changed[take_last]] = last[changed[take_last]]
    return Instants(walls + (seconds - within), skipped, twice)


LOOKED_AT = 200
YEAR_MIN = 1000
"""%Y reads "24" as the year 24."""
_DATES = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y.%m.%d"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%Y-%m-%d", "%Y/%m/%d"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_PATTERNS = (
    *(f"{date}{clock}" for date in _DATES for clock in _CLOCKS),
    "%d/%b/%Y:%H:%M:%S %z",  # web servers
)
_DATE_LIKE = (
    r"^\s*(\d{4}[./-]\d{1,2}[./-]\d{1,2}"
    r"|\d{1,2}[./-](\d{1,2}|[A-Za-z]{3})[./-](\d{4}|\d{2}))($|[\sT:])"
)

_connection: Any = None
_connecting = ModuleLock()


def open_patterns(**settings: Any) -> Any:
    """The process's DuckDB instance; ``settings`` apply when it is first opened."""
    global _connection
    with LOADING:
        import duckdb

    with _connecting:
        if _connection is None:
            own = {
                "python_enable_replacements": "false",
                "autoinstall_known_extensions": "false",
            }
            _connection = duckdb.connect(config={**own, **settings})
            leave_to_parent(_connection)
        return _connection


def strptime(values: pa.Array, pattern: str) -> pa.Array:
    cursor = open_patterns().cursor()
    import duckdb

    try:
        cursor.execute("SET TimeZone = 'UTC'")
        cursor.register("given", pa.table({"text": pc.utf8_trim_whitespace(values)}))
        table = cursor.sql(
            f"SELECT try_strptime(text, {quoted_text(pattern)}) AS t FROM given"
        ).to_arrow_table()
    except duckdb.Error as error:
        reason = re.sub(r"\s+", " ", str(error)).removeprefix("Invalid Input Error: ")
        raise InvalidArgument(f"the time format {pattern!r} cannot be used: {reason}") from None
    finally:
        cursor.close()
    column = table.column("t").combine_chunks()
    return column.cast(pa.timestamp(column.type.unit))


def likely(values: pa.Array) -> list[str]:
    """The common patterns that read most of a sample, and more than half of it."""
    sample = values.drop_null().slice(0, LOOKED_AT)
    dates = pc.sum(pc.match_substring_regex(sample, _DATE_LIKE), min_count=0).as_py()
    if 2 * dates <= len(sample):
        return []
    read = {pattern: _count(strptime(sample, pattern)) for pattern in _PATTERNS}
    most = max(read.values())
    return [pattern for pattern in _PATTERNS if read[pattern] == most and 2 * most > len(sample)]


def _count(times: pa.Array) -> int:
    return int(pc.sum(pc.greater_equal(pc.year(times), YEAR_MIN), min_count=0).as_py())
