"""The running queries, for ``GET /v1/queries`` and ``DELETE /v1/queries/{id}``.  An id is the
request's (``X-Request-Id``), so a client that chose it can cancel before any answer.  Lives on the
event loop.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from ...query.contract.cancellation import Cancellation
from ..access.auth import Principal
from .query_log import QueryLog

__all__ = ["RunningQueries", "RunningQuery"]

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
