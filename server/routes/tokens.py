"""Routes of tokens: what ``chronicle token`` does, while the server runs.  They need ``admin`` on
all streams, since a token with every right could be made.  Tokens of ``CHRONICLE_TOKEN_FILE`` and
of an identity provider are not listed.
"""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel, ConfigDict, Field

from ...errors import InvalidArgument
from ..access.tokens import (
    OVERLAP,
    Token,
    create_token,
    list_tokens,
    revoke_all_tokens,
    revoke_token,
    rotate_token,
)
from ..http.replies import Problem
from ..service.state import Server
from . import answers
from .answers import Json
from .route import Call, Routes

routes = Routes("tokens", "/v1/tokens")

_MANAGED = {"needs": "admin", "everywhere": "to manage tokens"}
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


@routes.get("", "List tokens", answers.Tokens, **_MANAGED)
def tokens(call: Call) -> Json:
    """All of the store's tokens, expired ones too, and their last use; no secrets."""
    server = call.server
    uses = server.tokens.uses()
    listed = list_tokens(server.database.path)
    return {"tokens": [token.to_json(uses.get(token.id)) for token in listed]}


_DEPLOY = {"name": "deploy", "scopes": ["admin"], "expires": "90d"}


@routes.post("", "Make a token", answers.NewToken, 201, **_MANAGED, example=_DEPLOY)
def make_token(call: Call, spec: TokenSpec) -> Json:
    """The answer has its `secret`, which is shown once."""
    server = call.server
    if not server.authenticator.needs_token and (
        "admin" not in spec.scopes or "*" not in spec.streams
    ):
        raise InvalidArgument(
            "the first token closes the server to all who have none: give it the scope admin on "
            "all streams, or nobody could make another one here"
        )
    store, at_most = server.database.path, _at_most(server)
    return _shown(*create_token(store, spec.name, spec.scopes, spec.streams, spec.expires, at_most))


@routes.post(
    "/{token_id}/rotate",
    "Replace a token",
    answers.NewToken,
    201,
    **_MANAGED,
    example={"overlap": "1h"},
)
def rotate(call: Call, token_id: str, spec: RotateSpec) -> Json:
    """A new secret for the same name, scopes and streams; the old one is valid for `overlap`.

    A unique name may stand in place of the id.
    """
    server = call.server
    _check_exists(server, token_id)
    store, at_most = server.database.path, _at_most(server)
    return _shown(*rotate_token(store, token_id, spec.overlap, spec.expires, at_most))


@routes.delete("", "Revoke all tokens", answers.TokensRevoked, **_MANAGED)
def revoke_all(call: Call) -> Json:
    """Every token of the store except the requester's is refused from the next request on."""
    own = None if call.principal.token is None else call.principal.token.id
    gone = revoke_all_tokens(call.server.database.path, own)
    return {"revoked": [token.id for token in gone]}


@routes.delete("/{token_id}", "Revoke a token", status=204, **_MANAGED)
def revoke(call: Call, token_id: str) -> None:
    """It is refused from the next request on; named by its id or by a unique name."""
    server = call.server
    _check_exists(server, token_id)
    revoke_token(server.database.path, token_id)


def _check_exists(server: Server, which: str) -> None:
    if all(which not in (token.id, token.name) for token in list_tokens(server.database.path)):
        raise Problem(
            "not-found", f"no token has the id or name {which!r}; GET /v1/tokens lists them"
        )


def _at_most(server: Server) -> dt.timedelta | None:
    days = server.settings.token_days
    return dt.timedelta(days=days) if days else None


def _shown(token: Token, secret: str) -> Json:
    return {**token.to_json(), "secret": secret}
