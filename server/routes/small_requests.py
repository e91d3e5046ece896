"""Fast paths past the router, for plain requests; any other goes to the router unchanged.

Small appends: plain JSON bodies of ``POST /v1/streams/{stream}/events`` are read on the event loop
and group-committed (``service.gathering``).  The slow path (``events.append_events``) gives the
same answers.  It takes other headers or parameters, missing rights, long or unusual bodies, and an
Idempotency-Key, which writes its own log in threads.  Slots, budgets, limits and metrics apply to
both.

Queries and reads: routing and validation cost half of a small query.  Plain requests call their
route functions directly, so rights, limits, errors and metrics are the same; an unknown or repeated
header or parameter, or an unusual value, goes to the router.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...api.streams import Stream
from ...core.caches import Lru
from ...errors import ChronicleError
from ...formats.kinds import WRITE_FORMATS, format_of_media_type
from ...schema import StreamSchema
from ..access.auth import Principal, identify
from ..http.replies import Problem
from ..http.requests import SLASH, PlainHead, plain_head
from ..service.bodies import Pace, time_format_of, too_slow
from ..service.gathering import BYTES_MAX, SmallBody, SmallReader, Stored
from ..service.state import Server
from .events import read_stream
from .parameters import RangeSpec, event_encoding, result_encoding
from .queries import get_query, post_query

QUERY, STREAMS, EVENTS = "/v1/query", "/v1/streams/", "/events"
TEXT_BYTES_MAX = 4096
VALUE_BYTES = 16
"""Least memory of a value in flight, counted besides the text."""

READERS_KEPT = 256
ANSWER = b'{"appended":%d,"late":%d,"count":%d,"version":%d,"position":"%d","durable":%s}\n'

_NUMBER = re.compile(r"0|[1-9][0-9]{0,14}", re.ASCII)
_NUMBERS = frozenset({"limit", "timeout_ms", "version"})
_CHOICES = {
    "format": frozenset(WRITE_FORMATS),
    "precision": frozenset({"s", "ms", "us", "ns"}),
    "durability": frozenset({"commit", "interval", "none"}),
}
_PARAMETERS = {
    "append_events": frozenset({"format", "precision", "durability"}),
    "get_query": frozenset({"format", "q", "limit", "timeout_ms"}),
    "post_query": frozenset({"format"}),
    "read_stream": frozenset(
        {"format", "start", "end", "columns", "where", "limit", "precision", "version"}
    ),
}

Given = dict[str, Any]


class FastPaths:
    """Answers plain appends, queries and reads, and forwards everything else to ``app``."""

    def __init__(
        self,
        app: ASGIApp,
        server: Server,
        routes: Mapping[str, APIRoute],
        answer_error: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self.app = app
        self._appends = SmallAppends(server)
        self._routes = routes
        self._answer_error = answer_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        matched = _route_of(scope) if scope["type"] == "http" else None
        head = None if matched is None else plain_head(scope)
        if matched is None or head is None:
            await self.app(scope, receive, send)
            return
        route, stream, parameters = matched
        taken: list[Message] = []
        request = Request(scope, receive, send)
        response: Response | None
        try:
            if route == "append_events":
                response = await self._appends.answer(
                    scope, head, stream, parameters, receive, taken
                )
            else:
                scope["route"] = self._routes[route]
                scope["path_params"] = {"stream": stream} if stream else {}
                response = await _answer(request, identify(request, head.secret), route, parameters)
        except (ChronicleError, Problem, RequestValidationError) as error:
            scope["route"] = self._routes[route]
            response = await self._answer_error(request, error)
        if response is None:
            await self.app(scope, _again(taken, receive), send)
            return
        scope["route"] = self._routes[route]
        await response(scope, receive, send)


def _route_of(scope: Scope) -> tuple[str, str, Given] | None:
    """The route of a request, its stream, and its parameters; None for the router."""
    path, method, stream = scope["path"], scope["method"], ""
    if method not in ("GET", "POST"):
        return None
    if path == QUERY:
        route = "get_query" if method == "GET" else "post_query"
    elif path.startswith(STREAMS) and path.endswith(EVENTS):
        route = "read_stream" if method == "GET" else "append_events"
        stream = path[len(STREAMS) : -len(EVENTS)]
        if not stream or "/" in stream:
            return None
    else:
        return None
    query = scope["query_string"]
    parameters = _parameters(route, query) if len(query) <= TEXT_BYTES_MAX else None
    return None if parameters is None else (route, stream, parameters)


@lru_cache(maxsize=1024)
def _parameters(route: str, query: bytes) -> Given | None:
    """The arguments of a route's function; do not modify."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        return None
    texts = dict(pairs)
    if len(texts) != len(pairs) or not texts.keys() <= _PARAMETERS[route]:
        return None
    if route == "get_query" and "q" not in texts:
        return None
    parameters: Given = {}
    for name, text in texts.items():
        if name in _NUMBERS:
            if not _NUMBER.fullmatch(text) or (name == "timeout_ms" and text == "0"):
                return None
            parameters[name] = int(text)
        elif name in _CHOICES and text not in _CHOICES[name]:
            return None
        else:
            parameters[name] = [text] if name == "columns" else text
    return parameters


async def _answer(
    request: Request, principal: Principal, route: str, parameters: Given
) -> Response:
    format, values = (
        parameters.get("format"),
        {n: parameters[n] for n in parameters if n != "format"},
    )
    if route == "read_stream":
        stream = request.path_params["stream"].replace(SLASH, "/")
        encoding = await event_encoding(request, format)
        names = ("start", "end", "precision")
        times = RangeSpec.model_construct(**{name: values.pop(name, None) for name in names})
        return await read_stream(request, principal, encoding, stream, times, **values)
    encoding = await result_encoding(request, format)
    if route == "post_query":
        return await post_query(request, principal, encoding)
    return await get_query(request, principal, encoding, **values)


class SmallAppends:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._pace = Pace.of(server.settings)
        self._bytes_max = min(
            BYTES_MAX, server.settings.max_body_bytes, server.settings.max_decoded_bytes
        )
        self._readers: Lru[tuple[int, str], SmallReader] = Lru(READERS_KEPT)

    async def answer(
        self,
        scope: Scope,
        head: PlainHead,
        name: str,
        parameters: Given,
        receive: Receive,
        taken: list[Message],
    ) -> Response | None:
        """Store a body; None where the slow path takes it, with the messages that were taken."""
        format = parameters.get("format") or format_of_media_type(head.content_type)
        if format not in ("json", "ndjson") or not 0 < head.length <= self._bytes_max:
            return None
        name = name.replace(SLASH, "/")
        admitted = self._admitted(scope, head, name, parameters.get("precision"))
        if admitted is None:
            return None
        principal, stream, reader = admitted
        server, client, durability = self._server, principal.client, parameters.get("durability")
        async with server.bodies.held(client):
            with server.uploads.account(client) as account:
                account.hold(head.length)
                text = await self._text(receive, taken)
                if len(text) > head.length:
                    return None
                begun = time.perf_counter()
                body = reader.columns(text, lines=format == "ndjson")
                parsed_s = time.perf_counter() - begun
                if body is None:
                    return None
                account.hold(VALUE_BYTES * body.rows * len(body.columns))
                stored = await server.gathering.append(stream, reader, body, durability, client)
        if stored is None:
            return None
        self._note(scope, format, body, stored, parsed_s)
        durable = (durability or stream.handle.options.durability) == "commit"
        version = stored.version
        figures = (body.rows, stored.late, stored.count, version, version)
        return Response(
            ANSWER % (*figures, b"true" if durable else b"false"), media_type="application/json"
        )

    def _admitted(
        self, scope: Scope, head: PlainHead, name: str, precision: str | None
    ) -> tuple[Principal, Stream, SmallReader] | None:
        """Principal, stream and reader; None where the slow path has an error to report."""
        server = self._server
        if server.database.mode == "r":
            return None
        try:
            principal = server.authenticator.principal(scope, head.secret)
            if not principal.may("ingest", name):
                return None
            stream = server.database.stream(name)
        except (ChronicleError, Problem):
            return None
        if stream.handle.options.unique is not None:  # duplicates are counted per body
            return None
        scope["state"]["principal"] = principal
        scope["path_params"] = {"stream": name}
        reader = self._reader(stream.event_schema, precision)
        return None if reader is None else (principal, stream, reader)

    def _reader(self, schema: StreamSchema, precision: str | None) -> SmallReader | None:
        if len(schema.names) > self._server.settings.max_columns:
            return None
        if precision is not None and schema.time_unit is None:
            return None
        time_format = time_format_of(schema, precision)
        key = (id(schema), time_format)
        reader = self._readers.get(key)
        if reader is None or reader.schema is not schema:
            reader = SmallReader(schema, time_format)
            self._readers.put(key, reader)
        return reader if reader.usable else None

    async def _text(self, receive: Receive, taken: list[Message]) -> bytes:
        text = b""
        try:
            async with asyncio.timeout(self._pace.silence_s):
                while len(text) <= self._bytes_max:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    taken.append(message)
                    text += message.get("body", b"")
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise too_slow(self._pace, len(text)) from None
        return text

    def _note(
        self, scope: Scope, format: str, body: SmallBody, stored: Stored, parsed_s: float
    ) -> None:
        metrics = self._server.metrics
        metrics.append_seconds.observe(parsed_s + stored.stored_s)
        metrics.appended_events.labels(format).inc(body.rows)
        if stored.late:
            metrics.late_events.inc(stored.late)
        scope["chronicle.timings"] += (
            ("parse", parsed_s),
            ("queue", stored.waited_s),
            ("append", stored.stored_s),
        )


def _again(taken: list[Message], receive: Receive) -> Receive:
    if not taken:
        return receive
    left = iter(taken)

    async def again() -> Message:
        for message in left:
            return message
        return await receive()

    return again
