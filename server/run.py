"""The server process behind ``chronicle serve``.  The store is locked and the address bound before
anything is announced.  SIGTERM and SIGINT: no new connections; running requests get
``CHRONICLE_DRAIN_TIMEOUT_MS``, then are cancelled; the store is flushed and closed; exit code 0.
While the store is being opened, SIGINT raises ``KeyboardInterrupt``.  A second SIGINT ends the
process at once, and the next start recovers.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..api.database import open_database
from ..errors import InvalidArgument, MissingDependency
from .access.settings import Settings, is_loopback, load_settings
from .access.tls import certificates_of
from .access.tokens import TokenFile
from .logs import configure_logging

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

__all__ = ["check_binding", "serve", "uvicorn_config"]

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
            from .listening import Listening
        except ImportError as error:
            raise MissingDependency(
                f"the server needs {error.name}; install chronicle-eventstore[server]"
            ) from None
        configure_logging(settings)
        app = create_app(database, settings, prepare=True, close_database=True)
        stack.callback(app.state.server.close_workers)
        database.begin_workers()  # start workers while the libraries load
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


def uvicorn_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    import uvicorn

    from .http_protocol import bounded

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
        from .flight import listening as _  # noqa: F401
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
