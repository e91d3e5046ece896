"""JWTs of an identity provider: ``CHRONICLE_JWT_ISSUER``, ``_AUDIENCE`` and ``_KEYS``. ::

    iss, aud, exp, sub   required; nbf and iat are checked if present
    scope                "chronicle:read chronicle:ingest ...", or a list; others are ignored
    chronicle:streams    globs over stream names, a list or words; default: all

The algorithm comes from an allowlist without ``none`` and shared secrets, and must fit the key.
Keys are read from a file, again when it is replaced, or fetched over https: at the start, every ten
minutes, and for an unknown key id, at most twice a minute.  Such a token is answered 503 during a
fetch; the event loop is never blocked.  If fetching fails, known keys stay valid for ``KEPT_S``.  A
JWT ends by its expiry (leeway ``LEEWAY_S``) or with its key; there is no revocation.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ...core.caches import Lru
from ...errors import InvalidArgument, MissingDependency, Unauthorized
from ..http.replies import Problem
from .settings import Settings, is_loopback
from .tokens import SCOPES, Stamp, Token, file_stamp

if TYPE_CHECKING:
    from joserfc.jwk import KeySet


logger = logging.getLogger("chronicle.server")
SCOPE_PREFIX = "chronicle:"
STREAMS_CLAIM = "chronicle:streams"
LEEWAY_S = 30
REFRESH_S = 600.0
COOL_S = 30.0
KEPT_S = 86_400.0
FETCH_S = 5.0
KEYS_BYTES_MAX = 1 << 20
TOKEN_BYTES_MAX = 8 << 10
TOKENS_KEPT = 1024
_PUBLIC = ("RSA", "EC", "OKP")


class _CachedToken(NamedTuple):
    token: Token
    until: float


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class IdentityProvider:
    """``keys`` is a JWK set's file or address; raises ``InvalidArgument`` if unusable."""

    def __init__(self, issuer: str, audience: str, keys: str, algorithms: list[str]) -> None:
        try:
            from joserfc import jwt
        except ImportError as error:
            raise MissingDependency(
                f"JWTs need {error.name}; install chronicle-eventstore[jwt]"
            ) from None
        self._algorithms = algorithms
        self._claims = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
            sub={"essential": True},
        )
        self._issuer = issuer
        self._where = keys
        self._remote = keys.startswith(("http://", "https://"))
        self._guard = threading.Lock()
        self._fetching = False
        self._fetched_at = self._had = float("-inf")
        self._stamp: Stamp | None = (0, 0, 0)  # of no file
        self._keys: KeySet | None = None
        self._cached: Lru[bytes, _CachedToken] = Lru(TOKENS_KEPT)
        if self._remote:
            parts = urllib.parse.urlsplit(keys)
            if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
                raise InvalidArgument(
                    f"CHRONICLE_JWT_KEYS is a file or an https address, found {keys}: who can "
                    "change keys on their way can make tokens"
                )
        else:
            self._look()

    @staticmethod
    def takes(secret: str) -> bool:
        """Whether a secret has the form of a JWT."""
        return secret.count(".") == 2

    def find(self, secret: str) -> Token:
        """The token of a JWT; raises ``Unauthorized``, or ``Problem`` (503) while fetching keys."""
        if not self._remote:
            self._look()
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        verified = self._cached  # the cache of these keys: others may arrive meanwhile
        cached = verified.get(digest)
        if cached is None:
            cached = self._verified(secret)
            verified.put(digest, cached)
        if cached.until <= time.time():
            raise Unauthorized(f"the token of {cached.token.name!r} has expired; ask for a new one")
        return cached.token

    def refresh(self) -> None:
        if self._remote and time.monotonic() - self._had > REFRESH_S:
            self._fetch()

    def _verified(self, secret: str) -> _CachedToken:
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        if len(secret) > TOKEN_BYTES_MAX:
            raise Unauthorized(f"a JWT has at most {TOKEN_BYTES_MAX} characters")
        keys = self._keys
        if keys is None or (self._remote and time.monotonic() - self._had > KEPT_S):
            self._have_fetched()
            raise _no_keys()
        try:
            verified = jwt.decode(secret, keys, algorithms=self._algorithms)
            self._claims.validate(verified.claims)
        except InvalidKeyIdError:
            if self._have_fetched():
                raise _no_keys() from None
            raise Unauthorized("the JWT is signed by a key that its issuer does not have") from None
        except (JoseError, ValueError, RecursionError) as error:  # RecursionError: deep nesting
            raise Unauthorized(f"the JWT is not valid here: {_reason(error)}") from None
        return _CachedToken(self._token(verified.claims), float(verified.claims["exp"]) + LEEWAY_S)

    def _token(self, claims: dict[str, Any]) -> Token:
        subject = claims["sub"]
        if not 0 < len(subject) <= 200:
            raise Unauthorized("the JWT's claim 'sub' has 1 to 200 characters")
        granted = _words(claims.get("scope", ""), "scope")
        who = f"{self._issuer}\n{subject}".encode("utf-8", "replace")
        return Token(
            id=f"jwt-{hashlib.sha256(who).hexdigest()[:12]}",
            name=f"jwt:{subject}",
            sha256="",
            scopes=tuple(scope for scope in SCOPES if SCOPE_PREFIX + scope in granted),
            streams=_words(claims.get(STREAMS_CLAIM, "*"), STREAMS_CLAIM),
            created_at="",
        )

    # -------------------------------------------------------------------------- keys

    def _look(self) -> None:
        stamp = file_stamp(self._where)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._take(Path(self._where).read_bytes())
        except (OSError, InvalidArgument) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            if self._keys is None:
                raise InvalidArgument(f"CHRONICLE_JWT_KEYS: {self._where}: {reason}") from None
            logger.error("the keys of JWTs stay as they were: %s: %s", self._where, reason)

    def _have_fetched(self) -> bool:
        with self._guard:
            if not self._remote or self._fetching:
                return self._fetching
            if time.monotonic() - self._fetched_at < COOL_S:
                return False
            self._fetching = True
        threading.Thread(target=self._fetch, name="chronicle-keys", daemon=True).start()
        return True

    def _fetch(self) -> None:
        try:
            opener = urllib.request.build_opener(_NoRedirects())
            with opener.open(self._where, timeout=FETCH_S) as answer:
                self._take(answer.read(KEYS_BYTES_MAX + 1))
        except (OSError, InvalidArgument) as error:
            logger.error("the keys of JWTs cannot be had from %s: %s", self._where, error)
        finally:
            with self._guard:
                self._fetching, self._fetched_at = False, time.monotonic()

    def _take(self, content: bytes) -> None:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        try:
            if len(content) > KEYS_BYTES_MAX:
                raise ValueError(f"more than {KEYS_BYTES_MAX} bytes")
            listed = orjson.loads(content)["keys"]
            public = [key for key in listed if key["kty"] in _PUBLIC and key.get("use") != "enc"]
            keys = KeySet.import_key_set({"keys": public})
        except (JoseError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidArgument(
                f"this is no JWK set with public keys ({_reason(error)})"
            ) from None
        self._had = time.monotonic()  # before the keys, so that no reader takes new keys for old
        self._keys = keys
        self._cached = Lru(TOKENS_KEPT)


def provider_of(settings: Settings) -> IdentityProvider | None:
    """The configured identity provider; raises ``InvalidArgument``, ``MissingDependency``."""
    values = (settings.jwt_issuer, settings.jwt_audience, settings.jwt_keys)
    if not any(values):
        return None
    issuer, audience, keys = values
    if not issuer or not audience or not keys:
        raise InvalidArgument(
            "JWTs need all of CHRONICLE_JWT_ISSUER, CHRONICLE_JWT_AUDIENCE and CHRONICLE_JWT_KEYS: "
            "a token of another issuer, or for another service, must not be taken"
        )
    return IdentityProvider(issuer, audience, keys, settings.jwt_algorithms)


def _words(claim: Any, name: str) -> tuple[str, ...]:
    words = claim.split() if isinstance(claim, str) else claim
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise Unauthorized(f"the JWT's claim {name!r} is text or a list of texts")
    return tuple(words)


def _reason(error: Exception) -> str:
    return str(getattr(error, "description", "") or error or type(error).__name__)


def _no_keys() -> Problem:
    return Problem(
        "not-ready",
        "the keys of the identity provider are not here; ask again, and look at the server's log",
    )
