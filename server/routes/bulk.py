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
from fastapi import Depends, Header, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import BaseModel, ConfigDict, Field

from ...core.times import INT64_MAX
from ...errors import InvalidArgument, StreamNotFound
from ...formats.dialect import Limits, StoreOptions
from ...formats.layout import Layout
from ...formats.lineprotocol import lines_by_measurement
from ...formats.reader import Look
from ...formats.writers import encode
from ..access.auth import Principal, Requester, bearer, identify
from ..http.replies import columns_of, reply
from ..http.requests import PathName, body_format, file_format
from ..http.route import OpenRoute, api_router
from ..service.bodies import (
    Body,
    FileOptions,
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
from .parameters import FormatName, OnError, RangeSpec, from_query, read_spec, spec_body

router = api_router(prefix="/v1/ingest", tags=["events"])
ROWS_MAX = 1000

_Given = Annotated[
    FileOptions, Depends(from_query(FileOptions, without=("file_column",), hidden=("separator",)))
]


async def file_options(request: Request, options: _Given) -> FileOptions:
    return replace(options, format=file_format(request), time=options.time or None)


Options = Annotated[FileOptions, Depends(file_options)]


@router.post("/preview", summary="Look at a file")
async def preview_file(
    request: Request,
    principal: Requester,
    options: Options,
    stream: Annotated[
        str | None, Query(description="Read it as events of this stream, where it exists.")
    ] = None,
    limit: Annotated[int, Query(ge=0, le=ROWS_MAX, description="Most rows to show.")] = 20,
) -> Response:
    """Format, columns with their types, the time column and the first rows; nothing is stored."""
    principal.require("ingest", stream)
    server = server_of(request)
    server.require_writable()
    async with (
        server.receiving(request, principal.client, server.settings.max_body_bytes) as body,
        server.appends.held(principal.client),
    ):
        preview = await server.call(look_at, server, body, options, stream, limit)
        return reply(_description(preview, body.encoding))


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


@router.post("", summary="Ingest a file")
async def ingest(
    request: Request,
    principal: Requester,
    options: Options,
    stream: Annotated[str, Query(description="Where the events go.")],
    storing: Annotated[StoreOptions, Depends(from_query(StoreOptions))],
    on_error: OnError,
    idempotency_key: Annotated[
        str | None, Header(description="Ask again with the same key without storing it twice.")
    ] = None,
) -> Response:
    """Store the events of a file, all or none; a new stream takes its columns and types."""
    principal.require("write" if storing.create else "ingest", stream)
    server = server_of(request)
    server.require_writable()
    if storing.dry_run and idempotency_key is not None:
        raise InvalidArgument(
            "dry_run=true stores nothing: send the Idempotency-Key with the request that does"
        )
    async with (
        server.receiving(
            request,
            principal.client,
            server.settings.max_part_bytes,
            staged=True,
            hashed=idempotency_key is not None,
        ) as body,
        server.appends.held(principal.client),
    ):
        store = partial(_ingest, server, body, options, stream, storing, on_error)
        if idempotency_key is None:
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
        "stream": stream,
        "created": report.created,
        "dry_run": storing.dry_run,
        "rows": report.good,
        "appended": report.stored,
        "late": report.late,
        "count": report.count,
        "version": report.version,
        "rejected": report.bad,
        "errors": [bad_row_json(row) for row in done.bad],
        "columns": columns_of(report.schema or pa.schema([])),
        "notes": [in_words_of_ingest(note) for note in report.notes],
    }
    catalog = server.catalog
    if stream in catalog.streams() and catalog.stream_options(stream)["unique"] is not None:
        answer["duplicates"] = report.duplicates
    return answer, report.version or 0


transactions_router = api_router(
    prefix="/v1/streams/{stream}/transactions/{transaction}", tags=["transactions"]
)
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


@transactions_router.put("/parts/{part}", summary="Stage a part")
async def put_part(
    request: Request,
    principal: Requester,
    stream: PathName,
    transaction: PathName,
    part: PathName,
    format: FormatName = None,
) -> Response:
    """Stage an Arrow stream, invisibly; the same name again replaces it."""
    principal.require("ingest", stream)
    server = server_of(request)
    name = body_format(request)
    async with (
        server.receiving(
            request, principal.client, server.settings.max_part_bytes, staged=True
        ) as body,
        server.appends.held(principal.client),
    ):
        return reply(await server.call(_stage, server, stream, transaction, part, name, body))


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


@transactions_router.post(
    "/commit", summary="Commit a transaction", openapi_extra=spec_body(CommitSpec)
)
async def commit(
    request: Request, principal: Requester, stream: PathName, transaction: PathName
) -> Response:
    """Make the listed parts events, in one commit; repeating it does nothing."""
    spec = await read_spec(request, CommitSpec, COMMIT_BYTES_MAX)
    removes = spec.truncate or spec.replace is not None
    principal.require("admin" if removes else "ingest", stream)
    server = server_of(request)
    if (spec.app_id is None) != (spec.app_version is None):
        raise InvalidArgument("give both app_id and app_version, or neither")
    if spec.truncate and spec.replace is not None:
        raise InvalidArgument("truncate removes every event, replace those of a range: give one")
    if spec.replace is not None and spec.replace.start is None and spec.replace.end is None:
        raise InvalidArgument("replace has a start, an end, or both; truncate removes every event")

    def run() -> dict[str, Any]:
        over = None
        if spec.replace is not None:
            over = spec.replace.bounds(server.database.stream(stream).event_schema)
        wanted = Commit(tuple(spec.parts), spec.truncate, over, spec.app_id, spec.app_version)
        done = server.transactions.commit(stream, transaction, wanted)
        if not done.repeated:
            server.metrics.note_append("transaction", done.events, done.late)
        answer = {
            "appended": done.events,
            "late": done.late,
            "count": server.database.stream(stream).count if done.count is None else done.count,
            "version": done.position,
            "replayed": done.repeated,
        }
        if server.catalog.stream_options(stream)["unique"] is not None:
            answer["duplicates"] = done.duplicates
        return answer

    async with server.appends.held(principal.client):
        return reply(await (server.call(run) if spec.replace is None else server.build(run)))


@transactions_router.delete("", status_code=204, summary="Drop a transaction")
async def abort(
    request: Request, principal: Requester, stream: PathName, transaction: PathName
) -> Response:
    """Drop its parts; later parts are refused with 409."""
    principal.require("ingest", stream)
    server = server_of(request)
    await server.call(server.transactions.abort, stream, transaction)
    return Response(status_code=204)


line_router = api_router(tags=["line protocol"], route_class=OpenRoute)
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


async def _writer(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)] = None,
) -> Principal:
    """The principal; a token may also be sent as ``Authorization: Token ...``."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if credentials is None and scheme.lower() == "token" and secret.strip():
        return identify(request, secret.strip())
    return identify(request, credentials.credentials if credentials else None)


Writer = Annotated[Principal, Depends(_writer)]


@line_router.post("/write", status_code=204, summary="Write line protocol (InfluxDB 1)")
@line_router.post(
    "/api/v2/write", status_code=204, name="write_v2", summary="Write line protocol (InfluxDB 2)"
)
async def write(
    request: Request,
    principal: Writer,
    precision: Precision = "ns",
    db: Ignored = None,
    rp: Ignored = None,
    consistency: Ignored = None,
    bucket: Ignored = None,
    org: Ignored = None,
) -> Response:
    """Append lines to the streams that their measurements name."""
    del db, rp, consistency, bucket, org
    return await _write(request, principal, precision, lenient=False)


@line_router.post("/api/v3/write_lp", status_code=204, summary="Write line protocol (InfluxDB 3)")
async def write_v3(
    request: Request,
    principal: Writer,
    precision: Precision = "ns",
    accept_partial: Partial = False,
    db: Ignored = None,
    no_sync: Annotated[bool, Query(description="Answer before the events are durable.")] = False,
) -> Response:
    """The same; `accept_partial=true` leaves out lines that cannot be stored."""
    del db
    durability = "interval" if no_sync else None
    return await _write(request, principal, precision, accept_partial, durability)


async def _write(
    request: Request,
    principal: Principal,
    precision: str,
    lenient: bool,
    durability: str | None = None,
) -> Response:
    principal.require("ingest")  # before anything is read
    server = server_of(request)
    settings = server.settings
    async with (
        server.receiving(request, principal.client, settings.max_body_bytes) as body,
        server.appends.held(principal.client),
    ):
        unit = PRECISIONS[precision]
        await server.call(_append_lines, server, principal, body, unit, lenient, durability)
    return Response(status_code=204)


def _append_lines(
    server: Server,
    principal: Principal,
    body: Body,
    precision: str,
    lenient: bool,
    durability: str | None,
) -> None:
    text = body.open(server.settings.max_decoded_bytes).read()
    body.hold(len(text))
    parts = lines_by_measurement(text)
    for name in parts:
        principal.require("ingest", name)
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
