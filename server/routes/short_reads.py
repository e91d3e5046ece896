"""The fast path of queries and reads: routing and validation cost half of a small query.  Plain
requests call their route functions directly, so rights, limits, errors and metrics are the same; an
unknown or repeated header or parameter, or an unusual value, goes to the router.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import ChronicleError
from ...formats.kinds import WRITE_FORMATS
from ..access.auth import Principal, identify
from ..http.plain_head import plain_head
from ..http.problems import Problem
from ..http.request_head import SLASH
from .events import read_stream
from .parameters import event_encoding, result_encoding
from .queries import get_query, post_query

__all__ = ["ShortReads"]

QUERY, STREAMS, EVENTS = "/v1/query", "/v1/streams/", "/events"
TEXT_BYTES_MAX = 4096

_NUMBER = re.compile(r"0|[1-9][0-9]{0,14}", re.ASCII)
_NUMBERS = frozenset({"limit", "timeout_ms", "version"})
_CHOICES = {"format": frozenset(WRITE_FORMATS), "precision": frozenset({"s", "ms", "us", "ns"})}
_PARAMETERS = {
    "get_query": frozenset({"format", "q", "limit", "timeout_ms"}),
    "post_query": frozenset({"format"}),
    "read_stream": frozenset(
        {"format", "start", "end", "columns", "where", "limit", "precision", "version"}
    ),
}

Given = dict[str, Any]


class ShortReads:
    """Answers plain queries and reads, and forwards everything else; ``routes`` are for metrics."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Mapping[str, APIRoute],
        answer_error: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self.app = app
        self._routes = routes
        self._answer_error = answer_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _found(scope) if scope["type"] == "http" else None
        head = None if found is None else plain_head(scope)
        if found is None or head is None:
            await self.app(scope, receive, send)
            return
        route, stream, given = found
        scope["route"] = self._routes[route]
        scope["path_params"] = {} if stream is None else {"stream": stream}
        request = Request(scope, receive, send)
        try:
            response = await _answer(request, identify(request, head.secret), route, given)
        except (ChronicleError, Problem, RequestValidationError) as error:
            response = await self._answer_error(request, error)
        await response(scope, receive, send)


def _found(scope: Scope) -> tuple[str, str | None, Given] | None:
    path, method, stream = scope["path"], scope["method"], None
    if path == QUERY and method in ("GET", "POST"):
        route = "get_query" if method == "GET" else "post_query"
    elif method == "GET" and path.startswith(STREAMS) and path.endswith(EVENTS):
        route, stream = "read_stream", path[len(STREAMS) : -len(EVENTS)]
        if not stream or "/" in stream:
            return None
    else:
        return None
    query = scope["query_string"]
    given = _given(route, query) if len(query) <= TEXT_BYTES_MAX else None
    return None if given is None else (route, stream, given)


@lru_cache(maxsize=1024)
def _given(route: str, query: bytes) -> Given | None:
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
    given: Given = {}
    for name, text in texts.items():
        if name in _NUMBERS:
            if not _NUMBER.fullmatch(text) or (name == "timeout_ms" and text == "0"):
                return None
            given[name] = int(text)
        elif name in _CHOICES and text not in _CHOICES[name]:
            return None
        else:
            given[name] = [text] if name == "columns" else text
    return given


async def _answer(request: Request, principal: Principal, route: str, given: Given) -> Response:
    format, values = given.get("format"), {n: given[n] for n in given if n != "format"}
    if route == "read_stream":
        stream = request.path_params["stream"].replace(SLASH, "/")
        encoding = await event_encoding(request, format)
        return await read_stream(request, principal, encoding, stream, **values)
    encoding = await result_encoding(request, format)
    if route == "post_query":
        return await post_query(request, principal, encoding)
    return await get_query(request, principal, encoding, **values)
