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
    equals.  A number is taken for a time only under a telling name.  None where nothing is like a
    time.

Limits
    What the first chunk does not show is not known.  Of a text source that was cut off, the last
    record is left out where more comes before it; of a packed one, or of Parquet, all is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

import pyarrow as pa

from ..errors import InvalidData
from .badrows import BadRow
from .layout import Layout
from .reader import EventReader
from .time_rules import TimeRule
from .times import decide, is_text

__all__ = ["Look", "guess_time", "look"]

ROWS_LISTED = 20
RECORD_CHARACTERS = 1000
_TELLING = re.compile(
    r"(^|[\W_])(time|ts|t|date|at|when|epoch)([\W_]|$)|timestamp|datetime|[a-z]Time"
)
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
        How it was read, as an ingest takes it.
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
    """

    format: str
    time: str | None
    time_format: str | list[str] | None
    looked_at: int
    bad: int
    examples: list[BadRow]
    notes: list[str]
    rows: pa.RecordBatch

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
    if chosen.timeless:
        _, first, _, _ = _first(open_source(), format, name, chosen, options)
        time = None if first is None else guess_time(first)
        chosen = Layout(**{**layout, "time": time}, timeless=time is None)
    reader, first, count, bad = _first(open_source(), format, name, chosen, options)
    return Look(
        reader.format,
        chosen.time or None,
        None if chosen.timeless else _text_of(reader.rule),
        reader.rows + count,
        count,
        bad,
        list(chosen.notes.values()),
        _empty(chosen.schema()) if first is None else first.slice(0, rows_max),
    )


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


def guess_time(rows: pa.RecordBatch) -> str | None:
    """The column that is most like the time of events; None where none is."""
    merits: Sequence[tuple[int, str]] = [
        (_merit(field.name, column), field.name)
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    best = max((merit for merit, _ in merits), default=0)
    return next((name for merit, name in merits if merit == best > 0), None)


def _merit(name: str, values: pa.Array) -> int:
    """How much a column is like a time."""
    telling = bool(_TELLING.search(name) or _TELLING.search(name.lower()))
    type_, types = values.type, pa.types
    if 2 * values.null_count > len(values):
        return 0
    if types.is_timestamp(type_):
        return 6 if telling else 4
    if types.is_date(type_):
        return 3 if telling else 2
    if not telling or not (types.is_integer(type_) or types.is_floating(type_) or is_text(type_)):
        return 0
    try:
        settled = decide(values, _AUTO, column=name)
    except InvalidData:
        return 0
    if types.is_timestamp(settled.type):
        return 5
    return 1 if types.is_integer(type_) else 0
