"""Routes for SQL editors: check a statement, and list the dialect's words.  A check parses, binds
and authorizes, but runs nothing; it does not find errors that depend on values or rows.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ...errors import Forbidden, SqlError
from ...query.contract.access import Access
from ..access.auth import Requester
from ..access.statement_rights import authorize, visible_to
from ..http.problems import problem_document
from ..http.responses import reply
from ..service.state import server_of
from .json_bodies import read_spec, spec_body

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["queries"])
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


@router.post("/check", summary="Check a statement", openapi_extra=spec_body(CheckSpec))
async def check(request: Request, principal: Requester) -> Response:
    """What a statement reads, changes and needs, or the `problem` that running it would have."""
    spec = await read_spec(request, CheckSpec)
    server = server_of(request)

    def look() -> dict[str, Any]:
        from ...query.sql.parameters import names_in

        try:
            access: Access = server.database.access(spec.sql, visible_to(principal))
            authorize(principal, access)
        except (SqlError, Forbidden) as error:  # the statement is wrong, not the request
            return {"problem": problem_document(error, request.state.request_id)}
        return {
            "kind": access.kind,
            "scope": access.scope,
            "target": access.target,
            "reads": sorted(access.reads),
            "parameters": sorted(names_in(spec.sql)),
        }

    return reply(await server.call(look))


@router.get("/dialect", summary="The words of the dialect")
async def dialect(request: Request, principal: Requester) -> Response:
    """Keywords, types, functions by kind, operators of FROM: for completion and highlighting."""
    del principal
    content, etag = _dialect()
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type="application/json")


@cache
def _dialect() -> tuple[bytes, str]:
    from ...query.sql.rendering import vocabulary as words

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
    return content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'
