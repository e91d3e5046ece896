"""A token: name, scopes, streams, expiry.  Scopes::

    read      queries, events out; includes metrics
    write     events in, new streams; includes ingest
    ingest    events in
    metrics   /metrics
    operate   maintenance: jobs, everybody's queries; includes metrics
    admin     everything, also dropping streams, changing indexes, tokens

They are a set: a token that may write may not therefore read.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidArgument

__all__ = ["INCLUDED", "SCOPES", "Token", "expiry", "now_utc", "span_of", "time_text"]

INCLUDED = {
    "read": {"read", "metrics"},
    "write": {"write", "ingest"},
    "ingest": {"ingest"},
    "metrics": {"metrics"},
    "operate": {"operate", "metrics"},
    "admin": {"read", "write", "ingest", "metrics", "operate", "admin"},
}

SCOPES = tuple(INCLUDED)
_DURATION = re.compile(r"(\d{1,6})\s*(s|m|h|d|w)[a-z]*")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def now_utc() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)


def time_text(moment: dt.datetime) -> str:
    """A time in the tokens' format: ISO 8601, UTC, seconds."""
    return moment.astimezone(dt.timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def span_of(text: str) -> dt.timedelta | None:
    """A span such as ``30d``; None for another text."""
    found = _DURATION.fullmatch(text.strip().lower())
    return dt.timedelta(seconds=int(found[1]) * _SECONDS[found[2]]) if found else None


def expiry(
    given: str | dt.datetime | dt.timedelta | None, at_most: dt.timedelta | None = None
) -> str | None:
    """The expiry as text, by default ``at_most`` from now; raises ``InvalidArgument``."""
    given = at_most if given is None else given
    if given is None:
        return None
    if isinstance(given, str):
        span = span_of(given)
        if span is not None:
            given = span
        else:
            try:
                given = dt.datetime.fromisoformat(given.strip())
            except ValueError:
                raise InvalidArgument(
                    f"expected a time such as 2027-01-01 or a span such as 30d, found {given!r}"
                ) from None
    try:
        if isinstance(given, dt.timedelta):
            given = now_utc() + given
        if given.tzinfo is None:
            given = given.replace(tzinfo=dt.timezone.utc)
        text = time_text(given)
    except OverflowError:
        raise InvalidArgument("a token expires before the year 10000, or never") from None
    if given <= now_utc():
        raise InvalidArgument(f"the token would have expired already, at {text}")
    if at_most is not None and text > time_text(now_utc() + at_most):
        raise InvalidArgument(
            f"tokens expire after {at_most.days} days at most here (CHRONICLE_TOKEN_DAYS), found "
            f"{text}"
        )
    return text


@dataclass(frozen=True)
class Token:
    """A token without its secret.  ``sha256`` is the secret's hex digest, ``streams`` are
    case-sensitive globs (``*``, ``?``, ``[...]``), times are ISO 8601 in UTC.
    """

    id: str
    name: str
    sha256: str
    scopes: tuple[str, ...]
    streams: tuple[str, ...]
    created_at: str
    expires_at: str | None = None

    def allows(self, scope: str) -> bool:
        return any(scope in INCLUDED[carried] for carried in self.scopes)

    def reaches(self, stream: str) -> bool:
        return any(fnmatch.fnmatchcase(stream, glob) for glob in self.streams)

    @property
    def reaches_all(self) -> bool:
        return "*" in self.streams

    def expired(self, now: dt.datetime | None = None) -> bool:
        if self.expires_at is None:
            return False
        return dt.datetime.fromisoformat(self.expires_at) <= (now or now_utc())

    def to_json(self, used: str | None = None) -> dict[str, Any]:
        """For API answers, with the last use; without the digest."""
        return {
            "token_id": self.id,
            "name": self.name,
            "scopes": list(self.scopes),
            "streams": list(self.streams),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "last_used_at": used,
        }
