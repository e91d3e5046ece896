"""One RPC: authentication before any message is read, status, logs and metrics.  An error is a gRPC
status with HTTP's text; code and request id are in the trailers.  Every method is registered as a
bidirectional stream, which is the same on the wire: otherwise gRPC would read the request before
authentication.

``code_of`` maps HTTP's problems to gRPC codes; a 500 is sent without its text.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import grpc

from ...errors import Unauthorized
from ..access.auth import Principal
from ..http.problems import Problem, as_problem
from ..service.bodies import Pace, too_slow
from ..service.middleware import BEGUN, Audit, account, id_of
from ..service.state import Server
from .messages import parse

_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    410: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def code_of(problem: Problem) -> grpc.StatusCode:
    if problem.code in ("stream-exists", "index-exists"):
        return grpc.StatusCode.ALREADY_EXISTS
    return _CODES.get(problem.status, grpc.StatusCode.INVALID_ARGUMENT)


logger = logging.getLogger("chronicle.server")
SERVICE = "arrow.flight.protocol.FlightService"
DETAIL_CHARACTERS = 2000
"""Longest text of a status: it travels in the trailers, which clients bound."""
DRAIN_BYTES, DRAIN_S = 64 << 20, 5.0


class Call:
    """An RPC.  ``scope`` is the equivalent ASGI scope, for logs; ``principal`` is who asks."""

    principal: Principal

    def __init__(self, server: Server, method: str, context: Any) -> None:
        self.server = server
        self.method = method
        self._context = context
        path = f"/{SERVICE}/{method}"
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "route": SimpleNamespace(path=path),
            "headers": [(_bytes(name), _bytes(value)) for name, value in _metadata(context)],
            "client": _address(context.peer()),
            "state": {},
            BEGUN: time.monotonic(),
        }
        self.request_id = id_of(self.scope)
        self.scope["state"]["request_id"] = self.request_id
        self.received = self.sent = 0
        self._pace = Pace.of(server.settings)
        self._read_s = self._sent_s = 0.0

    def enter(self, scheme: str) -> str | None:
        authenticator = self.server.authenticator
        authenticator.check_address(self.scope)
        secret = _secret(self._header(b"authorization"), scheme)
        self.principal = authenticator.principal(self.scope, secret)
        self.scope["state"]["principal"] = self.principal
        return secret

    def _header(self, wanted: bytes) -> str:
        found = [value for name, value in self.scope["headers"] if name == wanted]
        if len(found) > 1:
            raise Problem("bad-request", 400, f"the header {wanted.decode()} is there twice")
        return found[0].decode("latin-1") if found else ""

    async def next_message(self) -> bytes | None:
        began = time.perf_counter()
        left = self._pace.left(self.received, self._read_s)
        try:
            data = await asyncio.wait_for(self._context.read(), max(0.0, left))
        except TimeoutError:
            raise too_slow(self._pace, self.received) from None
        self._read_s += time.perf_counter() - began
        if data is grpc.aio.EOF:
            return None
        self.received += len(data)
        return bytes(data)

    async def message(self, name: str) -> Any:
        data = await self.next_message()
        if data is None:
            raise Problem("bad-request", 400, f"expected a message {name}, found the end")
        return parse(name, data)

    async def drain(self) -> None:
        """Read the rest of a client's messages for a while: some drivers see no status before."""
        most = self.received + DRAIN_BYTES
        with contextlib.suppress(TimeoutError, Problem):
            async with asyncio.timeout(DRAIN_S):
                while self.received < most and await self.next_message() is not None:
                    pass

    async def send(self, message: Any) -> None:
        await self.send_bytes(message.SerializeToString())

    async def send_bytes(self, data: bytes) -> None:
        began = time.perf_counter()
        left = self._pace.left(self.sent, self._sent_s)
        try:
            await asyncio.wait_for(self._context.write(data), max(0.0, left))
        except TimeoutError:
            raise Problem(
                "request-timeout", 408, "the client took its answer too slowly; broken off"
            ) from None
        self._sent_s += time.perf_counter() - began
        self.sent += len(data)

    async def send_headers(self, **headers: str) -> None:
        await self._context.send_initial_metadata(tuple(headers.items()))


Answer = Callable[[Call], Awaitable[None]]


def handled(server: Server, audit: Audit, method: str, answer: Answer) -> Any:

    async def handle(_: Any, context: Any) -> None:
        call = Call(server, method, context)
        status, problem = 200, None
        server.metrics.requests_running.inc()
        try:
            if method != "Handshake":
                call.enter("bearer")
            await answer(call)
        except asyncio.CancelledError:
            status = 499
            raise
        except Exception as error:
            problem = as_problem(server.drops.explain(call.scope, error))
            status = problem.status
            if status == 500:
                logger.error("request %s failed: %s", call.request_id, error, exc_info=error)
        finally:
            server.metrics.requests_running.dec()
            seconds = time.monotonic() - call.scope[BEGUN]
            account(server.metrics, call.scope, status, call.received, call.sent, seconds)
            audit.look(call.scope, status)
        if problem is not None:
            if status in (413, 429, 503):
                server.metrics.rejected.labels(problem.code).inc()
            trailers = (("chronicle-code", problem.code), ("x-request-id", call.request_id))
            await context.abort(code_of(problem), _told(problem), trailers)

    return grpc.stream_stream_rpc_method_handler(handle)


def _told(problem: Problem) -> str:
    where = problem.more.get("position")
    place = "" if where is None else f" (line {where['line']}, column {where['column']})"
    return problem.detail[:DETAIL_CHARACTERS] + place


def _metadata(context: Any) -> Any:
    return context.invocation_metadata() or ()


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")


def _address(peer: str) -> tuple[str, int]:
    """Address and port from ``ipv4:127.0.0.1:53210``."""
    _, _, rest = urllib.parse.unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    return host.strip("[]").partition("%")[0], int(port) if port.isdigit() else 0


def _secret(header: str, wanted: str) -> str | None:
    """The token in an ``Authorization`` header, or the password of a user."""
    scheme, _, value = header.partition(" ")
    if not header or scheme.lower() == "bearer":
        return value.strip() or None
    if scheme.lower() != "basic" or wanted != "basic":
        raise Unauthorized("expected the header authorization: Bearer <token>")
    try:
        padded = value.strip() + "=" * (-len(value.strip()) % 4)  # some drivers omit the padding
        given = base64.b64decode(padded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise Unauthorized("the header authorization: Basic has no user and password") from None
    return given.partition(":")[2] or None
