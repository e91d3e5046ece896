"""A database behind a server: the methods of ``Database`` that make sense remotely, over REST with
Arrow.

The errors are the same.  After a broken connection only repeatable requests are retried: reads, and
appends with an idempotency key.  Thread-safe; a result or feed is for
one thread at a time.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.closing import Closing
from ..core.sql_text import parameters_of
from ..errors import InvalidArgument, StreamNotFound, no_rollup
from ..query.sql.first_word import only_reads
from ..schema import StreamSchema, stream_schema, stream_settings
from . import calls
from .calls import Expiry, Parameters, expiry
from .conversion import altered, dropped_with_views, names_of
from .live import RemoteJob, RemoteLive, caught_up
from .stream import RemoteStream
from .transport import Transport

if TYPE_CHECKING:
    from ..query.contract.explanation import Plan
    from ..query.contract.result import Result


class RemoteDatabase(Closing):
    """A server's database, made by ``chronicle.connect``; a context manager."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._ask = transport.ask

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
        body = {
            "name": name,
            "time": made.time,
            "arrow_schema": base64.b64encode(made.arrow.serialize()).decode("ascii"),
            "codec": codec,
            "retention": retention,
            "if_not_exists": if_not_exists,
            "options": stream_settings(options, unique, within) or {},
        }
        described = self._ask("POST", "streams", body=body, repeatable=if_not_exists)
        return RemoteStream(self._transport, name, described)

    def stream(self, name: str) -> RemoteStream:
        """The stream of that name; raises ``StreamNotFound`` with the nearest names."""
        return RemoteStream(self._transport, name, self._ask("GET", "streams", name))

    __getitem__ = stream

    def __contains__(self, name: object) -> bool:
        return name in self.streams()

    def __iter__(self) -> Iterator[str]:
        return iter(self.streams())

    def streams(self) -> list[str]:
        """Names of all streams within the token's reach, sorted."""
        return names_of(self._ask("GET", "streams")["streams"])

    def damaged(self) -> dict[str, str]:
        """Streams that cannot be opened, and why."""
        listed = self._ask("GET", "streams")["streams"]
        return {each["name"]: each["damage"] for each in listed if "damage" in each}

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a stream, and with ``cascade`` views that read it; raises ``StreamNotFound``."""
        try:
            if cascade:
                self._ask("GET", "streams", name)  # it is there
                self._transport.batches(calls.query(dropped_with_views(name))).read_all()
                return
            self._ask("DELETE", "streams", name)
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
        /,
        params: Parameters | None = None,
        timeout: float | None = None,
        *,
        read_only: bool = False,
        **values: Any,
    ) -> Result:
        """Run one SQL statement; as ``Database.sql``.

        ``timeout`` is in seconds, at most the server's limit.  The result's rows are fetched as
        they are taken; closing it ends the query on the server.
        """
        from ..query.contract.result import Result

        params = parameters_of(params, values)
        rows = self._transport.rows(calls.query(text, params, timeout, read_only=read_only))
        plan = None
        if only_reads(text):

            def plan() -> Plan:
                return self.explain(text, params=params, timeout=timeout)

        return Result(rows.schema, rows, plan, rows.close)

    def explain(
        self,
        text: str,
        /,
        analyze: bool = False,
        params: Parameters | None = None,
        timeout: float | None = None,
        **values: Any,
    ) -> Plan:
        """Plan a query; with ``analyze`` also run it and report what it read."""
        from ..query.contract.explanation import Plan

        params = parameters_of(params, values)
        body = {**calls.statement(text, params, timeout), "analyze": analyze}
        return Plan.from_dict(self._ask("POST", "explain", body=body, repeatable=not analyze))

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
        settings = {
            "into": into,
            "start": start,
            "delay": delay,
            "idle": idle,
            "late": late,
            "emit": emit,
            "if_not_exists": if_not_exists,
        }
        return self._live_query(name, sql, options, settings)

    def _live_query(
        self, name: str, sql: str, options: Mapping[str, Any] | None, settings: Mapping[str, object]
    ) -> RemoteLive:
        body: dict[str, Any] = {key: calls.length(value) for key, value in settings.items()}
        body["options"] = {key: calls.in_json(value) for key, value in (options or {}).items()}
        described = self._ask("POST", "live", body={"name": name, "sql": sql, **body})
        return RemoteLive(self._transport, name, described)

    def live(self, name: str) -> RemoteLive:
        """The live query of that name; raises ``StreamNotFound`` with the existing names."""
        return RemoteLive(self._transport, name, self._ask("GET", "live", name))

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
        settings = {"delay": delay, "idle": idle, "if_not_exists": if_not_exists, "rollup": True}
        return self._live_query(name, sql, options, settings)

    def rollup(self, name: str) -> RemoteLive:
        """The roll-up of that name; raises ``StreamNotFound`` with the existing names."""
        names = self.rollups()
        if name not in names:
            raise no_rollup(name, names)
        return self.live(name)

    def rollups(self) -> list[str]:
        """Names of all roll-ups within the token's reach, sorted."""
        return names_of(each for each in self._ask("GET", "live")["live"] if each["rollup"])

    def live_queries(self) -> list[str]:
        """Names of all live queries within the token's reach, sorted."""
        return names_of(self._ask("GET", "live")["live"])

    def run_live(self, until: str = "caught up", timeout: float | None = None) -> None:
        """Wait until every live query has processed all present commits (``QueryTimeout``)."""
        if until != "caught up":
            raise InvalidArgument(f"until is 'caught up', found {until!r}")
        caught_up(self._transport, timeout)

    # --------------------------------------------------------- the server itself

    def start_job(self, /, kind: str, **settings: Any) -> RemoteJob:
        """Start long work on the server, independent of this connection.

        ``kind`` is ``backup``, ``check``, ``compact`` or another of ``docs/server.md``, which lists
        each kind's parameters (``asked``).
        """
        options = {name: value for name, value in settings.items() if value is not None}
        described = self._ask("POST", "jobs", body={"kind": kind, **options})
        return RemoteJob(self._transport, described)

    def job(self, job_id: str) -> RemoteJob:
        """The job of that id; raises ``InvalidArgument``."""
        return RemoteJob(self._transport, self._ask("GET", "jobs", job_id))

    def jobs(self) -> list[dict[str, Any]]:
        """The status of all waiting, running and ended jobs, oldest first."""
        return list(self._ask("GET", "jobs")["jobs"])

    def backups(self) -> list[dict[str, Any]]:
        """Backups by jobs: name, ``made_at`` (earlier deletes are not in it), ``state``, events."""
        return list(self._ask("GET", "backups")["backups"])

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
        rights = {"scopes": list(scopes), "streams": list(streams)}
        body = {"name": name, **rights, "expires": expiry(expires)}
        return dict(self._ask("POST", "tokens", body=body))

    def tokens(self) -> list[dict[str, Any]]:
        """The server's tokens, expired ones too: ``token_id``, name, scopes, streams, times."""
        return list(self._ask("GET", "tokens")["tokens"])

    def rotate_token(
        self, token_id: str, overlap: str | dt.timedelta = "1h", expires: Expiry = None
    ) -> dict[str, Any]:
        """Replace a token; the old one stays valid for ``overlap``."""
        body = {"overlap": expiry(overlap), "expires": expiry(expires)}
        return dict(self._ask("POST", "tokens", token_id, "rotate", body=body))

    def revoke_token(self, token_id: str) -> None:
        """Revoke a token, from the next request on."""
        self._ask("DELETE", "tokens", token_id)

    def revoke_all_tokens(self) -> list[str]:
        """Revoke every token except this connection's; returns their ids."""
        return list(self._ask("DELETE", "tokens")["revoked"])

    # --------------------------------------------------------------- life cycle

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._transport.close()

    def __repr__(self) -> str:
        return f"<chronicle.Database of {self.url}>"
