"""Chooses the requests that the audit log records: those that used the scope ``admin`` or
``operate``, or whose token or right was refused. ::

    {"time": "2026-11-22T10:00:00Z", "client": "10.0.0.7", "token": "deploy", "status": 204,
     "method": "DELETE", "path": "/v1/streams/flights", "request_id": "..."}

``statement`` has the SQL text, where there is one.
"""

from __future__ import annotations

import os
from typing import Any

from starlette.types import Scope

from ..access.audit_log import note
from ..http.request_head import raw_path

__all__ = ["STATEMENT", "Audit"]

STATEMENT = "chronicle.statement"
"""Key of the ASGI scope: the SQL text of a request."""

STATEMENT_CHARACTERS_MAX = 2000
_REFUSED = (401, 403)
_WRITTEN_DOWN = {"admin", "operate"}


class Audit:
    def __init__(self, store: str | os.PathLike[str]) -> None:
        self._store = store

    def look(self, scope: Scope, status: int) -> None:
        principal = scope["state"].get("principal")
        if principal is None or principal.used.isdisjoint(_WRITTEN_DOWN):
            asked = any(name == b"authorization" for name, _ in scope["headers"])
            if status not in _REFUSED or not asked:
                return
        token = getattr(principal, "token", None)
        line: dict[str, Any] = {
            "client": (scope.get("client") or ("local", 0))[0],
            "token": token.name if token else None,
            "status": status,
            "method": scope["method"],
            "path": raw_path(scope).decode("ascii", "backslashreplace"),
            "request_id": scope["state"]["request_id"],
        }
        statement = scope.get(STATEMENT)
        if statement is not None:
            line["statement"] = statement[:STATEMENT_CHARACTERS_MAX]
        note(self._store, **line)
