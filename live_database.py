"""Live queries and roll-ups of a database, for Python.

A part of :class:`~chronicle.database.Database`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .errors import InvalidArgument, no_rollup
from .ownership import LOADING

if TYPE_CHECKING:
    from .live.engine import LiveQueries
    from .live.handle import LiveHandle
    from .store.file_contract import Files

__all__ = ["LiveDatabase"]


class LiveDatabase:
    """What a database offers of live queries."""

    @property
    def live_statements(self) -> LiveQueries:
        """Those who carry out statements about live queries."""
        raise NotImplementedError

    def create_live(
        self,
        name: str,
        sql: str,
        *,
        into: str | None = None,
        start: object = "first",
        delay: object = None,
        idle: object = None,
        late: object = "correct",
        emit: object = "close",
        options: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> LiveHandle:
        """Save a query that goes on: its results are put into a stream, as they become known.

        Parameters
        ----------
        name : str
            Of the live query, and of the stream of its results unless ``into`` names one.
        sql : str
            A SELECT; see ``docs/live.md`` for what it may be.
        into : str, optional
            A stream that several live queries with the same columns share.
        start : "first", "now" or time
            Results from that time on.
        delay : timedelta, int or str, optional
            How long events are waited for: an int where times are integers, a text as in INTERVAL.
        idle : "never", timedelta or str, optional
            Wall clock without a commit after which the newest time is closed, too; a second.
        late : "correct", "ignore", timedelta, int or str
            What late events do; a length of time: correct so far behind the watermark.
        emit : "close", timedelta or str
            When results are put out: when they are closed, or as they change, at most so often.
        options : mapping, optional
            What stands behind WITH: ``retention`` and ``durability`` of the stream of results,
            ``lag_events_max``, ``state_bytes_max``, ``on_truncate``, ``store``, ``webhook``.
        if_not_exists : bool
            Give back the live query of that name when there is one.

        Raises
        ------
        SqlError
            With line and column of what cannot be live, and what to write instead.
        """
        with LOADING:
            from .live.requests import request_of

        request = request_of(
            name, sql, into, start, delay, idle, late, emit, options or {}, if_not_exists
        )
        self.live_statements.create(request)
        return self.live(name)

    def create_rollup(
        self,
        name: str,
        sql: str,
        *,
        delay: object = None,
        idle: object = None,
        options: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> LiveHandle:
        """Save aggregates of windows that outlive the events they are made of, and answer for them.

        Parameters
        ----------
        name : str
            Of the roll-up, and of the stream of its results.
        sql : str
            ``SELECT window_start, keys, aggregates FROM TUMBLE(...) GROUP BY ...``; see
            ``docs/rollups.md`` for what it may be.
        delay, idle : optional
            As of :meth:`create_live`.
        options : mapping, optional
            ``retention`` and ``durability`` of the stream of results, and limits.
        if_not_exists : bool
            Give back the roll-up of that name when there is one.

        Returns
        -------
        LiveHandle
            It is a live query: ``status()``, ``net()``, ``verify()``, ``refresh()``, ``drop()``.

        Raises
        ------
        SqlError
            With line and column of what cannot be in a roll-up.
        """
        with LOADING:
            from .live.requests import request_of

        request = request_of(
            name, sql, None, "first", delay, idle, "correct", "close", options or {}, if_not_exists
        )
        self.live_statements.create(replace(request, rollup=True))
        return self.rollup(name)

    def rollup(self, name: str) -> LiveHandle:
        """The roll-up of that name; raises :class:`StreamNotFound` with the names there are."""
        names = self.rollups()
        if name not in names:
            raise no_rollup(name, names)
        return self.live(name)

    def rollups(self) -> list[str]:
        """Names of all roll-ups, sorted."""
        return self.live_statements.rollups()

    def _hold_for_rollups(self, files: Files) -> None:
        """Have retention wait for roll-ups that there are; those who write begin with this."""
        if not files.exists("live"):
            return
        with LOADING:
            from .live.definition import kept_definitions

        known, _ = kept_definitions(files)
        if any(definition.rollup is not None for definition in known.values()):
            _ = self.live_statements

    def await_live(self, stream: str) -> None:
        """Wait for live queries with a limit on their lag, after an append to a stream."""
        raise NotImplementedError

    def live(self, name: str) -> LiveHandle:
        """The live query of that name; raises :class:`StreamNotFound` with the names there are."""
        with LOADING:
            from .live.handle import LiveHandle

        return LiveHandle(self.live_statements, name)

    def live_queries(self) -> list[str]:
        """Names of all live queries, sorted."""
        return self.live_statements.names()

    def run_live(self, until: str = "caught up", timeout: float | None = None) -> None:
        """Return when every live query has taken in every commit so far.

        Where the database was not opened with ``live=True``, the work is done here.

        Raises
        ------
        QueryTimeout
            When it takes longer than ``timeout`` seconds.
        """
        if until != "caught up":
            raise InvalidArgument(f"until is 'caught up', found {until!r}")
        self.live_statements.run(timeout)
