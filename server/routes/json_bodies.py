"""JSON request bodies, read into pydantic models; also what ``curl -d`` sends without a
Content-Type, and plain SQL for models with a field ``sql``.  Size, nesting depth, pace and memory
are bounded.
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
_FORM = "application/x-www-form-urlencoded"
_TEXT = ("application/sql", "text/plain", "text/sql")

_LONG_DIGITS = re.compile(rb"\d{19}")
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""Brackets and whole strings; an unterminated string extends to the end: no backtracking."""

Model = TypeVar("Model", bound=BaseModel)


def spec_body(model: type[BaseModel]) -> dict[str, Any]:
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
    if isinstance(node, dict):
        if "$ref" in node:
            return _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
        kept = (item for item in node.items() if item[0] != "discriminator")  # it holds references
        return {key: _inlined(value, definitions) for key, value in kept}
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    return node


async def read_spec(request: Request, model: type[Model], bytes_max: int = BYTES_MAX) -> Model:
    """Read a request's body; raises ``Problem`` or ``RequestValidationError``."""
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
            # orjson turns integers beyond 64 bits into floats
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
