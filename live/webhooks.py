"""A webhook request, signed as specified by Standard Webhooks.

::

    POST <url>
    webhook-id: high-1-17                       the same when it is repeated
    webhook-timestamp: 1542888000               seconds since 1970, time of sending
    webhook-signature: v1,<base64>              HMAC-SHA256 over "<id>.<timestamp>.<body>"

    {"type": "chronicle.live.rows", "timestamp": "...",
     "data": {"query": "high", "rows": [...]}}

The key is the base64 part of ``whsec_<base64>``, 24 to 64 bytes.  The checked address is the one
connected to (no DNS rebinding); private ones need ``ALLOW_PRIVATE``.  Redirects and proxy settings
are ignored.  A request ends after ``DEADLINE_S`` seconds.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import os
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InvalidArgument

__all__ = ["ALLOW_PRIVATE", "Answer", "Undelivered", "Webhook", "check_webhook", "send"]

ALLOW_PRIVATE = "CHRONICLE_WEBHOOK_PRIVATE"
"""Environment variable: ``true`` permits receivers in private networks and on this machine."""

DEADLINE_S = 15.0
WATCH_S = 0.1
SECRET = "whsec_"
KEY_BYTES = (24, 64)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_MAKE_ONE = "echo whsec_$(openssl rand -base64 32)"


class Undelivered(Exception):
    """The request was not sent or not answered."""


@dataclass(frozen=True)
class Webhook:
    url: str
    secret: str

    def headers(self, id: str, body: bytes, now: int) -> dict[str, str]:
        key = _key(self.secret)
        digest = hmac.new(key, f"{id}.{now}.".encode() + body, hashlib.sha256).digest()
        return {
            "Content-Type": "application/json",
            "User-Agent": "chronicle",
            "webhook-id": id,
            "webhook-timestamp": str(now),
            "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        }


@dataclass(frozen=True)
class Answer:
    """A receiver's status code and Retry-After in seconds."""

    status: int
    retry_after_s: float = 0.0


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET) or not KEY_BYTES[0] <= len(key) <= KEY_BYTES[1]:
        raise InvalidArgument(
            f"webhook_secret is {SECRET} and {KEY_BYTES[0]} to {KEY_BYTES[1]} random bytes in "
            f"base64, which the receiver knows, too; make one: {_MAKE_ONE}"
        )
    return key


def check_webhook(url: str, secret: str | None) -> Webhook:
    """Validate URL and secret without DNS lookup; raises InvalidArgument."""
    try:
        parts = urllib.parse.urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        raise InvalidArgument(f"webhook is an address, https://host/path, found {url!r}")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument("webhook has no user and password in it: requests are signed")
    if secret is None:
        raise InvalidArgument(f"webhook needs webhook_secret; make one: {_MAKE_ONE}")
    webhook = Webhook(url, secret)
    _key(secret)
    return webhook


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Undelivered(f"{host} has no address ({error})") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if os.environ.get(ALLOW_PRIVATE, "").lower() not in ("1", "true", "yes"):
        for address in addresses:
            if not _public(address):
                raise Undelivered(
                    f"{host} is {address}, an address of this machine or of a private network; "
                    f"{ALLOW_PRIVATE}=true allows these"
                )
    return addresses


def _public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            found = inner
    return found.is_global and not found.is_multicast


class _Pinned(http.client.HTTPConnection):
    def __init__(self, host: str, port: int, address: str, *, secure: bool) -> None:
        super().__init__(host, port, timeout=DEADLINE_S)
        self.default_port = 443 if secure else 80
        self._address = address
        self._secure = secure

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._secure:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)


def send(webhook: Webhook, id: str, body: bytes, stop: threading.Event) -> Answer:
    """Send a request, blocking for ``DEADLINE_S`` plus the DNS lookup; raises Undelivered."""
    parts = urllib.parse.urlsplit(webhook.url)
    secure = parts.scheme == "https"
    host = parts.hostname or ""
    port = parts.port or (443 if secure else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = webhook.headers(id, body, int(time.time()))
    deadline = time.monotonic() + DEADLINE_S
    failure: Exception | None = None
    for address in _addresses(host, port):
        connection = _Pinned(host, port, address, secure=secure)
        with contextlib.closing(connection), _ended(connection, deadline, stop):
            try:
                connection.connect()
            except OSError as error:
                failure = error
                continue
            try:
                connection.request("POST", target, body, headers)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                what = str(error) or type(error).__name__
                if time.monotonic() >= deadline:
                    what = f"no answer within {DEADLINE_S:g} s"
                raise Undelivered(f"{host} at {address}: {what}") from None
            wait = response.headers.get("Retry-After", "")
            return Answer(response.status, float(wait) if wait.isdecimal() else 0.0)
    raise Undelivered(f"{host} cannot be reached: {failure}")


@contextlib.contextmanager
def _ended(connection: _Pinned, deadline: float, stop: threading.Event) -> Iterator[None]:
    """Close a connection at the deadline or on ``stop``, even if the peer keeps it alive."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_S):
            if stop.is_set() or time.monotonic() >= deadline:
                with contextlib.suppress(OSError, AttributeError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
                return

    threading.Thread(target=watch, name="chronicle-webhook-watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()
