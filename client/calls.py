"""Requests as values, independent of how they are sent; shared by both clients.  ``stream_calls``
has the routes of streams, this module those of SQL and live queries.  A *repeatable* call has the
same effect when it is executed twice.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ..errors import InvalidArgument, SqlError
from ..query.sql.first_word import only_reads
from ..schema import StreamSchema

__all__ = [
    "Call",
    "bounds",
    "caught_up",
    "check",
    "create_live",
    "explain",
    "in_json",
    "list_live",
    "list_streams",
    "live",
    "live_rows",
    "net",
    "query",
    "quoted",
]

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
        given = {name: str(value) for name, value in self.query.items() if value is not None}
        return self.path + (f"?{urllib.parse.urlencode(given)}" if given else "")

    @property
    def payload(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body, allow_nan=False).encode()


def quoted(name: str) -> str:
    """A name as a path segment; raises ``InvalidArgument`` for an empty one."""
    if not name:
        raise InvalidArgument("expected a name or an id, found an empty text")
    return urllib.parse.quote(name, safe="")


def bounds(schema: StreamSchema, start: object, end: object) -> dict[str, int | None]:
    return {
        "start": None if start is None else schema.to_ticks(start),
        "end": None if end is None else schema.to_ticks(end),
    }


def list_streams() -> Call:
    return Call("GET", "/v1/streams")


def query(
    text: str,
    params: Parameters | None = None,
    timeout: float | None = None,
    *,
    read_only: bool = False,
    limit: int | None = None,
) -> Call:
    """A SQL statement, answered as an Arrow stream; reads are repeatable."""
    body = _statement(text, params, timeout)
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


def explain(
    text: str, analyze: bool, params: Parameters | None = None, timeout: float | None = None
) -> Call:
    body = {**_statement(text, params, timeout), "analyze": analyze}
    return Call("POST", "/v1/explain", body=body, repeatable=not analyze)


def check(sql: str) -> Call:
    return query(sql, limit=0)


def live(name: str, what: str = "", method: str = "GET", **query: object | None) -> Call:
    path = f"/v1/live/{quoted(name)}" + (f"/{what}" if what else "")
    return Call(method, path, query, repeatable=True)


def create_live(name: str, sql: str, **said: Any) -> Call:
    options = {key: in_json(value) for key, value in dict(said.pop("options") or {}).items()}
    body = {"name": name, "sql": sql, "options": options}
    body |= {key: _length(value) for key, value in said.items()}
    return Call("POST", "/v1/live", body=body)


def live_rows(name: str, after: int, follow: bool) -> Call:
    return live(name, "rows", after=after, follow=follow)


def list_live() -> Call:
    return Call("GET", "/v1/live")


def caught_up(seconds: float) -> Call:
    query = {"timeout_ms": max(1, int(seconds * 1000))}
    return Call("POST", "/v1/live/catch-up", query, repeatable=True)


def net(name: str, schema: StreamSchema | None, start: object, end: object) -> Call:
    """The current results of a live query; a time range needs the sink's schema."""
    text = "SELECT * FROM NET(" + '"' + name.replace('"', '""') + '")'
    if schema is None:
        return query(text)
    given = {k: v for k, v in bounds(schema, start, end).items() if v is not None}
    signs = {"start": ">=", "end": "<"}
    text += " WHERE " + " AND ".join(f"_time {signs[name]} ${name}" for name in given)
    ticks = {key: pa.scalar(value, pa.int64()) for key, value in given.items()}
    return query(text, {key: value.cast(schema.time_type) for key, value in ticks.items()})


def _length(value: Any) -> Any:
    if isinstance(value, dt.timedelta):
        return f"{value // dt.timedelta(microseconds=1)} microseconds"
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    return value


def _statement(text: str, params: Parameters | None, timeout: float | None) -> dict[str, Any]:
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
