"""Routes of followers: positions, and the events committed between two of them.
``service.positions`` has the guarantees.
"""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ...core.times import INT64_MAX
from ...errors import InvalidArgument
from ...schema import StreamSchema
from ..access.auth import Requester
from ..http.problems import reply
from ..http.request_head import PathName
from ..service.query_log import RunningQuery
from ..service.state import server_of
from .events import Patience, distinct_columns
from .parameters import (
    Columns,
    EventEncoding,
    Limit,
    TimeRange,
    column_names,
    read_spec,
    spec_body,
)
from .row_responses import RowSource, send_rows

router = APIRouter(prefix="/v1/streams/{stream}", tags=["followers"])

After = Annotated[
    str | None, Query(description="A position that was read; default: before the first event.")
]
Until = Annotated[str, Query(description="A later position, up to which is read.")]


class PositionSpec(BaseModel):
    """Which commit to keep."""

    model_config = ConfigDict(extra="forbid")

    at: int | None = Field(
        None, ge=0, le=INT64_MAX, description="A commit's version; default: the last one."
    )
    after: str | None = Field(
        None, description="Only if something was committed after this position, which is renewed."
    )


@router.post("/positions", summary="Keep a position", openapi_extra=spec_body(PositionSpec))
async def keep_position(request: Request, principal: Requester, stream: PathName) -> Response:
    """Keep the last commit, or an earlier one, for a follower; null when there is none."""
    principal.require("read", stream)
    spec = await read_spec(request, PositionSpec)
    if spec.at is not None and spec.after is not None:
        raise InvalidArgument("give one of 'at' and 'after'")
    server = server_of(request)
    name = await server.call(server.positions.keep, stream, principal.owner, spec.at, spec.after)
    version = None if name is None else int(name.partition("-")[0])
    return reply({"position": name, "version": version}, 200 if name is None else 201)


@router.delete("/positions/{position}", status_code=204, summary="Drop a position")
async def drop_position(
    request: Request, principal: Requester, stream: PathName, position: PathName
) -> Response:
    """Drop a position, and stop keeping old segments for it."""
    principal.require("read", stream)
    server = server_of(request)
    await server.call(server.positions.drop, stream, principal.owner, position)
    return Response(status_code=204)


@router.get("/changes", summary="Plan a read of what is new")
async def changes(
    request: Request, principal: Requester, stream: PathName, until: Until, after: After = None
) -> Response:
    """Time ranges that hold events committed after one position and up to another."""
    principal.require("read", stream)
    server = server_of(request)

    def plan() -> dict[str, Any]:
        ranges = server.positions.ranges(stream, principal.owner, after, until)
        return {
            "stream": stream,
            "events": sum(part.events for part in ranges),
            "ranges": [
                {"start": p.start, "end": p.end, "events": p.events, "stored": p.stored}
                for p in ranges
            ],
        }

    return reply(await server.read(principal.client, plan))


@router.head("/changes/events", include_in_schema=False)
@router.get("/changes/events", summary="Read what is new")
async def read_changes(
    request: Request,
    principal: Requester,
    encoding: EventEncoding,
    stream: PathName,
    until: Until,
    times: TimeRange,
    after: After = None,
    columns: Columns = None,
    skip: Annotated[
        int, Query(ge=0, le=INT64_MAX, description="New events to leave out at the start.")
    ] = 0,
    limit: Limit = None,
) -> Response:
    """Events committed between two positions, of a time range, in time order; streamed."""
    principal.require("read", stream)
    server = server_of(request)

    def open_rows(query: RunningQuery) -> RowSource:
        schema: StreamSchema = server.database.stream(stream).event_schema
        names = distinct_columns(schema, column_names(columns))
        patience = Patience(query, server.settings.query_timeout)
        batches = server.positions.events(
            stream,
            principal.owner,
            after,
            until,
            *times.bounds(schema),
            names,
            skip,
            limit,
            patience.check,
        )
        return RowSource(pa.schema([schema.arrow.field(n) for n in names]), patience.watch(batches))

    return await send_rows(
        request,
        principal,
        server.reads,
        "events",
        f"changes of {stream}",
        open_rows,
        encoding,
        limit=limit,
        looks_ahead=False,
    )
