"""The routes of tokens, jobs and backups as calls; see ``docs/rest.md``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from .calls import Call, quoted

__all__ = [
    "Expiry",
    "begin_job",
    "job",
    "list_backups",
    "list_jobs",
    "list_tokens",
    "make_token",
    "revoke_all_tokens",
    "revoke_token",
    "rotate_token",
]

TOKENS = "/v1/tokens"
JOBS = "/v1/jobs"
BACKUPS = "/v1/backups"
Expiry = str | dt.datetime | dt.timedelta | None


def list_tokens() -> Call:
    return Call("GET", TOKENS)


def make_token(
    name: str, scopes: Iterable[str], streams: Iterable[str], expires: Expiry = None
) -> Call:
    body = {
        "name": name,
        "scopes": list(scopes),
        "streams": list(streams),
        "expires": _expiry(expires),
    }
    return Call("POST", TOKENS, body=body)


def rotate_token(token_id: str, overlap: str | dt.timedelta, expires: Expiry = None) -> Call:
    body = {"overlap": _expiry(overlap), "expires": _expiry(expires)}
    return Call("POST", f"{TOKENS}/{quoted(token_id)}/rotate", body=body)


def revoke_token(token_id: str) -> Call:
    return Call("DELETE", f"{TOKENS}/{quoted(token_id)}")


def revoke_all_tokens() -> Call:
    return Call("DELETE", TOKENS)


def list_jobs() -> Call:
    return Call("GET", JOBS)


def begin_job(kind: str, asked: dict[str, Any]) -> Call:
    """Start a job; None values are omitted."""
    given = {name: value for name, value in asked.items() if value is not None}
    return Call("POST", JOBS, body={"kind": kind, **given})


def job(job_id: str, method: str = "GET") -> Call:
    return Call(method, f"{JOBS}/{quoted(job_id)}")


def list_backups() -> Call:
    return Call("GET", BACKUPS)


def _expiry(given: Expiry) -> str | None:
    """A time or a span as the server reads it; spans in whole seconds."""
    if isinstance(given, dt.timedelta):
        return f"{given // dt.timedelta(seconds=1)}s"
    return given.isoformat() if isinstance(given, dt.datetime) else given
