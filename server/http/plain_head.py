"""Recognises requests with only ordinary headers, none repeated, for the fast paths past the
router.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.types import Scope

__all__ = ["PlainHead", "plain_head"]

_KNOWN = frozenset(
    {b"accept", b"accept-encoding", b"authorization", b"cache-control", b"connection"}
    | {b"content-length", b"content-type", b"host", b"user-agent", b"x-request-id"}
)
"""Headers that do not affect the answer, or that the callers handle."""


class PlainHead(NamedTuple):
    secret: str | None
    content_type: str
    length: int


def plain_head(scope: Scope) -> PlainHead | None:
    secret, content_type, length = None, "", -1
    for name, value in scope["headers"]:
        if name not in _KNOWN:
            return None
        if name == b"content-length":
            length = int(value) if value.isdigit() and len(value) < 10 else -1
        elif name == b"content-type":
            content_type = value.decode("latin-1")
        elif name == b"authorization":
            scheme, _, given = value.decode("latin-1").partition(" ")
            if scheme.lower() != "bearer" or not given or given != given.strip():
                return None
            secret = given
    return PlainHead(secret, content_type, length)
