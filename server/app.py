"""The application: routes, errors and life cycle around an open database.

Purpose
    :func:`create_app` makes the ASGI application; :mod:`.run` serves it.

Layout
    ::

        RequestMiddleware (id, timing, metrics, origin)  ->  CORS  ->  errors to problems
                                                                                |
                  Server: database, gates, threads, snapshots, keys  <-  routes  <

Guarantee
    Every error leaves as a problem document, also 404, 405 and 422.  Stopping ends what runs
    before the database is closed.

Limits
    One process: the store has one writer.  Run it behind a proxy for TLS, not behind several
    workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from .. import __version__
from ..errors import ChronicleError, StreamNotFound
from .access.settings import Settings, load_settings
from .access.statement_rights import visible_to
from .http.problems import Problem, as_problem, problem_response
from .http.request_head import SLASH
from .routes.parameters import only_known
from .service.middleware import RequestMiddleware
from .service.state import TIDY_EVERY_S, Server
from .warmup import warm_up

if TYPE_CHECKING:
    from ..database import Database

__all__ = ["create_app"]

logger = logging.getLogger("chronicle.server")
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
    warm: bool = False,
    close_database: bool = False,
) -> FastAPI:
    """Make the application that serves a database.

    Parameters
    ----------
    database : Database
        Open, for writing or reading.
    settings : Settings, optional
        Read from the environment by default.
    warm : bool
        Whether to load compiled kernels and the query engine before the first request.
    close_database : bool
        Whether to flush and close the database when the application stops.
    """
    from .routes import events, live, positions, queries, service, streams, tail, transactions

    server = Server(database, settings or load_settings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if warm:
            await asyncio.to_thread(warm_up)
        await asyncio.to_thread(server.start)
        tidying = asyncio.create_task(_tidy(server))
        try:
            yield
        finally:
            logger.info("stopping")
            tidying.cancel()
            await asyncio.to_thread(server.stop)
            if close_database:
                await asyncio.to_thread(database.close)
                logger.info("the store %s is closed", database.path)

    app = FastAPI(
        title="Chronicle",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url="/docs",
        redoc_url=None,
    )
    app.state.server = server
    app.include_router(service.router)
    for module in (streams, events, tail, live, positions, transactions, queries):
        app.include_router(module.router, dependencies=[Depends(only_known)])
    if server.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=server.settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "X-Query-Id", "X-Row-Count", "X-Truncated"],
        )
    app.add_middleware(
        RequestMiddleware,
        authenticator=server.authenticator,
        metrics=server.metrics,
        drops=server.drops,
    )
    for kind in (ChronicleError, Problem, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _answer_error)
    return app


async def _tidy(server: Server) -> None:
    while True:
        await asyncio.sleep(TIDY_EVERY_S)
        try:
            await asyncio.to_thread(server.tidy)
        except Exception:
            logger.exception("tidying up failed; it is tried again")


async def _answer_error(request: Request, error: Exception) -> Response:
    server: Server = request.app.state.server
    if isinstance(error, StreamNotFound) and "stream" in request.path_params:
        visible = visible_to(request.state.principal)
        if visible is not None:  # its text names all streams
            name = request.path_params["stream"].replace(SLASH, "/")
            error = StreamNotFound(f"no stream {name!r} within the token's reach")
    error = server.drops.explain(request.scope, error)
    problem = as_problem(error)
    if problem.status in (413, 429, 503):
        server.metrics.rejected.labels(problem.code).inc()
    if problem.status == 500:
        logger.error("request %s failed: %s", request.state.request_id, error, exc_info=error)
    return problem_response(problem, request.state.request_id)
