"""Routes of transactions: parts staged by many, committed by one.

What a transaction promises stands in :mod:`chronicle.server.transactions`.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ..errors import InvalidArgument
from ..formats import Limits
from ..ticks import INT64_MAX
from .bodies import Body
from .door import PathName
from .guard import Requester
from .negotiation import body_format
from .parameters import FormatName
from .parsing import batches_of
from .replies import reply
from .specs import read_spec, spec_body
from .state import Server, server_of
from .transactions import Commit

__all__ = ["router"]

router = APIRouter(prefix="/v1/streams/{stream}/transactions/{transaction}", tags=["transactions"])
COMMIT_BYTES_MAX = 8 << 20
DECODED_FACTOR = 8
"""How much larger than its limit on the wire a part may become when it is decompressed."""


class CommitSpec(BaseModel):
    """Which parts become events."""

    model_config = ConfigDict(extra="forbid")

    parts: list[str] = Field(
        description="Names of the parts; their order decides between equal times."
    )
    truncate: bool = Field(
        False, description="Remove the stream's events in the same commit; needs the scope admin."
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
    principal.require("write", stream)
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
    """Make the listed parts events, at once; asked again, nothing happens."""
    spec = await read_spec(request, CommitSpec, COMMIT_BYTES_MAX)
    principal.require("admin" if spec.truncate else "write", stream)
    server = server_of(request)
    if (spec.app_id is None) != (spec.app_version is None):
        raise InvalidArgument("give both app_id and app_version, or neither")
    wanted = Commit(tuple(spec.parts), spec.truncate, spec.app_id, spec.app_version)

    def run() -> dict[str, Any]:
        done = server.transactions.commit(stream, transaction, wanted)
        if not done.repeated:
            server.metrics.appended_events.labels("transaction").inc(done.events)
            server.metrics.late_events.inc(done.late)
        return {
            "appended": done.events,
            "late": done.late,
            "count": server.database.stream(stream).count,
            "version": done.position,
            "replayed": done.repeated,
        }

    async with server.appends.held(principal.client):
        return reply(await server.call(run))


@router.delete("", status_code=204, summary="Drop a transaction")
async def abort(
    request: Request, principal: Requester, stream: PathName, transaction: PathName
) -> Response:
    """Drop its parts; parts that come later are refused with 409."""
    principal.require("write", stream)
    server = server_of(request)
    await server.call(server.transactions.abort, stream, transaction)
    return Response(status_code=204)
