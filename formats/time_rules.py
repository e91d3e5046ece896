"""Time formats of a column: which apply, in which order, in which time zone.

rule            reads
``auto``        ISO text; numbers by magnitude, see ``times.py``
``iso``         ISO text (see ``time_text.py``); numbers are bad values
``s ms us ns``  numbers, also as text, since 1970-01-01 UTC; ISO text as well
``ticks``       whole numbers unchanged; the stream's time is then a plain integer
``%Y-%m-%d...`` text by a strptime pattern (%Y %m %d %H %M %S %f %z %b %p ...)
several         each value by the first rule that reads it (not ``auto`` or ``ticks``)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ..errors import InvalidArgument
from .time_text import AMBIGUOUS, check_zone, strptime

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

    def of_others(self, *, given: bool) -> TimeRule:
        """The rule for other time columns; ``given``: not inferred from ISO text."""
        rules = self.rules if self.kind == "several" else (self,)
        kinds = ("epoch", "pattern") if given else ("epoch",)
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
