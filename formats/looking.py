"""Looking at a source before it is read: format, columns, types, which column is the time.

Purpose
    :func:`look` tells somebody who has a file what an ingest would make of it: the first rows, with
    the types that they show, and what is taken for the time.  They correct what is wrong, and ask
    for the ingest with that.

Guarantee
    Types, times and bad rows are those of an ingest with the same options: the same reader finds
    them (``reader.py``), from the first chunk, up to 8 MiB of text.

    The time, where none is said: a column of times rather than one of dates or numbers, one with a
    telling name (``timestamp``, ``event_time``, ``created_at``) rather than another, the first of
    equals.  Text that a usual pattern reads (``01.02.2024 13:00``) is as good as an ISO time, and
    the pattern is proposed; where several read it, which of them is left to be said.  A number is
    taken for a time only under a telling name.  Where the best is a date, and another column has
    times of day, both are the time.  None where nothing is like a time.

Limits
    What the first chunk does not show is not known.  Of a text source that was cut off, the last
    record is left out where more comes before it; of a packed one, or of Parquet, all is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidData
from .badrows import BadRow
from .isotime import parse_iso
from .layout import Layout
from .reader import EventReader
from .time_parts import joined
from .time_patterns import likely
from .time_rules import TimeRule, parse_time_format
from .times import decide, is_text

__all__ = ["Guess", "Look", "guess_time", "guess_times", "look"]

ROWS_LISTED = 20
RECORD_CHARACTERS = 1000
_TELLING = re.compile(
    r"(^|[\W_])(time|ts|t|date|at|when|epoch|datum|zeit)([\W_]|$)|timestamp|datetime|[a-z]Time"
)
_CLOCK = r"^\s*\d{1,2}:\d\d(:\d\d([.,]\d+)?)?(\s?[AaPp][Mm])?\s*$"
_DATED = 3
"""Most that a column of dates is like a time."""
_AUTO = TimeRule("auto")


@dataclass(frozen=True)
class Look:
    """What was seen of a source.

    Attributes
    ----------
    format : str
    time : str or None
        The column of the time; None where none is like one.
    time_format : str, list of str, or None
        How it was read, as an ingest takes it; None where that is to be said.
    looked_at : int
        Rows that were read, bad ones included.
    bad : int
        Those of them that are no events.
    examples : list of BadRow
        The first of these.
    notes : list of str
        What was assumed.
    rows : pyarrow.RecordBatch
        The first good ones.
    time_formats : list of str
        Patterns that were found to read the time; of several, somebody has to choose.
    time_of_day : str or None
        The column with the time of day that belongs to it.
    """

    format: str
    time: str | None
    time_format: str | list[str] | None
    looked_at: int
    bad: int
    examples: list[BadRow]
    notes: list[str]
    rows: pa.RecordBatch
    time_formats: list[str] = field(default_factory=list)
    time_of_day: str | None = None

    def told(self) -> dict[str, Any]:
        """All but the rows, as plain values."""
        found = {name: value for name, value in vars(self).items() if name != "rows"}
        return {**found, "examples": [asdict(row) for row in self.examples]}


def look(
    open_source: Callable[[], IO[bytes]],
    format: str | None,
    *,
    name: str,
    rows_max: int,
    layout: dict[str, Any],
    **options: Any,
) -> Look:
    """Read the beginning of a source.

    Parameters
    ----------
    open_source : callable
        Gives the source from its beginning; called twice at most.
    rows_max : int
        Rows to give at most.
    layout : dict
        Arguments of :class:`.layout.Layout`; without ``time`` and ``target`` the time is guessed.
    options
        Further ones of :class:`.reader.EventReader`.

    Raises
    ------
    ChronicleError
        What an ingest would raise, but for bad rows.
    """
    if format == "lineprotocol":  # which says itself what the time is, but no name for it
        layout = {**layout, "time": layout.get("time") or "time"}
    chosen = Layout(**layout, timeless=layout.get("time") is None and layout.get("target") is None)
    guess = Guess()
    if chosen.timeless:
        _, first, _, _ = _first(open_source(), format, name, chosen, options)
        guess = Guess() if first is None else guess_times(first)
        if layout.get("time_of_day") is not None:  # patterns of the dates alone are none for both
            guess = Guess(guess.time)
        elif chosen.rule.kind != "auto":
            guess = replace(guess, formats=[])
        chosen = _layout_of(guess, chosen.rule, layout)
    reader, first, count, bad = _first(open_source(), format, name, chosen, options)
    return Look(
        reader.format,
        guess.time or chosen.time or None,
        None if chosen.timeless else _text_of(reader.rule),
        reader.rows + count,
        count,
        bad,
        list(chosen.notes.values()),
        _empty(chosen.schema()) if first is None else first.slice(0, rows_max),
        guess.formats,
        guess.time_of_day or chosen.time_of_day,
    )


def _layout_of(guess: Guess, rule: TimeRule, layout: dict[str, Any]) -> Layout:
    """The layout of a source whose time was guessed; without one where it is to be said how."""
    if guess.time is None or len(guess.formats) > 1:
        return Layout(**layout, timeless=True)
    if guess.formats:
        found = parse_time_format(guess.formats[0])
        rule = replace(found, zone=rule.zone, ambiguous=rule.ambiguous)
    clock = guess.time_of_day or layout.get("time_of_day")
    return Layout(**{**layout, "time": guess.time, "time_format": rule, "time_of_day": clock})


def _first(
    source: IO[bytes], format: str | None, name: str, layout: Layout, options: dict[str, Any]
) -> tuple[EventReader, pa.RecordBatch | None, int, list[BadRow]]:
    """The first batch; how many rows before it, or in its chunk, are bad; the first of them."""
    count = 0
    bad: list[BadRow] = []

    def note(row: BadRow) -> None:
        nonlocal count
        count += 1
        if len(bad) < ROWS_LISTED:
            bad.append(replace(row, record=row.record[:RECORD_CHARACTERS]))

    reader = EventReader(
        source, format, layout=layout, on_bad=note, name=name, compression=None, **options
    )
    try:
        return reader, next(iter(reader), None), count, bad
    finally:
        reader.close()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def _text_of(rule: TimeRule) -> str | list[str]:
    """A rule as an ingest takes it."""
    texts = rule.texts()
    return texts[0] if len(texts) == 1 else texts


@dataclass(frozen=True)
class Guess:
    """What is taken for the time; see :class:`Look`."""

    time: str | None = None
    formats: list[str] = field(default_factory=list)
    time_of_day: str | None = None


def guess_time(rows: pa.RecordBatch) -> str | None:
    """The column that is most like the time of events; None where none is."""
    return guess_times(rows).time


def guess_times(rows: pa.RecordBatch) -> Guess:
    """The column that is most like the time of events, how it is written, and its time of day."""
    merit, guess = 0, Guess()
    columns = list(zip(rows.schema.names, rows.columns, strict=True))
    for name, values in columns:
        found, formats = _merit(name, values)
        if found > merit:
            merit, guess = found, Guess(name, formats)
    if 0 < merit <= _DATED and guess.time is not None:
        dates = rows.column(guess.time)
        for name, clocks in columns:
            if not is_text(clocks.type) or 2 * _count(clocks, _CLOCK) <= len(clocks):
                continue
            found, formats = _merit(name, joined(dates, clocks, guess.time, name))
            if found > merit:
                return Guess(guess.time, formats, name)
    return guess


def _count(values: pa.Array, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(values, pattern), min_count=0).as_py())


def _merit(name: str, values: pa.Array) -> tuple[int, list[str]]:
    """How much a column is like a time, and the patterns that read it."""
    telling = bool(_TELLING.search(name) or _TELLING.search(name.lower()))
    type_, types = values.type, pa.types
    if 2 * values.null_count > len(values):
        return 0, []
    if types.is_timestamp(type_):
        return (6 if telling else 4), []
    if types.is_date(type_):
        return (_DATED if telling else _DATED - 1), []
    if is_text(type_):
        iso = parse_iso(values)
        if 2 * np.count_nonzero(iso.ok) > len(values):
            return _merit_of_text(telling, bool(iso.has_clock.any())), []
        patterns = likely(values)
        if patterns:
            clock = not TimeRule("pattern", pattern=patterns[0]).of_dates
            return _merit_of_text(telling, clock), patterns
    if not telling or not (types.is_integer(type_) or types.is_floating(type_) or is_text(type_)):
        return 0, []
    try:
        settled = decide(values, _AUTO, column=name)
    except InvalidData:
        return 0, []
    if types.is_timestamp(settled.type):
        return 5, []
    return (1 if types.is_integer(type_) else 0), []


def _merit_of_text(telling: bool, clock: bool) -> int:
    if clock:
        return 5 if telling else 4
    return _DATED if telling else _DATED - 1
