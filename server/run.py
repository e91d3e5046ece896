"""The process: open the store, listen, serve, and stop without losing anything.

Purpose
    :func:`serve` is what ``chronicle serve`` runs.

Guarantee
    The store is opened (and its lock taken) and the address is bound before anything is announced,
    so a mistake in either is one clear error.  Without tokens only loopback addresses are bound.
    A signal while the server warms up ends it within a second or three, however cold the cache of
    compiled kernels is: nothing can have been appended, the store is closed, and SIGINT is raised
    as :class:`KeyboardInterrupt`.  Later, SIGTERM and SIGINT: no new connections, running requests
    get ``CHRONICLE_DRAIN_TIMEOUT_MS`` to end, what is left is cancelled, the store is flushed and
    closed, and the process ends with code 0.

Limits
    Uvicorn in one process; a second SIGINT ends it hard (and the next start recovers).
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

from ..database import open_database
from ..errors import InvalidArgument, MissingDependency
from .access.settings import Settings, is_loopback, load_settings
from .access.tokens import TokenFile
from .logs import configure_logging

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

__all__ = ["check_binding", "serve", "uvicorn_config"]

HARD_STOP_S = 5
"""Seconds between cancelling what still runs and closing its connections."""

logger = logging.getLogger("chronicle.server")


def serve(settings: Settings | None = None, announce: Callable[[str], None] | None = None) -> None:
    """Serve a store until SIGTERM or SIGINT; returns when it is closed.

    Parameters
    ----------
    settings : Settings, optional
        Read from the environment by default.
    announce : callable, optional
        Called with the server's URL as soon as it listens.

    Raises
    ------
    InvalidArgument
        When the address cannot be bound, or must not be bound without tokens.
    StoreLocked, NotAStore
        When the store cannot be opened.
    KeyboardInterrupt
        When SIGINT came before the server was warm; the store is closed.
    """
    settings = settings or load_settings()
    check_binding(settings)
    database = open_database(
        settings.store,
        query_memory_bytes=settings.query_memory_bytes,
        isolation=settings.isolation,
        live=settings.live,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(database.close)  # again is fine: the application closes it first
        listener = stack.enter_context(_listen(settings))
        try:
            from .app import create_app
            from .listening import Listening
            from .warmup import warm_up
        except ImportError as error:
            raise MissingDependency(
                f"the server needs {error.name}; install chronicle-eventstore[server]"
            ) from None
        configure_logging(settings)
        app = create_app(database, settings, close_database=True)
        stack.callback(app.state.server.close_workers)
        database.begin_workers()  # they come to life beside the kernels
        if not _warm(warm_up):
            logger.info("stopped before it was warm")
            return
        app.state.server.warm_workers()
        gc.collect()
        gc.freeze()  # a collection beside a large statement then walks that, not all the libraries
        stack.callback(gc.unfreeze)  # or what the libraries hold is never let go
        config = uvicorn_config(app, settings)
        url = _url(listener)
        server = Listening(
            config,
            lambda: (announce or _print_url)(url),
            lambda: app.state.server.drain(settings.drain_timeout_ms / 1000),
        )
        with _quiet_signals():
            server.run(sockets=[listener])


def uvicorn_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How Uvicorn serves the application: with bounds for headers, and nothing but HTTP."""
    import uvicorn

    from .http_protocol import bounded

    return uvicorn.Config(
        app,
        http=bounded(settings.header_timeout_ms / 1000),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=-(-settings.drain_timeout_ms // 1000) + HARD_STOP_S,
        lifespan="on",
    )


def check_binding(settings: Settings) -> None:
    """Refuse to be reachable by others without tokens, and openly if the store has had some.

    Raises
    ------
    InvalidArgument
    """
    tokens = TokenFile(settings.store, settings.token_file)
    if tokens.any():
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
def _listen(settings: Settings) -> Iterator[socket.socket]:
    """A socket that listens, so that a taken port is our error and not a line in a log."""
    host, port = settings.host.strip("[]"), settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise InvalidArgument(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another "
            "address with --host and --port (CHRONICLE_HOST, CHRONICLE_PORT)"
        ) from None
    with listener:
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _print_url(url: str) -> None:
    print(f"Chronicle listens on {url} (API: {url}/docs)", file=sys.stderr, flush=True)


def _warm(warm_up: Callable[[threading.Event], bool]) -> bool:
    """Warm up until a signal comes; False after SIGTERM, KeyboardInterrupt after SIGINT.

    A handler that raised would do so anywhere in the compiler; this one only sets a flag.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        return warm_up(stop)
    heard: list[int] = []

    def hear(number: int, frame: Any) -> None:
        heard.append(number)
        stop.set()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        warm_up(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGINT in heard:
        raise KeyboardInterrupt
    return not heard


@contextlib.contextmanager
def _quiet_signals() -> Iterator[None]:
    """Uvicorn raises a signal again after it has stopped; here it has done its work by then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(number: int, frame: Any) -> None:
    pass
