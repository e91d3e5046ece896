"""Routes of SQL.  ``GET /v1/query`` changes nothing, whatever the text says.  A query ends on its
time limit, when its client disconnects, and when it is cancelled, but not while it commits.

Parameters come from JSON.  SQL types that JSON lacks are objects: ``{"type": "timestamp", "value":
"2018-08-01T06:00:00"}``.  A value that its type cannot hold is refused with the parameter's name.

Queries whose rows become part of a small JSON answer each take a query slot, are listed and
cancellable, are read-only, and end as above.  Among them are matches to draw (variables of a
pattern, events of one match, pairs of a recency join), which ``query.matches`` computes.

For SQL editors, a check parses, binds and authorizes a statement, but runs nothing; it does not
find errors that depend on values or rows.
"""

from __future__ import annotations

import base64
import datetime as dt
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache, partial
from typing import Annotated, Any, Literal, cast

import orjson
from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from ...core.times import moment_of
from ...errors import Forbidden, InvalidArgument, SqlError
from ...query.contract.access import Access
from ...query.contract.explanation import Plan
from ...query.contract.result import Result
from ...query.matches import events_of, outlined, pairs_of
from ...query.sql.parameters import names_in
from ..access.auth import authorize
from ..http.replies import Problem, jsonable, problem_document
from ..service.middleware import STATEMENT
from ..service.query_log import RunningQuery, sees
from ..service.row_stream import RowEncoding, open_statement
from . import answers
from .answers import ROW_FILE, ROWS, SQL, UNCHANGED, Json
from .pages import Asset
from .parameters import Limit, ResultEncoding
from .route import Call, Called, Routes
from .row_responses import ClientWatch, send_rows


def _span(text: str) -> dt.timedelta:
    number, _, unit = text.partition(" ")
    if unit != "microseconds":
        raise ValueError("an interval is a number of microseconds, such as '1500000 microseconds'")
    return dt.timedelta(microseconds=int(number))


def _blob(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


TYPES: dict[str, Callable[[str], Any]] = {
    "timestamp": moment_of,
    "timestamptz": partial(moment_of, zone="UTC"),
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "interval": _span,
    "decimal": Decimal,
    "double": float,
    "blob": _blob,
}


def values_of(params: dict[str, Any] | list[Any] | None) -> dict[str, Any] | list[Any] | None:
    """The values as Python types; raises ``InvalidArgument``."""
    if isinstance(params, dict):
        return {name: _value(name, given) for name, given in params.items()}
    if isinstance(params, list):
        return [_value(str(place), given) for place, given in enumerate(params, start=1)]
    return None


def _value(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(name, item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if set(value) != {"type", "value"} or value["type"] not in TYPES:
        raise InvalidArgument(
            f"the parameter ${name} is an object; one has the members type (one of "
            f"{', '.join(TYPES)}) and value"
        )
    try:
        return TYPES[value["type"]](str(value["value"]))
    except (ValueError, ArithmeticError, InvalidArgument) as error:
        raise InvalidArgument(
            f"the parameter ${name} is no {value['type']}: {value['value']!r} ({error})"
        ) from None


routes = Routes("queries", "/v1")
Params = dict[str, Any] | list[Any] | None


class QuerySpec(BaseModel):
    """A query."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "sql": "SELECT icao24, max(altitude) FROM flights WHERE altitude > $low "
                    "GROUP BY icao24",
                    "params": {"low": 1000},
                    "limit": 100,
                }
            ]
        },
    )

    sql: str = Field(description="One statement.")
    params: Params = Field(
        None,
        description="Values for $name (object) or ? and $1 (array); {type, value}: of that type.",
    )
    limit: int | None = Field(None, ge=0, description="Most rows to send.")
    timeout_ms: int | None = Field(
        None, ge=1, description="Time limit; at most CHRONICLE_QUERY_TIMEOUT_MS."
    )
    read_only: bool = Field(False, description="Refuse a statement that changes the store.")


class ExplainSpec(BaseModel):
    """A query to be explained."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(description="One query.")
    analyze: bool = Field(False, description="Run it, and say what it read.")
    params: Params = None
    timeout_ms: int | None = Field(None, ge=1)


@routes.get("/query", "Run a query, read-only", head=True, responses=ROW_FILE)
async def get_query(
    call: Call,
    encoding: ResultEncoding,
    q: Annotated[str, Query(description="One query.")],
    limit: Limit = None,
    timeout_ms: Annotated[int | None, Query(ge=1)] = None,
) -> Response:
    """For curl and browsers; statements that change something are refused.

    HEAD, `Range`, `If-Match`, `If-None-Match` and `If-Range` make the answer a file.
    """
    spec = QuerySpec(sql=q, params=None, limit=limit, timeout_ms=timeout_ms, read_only=True)
    return await _run(call, spec, encoding)


@routes.post("/query", "Run a SQL statement", responses=ROWS, example=SQL)
async def post_query(call: Call, encoding: ResultEncoding, spec: QuerySpec) -> Response:
    """Any statement of the dialect; rows come as they are computed."""
    return await _run(call, spec, encoding)


async def _run(call: Called, spec: QuerySpec, encoding: RowEncoding) -> Response:
    server = call.server
    timeout = _timeout(server.settings.query_timeout, spec.timeout_ms)
    call.request.scope[STATEMENT] = spec.sql

    def open_rows(query: RunningQuery) -> Result:
        params = values_of(spec.params)
        return open_statement(
            server, call.principal, query, spec.sql, params, timeout, read_only=spec.read_only
        )

    return await send_rows(
        call, server.queries, "query", spec.sql, open_rows, encoding, limit=spec.limit
    )


@routes.post("/explain", "Explain a query", answers.Explained, example=SQL)
async def explain(call: Call, spec: ExplainSpec) -> Json:
    """How a query would run; with `analyze`, how it ran: `text` for people, `plan` for programs."""
    server = call.server
    timeout = _timeout(server.settings.query_timeout, spec.timeout_ms)

    def run() -> Plan:
        return server.engine_for(call.principal).explain(
            spec.sql,
            values_of(spec.params),
            analyze=spec.analyze,
            timeout=timeout,
            allowed=partial(authorize, call.principal),
        )

    async with server.queries.held(call.client):
        plan = await server.call(run)
    return {**jsonable(plan.to_dict()), "text": str(plan)}


@routes.get("/queries", "List what runs", answers.Queries)
async def list_queries(call: Call) -> Json:
    """Queries and reads of this token; with the scope `operate`, of all."""
    running = call.server.running
    return {"queries": [q.to_json() for q in running if sees(call.principal, q.principal)]}


@routes.delete("/queries/{query_id}", "Cancel a query", status=204)
async def cancel_query(call: Call, query_id: str) -> None:
    """End a query or read; its own request is answered with 499, or broken off."""
    query = call.server.running.find(query_id, call.principal)
    if query is None:
        raise Problem(
            "not-found", f"no query {query_id!r} runs here; GET /v1/queries lists those that do"
        )
    query.cancellation.cancel()


def _timeout(most: float, wished_ms: int | None) -> float:
    return most if wished_ms is None else min(int(most * 1000), wished_ms) / 1000


async def _listed(call: Called, text: str, work: Callable[[RunningQuery], Json]) -> Json:
    server = call.server
    async with server.queried(call.id, text, call.principal) as query:
        watch = ClientWatch(call.request, query)
        try:
            with server.running.logged(query):
                return await server.call(work, query)
        finally:
            watch.end()


MATCHES_MAX = 10_000


class ChosenMatch(BaseModel):
    """One match: its number within its partition."""

    model_config = ConfigDict(extra="forbid")

    number: int = Field(ge=1)
    partition: list[str | int | float | bool | None] = Field(default_factory=list)


class MatchesSpec(BaseModel):
    """A statement whose matches are wanted."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "sql": "SELECT * FROM flights MATCH_RECOGNIZE (PARTITION BY icao24 "
                    "ORDER BY timestamp PATTERN (A B+) DEFINE B AS altitude < PREV(altitude)) AS m",
                    "limit": 100,
                }
            ]
        },
    )

    sql: str = Field(description="One query with MATCH_RECOGNIZE or RECENT JOIN.")
    params: dict[str, Any] | None = Field(None, description="Values for $name.")
    limit: int = Field(1000, ge=1, le=MATCHES_MAX, description="Most matches or pairs to send.")
    mode: Literal["outline", "events", "pairs"] = Field(
        "outline", description="All matches in outline, the events of one, or a join's pairs."
    )
    match: ChosenMatch | None = Field(None, description="With events: which match.")


@routes.post("/matches", "Matches, to be drawn", answers.Matches)
async def matches(call: Call, spec: MatchesSpec) -> Json:
    """Where each variable of a row pattern was met; with `mode: events` one match's events, with
    `mode: pairs` the times of the pairs of a recency join."""
    server, principal = call.server, call.principal

    def run(query: RunningQuery) -> Json:
        until = time.monotonic() + server.settings.query_timeout

        def ask(text: str, params: Mapping[str, Any] | None) -> Result:
            values = values_of(dict(params or {})) or None
            left = max(0.001, until - time.monotonic())
            return open_statement(server, principal, query, text, values, left, read_only=True)

        if spec.mode == "outline":
            answer = outlined(ask, spec.sql, spec.params, spec.limit, partial(_find, call))
        elif spec.mode == "pairs":
            answer = pairs_of(ask, spec.sql, spec.params, spec.limit)
        else:
            if (match := spec.match) is None:
                raise SqlError("mode events asks for one match: give its number", 1, 1)
            answer = events_of(ask, spec.sql, spec.params, match.number, match.partition)
        return cast("Json", jsonable(answer))

    return await _listed(call, spec.sql, run)


def _find(call: Called, wanted: str) -> tuple[str, str] | None:
    for name in call.server.database.streams():
        if name.lower() == wanted.lower() and call.principal.may("read", name):
            return name, call.server.catalog.stream_schema(name).time
    return None


KEYWORDS = """
    all alter and any as asc asof between by case cast classifier create cross current define
    desc describe distinct drop else end event except exclude exists explain false final first
    following from full group having if in index inner insert intersect interval into is join
    last lateral left like limit live maximal measures next not null nulls offset on one or
    order outer over partition past pattern per permute preceding qualify query range recent
    recursive right row rows running select selection set show skip stream subset table then
    till to true unbounded union unmatched using values when where window with within
"""
OPERATORS = (
    ("TUMBLE", "TUMBLE(stream, time, INTERVAL width)"),
    ("HOP", "HOP(stream, time, INTERVAL step, INTERVAL width)"),
    ("SESSION", "SESSION(stream, time, INTERVAL pause)"),
    ("TUMBLE_ROWS", "TUMBLE_ROWS(stream, rows)"),
    ("HOP_ROWS", "HOP_ROWS(stream, step, rows)"),
    ("MATCH_RECOGNIZE", "MATCH_RECOGNIZE (...)"),
    ("MATCH_SITUATIONS", "MATCH_SITUATIONS (...)"),
)


class CheckSpec(BaseModel):
    """A statement to check."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(description="One statement.")


@routes.post("/check", "Check a statement", answers.Checked, example=SQL)
def check(call: Call, spec: CheckSpec) -> Json:
    """What a statement reads, changes and needs, or the `problem` that running it would have."""
    try:
        access: Access = call.server.engine_for(call.principal).access(spec.sql)
        authorize(call.principal, access)
    except (SqlError, Forbidden) as error:  # the statement is wrong, not the request
        return {"problem": problem_document(error, call.id)}
    return {
        "kind": access.kind,
        "scope": access.scope,
        "target": access.target,
        "reads": sorted(access.reads),
        "parameters": sorted(names_in(spec.sql)),
    }


@routes.get("/dialect", "The words of the dialect", answers.Dialect, responses=UNCHANGED)
async def dialect(call: Call) -> Response:
    """Keywords, types, functions by kind, operators of FROM: for completion and highlighting."""
    return _dialect().answer(call.request.headers, _KEPT)


_KEPT = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}


@cache
def _dialect() -> Asset:
    from ...query.sql import forms as words

    content = orjson.dumps(
        {
            "keywords": sorted(KEYWORDS.split()),
            "types": sorted({str(name).lower() for name in words.TYPES}),
            "functions": {
                "aggregate": sorted(words.AGGREGATES),
                "window": sorted(words.WINDOWS),
                "scalar": sorted(words.SCALARS | words.FORMATS | words.SIZED_ONLY),
                "table": sorted(words.TABLE_FUNCTIONS),
                "operator": [{"name": name, "signature": text} for name, text in OPERATORS],
            },
        }
    )
    return Asset.of(content, ".json")
