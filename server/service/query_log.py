"""Running queries, and the log of ended ones, for the system tables and the log of slow queries.

An ended query that took ``CHRONICLE_SLOW_QUERY_MS`` or more is logged to ``chronicle.server.slow``.
The last ``CHRONICLE_QUERY_LOG_ENTRIES`` are in memory, with truncated texts.  Feeds are not logged.

Running queries: an id is the request's (``X-Request-Id``), so a client that chose it can cancel
before any answer.  They live on the event loop.  In the system tables, a token sees its own
queries, one with ``operate`` on every stream sees all; settings need ``admin`` on every stream.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import ChronicleError, Forbidden, QueryCancelled, QueryTimeout, ResourceLimit
from ...query.contract.cancellation import Cancellation
from ..access.auth import Principal

if TYPE_CHECKING:
    from ...query.contract.access import Tell
    from ..access.auth import Principal
    from ..access.settings import Settings

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
        message = str(error) if isinstance(error, ChronicleError) else None
        ended = EndedQuery(
            query_id, kind, text, principal, time.time(), seconds, rows, outcome_of(error), message
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


TEXT_CHARACTERS_MAX = 10_000


class Tally(Protocol):
    rows: int


class Owned(Protocol):
    @property
    def principal(self) -> Principal:
        """Who asked."""


@dataclass
class RunningQuery:
    """A running query or read; ``kind`` is "query" or "events", ``started`` monotonic seconds."""

    id: str
    kind: str
    text: str
    principal: Principal
    cancellation: Cancellation
    started: float = field(default_factory=time.monotonic)

    def to_json(self) -> dict[str, object]:
        token = self.principal.token
        read, expected = self.cancellation.progress.events or (None, None)
        return {
            "id": self.id,
            "kind": self.kind,
            "text": self.text[:TEXT_CHARACTERS_MAX],
            "token": token.name if token else None,
            "running_ms": round((time.monotonic() - self.started) * 1000, 1),
            "events_read": read,
            "events_expected": expected,
        }


class RunningQueries:
    def __init__(self, log: QueryLog) -> None:
        self._queries: dict[str, RunningQuery] = {}
        self._log = log

    def __len__(self) -> int:
        return len(self._queries)

    def __iter__(self) -> Iterator[RunningQuery]:
        return iter(list(self._queries.values()))

    def add(self, wished_id: str, kind: str, text: str, principal: Principal) -> RunningQuery:
        query_id = wished_id if wished_id not in self._queries else uuid.uuid4().hex
        query = RunningQuery(query_id, kind, text, principal, Cancellation())
        self._queries[query_id] = query
        return query

    def remove(self, query: RunningQuery) -> None:
        self._queries.pop(query.id, None)

    @contextmanager
    def logged(self, query: RunningQuery, tally: Tally | None = None) -> Iterator[None]:
        failed: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            self.log(query, tally, failed)

    def log(self, query: RunningQuery, tally: Tally | None, error: BaseException | None) -> None:
        rows = None if tally is None else tally.rows
        text = query.text[:TEXT_CHARACTERS_MAX]
        seconds = time.monotonic() - query.started
        self._log.note(query.id, query.kind, text, query.principal, seconds, rows, error)

    def find(self, query_id: str, principal: Principal) -> RunningQuery | None:
        query = self._queries.get(query_id)
        return query if query is not None and self.visible(query, principal) else None

    @staticmethod
    def visible(query: Owned, principal: Principal) -> bool:
        """Whether a principal may see and cancel a query: its own; with ``operate`` everywhere,
        any.
        """
        return query.principal.token == principal.token or (
            principal.may("operate") and principal.everywhere
        )

    def cancel_all(self) -> None:
        for query in self:
            query.cancellation.cancel()


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
