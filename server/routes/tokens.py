"""Routes of tokens: what ``chronicle token`` does, while the server runs.  They need ``admin`` on
all streams, since a token with every right could be made.  Tokens of ``CHRONICLE_TOKEN_FILE`` and
of an identity provider are not listed.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ...errors import Forbidden, InvalidArgument
from ..access.auth import Principal, Requester
from ..access.tokens import (
    OVERLAP,
    Token,
    create_token,
    list_tokens,
    revoke_all_tokens,
    revoke_token,
    rotate_token,
)
from ..http.replies import Problem, reply
from ..http.requests import PathName
from ..http.route import api_router
from ..service.state import Server, server_of
from .parameters import read_spec, spec_body

router = api_router(prefix="/v1/tokens", tags=["tokens"])

_EXPIRES = "A time (2027-01-01, UTC) or a span from now (90d)."


class TokenSpec(BaseModel):
    """A token to create."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="For people: who or what uses it.")
    scopes: list[str] = Field(["read"], description="read, write, ingest, metrics, operate, admin.")
    streams: list[str] = Field(["*"], description="Globs over the names of streams.")
    expires: str | None = Field(None, description=f"{_EXPIRES} Never, by default.")


class RotateSpec(BaseModel):
    """How a token replaces another."""

    model_config = ConfigDict(extra="forbid")

    overlap: str = Field(OVERLAP, description="How long the old one is still taken, such as 7d.")
    expires: str | None = Field(
        None, description=f"{_EXPIRES} By default in as long a time as the old one had."
    )


@router.get("", summary="List tokens")
async def tokens(request: Request, principal: Requester) -> Response:
    """All of the store's tokens, expired ones too, and their last use; no secrets."""
    server = _managed(request, principal)

    def listed() -> list[dict[str, Any]]:
        uses = server.tokens.uses()
        return [token.to_json(uses.get(token.id)) for token in list_tokens(server.database.path)]

    return reply({"tokens": await server.call(listed)})


@router.post("", status_code=201, summary="Make a token", openapi_extra=spec_body(TokenSpec))
async def make_token(request: Request, principal: Requester) -> Response:
    """The answer has its `secret`, which is shown once."""
    server = _managed(request, principal)
    spec = await read_spec(request, TokenSpec)
    if not server.authenticator.needs_token and (
        "admin" not in spec.scopes or "*" not in spec.streams
    ):
        raise InvalidArgument(
            "the first token closes the server to all who have none: give it the scope admin on "
            "all streams, or nobody could make another one here"
        )
    made = await server.call(
        create_token,
        server.database.path,
        spec.name,
        spec.scopes,
        spec.streams,
        spec.expires,
        _at_most(server),
    )
    return _shown(*made)


@router.post(
    "/{token_id}/rotate",
    status_code=201,
    summary="Replace a token",
    openapi_extra=spec_body(RotateSpec),
)
async def rotate(request: Request, principal: Requester, token_id: PathName) -> Response:
    """A new secret for the same name, scopes and streams; the old one is valid for `overlap`.

    A unique name may stand in place of the id.
    """
    server = _managed(request, principal)
    spec = await read_spec(request, RotateSpec)

    def made() -> tuple[Token, str]:
        _check_exists(server, token_id)
        return rotate_token(
            server.database.path, token_id, spec.overlap, spec.expires, _at_most(server)
        )

    return _shown(*await server.call(made))


@router.delete("", summary="Revoke all tokens")
async def revoke_all(request: Request, principal: Requester) -> Response:
    """Every token of the store except the requester's is refused from the next request on."""
    server = _managed(request, principal)
    own = None if principal.token is None else principal.token.id
    gone = await server.call(revoke_all_tokens, server.database.path, own)
    return reply({"revoked": [token.id for token in gone]})


@router.delete("/{token_id}", status_code=204, summary="Revoke a token")
async def revoke(request: Request, principal: Requester, token_id: PathName) -> Response:
    """It is refused from the next request on; named by its id or by a unique name."""
    server = _managed(request, principal)

    def gone() -> None:
        _check_exists(server, token_id)
        revoke_token(server.database.path, token_id)

    await server.call(gone)
    return Response(status_code=204)


def _managed(request: Request, principal: Principal) -> Server:
    principal.require("admin")
    if not principal.everywhere:
        raise Forbidden("to manage tokens takes the scope 'admin' on all streams")
    return server_of(request)


def _check_exists(server: Server, which: str) -> None:
    if all(which not in (token.id, token.name) for token in list_tokens(server.database.path)):
        raise Problem(
            "not-found", f"no token has the id or name {which!r}; GET /v1/tokens lists them"
        )


def _at_most(server: Server) -> dt.timedelta | None:
    days = server.settings.token_days
    return dt.timedelta(days=days) if days else None


def _shown(token: Token, secret: str) -> Response:
    return reply({**token.to_json(), "secret": secret}, 201)
