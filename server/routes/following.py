"""Routes of followers: a stream's tail, positions, and the events committed between two of these.
``catalog/tailing.py`` defines order and places, ``service.positions`` has the guarantees of
positions, ``service.feeds`` the formats.  ``send_feed`` sends a feed until client or server ends
it. ::

    slot -> thread: open, or a problem -> 200 -+-> thread: take -> send ---.
                                               |     | nothing new         |
                                               |     v                     |
                                               '-- wait: news, 15 s, end <-'

The server holds at most one piece of a feed per client besides the socket's buffer; waiting needs
no thread.  A client that reads too slowly is disconnected (``Pace``) and resumes at its last id.
Each heartbeat checks the token again.  An error after the first byte is the last event or line.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict
from typing import Annotated

import pyarrow as pa
from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive

from ...catalog.tailing import Tail
from ...core.times import INT64_MAX
from ...errors import (
    ChronicleError,
    Forbidden,
    InvalidArgument,
    QueryCancelled,
    ReadOnlyStore,
    Unauthorized,
)
from ...query.contract.cancellation import QueryControl
from ...query.contract.result import Result
from ...schema import StreamSchema
from ...store.stream import EventStream
from ..access.auth import Principal, ask_again, check_predicate
from ..access.limits import Slot
from ..http.replies import Problem, as_problem, reply
from ..http.requests import feed_format
from ..http.streamed import Pace, Streamed
from ..service.feeds import Feed, TailFeed, format_of
from ..service.query_log import RunningQuery
from . import answers
from .answers import EVENT_FILE, FEED, Json
from .events import Patience, distinct_columns
from .parameters import (
    Columns,
    EventEncoding,
    FeedStyle,
    Follow,
    LastEventId,
    Limit,
    TimeRange,
    Where,
    column_names,
)
from .route import Call, Called, Routes
from .row_responses import ClientWatch, send_rows

HEARTBEAT_S = 15.0
_REASONS = {"ended": "the end", "stopped": "the server stops", "cancelled": "cancelled"}
MARK_S = 1.0
"""Least seconds between marks of a feed without rows."""


async def send_feed(
    call: Called,
    kind: str,
    text: str,
    open_feed: Callable[[RunningQuery], tuple[Feed, EventStream]],
    *,
    follow: bool,
    allowed: Callable[[Principal], None],
) -> Response:
    """Answer with the feed of ``open_feed``, which runs in a thread and also gives the stream whose
    commits wake it.  ``text`` is for the list of running queries.  ``allowed`` raises unless a
    principal may have the feed; each heartbeat calls it again.
    """
    server = call.server
    allowed(call.principal)
    slot = await server.followers_gate.enter(call.client)
    query = server.running.add(call.id, kind, text, call.principal)
    try:
        feed, stream = await server.call(open_feed, query)
    except BaseException:
        server.running.remove(query)
        slot.release()
        raise
    return _Following(call, query, slot, feed, stream, follow=follow, allowed=allowed)


class _Following(Streamed):
    def __init__(
        self,
        call: Called,
        query: RunningQuery,
        slot: Slot,
        feed: Feed,
        stream: EventStream,
        *,
        follow: bool,
        allowed: Callable[[Principal], None],
    ) -> None:
        self._request = call.request
        self._server = call.server
        self._query = query
        self._slot = slot
        self._feed = feed
        self._stream = stream
        self._follow = follow
        self._allowed = allowed
        self._outcome = "failed"
        headers = {
            "X-Query-Id": query.id,
            "Vary": "Accept",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        super().__init__(headers, feed.format.media_type, Pace.of(call.server.settings))

    async def blocks(self, receive: Receive) -> AsyncGenerator[bytes, None]:
        try:
            async with contextlib.aclosing(self._followed()) as blocks:
                async for block in blocks:
                    yield block
            if self._outcome != "gone":
                yield self._feed.format.end("bye", {"reason": _REASONS[self._outcome]})
        except GeneratorExit:
            if self._outcome != "gone":
                self._outcome = "slow"
            raise
        except (ChronicleError, Problem) as error:
            self._outcome = "refused"
            problem = as_problem(error)
            document = {"code": problem.code, "status": problem.status, "detail": problem.detail}
            yield self._feed.format.end("error", document)

    async def end(self) -> None:
        server, kind = self._server, self._query.kind
        server.running.remove(self._query)
        self._slot.release()
        server.metrics.follows.labels(kind, self._outcome).inc()
        server.metrics.followed_rows.labels(kind).inc(self._feed.rows)
        self._query.cancellation.cancel()
        await asyncio.shield(server.close_feed(self._feed))

    async def _followed(self) -> AsyncGenerator[bytes, None]:
        """The feed, until it ends, the client goes, or the query is cancelled."""
        feed, server, cancellation = self._feed, self._server, self._query.cancellation
        loop = asyncio.get_running_loop()
        with server.followers.follow(self._stream) as follower:
            watch = ClientWatch(self._request, self._query)

            def woken() -> None:
                loop.call_soon_threadsafe(follower.set)

            cancellation.listen(woken)
            try:
                yield feed.format.head()
                spoke = checked = time.monotonic()
                marked = spoke - MARK_S
                while not (server.followers.ending or cancellation.cancelled):
                    follower.clear()
                    block = await server.follow(feed.take)
                    now = time.monotonic()
                    if now - checked >= HEARTBEAT_S:
                        await server.call(self._ask_again)
                        checked = now
                    if block:
                        yield block
                        spoke = now
                        continue
                    due = now - marked >= MARK_S or not self._follow
                    if block is None and feed.unmarked and due:
                        yield feed.mark()
                        spoke = marked = now
                    if block is None and not self._follow:
                        self._outcome = "ended"
                        return
                    if now - spoke >= HEARTBEAT_S:
                        yield feed.beat()
                        spoke = now
                    if block is None:
                        until = min(spoke, checked) + HEARTBEAT_S
                        if feed.unmarked:
                            until = min(until, marked + MARK_S)
                        await follower.wait_for(max(0.0, until - now))
                self._outcome = "stopped" if server.followers.ending else "cancelled"
            except QueryCancelled:
                if not cancellation.cancelled:
                    raise
                self._outcome = "cancelled"
            finally:
                if watch.gone:
                    self._outcome = "gone"
                cancellation.forget(woken)
                watch.end()

    def _ask_again(self) -> None:
        try:
            self._allowed(ask_again(self._request))
        except (Unauthorized, Forbidden) as error:
            raise type(error)(f"the token no longer allows this: {error}") from None


routes = Routes("followers", "/v1/streams/{stream}")


@routes.get("/tail", "Follow a stream", responses=FEED)
async def tail(
    call: Call,
    stream: str,
    style: FeedStyle,
    after: Annotated[
        str, Query(description="now, the version of a commit (0: the beginning), or the last id.")
    ] = "now",
    where: Where = None,
    columns: Columns = None,
    follow: Follow = True,
    last_event_id: LastEventId = None,
) -> Response:
    """Events as they are committed: server-sent events, NDJSON or an Arrow stream."""
    server = call.server
    name = feed_format(call.request)

    def allowed(asking: Principal) -> None:
        asking.require("read", stream)

    def open_feed(query: RunningQuery) -> tuple[Feed, EventStream]:
        handle = server.catalog.handle(stream)
        if not isinstance(handle, EventStream):
            raise ReadOnlyStore(
                "the store is open for reading here, and only the process that writes announces "
                "commits; follow the stream through its server"
            )
        if where is not None:
            check_predicate(where)
        changes = Tail(
            server.catalog,
            handle,
            (last_event_id or "").strip() or after.strip() or "now",
            where,
            column_names(columns),
            control=QueryControl(cancellation=query.cancellation),
        )
        form = format_of(name, changes.schema, **style)
        return TailFeed(changes, form), handle

    text = f"tail of {stream}" + (f" where {where}" if where else "")
    return await send_feed(call, "tail", text, open_feed, follow=follow, allowed=allowed)


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


@routes.post(
    "/positions", "Keep a position", answers.Position, 201, also=200, needs="read", example={}
)
def keep_position(call: Call, stream: str, spec: PositionSpec) -> Response:
    """Keep the last commit, or an earlier one, for a follower; null when there is none."""
    if spec.at is not None and spec.after is not None:
        raise InvalidArgument("give one of 'at' and 'after'")
    name = call.server.positions.keep(stream, call.principal.owner, spec.at, spec.after)
    version = None if name is None else int(name.partition("-")[0])
    return reply({"position": name, "version": version}, 200 if name is None else 201)


@routes.delete("/positions/{position}", "Drop a position", status=204, needs="read")
def drop_position(call: Call, stream: str, position: str) -> None:
    """Drop a position, and stop keeping old segments for it."""
    call.server.positions.drop(stream, call.principal.owner, position)


@routes.get("/changes", "Plan a read of what is new", answers.Changes, needs="read", runs="read")
def changes(call: Call, stream: str, until: Until, after: After = None) -> Json:
    """Time ranges that hold events committed after one position and up to another."""
    ranges = call.server.positions.ranges(stream, call.principal.owner, after, until)
    return {
        "stream": stream,
        "events": sum(part.events for part in ranges),
        "ranges": [asdict(part) for part in ranges],
    }


@routes.get("/changes/events", "Read what is new", head=True, responses=EVENT_FILE, needs="read")
async def read_changes(
    call: Call,
    encoding: EventEncoding,
    stream: str,
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
    server = call.server

    def open_rows(query: RunningQuery) -> Result:
        schema: StreamSchema = server.database.stream(stream).event_schema
        names = distinct_columns(schema, column_names(columns))
        patience = Patience(query, server.settings.query_timeout)
        batches = server.positions.events(
            stream,
            call.principal.owner,
            after,
            until,
            *times.bounds(schema),
            names,
            skip,
            limit,
            patience.check,
        )
        return Result(pa.schema([schema.arrow.field(n) for n in names]), patience.watch(batches))

    return await send_rows(
        call,
        server.reads,
        "events",
        f"changes of {stream}",
        open_rows,
        encoding,
        limit=limit,
        looks_ahead=False,
    )
