"""Routes of SQL.  ``GET /v1/query`` changes nothing, whatever the text says.  A query ends on its
time limit, when its client disconnects, and when it is cancelled, but not while it commits.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ...query.contract.explanation import Plan
from ..access.auth import Principal, Requester
from ..access.statement_rights import authorize, visible_to
from ..http.jsonable import jsonable
from ..http.problems import Problem
from ..http.request_head import PathName
from ..http.responses import reply
from ..service.audit import STATEMENT
from ..service.running_queries import RunningQuery
from ..service.state import server_of
from ..service.statements import open_statement
from .json_bodies import read_spec, spec_body
from .parameters import (
    Limit,
    ResultEncoding,
)
from .row_responses import RowSource, send_rows
from .statement_values import values_of

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["queries"])
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


@router.post("/query", summary="Run a SQL statement", openapi_extra=spec_body(QuerySpec))
async def post_query(
    request: Request,
    principal: Requester,
    encoding: ResultEncoding,
) -> Response:
    """Any statement of the dialect; rows come as they are computed."""
    spec = await read_spec(request, QuerySpec)
    return await _run(request, principal, spec, encoding)


@router.head("/query", include_in_schema=False)
@router.get("/query", summary="Run a query, read-only")
async def get_query(
    request: Request,
    principal: Requester,
    encoding: ResultEncoding,
    q: Annotated[str, Query(description="One query.")],
    limit: Limit = None,
    timeout_ms: Annotated[int | None, Query(ge=1)] = None,
) -> Response:
    """For curl and browsers; statements that change something are refused.

    HEAD, `Range`, `If-Match`, `If-None-Match` and `If-Range` make the answer a file.
    """
    spec = QuerySpec(sql=q, params=None, limit=limit, timeout_ms=timeout_ms, read_only=True)
    return await _run(request, principal, spec, encoding)


async def _run(request: Request, principal: Principal, spec: QuerySpec, encoding: Any) -> Response:
    server = server_of(request)
    timeout = _timeout(server.settings.query_timeout, spec.timeout_ms)
    request.scope[STATEMENT] = spec.sql

    def open_rows(query: RunningQuery) -> RowSource:
        params = values_of(spec.params)
        result = open_statement(
            server, principal, query, spec.sql, params, timeout, read_only=spec.read_only
        )
        return RowSource(result.schema, result.batches(), result.close)

    def at_once(query: RunningQuery) -> RowSource | None:
        if spec.params:
            return None
        result = server.database.sql_at_once(
            spec.sql,
            timeout,
            cancellation=query.cancellation,
            visible=visible_to(principal),
            allowed=partial(authorize, principal),
        )
        if result is None:
            return None
        return RowSource(result.schema, result.batches(), result.close)

    return await send_rows(
        request,
        principal,
        server.queries,
        "query",
        spec.sql,
        open_rows,
        encoding,
        limit=spec.limit,
        at_once=at_once,
    )


@router.post("/explain", summary="Explain a query", openapi_extra=spec_body(ExplainSpec))
async def explain(request: Request, principal: Requester) -> Response:
    """How a query would run; with `analyze`, how it ran: `text` for people, `plan` for programs."""
    server = server_of(request)
    spec = await read_spec(request, ExplainSpec)
    timeout = _timeout(server.settings.query_timeout, spec.timeout_ms)

    def run() -> Plan:
        return server.database.explain(
            spec.sql,
            analyze=spec.analyze,
            params=values_of(spec.params),
            timeout=timeout,
            visible=visible_to(principal),
            allowed=partial(authorize, principal),
            tell=server.tell(principal),
        )

    async with server.queries.held(principal.client):
        plan = await server.call(run)
    return reply({**jsonable(plan.to_dict()), "text": str(plan)})


@router.get("/queries", summary="List what runs")
async def list_queries(request: Request, principal: Requester) -> Response:
    """Queries and reads of this token; with the scope `operate`, of all."""
    running = server_of(request).running
    return reply({"queries": [q.to_json() for q in running if running.visible(q, principal)]})


@router.delete("/queries/{query_id}", status_code=204, summary="Cancel a query")
async def cancel_query(request: Request, principal: Requester, query_id: PathName) -> Response:
    """End a query or read; its own request is answered with 499, or broken off."""
    query = server_of(request).running.find(query_id, principal)
    if query is None:
        raise Problem(
            "not-found",
            404,
            f"no query {query_id!r} runs here; GET /v1/queries lists those that do",
        )
    query.cancellation.cancel()
    return Response(status_code=204)


def _timeout(most: float, wished_ms: int | None) -> float:
    return most if wished_ms is None else min(int(most * 1000), wished_ms) / 1000
