"""A database behind a server: the methods of ``Database`` that make sense remotely, over REST with
Arrow.

The errors are the same.  After a broken connection only repeatable requests are retried: reads, and
appends with an idempotency key.  ``connect`` sends nothing.  Thread-safe; a result or feed is for
one thread at a time.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import InvalidArgument, QueryTimeout, StreamNotFound, no_rollup
from ..query.sql.first_word import only_reads
from ..schema import StreamSchema, stream_schema, stream_settings
from . import calls
from .answers import damage_of, names_of, plan_of
from .calls import Expiry, Parameters, StreamCalls
from .live import RemoteJob, RemoteLive
from .outgoing import altered, dropped_with_views
from .stream import RemoteStream
from .transport import Transport

if TYPE_CHECKING:
    from ..query.contract.explanation import Plan
    from ..query.contract.result import Result


CATCH_UP_S = 10.0


class RemoteDatabase:
    """A server's database, made by ``chronicle.connect``; a context manager."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def url(self) -> str:
        return self._transport.where

    # ------------------------------------------------------------------ streams

    def create_stream(
        self,
        name: str,
        schema: pa.Schema | StreamSchema,
        time: str | None = None,
        *,
        retention: str | int | None = None,
        codec: str = "lz4",
        unique: str | Sequence[str] | None = None,
        within: str | int | None = None,
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> RemoteStream:
        """As ``Database.create_stream``."""
        made = stream_schema(name, schema, time)
        call = StreamCalls(name).create(
            made, codec, retention, stream_settings(options, unique, within), if_not_exists
        )
        return RemoteStream(self._transport, name, self._transport.json(call))

    def stream(self, name: str) -> RemoteStream:
        """The stream of that name; raises ``StreamNotFound`` with the nearest names."""
        return RemoteStream(
            self._transport, name, self._transport.json(StreamCalls(name).describe())
        )

    def streams(self) -> list[str]:
        """Names of all streams within the token's reach, sorted."""
        return names_of(self._transport.json(calls.list_streams())["streams"])

    def damaged(self) -> dict[str, str]:
        """Streams that cannot be opened, and why."""
        return damage_of(self._transport.json(calls.list_streams())["streams"])

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a stream, and with ``cascade`` views that read it; raises ``StreamNotFound``."""
        try:
            if cascade:
                self._transport.json(StreamCalls(name).describe())  # it is there
                self._transport.batches(calls.query(dropped_with_views(name))).read_all()
                return
            self._transport.json(StreamCalls(name).drop())
        except StreamNotFound:
            if not if_exists:
                raise

    def rename_stream(self, name: str, to: str) -> None:
        """Rename a stream; existing handles become invalid."""
        self._transport.batches(calls.query(altered(name, "RENAME", "", to))).read_all()

    # -------------------------------------------------------------------- query

    def sql(
        self,
        text: str,
        params: Parameters | None = None,
        timeout: float | None = None,
        *,
        read_only: bool = False,
    ) -> Result:
        """Run one SQL statement; as ``Database.sql``.

        ``timeout`` is in seconds, at most the server's limit.  The result's rows are fetched as
        they are taken; closing it ends the query on the server.
        """
        from ..query.contract.result import Result

        rows = self._transport.rows(calls.query(text, params, timeout, read_only=read_only))
        plan = None
        if only_reads(text):

            def plan() -> Plan:
                return self.explain(text, params=params, timeout=timeout)

        return Result(rows.schema, rows, plan, rows.close)

    def explain(
        self,
        text: str,
        analyze: bool = False,
        params: Parameters | None = None,
        timeout: float | None = None,
    ) -> Plan:
        """Plan a query; with ``analyze`` also run it and report what it read."""
        return plan_of(self._transport.json(calls.explain(text, analyze, params, timeout)))

    # ------------------------------------------------------------- live queries

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
    ) -> RemoteLive:
        """As ``Database.create_live``."""
        call = calls.create_live(
            name,
            sql,
            into=into,
            start=start,
            delay=delay,
            idle=idle,
            late=late,
            emit=emit,
            options=options,
            if_not_exists=if_not_exists,
        )
        return self._live(name, self._transport.json(call))

    def live(self, name: str) -> RemoteLive:
        """The live query of that name; raises ``StreamNotFound`` with the existing names."""
        return self._live(name, self._transport.json(calls.live(name)))

    def create_rollup(
        self,
        name: str,
        sql: str,
        *,
        delay: object = None,
        idle: object = None,
        options: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> RemoteLive:
        """As ``Database.create_rollup``."""
        call = calls.create_live(
            name,
            sql,
            delay=delay,
            idle=idle,
            options=options,
            if_not_exists=if_not_exists,
            rollup=True,
        )
        return self._live(name, self._transport.json(call))

    def rollup(self, name: str) -> RemoteLive:
        """The roll-up of that name; raises ``StreamNotFound`` with the existing names."""
        names = self.rollups()
        if name not in names:
            raise no_rollup(name, names)
        return self.live(name)

    def rollups(self) -> list[str]:
        """Names of all roll-ups within the token's reach, sorted."""
        told = self._transport.json(calls.list_live())["live"]
        return names_of([each for each in told if each["rollup"]])

    def _live(self, name: str, told: Any) -> RemoteLive:
        return RemoteLive(self._transport, name, self.run_live, told)

    def live_queries(self) -> list[str]:
        """Names of all live queries within the token's reach, sorted."""
        return names_of(self._transport.json(calls.list_live())["live"])

    def run_live(self, until: str = "caught up", timeout: float | None = None) -> None:
        """Wait until every live query has processed all present commits (``QueryTimeout``)."""
        if until != "caught up":
            raise InvalidArgument(f"until is 'caught up', found {until!r}")
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            left = CATCH_UP_S if ends is None else min(CATCH_UP_S, ends - time.monotonic())
            try:
                self._transport.json(calls.caught_up(max(0.001, left)))
                return
            except QueryTimeout:
                if ends is not None and time.monotonic() >= ends:
                    raise

    # --------------------------------------------------------- the server itself

    def start_job(self, kind: str, **asked: Any) -> RemoteJob:
        """Start long work on the server, independent of this connection.

        ``kind`` is ``backup``, ``check``, ``compact`` or another of ``docs/server.md``, which lists
        each kind's parameters (``asked``).
        """
        return RemoteJob(self._transport, self._transport.json(calls.begin_job(kind, asked)))

    def job(self, job_id: str) -> RemoteJob:
        """The job of that id; raises ``InvalidArgument``."""
        return RemoteJob(self._transport, self._transport.json(calls.job(job_id)))

    def jobs(self) -> list[dict[str, Any]]:
        """The status of all waiting, running and ended jobs, oldest first."""
        return list(self._transport.json(calls.list_jobs())["jobs"])

    def backups(self) -> list[dict[str, Any]]:
        """Backups by jobs: name, ``made_at`` (earlier deletes are not in it), ``state``, events."""
        return list(self._transport.json(calls.list_backups())["backups"])

    def create_token(
        self,
        name: str,
        scopes: Iterable[str] = ("read",),
        streams: Iterable[str] = ("*",),
        expires: Expiry = None,
    ) -> dict[str, Any]:
        """Create a token: as in ``tokens``, with its ``secret``, which is shown only once.

        Parameters
        ----------
        name : str
            For people: who or what uses it.
        scopes, streams : iterable of str
            Its rights, and globs over the names of the streams they apply to.
        expires : str, datetime or timedelta, optional
            A time (UTC unless it has an offset), or a span from now such as ``"90d"``.
        """
        call = calls.make_token(name, scopes, streams, expires)
        return dict(self._transport.json(call))

    def tokens(self) -> list[dict[str, Any]]:
        """The server's tokens, expired ones too: ``token_id``, name, scopes, streams, times."""
        return list(self._transport.json(calls.list_tokens())["tokens"])

    def rotate_token(
        self, token_id: str, overlap: str | dt.timedelta = "1h", expires: Expiry = None
    ) -> dict[str, Any]:
        """Replace a token; the old one stays valid for ``overlap``."""
        call = calls.rotate_token(token_id, overlap, expires)
        return dict(self._transport.json(call))

    def revoke_token(self, token_id: str) -> None:
        """Revoke a token, from the next request on."""
        self._transport.json(calls.revoke_token(token_id))

    def revoke_all_tokens(self) -> list[str]:
        """Revoke every token except this connection's; returns their ids."""
        return list(self._transport.json(calls.revoke_all_tokens())["revoked"])

    # --------------------------------------------------------------- life cycle

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._transport.close()

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<chronicle.Database of {self.url}>"
