"""Routes that store many events at once: a file, a transaction in parts, line protocol.

A file is previewed and ingested with the options of ``chronicle ingest``.  A worker has two minutes
to read it.  The answer stored for an Idempotency-Key omits ``columns``, of which there may be
thousands: a repeated answer has the stream's present ones.

A transaction's parts are staged by many clients and committed by one; ``service.transactions`` has
the guarantees.

InfluxDB line protocol is taken at the addresses that Telegraf and InfluxDB clients use.  A
measurement is an existing stream; tags and fields are attributes.  The whole body is parsed first:
an invalid line refuses it (or is left out, with ``accept_partial=true``).  Each measurement is a
commit, and earlier ones stay if a later one fails.  Events with equal tags and time are two events,
where InfluxDB keeps the last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, Literal

import orjson
import pyarrow as pa
from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ...core.times import INT64_MAX
from ...errors import InvalidArgument, StreamNotFound
from ...formats.dialect import Limits, StoreOptions
from ...formats.kinds import columns_of
from ...formats.layout import Layout
from ...formats.lineprotocol import lines_by_measurement
from ...formats.reader import Look
from ...formats.writers import encode
from ..access.auth import bearer_of, identify
from ..http.replies import reply
from ..http.requests import body_format, file_format
from ..service.bodies import (
    Body,
    FileOptions,
    appended_json,
    bad_row_json,
    events_of,
    in_words_of_ingest,
    ingest_file,
    look_at,
    read_events,
    time_format_of,
)
from ..service.state import Server, server_of
from ..service.transactions import Commit
from . import answers
from .answers import EVENTS, LINES, Json
from .parameters import FormatName, IdempotencyKey, OnError, RangeSpec, from_query
from .route import Call, Called, Routes, Secret

_files = Routes("events", "/v1/ingest")
ROWS_MAX = 1000

_Given = Annotated[
    FileOptions, Depends(from_query(FileOptions, without=("file_column",), hidden=("separator",)))
]


def file_options(request: Request, options: _Given) -> FileOptions:
    format = file_format(options.format, request.headers.get("content-type", ""))
    return replace(options, format=format, time=options.time or None)


Options = Annotated[FileOptions, Depends(file_options)]


@_files.post("/preview", "Look at a file", answers.LookedAt, openapi_extra=EVENTS)
async def preview_file(
    call: Call,
    options: Options,
    stream: Annotated[
        str | None, Query(description="Read it as events of this stream, where it exists.")
    ] = None,
    limit: Annotated[int, Query(ge=0, le=ROWS_MAX, description="Most rows to show.")] = 20,
) -> Json:
    """Format, columns with their types, the time column and the first rows; nothing is stored."""
    call.principal.require("ingest", stream)
    server = call.server
    server.require_writable()
    async with (
        server.receiving(call.request, call.client, server.settings.max_body_bytes) as body,
        server.appends.held(call.client),
    ):
        preview = await server.call(look_at, server, body, options, stream, limit)
        return _description(preview, body.encoding)


def _description(preview: Look, compression: str | None) -> dict[str, Any]:
    schema = preview.rows.schema
    rows = b"".join(encode(iter([preview.rows]), schema, "json"))
    return {
        "format": preview.format,
        "compression": compression,
        "time": preview.time,
        "time_format": preview.time_format,
        "time_formats": preview.time_formats,
        "time_of_day": preview.time_of_day,
        "columns": columns_of(schema),
        "rows": orjson.Fragment(rows),
        "looked_at": preview.looked_at,
        "rejected": preview.bad,
        "errors": [bad_row_json(row) for row in preview.examples],
        "notes": [in_words_of_ingest(note) for note in preview.notes],
    }


@_files.post("", "Ingest a file", answers.Ingested, openapi_extra=EVENTS)
async def ingest(
    call: Call,
    options: Options,
    stream: Annotated[str, Query(description="Where the events go.")],
    storing: Annotated[StoreOptions, Depends(from_query(StoreOptions))],
    on_error: OnError,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store the events of a file, all or none; a new stream takes its columns and types."""
    call.principal.require("write" if storing.create else "ingest", stream)
    server, keyed = call.server, idempotency_key is not None
    server.require_writable()
    if storing.dry_run and keyed:
        raise InvalidArgument(
            "dry_run=true stores nothing: send the Idempotency-Key with the request that does"
        )
    most = server.settings.max_part_bytes
    async with (
        server.receiving(call.request, call.client, most, staged=True, hashed=keyed) as body,
        server.appends.held(call.client),
    ):
        store = partial(_ingest, server, body, options, stream, storing, on_error)
        if not keyed:
            return reply((await server.call(store))[0])
        same = (options, storing, on_error, body.encoding, body.digest)
        answer, replayed = await server.call(
            server.keys.once, stream, idempotency_key, same, partial(_without_columns, store)
        )
        schema = await server.call(server.catalog.stream_schema, stream)
        answer = {**answer, "columns": columns_of(schema.arrow)}
        return reply(answer, 200, {"Idempotency-Replayed": "true"} if replayed else None)


Stored = tuple[dict[str, Any], int]


def _without_columns(store: Callable[[], Stored]) -> Stored:
    answer, version = store()
    return {name: answer[name] for name in answer if name != "columns"}, version


def _ingest(
    server: Server,
    body: Body,
    options: FileOptions,
    stream: str,
    storing: StoreOptions,
    on_error: str,
) -> Stored:
    """Store a file: the answer, and the version of the commit.  Blocks."""
    strict = on_error == "fail"
    done = ingest_file(server, body, options, strict=strict, stream=stream, **asdict(storing))
    report = done.report
    server.metrics.note_append("ingest", report.stored, report.late)
    answer = {
        **done.to_json(),
        "dry_run": storing.dry_run,
        "rows": report.good,
        "columns": columns_of(report.schema or pa.schema([])),
        "notes": [in_words_of_ingest(note) for note in report.notes],
    }
    catalog = server.catalog
    if stream in catalog.streams() and catalog.stream_options(stream)["unique"] is not None:
        answer["duplicates"] = report.duplicates
    return answer, report.version or 0


_transactions = Routes("transactions", "/v1/streams/{stream}/transactions/{transaction}")
COMMIT_BYTES_MAX = 8 << 20
DECODED_FACTOR = 8


class CommitSpec(BaseModel):
    """Which parts become events."""

    model_config = ConfigDict(extra="forbid")

    parts: list[str] = Field(
        description="Names of the parts; their order decides between equal times."
    )
    truncate: bool = Field(
        False, description="Remove the stream's events in the same commit; needs the scope admin."
    )
    replace: RangeSpec | None = Field(
        None,
        description="Remove the events of a range of times in the same commit, where the parts "
        "have to lie; needs the scope admin.",
    )
    app_id: str | None = Field(None, description="With app_version: who commits.")
    app_version: int | None = Field(
        None,
        ge=0,
        le=INT64_MAX,
        description="Versions that are not above the application's last do nothing.",
    )


@_transactions.put(
    "/parts/{part}", "Stage a part", answers.Part, openapi_extra=EVENTS, needs="ingest"
)
async def put_part(
    call: Call, stream: str, transaction: str, part: str, format: FormatName = None
) -> Json:
    """Stage an Arrow stream, invisibly; the same name again replaces it."""
    server = call.server
    name = body_format(format, call.request.headers.get("content-type", ""))
    most = server.settings.max_part_bytes
    async with (
        server.receiving(call.request, call.client, most, staged=True) as body,
        server.appends.held(call.client),
    ):
        return await server.call(_stage, server, stream, transaction, part, name, body)


def _stage(
    server: Server, stream: str, transaction: str, part: str, format: str, body: Body
) -> dict[str, Any]:
    schema = server.database.stream(stream).event_schema
    batches = events_of(
        body,
        format,
        Layout(time_format=time_format_of(schema, None), target=schema),
        DECODED_FACTOR * server.settings.max_part_bytes,
        server.reader,
        name=f"part {part}",
        limits=Limits(columns=server.settings.max_columns),
    )
    return server.transactions.put(stream, transaction, part, batches)


@_transactions.post(
    "/commit",
    "Commit a transaction",
    answers.Committed,
    body_max=COMMIT_BYTES_MAX,
    example={"parts": ["0"]},
)
async def commit(call: Call, stream: str, transaction: str, spec: CommitSpec) -> Json:
    """Make the listed parts events, in one commit; repeating it does nothing."""
    removes = spec.truncate or spec.replace is not None
    call.principal.require("admin" if removes else "ingest", stream)
    server = call.server
    if (spec.app_id is None) != (spec.app_version is None):
        raise InvalidArgument("give both app_id and app_version, or neither")
    if spec.truncate and spec.replace is not None:
        raise InvalidArgument("truncate removes every event, replace those of a range: give one")
    if spec.replace is not None and spec.replace.start is None and spec.replace.end is None:
        raise InvalidArgument("replace has a start, an end, or both; truncate removes every event")

    def run() -> Json:
        over = None
        if spec.replace is not None:
            over = spec.replace.bounds(server.database.stream(stream).event_schema)
        wanted = Commit(tuple(spec.parts), spec.truncate, over, spec.app_id, spec.app_version)
        done = server.transactions.commit(stream, transaction, wanted)
        if not done.repeated:
            server.metrics.note_append("transaction", done.appended, done.late)
        figures = appended_json(server.database.stream(stream), done)
        return {**figures, "replayed": done.repeated}

    async with server.appends.held(call.client):
        return await (server.call(run) if spec.replace is None else server.build(run))


@_transactions.delete("", "Drop a transaction", status=204, needs="ingest")
def abort(call: Call, stream: str, transaction: str) -> None:
    """Drop its parts; later parts are refused with 409."""
    call.server.transactions.abort(stream, transaction)


_lines = Routes("line protocol", refuses_unknown=False)
PRECISIONS = {
    **{name: name for name in ("s", "ms", "us", "ns")},
    **{"u": "us", "n": "ns", "second": "s", "millisecond": "ms"},
    **{"microsecond": "us", "nanosecond": "ns"},
}
Precision = Annotated[
    Literal["s", "ms", "us", "ns", "u", "n", "second", "millisecond", "microsecond", "nanosecond"],
    Query(description="What times count."),
]
Ignored = Annotated[str | None, Query(description="Taken, and without a meaning here.")]
Partial = Annotated[bool, Query(description="Leave out lines that cannot be stored.")]


def _writer(request: Request, secret: Secret) -> Called:
    """The caller; a token may also be sent as ``Authorization: Token ...``."""
    principal = identify(request, secret or bearer_of(request, "token"))
    return Called(request, server_of(request), principal)


Writer = Annotated[Called, Depends(_writer)]


@_lines.post(
    "/write", "Write line protocol (InfluxDB 1)", status=204, openapi_extra=LINES, needs="ingest"
)
@_lines.post(
    "/api/v2/write",
    "Write line protocol (InfluxDB 2)",
    status=204,
    name="write_v2",
    openapi_extra=LINES,
    needs="ingest",
)
async def write(
    call: Writer,
    precision: Precision = "ns",
    db: Ignored = None,
    rp: Ignored = None,
    consistency: Ignored = None,
    bucket: Ignored = None,
    org: Ignored = None,
) -> None:
    """Append lines to the streams that their measurements name."""
    del db, rp, consistency, bucket, org
    await _write(call, precision, lenient=False)


@_lines.post(
    "/api/v3/write_lp",
    "Write line protocol (InfluxDB 3)",
    status=204,
    openapi_extra=LINES,
    needs="ingest",
)
async def write_v3(
    call: Writer,
    precision: Precision = "ns",
    accept_partial: Partial = False,
    db: Ignored = None,
    no_sync: Annotated[bool, Query(description="Answer before the events are durable.")] = False,
) -> None:
    """The same; `accept_partial=true` leaves out lines that cannot be stored."""
    del db
    await _write(call, precision, accept_partial, "interval" if no_sync else None)


async def _write(
    call: Called, precision: str, lenient: bool, durability: str | None = None
) -> None:
    server = call.server
    async with (
        server.receiving(call.request, call.client, server.settings.max_body_bytes) as body,
        server.appends.held(call.client),
    ):
        await server.call(_append_lines, call, body, PRECISIONS[precision], lenient, durability)


def _append_lines(
    call: Called, body: Body, precision: str, lenient: bool, durability: str | None
) -> None:
    server = call.server
    text = body.open(server.settings.max_decoded_bytes).read()
    body.hold(len(text))
    parts = lines_by_measurement(text)
    for name in parts:
        call.principal.require("ingest", name)
    read = [(name, _read_lines(server, name, parts[name], precision, lenient)) for name in parts]
    for name, events in read:
        done = server.database.stream(name).append(events, durability=durability)
        server.metrics.note_append("lineprotocol", done.appended, done.late)


def _read_lines(server: Server, name: str, lines: bytes, precision: str, lenient: bool) -> pa.Table:
    if name not in server.database.streams():
        raise StreamNotFound(
            f"there is no stream for the measurement {name!r}; create it with its tags and "
            "fields: CREATE STREAM ... (time TIMESTAMP_NS, ...) TIMESTAMP BY time"
        )
    schema = server.database.stream(name).event_schema
    with contextlib.closing(Body(None, None, None)) as body:
        body.write(lines)
        return read_events(
            body,
            "lineprotocol",
            schema,
            None if schema.time_unit is None else precision,
            server.settings.max_decoded_bytes,
            server.reader,
            columns_max=server.settings.max_columns,
            skip=lenient,
        )[0]


routes = [*_files, *_transactions, *_lines]
