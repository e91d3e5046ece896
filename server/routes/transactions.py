"""Routes of transactions: parts staged by many, committed by one.  ``service.transactions`` has the
guarantees.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ...core.times import INT64_MAX
from ...errors import InvalidArgument
from ...formats.dialect import Limits
from ..access.auth import Requester
from ..http.negotiation import body_format
from ..http.problems import reply
from ..http.request_head import PathName
from ..service.bodies import Body
from ..service.event_parsing import batches_of
from ..service.state import Server, server_of
from ..service.transactions import Commit
from .parameters import FormatName, RangeSpec, read_spec, spec_body

router = APIRouter(prefix="/v1/streams/{stream}/transactions/{transaction}", tags=["transactions"])
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


@router.put("/parts/{part}", summary="Stage a part")
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
    batches = batches_of(
        body,
        format,
        schema,
        "iso" if schema.time_unit is not None else "ticks",
        DECODED_FACTOR * server.settings.max_part_bytes,
        server.reader,
        name=f"part {part}",
        limits=Limits(columns=server.settings.max_columns),
    )
    return server.transactions.put(stream, transaction, part, batches)


@router.post("/commit", summary="Commit a transaction", openapi_extra=spec_body(CommitSpec))
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
            server.metrics.appended_events.labels("transaction").inc(done.events)
            server.metrics.late_events.inc(done.late)
        answer = {
            "appended": done.events,
            "late": done.late,
            "count": server.database.stream(stream).count if done.count is None else done.count,
            "version": done.position,
            "replayed": done.repeated,
        }
        if server.database.stream_options(stream)["unique"] is not None:
            answer["duplicates"] = done.duplicates
        return answer

    async with server.appends.held(principal.client):
        return reply(await (server.call(run) if spec.replace is None else server.build(run)))


@router.delete("", status_code=204, summary="Drop a transaction")
async def abort(
    request: Request, principal: Requester, stream: PathName, transaction: PathName
) -> Response:
    """Drop its parts; later parts are refused with 409."""
    principal.require("ingest", stream)
    server = server_of(request)
    await server.call(server.transactions.abort, stream, transaction)
    return Response(status_code=204)
