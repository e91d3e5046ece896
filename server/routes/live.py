"""Routes of live queries.  To change one takes ``admin`` on its name and its sink, and ``read`` on
its sources; to see it, ``read`` on its sink.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from ...core.times import INT64_MAX
from ...errors import ChronicleError, InvalidArgument, ReadOnlyStore, StreamNotFound
from ...live.definition import LiveDefinition
from ...query.contract.result import Result
from ...store.stream import EventStream
from ..access.auth import Principal, authorize
from ..http.replies import jsonable, reply
from ..http.requests import feed_format
from ..service.feeds import Feed, LiveFeed
from ..service.query_log import RunningQuery
from ..service.row_stream import open_statement
from ..service.state import Server
from . import answers
from .answers import FEED, ROWS, SQL, Json
from .following import send_feed
from .parameters import FeedStyle, LastEventId, ResultEncoding, TimeRange
from .route import Call, Called, Routes
from .row_responses import send_rows

routes = Routes("live queries", "/v1/live")
PREVIEW_ROWS = 100
_NOT_OF_ROLLUPS = {"into", "start", "late", "emit"}


class LiveSpec(BaseModel):
    """A live query: a statement, or a name with a SELECT and options."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "high",
                    "sql": "SELECT timestamp, icao24, altitude FROM flights",
                    "if_not_exists": True,
                }
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
    emit: str = Field("close", description="close, or how often changes are emitted.")
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


def _definition(call: Called, name: str, scope: str) -> LiveDefinition:
    principal = call.principal
    principal.require(scope, name)
    try:
        definition = call.server.catalog.live_statements.definition(name)
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


@routes.post("", "Make a live query", answers.LiveStatus, 201, also=200, runs="build")
def create_live(call: Call, spec: LiveSpec) -> Response:
    """Save a query that goes on; its results become a stream."""
    before = set(call.server.database.live_queries())
    name = _by_statement(call, spec) if spec.name is None else spec.name
    if spec.name is not None:
        _by_fields(call, spec, name)
    location = {"Location": f"/v1/live/{quote(name, safe='')}"}
    return reply(_status(call.server, name), 200 if name in before else 201, location)


def _by_statement(call: Called, spec: LiveSpec) -> str:
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
    principal = call.principal
    allowed = partial(authorize, principal)
    call.server.engine_for(principal).run(spec.sql, allowed=allowed).close()
    return str(tree.this.name)


def _by_fields(call: Called, spec: LiveSpec, name: str) -> None:
    principal, database = call.principal, call.server.database
    principal.require("admin", name)
    if spec.into is not None:
        principal.require("admin", spec.into)
    for stream in sorted(call.server.engine_for(principal).access(spec.sql).reads):
        principal.require("read", stream)
    options = spec.model_dump(include={"delay", "idle", "options", "if_not_exists"})
    if not spec.rollup:
        options |= spec.model_dump(include=_NOT_OF_ROLLUPS)
        database.create_live(name, spec.sql, **options)
        return
    wrong = sorted(spec.model_fields_set & _NOT_OF_ROLLUPS)
    if wrong:
        raise InvalidArgument(f"a roll-up has no {wrong[0]}: it is of all events, corrected")
    database.create_rollup(name, spec.sql, **options)


@routes.get("", "List live queries", answers.LiveList, needs="read")
def list_live(call: Call) -> Json:
    """Those within the token's reach, and their status."""
    live = call.server.catalog.live_statements
    statuses = []
    for name in live.names():
        try:
            if call.principal.may("read", name) and call.principal.may("read", live.sink_of(name)):
                statuses.append(_status(call.server, name))
        except StreamNotFound:
            continue  # dropped meanwhile
    return {"live": statuses}


@routes.post("/preview", "Try a live query", responses=ROWS, example=SQL)
async def preview(call: Call, encoding: ResultEncoding, spec: PreviewSpec) -> Response:
    """The first rows of a SELECT that could become a live query; nothing is kept."""
    server = call.server

    def open_rows(query: RunningQuery) -> Result:
        timeout = server.settings.query_timeout
        result = open_statement(
            server, call.principal, query, spec.sql, None, timeout, read_only=True
        )
        try:
            server.catalog.live_statements.check(spec.sql)
        except ChronicleError:
            result.close()
            raise
        return result

    return await send_rows(
        call, server.queries, "query", spec.sql, open_rows, encoding, limit=spec.limit
    )


@routes.post("/catch-up", "Wait for live queries", answers.LiveList, needs="read", runs="build")
def catch_up(
    call: Call,
    timeout_ms: Annotated[int | None, Query(ge=1, description="Most time to wait.")] = None,
) -> Json:
    """Answers when every live query has processed all commits so far; 504 when it takes longer."""
    seconds = call.server.settings.query_timeout
    if timeout_ms is not None:
        seconds = min(int(seconds * 1000), timeout_ms) / 1000
    call.server.catalog.live_statements.run(seconds)
    return list_live(call)


@routes.get("/{name}", "Ask about a live query", answers.LiveStatus)
def describe_live(call: Call, name: str) -> Json:
    """Its definition and its status."""
    _definition(call, name, "read")
    described = call.server.catalog.live_statements.describe(name)
    return {**_status(call.server, name), "definition": dict(described)}


@routes.delete("/{name}", "Drop a live query", status=204)
async def drop_live(
    call: Call,
    name: str,
    keep_results: Annotated[bool, Query(description="Leave the stream of its results.")] = False,
) -> None:
    """End it, and remove its results."""
    server = call.server

    def drop() -> None:
        sink = _definition(call, name, "admin").sink
        server.catalog.live_statements.drop(name, keep_results)
        if sink not in server.database.streams():
            server.forget_stream(sink)

    await server.build(drop)
    server.followers.wake_all()


@routes.post("/{name}/pause", "Pause a live query", answers.LiveStatus, runs="build")
def pause_live(call: Call, name: str) -> Json:
    """Stop it until it is resumed, over restarts, too."""
    _definition(call, name, "admin")
    call.server.catalog.live_statements.pause(name)
    return _status(call.server, name)


@routes.post("/{name}/resume", "Resume a live query", answers.LiveStatus, runs="build")
def resume_live(call: Call, name: str) -> Json:
    """Continue where it stopped, after a failure as well."""
    _definition(call, name, "admin")
    call.server.catalog.live_statements.resume(name)
    return _status(call.server, name)


@routes.post(
    "/{name}/refresh", "Put a live query's results right", answers.LiveStatus, runs="build"
)
def refresh_live(call: Call, name: str, times: TimeRange) -> Json:
    """Compare results with times in `[start, end)` with the query, and correct them."""
    definition = _definition(call, name, "admin")
    schema = call.server.database.stream(definition.sources[0]).event_schema
    call.server.catalog.live_statements.refresh(name, *times.bounds(schema))
    return _status(call.server, name)


@routes.post("/{name}/verify", "Check a live query's results", answers.Differences, runs="build")
def verify_live(call: Call, name: str) -> Json:
    """Compare its results with the query; changes nothing."""
    _definition(call, name, "admin")
    return {"differences": call.server.catalog.live_statements.query(name).verify()}


@routes.get("/{name}/rows", "Follow a live query", responses=FEED)
async def live_rows(
    call: Call,
    name: str,
    style: FeedStyle,
    after: Annotated[
        int, Query(ge=0, le=INT64_MAX, description="The last _seq that is known.")
    ] = 0,
    follow: Annotated[
        bool | None,
        Query(description="Wait for more at the end; default: with server-sent events only."),
    ] = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Its results and retractions, in the order of `_seq`: SSE, NDJSON or an Arrow stream."""
    form = feed_format(call.request)
    last = (last_event_id or "").strip()
    if last:
        if not last.isdecimal() or int(last) > INT64_MAX:
            raise InvalidArgument(f"Last-Event-ID is the _seq of a row, found {last!r}")
        after = int(last)

    def allowed(asking: Principal) -> None:
        asking.require("read", name)

    def open_feed(query: RunningQuery) -> tuple[Feed, EventStream]:
        if call.server.database.mode == "r":
            raise ReadOnlyStore(
                "the store is open for reading here; follow the live query through the server that "
                "writes"
            )
        _definition(call, name, "read")
        feed = LiveFeed(call.server.catalog.live_statements.query(name), after, form, **style)
        return feed, feed.stream

    follow = form == "sse" if follow is None else follow
    text = f"rows of the live query {name}"
    return await send_feed(call, "live", text, open_feed, follow=follow, allowed=allowed)
