"""Routes of live queries.  To change one takes ``admin`` on its name and its sink, and ``read`` on
its sources; to see it, ``read`` on its sink.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ...core.times import INT64_MAX
from ...errors import ChronicleError, InvalidArgument, ReadOnlyStore, StreamNotFound
from ...live.definition import LiveDefinition
from ...store.stream import EventStream
from ..access.auth import Principal, Requester, authorize
from ..http.replies import jsonable, reply
from ..http.requests import PathName, feed_format
from ..http.route import api_router
from ..service.feeds import Feed, LiveFeed
from ..service.query_log import RunningQuery
from ..service.row_stream import open_statement
from ..service.state import Server, server_of
from .following import send_feed
from .parameters import (
    FeedStyle,
    ResultEncoding,
    TimeRange,
    read_spec,
    spec_body,
)
from .row_responses import RowSource, send_rows

router = api_router(prefix="/v1/live", tags=["live queries"])
PREVIEW_ROWS = 100
_NOT_OF_ROLLUPS = {"into", "start", "late", "emit"}


class LiveSpec(BaseModel):
    """A live query: a statement, or a name with a SELECT and options."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "high", "sql": "SELECT icao24, altitude FROM flights WHERE altitude > 1e4"}
            ]
        },
    )

    sql: str = Field(description="CREATE LIVE QUERY ..., or the SELECT of the one that is named.")
    name: str | None = Field(None, min_length=1, description="Its name.")
    into: str | None = Field(None, description="A sink that live queries share.")
    start: int | str = Field("first", description="first, now or a time.")
    delay: int | str | None = Field(None, description="How long events are waited for.")
    idle: str | None = Field(None, description="never, or a length of wall clock.")
    late: int | str = Field("correct", description="correct, ignore, or a length of time.")
    emit: str = Field("close", description="close, or how often changes are put out.")
    options: dict[str, str | int | bool] = Field(
        default_factory=dict, description="What stands behind WITH."
    )
    if_not_exists: bool = False
    rollup: bool = Field(
        False, description="Whether it is a roll-up, which has no into, start, late or emit."
    )


class PreviewSpec(BaseModel):
    """A SELECT that might become a live query."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(description="The SELECT.")
    limit: int = Field(PREVIEW_ROWS, ge=0, le=10_000, description="Most rows to send.")


def _definition(server: Server, principal: Principal, name: str, scope: str) -> LiveDefinition:
    principal.require(scope, name)
    try:
        definition = server.catalog.live_statements.definition(name)
    except StreamNotFound:
        if principal.everywhere:
            raise
        raise StreamNotFound(f"no live query {name!r} within the token's reach") from None
    principal.require(scope, definition.sink)
    return definition


def _status(server: Server, name: str) -> dict[str, Any]:
    live = server.catalog.live_statements
    status: dict[str, Any] = jsonable(live.status(name))
    definition = live.definition(name)
    return {**status, "sql": definition.sql, "rollup": definition.rollup is not None}


@router.post("", status_code=201, summary="Make a live query", openapi_extra=spec_body(LiveSpec))
async def create_live(request: Request, principal: Requester) -> Response:
    """Save a query that goes on; its results become a stream."""
    server = server_of(request)
    spec = await read_spec(request, LiveSpec)

    def create() -> tuple[dict[str, Any], bool]:
        before = set(server.database.live_queries())
        name = _by_statement(server, principal, spec) if spec.name is None else spec.name
        if spec.name is not None:
            _by_fields(server, principal, spec, spec.name)
        return _status(server, name), name not in before

    status, made = await server.build(create)
    location = f"/v1/live/{quote(status['name'], safe='')}"
    return reply(status, 201 if made else 200, {"Location": location})


def _by_statement(server: Server, principal: Principal, spec: LiveSpec) -> str:
    from ...query.sql.dialect import parse_statement
    from ...query.sql.statement_clauses import CreateLive

    if spec.model_fields_set - {"sql"}:
        raise InvalidArgument("options belong to a name; in a statement, write them before AS")
    tree = parse_statement(spec.sql)
    if not isinstance(tree, CreateLive):
        raise InvalidArgument(
            "sql without a name is a CREATE LIVE QUERY or CREATE ROLLUP name AS SELECT ...; give a "
            "name with a SELECT, or the whole statement"
        )
    allowed = partial(authorize, principal)
    server.engine_for(principal).run(spec.sql, allowed=allowed).close()
    return str(tree.this.name)


def _by_fields(server: Server, principal: Principal, spec: LiveSpec, name: str) -> None:
    principal.require("admin", name)
    if spec.into is not None:
        principal.require("admin", spec.into)
    for stream in sorted(server.engine_for(principal).access(spec.sql).reads):
        principal.require("read", stream)
    options = spec.model_dump(include={"delay", "idle", "options", "if_not_exists"})
    if not spec.rollup:
        options |= spec.model_dump(include=_NOT_OF_ROLLUPS)
        server.database.create_live(name, spec.sql, **options)
        return
    wrong = sorted(spec.model_fields_set & _NOT_OF_ROLLUPS)
    if wrong:
        raise InvalidArgument(f"a roll-up has no {wrong[0]}: it is of all events, corrected")
    server.database.create_rollup(name, spec.sql, **options)


@router.get("", summary="List live queries")
async def list_live(request: Request, principal: Requester) -> Response:
    """Those within the token's reach, and their status."""
    principal.require("read")
    server = server_of(request)
    return reply({"live": await server.call(lambda: _listed(server, principal))})


def _listed(server: Server, principal: Principal) -> list[dict[str, Any]]:
    live = server.catalog.live_statements
    statuses = []
    for name in live.names():
        try:
            if principal.may("read", name) and principal.may("read", live.sink_of(name)):
                statuses.append(_status(server, name))
        except StreamNotFound:
            continue  # dropped meanwhile
    return statuses


@router.post(
    "/preview", summary="Try a live query", openapi_extra=spec_body(PreviewSpec), name="preview"
)
async def preview(request: Request, principal: Requester, encoding: ResultEncoding) -> Response:
    """The first rows of a SELECT that could become a live query; nothing is kept."""
    server = server_of(request)
    spec = await read_spec(request, PreviewSpec)

    def open_rows(query: RunningQuery) -> RowSource:
        timeout = server.settings.query_timeout
        result = open_statement(server, principal, query, spec.sql, None, timeout, read_only=True)
        try:
            server.catalog.live_statements.check(spec.sql)
        except ChronicleError:
            result.close()
            raise
        return RowSource.of(result)

    return await send_rows(
        request,
        principal,
        server.queries,
        "query",
        spec.sql,
        open_rows,
        encoding,
        limit=spec.limit,
    )


@router.post("/catch-up", summary="Wait for live queries")
async def catch_up(
    request: Request,
    principal: Requester,
    timeout_ms: Annotated[int | None, Query(ge=1, description="Most time to wait.")] = None,
) -> Response:
    """Answers when every live query has processed all commits so far; 504 when it takes longer."""
    principal.require("read")
    server = server_of(request)
    seconds = server.settings.query_timeout
    if timeout_ms is not None:
        seconds = min(int(seconds * 1000), timeout_ms) / 1000

    def run() -> list[dict[str, Any]]:
        server.catalog.live_statements.run(seconds)
        return _listed(server, principal)

    return reply({"live": await server.build(run)})


@router.get("/{name}", summary="Ask about a live query")
async def describe_live(request: Request, principal: Requester, name: PathName) -> Response:
    """Its definition and its status."""
    server = server_of(request)

    def tell() -> dict[str, Any]:
        _definition(server, principal, name, "read")
        live = server.catalog.live_statements
        return {**_status(server, name), "definition": dict(live.describe(name))}

    return reply(await server.call(tell))


@router.delete("/{name}", status_code=204, summary="Drop a live query")
async def drop_live(
    request: Request,
    principal: Requester,
    name: PathName,
    keep_results: Annotated[bool, Query(description="Leave the stream of its results.")] = False,
) -> Response:
    """End it, and remove its results."""
    server = server_of(request)

    def drop() -> None:
        sink = _definition(server, principal, name, "admin").sink
        server.catalog.live_statements.drop(name, keep_results)
        if sink not in server.database.streams():
            server.forget_stream(sink)

    await server.build(drop)
    server.followers.wake_all()
    return Response(status_code=204)


@router.post("/{name}/pause", summary="Pause a live query")
async def pause_live(request: Request, principal: Requester, name: PathName) -> Response:
    """Stop it until it is resumed, over restarts, too."""
    return await _change(request, principal, name, "pause")


@router.post("/{name}/resume", summary="Resume a live query")
async def resume_live(request: Request, principal: Requester, name: PathName) -> Response:
    """Continue where it stopped, after a failure as well."""
    return await _change(request, principal, name, "resume")


async def _change(request: Request, principal: Principal, name: str, what: str) -> Response:
    server = server_of(request)

    def change() -> dict[str, Any]:
        _definition(server, principal, name, "admin")
        getattr(server.catalog.live_statements, what)(name)
        return _status(server, name)

    return reply(await server.build(change))


@router.post("/{name}/refresh", summary="Put a live query's results right")
async def refresh_live(
    request: Request,
    principal: Requester,
    name: PathName,
    times: TimeRange,
) -> Response:
    """Compare results with times in `[start, end)` with the query, and correct them."""
    server = server_of(request)

    def refresh() -> dict[str, Any]:
        definition = _definition(server, principal, name, "admin")
        live = server.catalog.live_statements
        schema = server.database.stream(definition.sources[0]).event_schema
        live.refresh(name, *times.bounds(schema))
        return _status(server, name)

    return reply(await server.build(refresh))


@router.post("/{name}/verify", summary="Check a live query's results")
async def verify_live(request: Request, principal: Requester, name: PathName) -> Response:
    """Compare its results with the query; changes nothing."""
    server = server_of(request)

    def verify() -> dict[str, int]:
        _definition(server, principal, name, "admin")
        return {"differences": server.catalog.live_statements.query(name).verify()}

    return reply(await server.build(verify))


@router.get("/{name}/rows", summary="Follow a live query")
async def live_rows(
    request: Request,
    principal: Requester,
    name: PathName,
    style: FeedStyle,
    after: Annotated[
        int, Query(ge=0, le=INT64_MAX, description="The last _seq that is known.")
    ] = 0,
    follow: Annotated[
        bool | None,
        Query(description="Wait for more at the end; default: with server-sent events only."),
    ] = None,
    last_event_id: Annotated[
        str | None, Header(description="The last id that was read; wins over `after`.")
    ] = None,
) -> Response:
    """Its results and retractions, in the order of `_seq`: SSE, NDJSON or an Arrow stream."""
    server = server_of(request)
    form = feed_format(request)
    last = (last_event_id or "").strip()
    if last:
        if not last.isdecimal() or int(last) > INT64_MAX:
            raise InvalidArgument(f"Last-Event-ID is the _seq of a row, found {last!r}")
        after = int(last)

    def allowed(asking: Principal) -> None:
        asking.require("read", name)

    def open_feed(query: RunningQuery) -> tuple[Feed, EventStream]:
        if server.database.mode == "r":
            raise ReadOnlyStore(
                "the store is open for reading here; follow the live query through the server that "
                "writes"
            )
        _definition(server, principal, name, "read")
        live = server.catalog.live_statements.query(name)
        feed = LiveFeed(live, after, form, **style)
        return feed, feed.stream

    return await send_feed(
        request,
        principal,
        "live",
        f"rows of the live query {name}",
        open_feed,
        follow=form == "sse" if follow is None else follow,
        allowed=allowed,
    )
