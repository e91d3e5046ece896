"""Limits for request headers and connections, which Uvicorn lacks.  Uvicorn's idle timer restarts
with each byte, so a slow client could hold a connection for ever.  Here the headers are complete
within ``header_s`` after the connection, or the first byte of a further request, or the connection
is closed.  Headers beyond ``HEADER_BYTES_MAX`` are answered with 431. Connections beyond an
address's maximum are closed before a byte is read.  The scope's ``ABORT`` closes a connection at
once: a normal close waits until the client has read what was sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from .service.middleware import ABORT

__all__ = ["HEADER_BYTES_MAX", "bounded"]

logger = logging.getLogger("chronicle.server")
HEADER_BYTES_MAX = 64 << 10
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n"
    b"Content-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%s"
)
_PROBLEM = (
    b'{"type":"urn:chronicle:headers-too-large","code":"headers-too-large",'
    b'"title":"The request has too many or too large headers","status":431,'
    b'"detail":"the address and the headers of a request have at most %d bytes"}\n'
)


def bounded(
    header_s: float, base: Any = AutoHTTPProtocol, *, address_max: int = 1 << 30
) -> type[asyncio.Protocol]:
    """A protocol: ``header_s`` seconds for headers, ``address_max`` connections per address."""
    open_of: Counter[str] = Counter()

    class Bounded(base):  # type: ignore[misc]
        app: ASGIApp
        _deadline: asyncio.TimerHandle | None = None
        _head_bytes = 0
        _address: str

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._address = (transport.get_extra_info("peername") or ("local", 0))[0]
            open_of[self._address] += 1
            if open_of[self._address] > address_max:
                logger.info("a connection was closed: %s has too many", self._address)
                transport.abort()
            application = self.app

            async def app(scope: Scope, receive: Receive, send: Send) -> None:
                scope[ABORT] = transport.abort
                await application(scope, receive, send)

            self.app = app
            self._await_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._answering():
                self._forget_deadline()
                return
            self._await_headers()
            self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES_MAX and not self.transport.is_closing():
                problem = _PROBLEM % HEADER_BYTES_MAX
                self.transport.write(_TOO_LARGE % (len(problem), problem))
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_deadline()
            open_of[self._address] -= 1
            if not open_of[self._address]:
                del open_of[self._address]
            super().connection_lost(exc)

        def _answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _await_headers(self) -> None:
            if self._deadline is None:
                self._deadline = asyncio.get_running_loop().call_later(header_s, self._too_late)

        def _forget_deadline(self) -> None:
            self._head_bytes = 0
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_late(self) -> None:
            self._deadline = None
            if not self._answering() and not self.transport.is_closing():
                logger.info("a connection was closed: its headers took more than %g s", header_s)
                self.transport.close()

    return Bounded
