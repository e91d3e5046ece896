"""Authentication and authorization: bearer tokens, and protection of servers without tokens.

A route asks its ``Principal`` for each right: ``principal.require("read", "flights")``.

Without tokens the server is *open*: it answers only clients of the same machine that use a loopback
host name (which stops DNS rebinding), and no page of another origin, not even for reads.  A store
that ever had a token, or a copy of it, is never served openly (``tokens.mark_guarded``).  With
tokens or without, a changing request from a page of another origin is refused.

Rates: each client has a token bucket.  The ``CLIENTS_MAX`` most recent clients are remembered, and
others start with a full bucket.  Rates live on the event loop.

Statements: ``read`` to query, ``write`` to insert and create, ``admin`` to drop, delete, alter and
index.  ``VisibleStreams`` hides all other streams from a restricted token.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.types import Scope

from ...core.caches import Lru
from ...errors import Forbidden, Unauthorized
from ..http.replies import Problem
from .identity_provider import IdentityProvider
from .settings import Settings, is_loopback
from .tokens import Token, TokenFile

if TYPE_CHECKING:
    from ...query.contract.access import Access

CLIENTS_MAX = 10_000


class Buckets:
    """One bucket per client: ``per_s`` requests a second (0: no limit), ``burst`` at once."""

    def __init__(
        self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._left: Lru[str, tuple[float, float]] = Lru(CLIENTS_MAX)

    def wait_s(self, client: str) -> float:
        return max(0.0, 1.0 - self._filled(client)) / self._per_s if self._per_s else 0.0

    def take(self, client: str) -> None:
        if self._per_s:
            self._left.put(client, (self._filled(client) - 1.0, self._clock()))

    def _filled(self, client: str) -> float:
        left, at = self._left.get(client) or (self._burst, self._clock())
        return min(self._burst, left + (self._clock() - at) * self._per_s)


COUNTED = "chronicle.counted"
"""Key of the scope: the request counts against the rate limits already."""

OPEN = "chronicle.open"
"""Key of the scope: the server had no tokens when it checked the client's address."""

_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True)
class Principal:
    """Who makes a request: ``token`` is None on an open server, where everything is allowed; limits
    count by ``client`` (the token's id, or the address); ``used`` has the scopes granted.
    """

    token: Token | None
    client: str
    used: set[str] = field(default_factory=set, compare=False, repr=False)

    @property
    def owner(self) -> str:
        """Owner of what outlives a request: the token's name, also its successor's; "" if open."""
        return "" if self.token is None else self.token.name

    def may(self, scope: str, stream: str | None = None) -> bool:
        """Whether something is allowed; ``stream`` None: it concerns no stream."""
        if self.token is None:
            return True
        return self.token.allows(scope) and (stream is None or self.token.reaches(stream))

    def require(self, scope: str, stream: str | None = None) -> None:
        """Raise ``Forbidden`` unless allowed; the same for streams that do not exist."""
        if self.may(scope, stream):
            self.used.add(scope)
            return
        assert self.token is not None
        if not self.token.allows(scope):
            raise Forbidden(
                f"this needs the scope {scope!r}; the token {self.token.name!r} has "
                f"{', '.join(self.token.scopes) or 'none'}"
            )
        raise Forbidden(
            f"the token {self.token.name!r} reaches the streams {', '.join(self.token.streams)}, "
            f"not {stream!r}"
        )

    @property
    def everywhere(self) -> bool:
        return self.token is None or self.token.reaches_all


class Authenticator:
    def __init__(
        self, settings: Settings, tokens: TokenFile, provider: IdentityProvider | None = None
    ) -> None:
        self._tokens = tokens
        self._provider = provider
        self._public = not is_loopback(settings.host)
        self._hosts = {host.lower() for host in settings.allowed_hosts}
        self._origins = set(settings.cors_origins)
        self._had_tokens = False
        self._requests = Buckets(settings.max_requests_per_s, 2 * settings.max_requests_per_s)
        logins = settings.max_failed_logins_per_minute
        self._failures = Buckets(logins / 60, logins)

    @property
    def needs_token(self) -> bool:
        if not self._had_tokens:
            closed = self._public or self._provider is not None
            self._had_tokens = closed or self._tokens.any() or self._tokens.guarded()
        return self._had_tokens

    def check_address(self, scope: Scope) -> bool:
        """Whether the server is open; raises ``Forbidden`` for another machine's client then."""
        scope[OPEN] = not self.needs_token
        if not scope[OPEN]:
            return False
        client = (scope.get("client") or ("127.0.0.1", 0))[0]
        if not _loopback_address(client):
            raise Forbidden(
                f"this server has no tokens and answers its own machine only, not {client}; "
                "create a token with `chronicle token create`"
            )
        return True

    def check_origin(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        is_open = self.check_address(scope)
        if is_open:
            name = _host_name(host)
            if name not in self._hosts and not _loopback_name(name):
                raise Forbidden(
                    "this server has no tokens and answers to loopback names only, found Host "
                    f"{host!r}; create a token, or list the name in CHRONICLE_ALLOWED_HOSTS"
                )
        origin = headers[b"origin"].decode("latin-1") if b"origin" in headers else None
        if origin in self._origins:
            return
        if is_open and (page := _foreign_page(headers, host)) is not None:
            raise Forbidden(
                f"this server has no tokens and answers no page of another site ({page}); list "
                "its origin in CHRONICLE_CORS_ORIGINS, or create a token"
            )
        if origin is None or scope["method"] in _SAFE_METHODS:
            return
        if not _same_host(origin, host):
            raise Forbidden(
                f"a page of {origin!r} may not change anything here; list it in "
                "CHRONICLE_CORS_ORIGINS"
            )

    def principal(self, scope: Scope, secret: str | None) -> Principal:
        """Who asks, once ``check_address`` has run; raises ``Unauthorized``, ``Problem`` (429)."""
        address = (scope.get("client") or ("local", 0))[0]
        if scope[OPEN]:  # an open server takes any client, also one that sends a token
            return self._counted(scope, Principal(None, address))
        if secret is None:
            raise Unauthorized(
                "this server needs a token: send the header Authorization: Bearer <token>; "
                "`chronicle token create` makes one"
            )
        _refuse_until(self._failures.wait_s(address), "tokens that are not known here")
        try:
            if self._provider is not None and self._provider.takes(secret):
                token = self._provider.find(secret)
            else:
                token = self._tokens.find(secret)
        except Unauthorized:
            if COUNTED not in scope:
                scope[COUNTED] = True
                self._failures.take(address)
            raise
        return self._counted(scope, Principal(token, f"token:{token.id}"))

    def _counted(self, scope: Scope, principal: Principal) -> Principal:
        if COUNTED not in scope:
            _refuse_until(self._requests.wait_s(principal.client), "requests")
            self._requests.take(principal.client)
            scope[COUNTED] = True
        return principal


def _refuse_until(wait_s: float, what: str) -> None:
    if wait_s > 0:
        raise Problem(
            "too-many-requests",
            f"this client sends too many {what}; try again in {wait_s:.1f} s",
            {"Retry-After": str(math.ceil(wait_s))},
        )


def identify(request: Request, secret: str | None) -> Principal:
    authenticator: Authenticator = request.app.state.server.authenticator
    principal = authenticator.principal(request.scope, secret)
    request.state.principal = principal
    return principal


def bearer_of(request: Request, scheme: str = "bearer") -> str | None:
    """The secret in the header ``Authorization``."""
    given, _, secret = request.headers.get("authorization", "").partition(" ")
    return (secret.strip() or None) if given.lower() == scheme else None


def ask_again(request: Request) -> Principal:
    """The principal of a long request, by its token's present state; reads a file."""
    authenticator: Authenticator = request.app.state.server.authenticator
    authenticator.check_address(request.scope)
    return authenticator.principal(request.scope, bearer_of(request))


def _foreign_page(headers: Mapping[bytes, bytes], host: str) -> str | None:
    """The header that shows a page of another site, or None (old browsers: Origin, Referer)."""
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in (b"same-origin", b"none"):
        return f"Sec-Fetch-Site: {site.decode('latin-1')}"
    for name in (b"origin", b"referer"):
        page = headers.get(name, b"").decode("latin-1")
        if name in headers and not _same_host(page, host):
            return f"{name.decode().title()}: {page}"
    return None


def _same_host(page: str, host: str) -> bool:
    return page.partition("://")[2].partition("/")[0].lower() == host.lower()


def _host_name(host: str) -> str:
    name = host.lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if ":" in name else name


def _loopback_name(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost") or _loopback_address(name)


@lru_cache(maxsize=256)
def _loopback_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def visible_to(principal: Principal) -> Callable[[str], bool] | None:
    """Which streams exist for a principal; None for all."""
    token = principal.token
    return None if token is None or principal.everywhere else token.reaches


def authorize(principal: Principal, access: Access) -> None:
    """Raise ``SqlError`` or ``Forbidden`` unless a principal may run a statement."""
    principal.require(access.scope, access.target)
    if access.renamed is not None:
        principal.require(access.scope, access.renamed)
    if principal.token is None:
        return
    for name in sorted(access.reads):
        principal.require("read", name)


def check_predicate(text: str) -> None:
    """Raise ``SqlError`` for a ``where`` that is more than a condition on one event."""
    from sqlglot import exp

    from ...query.sql.dialect import error_at, parse_predicate, position_of

    node: Any = parse_predicate(text)
    inner = node.find(exp.Query, exp.Subquery, exp.Table)
    if inner is not None:
        raise error_at(
            text,
            position_of(inner),
            "where is a condition on one event; write a query for anything more",
        )
