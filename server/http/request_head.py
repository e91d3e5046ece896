"""Checks of headers, and paths with encoded slashes.  A header that names the server, the client or
the body must not be repeated, so that a proxy and this server cannot read a request differently.
An encoded slash belongs to a name: ``/v1/streams/a%2Fb`` is the stream ``a/b``.

Requests with only ordinary headers, none repeated, are recognised for the fast paths past the
router.  Conditional and range requests follow RFC 9110, sections 13 and 14; an unreadable range,
one of another unit, or of several parts is ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, NamedTuple
from urllib.parse import quote, unquote

from fastapi import Path
from pydantic import AfterValidator
from starlette.requests import Request
from starlette.types import Scope

from .problems import Problem

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


_HEADERS = frozenset({b"range", b"if-match", b"if-none-match"})
_TAG = re.compile(r'(?:W/)?("[^"]*")')
_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Judgement:
    """Status 200, 206 or 304; bytes ``first`` to ``last``, inclusive (none if reversed)."""

    status: int
    first: int
    last: int


@dataclass(frozen=True)
class FileRequest:
    """Conditions and range of a request, as sent; ``head`` is True for HEAD."""

    head: bool
    wanted: str | None
    if_match: str | None
    if_none_match: str | None
    if_range: str | None

    @classmethod
    def of(cls, request: Request) -> FileRequest | None:
        head = request.method == "HEAD"
        if not head and (
            request.method != "GET" or _HEADERS.isdisjoint(n for n, _ in request.headers.raw)
        ):
            return None
        get = request.headers.get
        wanted = None if head else get("range")
        return cls(head, wanted, get("if-match"), get("if-none-match"), get("if-range"))

    @property
    def continues(self) -> bool:
        return self.wanted is not None or self.if_match is not None

    @property
    def tags(self) -> frozenset[str]:
        return _tags(self.if_match) | _tags(self.if_range)

    def judge(self, tag: str, size: int) -> Judgement:
        """How to answer with a file of this tag and size; raises ``Problem`` (412, 416)."""
        if self.if_match is not None and not _names(self.if_match, tag):
            raise Problem(
                "precondition-failed",
                412,
                f"the answer is another one now, {tag}, not {self.if_match}; begin again with HEAD",
            )
        if self.if_none_match is not None and _names(self.if_none_match, tag):
            return Judgement(304, 0, -1)
        whole = Judgement(200, 0, size - 1)
        found = None if self.wanted is None else _RANGE.fullmatch(self.wanted.strip())
        if found is None or (self.if_range is not None and self.if_range.strip() != tag):
            return whole
        first, last = found.groups()
        if not first and not last:
            return whole
        if not first:
            start, end = max(0, size - int(last)), size - 1
        else:
            start, end = int(first), min(size - 1, int(last) if last else size - 1)
            if last and int(last) < start:
                return whole
        if start >= size:
            raise Problem(
                "range-not-satisfiable",
                416,
                f"the answer has {size:,} bytes, and the range {self.wanted!r} has none of them",
                {"Content-Range": f"bytes */{size}", "ETag": tag},
            )
        return Judgement(206, start, end)


def _tags(given: str | None) -> frozenset[str]:
    return frozenset() if given is None else frozenset(_TAG.findall(given))


def _names(given: str, tag: str) -> bool:
    return given.strip() == "*" or tag in _tags(given)
