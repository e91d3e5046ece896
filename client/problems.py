"""What a server refuses: problem documents, back as the errors they were made from.

Purpose
    :class:`Refusal` is an answer with a status of 400 or more.  It says which error of
    :mod:`chronicle.errors` that is, and whether asking again may help.

Guarantee
    A document of a Chronicle server becomes the error that the embedded database would have raised,
    with the position in a SQL text or the row of bad data.  The address and the request's id, under
    which the server's log has it, are a note on the error.

Limits
    What is no problem document comes from a proxy, or from another server, and is a
    :class:`.ConnectionFailed`.
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
"""Refusals of HTTP that have an error of the same meaning; the others are failed connections."""

_LATER = {"idempotency-in-flight"}
PAUSE_S_MAX = 5.0


@dataclass(frozen=True)
class Refusal:
    """An answer that says no.

    Attributes
    ----------
    code : str
        Of the problem document; empty where there is none.
    where : str
        The server's address.
    pause : float
        Seconds after which it wants to be asked again.
    """

    status: int
    code: str
    document: dict[str, Any]
    where: str
    pause: float = 0.0

    def passes(self, again: bool) -> bool:
        """Whether the same request may succeed a moment later.

        Parameters
        ----------
        again : bool
            Whether the request does the same when it is carried out twice: who says 502 or 504 is
            a proxy, which does not know whether it was carried out.
        """
        if self.status in (429, 503) or self.code in _LATER:
            return True
        return self.status in (502, 504) and not self.code and again

    def pause_after(self, pause: float) -> float:
        """Seconds to wait before the next try, with this pause or the one that is asked for."""
        return min(max(pause, self.pause), PAUSE_S_MAX)

    def error(self) -> ChronicleError:
        """The error that this stands for."""
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
        elif issubclass(kind, CorruptBlock):  # its text says already where and what to do
            error = kind.__new__(kind)
            error.args, error.file, error.offset = (detail,), "", -1
        else:
            error = kind(detail)
        if self.code:
            request = told.get("request_id")
            error.add_note(f"{self.where} says so" + (f" (request {request})" if request else ""))
        return error


def refusal(status: int, text: bytes, where: str, retry_after: str | None = None) -> Refusal:
    """What an answer with such a status and body is."""
    try:
        document = json.loads(text)
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    code = str(document.get("type", "")).rpartition(":")[2]
    try:
        pause = max(0.0, float(retry_after or 0))
    except ValueError:  # a date: its clock may not be ours
        pause = 0.0
    return Refusal(status, code, document, where, pause)
