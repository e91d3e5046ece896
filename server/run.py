"""The server process behind ``chronicle serve``.  The store is locked and the address bound before
anything is announced.  SIGTERM and SIGINT: no new connections; running requests get
``CHRONICLE_DRAIN_TIMEOUT_MS``, then are cancelled; the store is flushed and closed; exit code 0.
While the store is being opened, SIGINT raises ``KeyboardInterrupt``.  A second SIGINT ends the
process at once, and the next start recovers.

Log lines cannot be forged by clients: a record is one line, tracebacks are indented, and control
characters, which clients can put into addresses and values, are escaped.

Connections: Uvicorn's idle timer restarts with each byte, so a slow client could hold a connection
for ever.  Here the headers are complete within ``header_s`` after the connection, or the first byte
of a further request, or the connection is closed.  Headers beyond ``HEADER_BYTES_MAX`` are answered
with 431.  Connections beyond an address's maximum are closed before a byte is read.  The scope's
``ABORT`` closes a connection at once: a normal close waits until the client has read what was sent.
With TLS, SIGHUP reloads the certificate; without, it ends the process as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ..api.database import catalog_of, open_database
from ..errors import InvalidArgument, MissingDependency
from .access.settings import (
    LOOK_S,
    Certificates,
    Settings,
    certificates_of,
    is_loopback,
    load_settings,
)
from .access.tokens import TokenFile
from .http.streamed import ABORT

if TYPE_CHECKING:
    import uvicorn

    from .app import Application

_EXTRAS = (
    *("client", "method", "path", "status", "ms", "received_bytes", "sent_bytes"),
    *("request_id", "token"),
)
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def _shown(text: str) -> str:
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = _shown(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join("    " + _shown(line) for line in lines)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((key, record.__dict__[key]) for key in _EXTRAS if key in record.__dict__)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    for name in ("chronicle", "uvicorn"):
        target = logging.getLogger(name)
        target.handlers[:] = [handler]
        target.setLevel(settings.log_level.upper())
        target.propagate = False
    if settings.log_level == "info":  # the application logs the same at this level
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


HARD_STOP_S = 5
"""Seconds between cancelling running requests and closing their connections."""
TURN_S = 0.0005
"""A tenth of Python's switch interval, for which each thread switch of a request may wait."""

logger = logging.getLogger("chronicle.server")


def serve(settings: Settings | None = None, announce: Callable[[str], None] | None = None) -> None:
    """Serve a store until SIGTERM or SIGINT; returns when it is closed.

    ``announce`` is called with the URL as soon as it listens.

    Raises
    ------
    InvalidArgument
        The address cannot be bound, or must not be bound without tokens.
    StoreLocked, NotAStore
        The store cannot be opened.
    KeyboardInterrupt
        SIGINT came before the server listened; the store is closed.
    """
    settings = settings or load_settings()
    check_binding(settings)
    certificates = certificates_of(settings)
    database = open_database(
        settings.store,
        query_memory_bytes=settings.query_memory_bytes,
        isolation=settings.isolation,
        live=settings.live,
        objects=settings.objects,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(database.close)  # idempotent: the application closes it first
        listener = stack.enter_context(_listen(settings.host, settings.port, "--port"))
        if settings.flight_port is not None:
            _check_flight(settings)
        try:
            from .app import create_app

        except ImportError as error:
            raise MissingDependency(
                f"the server needs {error.name}; install chronicle-eventstore[server]"
            ) from None
        configure_logging(settings)
        app = create_app(database, settings, prepare=True, close_database=True)
        stack.callback(app.state.server.close_workers)
        if catalog_of(database).isolation == "process":
            _ = catalog_of(database).engine  # start workers while the libraries load
        stack.callback(gc.unfreeze)  # else objects of the libraries are never freed
        config = uvicorn_config(app, settings)
        url = _url(listener, secure=certificates is not None)
        if certificates is None and not is_loopback(settings.host):
            logger.warning(
                "tokens cross the network as they are: set CHRONICLE_TLS_CERT, or have a proxy "
                "with TLS in front"
            )
        server = Listening(
            config,
            lambda: (announce or _print_url)(url),
            lambda: app.state.server.drain(settings.drain_timeout_ms / 1000),
            certificates,
        )
        with _quiet_signals(), _short_turns():
            server.run(sockets=[listener])


def uvicorn_config(app: Application, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded(
            settings.header_timeout_ms / 1000, address_max=settings.max_address_connections
        ),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=-(-settings.drain_timeout_ms // 1000) + HARD_STOP_S,
        lifespan="on",
    )


def check_binding(settings: Settings) -> None:
    """Raise ``InvalidArgument`` for a public address, or a guarded store, without tokens."""
    tokens = TokenFile(settings.store, settings.token_file)
    if tokens.any() or settings.jwt_issuer is not None:
        return
    if tokens.guarded():
        raise InvalidArgument(
            f"refusing to serve {settings.store} to everybody: the store has had tokens, and there "
            "is none now (a backup restored without its directory server/, or the last one was "
            "revoked); create one with `chronicle token create NAME --scope admin`, or set "
            "CHRONICLE_TOKEN_FILE"
        )
    if is_loopback(settings.host):
        return
    raise InvalidArgument(
        f"refusing to listen on {settings.host}, which others can reach, without tokens: create "
        "one with `chronicle token create NAME --scope admin`, set CHRONICLE_TOKEN_FILE, or "
        "listen on 127.0.0.1"
    )


@contextlib.contextmanager
def _listen(host: str, port: int, option: str) -> Iterator[socket.socket]:
    host = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise InvalidArgument(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another "
            f"address with --host and {option} (CHRONICLE_HOST, "
            f"CHRONICLE_{option.removeprefix('--').replace('-', '_').upper()})"
        ) from None
    with listener:
        yield listener


def _check_flight(settings: Settings) -> None:
    """Refuse a Flight SQL port that gRPC, which binds it later, could not bind."""
    try:
        from .flight import service as _  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"Flight SQL needs {error.name}; install chronicle-eventstore[flight]"
        ) from None
    with _listen(settings.host, settings.flight_port or 0, "--flight-port"):
        pass


def _url(listener: socket.socket, *, secure: bool) -> str:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _print_url(url: str) -> None:
    print(f"Chronicle listens on {url} (API: {url}/docs)", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _quiet_signals() -> Iterator[None]:
    """Ignore the signals that Uvicorn raises again after it has stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _short_turns() -> Iterator[None]:
    """Shorten the switch interval, so that the event loop waits less for other threads."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _ignore(number: int, frame: Any) -> None:
    pass


HEADER_BYTES_MAX = 64 << 10
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n"
    b"Content-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%s"
)
_PROBLEM = (
    b'{"type":"urn:chronicle:headers-too-large","code":"headers-too-large",'
    b'"title":"Headers too large","status":431,'
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
                try:
                    await application(scope, receive, send)
                except asyncio.CancelledError:  # by Uvicorn, when a stop has waited long enough
                    logger.warning("a request of %s was ended: the server stops", self._address)
                    transport.abort()

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


class Listening(uvicorn.Server):
    """Calls ``started`` when it accepts connections and ``stopping`` when it stops to, on the event
    loop.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        started: Callable[[], None],
        stopping: Callable[[], None],
        certificates: Certificates | None = None,
    ) -> None:
        super().__init__(config)
        if certificates is not None:
            config.load()
            config.ssl = certificates.context
        self._certificates = certificates
        self._tell_started = started
        self._tell_stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._certificates is not None and _in_main_thread():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, self._certificates.reload)
        if self.started:
            self._tell_started()

    async def on_tick(self, counter: int) -> bool:
        if self._certificates is not None and counter % (10 * LOOK_S) == 0:
            self._certificates.look()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._tell_stopping()
        await super().shutdown(sockets)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
