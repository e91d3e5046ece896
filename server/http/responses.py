"""Small answers: one JSON object, written at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

__all__ = ["json_bytes", "reply"]


def json_bytes(content: Any) -> bytes:
    """A line of JSON, of any text and integer that Python has."""
    try:
        return orjson.dumps(content, default=str) + b"\n"
    except TypeError:  # an integer beyond 64 bits, a lone surrogate: written as digits, as escape
        return json.dumps(content, separators=(",", ":"), default=str).encode() + b"\n"


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer; integers stay exact, also beyond 64 bits."""
    return Response(json_bytes(content), status, headers, "application/json")
