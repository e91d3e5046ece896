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
    schema = model.model_json_schema()
    schema = _inlined(schema, schema.pop("$defs", {}))
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if "sql" in model.model_fields:
        content["application/sql"] = {"schema": {"type": "string"}}
    return {
        "requestBody": {
            "required": True,
            "content": content,
        }
    }


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    """A schema without references, which would point into another document."""
    if isinstance(node, dict):
        if "$ref" in node:
            return _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
        return {key: _inlined(value, definitions) for key, value in node.items()}
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    return node


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
    content_type = request.headers.get("content-type", "")
    content = _content(content_type, bytes(body), sql="sql" in model.model_fields)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = [{**item, "loc": ("body", *item["loc"])} for item in error.errors()]
        raise RequestValidationError(found) from None


def _content(content_type: str, body: bytes, *, sql: bool) -> Any:
    media_type = content_type.partition(";")[0].strip().lower()
    text = body.strip()
    if sql and media_type in _TEXT:
        return {"sql": _decoded(text)}
    if sql and media_type in ("", _FORM) and not text.startswith((b"{", b"[")):
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
        f"expected application/json{' or application/sql' if sql else ''}, found Content-Type "
        f"{content_type!r}",
    )


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem("bad-request", 400, f"the body is not valid UTF-8 ({error})") from None
