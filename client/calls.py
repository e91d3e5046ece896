"""Requests as values, independent of how they are sent; shared by both clients.  A *repeatable*
call has the same effect when it is executed twice.

The calls are those of SQL, live queries, streams, tokens, jobs and backups; see ``docs/rest.md``.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ..core.sql_text import quoted_name
from ..errors import InvalidArgument, SqlError
from ..query.sql.first_word import only_reads
from ..schema import StreamSchema

Parameters = Mapping[str, Any] | Sequence[Any]


@dataclass(frozen=True)
class Call:
    """One request.  None values of ``query`` are omitted; ``body`` is sent as JSON unless None.
    With ``may_be_cut`` the call has a limit, so truncated rows are a complete answer.
    """

    method: str
    path: str
    query: Mapping[str, object | None] = field(default_factory=dict)
    body: object | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    may_be_cut: bool = False

    @property
    def again(self) -> bool:
        """Whether it may be retried when its outcome is unknown."""
        return self.repeatable or self.method != "POST"

    @property
    def target(self) -> str:
        parameters = {name: str(value) for name, value in self.query.items() if value is not None}
        return self.path + (f"?{urllib.parse.urlencode(parameters)}" if parameters else "")

    @property
    def payload(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body, allow_nan=False).encode()


def quoted(name: str) -> str:
    """A name as a path segment; raises ``InvalidArgument`` for an empty one."""
    if not name:
        raise InvalidArgument("expected a name or an id, found an empty text")
    return urllib.parse.quote(name, safe="")


def bounds(schema: StreamSchema, start: object, end: object) -> dict[str, int | None]:
    low, high = schema.tick_range(start, end)
    return {"start": low, "end": high}


def query(
    text: str,
    params: Parameters | None = None,
    timeout: float | None = None,
    *,
    read_only: bool = False,
    limit: int | None = None,
) -> Call:
    """A SQL statement, answered as an Arrow stream; reads are repeatable."""
    body = statement(text, params, timeout)
    read_only = read_only or only_reads(text)
    if read_only:
        body["read_only"] = True
    if limit is not None:
        body["limit"] = limit
    return Call(
        "POST",
        "/v1/query",
        {"format": "arrow"},
        body,
        repeatable=read_only,
        may_be_cut=limit is not None,
    )


def live(name: str, what: str = "", method: str = "GET", **query: object | None) -> Call:
    path = f"/v1/live/{quoted(name)}" + (f"/{what}" if what else "")
    return Call(method, path, query, repeatable=True)


def live_rows(name: str, after: int, follow: bool) -> Call:
    return live(name, "rows", after=after, follow=follow)


def net(name: str, schema: StreamSchema | None, start: object, end: object) -> Call:
    """The current results of a live query; a time range needs the sink's schema."""
    text = f"SELECT * FROM NET({quoted_name(name)})"
    if schema is None:
        return query(text)
    limits = {k: v for k, v in bounds(schema, start, end).items() if v is not None}
    signs = {"start": ">=", "end": "<"}
    text += " WHERE " + " AND ".join(f"_time {signs[name]} ${name}" for name in limits)
    ticks = {key: pa.scalar(value, pa.int64()) for key, value in limits.items()}
    return query(text, {key: value.cast(schema.time_type) for key, value in ticks.items()})


def length(value: Any) -> Any:
    """A span or time of a live query as the server reads it."""
    if isinstance(value, dt.timedelta):
        return f"{value // dt.timedelta(microseconds=1)} microseconds"
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    return value


def statement(text: str, params: Parameters | None, timeout: float | None) -> dict[str, Any]:
    body: dict[str, Any] = {"sql": text}
    if isinstance(params, Mapping):
        body["params"] = {str(key): in_json(value) for key, value in params.items()}
    elif params is not None:
        if isinstance(params, (str, bytes)) or not isinstance(params, Sequence):
            raise SqlError(
                f"params is a mapping for $name or a list for ?, found {type(params).__name__}"
            )
        body["params"] = [in_json(value) for value in params]
    if timeout is not None:
        body["timeout_ms"] = max(1, int(timeout * 1000))
    return body


def in_json(value: Any) -> Any:
    """A parameter as the server reads it; types that JSON lacks are tagged."""
    if isinstance(value, pa.Scalar):
        if pa.types.is_timestamp(value.type) and value.is_valid:
            return _typed("timestamp" if value.type.tz is None else "timestamptz", _text(value))
        return in_json(value.as_py())
    if isinstance(value, float) and not math.isfinite(value):
        return _typed("double", str(value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dt.datetime):
        return _typed("timestamp" if value.tzinfo is None else "timestamptz", value.isoformat())
    if isinstance(value, dt.date):
        return _typed("date", value.isoformat())
    if isinstance(value, dt.timedelta):
        return _typed("interval", f"{value // dt.timedelta(microseconds=1)} microseconds")
    if isinstance(value, Decimal):
        return _typed("decimal", str(value))
    if isinstance(value, (bytes, bytearray)):
        return _typed("blob", base64.b64encode(value).decode())
    if isinstance(value, (list, tuple)):
        return [in_json(item) for item in value]
    if type(value).__module__ == "numpy":
        return in_json(pa.scalar(value))
    raise SqlError(f"a parameter has a value of type {type(value).__name__}, which SQL lacks")


def _typed(type_: str, value: str) -> dict[str, str]:
    return {"type": type_, "value": value}


def _text(scalar: pa.Scalar) -> str:
    naive = scalar.cast(pa.timestamp(scalar.type.unit)).cast(pa.string()).as_py()
    return str(naive) if scalar.type.tz is None else f"{naive}+00:00"


TOKENS = "/v1/tokens"
JOBS = "/v1/jobs"
Expiry = str | dt.datetime | dt.timedelta | None


def job(job_id: str, method: str = "GET") -> Call:
    return Call(method, f"{JOBS}/{quoted(job_id)}")


def expiry(expires: Expiry) -> str | None:
    """A time or a span as the server reads it; spans in whole seconds."""
    if isinstance(expires, dt.timedelta):
        return f"{expires // dt.timedelta(seconds=1)}s"
    return expires.isoformat() if isinstance(expires, dt.datetime) else expires


class StreamCalls:
    """Requests about one stream, which need not exist; ``bounds`` are ``start`` and ``end`` in
    ticks.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def path(self) -> str:
        """Raises ``InvalidArgument`` without a name, which Spark lacks for a query."""
        return f"/v1/streams/{quoted(self.name)}"

    def describe(self) -> Call:
        return Call("GET", self.path)

    def create(
        self,
        schema: StreamSchema,
        codec: str,
        retention: str | int | None,
        options: Mapping[str, Any] | None,
        if_not_exists: bool,
    ) -> Call:
        body: dict[str, Any] = {
            "name": self.name,
            "time": schema.time,
            "arrow_schema": base64.b64encode(schema.arrow.serialize()).decode("ascii"),
            "codec": codec,
            "retention": retention,
            "if_not_exists": if_not_exists,
        }
        if options:
            body["options"] = dict(options)
        return Call("POST", "/v1/streams", body=body, repeatable=if_not_exists)

    def drop(self) -> Call:
        return Call("DELETE", self.path)

    def index(self, attribute: str, method: str, **query: object | None) -> Call:
        return Call(method, f"{self.path}/indexes/{quoted(attribute)}", query)

    # ----------------------------------------------------------------------------------- events

    def append(self, durability: str | None = None, key: str | None = None) -> Call:
        """Repeatable with a key."""
        headers = {} if key is None else {"Idempotency-Key": key}
        path = f"{self.path}/events"
        query = {"durability": durability}
        return Call("POST", path, query, headers=headers, repeatable=key is not None)

    def change(self, what: str, where: str | None, **body: object | None) -> Call:
        """``what`` is "delete" or "update"; ``body`` has ``start``, ``end`` and new values."""
        body["where"] = "true" if where is None else where
        return Call("POST", f"{self.path}/{what}", body=body)

    def events(
        self,
        columns: Sequence[str] | None,
        where: str | None,
        limit: int | None,
        **bounds: object | None,
    ) -> Call:
        """Events in time order; ``bounds`` are ``start``, ``end`` (ticks), ``version``."""
        query = {"columns": listed(columns), "where": where, "limit": limit, **bounds}
        query["format"] = "arrow"
        return Call("GET", f"{self.path}/events", query, may_be_cut=limit is not None)

    def aggregate(
        self, attributes: Sequence[str], functions: Iterable[str], **bounds: int | None
    ) -> Call:
        query = {"attribute": listed(attributes), "functions": ",".join(functions), **bounds}
        return Call("GET", f"{self.path}/aggregate", query)

    def partitions(self, parts: int | None, **bounds: object | None) -> Call:
        return Call("GET", f"{self.path}/partitions", {"parts": parts, **bounds})

    # ----------------------------------------------------------------------------- transactions

    def put_part(self, transaction: str, part: str) -> Call:
        return Call("PUT", f"{self._transaction(transaction)}/parts/{part}")

    def commit(
        self,
        transaction: str,
        parts: Sequence[str],
        truncate: bool,
        over: tuple[int | None, int | None] | None,
        application: str | None,
        version: int | None,
    ) -> Call:
        """Commit parts; repeatable.  ``over``: a range to replace, in ticks."""
        body: dict[str, Any] = {"parts": list(parts), "truncate": truncate}
        if over is not None:
            body["replace"] = {"start": over[0], "end": over[1]}
        if application is not None and version is not None:
            body |= {"app_id": application, "app_version": version}
        path = f"{self._transaction(transaction)}/commit"
        return Call("POST", path, body=body, repeatable=True)

    def abort(self, transaction: str) -> Call:
        return Call("DELETE", self._transaction(transaction))

    def _transaction(self, name: str) -> str:
        return f"{self.path}/transactions/{quoted(name)}"

    # -------------------------------------------------------------------------------- following

    def tail(
        self, after: str | int, follow: bool, where: str | None, columns: Sequence[str] | None
    ) -> Call:
        query = {"after": after, "follow": follow, "where": where, "columns": listed(columns)}
        return Call("GET", f"{self.path}/tail", query)

    def keep_position(self, **which: object | None) -> Call:
        """``at`` a commit, or the last one if it is ``after`` a position."""
        return Call("POST", f"{self.path}/positions", body=which)

    def drop_position(self, name: str) -> Call:
        return Call("DELETE", f"{self.path}/positions/{quoted(name)}")

    def changes(self, after: str | None, until: str) -> Call:
        return Call("GET", f"{self.path}/changes", {"after": after, "until": until})

    def new_events(
        self,
        after: str | None,
        until: str,
        columns: Sequence[str] | None,
        **bounds: object | None,
    ) -> Call:
        query = {"after": after, "until": until, "columns": listed(columns), **bounds}
        query["format"] = "arrow"
        return Call("GET", f"{self.path}/changes/events", query, may_be_cut=True)


def listed(columns: Iterable[str] | None) -> str | None:
    if columns is None:
        return None
    return ",".join(map(quoted_name, columns))
