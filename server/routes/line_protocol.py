"""InfluxDB line protocol, at the addresses that Telegraf and InfluxDB clients use.  A measurement
is an existing stream; tags and fields are attributes.  The whole body is parsed first: an invalid
line refuses it (or is left out, with ``accept_partial=true``).  Each measurement is a commit, and
earlier ones stay if a later one fails.  Events with equal tags and time are two events, where
InfluxDB keeps the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pyarrow as pa
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials

from ...errors import StreamNotFound
from ...formats.lineprotocol import lines_by_measurement
from ..access.auth import Principal, bearer, identify
from ..service.bodies import Body, read_events
from ..service.state import Server, server_of

router = APIRouter(tags=["line protocol"])
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
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)] = None,
) -> Principal:
    """The principal; a token may also be sent as ``Authorization: Token ...``."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if given is None and scheme.lower() == "token" and secret.strip():
        return identify(request, secret.strip())
    return identify(request, given.credentials if given else None)


Writer = Annotated[Principal, Depends(_writer)]


@router.post("/write", status_code=204, summary="Write line protocol (InfluxDB 1)")
@router.post(
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
    return await _write(request, principal, precision, partial=False)


@router.post("/api/v3/write_lp", status_code=204, summary="Write line protocol (InfluxDB 3)")
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
    partial: bool,
    durability: str | None = None,
) -> Response:
    principal.require("ingest")  # before anything is read
    server = server_of(request)
    settings = server.settings
    async with (
        server.receiving(request, principal.client, settings.max_body_bytes) as body,
        server.appends.held(principal.client),
    ):
        job = _Write(server, principal, body, PRECISIONS[precision], partial, durability)
        await server.call(job.run)
    return Response(status_code=204)


@dataclass(frozen=True)
class _Write:
    server: Server
    principal: Principal
    body: Body
    precision: str
    partial: bool
    durability: str | None

    def run(self) -> None:
        most = self.server.settings.max_decoded_bytes
        text = self.body.open(most).read()
        self.body.hold(len(text))
        parts = lines_by_measurement(text)
        for name in parts:
            self.principal.require("ingest", name)
        read = [(name, self._read(name, lines)) for name, lines in parts.items()]
        for name, events in read:
            done = self.server.database.stream(name).append(events, durability=self.durability)
            self.server.metrics.appended_events.labels("lineprotocol").inc(done.appended)
            self.server.metrics.late_events.inc(done.late)

    def _read(self, name: str, lines: bytes) -> pa.Table:
        server = self.server
        if name not in server.database.streams():
            raise StreamNotFound(
                f"there is no stream for the measurement {name!r}; create it with its tags and "
                "fields: CREATE STREAM ... (time TIMESTAMP_NS, ...) TIMESTAMP BY time"
            )
        schema = server.database.stream(name).event_schema
        body = Body(None, None, None)
        try:
            body.write(lines)
            precision = None if schema.time_unit is None else self.precision
            events, _, _ = read_events(
                body, "lineprotocol", schema, precision, server.settings.max_decoded_bytes,
                server.reader, columns_max=server.settings.max_columns, skip=self.partial,
            )  # fmt: skip
        finally:
            body.close()
        return events
