"""Routes of followers: a stream's tail, positions, and the events committed between two of these.
``api/tailing.py`` defines order and places, ``service.positions`` has the guarantees of positions,
``service.feeds`` the formats.  ``send_feed`` sends a feed until client or server ends it. ::

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
import logging
import time
from collections.abc import Callable
from typing import Annotated, Any

import pyarrow as pa
from fastapi import Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ...api.tailing import Tail
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
from ...schema import StreamSchema
from ...store.stream import EventStream
from ..access.auth import Principal, Requester, ask_again, check_predicate
from ..access.limits import Slot
from ..http.replies import Problem, Streamed, as_problem, reply
from ..http.requests import PathName, feed_format
from ..http.route import api_router
from ..service.bodies import Pace
from ..service.feeds import Feed, TailFeed, format_of
from ..service.middleware import ABORT, BrokenAnswer
from ..service.query_log import RunningQuery
from ..service.state import Server, server_of
from .events import Patience, distinct_columns
from .parameters import (
    Columns,
    EventEncoding,
    FeedStyle,
    Follow,
    Limit,
    TimeRange,
    column_names,
    read_spec,
    spec_body,
)
from .row_responses import RowSource, send_rows

logger = logging.getLogger("chronicle.server")
HEARTBEAT_S = 15.0
MARK_S = 1.0
"""Least seconds between marks of a feed without rows."""


async def send_feed(
    request: Request,
    principal: Principal,
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
    server = server_of(request)
    allowed(principal)
    slot = await server.followers_gate.enter(principal.client)
    query = server.running.add(request.state.request_id, kind, text, principal)
    try:
        feed, stream = await server.call(open_feed, query)
    except BaseException:
        server.running.remove(query)
        slot.release()
        raise
    return _Following(request, server, query, slot, feed, stream, follow=follow, allowed=allowed)


class _Following(Streamed):
    def __init__(
        self,
        request: Request,
        server: Server,
        query: RunningQuery,
        slot: Slot,
        feed: Feed,
        stream: EventStream,
        *,
        follow: bool,
        allowed: Callable[[Principal], None],
    ) -> None:
        self._request = request
        self._server = server
        self._query = query
        self._slot = slot
        self._feed = feed
        self._stream = stream
        self._follow = follow
        self._allowed = allowed
        self._gone = False
        self._pace = Pace.of(server.settings)
        self._sent = 0
        self._waited = 0.0
        headers = {
            "X-Query-Id": query.id,
            "Vary": "Accept",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        super().__init__(headers, feed.format.media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome = "failed"
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            outcome = await self._run(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            outcome = "slow"
            logger.info(
                "request %s: the follower took too little; broken off after %d bytes",
                scope["state"]["request_id"],
                self._sent,
            )
            if ABORT in scope:
                scope[ABORT]()
            raise BrokenAnswer from None
        except OSError:
            outcome = "gone"
            raise ClientDisconnect from None
        finally:
            server = self._server
            server.running.remove(self._query)
            self._slot.release()
            server.metrics.follows.labels(self._query.kind, outcome).inc()
            server.metrics.followed_rows.labels(self._query.kind).inc(self._feed.rows)
            self._query.cancellation.cancel()
            await asyncio.shield(server.close_feed(self._feed))

    async def _run(self, send: Send) -> str:
        feed, server = self._feed, self._server
        loop = asyncio.get_running_loop()
        with server.followers.follow(self._stream) as follower:
            watch = asyncio.create_task(self._watch(follower.wake))

            def woken() -> None:
                loop.call_soon_threadsafe(follower.wake)

            self._query.cancellation.listen(woken)
            try:
                await self._send(send, feed.format.head())
                spoke = checked = time.monotonic()
                marked = spoke - MARK_S
                while True:
                    if self._gone:
                        return "gone"
                    if server.followers.ending or self._query.cancellation.cancelled:
                        return await self._bye(send)
                    follower.clear()
                    block = await server.follow(feed.take)
                    now = time.monotonic()
                    if now - checked >= HEARTBEAT_S:
                        await server.call(self._ask_again)
                        checked = now
                    if block:
                        await self._send(send, block)
                        spoke = now
                        continue
                    due = now - marked >= MARK_S or not self._follow
                    if block is None and feed.unmarked and due:
                        await self._send(send, feed.mark())
                        spoke = marked = now
                    if block is None and not self._follow:
                        await self._send(send, feed.format.end("bye", {"reason": "the end"}))
                        return "ended"
                    if now - spoke >= HEARTBEAT_S:
                        await self._send(send, feed.beat())
                        spoke = now
                    if block is None:
                        until = min(spoke, checked) + HEARTBEAT_S
                        if feed.unmarked:
                            until = min(until, marked + MARK_S)
                        await follower.wait(max(0.0, until - now))
            except (ChronicleError, Problem) as error:
                if isinstance(error, QueryCancelled) and self._query.cancellation.cancelled:
                    return "gone" if self._gone else await self._bye(send)
                problem = as_problem(error)
                if not self._gone:
                    document = {
                        "code": problem.code,
                        "status": problem.status,
                        "detail": problem.detail,
                    }
                    await self._send(send, feed.format.end("error", document))
                return "refused"
            finally:
                self._query.cancellation.forget(woken)
                watch.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watch

    async def _bye(self, send: Send) -> str:
        stopped = self._server.followers.ending
        why = "the server stops" if stopped else "cancelled"
        await self._send(send, self._feed.format.end("bye", {"reason": why}))
        return "stopped" if stopped else "cancelled"

    async def _send(self, send: Send, block: bytes) -> None:
        if not block:
            return
        began = time.perf_counter()
        message = {"type": "http.response.body", "body": block, "more_body": True}
        left = self._pace.left(self._sent, self._waited)
        await asyncio.wait_for(send(message), max(0.0, left))
        self._waited += time.perf_counter() - began
        self._sent += len(block)

    async def _watch(self, wake: Callable[[], None]) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._query.cancellation.cancel()
        wake()

    def _ask_again(self) -> None:
        try:
            self._allowed(ask_again(self._request))
        except (Unauthorized, Forbidden) as error:
            raise type(error)(f"the token no longer allows this: {error}") from None


router = api_router(prefix="/v1/streams/{stream}", tags=["followers"])


@router.get("/tail", summary="Follow a stream")
async def tail(
    request: Request,
    principal: Requester,
    stream: PathName,
    style: FeedStyle,
    after: Annotated[
        str, Query(description="now, the version of a commit (0: the beginning), or the last id.")
    ] = "now",
    where: Annotated[
        str | None, Query(description="SQL predicate, such as altitude > 10000.")
    ] = None,
    columns: Columns = None,
    follow: Follow = True,
    last_event_id: Annotated[
        str | None, Header(description="The last id that was read; wins over `after`.")
    ] = None,
) -> Response:
    """Events as they are committed: server-sent events, NDJSON or an Arrow stream."""
    server = server_of(request)
    name = feed_format(request)

    def allowed(asking: Principal) -> None:
        asking.require("read", stream)

    def open_feed(query: RunningQuery) -> tuple[Feed, EventStream]:
        followed = server.database.stream(stream)
        handle = followed.handle
        if not isinstance(handle, EventStream):
            raise ReadOnlyStore(
                "the store is open for reading here, and commits are told where they are made; "
                "follow the stream through the server that writes"
            )
        if where is not None:
            check_predicate(where)
        changes = Tail(
            server.database,
            handle,
            (last_event_id or "").strip() or after.strip() or "now",
            where,
            column_names(columns),
            control=QueryControl(cancellation=query.cancellation),
        )
        form = format_of(
            name, changes.schema, marks=style.marks, int64_as_string=style.int64_as_string
        )
        return TailFeed(changes, form), handle

    text = f"tail of {stream}" + (f" where {where}" if where else "")
    return await send_feed(
        request, principal, "tail", text, open_feed, follow=follow, allowed=allowed
    )


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
