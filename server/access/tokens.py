"""Bearer tokens: ``Authorization: Bearer chr_...`` with 256 random bits.

The store has only their SHA-256 (a slow password hash would add nothing to 256 random bits), in
``<store>/server/tokens.json``, mode 0600, replaced atomically::

    {"version": 1, "tokens": [{"id": "3f9c1a52", "name": "grafana", "sha256": "...",
      "scopes": ["read"], "streams": ["flights", "nab_*"],
      "created_at": "2026-11-20T10:00:00Z", "expires_at": null}]}

A running server sees changes with its next request.  If the file is unreadable, every request is
refused.  A store that ever had a token is marked in its manifest for good: without ``server/``,
restored from a backup or after the last revocation, it refuses every request rather than serve
openly.  Writers use a lock file; local file systems only.

A token has a name, scopes, streams and an expiry.  No scope implies another, except
as listed::

    read      queries, events out; includes metrics
    write     events in, new streams; includes ingest
    ingest    events in
    metrics   /metrics
    operate   maintenance: jobs, everybody's queries; includes metrics
    admin     everything, also dropping streams, changing indexes, tokens

The server's own files::

    <store>/server/               0700
        tokens.json               0600, replaced atomically
        token-uses.json           last use of each token
        tokens.lock               held while tokens.json is rewritten
        audit.log                 0600; one JSON object per line
        idempotency.wal           see service.idempotency
        transactions/<job>/       parts; see service.transactions
        jobs.local/<job>.json     see service.jobs

The audit log becomes ``audit.log.1`` at ``BYTES_MAX``, and replaces an older one.  It is not
synced; a line that cannot be written goes to the process's log.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import fnmatch
import hashlib
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from ...errors import ChronicleError, CorruptStore, InvalidArgument, StorageFailed, Unauthorized
from ...store import file_contract
from ...store.catalog import read_manifest, write_manifest
from ...store.files import RealFiles
from ...store.store import MARK

INCLUDED = {
    "read": {"read", "metrics"},
    "write": {"write", "ingest"},
    "ingest": {"ingest"},
    "metrics": {"metrics"},
    "operate": {"operate", "metrics"},
    "admin": {"read", "write", "ingest", "metrics", "operate", "admin"},
}

SCOPES = tuple(INCLUDED)
Stamp = tuple[int, int, int]
_DURATION = re.compile(r"(\d{1,6})\s*(s|m|h|d|w)[a-z]*")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def now_utc() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)


def time_text(moment: dt.datetime) -> str:
    """A time in the tokens' format: ISO 8601, UTC, seconds."""
    return moment.astimezone(dt.timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def span_of(text: str) -> dt.timedelta | None:
    """A span such as ``30d``; None for another text."""
    match = _DURATION.fullmatch(text.strip().lower())
    return dt.timedelta(seconds=int(match[1]) * _SECONDS[match[2]]) if match else None


def expiry(
    expires: str | dt.datetime | dt.timedelta | None, at_most: dt.timedelta | None = None
) -> str | None:
    """The expiry as text, by default ``at_most`` from now; raises ``InvalidArgument``."""
    expires = at_most if expires is None else expires
    if expires is None:
        return None
    if isinstance(expires, str):
        span = span_of(expires)
        if span is not None:
            expires = span
        else:
            try:
                expires = dt.datetime.fromisoformat(expires.strip())
            except ValueError:
                raise InvalidArgument(
                    f"expected a time such as 2027-01-01 or a span such as 30d, found {expires!r}"
                ) from None
    try:
        if isinstance(expires, dt.timedelta):
            expires = now_utc() + expires
        if expires.tzinfo is None:
            expires = expires.replace(tzinfo=dt.timezone.utc)
        text = time_text(expires)
    except OverflowError:
        raise InvalidArgument("a token expires before the year 10000, or never") from None
    if expires <= now_utc():
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


def server_directory(store: str | os.PathLike[str], *, create: bool = False) -> Path:
    path = Path(store) / "server"
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def file_stamp(path: str | os.PathLike[str]) -> Stamp | None:
    """Changes when the file is replaced; None where there is none to look at."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, readable by its owner only."""
    file_contract.replace_file(RealFiles(path.parent), path.name, content, private=True)


logger = logging.getLogger("chronicle.server.audit")
AUDIT_FILE_NAME = "audit.log"
BYTES_MAX = 64 << 20


def note(store: str | os.PathLike[str], **facts: object) -> None:
    """Write a line; safe across processes."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **facts}
    text = orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE)
    try:
        path = server_directory(store, create=True) / AUDIT_FILE_NAME
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, text)
            full = os.fstat(file).st_size >= BYTES_MAX
        finally:
            os.close(file)
        if full:
            os.replace(path, path.with_name(AUDIT_FILE_NAME + ".1"))
    except OSError as error:
        logger.error(
            "%s cannot be written (%s): %s", AUDIT_FILE_NAME, error.strerror, text.decode()
        )


PREFIX = "chr_"
FILE_NAME, USES = "tokens.json", "token-uses.json"
OVERLAP = "1h"

GUARDED = "guarded"

_NAME = re.compile(r"[\w.@ +-]{1,100}")


def create_token(
    store: str | os.PathLike[str],
    name: str,
    scopes: Iterable[str] = ("read",),
    streams: Iterable[str] = ("*",),
    expires: str | dt.datetime | dt.timedelta | None = None,
    at_most: dt.timedelta | None = None,
) -> tuple[Token, str]:
    """Create a token and store its hash; returns the secret, which is not stored.

    Parameters
    ----------
    store : path
        Created if missing; a server may be running on it.
    name : str
        Need not be unique.
    scopes, streams : iterable of str
        Some of ``SCOPES``, and globs over stream names.
    expires : str, datetime or timedelta, optional
        A time (UTC unless it has an offset) or a span from now (``30d``, ``12 hours``).
    at_most : timedelta, optional
        The longest, and default, lifetime.
    """
    chosen = tuple(dict.fromkeys(scopes))
    unknown = [scope for scope in chosen if scope not in SCOPES]
    if unknown or not chosen:
        raise InvalidArgument(
            f"scopes are some of {', '.join(SCOPES)}; found {', '.join(unknown) or 'none'}"
        )
    globs = tuple(dict.fromkeys(streams))
    if not globs or not all(globs):
        raise InvalidArgument("a token needs at least one stream glob, such as * or flights")
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"a token's name has 1 to 100 letters, digits or . @ + -, found {name!r}"
        )
    fresh, secret = _fresh()
    token = Token(
        **fresh,
        name=name,
        scopes=chosen,
        streams=globs,
        expires_at=expiry(expires, at_most),
    )
    with _rewriting(store) as tokens:
        tokens.append(token)
    note(
        store,
        did="made a token",
        token=token.name,
        id=token.id,
        scopes=token.scopes,
        streams=token.streams,
    )
    return token, secret


def list_tokens(store: str | os.PathLike[str]) -> list[Token]:
    return _read(server_directory(store) / FILE_NAME)


def last_uses(store: str | os.PathLike[str]) -> dict[str, str]:
    try:
        uses = orjson.loads((server_directory(store) / USES).read_bytes())
    except (OSError, ValueError):
        return {}  # only informative
    return {str(k): str(v) for k, v in uses.items()} if isinstance(uses, dict) else {}


def rotate_token(
    store: str | os.PathLike[str],
    which: str,
    overlap: str | dt.timedelta = OVERLAP,
    expires: str | dt.datetime | dt.timedelta | None = None,
    at_most: dt.timedelta | None = None,
) -> tuple[Token, str]:
    """Replace a token (id or unique name) by one of the same name, scopes and streams.  The old one
    stays valid for ``overlap``; ``expires`` is by default the old lifetime, otherwise as for
    ``create_token``.  Raises ``InvalidArgument`` for no, several or expired matches.
    """
    span = span_of(overlap) if isinstance(overlap, str) else overlap
    if span is None:
        raise InvalidArgument(f"the overlap is a span such as 1h or 7d, found {overlap!r}")
    now = now_utc()
    fresh, secret = _fresh()
    with _rewriting(store) as tokens:
        old = _one_of(tokens, which)
        if old.expired(now):
            raise InvalidArgument(f"the token {old.name!r} has expired; create another one")
        if expires is None and old.expires_at is not None:
            made, ends = (dt.datetime.fromisoformat(t) for t in (old.created_at, old.expires_at))
            expires = min(ends - made, at_most or ends - made)
        token = Token(
            **fresh,
            name=old.name,
            scopes=old.scopes,
            streams=old.streams,
            expires_at=expiry(expires, at_most),
        )
        tokens.remove(old)
        if span:
            until = expiry(span)
            if old.expires_at is not None:
                until = min(str(until), old.expires_at)  # both in UTC, to the second
            tokens.append(replace(old, expires_at=until))
        tokens.append(token)
    note(store, did="rotated a token", token=token.name, id=token.id, instead_of=old.id)
    return token, secret


def revoke_all_tokens(store: str | os.PathLike[str], keep: str | None = None) -> list[Token]:
    """Remove every token except the id ``keep``; returns the removed ones."""
    with _rewriting(store) as tokens:
        gone = [token for token in tokens if token.id != keep]
        tokens[:] = [token for token in tokens if token.id == keep]
    for token in gone:
        note(store, did="revoked a token", token=token.name, id=token.id)
    return gone


def revoke_token(store: str | os.PathLike[str], which: str) -> Token:
    """Remove a token by id or unique name; raises ``InvalidArgument`` for no or several matches."""
    with _rewriting(store) as tokens:
        token = _one_of(tokens, which)
        tokens.remove(token)
    note(store, did="revoked a token", token=token.name, id=token.id)
    return token


def _one_of(tokens: Sequence[Token], which: str) -> Token:
    matching = [token for token in tokens if token.id == which]
    matching = matching or [token for token in tokens if token.name == which]
    if len(matching) != 1:
        what = "no token has" if not matching else "several tokens have"
        raise InvalidArgument(
            f"{what} the id or name {which!r}; `chronicle token list` shows their ids"
        )
    return matching[0]


def _fresh() -> tuple[dict[str, str], str]:
    secret = PREFIX + secrets.token_urlsafe(32)
    now = time_text(now_utc())
    return {"id": secrets.token_hex(4), "sha256": _digest(secret), "created_at": now}, secret


def mark_guarded(store: str | os.PathLike[str]) -> None:
    """Record in the store's manifest, and so in every backup, that it has had a token; for good."""
    files = RealFiles(os.fspath(store))
    body = read_manifest(files, MARK)
    if body is not None and not body.get(GUARDED):
        write_manifest(files, MARK, {**body, GUARDED: True})


def is_guarded(store: str | os.PathLike[str]) -> bool:
    if not (Path(store) / MARK / "MANIFEST").is_file():
        return False
    body = read_manifest(RealFiles(os.fspath(store)), MARK)
    return body is not None and bool(body.get(GUARDED))


class TokenFile:
    """A store's tokens in a running server; the first line of ``secret_file`` is a further token
    with every right.
    """

    def __init__(self, store: str | os.PathLike[str], secret_file: Path | None = None) -> None:
        self._store = store
        self._path = server_directory(store) / FILE_NAME
        self._manifest = Path(store) / MARK / "MANIFEST"
        self._guard = threading.Lock()
        self._seen: Stamp | None = None
        self._marked: tuple[Stamp | None, bool] = (None, False)
        self._fixed = {} if secret_file is None else _from_secret_file(secret_file)
        self._tokens = self._fixed
        self._uses: dict[str, float] = {}

    def current(self) -> dict[str, Token]:
        """The present tokens by the digest of their secret; do not modify."""
        stamp = file_stamp(self._path)
        with self._guard:
            if stamp != self._seen:
                listed = {token.sha256: token for token in _read(self._path)}
                self._tokens = {**self._fixed, **listed}
                self._seen = stamp
            return self._tokens

    def any(self) -> bool:
        return bool(self.current())

    def guarded(self) -> bool:
        stamp = file_stamp(self._manifest)
        if stamp is None or stamp != self._marked[0]:
            self._marked = (stamp, is_guarded(self._store))
        return self._marked[1]

    def find(self, secret: str) -> Token:
        token = self.current().get(_digest(secret))
        if token is None:
            raise Unauthorized("the token is not known here; ask for one: chronicle token create")
        if token.expired():
            raise Unauthorized(
                f"the token {token.name!r} expired at {token.expires_at}; ask for a new one"
            )
        self._uses[token.id] = time.time()
        return token

    def uses(self) -> dict[str, str]:
        seen = {
            token: time_text(dt.datetime.fromtimestamp(at, dt.timezone.utc))
            for token, at in list(self._uses.items())
        }
        return {**last_uses(self._store), **seen}

    def save_uses(self) -> None:
        if not self._uses:
            return
        current = {token.id for token in self.current().values()}
        uses = {token: at for token, at in self.uses().items() if token in current}
        try:
            replace_file(self._path.with_name(USES), orjson.dumps(uses))
        except (OSError, ChronicleError) as error:
            logger.error("%s cannot be written: %s", USES, error)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _read(path: Path) -> list[Token]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    try:
        document: dict[str, Any] = orjson.loads(content)
        if document["version"] != 1:
            raise ValueError(f"version {document['version']!r}")
        return [
            Token(**{**entry, "scopes": tuple(entry["scopes"]), "streams": tuple(entry["streams"])})
            for entry in document["tokens"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptStore(
            f"{path} is not a token file of this version ({error}); restore it or delete it and "
            "create the tokens anew"
        ) from None


def _from_secret_file(path: Path) -> dict[str, Token]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InvalidArgument(f"the token file {path} cannot be read: {error.strerror}") from None
    secret = lines[0].strip() if lines else ""
    if len(secret) < 16:
        raise InvalidArgument(
            f"the first line of the token file {path} must be a secret of at least 16 characters; "
            "`openssl rand -hex 32` prints one"
        )
    token = Token("file", str(path.name), _digest(secret), ("admin",), ("*",), time_text(now_utc()))
    return {token.sha256: token}


@contextmanager
def _rewriting(store: str | os.PathLike[str]) -> Iterator[list[Token]]:
    if not (
        Path(store) / MARK / "MANIFEST"
    ).exists():  # a server on a public address needs a token first
        from ...api.database import open_database

        open_database(store).close()
    try:
        directory = server_directory(store, create=True)
        descriptor = os.open(directory / "tokens.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            tokens = _read(directory / FILE_NAME)
            yield tokens
            mark_guarded(store)  # first, so that a crash in between fails closed
            replace_file(directory / FILE_NAME, _document(tokens))
        finally:
            os.close(descriptor)
    except OSError as error:
        if isinstance(error, ChronicleError):
            raise
        raise StorageFailed(
            f"the tokens of the store {store} cannot be written: {error.strerror}; nothing was "
            "changed"
        ) from None


def _document(tokens: Sequence[Token]) -> bytes:
    document = {"version": 1, "tokens": [asdict(token) for token in tokens]}
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
