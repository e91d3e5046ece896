"""What a request's head says: names, formats, conditions and ranges.

A header that names the server, the client or the body must not be repeated, so that a proxy and
this server cannot read a request differently.  An encoded slash belongs to a name:
``/v1/streams/a%2Fb`` is the stream ``a/b``.  Conditional and range requests follow RFC 9110,
sections 13 and 14; an unreadable range, one of another unit, or of several parts is ignored.

Content negotiation: ``?format=``, then ``Content-Type`` (bodies) or ``Accept`` (answers; ``*/*`` is
JSON).  An unknown format is an error that lists the known ones: 415 for a body, 406 for an answer.

A CloudEvent in binary mode is converted to structured mode, which ``chronicle.formats`` reads. ::

    ce-specversion: 1.0                          {"specversion": "1.0", "id": "7",
    ce-id: 7                                      "source": "/sensors", "type": "reading",
    ce-source: /sensors                     ->    "data": {"x": 1}}
    ce-type: reading
    Content-Type: application/json

    {"x": 1}

JSON data is embedded, text becomes a string, anything else base64.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

import orjson
from starlette.requests import Request
from starlette.types import Scope

from ...formats.kinds import READ_FORMATS, WRITE_FORMATS, format_of_media_type, media_type_of
from .replies import Problem

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


def checked_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name; raises ``Problem`` (400, 431) for repeated or too many headers, and too
    many parameters.
    """
    listed = scope["headers"]
    if len(listed) > HEADERS_MAX:
        raise Problem(
            "headers-too-large", f"a request has at most {HEADERS_MAX} headers, found {len(listed)}"
        )
    headers = dict(listed)
    if len(headers) < len(listed):
        counts = Counter(name for name, _ in listed)
        twice = sorted(name.decode() for name in ONCE if counts[name] > 1)
        if twice:
            raise Problem("bad-request", f"sent more than once: the header {', '.join(twice)}")
    count = scope["query_string"].count(b"&") + 1
    if count > PARAMETERS_MAX:
        raise Problem(
            "bad-request", f"a request has at most {PARAMETERS_MAX} parameters, found {count}"
        )
    return headers


def raw_path(scope: Scope) -> bytes:
    path: bytes | None = scope.get("raw_path")
    return quote(scope["path"]).encode() if path is None else path


def routed_path(raw: bytes) -> str:
    """The decoded path for routing, with ``SLASH`` for encoded slashes; may raise ``Problem``."""
    path = raw.decode("ascii", "replace").replace("%2F", "%00").replace("%2f", "%00")
    if b"%00" in raw:
        raise Problem("bad-request", "the address has the character NUL, which no name has")
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise Problem(
            "bad-request", "the address is not UTF-8; percent-encode names as UTF-8"
        ) from None


def address(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


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
                f"the answer is another one now, {tag}, not {self.if_match}; begin again with HEAD",
            )
        if self.if_none_match is not None and _names(self.if_none_match, tag):
            return Judgement(304, 0, -1)
        whole = Judgement(200, 0, size - 1)
        match = None if self.wanted is None else _RANGE.fullmatch(self.wanted.strip())
        if match is None or (self.if_range is not None and self.if_range.strip() != tag):
            return whole
        first, last = match.groups()
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
                f"the answer has {size:,} bytes, and the range {self.wanted!r} has none of them",
                {"Content-Range": f"bytes */{size}", "ETag": tag},
            )
        return Judgement(206, start, end)


def _tags(header: str | None) -> frozenset[str]:
    return frozenset() if header is None else frozenset(_TAG.findall(header))


def _names(header: str, tag: str) -> bool:
    return header.strip() == "*" or tag in _tags(header)


FEEDS = ("sse", "ndjson", "arrow")


_FORM = "application/x-www-form-urlencoded"


def body_format(wished: str | None, media_type: str) -> str:
    if wished is not None:
        if wished.lower() in READ_FORMATS:
            return wished.lower()
        raise _unsupported(f"unknown format {wished!r}")
    format = format_of_media_type(media_type) if media_type else None
    if format is not None:
        return format
    if not media_type or media_type.startswith(_FORM):
        raise _unsupported(
            "the body's format is not said; send a Content-Type (curl: -H 'Content-Type: "
            "application/x-ndjson') or ?format=ndjson"
        )
    raise _unsupported(f"unknown Content-Type {media_type!r}")


def file_format(wished: str | None, media_type: str) -> str | None:
    """Format of a file sent as the body; None: infer it.  Raises ``Problem`` (415)."""
    if media_type.lower().startswith("multipart/"):
        detail = "send the file itself as the body, without a form around it"
        raise Problem("unsupported-media-type", detail)
    if wished is None and format_of_media_type(media_type) is None:
        return None
    return body_format(wished, media_type)


def _unsupported(detail: str) -> Problem:
    formats = ", ".join(
        f"{name} ({media_type_of(name).partition(';')[0]})" for name in READ_FORMATS
    )
    return Problem("unsupported-media-type", f"{detail}; known are {formats}")


_ANSWERS = {"*/*": "json", "application/*": "json", "text/*": "csv"}
_FEEDS = {"text/event-stream": "sse", "*/*": "sse", "text/*": "sse", "application/*": "ndjson"}


@lru_cache(maxsize=256)
def answer_format(wished: str | None, accept: str) -> str:
    """Format of an answer's rows; raises ``Problem`` (406)."""
    return _negotiated(wished, accept, WRITE_FORMATS, _ANSWERS)


def feed_format(request: Request) -> str:
    """Format of an endless answer, by default server-sent events; raises ``Problem`` (406)."""
    wished, accept = request.query_params.get("format"), request.headers.get("accept", "")
    return _negotiated(wished, accept, FEEDS, _FEEDS)


def _negotiated(
    wished: str | None, accept: str, formats: Sequence[str], by_type: Mapping[str, str]
) -> str:
    if wished is not None:
        if wished.lower() in formats:
            return wished.lower()
        names = ", ".join(formats)
        raise Problem("not-acceptable", f"unknown format {wished!r}; known are {names}")
    if not accept.strip():
        return by_type["*/*"]
    for media_type, _ in _by_preference(accept):
        format = by_type.get(media_type) or format_of_media_type(media_type)
        if format is not None and format in formats:
            return format
    types = ("text/event-stream" if name == "sse" else media_type_of(name) for name in formats)
    names = ", ".join(each.partition(";")[0] for each in types)
    raise Problem(
        "not-acceptable", f"none of the formats in Accept {accept!r} is known; known are {names}"
    )


@lru_cache(maxsize=256)
def wants_gzip(accept_encoding: str) -> bool:
    qualities = dict(_by_preference(accept_encoding))
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def _by_preference(header: str) -> list[tuple[str, float]]:
    """Entries of an ``Accept`` header by descending ``q``, without those of ``q=0``."""
    preferences = []
    for entry in header.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        if name and quality > 0:
            preferences.append((name, quality))
    return sorted(preferences, key=lambda item: -item[1])


PREFIX = "ce-"
_NAME = re.compile(r"[a-z0-9]{1,64}")
_REQUIRED = ("id", "source", "type")


class BinaryEvent(NamedTuple):
    attributes: tuple[tuple[str, str], ...]
    media_type: str

    def structured(self, data: bytes) -> bytes:
        head = orjson.dumps(dict(self.attributes))[:-1]
        if not data.strip():
            return head + b"}"
        kind = self.media_type
        if kind in ("", "application/json", "text/json") or kind.endswith("+json"):
            return head + b',"data":' + data + b"}"
        if kind.startswith("text/"):
            try:
                return head + b',"data":' + orjson.dumps(data.decode()) + b"}"
            except UnicodeDecodeError:
                pass
        return head + b',"data_base64":"' + base64.b64encode(data) + b'"}'


def binary_event(request: Request) -> BinaryEvent | None:
    """The event in a request's headers, or None; raises ``Problem`` (400)."""
    headers = request.headers
    version = headers.get("ce-specversion")
    if version is None:
        return None
    attributes = {}
    for header, value in headers.items():
        name = header.removeprefix(PREFIX)
        if name == header:
            continue
        if not _NAME.fullmatch(name) or name in ("data", "data_base64"):
            raise _wrong(f"the header {header!r} names no attribute: letters and digits make one")
        try:
            attributes[name] = unquote(value.encode("latin-1").decode(), errors="strict")
        except UnicodeDecodeError:
            raise _wrong(f"the header {header!r} is not UTF-8, percent-encoded") from None
    missing = [PREFIX + name for name in _REQUIRED if not attributes.get(name)]
    if version.strip() != "1.0" or missing:
        what = f"no {', '.join(missing)}" if missing else f"ce-specversion {version!r}"
        raise _wrong(f"expected a CloudEvent 1.0 with ce-id, ce-source and ce-type, found {what}")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type:
        attributes["datacontenttype"] = media_type
    return BinaryEvent(tuple(attributes.items()), media_type)


def _wrong(detail: str) -> Problem:
    return Problem("invalid-data", detail)
