"""Checks of headers, and paths with encoded slashes.  A header that names the server, the client or
the body must not be repeated, so that a proxy and this server cannot read a request differently.
An encoded slash belongs to a name: ``/v1/streams/a%2Fb`` is the stream ``a/b``.
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

SLASH = "\0"
"""Replaces a slash within a name during routing; no name has this character."""


def check_headers(scope: Scope) -> None:
    """Refuse repeated or too many headers and parameters; raises ``Problem`` (400, 431)."""
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
    given: bytes | None = scope.get("raw_path")
    return quote(scope["path"]).encode() if given is None else given


def routed_path(raw: bytes) -> str:
    """The decoded path for routing, with ``SLASH`` for encoded slashes; may raise ``Problem``."""
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
    return "/" + "/".join(quote(part, safe="") for part in parts)


PathName = Annotated[str, Path(), AfterValidator(lambda name: name.replace(SLASH, "/"))]
