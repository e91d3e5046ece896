"""JSON responses of one object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

__all__ = ["json_bytes", "reply"]


def json_bytes(content: Any) -> bytes:
    """A line of JSON; handles all Python integers and texts."""
    try:
        return orjson.dumps(content, default=str) + b"\n"
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        return json.dumps(content, separators=(",", ":"), default=str).encode() + b"\n"


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_bytes(content), status, headers, "application/json")
