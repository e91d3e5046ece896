"""What was asked: the queries and reads that have ended, newest last, and those that were slow.

Purpose
    :class:`QueryLog` answers ``SELECT ... FROM chronicle.query_log``, and has the server's log
    (``chronicle.server.slow``) tell each that took ``CHRONICLE_SLOW_QUERY_MS`` or more.

Limits
    Keeps ``CHRONICLE_QUERY_LOG_ENTRIES``, each with the beginning of its text; gone with the
    process.  What the small way of :mod:`..routes.row_responses` answers is in it as well; feeds
    that are followed are not.
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
    """How a query ended, in a word."""
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
    """A query or read that has ended.

    Attributes
    ----------
    ended : float
        Seconds since the epoch.
    seconds : float
        From its turn to its last row.
    rows : int or None
        That were sent.
    error : str or None
        What the client was told, of errors that are the statement's.
    """

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
        """As a row of ``chronicle.query_log``."""
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
    """See the module; for any thread.

    Parameters
    ----------
    entries : int
        How many are kept.
    slow_ms : int
        From how many milliseconds on one is slow; 0: none is.
    """

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
        """Keep a query that ended now."""
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
