"""What a time column's values mean, as it is asked for: formats, their order, a time zone.

Purpose
    A :class:`TimeRule` is what ``--time-format``, ``--time-zone`` and ``--ambiguous`` say together.
    :func:`parse_time_formats` reads it; ``times.py`` settles and applies it.

Layout
    rule            reads
    ``auto``        ISO text; numbers by magnitude, see ``times.py``
    ``iso``         ISO text (see ``isotime.py``); numbers are bad values
    ``s ms us ns``  numbers, also as text, since 1970-01-01 UTC; ISO text beside them
    ``ticks``       whole numbers as they are; the stream's time is then a plain integer
    ``%Y-%m-%d...`` text by a strptime pattern (%Y %m %d %H %M %S %f %z %b %p ...)
    several         each value by the first of them that reads it

Invariants
    ``auto`` and ``ticks`` stand alone: the one looks at a sample before it reads, the other gives
    no times.  At most one of several counts from 1970, for no second one would ever be asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ..errors import InvalidArgument
from .local_times import AMBIGUOUS, check_zone
from .time_patterns import strptime

__all__ = ["Offsets", "TimeRule", "parse_time_format", "parse_time_formats"]

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
    """What a time column's values mean.

    Attributes
    ----------
    kind : {"auto", "iso", "epoch", "pattern", "ticks", "several"}
    unit : str, optional
        Of epoch numbers: s, ms, us or ns.
    pattern : str, optional
        The strptime pattern.
    assumed : bool
        The unit was inferred from magnitudes: values outside of 1980-2100 are refused.
    rules : tuple of TimeRule
        Of ``several``, in order.
    zone : str, optional
        Whose clocks times without an offset were read from; UTC by default.
    ambiguous : {"refuse", "earlier", "later"}
        Which of both a time is that these clocks showed twice.
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
        """Whether every text that its pattern reads has an offset or the name of a zone."""
        return self.pattern is not None and _TELLS_OFFSET.search(self.pattern) is not None

    @property
    def of_dates(self) -> bool:
        """Whether what its pattern reads has no time of day."""
        return self.pattern is not None and _TELLS_CLOCK.search(self.pattern) is None

    @property
    def counting(self) -> TimeRule | None:
        """The rule by which numbers are read; None where they are bad values."""
        if self.kind == "several":
            return next((rule for rule in self.rules if rule.kind == "epoch"), None)
        return self if self.kind == "epoch" and self.unit is not None else None

    def as_iso(self) -> TimeRule:
        """ISO text by the same clocks."""
        return TimeRule("iso", zone=self.zone, ambiguous=self.ambiguous)

    def of_others(self, *, given: bool) -> TimeRule:
        """How columns of times beside the time column are read.

        Parameters
        ----------
        given : bool
            Their type was not told from ISO text, so a pattern may be that of their values.
        """
        rules = self.rules if self.kind == "several" else (self,)
        kinds = ("epoch", "pattern") if given else ("epoch",)
        mine = [rule for rule in rules if rule.kind in kinds]
        if len(mine) == 1 and mine[0].kind == "epoch":
            return mine[0]
        if not mine:
            return self.as_iso()
        return replace(self.as_iso(), kind="several", rules=(*mine, self.as_iso()))

    def texts(self) -> list[str]:
        """Its formats, as one asks for them."""
        rules = self.rules if self.kind == "several" else (self,)
        return [rule.pattern or rule.unit or rule.kind for rule in rules]


@dataclass
class Offsets:
    """Whether ISO times of a column have an offset, as the first chunk of an ingest shows.

    Attributes
    ----------
    present : bool, optional
        Some of them have one; unknown before the first time.
    """

    present: bool | None = None


def parse_time_format(text: str, *, tried: bool = True) -> TimeRule:
    """Read one format: auto, iso, ticks, s, ms, us, ns, or a strptime pattern.

    Whether a pattern can work is tried at once, or when it is used.
    """
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
    """Read formats, of which each value has the first that reads it.

    Parameters
    ----------
    zone : str, optional
        See :class:`TimeRule`, as for ``ambiguous``.
    tried : bool
        See :func:`parse_time_format`.

    Raises
    ------
    InvalidArgument
        For what is no format, formats that do not go together, an unknown time zone.
    """
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
