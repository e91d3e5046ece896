"""Small answers: one JSON object, written at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

__all__ = ["reply"]


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer; integers stay exact, also beyond 64 bits."""
    try:
        body = orjson.dumps(content)
    except TypeError:  # an integer beyond 64 bits, such as an exact sum
        import json

        body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return Response(body + b"\n", status, headers, "application/json")
