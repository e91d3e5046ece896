"""Routes about the server itself.  ``/healthz`` needs neither a thread nor the store; outside of
``/v1`` only ``/metrics`` may need a token.  ``GET /v1/status`` is a snapshot of the server's load
for people; sums over the store are for clients that may read all of it.
"""

from __future__ import annotations

import logging
import shutil
import time
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.security import HTTPAuthorizationCredentials
from starlette.responses import RedirectResponse

from ... import __version__
from ...errors import ChronicleError, Forbidden, Unauthorized
from ..access.auth import Principal, Requester, authenticate, bearer
from ..access.tokens import SCOPES
from ..http.replies import Problem, reply
from ..http.route import OpenRoute, api_router
from ..service.metrics import EVERY_S, resident_bytes
from ..service.state import Server, server_of
from .pages import wants_page

logger = logging.getLogger("chronicle.server")
router = api_router(tags=["service"], route_class=OpenRoute)


@router.get("/", include_in_schema=False)
async def root(request: Request) -> Response:
    """Sends browsers to the console, programs to the API."""
    shown = server_of(request).settings.console != "off"
    if shown and wants_page(request.headers):
        return RedirectResponse("console/", 307, {"Vary": "Accept"})
    return reply(
        {
            "chronicle": __version__,
            "docs": "/docs",
            **({"console": "/console/"} if shown else {}),
            "openapi": "/openapi.json",
            "streams": "/v1/streams",
            "query": "/v1/query?q=SELECT%201",
        }
    )


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Response:
    """200 as long as the process answers at all."""
    return reply({"status": "ok", "version": __version__})


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", summary="Can it serve?")
async def readyz(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)] = None,
) -> Response:
    """200 when the store is open and SQL is answered at its usual speed; otherwise 503.

    With a token the answer also describes the store.
    """
    server = server_of(request)
    state = server.condition
    if state != "ready":
        raise _not_ready(f"the server is {state}", state)
    try:
        principal = authenticate(request, credentials)
    except Unauthorized:
        principal = None
    trouble = await server.probe.trouble()
    if trouble is not None:
        raise _not_ready(trouble, "failed")
    if principal is None:
        return reply({"status": "ready"})
    try:
        return reply(await server.call(_readiness, server, principal))
    except (ChronicleError, OSError):
        logger.exception("not ready: the store cannot be read")
        raise _not_ready("the store cannot be read", "failed") from None


def _not_ready(detail: str, state: str) -> Problem:
    return Problem("not-ready", detail, {"Retry-After": "1"}, {"state": state})


def _readiness(server: Server, principal: Principal) -> dict[str, Any]:
    names = server.database.streams()
    answer: dict[str, Any] = {
        "status": "ready",
        "mode": server.database.mode,
        "streams": sum(principal.token is None or principal.token.reaches(n) for n in names),
    }
    if principal.everywhere:
        answer["disk_free_bytes"] = shutil.disk_usage(server.database.path).free
        moving = server.database.moving()
        if moving is not None:
            answer["moving"] = {key: moving[key] for key in ("state", "error", "failures")}
    return answer


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)] = None,
) -> Response:
    """Counters, gauges and histograms in the Prometheus text format; needs the scope `metrics`.

    Gauges of indexes and live queries cover the streams that the token reaches.
    """
    server = server_of(request)
    try:
        principal = authenticate(request, credentials)
        principal.require("metrics")
    except (Forbidden, Unauthorized):
        if not server.settings.public_metrics:
            raise
        principal = None  # sums only, no names of streams

    def content() -> bytes:
        if principal is None:
            return server.metrics.render()
        may_see = partial(principal.may, "metrics")
        return server.metrics.render(server.index_figures(may_see), server.live_figures(may_see))

    text = await server.call(content)
    return Response(text, media_type=server.metrics.content_type)


about_router = api_router(prefix="/v1", tags=["service"])


@about_router.get("/session", summary="What this token may do")
async def session(request: Request, principal: Requester) -> Response:
    """Name, scopes and streams of the token; `open` where there are no tokens."""
    token = principal.token
    answer: dict[str, Any] = {
        "version": __version__,
        "console": server_of(request).settings.console,
        "open": token is None,
        "name": None if token is None else token.name,
        "scopes": list(SCOPES) if token is None else list(token.scopes),
        "may": [scope for scope in SCOPES if principal.may(scope)],
        "streams": ["*"] if token is None else list(token.streams),
    }
    return reply(answer)


@about_router.get("/status", summary="How the server does")
async def status(request: Request, principal: Requester) -> Response:
    """Version, slots in use, memory, the last quarter of an hour; with every right, the store."""
    server = server_of(request)
    trouble = await server.probe.trouble()
    flight, postgres = request.app.state.flight, request.app.state.postgres
    gates = {
        "queries": server.queries,
        "reads": server.reads,
        "appends": server.appends,
        "uploads": server.bodies,
        "followers": server.followers_gate,
    }
    answer: dict[str, Any] = {
        "version": __version__,
        "state": server.condition,
        "mode": server.database.mode,
        "uptime_s": round(time.monotonic() - server.load.started, 1),
        "memory_bytes": resident_bytes(),
        "disk_free_bytes": None,
        "flight_port": None if flight is None else flight.port,
        "postgres_port": None if postgres is None else postgres.port,
        "gates": {
            name: {"running": gate.running, "waiting": gate.waiting, "limit": gate.running_max}
            for name, gate in gates.items()
        },
        "store": {},
        "moving": None,
        "trouble": trouble,
        "every_s": EVERY_S,
        "history": server.load.columns(),
    }
    if principal.everywhere:
        answer["store"] = await server.call(server.store_gauges)
        answer["moving"] = server.database.moving()
        answer["disk_free_bytes"] = shutil.disk_usage(server.database.path).free
    return reply(answer)
