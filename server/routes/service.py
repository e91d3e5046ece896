"""Routes about the server itself.  ``/healthz`` needs neither a thread nor the store; outside of
``/v1`` only ``/metrics`` may need a token.  ``GET /v1/status`` is a snapshot of the server's load
for people; sums over the store are for clients that may read all of it.
"""

from __future__ import annotations

import logging
import shutil
import time
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ... import __version__
from ...errors import ChronicleError, Forbidden, Unauthorized
from ..access.auth import Principal, identify
from ..access.tokens import SCOPES
from ..http.replies import Problem, reply
from ..service.metrics import EVERY_S, resident_bytes
from ..service.state import Server, server_of
from . import answers
from .answers import Json
from .pages import wants_page
from .route import Call, Routes, Secret

logger = logging.getLogger("chronicle.server")
_open = Routes("service", refuses_unknown=False)


@_open.get("/")
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


@_open.get("/healthz", "Is the process alive?", answers.Health, head=True)
async def healthz() -> Json:
    """200 as long as the process answers at all."""
    return {"status": "ok", "version": __version__}


@_open.get("/readyz", "Can it serve?", answers.Ready, head=True)
async def readyz(request: Request, secret: Secret) -> Json:
    """200 when the store is open and SQL is answered at its usual speed; otherwise 503.

    With a token the answer also describes the store.
    """
    server = server_of(request)
    state = server.condition
    if state != "ready":
        raise _not_ready(f"the server is {state}", state)
    try:
        principal = identify(request, secret)
    except Unauthorized:
        principal = None
    trouble = await server.probe.trouble()
    if trouble is not None:
        raise _not_ready(trouble, "failed")
    if principal is None:
        return {"status": "ready"}
    try:
        return await server.call(_readiness, server, principal)
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
        moving = server.catalog.store.moving()
        if moving is not None:
            answer["moving"] = {key: moving[key] for key in ("state", "error", "failures")}
    return answer


@_open.get("/metrics", "Metrics for Prometheus", responses=answers.TEXT)
async def metrics(request: Request, secret: Secret) -> Response:
    """Counters, gauges and histograms in the Prometheus text format; needs the scope `metrics`.

    Gauges of indexes and live queries cover the streams that the token reaches.
    """
    server = server_of(request)
    try:
        principal = identify(request, secret)
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


_about = Routes("service", "/v1")


@_about.get("/session", "What this token may do", answers.Session)
async def session(call: Call) -> Json:
    """Name, scopes and streams of the token; `open` where there are no tokens."""
    token = call.principal.token
    return {
        "version": __version__,
        "console": call.server.settings.console,
        "open": token is None,
        "name": None if token is None else token.name,
        "scopes": list(SCOPES) if token is None else list(token.scopes),
        "may": [scope for scope in SCOPES if call.principal.may(scope)],
        "streams": ["*"] if token is None else list(token.streams),
    }


@_about.get("/status", "How the server does", answers.Status)
async def status(call: Call) -> Json:
    """Version, slots in use, memory, the last quarter of an hour; with every right, the store."""
    server = call.server
    trouble = await server.probe.trouble()
    state = call.request.app.state
    flight, postgres = state.flight, state.postgres
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
    if call.principal.everywhere:
        answer["store"] = await server.call(server.store_gauges)
        answer["moving"] = server.catalog.store.moving()
        answer["disk_free_bytes"] = shutil.disk_usage(server.database.path).free
    return answer


routes = [*_open, *_about]
