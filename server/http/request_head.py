"""What is looked at before a request is: repeated headers, their number, the parts of the address.

Purpose
    :func:`check_headers` refuses requests that two programs could read in two ways, or that are
    large where no request has to be.  :func:`routed_path` makes the path that routes are found by.

Guarantee
    What names the server, the client or the body stands once: a proxy that looks at the first
    ``Host`` or ``Authorization`` and a server that looks at the last do not disagree.  An encoded
    slash is part of a name, not of the address: ``/v1/streams/a%2Fb`` is the stream ``a/b``.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import Path
from pydantic import AfterValidator
from starlette.types import Scope

from .problems import Problem

__all__ = ["PathName", "address", "check_headers", "raw_path", "routed_path"]

HEADERS_MAX = 100
PARAMETERS_MAX = 200
ONCE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"origin",
        b"sec-fetch-mode",
        b"sec-fetch-site",
        b"transfer-encoding",
        b"x-request-id",
    }
)
"""Headers that a request may have once."""

SLASH = "\0"
"""Stands for a slash within a name while a route is looked for; no name has this character."""


def check_headers(scope: Scope) -> None:
    """Refuse headers and parameters that no honest client sends.

    Raises
    ------
    Problem
        400 or 431.
    """
    if len(scope["headers"]) > HEADERS_MAX:
        raise Problem(
            "headers-too-large",
            431,
            f"a request has at most {HEADERS_MAX} headers, found {len(scope['headers'])}",
        )
    names = [name.lower() for name, _ in scope["headers"]]
    if len(set(names)) < len(names):
        found = Counter(names)
        twice = sorted(name.decode() for name in ONCE if found[name] > 1)
    else:
        twice = []
    if twice:
        raise Problem("bad-request", 400, f"sent more than once: the header {', '.join(twice)}")
    count = scope["query_string"].count(b"&") + 1
    if count > PARAMETERS_MAX:
        raise Problem(
            "bad-request", 400, f"a request has at most {PARAMETERS_MAX} parameters, found {count}"
        )


def raw_path(scope: Scope) -> bytes:
    """The path as it was sent."""
    given: bytes | None = scope.get("raw_path")
    return quote(scope["path"]).encode() if given is None else given


def routed_path(raw: bytes) -> str:
    """The path by which a route is found: decoded, slashes within a name as :data:`SLASH`.

    Raises
    ------
    Problem
        400 for a character that no name has.
    """
    path = raw.decode("ascii", "replace").replace("%2F", "%00").replace("%2f", "%00")
    if b"%00" in raw:
        raise Problem("bad-request", 400, "the address has the character NUL, which no name has")
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise Problem(
            "bad-request", 400, "the address is not UTF-8; percent-encode names as UTF-8"
        ) from None


def address(*parts: str) -> str:
    """A path of names, percent-encoded."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


PathName = Annotated[str, Path(), AfterValidator(lambda name: name.replace(SLASH, "/"))]
"""A name in the address of a route."""
