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


Rows = Sequence[Mapping[str, Any]]


def sees(principal: Principal, owner: Principal) -> bool:
    """Whether a principal may see and cancel a query: its own; with ``operate`` everywhere, any."""
    everybody = principal.may("operate") and principal.everywhere
    return everybody or owner.token == principal.token


class QueryLog:
    """Thread-safe; keeps ``entries`` queries, and calls one slow from ``slow_ms`` on (0: never)."""

    def __init__(self, entries: int, slow_ms: int) -> None:
        self._entries: deque[tuple[Principal, Mapping[str, Any]]] = deque(maxlen=entries)
        self._slow_s = slow_ms / 1000 if slow_ms else None

    def rows(self, principal: Principal) -> Rows:
        """What a principal may see, of ``chronicle.query_log``."""
        return [row for owner, row in self._entries.copy() if sees(principal, owner)]

    def note(self, query: RunningQuery, rows: int | None, error: BaseException | None) -> None:
        seconds = time.monotonic() - query.started
        text, outcome = query.text[:TEXT_CHARACTERS_MAX], outcome_of(error)
        row = {
            "id": query.id,
            "kind": query.kind,
            "text": text,
            "token": query.token,
            "started": dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=seconds),
            "duration_ms": round(seconds * 1000, 3),
            "rows": rows,
            "outcome": outcome,
            "error": str(error) if isinstance(error, ChronicleError) else None,
        }
        self._entries.append((query.principal, row))
        if self._slow_s is not None and seconds >= self._slow_s:
            slow.warning(
                "%s took %.0f ms, %s: %s",
                query.kind, seconds * 1000, outcome, text,
                extra={"request_id": query.id, "token": query.token,
                       "ms": round(seconds * 1000, 1)},
            )  # fmt: skip


TEXT_CHARACTERS_MAX = 10_000


class Tally(Protocol):
    rows: int


@dataclass
class RunningQuery:
    """A running query or read; ``kind`` is "query" or "events", ``started`` monotonic seconds."""

    id: str
    kind: str
    text: str
    principal: Principal
    cancellation: Cancellation
    started: float = field(default_factory=time.monotonic)

    @property
    def token(self) -> str | None:
        token = self.principal.token
        return token.name if token else None

    def to_json(self) -> dict[str, object]:
        read, expected = self.cancellation.progress.events or (None, None)
        return {
            "id": self.id,
            "kind": self.kind,
            "text": self.text[:TEXT_CHARACTERS_MAX],
            "token": self.token,
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
        self._log.note(query, rows, error)

    def find(self, query_id: str, principal: Principal) -> RunningQuery | None:
        query = self._queries.get(query_id)
        return query if query is not None and sees(principal, query.principal) else None

    def cancel_all(self) -> None:
        for query in self:
            query.cancellation.cancel()


def telling(
    running: RunningQueries, log: QueryLog, settings: Settings, principal: Principal
) -> Tell:

    def tell(table: str) -> Rows:
        if table == "queries":
            return _running(running, principal)
        if table == "query_log":
            return log.rows(principal)
        principal.require("admin")
        if not principal.everywhere:
            raise Forbidden("chronicle.settings is for tokens that reach every stream")
        return _settings(settings)

    return tell


def _running(running: RunningQueries, principal: Principal) -> Rows:
    now, clock = dt.datetime.now(dt.timezone.utc), time.monotonic()
    rows = []
    for query in running:
        if sees(principal, query.principal):
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
