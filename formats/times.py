"""Times in text and numbers: which formats a column has, and its values as ticks.

ISO 8601 text takes these forms, surrounding blanks ignored::

    2018-08-01                      a date: midnight
    2018-08-01 05:00[:SS[.fff...]]  blank, 'T' or 't' between; '.' or ',' before 1-9 digits
    2018/08/01 05:00:00             slashes as well
    20180801T050000[.fff]           the basic form (a bare 20180801 is a number, not a time)
    2018-08-01T05Z                  an hour alone, if an offset follows
    ...Z  ...+02:00 ...+0200 ...+02 an offset; without one the time is UTC

Years are 0000-9999; 24:00:00 is the next midnight; second 60 is the first of the next minute, as in
POSIX.  Digits beyond nanoseconds must be zero.  Week dates, ordinal dates, zone names and signed
years are not read.  Texts of one form take one Arrow cast, others a regular expression and NumPy.
DuckDB reads strptime patterns, as Arrow's parser lacks fractions and zones.

rule            reads
``auto``        ISO text; numbers by magnitude
``iso``         ISO text; numbers are bad values
``s ms us ns``  numbers, also as text, since 1970-01-01 UTC; ISO text as well
``ticks``       whole numbers unchanged; the stream's time is then a plain integer
``%Y-%m-%d...`` text by a strptime pattern (%Y %m %d %H %M %S %f %z %b %p ...)
several         each value by the first rule that reads it (not ``auto`` or ``ticks``)

``decide`` settles ``auto`` from a sample and returns a note for every assumption; ``convert``
applies the settled rule.  Numbers are an epoch if 80 % of the sample, in one unit, lie between 1980
and 2100: units differ by factors of 1000 and the range spans a factor of 13, so at most one unit
fits.  Others stay integer ticks.  With an assumed unit, numbers outside 1980-2100 are bad.

ISO text without an offset is bad if earlier values had one, and vice versa, unless a zone is given.
A value finer than the stream's unit is bad: numbers in text are read digit by digit, and only
columns of binary floats are rounded.  A new stream's time is ``timestamp[us]`` (``ns`` if needed)
in UTC, unless a type or the data has a zone.  Two-digit years follow C (69-99: 19xx).

Local times of a named zone become UTC a column at a time.  A time in a DST gap has no instant, one
in an overlap two; both are reported.  A *date* is the instant at which its day begins: the first of
two midnights, or the transition if it skips midnight.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.ownership import LOADING, ModuleLock, leave_to_parent
from ..core.sql_text import quoted_text
from ..core.times import INT64_MAX, INT64_MIN, NS_PER_SECOND, TICKS_PER_SECOND
from ..core.zones import CYCLE_S, instants_of_local, local_times
from ..errors import InvalidArgument, InvalidData
from .chunks import shown
from .decimals import NUMBER, TOO_LARGE, UNREAD, Codes, Converted, flag, parse_decimals
from .decimals import TOO_FINE as DIGITS_TOO_FINE
from .kinds import is_number

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
        _read_far_years(plain, left, times)
    return times


def _read_far_years(texts: pa.Array, rows: npt.NDArray[np.int64], times: IsoTimes) -> None:
    """Years of a sign and five digits or more, as the same year of the cycle from 2000 on."""
    unread = np.flatnonzero(~times.ok[rows])
    parts = pc.extract_regex(texts.take(pa.array(unread)), r"^(?P<year>[+-]\d{5,12})(?P<rest>-.*)$")
    found = np.flatnonzero(parts.is_valid())
    if not found.size:
        return
    parts, at = parts.take(pa.array(found)), unread[found]
    years = pc.ascii_ltrim(parts.field("year"), "+").cast(pa.int64()).to_numpy()
    cycles, place = np.divmod(years - 2000, 400)
    near = pa.array(place + 2000).cast(parts.field("rest").type)
    read = parse_iso(pc.binary_join_element_wise(near, parts.field("rest"), ""))
    for whole, part in zip(times, read, strict=True):
        whole[rows[at]] = part
    for row, cycle in zip(rows[at].tolist(), cycles.tolist(), strict=True):
        seconds = int(times.seconds[row]) + cycle * CYCLE_S
        times.ok[row] &= abs(seconds) <= INT64_MAX
        times.seconds[row] = seconds if times.ok[row] else 0


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
        read_part = read(texts.take(pa.array(at)))
        if read_part is None:
            left.append(rows[at])
            continue
        for whole, part in zip(times, read_part, strict=True):
            whole[rows[at]] = part
    return np.concatenate(left)


def _lengths(texts: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.binary_length(texts)
    if lengths.null_count:
        lengths = lengths.fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _cast(texts: pa.Array) -> IsoTimes | None:
    present = texts.drop_null() if texts.null_count else texts
    form = _TIME.fullmatch(present[0].as_buffer()) if len(present) else None
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
    parts_read = (seconds, nanos, ok, has_offset, has_clock)
    return IsoTimes(*(np.where(ok, part, part.dtype.type(0)) for part in parts_read))


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
    first = instants_of_local(within, zone, "earliest", "earliest")
    last = instants_of_local(within, zone, "latest", "latest")
    skipped = np.zeros(len(walls), np.bool_)
    twice = np.zeros(len(walls), np.bool_)
    seconds = first
    changed = np.flatnonzero(first != last)
    if changed.size:
        was_shown = local_times(first[changed], zone) == within[changed]
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

    texts = pc.utf8_trim_whitespace(values)
    if pattern.endswith("%z"):  # in Python it also reads "Z"
        texts = pc.replace_substring_regex(texts, r"(\d *)[zZ]$", r"\1+00")
    try:
        cursor.execute("SET TimeZone = 'UTC'")
        cursor.register("given", pa.table({"text": texts}))
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


_UNIT_WORDS = {
    "s": "s", "sec": "s", "seconds": "s",
    "ms": "ms", "millis": "ms", "milliseconds": "ms",
    "us": "us", "micros": "us", "microseconds": "us",
    "ns": "ns", "nanos": "ns", "nanoseconds": "ns",
}  # fmt: skip
_TELLS_OFFSET = re.compile(r"(?<!%)(?:%%)*%[zZ]")
_TELLS_CLOCK = re.compile(r"(?<!%)(?:%%)*%-?[HIMSfgncX]")


@dataclass(frozen=True)
class TimeRule:
    """How the values of a time column are read.

    ``unit`` is for epoch numbers; if ``assumed`` from magnitudes, values outside 1980-2100 are bad.
    ``zone`` (UTC) is for times without an offset, ``ambiguous`` for local times that occur twice.
    """

    kind: str
    unit: str | None = None
    pattern: str | None = None
    assumed: bool = False
    rules: tuple[TimeRule, ...] = ()
    zone: str | None = None
    ambiguous: str = "refuse"

    @property
    def tells_offset(self) -> bool:
        return self.pattern is not None and _TELLS_OFFSET.search(self.pattern) is not None

    @property
    def of_dates(self) -> bool:
        return self.pattern is not None and _TELLS_CLOCK.search(self.pattern) is None

    @property
    def counting(self) -> TimeRule | None:
        """The rule for numbers; None if numbers are bad values."""
        if self.kind == "several":
            return next((rule for rule in self.rules if rule.kind == "epoch"), None)
        return self if self.kind == "epoch" and self.unit is not None else None

    def as_iso(self) -> TimeRule:
        return TimeRule("iso", zone=self.zone, ambiguous=self.ambiguous)

    def of_others(self, *, declared: bool) -> TimeRule:
        """The rule for other time columns; ``declared``: not inferred from ISO text."""
        rules = self.rules if self.kind == "several" else (self,)
        kinds = ("epoch", "pattern") if declared else ("epoch",)
        mine = [rule for rule in rules if rule.kind in kinds]
        if len(mine) == 1 and mine[0].kind == "epoch":
            return mine[0]
        if not mine:
            return self.as_iso()
        return replace(self.as_iso(), kind="several", rules=(*mine, self.as_iso()))

    def texts(self) -> list[str]:
        rules = self.rules if self.kind == "several" else (self,)
        return [rule.pattern or rule.unit or rule.kind for rule in rules]


@dataclass
class Offsets:
    """Whether ISO times of a column have an offset; None before the first."""

    present: bool | None = None


def parse_time_format(text: str, *, tried: bool = True) -> TimeRule:
    """Read one format; ``tried``: compile a pattern now."""
    word = text.strip().lower()
    if word in ("auto", "iso", "ticks"):
        return TimeRule(word)
    if word in _UNIT_WORDS:
        return TimeRule("epoch", unit=_UNIT_WORDS[word])
    if "%" in text:
        if tried:
            strptime(pa.array([""], pa.string()), text)
        return TimeRule("pattern", pattern=text)
    raise InvalidArgument(
        f"a time format is auto, iso, ticks, s, ms, us, ns, or a pattern such as "
        f"'%d.%m.%Y %H:%M:%S', found {text!r}"
    )


def parse_time_formats(
    formats: str | Sequence[str],
    *,
    zone: str | None = None,
    ambiguous: str = "refuse",
    tried: bool = True,
) -> TimeRule:
    """Read formats, of which each value takes the first that reads it."""
    texts = [formats] if isinstance(formats, str) else list(formats) or ["auto"]
    if ambiguous not in AMBIGUOUS:
        raise InvalidArgument(
            f"ambiguous is one of {', '.join(AMBIGUOUS)}; found {ambiguous!r}: it says which of "
            "both a time is that exists twice where clocks are set back"
        )
    if zone is not None:
        check_zone(zone)
    elif ambiguous != "refuse":
        raise InvalidArgument(
            "ambiguous is about the clocks of a time zone: it goes with one, found none"
        )
    rules = tuple(
        replace(parse_time_format(text, tried=tried), zone=zone, ambiguous=ambiguous)
        for text in dict.fromkeys(texts)
    )
    if zone is not None and any(rule.kind == "ticks" for rule in rules):
        raise InvalidArgument("plain integer ticks (ticks) are in no time zone")
    if len(rules) == 1:
        return rules[0]
    for rule in rules:
        if rule.kind in ("auto", "ticks"):
            raise InvalidArgument(
                f"the time format {rule.kind} stands alone; several are iso, patterns, and at most "
                f"one of s, ms, us, ns; found {', '.join(texts)}"
            )
    counting = [str(rule.unit) for rule in rules if rule.kind == "epoch"]
    if len(counting) > 1:
        raise InvalidArgument(
            f"of several time formats one counts from 1970: every number that {counting[1]} reads "
            f"is read by {counting[0]} before it"
        )
    return TimeRule("several", rules=rules, zone=zone, ambiguous=ambiguous)


PLAUSIBLE_FIRST_S = 315_532_800  # 1980-01-01
PLAUSIBLE_END_S = 4_102_444_800  # 2100-01-01
PLAUSIBLE_SHARE = 0.8
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_ZONE = "pass time_zone= ('UTC', or the zone that times without one are of)"

MISSING, UNREADABLE, TOO_FINE, TOO_FAR, NOT_FINITE, IMPLAUSIBLE, NO_UNIT = range(1, 8)
SKIPPED, TWICE, WITHOUT_OFFSET, WITH_OFFSET = range(8, 12)


class Decision(NamedTuple):
    rule: TimeRule
    type: pa.DataType
    note: str | None


def is_text(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_string_view(type_)
    )


# ------------------------------------------------------------------------------------- deciding


def decide(
    sample: pa.Array, rule: TimeRule, *, column: str, wanted: pa.DataType | None = None
) -> Decision:
    """Settle a rule from a sample; ``wanted`` is the time's type, if it exists.

    Raises InvalidData if ``auto`` finds neither ISO times nor whole numbers.
    """
    micros = pa.timestamp("us")
    sample = _plain_numbers(sample)
    type_ = sample.type
    if wanted is not None and pa.types.is_integer(wanted):
        if rule.kind not in ("auto", "ticks"):
            raise InvalidArgument(
                f"time column {column!r} is a plain integer; a time format makes no sense for it"
            )
        if rule.zone is not None:
            raise InvalidArgument(
                f"time column {column!r} is a plain integer, which is in no time zone"
            )
        return Decision(TimeRule("ticks"), wanted, None)
    if rule.kind == "ticks":
        if wanted is not None:
            raise InvalidArgument(
                f"time column {column!r} is a {wanted}; give the unit of its numbers (s, ms, us or "
                "ns)"
            )
        return Decision(rule, pa.int64(), None)
    if pa.types.is_timestamp(type_):
        return Decision(rule.as_iso(), wanted or type_, None)
    if pa.types.is_date(type_):
        return Decision(rule.as_iso(), wanted or micros, None)
    if rule.kind in ("several", "pattern", "epoch"):
        fine = any(one.unit == "ns" or "%n" in (one.pattern or "") for one in rule.rules or (rule,))
        if rule.kind == "epoch" and not fine:
            fine = _finer_than_micros(sample.drop_null(), rule.unit or "s")
        return Decision(rule, wanted or (pa.timestamp("ns") if fine else micros), None)
    values = sample.drop_null()
    if is_text(type_):
        times = parse_iso(values)
        readable = int(np.count_nonzero(times.ok))
        numeric = pc.match_substring_regex(values, NUMBER)
        if rule.kind == "iso" or readable >= pc.sum(numeric).as_py() or not len(values):
            if rule.kind == "auto" and len(values) and 2 * readable < len(values):
                raise InvalidData(
                    f"column {column!r} does not hold times: expected ISO 8601 such as "
                    f"2018-08-01T05:00:00Z or numbers, found {shown(values[0].as_py())}; pass "
                    f"time_format= ({_advised(values)})"
                )
            fine = bool(np.any(times.nanos % 1000))
            note = None
            if np.any(times.has_offset) and (wanted is None or wanted.tz is None):
                note = f"{column}: times with an offset are stored as UTC"
            new = pa.timestamp("ns") if fine else micros
            return Decision(rule.as_iso(), wanted or new, note)
        values = values.filter(numeric)
    if rule.kind == "iso":
        return Decision(rule, wanted or micros, None)
    if not (is_text(type_) or is_number(type_) or pa.types.is_boolean(type_)):
        raise InvalidData(f"column {column!r} of type {type_} holds no times")
    settled = _decide_numbers(values, column, wanted)
    if rule.zone is None:
        return settled
    if settled.rule.kind == "ticks":
        raise InvalidData(
            f"column {column!r} holds numbers that are no epoch, and numbers are in no time zone; "
            "pass time_format= (a pattern such as '%d.%m.%Y %H:%M')"
        )
    zoned = replace(settled.rule, zone=rule.zone, ambiguous=rule.ambiguous)
    return settled._replace(rule=zoned)


def _plain_numbers(values: pa.Array) -> pa.Array:
    """Decimals as the text that they are written in, which is read exactly."""
    return values.cast(pa.string()) if pa.types.is_decimal(values.type) else values


def _advised(values: pa.Array) -> str:
    patterns = likely(values)
    if not patterns:
        return "a pattern such as '%d.%m.%Y %H:%M'"
    one = len(patterns) == 1
    return (
        f"{patterns[0]!r} reads them"
        if one
        else f"{' or '.join(map(repr, patterns))}: which is it?"
    )


def _decide_numbers(values: pa.Array, column: str, wanted: pa.DataType | None) -> Decision:
    plain = pc.utf8_trim_whitespace(values) if is_text(values.type) else values
    numbers = plain.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return Decision(TimeRule("auto"), wanted or pa.timestamp("us"), None)
    for unit, per_second in TICKS_PER_SECOND.items():
        first, end = PLAUSIBLE_FIRST_S * per_second, PLAUSIBLE_END_S * per_second
        plausible = numbers[(numbers >= first) & (numbers < end)]
        if len(plausible) >= PLAUSIBLE_SHARE * len(numbers):
            low, high = float(plausible.min()), float(plausible.max())
            fine = unit == "ns" or _finer_than_micros(values, unit)
            return Decision(
                TimeRule("epoch", unit=unit, assumed=True),
                wanted or pa.timestamp("ns" if fine else "us"),
                f"{column}: numbers taken as {_UNIT_NAMES[unit]} since 1970-01-01 UTC "
                f"({_day(low, per_second)} to {_day(high, per_second)}); "
                f"--time-format {unit} says so, or ticks to keep plain integers",
            )
    low, high = float(numbers.min()), float(numbers.max())
    if wanted is not None:
        raise InvalidData(
            f"column {column!r} holds numbers from {low:.15g} to {high:.15g}, which are no epoch "
            "between 1980 and 2100 in any one unit; pass time_format= s, ms, us or ns"
        )
    return Decision(
        TimeRule("ticks"),
        pa.int64(),
        f"{column}: numbers from {low:.15g} to {high:.15g} are no epoch between 1980 and 2100, "
        "kept as plain integer ticks; --time-format s, ms, us or ns if they count from 1970",
    )


def _finer_than_micros(values: pa.Array, unit: str) -> bool:
    if not is_text(values.type):
        return False
    power = 6 - len(str(TICKS_PER_SECOND[unit])) + 1
    return bool(np.any(parse_decimals(values, power).status == DIGITS_TOO_FINE))


def _day(value: float, per_second: int) -> str:
    return str(np.datetime64(int(value // per_second), "s"))[:16].replace("T", " ")


# ------------------------------------------------------------------------------------ converting


def convert(
    values: pa.Array,
    rule: TimeRule,
    target: pa.DataType,
    *,
    required: bool,
    offsets: Offsets | None = None,
) -> Converted:
    """Convert a column to a timestamp, or to int64 for ticks, by a settled rule.

    ``required``: a null is bad.  ``offsets``: seen so far.
    """
    codes: Codes = np.zeros(len(values), np.uint8)
    values = _plain_numbers(values)
    per_second = None if pa.types.is_integer(target) else TICKS_PER_SECOND[target.unit]
    if per_second is None:
        ticks = _plain_ticks(values, codes)
        most = 2 ** (target.bit_width - 1) - 1
        flag(codes, (ticks < -most - 1) | (ticks > most), TOO_FAR)
    elif pa.types.is_timestamp(values.type):
        raw = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        per_in = TICKS_PER_SECOND[values.type.unit]
        if rule.zone is not None and values.type.tz is None:
            raw = _from_clocks(raw, per_in, rule, codes)
        ticks = _rescale(raw, per_in, per_second, codes)
    elif pa.types.is_date(values.type):
        raw = values.cast(pa.date32()).cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        days = raw.astype(np.int64) * DAY_SECONDS
        if rule.zone is not None:
            days = _from_clocks(days, 1, rule, codes, dates=True)
        ticks = _rescale(days, 1, per_second, codes)
    elif is_text(values.type):
        read = _by_several if rule.kind == "several" else _from_text
        ticks = read(values, rule, target.unit, codes, offsets)
    elif pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        ticks = _from_numbers(values, rule, target.unit, codes)
    else:
        raise InvalidData(f"a column of type {values.type} holds no times")
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    codes[nulls] = MISSING if required else 0
    if not codes.any():
        mask = nulls if values.null_count else None
        return Converted(pa.array(ticks, pa.int64(), mask=mask).cast(target))
    ticks[codes != 0] = 0
    converted = pa.array(ticks, pa.int64(), mask=nulls | (codes != 0)).cast(target)
    return Converted(converted, codes, _reasons(rule, target))


def _reasons(rule: TimeRule, target: pa.DataType) -> tuple[str, ...]:
    unit = getattr(target, "unit", None)
    if unit is None:
        expected = "a whole number"
    elif rule.kind == "several":
        expected = f"a time by one of {', '.join(map(repr, rule.texts()))}"
    elif rule.kind == "pattern":
        expected = f"a time like {rule.pattern!r}"
    elif rule.kind == "epoch":
        expected = f"{_UNIT_NAMES[rule.unit or 's']} since 1970"
    else:
        expected = "a time such as 2018-08-01T05:00:00Z"
    return (
        "the time is missing",
        f"expected {expected}, found {{value}}",
        f"the time {{value}} is finer than the stream's unit, {_UNIT_NAMES.get(unit or '', 'one')}",
        f"the time {{value}} is outside of what {target} can hold",
        "expected a time, found {value}, which is not a finite number",
        f"the time {{value}}, taken as {_UNIT_NAMES.get(rule.unit or '', 'an epoch')} since 1970, "
        "is not between 1980 and 2100; pass time_format= if it is meant so",
        "the time {value} is a number without a unit; pass time_format= s, ms, us or ns",
        f"the time {{value}} never was in {rule.zone}: clocks were set forward over it",
        f"the time {{value}} was twice in {rule.zone}, where clocks were set back; which is meant "
        "can be said: ambiguous, earlier or later",
        f"the time {{value}} has no offset, while others of its column have one; {_ZONE}",
        f"the time {{value}} has an offset, while those before it have none; {_ZONE}",
    )


def _plain_ticks(values: pa.Array, codes: Codes) -> Any:
    type_ = values.type
    if is_text(type_):
        return _text_ticks(values, 0, codes, UNREADABLE)
    if pa.types.is_floating(type_):
        numbers = _floats(values, codes)
        far = np.abs(numbers) >= 2.0**63
        flag(codes, far, TOO_FAR)
        numbers = np.where(far, 0.0, numbers)
        flag(codes, numbers != np.floor(numbers), UNREADABLE)
        return numbers.astype(np.int64)
    if pa.types.is_integer(type_):
        raw = values.fill_null(0).to_numpy(zero_copy_only=False)
        flag(codes, raw > INT64_MAX, TOO_FAR)
        return np.where(raw > INT64_MAX, 0, raw).astype(np.int64)
    flag(codes, codes == 0, UNREADABLE)
    return np.zeros(len(values), np.int64)


def _floats(values: pa.Array, codes: Codes) -> Any:
    raw = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bad = ~np.isfinite(raw)
    flag(codes, bad, NOT_FINITE)
    return np.where(bad, 0.0, raw)


def _rescale(
    raw: npt.NDArray[np.int64], per_in: int, per_out: int, codes: Codes
) -> npt.NDArray[np.int64]:
    if per_out == per_in:
        return raw.copy()
    if per_out > per_in:
        factor = per_out // per_in
        limit = INT64_MAX // factor
        flag(codes, (raw > limit) | (raw < -limit), TOO_FAR)
        return raw * factor
    divisor = per_in // per_out
    ticks, rest = np.divmod(raw, divisor)
    flag(codes, rest != 0, TOO_FINE)
    return ticks


def _from_numbers(
    values: pa.Array, rule: TimeRule, unit: str, codes: Codes
) -> npt.NDArray[np.int64]:
    """Numbers since 1970, also in text; with an assumed unit only those between 1980 and 2100."""
    counting = rule.counting
    if counting is None or counting.unit is None:
        flag(codes, codes == 0, NO_UNIT)
        return np.zeros(len(values), np.int64)
    per_in, per_out = TICKS_PER_SECOND[counting.unit], TICKS_PER_SECOND[unit]
    if is_text(values.type):
        ticks = _text_ticks(values, len(str(per_out)) - len(str(per_in)), codes, TOO_FINE)
    elif pa.types.is_floating(values.type):
        ticks = _float_ticks(values, per_in, per_out, codes)
    else:
        ticks = _rescale(_plain_ticks(values, codes), per_in, per_out, codes)
    if rule.assumed:
        absurd = (ticks < PLAUSIBLE_FIRST_S * per_out) | (ticks >= PLAUSIBLE_END_S * per_out)
        read = codes == 0 if is_text(values.type) else codes != NOT_FINITE
        codes[(codes == TOO_FAR) | (read & absurd)] = IMPLAUSIBLE
    return ticks


def _float_ticks(
    values: pa.Array, per_in: int, per_out: int, codes: Codes
) -> npt.NDArray[np.int64]:
    numbers = _floats(values, codes)
    far = np.abs(numbers) * (per_out / per_in) >= 2.0**63
    flag(codes, far, TOO_FAR)
    numbers = np.where(far, 0.0, numbers)
    if per_out < per_in:
        return np.asarray(np.rint(numbers * (per_out / per_in)).astype(np.int64))
    whole, part = np.divmod(numbers, 1.0)
    factor = per_out // per_in
    return np.asarray(whole.astype(np.int64) * factor + np.rint(part * factor).astype(np.int64))


def _text_ticks(values: pa.Array, power: int, codes: Codes, fine: int) -> npt.NDArray[np.int64]:
    parsed = parse_decimals(values, power)
    ticks = parsed.as_int64()
    flag(codes, parsed.status == UNREAD, UNREADABLE)
    flag(codes, parsed.status == DIGITS_TOO_FINE, fine)
    flag(codes, parsed.status == TOO_LARGE, TOO_FAR)
    return ticks


def _from_text(
    values: pa.Array,
    rule: TimeRule,
    unit: str,
    codes: Codes,
    offsets: Offsets | None,
) -> npt.NDArray[np.int64]:
    if rule.kind == "pattern" and rule.pattern is not None:
        parsed = strptime(values, rule.pattern)
        flag(codes, parsed.is_null().to_numpy(zero_copy_only=False), UNREADABLE)
        raw = parsed.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        per_second = TICKS_PER_SECOND[parsed.type.unit]
        if rule.zone is not None and not rule.tells_offset:
            raw = _from_clocks(raw, per_second, rule, codes, dates=rule.of_dates)
        return _rescale(raw, per_second, TICKS_PER_SECOND[unit], codes)
    numeric = np.zeros(len(values), np.bool_)
    ticks = np.zeros(len(values), np.int64)
    if rule.kind == "epoch":
        number_codes: Codes = np.zeros(len(values), np.uint8)
        ticks = _from_numbers(values, rule, unit, number_codes)
        numeric = number_codes != UNREADABLE
        codes[numeric] = number_codes[numeric]
        if np.count_nonzero(~numeric) == values.null_count:
            return ticks
    times = parse_iso(values)
    per_second = TICKS_PER_SECOND[unit]
    seconds = times.seconds
    if rule.zone is not None:
        seconds = _iso_from_clocks(times, rule, codes)
    elif offsets is not None:
        if offsets.present is None and times.ok.any():
            offsets.present = bool((times.ok & times.has_offset).any())
        other = times.ok & (times.has_offset != offsets.present)
        flag(codes, other, WITHOUT_OFFSET if offsets.present else WITH_OFFSET)
    fraction, rest = np.divmod(times.nanos, NS_PER_SECOND // per_second)
    low, least = divmod(INT64_MIN, per_second)
    high, most = divmod(INT64_MAX, per_second)
    far = (seconds < low) | ((seconds == low) & (fraction < least))
    far = times.ok & (far | (seconds > high) | ((seconds == high) & (fraction > most)))
    iso = np.where(far, 0, seconds) * per_second + fraction
    unread = ~times.ok & ~numeric
    fine = times.ok & (rest != 0)
    if rule.kind == "epoch":
        iso = np.where(numeric, ticks, iso)
    if rule.kind in ("iso", "auto") and unread.any():
        is_number = pc.match_substring_regex(values, NUMBER).fill_null(False)
        flag(codes, unread & is_number.to_numpy(zero_copy_only=False), NO_UNIT)
    flag(codes, unread, UNREADABLE)
    flag(codes, far, TOO_FAR)
    flag(codes, fine, TOO_FINE)
    return np.asarray(iso, np.int64)


def _by_several(
    values: pa.Array,
    rule: TimeRule,
    unit: str,
    codes: Codes,
    offsets: Offsets | None,
) -> npt.NDArray[np.int64]:
    ticks = np.zeros(len(values), np.int64)
    left = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    for one in rule.rules:
        if not left.size:
            break
        some = values if left.size == len(values) else values.take(pa.array(left))
        rule_codes: Codes = np.zeros(left.size, np.uint8)
        read = _from_text(some, one, unit, rule_codes, offsets)
        unread = (rule_codes == UNREADABLE) | (rule_codes == NO_UNIT)
        ticks[left[~unread]] = read[~unread]
        codes[left[~unread]] = rule_codes[~unread]
        left = left[unread]
    codes[left] = UNREADABLE
    return ticks


def _from_clocks(
    walls: npt.NDArray[np.int64],
    per_second: int,
    rule: TimeRule,
    codes: Codes,
    *,
    dates: Mask | bool = False,
) -> npt.NDArray[np.int64]:
    edge = INT64_MAX - 2 * DAY_SECONDS * per_second
    far = (walls > edge) | (walls < -edge)
    flag(codes, far, TOO_FAR)
    walls = np.where(far, 0, walls)
    seconds = walls // per_second
    instants = instants_of(seconds, rule.zone or "UTC", rule.ambiguous, dates)
    flag(codes, instants.skipped, SKIPPED)
    flag(codes, instants.twice, TWICE)
    return walls + (instants.seconds - seconds) * per_second


def _iso_from_clocks(times: IsoTimes, rule: TimeRule, codes: Codes) -> npt.NDArray[np.int64]:
    local = np.flatnonzero(times.ok & ~times.has_offset)
    some = codes[local]
    seconds = times.seconds.copy()
    seconds[local] = _from_clocks(seconds[local], 1, rule, some, dates=~times.has_clock[local])
    codes[local] = some
    return seconds
