"""Requests as values, independent of how they are sent, and the values that they carry.  A
*repeatable* call has the same effect when it is executed twice.

Here are the calls of SQL, and those that several modules send; others are made where they are
sent (``Transport.ask``).  ``docs/rest.md`` describes them all.
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
from ..core.times import time_text
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


def path_of(*parts: str) -> str:
    """A path of names; raises ``InvalidArgument`` for an empty one."""
    if not all(parts):
        raise InvalidArgument("expected a name or an id, found an empty text")
    return "/".join(("/v1", *(urllib.parse.quote(part, safe="") for part in parts)))


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
            return _typed(
                "timestamp" if value.type.tz is None else "timestamptz",
                time_text(value.value, value.type),
            )
        try:
            return in_json(value.as_py())
        except (OverflowError, ValueError):
            raise SqlError(
                "a parameter is beyond the years 1 to 9999, which SQL lacks as a value"
            ) from None
    if isinstance(value, float) and not math.isfinite(value):
        return _typed("double", str(value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value).__name__ in ("NaTType", "NAType"):  # of pandas
        return None
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise SqlError(
            f"a parameter is finer than a microsecond ({value}); of a time pass nanoseconds since "
            "the epoch as an integer and write make_timestamp_ns($n)"
        )
    if isinstance(value, dt.time):
        return _typed("time", value.isoformat())
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


Expiry = str | dt.datetime | dt.timedelta | None


def expiry(expires: Expiry) -> str | None:
    """A time or a span as the server reads it; spans in whole seconds."""
    if isinstance(expires, dt.timedelta):
        return f"{expires // dt.timedelta(seconds=1)}s"
    return expires.isoformat() if isinstance(expires, dt.datetime) else expires


def append(stream: str, durability: str | None = None, key: str | None = None) -> Call:
    """Repeatable with a key."""
    headers = {} if key is None else {"Idempotency-Key": key}
    path, query = path_of("streams", stream, "events"), {"durability": durability}
    return Call("POST", path, query, headers=headers, repeatable=key is not None)


def events(
    stream: str,
    columns: Sequence[str] | None,
    where: str | None,
    limit: int | None,
    **bounds: object | None,
) -> Call:
    """Events in time order; ``bounds`` are ``start``, ``end`` (ticks), ``version``."""
    query = {"columns": listed(columns), "where": where, "limit": limit, **bounds}
    path = path_of("streams", stream, "events")
    return Call("GET", path, {**query, "format": "arrow"}, may_be_cut=limit is not None)


def new_events(
    stream: str,
    after: str | None,
    until: str,
    columns: Sequence[str] | None,
    **bounds: object | None,
) -> Call:
    """Events between two positions; ``bounds`` are ``start``, ``end``, ``skip``, ``limit``."""
    query = {"after": after, "until": until, "columns": listed(columns), **bounds}
    path = path_of("streams", stream, "changes", "events")
    return Call("GET", path, {**query, "format": "arrow"}, may_be_cut=True)


def listed(columns: Iterable[str] | None) -> str | None:
    if columns is None:
        return None
    return ",".join(map(quoted_name, columns))
