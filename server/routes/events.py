"""Routes of events: append a body atomically, read a time range, plan a parallel read.  An append
answers when it is as durable as asked; concurrent appends share syncs.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response

from ...core.times import INT64_MAX
from ...formats.dialect import TextOptions
from ...schema import StreamSchema
from ..access.auth import Requester
from ..http.cloud_events import BinaryEvent, binary_event
from ..http.negotiation import body_format
from ..http.request_head import PathName
from ..http.responses import reply
from ..service.bodies import Body
from ..service.event_parsing import bad_row_json, read_events
from ..service.idempotency import IdempotencyKeys
from ..service.middleware import note_time, timed
from ..service.running_queries import RunningQuery
from ..service.state import Server, server_of
from .acknowledged import Acknowledged, check_continuous
from .event_scan import ScanRange, open_scan, scan_at_once
from .parameters import (
    Columns,
    End,
    EventEncoding,
    Flatten,
    FormatName,
    Limit,
    Precision,
    Start,
    Text,
    column_names,
    to_ticks,
)
from .row_responses import RowSource, send_rows

__all__ = ["clip", "router"]

router = APIRouter(prefix="/v1/streams/{stream}", tags=["events"])
PARTITION_BYTES = 64 << 20
PARTITIONS_MAX = 20_000

COMMIT_EVENTS = 1000

Version = Annotated[
    int | None,
    Query(ge=0, le=INT64_MAX, description="Read this pinned version; default: the present one."),
]


@router.post("/events", summary="Append events")
async def append_events(
    request: Request,
    principal: Requester,
    stream: PathName,
    text: Text,
    format: FormatName = None,
    precision: Precision = None,
    durability: Annotated[
        Literal["commit", "interval", "none"] | None,
        Query(description="What the answer promises; default: the store's setting."),
    ] = None,
    on_error: Annotated[
        Literal["fail", "skip"], Query(description="What a row that is no event does.")
    ] = "fail",
    bad_rows: Annotated[
        Literal["fail", "skip"] | None, Query(description="Another name of on_error.")
    ] = None,
    flatten: Flatten = None,
    ack: Annotated[
        Literal["whole", "each"],
        Query(description="One answer for the body, or a line for each commit while it comes."),
    ] = "whole",
    commit_events: Annotated[
        int, Query(ge=1, le=10_000, description="Most lines of a commit, with ack=each.")
    ] = COMMIT_EVENTS,
    idempotency_key: Annotated[
        str | None, Header(description="Ask again with the same key without appending twice.")
    ] = None,
) -> Response:
    """Append the events of the body, all or none: JSON, NDJSON, CSV, Arrow stream or Parquet.

    CloudEvents come in all three modes; in the binary one the headers `ce-...` are attributes.
    With `ack=each`: an endless NDJSON body, and one line of the answer for each commit.
    """
    principal.require("ingest", stream)
    server = server_of(request)
    keys = server.keys
    on_error = bad_rows or on_error
    head = binary_event(request)
    name = body_format(request) if head is None else "cloudevents"
    if ack == "each":
        check_continuous(request, name, on_error, idempotency_key, flatten, text)
        found = await server.call(server.database.stream, stream)
        return Acknowledged(request, server, principal, found, precision, durability, commit_events)
    async with server.receiving(
        request,
        principal.client,
        server.settings.max_body_bytes,
        hashed=idempotency_key is not None,
    ) as body:
        waited = time.perf_counter()
        async with server.appends.held(principal.client):
            note_time(request, "queue", time.perf_counter() - waited)
            job = _Append(
                server,
                request,
                stream,
                name,
                body,
                precision,
                durability,
                on_error,
                flatten,
                head,
                text,
            )
            answer, replayed = await server.call(job.run, keys, idempotency_key)
    return reply(answer, 200, {"Idempotency-Replayed": "true"} if replayed else None)


@dataclass(frozen=True)
class _Append:
    server: Server
    request: Request
    stream: str
    format: str
    body: Body
    precision: str | None
    durability: str | None
    on_error: str
    flatten: str | None
    head: BinaryEvent | None
    text: TextOptions

    def run(self, keys: IdempotencyKeys, key: str | None) -> tuple[dict[str, Any], bool]:
        if key is None:
            return self._store()[0], False
        said: tuple[Any, ...] = (self.stream, self.format, self.precision, self.on_error)
        said = (*said, self.body.encoding, self.body.digest)
        if self.flatten is not None or self.head is not None:
            said = (*said, self.flatten, self.head)
        if self.text != TextOptions():
            said = (*said, self.text)
        fingerprint = hashlib.sha256(repr(said).encode()).hexdigest()
        with keys.request(self.stream, key, fingerprint) as work:
            if work.answer is None:
                work.answer, work.version = self._store()
            return work.answer, work.replayed

    def _store(self) -> tuple[dict[str, Any], int]:
        server = self.server
        found = server.database.stream(self.stream)
        started = time.perf_counter()
        with timed(self.request, "parse"), self._whole() as body:
            events, bad, rejected = read_events(
                body,
                self.format,
                found.event_schema,
                self.precision,
                server.settings.max_decoded_bytes,
                server.reader,
                columns_max=server.settings.max_columns,
                skip=self.on_error == "skip",
                flatten=self.flatten,
                text=self.text,
            )
        with timed(self.request, "append"):
            done = found.append(events, durability=self.durability)
        metrics = server.metrics
        metrics.append_seconds.observe(time.perf_counter() - started)
        metrics.appended_events.labels(self.format).inc(done.appended)
        metrics.late_events.inc(done.late)
        options = server.database.stream_options(self.stream)
        promise = self.durability or options["durability"]
        answer: dict[str, Any] = {
            "appended": done.appended,
            "late": done.late,
            "count": done.count,
            "version": done.version,
            "position": str(done.version),
            "durable": promise == "commit",
        }
        if options["unique"] is not None:
            answer["duplicates"] = done.duplicates
        if self.on_error == "skip":
            answer |= {"rejected": rejected, "errors": [bad_row_json(row) for row in bad]}
        return answer, done.version

    @contextlib.contextmanager
    def _whole(self) -> Iterator[Body]:
        if self.head is None:
            yield self.body
            return
        data = self.body.open(self.server.settings.max_decoded_bytes).read()
        event = self.head.structured(data)
        self.body.hold(len(event))
        with contextlib.closing(Body(None, None, None)) as body:
            body.write(event)
            yield body


@router.head("/events", include_in_schema=False)
@router.get("/events", summary="Read events")
async def read_stream(
    request: Request,
    principal: Requester,
    encoding: EventEncoding,
    stream: PathName,
    start: Start = None,
    end: End = None,
    columns: Columns = None,
    where: Annotated[
        str | None, Query(description="SQL predicate, such as altitude > 10000.")
    ] = None,
    limit: Limit = None,
    precision: Precision = None,
    version: Version = None,
) -> Response:
    """Events of `[start, end)` in time order, ties in order of arrival; streamed.

    HEAD, `Range`, `If-Match`, `If-None-Match` and `If-Range` make the answer a file.
    """
    principal.require("read", stream)
    server = server_of(request)
    wanted = ScanRange(
        lambda schema: (to_ticks(schema, start, precision), to_ticks(schema, end, precision)),
        column_names(columns),
        where,
        # Without a predicate, looking for more rows costs one event; with one, perhaps a full scan.
        limit + 1 if limit is not None and where is None else limit,
        version,
    )

    def open_rows(query: RunningQuery) -> RowSource:
        return open_scan(server, stream, wanted, query)

    def at_once(query: RunningQuery) -> RowSource | None:
        return scan_at_once(server, stream, wanted, query)

    text = f"events of {stream}" + (f" where {where}" if where else "")
    return await send_rows(
        request,
        principal,
        server.reads,
        "events",
        text,
        open_rows,
        encoding,
        limit=limit,
        looks_ahead=where is None,
        at_once=at_once,
    )


@router.get("/partitions", summary="Plan a parallel read")
async def partitions(
    request: Request,
    principal: Requester,
    stream: PathName,
    parts: Annotated[
        int | None, Query(ge=1, le=PARTITIONS_MAX, description="Parts wanted; default: by size.")
    ] = None,
    start: Start = None,
    end: End = None,
    precision: Precision = None,
    version: Version = None,
) -> Response:
    """Pin a version of the stream and cut a time range of it into parts of about equal size."""
    principal.require("read", stream)
    server = server_of(request)

    def plan() -> dict[str, Any]:
        schema: StreamSchema = server.database.stream(stream).event_schema
        first, last = (to_ticks(schema, text, precision) for text in (start, end))
        if version is None:
            held = server.snapshots.pin(stream)
        else:
            held = server.snapshots.use(stream, version)
        with held as snapshot:
            size = stored_bytes(server.database.stream(stream).stats())
            wanted = parts or min(PARTITIONS_MAX, max(1, -(-size // PARTITION_BYTES)))
            return {
                "stream": stream,
                "time": schema.time,
                "version": snapshot.version,
                "count": snapshot.count,
                "bytes": size,
                "arrow_schema": base64.b64encode(schema.arrow.serialize()).decode(),
                **schema.defaults_json(),
                "partitions": [
                    {"start": low, "end": high}
                    for low, high in clip(snapshot.ranges(wanted), first, last)
                ],
            }

    return reply(await server.read(principal.client, plan))


def stored_bytes(stats: dict[str, Any]) -> int:
    return int(stats.get("bytes", 0))


def clip(
    ranges: list[tuple[int | None, int | None]], first: int | None, last: int | None
) -> Iterator[tuple[int | None, int | None]]:
    """Intersect half-open ranges with ``[first, last)``; empty ones are left out."""
    if first is not None and last is not None and last <= first:
        return
    for low, high in ranges:
        if first is not None and (low is None or low < first):
            low = first
        if last is not None and (high is None or high > last):
            high = last
        if low is None or high is None or low < high:
            yield low, high
