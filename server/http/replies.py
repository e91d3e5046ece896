"""JSON answers, and problem documents (RFC 9457): every error as ``application/problem+json``. ::

    {"type": "urn:chronicle:sql-error", "code": "sql-error", "title": "Sql error", "status": 400,
     "detail": "...", "request_id": "...", "position": {"line": 1, "column": 8}}

``type`` and ``code`` are stable, ``detail`` is for people; ``position`` belongs to SQL errors,
``row`` to unreadable data, ``errors`` to invalid fields.  An exception that is not a
``ChronicleError`` is answered 500 without its text, which is logged under the same ``request_id``.

``reply`` is the JSON response of one object, ``jsonable`` makes single values: times become ISO
8601 text, exact at any unit; decimals text; bytes base64; non-finite floats ``NaN``, ``Infinity``
or ``-Infinity``; integers stay exact.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import errno
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ...core.times import time_text
from ...errors import OUTSIDE, ChronicleError, SqlError, Unauthorized, in_words_of, outside


def json_bytes(content: Any) -> bytes:
    """A line of JSON; handles all Python integers and texts."""
    try:
        return orjson.dumps(content, default=str) + b"\n"
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        return json.dumps(content, separators=(",", ":"), default=str).encode() + b"\n"


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_bytes(content), status, headers, "application/json")


MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:chronicle:"

_CODES = {
    400: ("bad-request", "invalid-data"),
    401: ("unauthorized",),
    403: ("forbidden",),
    404: ("not-found",),
    405: ("method-not-allowed",),
    406: ("not-acceptable",),
    408: ("request-timeout",),
    409: ("idempotency-in-flight", "idempotency-in-doubt", "transaction-ended"),
    412: ("precondition-failed",),
    413: ("body-too-large",),
    415: ("unsupported-media-type",),
    416: ("range-not-satisfiable",),
    422: ("invalid-request", "idempotency-mismatch"),
    429: ("too-many-requests",),
    431: ("headers-too-large",),
    500: ("internal-error", "storage-failed"),
    501: ("not-supported",),
    503: ("overloaded", "not-ready"),
    507: ("storage-full",),
}
"""By status, the codes that this server gives itself; Starlette's errors get the first."""

STATUSES = {code: status for status, codes in _CODES.items() for code in codes}
CODES = sorted({shown.slug for shown in OUTSIDE.values()} | STATUSES.keys())

_NO_SPACE = ("storage-full", "no space is left on the disk; nothing was changed")
_NO_RIGHT = (
    "storage-failed",
    "the store's directory cannot be written; look at its owner, its mode and how it is mounted",
)
_DISK = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EROFS: _NO_RIGHT,
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EIO: ("storage-failed", "the disk failed; look at the system's log"),
    errno.ENOENT: (
        "storage-failed",
        "a file of the store is missing; run `chronicle check` to see what is affected",
    ),
    errno.EMFILE: ("overloaded", "the server has too many files open; try again"),
    errno.ENFILE: ("overloaded", "the system has too many files open; try again"),
}
"""Operating system errors that no lower layer has translated."""


class Problem(Exception):
    """An HTTP error besides those of ``chronicle.errors``; ``more`` are members of the document.
    A client that meets a limit (429, 503) learns when to try again, by default after a second.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
        *,
        status: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status = STATUSES[code] if status is None else status
        self.detail = detail
        again = {"Retry-After": "1"} if self.status in (429, 503) else {}
        self.headers = {**again, **(headers or {})}
        self.more = dict(more or {})


def as_problem(error: BaseException) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, ChronicleError):
        return _outside(error)
    if isinstance(error, RequestValidationError):
        return _invalid_request(error)
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, ("internal-error",))[0]
        return Problem(code, str(error.detail), error.headers, status=error.status_code)
    if isinstance(error, OSError) and error.errno in _DISK:
        return Problem(*_DISK[error.errno])
    return Problem(
        "internal-error", "an unexpected error; the server's log has it under this request_id"
    )


def _outside(error: ChronicleError) -> Problem:
    shown = outside(error)
    if isinstance(error, SqlError):
        position = {"line": error.line, "column": error.column}
        more = {} if error.line is None else {"position": position}
        return Problem(shown.slug, error.reason, more=more, status=shown.status)
    details = {name: getattr(error, name, None) for name in ("row", "errors", "why")}
    return Problem(
        shown.slug,
        in_words_of("rest", str(error)),
        {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {},
        {key: value for key, value in details.items() if value is not None},
        status=shown.status,
    )


def _invalid_request(error: RequestValidationError) -> Problem:
    """List invalid fields; a body that is not JSON is 400 rather than 422."""
    faults = []
    for item in error.errors():
        where = [str(part) for part in item["loc"]]
        if item["type"] == "json_invalid":
            reason = item.get("ctx", {}).get("error", item["msg"])
            return Problem("bad-request", f"the body is not valid JSON: {reason}")
        faults.append({"where": ".".join(where), "message": item["msg"]})
    detail = "; ".join(f"{item['where']}: {item['message']}" for item in faults[:5])
    return Problem("invalid-request", detail, more={"errors": faults})


def problem_document(error: BaseException, request_id: str) -> dict[str, Any]:
    problem = as_problem(error)
    return {
        "type": TYPE_PREFIX + problem.code,
        "code": problem.code,
        "title": problem.code.replace("-", " ").capitalize(),
        "status": problem.status,
        "detail": problem.detail,
        "request_id": request_id,
        **problem.more,
    }


def problem_response(error: BaseException, request_id: str) -> Response:
    problem = as_problem(error)
    return Response(
        json_bytes(problem_document(problem, request_id)),
        status_code=problem.status,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


def jsonable(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _named(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return _iso(value)
    if isinstance(value, pa.Scalar):
        return _scalar(value)
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Iterable) and not isinstance(value, decimal.Decimal):
        return [jsonable(item) for item in value]
    return str(value)


def _named(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _iso(value: dt.datetime | dt.date | dt.time) -> str:
    text = value.isoformat()
    return text.replace("+00:00", "Z") if isinstance(value, dt.datetime) else text


def _scalar(value: Any) -> Any:
    """Arrow scalars: timestamps that Python cannot hold."""
    if pa.types.is_timestamp(value.type) and value.is_valid:
        return time_text(value.value, value.type, "T")
    return jsonable(value.as_py())
