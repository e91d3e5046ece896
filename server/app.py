"""The application: routes, errors and life cycle around an open database. ::

    RequestMiddleware (id, timing, metrics, origin, errors to problems)  ->  CORS  ->  routes
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

from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from ..errors import ChronicleError
from .access.settings import Settings, is_loopback, load_settings
from .http.replies import Problem
from .service.metrics import EVERY_S
from .service.middleware import Audit, RequestMiddleware
from .service.state import TIDY_EVERY_S, Server

if TYPE_CHECKING:
    from ..api.database import Database
    from .flight.service import FlightListener
    from .postgres.service import PostgresListener


logger = logging.getLogger("chronicle.server")
_KEEP_SECURE = ((b"strict-transport-security", b"max-age=31536000"),)


class Application(Starlette):
    """Without Starlette's layers around each request: ``RequestMiddleware`` answers errors."""

    def build_middleware_stack(self) -> ASGIApp:
        server: Server = self.state.server
        settings = server.settings
        local = is_loopback(settings.host)  # browsers apply HSTS to all ports of a host
        stack = RequestMiddleware(
            self.router,
            server.authenticator,
            server.metrics,
            server.drops,
            Audit(server.database.path),
            _KEEP_SECURE if settings.tls_cert and not local else (),
        )

        async def answer(request: Request, error: Exception) -> Response:
            return stack.answer_error(request.scope, error)

        if settings.cors_origins:  # errors need its headers, too
            errors = (ChronicleError, Problem, HTTPException, RequestValidationError)
            stack.app = CORSMiddleware(
                ExceptionMiddleware(self.router, dict.fromkeys(errors, answer)),
                allow_origins=settings.cors_origins,
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=["X-Request-Id", "X-Query-Id", "X-Row-Count", "X-Truncated"],
            )
        return stack


def create_app(
    database: Database,
    settings: Settings | None = None,
    *,
    prepare: bool = False,
    close_database: bool = False,
) -> Application:
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

    lifespan = partial(_lifespan, server=server, prepare=prepare, close_database=close_database)
    app = Application(routes=_routes(server), lifespan=lifespan)
    app.state.server = server
    app.state.flight = app.state.postgres = None
    app.state.agents = Agents(server)
    return app


@asynccontextmanager
async def _lifespan(
    app: Starlette, server: Server, *, prepare: bool, close_database: bool
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


def _routes(server: Server) -> list[BaseRoute]:
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
    frequent = (queries, events, service, streams, following, live, bulk)
    routes: list[BaseRoute] = []
    for module in (*frequent, pages, jobs, tokens, agents):
        routes += module.routes
    return routes if server.settings.console == "off" else [*routes, *pages.console_routes()]


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
