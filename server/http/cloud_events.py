"""CloudEvents in binary mode: converted to structured mode, which ``chronicle.formats`` reads. ::

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
from typing import NamedTuple
from urllib.parse import unquote

import orjson
from starlette.requests import Request

from .problems import Problem

__all__ = ["BinaryEvent", "binary_event"]

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
