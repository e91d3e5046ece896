"""The application: routes, errors and life cycle around an open database. ::

    RequestMiddleware (id, timing, metrics, origin)
        ->  CORS  ->  errors to problems  ->  routes
                                                |
                                             Server: database, limits, threads, snapshots, keys

Every error is answered with a problem document.  Running work ends before the database is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from .. import __version__
from ..errors import ChronicleError, StreamNotFound
from .access.auth import visible_to
from .access.settings import Settings, is_loopback, load_settings
from .api_document import describe
from .http.replies import Problem, as_problem, problem_response
from .service.metrics import EVERY_S
from .service.middleware import Audit, RequestMiddleware
from .service.state import TIDY_EVERY_S, Server

if TYPE_CHECKING:
    from ..api.database import Database
    from .flight.service import FlightListener
    from .postgres.service import PostgresListener


logger = logging.getLogger("chronicle.server")
_KEEP_SECURE = ((b"strict-transport-security", b"max-age=31536000"),)
DESCRIPTION = """\
An event store: events in, SQL with windows and row patterns out.

Errors are problem documents (RFC 9457) with a stable `type`. Times are ISO 8601 or integers in the
stream's own unit; ranges are half-open. `?format=` chooses json, ndjson, csv, arrow or parquet and
wins over `Accept`.
"""


def create_app(
    database: Database,
    settings: Settings | None = None,
    *,
    prepare: bool = False,
    close_database: bool = False,
) -> FastAPI:
    """Make the application that serves a database.

    Parameters
    ----------
    database : Database
        Open, for writing or reading.
    settings : Settings, optional
        Default: read from the environment.
    prepare : bool
        Load the query engine and start worker processes before the server reports ready.
    close_database : bool
        Flush and close the database when the application stops.
    """
    from .routes.agents import Agents

    server = Server(database, settings or load_settings())
    server.prepared = not prepare

    app = FastAPI(
        title="Chronicle",
        version=__version__,
        description=DESCRIPTION,
        lifespan=partial(_lifespan, server=server, prepare=prepare, close_database=close_database),
        docs_url=None,
        redoc_url=None,
    )
    app.state.server = server
    app.state.flight = app.state.postgres = None
    app.state.agents = Agents(server)
    _add_routes(app, server)
    describe(app)
    _add_middleware(app, server)
    for kind in (ChronicleError, Problem, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _answer_error)
    return app


@asynccontextmanager
async def _lifespan(
    app: FastAPI, server: Server, *, prepare: bool, close_database: bool
) -> AsyncIterator[None]:
    from .routes import jobs

    await asyncio.to_thread(server.start)
    await asyncio.to_thread(server.jobs.resume, partial(jobs.work_again, server))
    try:
        app.state.flight = await _flight(server)
        app.state.postgres = await _postgres(server)
    except BaseException:
        await asyncio.to_thread(server.stop)
        raise
    background = [asyncio.create_task(_tidy(server)), asyncio.create_task(_look(server))]
    preparing = asyncio.create_task(asyncio.to_thread(server.prepare)) if prepare else None
    try:
        yield
    finally:
        logger.info("stopping")
        for task in background:
            task.cancel()
        for listener in (app.state.flight, app.state.postgres):
            if listener is not None:
                await listener.stop()
        await app.state.agents.close()
        await asyncio.to_thread(server.stop)
        if preparing is not None:
            await preparing
        if close_database:
            await asyncio.to_thread(server.database.close)
            logger.info("the store %s is closed", server.database.path)


def _add_routes(app: FastAPI, server: Server) -> None:
    from .routes import (
        agents,
        bulk,
        events,
        following,
        jobs,
        live,
        pages,
        queries,
        service,
        streams,
        tokens,
    )

    # Routes are tried in order: the most frequent first
    frequent = (events, queries, service, streams, following, live, pages)
    rare = (bulk.line_router, bulk.transactions_router, service.about_router, bulk.router)
    last = (jobs.router, tokens.router, agents.router)
    for router in (*(module.router for module in frequent), *rare, *last):
        app.router.routes.extend(router.routes)
    if server.settings.console != "off":
        pages.mount_console(app)


def _add_middleware(app: FastAPI, server: Server) -> None:
    """The last one added is the outermost."""
    if server.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=server.settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "X-Query-Id", "X-Row-Count", "X-Truncated"],
        )
    local = is_loopback(server.settings.host)  # browsers apply HSTS to all ports of a host
    app.add_middleware(
        RequestMiddleware,
        authenticator=server.authenticator,
        metrics=server.metrics,
        drops=server.drops,
        audit=Audit(server.database.path),
        protecting=_KEEP_SECURE if server.settings.tls_cert and not local else (),
    )


async def _flight(server: Server) -> FlightListener | None:
    if server.settings.flight_port is None:
        return None
    from .flight.service import FlightListener

    listener = FlightListener(server)
    await listener.start()
    return listener


async def _postgres(server: Server) -> PostgresListener | None:
    if server.settings.postgres_port is None:
        return None
    from .postgres.service import PostgresListener

    listener = PostgresListener(server)
    await listener.start()
    return listener


async def _tidy(server: Server) -> None:
    while True:
        await asyncio.sleep(TIDY_EVERY_S)
        try:
            await asyncio.to_thread(server.tidy)
        except Exception:
            logger.exception("tidying up failed; it is tried again")


async def _look(server: Server) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        server.load.sample()


async def _answer_error(request: Request, error: Exception) -> Response:
    server: Server = request.app.state.server
    if isinstance(error, StreamNotFound) and "stream" in request.path_params:
        visible = visible_to(request.state.principal)
        if visible is not None:  # its text lists all streams
            name = request.path_params["stream"]
            error = StreamNotFound(f"no stream {name!r} within the token's reach")
    error = server.drops.explain(request.scope, error)
    problem = as_problem(error)
    if problem.status in (413, 429, 503):
        server.metrics.rejected.labels(problem.code).inc()
    if problem.status == 500:
        logger.error("request %s failed: %s", request.state.request_id, error, exc_info=error)
    return problem_response(problem, request.state.request_id)
