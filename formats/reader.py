"""Reading events: any format from any source into batches of one layout, in source order.

Each row is in a batch or passed to ``on_bad`` with position and reason; by default the first bad
row ends the reading.  Memory is bounded by a few chunks.

Times in two columns are joined as text and then read as usual.  A row that lacks either has no
time.  A timestamp column counts as dates if all are at midnight.

``look`` previews a source: types and bad rows are those of an ingest with these options, from the
first chunk (8 MiB of text).  It ranks time columns: times before dates and numbers, then a telling
name (``timestamp``, ``created_at``), then the first.  Text that a common pattern reads counts like
ISO text; if several patterns do, the user must choose.  Numbers need a telling name.  Dates may be
joined by a column of times of day.  A truncated text loses its last record; compressed files must
be complete.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.json_text import JSON, is_json
from ..core.nested_types import decided, is_nested
from ..errors import InvalidData, UnsupportedType
from .chunks import BadRow, BadRowPolicy, ChunkReader, Columns, RecordChunk, fail, shown
from .columnar import ArrowRecords, ParquetRecords
from .convert import convert, flatten
from .csvtext import CsvRecords
from .decimals import Converted
from .dialect import Limits, Meter, TextOptions
from .jsontext import JsonLines, JsonRecords, Reading, form_of, looks_like_lines
from .kinds import detect, is_archive, is_binary, is_number, stem_of
from .layout import (
    Field,
    Layout,
    decimal_of,
    infer_nested,
    infer_text,
    infer_typed,
    leading_zeros_note,
    members_of,
    plain_numbers,
    text_number_note,
    way_out,
    widenings,
    wider,
)
from .lineprotocol import EXPECTED, json_lines
from .sources import ByteSource, Readable, open_archive
from .times import TimeRule, decide, is_text, likely, parse_iso, parse_time_format
from .writers import shown_value


def joined(dates: pa.Array, clocks: pa.Array, column: str, clock_column: str) -> pa.Array:
    """Dates and times of day as text, null where either is missing."""
    days = _text_of_dates(flatten(dates), column)
    times = _text_of_clocks(flatten(clocks), clock_column)
    return pc.binary_join_element_wise(days, times, pa.scalar(" ", pa.large_string()))


def _text_of_dates(values: pa.Array, column: str) -> pa.Array:
    type_ = values.type
    if pa.types.is_timestamp(type_) and type_.tz is None:
        days = pc.floor_temporal(values, unit="day")
        if pc.all(pc.equal(values, days)).as_py() is False:
            raise InvalidData(
                f"column {column!r} has a time of day itself: leave out the column for it, or name "
                "one that holds dates"
            )
        return days.cast(pa.date32()).cast(pa.large_string())
    if pa.types.is_date(type_):
        return values.cast(pa.date32()).cast(pa.large_string())
    return _text(values, column, "dates")


def _text_of_clocks(values: pa.Array, column: str) -> pa.Array:
    if pa.types.is_time(values.type):
        return values.cast(pa.large_string())
    return _text(values, column, "times of day")


def _text(values: pa.Array, column: str, what: str) -> pa.Array:
    type_ = values.type
    if is_text(type_):
        return pc.utf8_trim_whitespace(values.cast(pa.large_string()))
    if pa.types.is_integer(type_) or pa.types.is_null(type_):
        return values.cast(pa.large_string())
    raise InvalidData(f"column {column!r} is a {type_}, which holds no {what}")


_MISSING = re.compile(r"(?i:n/?a|nil|none|missing|unknown)|[-?.*]{1,3}")
"""Text that stands for a missing number."""
_NOT_FINITE = re.compile(r"\b(NaN|Infinity)\b")
_OF_JSON = ("json", "ndjson", "lineprotocol", "cloudevents")
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

Arrays = dict[str, pa.Array]
BadValue = tuple[int, str, str | None, str]
"""Record, column, value, reason."""


class EventReader:
    """Reads one source; iterate over it for record batches.

    ``layout`` is shared by the readers of one ingest.  ``on_bad`` is called with each ``BadRow``.
    ``text`` or ``options`` are ``TextOptions``.
    """

    def __init__(
        self,
        source: Readable,
        format: str | None = None,
        *,
        layout: Layout,
        on_bad: BadRowPolicy = fail,
        name: str | None = None,
        compression: str | None = "auto",
        live: bool = False,
        limits: Limits | None = None,
        text: TextOptions | None = None,
        **options: Any,
    ) -> None:
        self.layout = layout
        self._text = replace(text or TextOptions(), **options)
        self.limits = limits or Limits()
        self.rows = 0
        self.bad = 0
        self._on_bad = on_bad
        self._source = ByteSource(source, name=name, compression=compression, live=live)
        self.name = self._source.name
        self._meter = Meter(self.limits, self.name)
        self._bound: dict[str, str] = {}
        self._seen: dict[str, None] = {}
        self.rule: TimeRule = layout.rule
        self._clock: str | None = None
        try:
            head = self._source.peek(4096)
            if is_archive(head):
                self._source, format, self._text = open_archive(
                    self._source, format, self._text, self.limits, layout.notes
                )
                head = self._source.peek(4096)
            if format not in ("parquet", "arrow") and not is_binary(head):
                self._source.begin_text(self._text.encoding)
                head = self._source.peek(4096)
            self.format = detect(self.name, head, format)
            if self.format == "json" and looks_like_lines(head):
                self.format = "ndjson"
            self._reader: ChunkReader = self._open()
        except BaseException:
            self._source.close()
            raise

    def _open(self) -> ChunkReader:
        layout = self.layout
        if self.format == "lineprotocol":  # its time has no name
            layout.time, layout.timeless = layout.time or "time", False
        form = form_of(self.format, self._text.flatten, layout.target, layout.time, self.name)
        if self.format == "csv":
            reader = CsvRecords(self._source, self._text, layout.notes)
            self._meter.columns(len(reader.names))
            if layout.timeless:
                layout.note("header", reader.way_out().removeprefix("; "))
            self._bound = layout.bind(reader.names_for(layout.target), self.name, reader.way_out)
            layout.check_names(reader.names, self.name)
            self._clock = next(filter(layout.is_time_of_day, reader.names), None)
            reader.keep({*self._bound, *filter(layout.is_time_of_day, reader.names)})
            return reader
        if self.format in ("parquet", "arrow"):
            kind = ParquetRecords if self.format == "parquet" else ArrowRecords
            batches: ParquetRecords | ArrowRecords = kind(self._source, self.limits)
            try:
                names = batches.schema.names
            except UnicodeDecodeError as error:
                raise InvalidData(f"the name of a column is not UTF-8: {error}") from None
            self._bound = layout.bind(names, self.name)
            layout.check_names(names, self.name)
            self._clock = next(filter(layout.is_time_of_day, names), None)
            kinds = {raw: layout.fields[out].type for raw, out in self._bound.items()}
            nested = [raw for raw, kind in kinds.items() if kind is None or is_nested(kind)]
            clock = [] if self._clock is None else [self._clock]
            batches.keep([*self._bound, *clock], nested)
            return batches
        reading = Reading(self.name, self._meter, form, layout.type_of)
        if self.format == "lineprotocol":
            lines = ByteSource(self._translated(), name=self.name, compression=None)
            text_is_json = reading._replace(kind=lambda _: None)
            return JsonLines(lines, text_is_json)
        if self.format == "ndjson":
            return JsonLines(self._source, reading)
        return JsonRecords(self._source, reading)

    def _translated(self) -> Iterator[bytes]:
        layout, now, target = self.layout, None, self.layout.target
        counts = target is not None and target.time_unit is None
        if not counts and self.rule.kind != "ticks":
            if self.rule.kind != "epoch":
                self.rule = parse_time_format("ns")
            unit = NANOSECONDS[self.rule.unit or "ns"]
            fits = NANOSECONDS["ns" if target is None else str(target.time_unit)]
            now = time.time_ns() // fits * fits // unit
        named = target is None or any(n.lower() == "measurement" for n in target.names)
        return json_lines(self._source, layout.time, now, "measurement" if named else None)

    @property
    def consumed(self) -> int:
        return self._source.consumed

    @property
    def size(self) -> int | None:
        return self._source.size

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches():
                if batch is not None and batch.num_rows:
                    self._meter.hold(batch.nbytes)
                    self.rows += batch.num_rows
                    yield batch
            if self._seen:
                self.layout.check_names(list(self._seen), self.name)
        finally:
            self.close()

    def close(self) -> None:
        self._source.close()

    def _batches(self) -> Iterator[pa.RecordBatch | None]:
        for chunk in self._reader.chunks():
            for part in chunk.parts():
                yield self._read(chunk, part)

    # ------------------------------------------------------------------------------- one chunk

    def _read(self, chunk: RecordChunk, part: Columns) -> pa.RecordBatch | None:
        if not len(part.records):
            self._report(chunk, part.broken, [])
            return None
        self._observe(part)
        columns = self._joined(part.values)
        results = self._convert(columns, len(part.records))
        good, bad = self._judge(columns, results, part.records)
        if part.broken or bad:
            self._report(chunk, part.broken, bad)
        batch = self._assemble(results)
        return batch if good is None else batch.filter(pa.array(good))

    def _observe(self, part: Columns) -> None:
        """Bind new columns and infer undecided types; digits of quoted columns are text."""
        layout, columns = self.layout, part.values
        if self.format in _OF_JSON:
            if not self._bound:
                self._bound = layout.bind(list(columns), self.name)
            for raw in columns:
                if raw not in self._seen:
                    self._seen[raw] = None
                    if layout.is_time_of_day(raw):
                        self._clock = raw
                    out = self._bound.get(raw) or layout.output(raw, self.name)
                    if out is not None:
                        self._bound[raw] = out
        for raw, out in self._bound.items():
            values = columns.get(raw)
            if values is None or pa.types.is_null(values.type):
                continue
            field = layout.fields[out]
            if pa.types.is_duration(values.type):
                unit = values.type.unit
                layout.note(f"duration:{out}", f"{out}: durations are stored as numbers of {unit}")
            if out == layout.time:
                self._observe_time(field, columns, raw)
            elif field.type is None:
                field.type = self._infer(raw, self._plain(field, values), part)
                layout.check(field, self.name, self._reader.typed)
                self._note_options(field, values, columns)
            elif field.fixed:
                self._plain(field, values)
            elif self._reader.typed:
                new = infer_typed(values)
                field.type = (wider(field.type, new) if new is not None else None) or field.type
        self._count_keys()

    def _note_options(self, field: Field, values: pa.Array, columns: Arrays) -> None:
        """Note the option that reads more in a column than its type shows."""
        layout, name = self.layout, field.name
        if not is_text(values.type):
            return
        if field.type != pa.string():
            if field.type is not None and is_number(field.type):
                layout.note(f"zeros:{name}", leading_zeros_note(name, values))
            return
        if self.format == "csv" and not self._text.decimal:
            layout.note(f"comma:{name}", text_number_note(name, values))
        time = next((raw for raw, out in self._bound.items() if out == layout.time), "")
        if self._clock is None and _are_clocks(values) and _are_dates(columns.get(time, values)):
            layout.note(
                f"clock:{name}",
                f"{layout.time} has dates and {name} times of day: --time-of-day {name} reads both",
            )

    def _count_keys(self) -> None:
        if self.format in _OF_JSON:
            inside = sum(members_of(field.type) for field in self.layout.fields.values())
            self._meter.columns(len(self._seen) + inside, "different keys")

    def _observe_time(self, field: Field, columns: Arrays, raw: str) -> None:
        if field.type is not None and self.rule is not self.layout.rule:
            return
        values = self._joined(columns)[raw]
        if values.null_count == len(values):
            return
        decision = decide(values, self.rule, column=field.name, wanted=field.type)
        self.rule = decision.rule
        field.type = decision.type
        self.layout.note(f"time:{self.rule}", decision.note)

    def _infer(self, raw: str, values: pa.Array, part: Columns) -> pa.DataType | None:
        if raw in part.nested:
            return infer_nested(values, self.limits.columns)
        if isinstance(self._reader, ParquetRecords | ArrowRecords):
            return JSON if is_json(self._reader.schema.field(raw).type) else infer_typed(values)
        return infer_text(values, numbers=raw not in part.quoted)

    def _plain(self, field: Field, values: pa.Array) -> pa.Array:
        numeric = field.type is None or is_number(field.type)
        if not isinstance(self._reader, CsvRecords) or not (numeric and is_text(values.type)):
            return values
        if self._text.decimal is None and field.decimal is None and self._reader.delimiter != ",":
            field.decimal = decimal_of(values)
            if field.decimal:
                self.layout.note("decimal", f"{field.name}: numbers are read with a decimal comma")
        decimal = self._text.decimal or field.decimal
        return values if decimal is None else plain_numbers(values, decimal)

    def _joined(self, columns: Arrays) -> Arrays:
        layout, clock = self.layout, self._clock
        if clock is None:
            return columns
        rest = {raw: values for raw, values in columns.items() if raw != clock}
        time = next((raw for raw, out in self._bound.items() if out == layout.time), None)
        if time in rest:
            dates = rest[time]
            clocks = columns.get(clock)
            if clocks is None:
                clocks = pa.nulls(len(dates))
            rest[time] = joined(dates, clocks, time, clock)
        return rest

    # --------------------------------------------------------------------------- all its columns

    def _convert(self, columns: Arrays, count: int) -> dict[str, Converted]:
        layout = self.layout
        by_output = {out: columns[raw] for raw, out in self._bound.items() if raw in columns}
        results: dict[str, Converted] = {}
        for name, field in layout.fields.items():
            if name == layout.file_column:
                text = pa.scalar(stem_of(self.name), field.type)
                results[name] = Converted(pa.repeat(text, count))
                continue
            values = by_output.get(name)
            if field.default is not None and (values is None or self.format in _OF_JSON):
                results[name] = self._with_default(field, values, count)
                continue
            if values is None:
                values = pa.nulls(count, field.type or pa.string())
            results[name] = self._convert_column(field, self._plain(field, flatten(values)))
        return results

    def _with_default(self, field: Field, values: Any, count: int) -> Converted:
        if values is None:
            return Converted(pa.repeat(field.default, count))
        values = flatten(values)
        converted = self._convert_column(replace(field, required=False), values)
        filled = pc.if_else(values.is_null(), field.default, converted.values)
        return replace(converted, values=filled)

    def _convert_column(self, field: Field, values: pa.Array) -> Converted:
        layout = self.layout
        rule = self.rule if field.name == layout.time else None
        if rule is None and field.type is not None and pa.types.is_timestamp(field.type):
            rule = layout.rule.of_others(declared=field.fixed)
        elif rule is None and field.type is not None and is_nested(field.type):
            rule = layout.rule.as_iso()
        type_ = field.type or (pa.string() if rule is None else pa.timestamp("us"))
        type_ = decided(type_)
        try:
            result = self._convert_to(values, type_, rule, field)
        except UnsupportedType as error:
            raise UnsupportedType(f"{self.name}, column {field.name!r}: {error}") from None
        if not result.bad or field.fixed:
            return result
        if is_nested(type_):
            return self._convert_nested(field, values, result)
        if field.name == layout.time and pa.types.is_integer(type_):
            return result
        for candidate in widenings(type_):
            other = self._convert_to(values, candidate, rule, field)
            if other.bad < result.bad:
                field.type = candidate
                return other
        return result

    def _convert_nested(self, field: Field, values: pa.Array, result: Converted) -> Converted:
        """The values in a wider type, if that takes all of them."""
        wide = None
        if not self._reader.typed:
            wide = wider(field.type, infer_nested(values, self.limits.columns))
        if wide is not None and wide != field.type:
            field.type = wide
            self._count_keys()
            return self._convert_to(values, decided(wide), self.layout.rule.as_iso(), field)
        way = f"; the type json keeps any value ({field.name}=json in the types)"
        misfit, *no_json = result.reasons
        return replace(result, reasons=(misfit + way, *no_json))

    def _convert_to(
        self, values: pa.Array, type_: pa.DataType, rule: TimeRule | None, field: Field
    ) -> Converted:
        return convert(
            values,
            type_,
            rule=rule,
            required=field.required,
            inferred=not (field.fixed or self._reader.typed),
            offsets=self.layout.offsets[field.name],
        )

    def _judge(
        self, columns: Arrays, results: Mapping[str, Converted], records: Any
    ) -> tuple[Any, list[BadValue]]:
        """Which rows are good (None: all), and the bad values of the others."""
        faulty = {name: r for name, r in results.items() if r.codes is not None and r.bad}
        if not faulty:
            return None, []
        raw_of = {out: raw for raw, out in self._bound.items()}
        good = np.ones(len(records), np.bool_)
        bad_values: list[BadValue] = []
        order = sorted(faulty, key=lambda name: name != self.layout.time)
        for name in order:
            result = faulty[name]
            if result.codes is None:
                continue
            fresh = (result.codes != 0) & good
            good &= ~fresh
            values = columns.get(raw_of[name]) if name in raw_of else None
            for at in np.flatnonzero(fresh).tolist():
                value = None if values is None else shown_value(values, at)
                reason = result.reasons[result.codes[at] - 1].format(value=shown(value))
                if value:
                    reason += self._option_for(value, result.values.type)
                bad_values.append((int(records[at]), name, value, reason))
        return good, bad_values

    def _option_for(self, value: str, type_: pa.DataType) -> str:
        """A hint at the option that reads a bad value."""
        if self.format == "csv" and is_number(type_):
            if _MISSING.fullmatch(value):
                return f"; --null {value} reads it as null"
            return "" if self._text.decimal else way_out(value)
        inside = is_nested(type_) or is_json(type_)
        if self.format in _OF_JSON and inside and _NOT_FINITE.search(value):
            return (
                "; JSON has no NaN or Infinity, but columns of numbers have: --flatten _ makes them"
            )
        return ""

    def _report(
        self,
        chunk: RecordChunk,
        broken: Sequence[tuple[int, str]],
        bad_values: Sequence[BadValue],
    ) -> None:
        rows: list[tuple[int, str | None, str | None, str]] = [
            *((record, None, None, reason) for record, reason in broken),
            *bad_values,
        ]
        for record, column, value, reason in sorted(rows, key=lambda row: row[0]):
            place = chunk.describe(record)
            text = place.record
            if self.format == "lineprotocol" and text[:1] == '"':
                reason, text = EXPECTED, json.loads(text)
            self.bad += 1
            self._on_bad(BadRow(place.source, place.row, reason, place.line, column, value, text))

    def _assemble(self, results: Mapping[str, Converted]) -> pa.RecordBatch:
        fields = [
            pa.field(name, results[name].values.type, name != self.layout.time)
            for name in self.layout.fields
        ]
        target = self.layout.target
        schema = target.arrow if target is not None else pa.schema(fields)
        arrays = [results[field.name].values for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


ROWS_LISTED = 20
RECORD_CHARACTERS = 1000
_TELLING = re.compile(
    r"(^|[\W_])(time|ts|t|date|at|when|epoch|datum|zeit)([\W_]|$)|timestamp|datetime|[a-z]Time"
)
_CLOCK = r"^\s*\d{1,2}:\d\d(:\d\d([.,]\d+)?)?(\s?[AaPp][Mm])?\s*$"
_DATE = r"^\s*\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\s*$"
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
    time_formats: list[str] = dataclasses.field(default_factory=list)
    time_of_day: str | None = None

    def to_dict(self) -> dict[str, Any]:
        attributes = {name: value for name, value in vars(self).items() if name != "rows"}
        return {**attributes, "examples": [asdict(row) for row in self.examples]}


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
    chosen = Layout(**layout, timeless=layout.get("time") is None and layout.get("target") is None)
    guess = Guess()
    if chosen.timeless:
        _, first, _, _ = _first(open_source(), format, name, chosen, options)
        guess = Guess() if first is None else guess_times(first)
        if layout.get("time_of_day") is not None:  # patterns of the dates alone do not fit both
            guess = Guess(guess.time)
        elif chosen.rule.kind != "auto":
            guess = replace(guess, formats=[])
        notes = chosen.notes
        chosen = _layout_of(guess, chosen.rule, layout)
        chosen.note("header", notes.get("header"))
    reader, first, count, bad = _first(open_source(), format, name, chosen, options)
    texts = reader.rule.texts()
    return Look(
        reader.format,
        guess.time or chosen.time or None,
        None if chosen.timeless else texts if len(texts) > 1 else texts[0],
        reader.rows + count,
        count,
        bad,
        list(chosen.notes.values()),
        pa.RecordBatch.from_pylist([], chosen.schema())
        if first is None
        else first.slice(0, rows_max),
        guess.formats,
        guess.time_of_day or chosen.time_of_day,
    )


def _layout_of(guess: Guess, rule: TimeRule, layout: dict[str, Any]) -> Layout:
    if guess.time is None or len(guess.formats) > 1:
        return Layout(**layout, timeless=True)
    if guess.formats:
        parsed_rule = parse_time_format(guess.formats[0])
        rule = replace(parsed_rule, zone=rule.zone, ambiguous=rule.ambiguous)
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


@dataclass(frozen=True)
class Guess:
    time: str | None = None
    formats: list[str] = dataclasses.field(default_factory=list)
    time_of_day: str | None = None


def time_like(rows: pa.RecordBatch) -> list[str]:
    """Columns that may be the time of the events."""
    return [
        name
        for name, values in zip(rows.schema.names, rows.columns, strict=True)
        if _merit(name, values)[0]
    ]


def guess_times(rows: pa.RecordBatch) -> Guess:
    merit, guess = 0, Guess()
    columns = list(zip(rows.schema.names, rows.columns, strict=True))
    for name, values in columns:
        score, formats = _merit(name, values)
        if score > merit:
            merit, guess = score, Guess(name, formats)
    if 0 < merit <= _DATED and guess.time is not None:
        dates = rows.column(guess.time)
        for name, clocks in columns:
            if not is_text(clocks.type) or not _are_clocks(clocks):
                continue
            score, formats = _merit(name, joined(dates, clocks, guess.time, name))
            if score > merit:
                return Guess(guess.time, formats, name)
    return guess


def _are_clocks(values: pa.Array) -> bool:
    return 2 * _count(values, _CLOCK) > len(values)


def _are_dates(values: pa.Array) -> bool:
    if is_text(values.type):
        return 2 * _count(values, _DATE) > len(values)
    return bool(pa.types.is_date(values.type))


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
