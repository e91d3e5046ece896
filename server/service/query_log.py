"""The log of ended queries and reads, for ``chronicle.query_log`` and the log of slow queries.
Those of ``CHRONICLE_SLOW_QUERY_MS`` or more are logged to ``chronicle.server.slow``.  Holds the
last ``CHRONICLE_QUERY_LOG_ENTRIES`` in memory, with truncated texts.  Feeds are not logged.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import ChronicleError, QueryCancelled, QueryTimeout, ResourceLimit
from ..access.auth import Principal

__all__ = ["EndedQuery", "QueryLog", "outcome_of"]

slow = logging.getLogger("chronicle.server.slow")


def outcome_of(error: BaseException | None) -> str:
    if error is None:
        return "ok"
    if isinstance(error, QueryCancelled):
        return "cancelled"
    if isinstance(error, QueryTimeout):
        return "timeout"
    if isinstance(error, ResourceLimit):
        return "limit"
    return "refused" if isinstance(error, ChronicleError) else "failed"


@dataclass(frozen=True, slots=True)
class EndedQuery:
    """``ended`` is in epoch seconds, ``seconds`` counts from the slot to the last row."""

    id: str
    kind: str
    text: str
    principal: Principal
    ended: float
    seconds: float
    rows: int | None
    outcome: str
    error: str | None

    def row(self) -> dict[str, object]:
        token = self.principal.token
        return {
            "id": self.id,
            "kind": self.kind,
            "text": self.text,
            "token": token.name if token else None,
            "started": dt.datetime.fromtimestamp(self.ended - self.seconds, dt.timezone.utc),
            "duration_ms": round(self.seconds * 1000, 3),
            "rows": self.rows,
            "outcome": self.outcome,
            "error": self.error,
        }


class QueryLog:
    """Thread-safe; keeps ``entries`` queries, and calls one slow from ``slow_ms`` on (0: never)."""

    def __init__(self, entries: int, slow_ms: int) -> None:
        self._entries: deque[EndedQuery] = deque(maxlen=entries)
        self._slow_s = slow_ms / 1000 if slow_ms else None

    def __iter__(self) -> Iterator[EndedQuery]:
        return iter(self._entries.copy())

    def note(
        self,
        query_id: str,
        kind: str,
        text: str,
        principal: Principal,
        seconds: float,
        rows: int | None,
        error: BaseException | None,
    ) -> None:
        said = str(error) if isinstance(error, ChronicleError) else None
        ended = EndedQuery(
            query_id, kind, text, principal, time.time(), seconds, rows, outcome_of(error), said
        )
        self._entries.append(ended)
        if self._slow_s is not None and seconds >= self._slow_s:
            token = principal.token
            slow.warning(
                "%s took %.0f ms, %s: %s",
                kind, seconds * 1000, ended.outcome, text,
                extra={"request_id": query_id, "token": token.name if token else None,
                       "ms": round(seconds * 1000, 1)},
            )  # fmt: skip
