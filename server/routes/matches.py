"""Matches to draw: variables of a pattern, events of one match, pairs of a recency join.
``query.matches`` computes them; this route adds the rights and limits of a request.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, cast

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ...errors import SqlError
from ...query.matches import events_of, outlined, pairs_of
from ..access.auth import Principal, Requester
from ..http.jsonable import jsonable
from ..http.responses import reply
from ..service.running_queries import RunningQuery
from ..service.state import Server, server_of
from .json_bodies import read_spec, spec_body
from .small_queries import SmallQueries

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["queries"])
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


@router.post("/matches", summary="Matches, to be drawn", openapi_extra=spec_body(MatchesSpec))
async def matches(request: Request, principal: Requester) -> Response:
    """Where each variable of a row pattern was met; with `mode: events` one match's events, with
    `mode: pairs` the times of the pairs of a recency join."""
    spec = await read_spec(request, MatchesSpec)
    server = server_of(request)

    def run(query: RunningQuery) -> dict[str, Any]:
        ask = SmallQueries(server, principal, query).rows
        if spec.mode == "outline":
            find = partial(_find, server, principal)
            found = outlined(ask, spec.sql, spec.params, spec.limit, find)
        elif spec.mode == "pairs":
            found = pairs_of(ask, spec.sql, spec.params, spec.limit)
        else:
            if (match := spec.match) is None:
                raise SqlError("mode events asks for one match: give its number", 1, 1)
            found = events_of(ask, spec.sql, spec.params, match.number, match.partition)
        return cast("dict[str, Any]", jsonable(found))

    return reply(await SmallQueries.answer(request, principal, spec.sql, run))


def _find(server: Server, principal: Principal, wanted: str) -> tuple[str, str] | None:
    for name in server.database.streams():
        if name.lower() == wanted.lower() and principal.may("read", name):
            return name, server.database.stream_schema(name).time
    return None
