"""Routes that preview and ingest a file sent as the body, with the options of ``chronicle ingest``.
A worker has two minutes to read it.  The answer stored for an Idempotency-Key omits ``columns``, of
which there may be thousands: a repeated answer has the stream's present ones.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request, Response

from ...errors import InvalidArgument
from ...formats import arrow_name_of_type, encode, name_of_type, parse_pairs
from ...formats.looking import Look
from ..access.auth import Requester
from ..http.negotiation import file_format
from ..http.problems import reply
from ..service.bodies import Body
from ..service.event_parsing import (
    FileOptions,
    bad_row_json,
    in_words_of_ingest,
    ingest_file,
    look_at,
)
from ..service.state import Server, server_of
from .parameters import Flatten, FormatName, Text, column_names

router = APIRouter(prefix="/v1/ingest", tags=["events"])
ROWS_MAX = 1000

Names = list[str] | None


async def file_options(
    request: Request,
    text: Text,
    format: FormatName = None,
    name: Annotated[
        str, Query(max_length=255, description="The file's name: its suffix tells the format.")
    ] = "body",
    time: Annotated[str | None, Query(description="The time column; the stream's own.")] = None,
    time_format: Annotated[
        Names,
        Query(
            description="auto, iso, ticks, s, ms, us, ns, or a pattern: %d.%m.%Y %H:%M:%S; of "
            "several each value has the first that reads it."
        ),
    ] = None,
    time_zone: Annotated[
        str | None,
        Query(description="Whose clocks times without an offset are of: Europe/Berlin; else UTC."),
    ] = None,
    ambiguous: Annotated[
        Literal["refuse", "earlier", "later"],
        Query(description="Which of both a time is that these clocks showed twice."),
    ] = "refuse",
    time_of_day: Annotated[
        str | None, Query(description="The column with the time of day, beside one of dates.")
    ] = None,
    types: Annotated[Names, Query(description="Types: speed=double,zip=string.")] = None,
    rename: Annotated[Names, Query(description="New names: old=new; the others use these.")] = None,
    select: Annotated[Names, Query(description="Columns to keep, beside the time.")] = None,
    flatten: Flatten = None,
) -> FileOptions:
    del format  # file_format reads it
    return FileOptions(
        name=name,
        format=file_format(request),
        time=time or None,
        time_format=time_format or "auto",
        time_zone=time_zone,
        ambiguous=ambiguous,
        time_of_day=time_of_day,
        types=types or (),
        rename=parse_pairs(rename or (), "rename"),
        select=column_names(select),
        flatten=flatten,
        **text.by_name(),
    )


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
        found = await server.call(look_at, server, body, options, stream, limit)
        return reply(_told(found, body.encoding))


def _told(found: Look, compression: str | None) -> dict[str, Any]:
    schema = found.rows.schema
    rows = b"".join(encode(iter([found.rows]), schema, "json"))
    return {
        "format": found.format,
        "compression": compression,
        "time": found.time,
        "time_format": found.time_format,
        "time_formats": found.time_formats,
        "time_of_day": found.time_of_day,
        "columns": _columns(schema),
        "rows": orjson.Fragment(rows),
        "looked_at": found.looked_at,
        "rejected": found.bad,
        "errors": [bad_row_json(row) for row in found.examples],
        "notes": [in_words_of_ingest(note) for note in found.notes],
    }


def _columns(schema: pa.Schema) -> list[dict[str, Any]]:
    return [
        {
            "name": field.name,
            "type": arrow_name_of_type(field.type),
            "sql_type": name_of_type(field.type),
            "nullable": field.nullable,
        }
        for field in schema
    ]


@router.post("", summary="Ingest a file")
async def ingest(
    request: Request,
    principal: Requester,
    options: Options,
    stream: Annotated[str, Query(description="Where the events go.")],
    create: Annotated[
        bool, Query(description="Make the stream from the file; needs the scope write.")
    ] = False,
    if_exists: Annotated[
        Literal["fail", "append"],
        Query(description="With create: what to do when the stream is there already."),
    ] = "fail",
    retention: Annotated[
        str | None, Query(description="Of a new stream: 30 days, or 10 GB.")
    ] = None,
    codec: Annotated[Literal["lz4", "zstd", "none"], Query(description="Of a new stream.")] = "lz4",
    unique: Annotated[
        str | None, Query(description="Of a new stream: a key that is stored once, device, seq.")
    ] = None,
    within: Annotated[
        str | None, Query(description="With unique: how near in time equal keys are one event.")
    ] = None,
    on_error: Annotated[
        Literal["fail", "skip"], Query(description="What a row that is no event does.")
    ] = "fail",
    bad_rows: Annotated[
        Literal["fail", "skip"] | None, Query(description="Another name of on_error.")
    ] = None,
    dry_run: Annotated[bool, Query(description="Read and check all of it, store nothing.")] = False,
    idempotency_key: Annotated[
        str | None, Header(description="Ask again with the same key without storing it twice.")
    ] = None,
) -> Response:
    """Store the events of a file, all or none; a new stream takes its columns and types."""
    principal.require("write" if create else "ingest", stream)
    server = server_of(request)
    server.require_writable()
    if dry_run and idempotency_key is not None:
        raise InvalidArgument(
            "dry_run=true stores nothing: send the Idempotency-Key with the request that does"
        )
    chosen = {
        "create": create, "if_exists": if_exists, "retention": retention, "codec": codec,
        "unique": unique, "within": within,
    }  # fmt: skip
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
        work = _Ingest(server, body, options, stream, chosen, bad_rows or on_error, dry_run)
        answer, replayed = await server.call(work.run, idempotency_key)
        return reply(answer, 200, {"Idempotency-Replayed": "true"} if replayed else None)


@dataclass(frozen=True)
class _Ingest:
    server: Server
    body: Body
    options: FileOptions
    stream: str
    chosen: dict[str, Any]
    on_error: str
    dry_run: bool

    def run(self, key: str | None) -> tuple[dict[str, Any], bool]:
        if key is None:
            return self._store(), False
        said = (self.options, self.chosen, self.on_error, self.body.encoding, self.body.digest)
        fingerprint = hashlib.sha256(repr(said).encode()).hexdigest()
        with self.server.keys.request(self.stream, key, fingerprint) as work:
            if work.answer is None:
                answer = self._store()
                work.version = answer["version"] or 0
                work.answer = {name: answer[name] for name in answer if name != "columns"}
                return answer, False
            schema = self.server.database.stream_schema(self.stream).arrow
            return {**work.answer, "columns": _columns(schema)}, True

    def _store(self) -> dict[str, Any]:
        done = ingest_file(
            self.server, self.body, self.options, strict=self.on_error == "fail",
            stream=self.stream, dry_run=self.dry_run, **self.chosen,
        )  # fmt: skip
        report = done.report
        self.server.metrics.appended_events.labels("ingest").inc(report.stored)
        self.server.metrics.late_events.inc(report.late)
        answer = {
            "stream": self.stream,
            "created": report.created,
            "dry_run": self.dry_run,
            "rows": report.good,
            "appended": report.stored,
            "late": report.late,
            "count": report.count,
            "version": report.version,
            "rejected": report.bad,
            "errors": [bad_row_json(row) for row in done.bad],
            "columns": _columns(report.schema or pa.schema([])),
            "notes": [in_words_of_ingest(note) for note in report.notes],
        }
        database = self.server.database
        known = self.stream in database.streams()
        if known and database.stream_options(self.stream)["unique"] is not None:
            answer["duplicates"] = report.duplicates
        return answer
