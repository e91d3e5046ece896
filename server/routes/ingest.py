"""Routes that preview and ingest a file sent as the body, with the options of ``chronicle ingest``.
A worker has two minutes to read it.  The answer stored for an Idempotency-Key omits ``columns``, of
which there may be thousands: a repeated answer has the stream's present ones.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import orjson
import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request, Response

from ...errors import InvalidArgument
from ...formats.dialect import StoreOptions
from ...formats.reader import Look
from ...formats.writers import encode
from ..access.auth import Requester
from ..http.jsonable import columns_of
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
from .parameters import OnError, from_query

router = APIRouter(prefix="/v1/ingest", tags=["events"])
ROWS_MAX = 1000

_Given = Annotated[
    FileOptions, Depends(from_query(FileOptions, without=("file_column",), hidden=("separator",)))
]


async def file_options(request: Request, given: _Given) -> FileOptions:
    return replace(given, format=file_format(request), time=given.time or None)


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
        "columns": columns_of(schema),
        "rows": orjson.Fragment(rows),
        "looked_at": found.looked_at,
        "rejected": found.bad,
        "errors": [bad_row_json(row) for row in found.examples],
        "notes": [in_words_of_ingest(note) for note in found.notes],
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
        work = _Ingest(server, body, options, stream, storing, on_error)
        answer, replayed = await server.call(work.run, idempotency_key)
        return reply(answer, 200, {"Idempotency-Replayed": "true"} if replayed else None)


@dataclass(frozen=True)
class _Ingest:
    server: Server
    body: Body
    options: FileOptions
    stream: str
    storing: StoreOptions
    on_error: str

    def run(self, key: str | None) -> tuple[dict[str, Any], bool]:
        if key is None:
            return self._store(), False
        said = (self.options, self.storing, self.on_error, self.body.encoding, self.body.digest)
        fingerprint = hashlib.sha256(repr(said).encode()).hexdigest()
        with self.server.keys.request(self.stream, key, fingerprint) as work:
            if work.answer is None:
                answer = self._store()
                work.version = answer["version"] or 0
                work.answer = {name: answer[name] for name in answer if name != "columns"}
                return answer, False
            schema = self.server.database.stream_schema(self.stream).arrow
            return {**work.answer, "columns": columns_of(schema)}, True

    def _store(self) -> dict[str, Any]:
        done = ingest_file(
            self.server, self.body, self.options, strict=self.on_error == "fail",
            stream=self.stream, **asdict(self.storing),
        )  # fmt: skip
        report = done.report
        self.server.metrics.appended_events.labels("ingest").inc(report.stored)
        self.server.metrics.late_events.inc(report.late)
        answer = {
            "stream": self.stream,
            "created": report.created,
            "dry_run": self.storing.dry_run,
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
        database = self.server.database
        known = self.stream in database.streams()
        if known and database.stream_options(self.stream)["unique"] is not None:
            answer["duplicates"] = report.duplicates
        return answer
