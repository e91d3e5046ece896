"""``GET /v1/status``: a snapshot of the server's load for people.  Sums over the store are for
clients that may read all of it.
"""

from __future__ import annotations

import shutil
import time
from typing import Any

from fastapi import APIRouter, Request, Response

from ... import __version__
from ..access.auth import Requester
from ..http.problems import reply
from ..service.load_history import EVERY_S, resident_bytes
from ..service.state import server_of

router = APIRouter(prefix="/v1", tags=["service"])


@router.get("/status", summary="How the server does")
async def status(request: Request, principal: Requester) -> Response:
    """Version, slots in use, memory, the last quarter of an hour; with every right, the store."""
    server = server_of(request)
    trouble = await server.probe.trouble()
    flight = request.app.state.flight
    gates = {
        "queries": server.queries,
        "reads": server.reads,
        "appends": server.appends,
        "uploads": server.bodies,
        "followers": server.followers_gate,
    }
    found: dict[str, Any] = {
        "version": __version__,
        "state": server.condition,
        "mode": server.database.mode,
        "uptime_s": round(time.monotonic() - server.load.started, 1),
        "memory_bytes": resident_bytes(),
        "disk_free_bytes": None,
        "flight_port": None if flight is None else flight.port,
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
        found["store"] = await server.call(server.store_gauges)
        found["moving"] = server.database.moving()
        found["disk_free_bytes"] = shutil.disk_usage(server.database.path).free
    return reply(found)
