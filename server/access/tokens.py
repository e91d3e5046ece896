"""Bearer tokens: who may do what with which streams.

Purpose
    A token is 256 random bits that its holder sends as ``Authorization: Bearer chr_...``.  The
    store keeps only their SHA-256, so reading the file does not give access to the API.  (A slow
    password hash would add nothing: there is nothing to guess in 256 random bits.)

Layout
    ``<store>/server/tokens.json``, mode 0600, replaced whole::

        {"version": 1, "tokens": [{"id": "3f9c1a52", "name": "grafana", "sha256": "...",
          "scopes": ["read"], "streams": ["flights", "nab_*"],
          "created_at": "2026-11-20T10:00:00Z", "expires_at": null}]}

    Scopes are a set.  ``read``: queries and events out.  ``write``: events in, new streams.
    ``admin``: everything, also dropping streams and changing indexes.  A token that may write may
    not therefore read.

Guarantee
    Created and revoked tokens count in a running server with its next request: the file is read
    again whenever it was replaced.  With a file that cannot be read every request is refused.  A
    store that has had a token says so in its own manifest, for ever: without ``server/``, restored
    from a backup or after the last token was revoked, it refuses every request rather
    than serve openly.

Limits
    Writers (``chronicle token ...``) take turns by a lock file; works on local file systems.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import fnmatch
import hashlib
import os
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from ...errors import ChronicleError, CorruptStore, InvalidArgument, StorageFailed, Unauthorized
from ...store.files import RealFiles
from ...store.manifest import read_manifest, write_manifest
from ...store.store import MARK
from .server_directory import replace_file, server_directory

__all__ = [
    "SCOPES",
    "Token",
    "TokenFile",
    "create_token",
    "is_guarded",
    "list_tokens",
    "mark_guarded",
    "revoke_token",
]

SCOPES = ("read", "write", "admin")
PREFIX = "chr_"
FILE_NAME = "tokens.json"
GUARDED = "guarded"
"""Member of the store's manifest: that it has had a token."""

_NAME = re.compile(r"[\w.@ +-]{1,100}")
_DURATION = re.compile(r"(\d+)\s*(s|m|h|d|w)[a-z]*")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True)
class Token:
    """What is known of a token; never its secret.

    Attributes
    ----------
    id : str
        Short public name, for listing and revoking.
    name : str
        What its maker called it.
    sha256 : str
        Hex digest of the secret.
    scopes : tuple of str
        Some of :data:`SCOPES`.
    streams : tuple of str
        Globs (``*``, ``?``, ``[...]``) over stream names, case matters.
    created_at, expires_at : str
        ISO 8601 in UTC; ``expires_at`` may be None.
    """

    id: str
    name: str
    sha256: str
    scopes: tuple[str, ...]
    streams: tuple[str, ...]
    created_at: str
    expires_at: str | None = None

    def allows(self, scope: str) -> bool:
        """Whether the token carries a scope; ``admin`` carries all."""
        return scope in self.scopes or "admin" in self.scopes

    def reaches(self, stream: str) -> bool:
        """Whether a stream's name matches one of the token's globs."""
        return any(fnmatch.fnmatchcase(stream, glob) for glob in self.streams)

    @property
    def reaches_all(self) -> bool:
        """Whether the token is not restricted to some streams."""
        return "*" in self.streams

    def expired(self, now: dt.datetime | None = None) -> bool:
        """Whether the token's time is over."""
        if self.expires_at is None:
            return False
        return dt.datetime.fromisoformat(self.expires_at) <= (now or _now())


def create_token(
    store: str | os.PathLike[str],
    name: str,
    scopes: Iterable[str] = ("read",),
    streams: Iterable[str] = ("*",),
    expires: str | dt.datetime | dt.timedelta | None = None,
) -> tuple[Token, str]:
    """Make a token and keep its hash.

    Parameters
    ----------
    store : path
        Directory of the store, created when it is missing; a server may be running on it.
    name : str
        For people; need not be unique.
    scopes : iterable of {"read", "write", "admin"}
    streams : iterable of str
        Globs over stream names.
    expires : str, datetime or timedelta, optional
        A time (``2027-01-01``, UTC unless it has an offset) or a span from now (``30d``, ``12
        hours``).

    Returns
    -------
    token : Token
    secret : str
        To be shown once: it is not kept.

    Raises
    ------
    InvalidArgument
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
    secret = PREFIX + secrets.token_urlsafe(32)
    token = Token(
        id=secrets.token_hex(4),
        name=name,
        sha256=_digest(secret),
        scopes=chosen,
        streams=globs,
        created_at=_text(_now()),
        expires_at=_expiry(expires),
    )
    with _rewriting(store) as tokens:
        tokens.append(token)
    return token, secret


def list_tokens(store: str | os.PathLike[str]) -> list[Token]:
    """The tokens of a store, expired ones too, oldest first."""
    return _read(server_directory(store) / FILE_NAME)


def revoke_token(store: str | os.PathLike[str], which: str) -> Token:
    """Remove a token by its id, or by its name when only one has that name.

    Raises
    ------
    InvalidArgument
        When none or several tokens answer to ``which``.
    """
    with _rewriting(store) as tokens:
        found = [token for token in tokens if token.id == which]
        found = found or [token for token in tokens if token.name == which]
        if len(found) != 1:
            what = "no token has" if not found else "several tokens have"
            raise InvalidArgument(
                f"{what} the id or name {which!r}; `chronicle token list` shows their ids"
            )
        tokens.remove(found[0])
    return found[0]


def mark_guarded(store: str | os.PathLike[str]) -> None:
    """Write into the store itself that it has had a token; for good.

    The mark is part of the store's manifest, so every backup of it has it, whatever becomes of
    ``server/``.
    """
    files = RealFiles(os.fspath(store))
    body = read_manifest(files, MARK)
    if body is not None and not body.get(GUARDED):
        write_manifest(files, MARK, {**body, GUARDED: True})


def is_guarded(store: str | os.PathLike[str]) -> bool:
    """Whether the store has ever had a token."""
    if not (Path(store) / MARK / "MANIFEST").is_file():
        return False
    body = read_manifest(RealFiles(os.fspath(store)), MARK)
    return body is not None and bool(body.get(GUARDED))


class TokenFile:
    """The tokens of a store as a running server sees them.

    Parameters
    ----------
    store : path
        Directory of the store.
    secret_file : Path, optional
        File whose first line is the secret of one further token, with every right.
    """

    def __init__(self, store: str | os.PathLike[str], secret_file: Path | None = None) -> None:
        self._store = store
        self._path = server_directory(store) / FILE_NAME
        self._secret_file = secret_file
        self._guard = threading.Lock()
        self._seen: object = None
        self._tokens: dict[str, Token] = {}
        self._fixed = {} if secret_file is None else _from_secret_file(secret_file)

    def current(self) -> dict[str, Token]:
        """Tokens by the digest of their secret, as the file is now."""
        stamp = _stamp(self._path)
        with self._guard:
            if stamp != self._seen or (stamp is None and self._tokens):
                self._tokens = {token.sha256: token for token in _read(self._path)}
                self._seen = stamp
            return {**self._fixed, **self._tokens}

    def any(self) -> bool:
        """Whether there is a token, be it expired."""
        return bool(self.current())

    def guarded(self) -> bool:
        """Whether the store has ever had a token."""
        return is_guarded(self._store)

    def find(self, secret: str) -> Token:
        """The token of a secret.

        Raises
        ------
        Unauthorized
            When it is unknown or expired.
        """
        token = self.current().get(_digest(secret))
        if token is None:
            raise Unauthorized("the token is not known here; ask for one: chronicle token create")
        if token.expired():
            raise Unauthorized(
                f"the token {token.name!r} expired at {token.expires_at}; ask for a new one"
            )
        return token


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)


def _text(moment: dt.datetime) -> str:
    return moment.astimezone(dt.timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _expiry(given: str | dt.datetime | dt.timedelta | None) -> str | None:
    if given is None:
        return None
    if isinstance(given, str):
        span = _DURATION.fullmatch(given.strip().lower())
        if span:
            given = dt.timedelta(seconds=int(span[1]) * _SECONDS[span[2]])
        else:
            try:
                given = dt.datetime.fromisoformat(given.strip())
            except ValueError:
                raise InvalidArgument(
                    f"expected a time such as 2027-01-01 or a span such as 30d, found {given!r}"
                ) from None
    if isinstance(given, dt.timedelta):
        given = _now() + given
    if given.tzinfo is None:
        given = given.replace(tzinfo=dt.timezone.utc)
    if given <= _now():
        raise InvalidArgument(f"the token would have expired already, at {_text(given)}")
    return _text(given)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


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
    token = Token("file", str(path.name), _digest(secret), ("admin",), ("*",), _text(_now()))
    return {token.sha256: token}


@contextmanager
def _rewriting(store: str | os.PathLike[str]) -> Iterator[list[Token]]:
    """The tokens as a list; what the block leaves in it is written when it ends well."""
    if not (
        Path(store) / MARK / "MANIFEST"
    ).exists():  # a server on a public address needs a token first
        from ...database import open_database

        open_database(store).close()
    try:
        directory = server_directory(store, create=True)
        descriptor = os.open(directory / "tokens.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            tokens = _read(directory / FILE_NAME)
            yield tokens
            mark_guarded(store)  # first: a token that is lost closes the door, not opens it
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
