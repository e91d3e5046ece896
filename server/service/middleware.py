"""The outermost ASGI layer: id, timing, authentication, logs, and problem documents for all errors.
An error after the status was sent breaks the connection, so that a client never takes a part for
the whole.  It adds no task per request, to preserve backpressure.

The audit log records requests that used the scope ``admin`` or ``operate``, or whose token or right
was refused; ``statement`` has the SQL text, where there is one. ::

    {"time": "2026-11-22T10:00:00Z", "client": "10.0.0.7", "token": "deploy", "status": 204,
     "method": "DELETE", "path": "/v1/streams/flights", "request_id": "..."}

Recently dropped streams explain requests that fail because of a concurrent DROP: an error that
would be answered 500 becomes "stream not found" if the stream was being dropped meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import StreamNotFound
from ..access.auth import Authenticator
from ..access.tokens import note
from ..http.replies import Problem, as_problem, problem_response
from ..http.requests import checked_headers, raw_path, routed_path
from ..http.streamed import BrokenAnswer
from .metrics import Metrics

if TYPE_CHECKING:
    from .state import Server

STATEMENT = "chronicle.statement"
"""Key of the ASGI scope: the SQL text of a request."""

STATEMENT_CHARACTERS_MAX = 2000
_REFUSED = (401, 403)
_WRITTEN_DOWN = {"admin", "operate"}


class Audit:
    def __init__(self, store: str | os.PathLike[str]) -> None:
        self._store = store

    def look(self, scope: Scope, status: int) -> None:
        principal = scope["state"].get("principal")
        if principal is None or principal.used.isdisjoint(_WRITTEN_DOWN):
            authorized = any(name == b"authorization" for name, _ in scope["headers"])
            if status not in _REFUSED or not authorized:
                return
        token = getattr(principal, "token", None)
        line: dict[str, Any] = {
            "client": (scope.get("client") or ("local", 0))[0],
            "token": token.name if token else None,
            "status": status,
            "method": scope["method"],
            "path": raw_path(scope).decode("ascii", "backslashreplace"),
            "request_id": scope["state"]["request_id"],
        }
        statement = scope.get(STATEMENT)
        if statement is not None:
            line["statement"] = statement[:STATEMENT_CHARACTERS_MAX]
        note(self._store, **line)


BEGUN = "chronicle.begun"
"""Key of the ASGI scope: arrival of the request, monotonic seconds."""

KEEP_S = 3600.0


class Drops:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ended: dict[str, float] = {}

    @contextmanager
    def dropping(self, stream: str) -> Iterator[None]:
        with self._guard:
            self._ended[stream] = float("inf")
        try:
            yield
        finally:
            now = time.monotonic()
            with self._guard:
                self._ended[stream] = now
                for old in [name for name, at in self._ended.items() if at < now - KEEP_S]:
                    del self._ended[old]

    def explain(self, scope: Scope, error: Exception) -> Exception:
        """The error to answer with: ``error``, or that the stream is gone."""
        if as_problem(error).status != 500:
            return error
        begun: float = scope[BEGUN]
        name = scope.get("path_params", {}).get("stream")
        with self._guard:
            gone = any(at >= begun for stream, at in self._ended.items() if name in (None, stream))
        if not gone:
            return error
        what = "a stream" if name is None else f"the stream {name!r}"
        return StreamNotFound(f"{what} was dropped while the request was at work; send it again")


logger = logging.getLogger("chronicle.server")
access = logging.getLogger("chronicle.server.access")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def note_time(request: Request, name: str, seconds: float) -> None:
    request.scope["chronicle.timings"].append((name, seconds))


@contextmanager
def timed(request: Request, name: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        note_time(request, name, time.perf_counter() - started)


class RequestMiddleware:
    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        metrics: Metrics,
        drops: Drops,
        audit: Audit,
        protecting: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.app = app
        self._protecting = (*_PROTECTING, *protecting)
        self.authenticator = authenticator
        self.audit = audit
        self.drops = drops
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # nothing but HTTP is served, and only HTTP is authenticated
        started = time.perf_counter()
        request_id = id_of(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        timings: list[tuple[str, float]] = []
        scope["chronicle.timings"] = timings
        scope[BEGUN] = time.monotonic()
        status = 0
        received = sent = 0

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def counted_send(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                total = time.perf_counter() - started
                headers = _finished(scope, message, self._protecting)
                message["headers"] = [*headers, *_own(request_id, timings, total)]
            elif message["type"] == "http.response.body":
                sent += len(message.get("body", b""))
            await send(message)

        self.metrics.requests_running.inc()
        try:
            try:
                self.authenticator.check_origin(scope, checked_headers(scope))
                scope["path"] = routed_path(raw_path(scope))
                await self.app(scope, counted_receive, counted_send)
            except ClientDisconnect:
                status = status or 499
            except BrokenAnswer:
                status = 500  # whatever status was sent; the connection is closed
            except Exception as error:
                if status:
                    logger.exception("request %s failed in the middle of its answer", request_id)
                    status = 500
                else:
                    response = self.answer_error(scope, error)
                    await response(scope, counted_receive, counted_send)
        finally:
            self.metrics.requests_running.dec()
            seconds = time.perf_counter() - started
            account(self.metrics, scope, status, received, sent, seconds)
            self.audit.look(scope, status)

    def answer_error(self, scope: Scope, error: Exception) -> Response:
        request_id, principal = scope["state"]["request_id"], scope["state"].get("principal")
        name = scope.get("path_params", {}).get("stream")
        seen = principal is None or principal.everywhere
        if isinstance(error, StreamNotFound) and name is not None and not seen:
            error = StreamNotFound(f"no stream {name!r} within the token's reach")
        problem = _noted_problem(self.metrics, self.drops, scope, error)
        return problem_response(problem, request_id)


def _noted_problem(metrics: Metrics, drops: Drops, scope: Scope, error: Exception) -> Problem:
    problem = as_problem(drops.explain(scope, error))
    if problem.status in (413, 429, 503):
        metrics.rejected.labels(problem.code).inc()
    if problem.status == 500:
        logger.error("request %s failed: %s", scope["state"]["request_id"], error, exc_info=error)
    return problem


def scope_of(path: str, client: tuple[str, int], headers: list[tuple[bytes, bytes]]) -> Scope:
    """What a request of another protocol is for tokens, logs and metrics."""
    scope: Scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "route": SimpleNamespace(path=path), "client": client, "headers": headers,
        BEGUN: time.monotonic(),
    }  # fmt: skip
    scope["state"] = {"request_id": id_of(scope)}
    return scope


@contextmanager
def accounted(
    server: Server, audit: Audit, scope: Scope, moved: Callable[[], tuple[int, int]]
) -> Iterator[None]:
    """A request of another protocol, which raises ``Problem``; ``moved`` has the bytes received and
    sent.
    """
    status = 200
    server.metrics.requests_running.inc()
    try:
        yield
    except (asyncio.CancelledError, ClientDisconnect):
        status = 499
        raise
    except Exception as error:
        problem = _noted_problem(server.metrics, server.drops, scope, error)
        status = problem.status
        raise problem from error
    finally:
        server.metrics.requests_running.dec()
        seconds = time.monotonic() - scope[BEGUN]
        account(server.metrics, scope, status, *moved(), seconds)
        audit.look(scope, status)


def account(
    metrics: Metrics, scope: Scope, status: int, received: int, sent: int, seconds: float
) -> None:
    route = getattr(scope.get("route"), "path", None) or "unmatched"
    method = scope["method"] if scope["method"] in _METHODS else "OTHER"
    metrics.requests.labels(method, route, str(status)).inc()
    metrics.request_seconds.labels(method, route).observe(seconds)
    metrics.received_bytes.inc(received)
    metrics.sent_bytes.inc(sent)
    path = raw_path(scope).decode("ascii", "backslashreplace")  # undecoded: no line breaks
    principal = scope["state"].get("principal")
    token = getattr(principal, "token", None)
    address = (scope.get("client") or ("local", 0))[0]
    access.info(
        "%s %s %s %d in %.1f ms",
        address,
        method,
        path,
        status,
        seconds * 1000,
        extra={
            "client": address,
            "method": method,
            "path": path,
            "status": status,
            "ms": round(seconds * 1000, 2),
            "received_bytes": received,
            "sent_bytes": sent,
            "request_id": scope["state"]["request_id"],
            "token": token.name if token else None,
        },
    )


def id_of(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value.decode("latin-1")):
            return str(value.decode("latin-1"))
    return os.urandom(16).hex()


def _finished(
    scope: Scope, message: Message, protecting: tuple[tuple[bytes, bytes], ...]
) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, with protective ones added unless the answer sets them itself."""
    headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
    names = {name.lower() for name, _ in headers}
    headers += [pair for pair in protecting if pair[0] not in names]
    if scope["path"].startswith(("/v1", "/mcp")) and b"cache-control" not in names:
        headers.append((b"cache-control", b"no-store"))  # no shared caches for events
    return headers


def _own(
    request_id: str, timings: list[tuple[str, float]], total: float
) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    timing = _server_timing(timings, total)
    return (b"x-request-id", request_id.encode()), (b"server-timing", timing.encode())


_PROTECTING = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)

_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}


def _server_timing(timings: list[tuple[str, float]], total: float) -> str:
    phases = [*timings, ("total", total)]
    return ", ".join(f"{name};dur={seconds * 1000:.2f}" for name, seconds in phases)
