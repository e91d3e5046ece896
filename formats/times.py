"""Converting the values of a time column: ISO text, patterns, epoch numbers, plain ticks.

``decide`` settles ``auto`` from a sample and returns a note for every assumption; ``convert``
applies the settled rule.  Numbers are an epoch if 80 % of the sample, in one unit, lie between 1980
and 2100: units differ by factors of 1000 and the range spans a factor of 13, so at most one unit
fits.  Others stay integer ticks.  With an assumed unit, numbers outside 1980-2100 are bad.

ISO text without an offset is bad if earlier values had one, and vice versa, unless a zone is given.
A value finer than the stream's unit is bad: numbers in text are read digit by digit, and only
columns of binary floats are rounded.  Times
without an offset are UTC or in the rule's zone.  A new stream's time is ``timestamp[us]`` (``ns``
if needed) in UTC, unless a type or the data has a zone.  Two-digit years follow C (69-99: 19xx).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.times import INT64_MAX, NS_PER_SECOND, TICKS_PER_SECOND
from ..errors import InvalidArgument, InvalidData
from .chunks import shown
from .decimals import TOO_FINE as DIGITS_TOO_FINE
from .decimals import TOO_LARGE, UNREAD, Codes, Converted, flag, parse_decimals
from .time_rules import Offsets, TimeRule
from .time_text import DAY_SECONDS, IsoTimes, instants_of, likely, parse_iso, strptime

PLAUSIBLE_FIRST_S = 315_532_800  # 1980-01-01
PLAUSIBLE_END_S = 4_102_444_800  # 2100-01-01
PLAUSIBLE_SHARE = 0.8
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_ZONE = "pass time_zone= ('UTC', or the zone that times without one are of)"
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"

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
        numeric = pc.match_substring_regex(values, _NUMBER)
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


def _advised(values: pa.Array) -> str:
    found = likely(values)
    if not found:
        return "a pattern such as '%d.%m.%Y %H:%M'"
    one = len(found) == 1
    return f"{found[0]!r} reads them" if one else f"{' or '.join(map(repr, found))}: which is it?"


def _decide_numbers(values: pa.Array, column: str, wanted: pa.DataType | None) -> Decision:
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
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
    found = pa.array(ticks, pa.int64(), mask=nulls | (codes != 0)).cast(target)
    return Converted(found, codes, _reasons(rule, target))


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
    if pa.types.is_uint64(type_):
        raw = values.fill_null(0).to_numpy(zero_copy_only=False)
        flag(codes, raw > np.uint64(INT64_MAX), TOO_FAR)
        return np.where(raw > np.uint64(INT64_MAX), np.uint64(0), raw).astype(np.int64)
    if pa.types.is_integer(type_):
        return values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
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
    counting = rule.counting
    if counting is None or counting.unit is None:
        flag(codes, codes == 0, NO_UNIT)
        return np.zeros(len(values), np.int64)
    per_in, per_out = TICKS_PER_SECOND[counting.unit], TICKS_PER_SECOND[unit]
    if pa.types.is_floating(values.type):
        numbers = _floats(values, codes)
        whole, part = np.divmod(numbers, 1.0)
        low = (PLAUSIBLE_FIRST_S * per_in, PLAUSIBLE_END_S * per_in)
        if rule.assumed:
            flag(codes, (numbers < low[0]) | (numbers >= low[1]), IMPLAUSIBLE)
        far = np.abs(numbers) * (per_out / per_in) >= 2.0**63
        flag(codes, far, TOO_FAR)
        whole = np.where(far, 0.0, whole)
        if per_out >= per_in:
            factor = per_out // per_in
            ticks = whole.astype(np.int64) * factor + np.rint(part * factor).astype(np.int64)
            return np.asarray(ticks)
        scaled = np.rint(np.where(far, 0.0, numbers) * (per_out / per_in))
        return np.asarray(scaled.astype(np.int64))
    raw = _plain_ticks(values, codes)
    if rule.assumed:
        first, end = PLAUSIBLE_FIRST_S * per_in, PLAUSIBLE_END_S * per_in
        flag(codes, (raw < first) | (raw >= end), IMPLAUSIBLE)
    return _rescale(raw, per_in, per_out, codes)


def _text_ticks(values: pa.Array, power: int, codes: Codes, fine: int) -> npt.NDArray[np.int64]:
    found = parse_decimals(values, power)
    ticks = found.as_int64()
    flag(codes, found.status == UNREAD, UNREADABLE)
    flag(codes, found.status == DIGITS_TOO_FINE, fine)
    flag(codes, found.status == TOO_LARGE, TOO_FAR)
    return ticks


def _epoch_text(values: pa.Array, rule: TimeRule, unit: str, codes: Codes) -> npt.NDArray[np.int64]:
    per_in, per_out = TICKS_PER_SECOND[rule.unit or "s"], TICKS_PER_SECOND[unit]
    power = len(str(per_out)) - len(str(per_in))
    found: Codes = np.zeros(len(values), np.uint8)
    ticks = _text_ticks(values, power, found, TOO_FINE)
    if rule.assumed:
        first, end = PLAUSIBLE_FIRST_S * per_out, PLAUSIBLE_END_S * per_out
        absurd = (found == TOO_FAR) | ((found == 0) & ((ticks < first) | (ticks >= end)))
        flag(codes, absurd, IMPLAUSIBLE)
    np.copyto(codes, found, where=codes == 0)
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
        ticks = _epoch_text(values, rule, unit, number_codes)
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
    limit = INT64_MAX // per_second - 1
    far = times.ok & ((seconds > limit) | (seconds < -limit))
    fraction, rest = np.divmod(times.nanos, NS_PER_SECOND // per_second)
    iso = np.where(far, 0, seconds) * per_second + fraction
    unread = ~times.ok & ~numeric
    fine = times.ok & (rest != 0)
    if rule.kind == "epoch":
        iso = np.where(numeric, ticks, iso)
    if rule.kind in ("iso", "auto") and unread.any():
        is_number = pc.match_substring_regex(values, _NUMBER).fill_null(False)
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
        found: Codes = np.zeros(left.size, np.uint8)
        read = _from_text(some, one, unit, found, offsets)
        unread = (found == UNREADABLE) | (found == NO_UNIT)
        ticks[left[~unread]] = read[~unread]
        codes[left[~unread]] = found[~unread]
        left = left[unread]
    codes[left] = UNREADABLE
    return ticks


def _from_clocks(
    walls: npt.NDArray[np.int64],
    per_second: int,
    rule: TimeRule,
    codes: Codes,
    *,
    dates: bool = False,
) -> npt.NDArray[np.int64]:
    edge = INT64_MAX - 2 * DAY_SECONDS * per_second
    far = (walls > edge) | (walls < -edge)
    flag(codes, far, TOO_FAR)
    walls = np.where(far, 0, walls)
    seconds = walls // per_second
    found = instants_of(seconds, rule.zone or "UTC", rule.ambiguous, dates)
    flag(codes, found.skipped, SKIPPED)
    flag(codes, found.twice, TWICE)
    return walls + (found.seconds - seconds) * per_second


def _iso_from_clocks(times: IsoTimes, rule: TimeRule, codes: Codes) -> npt.NDArray[np.int64]:
    local = np.flatnonzero(times.ok & ~times.has_offset)
    found = instants_of(
        times.seconds[local], rule.zone or "UTC", rule.ambiguous, ~times.has_clock[local]
    )
    for which, code in ((found.skipped, SKIPPED), (found.twice, TWICE)):
        at = local[which]
        codes[at] = np.where(codes[at] == 0, code, codes[at])
    seconds = times.seconds.copy()
    seconds[local] = found.seconds
    return seconds
