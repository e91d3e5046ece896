"""JSON request bodies that people also type by hand.

Purpose
    :func:`read_spec` reads a body into a pydantic model.  Besides JSON it takes what ``curl -d``
    sends without a Content-Type, and plain SQL text (``Content-Type: application/sql`` or
    ``text/plain``), for models that have a field ``sql``.

Guarantee
    The body is bounded (:data:`BYTES_MAX`), and so is how deep its values nest, which is looked at
    before it is decoded.  It has to come as fast as events have, and counts among the bytes that
    uploads may hold.  What does not fit is 400 (no JSON) or 422 (a field).
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.parse
from typing import Any, TypeVar

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from ..http.problems import Problem
from ..service.bodies import Pace, pieces_of
from ..service.state import server_of

__all__ = ["read_spec", "spec_body"]

BYTES_MAX = 1 << 20
DEPTH_MAX = 32
FIELDS_MAX = 1000
LONG_BYTES = 1 << 16
"""From this size on a body is decoded beside the event loop."""
_FORM = "application/x-www-form-urlencoded"
_TEXT = ("application/sql", "text/plain", "text/sql")

_LONG_DIGITS = re.compile(rb"\d{19}")
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""Brackets, and the strings that they do not count in; one without an end goes to the end, so that
the search never goes back."""

Model = TypeVar("Model", bound=BaseModel)


def spec_body(model: type[BaseModel]) -> dict[str, Any]:
    """The body of a route in the OpenAPI document."""
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
        kept = (item for item in node.items() if item[0] != "discriminator")  # names references
        return {key: _inlined(value, definitions) for key, value in kept}
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    return node


async def read_spec(request: Request, model: type[Model], bytes_max: int = BYTES_MAX) -> Model:
    """Read the body of a request whose principal is known.

    Raises
    ------
    Problem
        400, 408, 413 or 415.
    RequestValidationError
        When a field does not fit.
    """
    server = server_of(request)
    body = bytearray()
    with server.uploads.account(request.state.principal.client) as account:
        async for piece in pieces_of(request, bytes_max, Pace.of(server.settings)):
            account.hold(len(piece))
            body += piece
        if len(body) < LONG_BYTES:
            return _parsed(request, bytes(body), model)
        return await asyncio.to_thread(_parsed, request, bytes(body), model)


def _parsed(request: Request, body: bytes, model: type[Model]) -> Model:
    content_type = request.headers.get("content-type", "")
    content = _content(content_type, body, sql="sql" in model.model_fields)
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
        fields = {}
        if text.startswith((b"sql=", b"q=")):
            try:
                fields = urllib.parse.parse_qs(_decoded(text), max_num_fields=FIELDS_MAX)
            except ValueError:
                raise Problem(
                    "bad-request", 400, f"a form has at most {FIELDS_MAX} fields"
                ) from None
        if fields:
            return {"sql": (fields.get("sql") or fields["q"])[0]}
        return {"sql": _decoded(text)}
    if media_type in ("", _FORM, "application/json", "text/json") or media_type.endswith("+json"):
        _check_depth(text)
        try:
            found = orjson.loads(text)
            # which makes a float of a whole number that has more than 64 bits
            return json.loads(text) if _LONG_DIGITS.search(text) else found
        except ValueError as error:
            raise Problem("bad-request", 400, f"the body is not valid JSON: {error}") from None
    raise Problem(
        "unsupported-media-type",
        415,
        f"expected application/json{' or application/sql' if sql else ''}, found Content-Type "
        f"{content_type!r}",
    )


def _check_depth(text: bytes) -> None:
    """Refuse values that nest deeper than any request needs."""
    depth = 0
    for found in _MARKS.finditer(text):
        mark = found[0]
        if mark in (b"[", b"{"):
            depth += 1
            if depth > DEPTH_MAX:
                raise Problem(
                    "bad-request", 400, f"the values of the body nest deeper than {DEPTH_MAX}"
                )
        elif mark in (b"]", b"}"):
            depth -= 1


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem("bad-request", 400, f"the body is not valid UTF-8 ({error})") from None
