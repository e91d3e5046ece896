"""Rows of the system tables that only a server has: running queries, query log, settings.  A token
sees its own queries, one with ``operate`` on every stream sees all; settings need ``admin`` on
every stream.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import Forbidden
from .running_queries import RunningQueries

if TYPE_CHECKING:
    from ...query.contract.access import Tell
    from ..access.auth import Principal
    from ..access.settings import Settings
    from .query_log import QueryLog

__all__ = ["telling"]

Rows = Sequence[Mapping[str, Any]]


def telling(
    running: RunningQueries, log: QueryLog, settings: Settings, principal: Principal
) -> Tell:

    def tell(table: str) -> Rows:
        if table == "queries":
            return _running(running, principal)
        if table == "query_log":
            return [e.row() for e in log if RunningQueries.visible(e, principal)]
        principal.require("admin")
        if not principal.everywhere:
            raise Forbidden("chronicle.settings is for tokens that reach every stream")
        return _settings(settings)

    return tell


def _running(running: RunningQueries, principal: Principal) -> Rows:
    now, clock = dt.datetime.now(dt.timezone.utc), time.monotonic()
    rows = []
    for query in running:
        if RunningQueries.visible(query, principal):
            started = now - dt.timedelta(seconds=clock - query.started)
            rows.append({**query.to_json(), "started": started})
    return rows


def _settings(settings: Settings) -> Rows:
    return [
        {
            "name": f"CHRONICLE_{name.upper()}",
            "value": _shown(getattr(settings, name)),
            "description": field.description,
        }
        for name, field in type(settings).model_fields.items()
    ]


def _shown(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
