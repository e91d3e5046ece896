"""JSON request bodies that people also type by hand.

Purpose
    :func:`read_spec` reads a body into a pydantic model.  Besides JSON it takes what ``curl -d``
    sends without a Content-Type, and plain SQL text (``Content-Type: application/sql`` or
    ``text/plain``), for models that have a field ``sql``.

Guarantee
    The body is bounded (8 MiB); what does not fit is 400 (no JSON) or 422 (a field).
"""

from __future__ import annotations

import urllib.parse
from typing import Any, TypeVar

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from .problems import Problem

__all__ = ["read_spec", "spec_body"]

BYTES_MAX = 8 << 20
_FORM = "application/x-www-form-urlencoded"
_TEXT = ("application/sql", "text/plain", "text/sql")

Model = TypeVar("Model", bound=BaseModel)


def spec_body(model: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI is told of the body."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schema},
                "application/sql": {"schema": {"type": "string"}},
            },
        }
    }


async def read_spec(request: Request, model: type[Model]) -> Model:
    """Read the body of a request.

    Raises
    ------
    Problem
        400, 413 or 415.
    RequestValidationError
        When a field does not fit.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BYTES_MAX:
            raise Problem(
                "body-too-large",
                413,
                f"this body has at most {BYTES_MAX:,} bytes; events go to /v1/streams/.../events",
                {"Connection": "close"},
            )
    content = _content(request.headers.get("content-type", ""), bytes(body))
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = [{**item, "loc": ("body", *item["loc"])} for item in error.errors()]
        raise RequestValidationError(found) from None


def _content(content_type: str, body: bytes) -> Any:
    media_type = content_type.partition(";")[0].strip().lower()
    text = body.strip()
    if media_type in _TEXT:
        return {"sql": _decoded(text)}
    if media_type in ("", _FORM) and not text.startswith((b"{", b"[")):
        fields = urllib.parse.parse_qs(_decoded(text)) if text.startswith((b"sql=", b"q=")) else {}
        if fields:
            return {"sql": (fields.get("sql") or fields["q"])[0]}
        return {"sql": _decoded(text)}
    if media_type in ("", _FORM, "application/json", "text/json") or media_type.endswith("+json"):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise Problem("bad-request", 400, f"the body is not valid JSON: {error}") from None
    raise Problem(
        "unsupported-media-type",
        415,
        f"expected application/json or application/sql, found Content-Type {content_type!r}",
    )


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem("bad-request", 400, f"the body is not valid UTF-8 ({error})") from None
