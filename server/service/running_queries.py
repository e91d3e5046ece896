"""The queries that run now: listed, and cancelled by their id.

Purpose
    ``GET /v1/queries`` and ``DELETE /v1/queries/{id}`` work on a :class:`RunningQueries`.  An id
    is the request's (``X-Request-Id``), so a client that chooses it can cancel before it has heard
    anything.

Limits
    Lives on the event loop; gone with the process.
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
"""Longest part of a query's text that the list of running queries shows."""


class Tally(Protocol):
    """What counts the rows of an answer."""

    rows: int


class Owned(Protocol):
    """A query that somebody asked."""

    @property
    def principal(self) -> Principal:
        """Who."""


@dataclass
class RunningQuery:
    """One query or read.

    Attributes
    ----------
    kind : {"query", "events"}
    text : str
        The SQL text, or what is read.
    principal : Principal
        Who asked.
    cancellation : Cancellation
        How to end it.
    started : float
        Monotonic, in seconds.
    """

    id: str
    kind: str
    text: str
    principal: Principal
    cancellation: Cancellation
    started: float = field(default_factory=time.monotonic)

    def to_json(self) -> dict[str, object]:
        """For people: what runs, since when, for whom, and how far it is."""
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
    """The running queries and reads of a server, by id; those that end go into its log."""

    def __init__(self, log: QueryLog) -> None:
        self._queries: dict[str, RunningQuery] = {}
        self._log = log

    def __len__(self) -> int:
        return len(self._queries)

    def __iter__(self) -> Iterator[RunningQuery]:
        return iter(list(self._queries.values()))

    def add(self, wished_id: str, kind: str, text: str, principal: Principal) -> RunningQuery:
        """Register a query; its id is the one wished for unless that is taken."""
        query_id = wished_id if wished_id not in self._queries else uuid.uuid4().hex
        query = RunningQuery(query_id, kind, text, principal, Cancellation())
        self._queries[query_id] = query
        return query

    def remove(self, query: RunningQuery) -> None:
        """The query has ended."""
        self._queries.pop(query.id, None)

    @contextmanager
    def logged(self, query: RunningQuery, tally: Tally | None = None) -> Iterator[None]:
        """The work of a query, in any thread: it is in the log before its answer has ended."""
        failed: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            self.log(query, tally, failed)

    def log(self, query: RunningQuery, tally: Tally | None, error: BaseException | None) -> None:
        """Remember how a query ended."""
        rows = None if tally is None else tally.rows
        text = query.text[:TEXT_CHARACTERS_MAX]
        seconds = time.monotonic() - query.started
        self._log.note(query.id, query.kind, text, query.principal, seconds, rows, error)

    def find(self, query_id: str, principal: Principal) -> RunningQuery | None:
        """A query that the principal may see: its own, or any with the scope ``operate``."""
        query = self._queries.get(query_id)
        return query if query is not None and self.visible(query, principal) else None

    @staticmethod
    def visible(query: Owned, principal: Principal) -> bool:
        """Whether a principal may see and cancel a query."""
        return query.principal.token == principal.token or (
            principal.may("operate") and principal.everywhere
        )

    def cancel_all(self) -> None:
        """End them all; the server stops."""
        for query in self:
            query.cancellation.cancel()
