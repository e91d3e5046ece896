"""Encodes rows into an answer's bytes: row limit, JSON envelope, end markers, gzip. ::

    {"query_id": "...", "columns": ["a"], "types": ["bigint"], "rows": [{"a": 1}],
     "row_count": 1, "truncated": false, "elapsed_ms": 1.2}

A truncated answer never looks complete: when ``CHRONICLE_MAX_ROWS`` cuts an answer, formats with a
place for ``truncated`` say so; the others fail with ``ResourceLimit``.

``time_format`` writes UTC timestamps as ISO text, RFC 3339 or epoch integers.  RFC 3339 has as many
digits as the column's unit.  A coarser epoch is rounded down, also before 1970; a finer one is
exact, or an error where 64 bits overflow.  Dates and integer times stay as they are.
"""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ...core.times import TICKS_PER_SECOND
from ...errors import InvalidArgument, QueryCancelled, ResourceLimit
from ...formats import writers
from ...formats.kinds import name_of_type
from ..http.body_pipe import BodyPipe
from .query_log import RunningQuery

_UNITS = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def with_times(rows: pa.RecordBatch, form: str) -> pa.RecordBatch:
    for position, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            told = _told(rows.column(position), field, form)
            rows = rows.set_column(position, field.with_type(told.type), told)
    return rows


def _told(column: pa.Array, field: pa.Field, form: str) -> pa.Array:
    unit = field.type.unit
    times = column.cast(pa.int64()).cast(pa.timestamp(unit))
    if form == "rfc3339":
        return pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ")
    wanted = form.removeprefix("epoch_")
    if TICKS_PER_SECOND[wanted] < TICKS_PER_SECOND[unit]:
        times = pc.floor_temporal(times, unit=_UNITS[wanted])
    try:
        return times.cast(pa.timestamp(wanted)).cast(pa.int64())
    except pa.ArrowInvalid:
        raise InvalidArgument(
            f"time_format={form}: a time of {field.name!r} does not fit 64 bits in that unit; take "
            "a coarser one"
        ) from None


@dataclass(frozen=True)
class RowEncoding:
    """How to write rows: ``envelope`` (JSON: an object around them), ``end_marker`` (NDJSON: a last
    line ``{"$end": {...}}``), ``compression`` (Arrow buffers: "lz4", "zstd"), and others.
    """

    format: str
    envelope: bool = False
    end_marker: bool = False
    int64_as_string: bool = False
    time_format: str = "iso"
    compression: str | None = None
    gzip: bool = False

    @property
    def says_truncated(self) -> bool:
        return (
            (self.format == "json" and self.envelope)
            or (self.format == "ndjson" and self.end_marker)
            or self.format == "arrow"
        )


class Tally:
    """Counts the rows of an answer, and cuts them at the client's ``limit`` or the server's
    ``cap``.
    """

    def __init__(self, limit: int | None, cap: int, *, looks_ahead: bool = True) -> None:
        self.rows = 0
        self.cut_off = False
        self._looks_ahead = looks_ahead
        self._limit = cap if limit is None else min(limit, cap)
        self._by_server = limit is None or limit > cap
        self._cap = cap

    @property
    def truncated(self) -> bool | None:
        """Whether there were more rows; None where that was not looked up."""
        if self.rows == self._limit and not self._looks_ahead and not self.cut_off:
            return None
        return self.cut_off

    def cut(
        self, batches: Iterator[pa.RecordBatch], query: RunningQuery, may_truncate: bool
    ) -> Iterator[pa.RecordBatch]:
        """The batches up to the limit; looks one batch further."""
        for batch in batches:
            if query.cancellation.cancelled:
                raise QueryCancelled("the query was cancelled")
            room = self._limit - self.rows
            if batch.num_rows > room:
                self.cut_off = True
                if self._by_server and not may_truncate:
                    raise ResourceLimit(
                        f"the answer has more than {self._cap:,} rows (CHRONICLE_MAX_ROWS) and its "
                        "format "
                        "cannot say so; narrow the query, give a limit, or ask for json or arrow"
                    )
                if room:
                    self.rows += room
                    yield batch.slice(0, room)
                return
            self.rows += batch.num_rows
            if batch.num_rows:
                yield batch


class _Gzip:
    closed = False

    def __init__(self, pipe: BodyPipe | io.BytesIO) -> None:
        self._pipe = pipe
        self._compress = zlib.compressobj(1, zlib.DEFLATED, 31)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pipe.write(self._compress.compress(data))
        return len(data)

    def flush(self) -> None:
        self._pipe.flush()

    def end(self) -> None:
        self._pipe.write(self._compress.flush())


def encode(
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    encoding: RowEncoding,
    tally: Tally,
    pipe: BodyPipe | io.BytesIO,
    query: RunningQuery,
) -> None:
    gzip = _Gzip(pipe) if encoding.gzip else None
    out: Any = gzip or pipe
    cut = tally.cut(batches, query, encoding.says_truncated)
    names = _unique_names(schema.names)
    if names != schema.names:
        schema = pa.schema([f.with_name(name) for f, name in zip(schema, names, strict=True)])
        cut = (batch.rename_columns(names) for batch in cut)
    forms: list[Callable[[pa.RecordBatch], pa.RecordBatch]] = []
    if encoding.time_format != "iso":
        forms.append(partial(with_times, form=encoding.time_format))
    if encoding.int64_as_string and encoding.format in ("json", "ndjson"):
        forms.append(as_text)
    for form in forms:
        none = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
        schema, cut = form(none).schema, map(form, cut)
    if encoding.format == "arrow":
        _encode_arrow(schema, cut, encoding, tally, out)
    elif encoding.format == "json" and encoding.envelope:
        head = {
            "query_id": query.id,
            "columns": schema.names,
            "types": [name_of_type(f.type) for f in schema],
        }
        out.write(orjson.dumps(head)[:-1] + b',"rows":')
        _write(cut, schema, encoding.format, out)
        tail = {
            "row_count": tally.rows,
            "truncated": tally.truncated,
            "elapsed_ms": round((time.monotonic() - query.started) * 1000, 2),
        }
        out.write(b"," + orjson.dumps(tail)[1:] + b"\n")
    else:
        _write(cut, schema, encoding.format, out)
        if encoding.end_marker:
            end = {"$end": {"rows": tally.rows, "truncated": tally.truncated}}
            out.write(orjson.dumps(end) + b"\n")
    if gzip is not None:
        gzip.end()


def _encode_arrow(
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    encoding: RowEncoding,
    tally: Tally,
    out: Any,
) -> None:
    options = pa.ipc.IpcWriteOptions(compression=encoding.compression)
    writer = pa.ipc.new_stream(out, schema, options=options)
    for batch in batches:
        writer.write_batch(batch)
    if tally.cut_off:
        empty = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
        writer.write_batch(empty, custom_metadata={"chronicle.truncated": "true"})
    writer.close()  # only now: an answer that broke off must not have the end-of-stream marker


def _write(batches: Iterator[pa.RecordBatch], schema: pa.Schema, format: str, out: Any) -> None:
    for chunk in writers.encode(batches, schema, format):
        out.write(chunk)


def as_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        pc.cast(column, pa.string())
        if pa.types.is_int64(column.type) or pa.types.is_uint64(column.type)
        else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _unique_names(names: list[str]) -> list[str]:
    """Rename duplicate columns: a second ``x`` becomes ``x_1``."""
    taken = set(names)
    seen: set[str] = set()
    numbers: dict[str, int] = {}
    unique = []
    for name in names:
        chosen = name
        while chosen in seen or (chosen != name and chosen in taken):
            numbers[name] = numbers.get(name, 0) + 1
            chosen = f"{name}_{numbers[name]}"
        seen.add(chosen)
        unique.append(chosen)
    return unique
