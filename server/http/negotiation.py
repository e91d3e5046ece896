"""Content negotiation: ``?format=``, then ``Content-Type`` (bodies) or ``Accept`` (answers; ``*/*``
is JSON).  An unknown format is an error that lists the known ones: 415 for a body, 406 for an
answer.

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
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import orjson
from starlette.requests import Request

from ...formats.kinds import READ_FORMATS, WRITE_FORMATS, format_of_media_type, media_type_of
from .problems import Problem

FEEDS = ("sse", "ndjson", "arrow")


_FORM = "application/x-www-form-urlencoded"


def body_format(request: Request) -> str:
    wished = request.query_params.get("format")
    if wished is not None:
        if wished.lower() in READ_FORMATS:
            return wished.lower()
        raise _unsupported(f"unknown format {wished!r}")
    given = request.headers.get("content-type", "")
    found = format_of_media_type(given) if given else None
    if found is not None:
        return found
    if not given or given.startswith(_FORM):
        raise _unsupported(
            "the body's format is not said; send a Content-Type (curl: -H 'Content-Type: "
            "application/x-ndjson') or ?format=ndjson"
        )
    raise _unsupported(f"unknown Content-Type {given!r}")


def file_format(request: Request) -> str | None:
    """Format of a file sent as the body; None: infer it.  Raises ``Problem`` (415)."""
    given = request.headers.get("content-type", "")
    if given.lower().startswith("multipart/"):
        detail = "send the file itself as the body, without a form around it"
        raise Problem("unsupported-media-type", 415, detail)
    if request.query_params.get("format") is None and format_of_media_type(given) is None:
        return None
    return body_format(request)


def _unsupported(detail: str) -> Problem:
    known = ", ".join(f"{name} ({media_type_of(name).partition(';')[0]})" for name in READ_FORMATS)
    return Problem("unsupported-media-type", 415, f"{detail}; known are {known}")


@lru_cache(maxsize=256)
def answer_format(wished: str | None, accept: str, default: str = "json") -> str:
    if wished is not None:
        if wished.lower() in WRITE_FORMATS:
            return wished.lower()
        known = ", ".join(WRITE_FORMATS)
        raise Problem("not-acceptable", 406, f"unknown format {wished!r}; known are {known}")
    if not accept.strip():
        return default
    for media_type, _ in _by_preference(accept):
        if media_type in ("*/*", "application/*"):
            return default
        if media_type == "text/*":
            return "csv"
        found = format_of_media_type(media_type)
        if found is not None and found in WRITE_FORMATS:
            return found
    raise Problem(
        "not-acceptable",
        406,
        f"none of the formats in Accept {accept!r} is known; known are "
        + ", ".join(media_type_of(name).partition(";")[0] for name in WRITE_FORMATS),
    )


def feed_format(request: Request) -> str:
    """Format of an endless answer, by default server-sent events; raises ``Problem`` (406)."""
    wished = request.query_params.get("format")
    if wished is not None:
        if wished.lower() in FEEDS:
            return wished.lower()
        detail = f"unknown format {wished!r}; known are {', '.join(FEEDS)}"
        raise Problem("not-acceptable", 406, detail)
    accept = request.headers.get("accept", "")
    if not accept.strip():
        return "sse"
    for media_type, _ in _by_preference(accept):
        if media_type in ("text/event-stream", "*/*", "text/*"):
            return "sse"
        found = format_of_media_type(media_type)
        if found in FEEDS:
            return str(found)
        if media_type == "application/*":
            return "ndjson"
    raise Problem(
        "not-acceptable",
        406,
        f"none of the formats in Accept {accept!r} is known; known are text/event-stream, "
        + ", ".join(media_type_of(name).partition(";")[0] for name in FEEDS[1:]),
    )


@lru_cache(maxsize=256)
def wants_gzip(accept_encoding: str) -> bool:
    given = dict(_by_preference(accept_encoding))
    return given.get("gzip", given.get("*", 0.0)) > 0


def _by_preference(header: str) -> list[tuple[str, float]]:
    """Entries of an ``Accept`` header by descending ``q``, without those of ``q=0``."""
    found = []
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
            found.append((name, quality))
    return sorted(found, key=lambda item: -item[1])


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
    if version is None or request.query_params.get("format") is not None:
        return None
    found = {}
    for header, value in headers.items():
        name = header.removeprefix(PREFIX)
        if name == header:
            continue
        if not _NAME.fullmatch(name) or name in ("data", "data_base64"):
            raise _wrong(f"the header {header!r} names no attribute: letters and digits make one")
        try:
            found[name] = unquote(value.encode("latin-1").decode(), errors="strict")
        except UnicodeDecodeError:
            raise _wrong(f"the header {header!r} is not UTF-8, percent-encoded") from None
    missing = [PREFIX + name for name in _REQUIRED if not found.get(name)]
    if version.strip() != "1.0" or missing:
        what = f"no {', '.join(missing)}" if missing else f"ce-specversion {version!r}"
        raise _wrong(f"expected a CloudEvent 1.0 with ce-id, ce-source and ce-type, found {what}")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type:
        found["datacontenttype"] = media_type
    return BinaryEvent(tuple(found.items()), media_type)


def _wrong(detail: str) -> Problem:
    return Problem("invalid-data", 400, detail)
