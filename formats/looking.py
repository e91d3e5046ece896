"""Previewing a source before an ingest: first rows, types, and the guessed time column.

Types and bad rows are those of an ingest with these options, from the first chunk (8 MiB of text).
Ranking of time columns: times before dates and numbers, then a telling name (``timestamp``,
``created_at``), then the first.  Text that a common pattern reads counts like ISO text; if several
patterns do, the user must choose.  Numbers need a telling name.  Dates may be joined by a column of
times of day.  A truncated text loses its last record; compressed files must be complete.
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
from .chunks import BadRow
from .layout import Layout
from .reader import EventReader
from .time_parts import joined
from .time_rules import TimeRule, parse_time_format
from .time_text import likely, parse_iso
from .times import decide, is_text

ROWS_LISTED = 20
RECORD_CHARACTERS = 1000
_TELLING = re.compile(
    r"(^|[\W_])(time|ts|t|date|at|when|epoch|datum|zeit)([\W_]|$)|timestamp|datetime|[a-z]Time"
)
_CLOCK = r"^\s*\d{1,2}:\d\d(:\d\d([.,]\d+)?)?(\s?[AaPp][Mm])?\s*$"
_DATED = 3
_AUTO = TimeRule("auto")


@dataclass(frozen=True)
class Look:
    """A preview of a source.

    ``time_format`` is None if the user must choose one of ``time_formats``.  ``rows`` are the first
    good rows, ``examples`` the first of ``bad`` among ``looked_at``; ``time_of_day`` belongs to
    ``time``.
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
    """Read the beginning of a source; raises what an ingest would, except for bad rows.

    ``open_source`` is called at most twice.  Without ``time`` and ``target`` in ``layout``, the
    time is guessed.
    """
    if format == "lineprotocol":  # its time has no name
        layout = {**layout, "time": layout.get("time") or "time"}
    chosen = Layout(**layout, timeless=layout.get("time") is None and layout.get("target") is None)
    guess = Guess()
    if chosen.timeless:
        _, first, _, _ = _first(open_source(), format, name, chosen, options)
        guess = Guess() if first is None else guess_times(first)
        if layout.get("time_of_day") is not None:  # patterns of the dates alone do not fit both
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
    texts = rule.texts()
    return texts[0] if len(texts) == 1 else texts


@dataclass(frozen=True)
class Guess:
    time: str | None = None
    formats: list[str] = field(default_factory=list)
    time_of_day: str | None = None


def guess_times(rows: pa.RecordBatch) -> Guess:
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
    """How likely a column is the time (0: not), and the patterns that read it."""
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
