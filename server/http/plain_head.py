"""Heads of requests in which nothing is unusual: who asks, and what the body is said to be.

Purpose
    Some requests are so frequent that they are answered without a router
    (:mod:`..routes.small_appends`, :mod:`..routes.short_reads`).  :func:`plain_head` picks out of a
    request's headers what those need, and gives None where there is a header that may mean more.

Limits
    The headers were checked (:func:`.request_head.check_headers`): none of them is repeated.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.types import Scope

__all__ = ["PlainHead", "plain_head"]

_KNOWN = frozenset(
    {b"accept", b"accept-encoding", b"authorization", b"cache-control", b"connection"}
    | {b"content-length", b"content-type", b"host", b"user-agent", b"x-request-id"}
)
"""Headers that change nothing about an answer, or are looked at by those who ask here."""


class PlainHead(NamedTuple):
    """What a plain head says; a length of -1 is none."""

    secret: str | None
    content_type: str
    length: int


def plain_head(scope: Scope) -> PlainHead | None:
    """The head of a request; None where a header may mean more than is known here."""
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
