"""Which requests are written down for good: changes nobody can take back, and refusals.

Purpose
    :class:`Audit` looks at each request when it has ended, and has :mod:`..access.audit_log` keep a
    line of it where it used the scope ``admin`` or ``operate`` (dropped streams, deleted events,
    changed indexes, statements of these kinds, jobs) or was refused a token that it sent, or a
    right.

Layout
    ::

        {"time": "2026-11-22T10:00:00Z", "client": "10.0.0.7", "token": "deploy", "status": 204,
         "method": "DELETE", "path": "/v1/streams/flights", "request_id": "..."}

    ``statement`` has the SQL text, where there is one.

Limits
    Says what was asked and how it was answered, not what the answer held.
"""

from __future__ import annotations

import os
from typing import Any

from starlette.types import Scope

from ..access.audit_log import note
from ..http.request_head import raw_path

__all__ = ["STATEMENT", "Audit"]

STATEMENT = "chronicle.statement"
"""Key of the scope: the SQL text of a request."""

STATEMENT_CHARACTERS_MAX = 2000
_REFUSED = (401, 403)
_WRITTEN_DOWN = {"admin", "operate"}


class Audit:
    """See the module; lives on the event loop."""

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self._store = store

    def look(self, scope: Scope, status: int) -> None:
        """Write a line about a request that ended, if it is of interest."""
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
