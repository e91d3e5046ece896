"""Converts problem documents to the errors that the embedded database would raise.  The position in
a SQL text or the row of bad data is kept; the address and the request's id are a note on the error.
Anything but a problem document comes from a proxy or another server and is a ``ConnectionFailed``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..errors import (
    OUTSIDE,
    ChronicleError,
    ConnectionFailed,
    CorruptBlock,
    InvalidArgument,
    InvalidData,
    ResourceLimit,
    SqlError,
    StoreClosed,
    WorkerLost,
)

__all__ = ["PAUSE_S_MAX", "Refusal", "refusal"]

_BY_SLUG = {shown.slug: error for error, shown in OUTSIDE.items()}

_OF_HTTP: dict[str, type[ChronicleError]] = {
    "bad-request": InvalidArgument,
    "body-too-large": ResourceLimit,
    "headers-too-large": ResourceLimit,
    "idempotency-mismatch": InvalidArgument,
    "invalid-request": InvalidArgument,
    "not-acceptable": InvalidArgument,
    "not-found": InvalidArgument,
    "overloaded": ResourceLimit,
    "too-many-requests": ResourceLimit,
    "unsupported-media-type": InvalidArgument,
    "not-ready": StoreClosed,
}
"""HTTP errors with an equivalent; the others are ``ConnectionFailed``."""

_LATER = {"idempotency-in-flight"}
PAUSE_S_MAX = 5.0


@dataclass(frozen=True)
class Refusal:
    """An answer with a status of 400 or more.  ``code`` is empty without a problem document;
    ``pause`` is the server's Retry-After in seconds.
    """

    status: int
    code: str
    document: dict[str, Any]
    where: str
    pause: float = 0.0

    def passes(self, again: bool) -> bool:
        """Whether a retry may succeed.  After a proxy's 502 or 504 the outcome is unknown, so
        ``again`` says whether the request is repeatable.
        """
        if self.status in (429, 503) or self.code in _LATER:
            return True
        return self.status in (502, 504) and not self.code and again

    def pause_after(self, pause: float) -> float:
        """Seconds until the next attempt: the larger of ``pause`` and Retry-After, bounded."""
        return min(max(pause, self.pause), PAUSE_S_MAX)

    def error(self) -> ChronicleError:
        told = self.document
        detail = str(told.get("detail") or told.get("title") or f"HTTP status {self.status}")
        kind = _BY_SLUG.get(self.code) or _OF_HTTP.get(self.code, ConnectionFailed)
        if not self.code:
            detail = f"{self.where} answered: {detail}"
        error: ChronicleError
        if issubclass(kind, SqlError):
            position = told.get("position") or {}
            error = kind(detail, position.get("line"), position.get("column"))
        elif issubclass(kind, InvalidData):
            error = kind(detail, told.get("row"))
        elif issubclass(kind, WorkerLost):
            error = kind(detail, str(told.get("why", "crash")))
        elif issubclass(kind, CorruptBlock):  # its text is already complete
            error = kind.__new__(kind)
            error.args, error.file, error.offset = (detail,), "", -1
        else:
            error = kind(detail)
        if self.code:
            request = told.get("request_id")
            error.add_note(f"{self.where} says so" + (f" (request {request})" if request else ""))
        return error


def refusal(status: int, text: bytes, where: str, retry_after: str | None = None) -> Refusal:
    try:
        document = json.loads(text)
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    code = str(document.get("type", "")).rpartition(":")[2]
    try:
        pause = max(0.0, float(retry_after or 0))
    except ValueError:  # a date: the clocks may differ
        pause = 0.0
    return Refusal(status, code, document, where, pause)
