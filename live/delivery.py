"""Webhook delivery: in order of ``_seq``, at least once, until parked.

``live/<name>/DELIVERY`` is a JSON document::

    {"after": 17, "upto": 21, "at": "2018-08-01T05:00:00+00:00", "failures": 2,
     "parked": null, "error": "..."}

Rows up to ``after`` were delivered (answer 200 to 299); the current request has those up to
``upto``.  It is repeated with the same body and ``webhook-id`` after ``PAUSE_S``, doubling up to
``PAUSE_S_MAX``, also after a restart; a row accepted just before a crash is sent again.  After
``ATTEMPTS_MAX`` failures or a 410 the delivery is *parked* until the query is resumed.  Stalled
receivers delay others only if they occupy all ``THREADS``.  Rows dropped by retention are not sent.

A request is signed as specified by Standard Webhooks::

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
import datetime as dt
import hashlib
import hmac
import http.client
import ipaddress
import json
import logging
import os
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from ..errors import InvalidArgument
from ..formats.writers import json_bytes
from ..store.catalog import directory_name
from ..store.file_contract import Files, replace_file
from ..store.stream import EventStream
from .definition import DIRECTORY
from .sink import Sink

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
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Undelivered(f"{host} has no address ({error})") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    if os.environ.get(ALLOW_PRIVATE, "").lower() not in ("1", "true", "yes"):
        for address in addresses:
            if not _public(address):
                raise Undelivered(
                    f"{host} is {address}, an address of this machine or of a private network; "
                    f"{ALLOW_PRIVATE}=true allows these"
                )
    return addresses


def _public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is not None:
            parsed = inner
    return parsed.is_global and not parsed.is_multicast


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
            return Answer(response.status, seconds_of(response.headers.get("Retry-After", "")))
    raise Undelivered(f"{host} cannot be reached: {failure}")


def seconds_of(retry_after: str) -> float:
    """The seconds that a header Retry-After, a number or a date, asks to wait."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    return max(0.0, date.timestamp() - time.time())


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


logger = logging.getLogger("chronicle.live")

ROWS_MAX = 100
"""Rows per request."""

PAUSE_S = 1.0
PAUSE_S_MAX = 300.0
ATTEMPTS_MAX = 20
THREADS = 8
LOOK_S = 60.0
_GONE = 410


@dataclass(frozen=True)
class Progress:
    after: int = 0
    upto: int | None = None
    at: str = ""
    failures: int = 0
    parked: str | None = None
    error: str | None = None


def too_many(failures: int) -> str | None:
    """Why a delivery is parked after so many failures; None: it is not."""
    return f"{failures} requests failed in a row" if failures >= ATTEMPTS_MAX else None


class _Delivery:
    def __init__(self, files: Files, webhook: Webhook, sink: Sink) -> None:
        self._files = files
        self.webhook = webhook
        self.sink = sink
        self._path = f"{DIRECTORY}/{directory_name(sink.query)}/DELIVERY"
        self.progress = Progress()
        if files.exists(self._path):
            self.progress = Progress(**json.loads(files.read(self._path)))
        self.due = 0.0
        self.busy = False
        self.resumed = False
        """Whether :meth:`Deliveries.resume` was asked for while a request was on its way."""
        self.dropped = False
        self._looked = -1
        self._ahead: pa.RecordBatch | None = None

    def ready(self, now: float) -> bool:
        """Whether there may be something to send now."""
        if self.busy or self.progress.parked is not None:
            return False
        if self.progress.failures:
            return self.due <= now
        return self.sink.stream.snapshot().version != self._looked

    def keep(self, progress: Progress) -> None:
        if not self.dropped:
            replace_file(self._files, self._path, json.dumps(asdict(progress)).encode())
        self.progress = progress

    def go_on(self) -> None:
        """Send what there is at once, parked or not."""
        self.resumed = False
        self.keep(replace(self.progress, failures=0, parked=None, error=None))
        self.due = 0.0

    def _rows(self) -> pa.RecordBatch | None:
        ahead, after = self._ahead, self.progress.after
        if ahead is not None:
            numbers = ahead.column("_seq").to_numpy()
            ahead = ahead.slice(int(np.searchsorted(numbers, after, "right")))
        if ahead is None or not ahead.num_rows:
            version = self.sink.stream.snapshot().version
            ahead = next(self.sink.rows(after), None)
            if ahead is None:
                self._looked = version
        self._ahead = ahead
        return ahead

    def next(self) -> tuple[str, bytes, int] | None:
        """Id, body and last ``_seq`` of the next request; None if there is none."""
        ahead, progress = self._rows(), self.progress
        if ahead is None:
            return None
        rows = ahead.slice(0, ROWS_MAX)
        if progress.upto is not None:  # repeat the current request
            numbers = ahead.column("_seq").to_numpy()
            rows = ahead.slice(0, int(np.searchsorted(numbers, progress.upto, "right")))
            rows = rows if rows.num_rows else ahead.slice(0, ROWS_MAX)
        first, last = rows.column("_seq")[0].as_py(), rows.column("_seq")[-1].as_py()
        if progress.upto != last:
            now = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
            self.keep(replace(progress, upto=last, at=now))
        name = self.sink.query
        body = b'{"type":"chronicle.live.rows","timestamp":%s,"data":{"query":%s,"rows":[%s]}}' % (
            json.dumps(self.progress.at).encode(),
            json.dumps(name).encode(),
            b",".join(json_bytes(rows).splitlines()),
        )
        return f"{quote(name, safe='')}-{first}-{last}", body, last

    def attempt(self, stop: threading.Event) -> bool:
        """Send the next request; whether there was one and it was accepted."""
        wanted = self.next()
        if wanted is None:
            return False
        id, body, last = wanted
        wait = 0.0
        parked = None
        try:
            answer = send(self.webhook, id, body, stop)
            if 200 <= answer.status < 300:
                self.keep(Progress(after=last))
                return True
            error, wait = f"answered {answer.status}", answer.retry_after_s
            if answer.status == _GONE:
                parked = "the receiver is gone (410)"
        except Undelivered as undelivered:
            if stop.is_set():
                return False
            error = str(undelivered)
        failures = self.progress.failures + 1
        parked = parked or too_many(failures)
        if parked is not None:
            logger.warning("webhook of %s is parked: %s (%s)", self.sink.query, parked, error)
        self.keep(replace(self.progress, failures=failures, error=error, parked=parked))
        pause = min(PAUSE_S * 2 ** (failures - 1), PAUSE_S_MAX)
        self.due = time.monotonic() + max(pause, min(wait, 3600.0))
        return False

    def status(self) -> dict[str, Any]:
        progress = self.progress
        newest = self.sink.stream.snapshot().aggregate(["_seq"])["_seq"].max or 0
        state = "delivered" if progress.after >= newest else "delivering"
        if progress.failures:
            state = "failing"
        if progress.parked is not None:
            state = "parked"
        return {
            "url": self.webhook.url,
            "state": state,
            "after": progress.after,
            "failures": progress.failures,
            "error": progress.parked or progress.error,
        }


class Deliveries:
    """The webhook deliveries of a store."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._deliveries: dict[str, _Delivery] = {}
        self._heard: dict[EventStream, Callable[[object], None]] = {}
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None

    def add(self, webhook: Webhook, sink: Sink) -> None:
        with self._lock:
            self._deliveries[sink.query] = _Delivery(self._files, webhook, sink)
            if sink.stream not in self._heard:
                listener = self._heard[sink.stream] = lambda _: self._wake.set()
                sink.stream.subscribe(listener)
        self._wake.set()

    def remove(self, name: str) -> None:
        with self._lock:
            delivery = self._deliveries.pop(name, None)
            if delivery is None:
                return
            delivery.dropped = True
            stream = delivery.sink.stream
            if not any(each.sink.stream is stream for each in self._deliveries.values()):
                stream.unsubscribe(self._heard.pop(stream))

    def resume(self, name: str) -> None:
        """Have a delivery that was parked, or waits, go on at once.

        One with a request on its way goes on when that has been answered.
        """
        with self._lock:
            delivery = self._deliveries.get(name)
            if delivery is not None and delivery.busy:
                delivery.resumed = True
            elif delivery is not None:
                delivery.go_on()
        self._wake.set()

    def status(self, name: str) -> dict[str, Any] | None:
        delivery = self._deliveries.get(name)
        return None if delivery is None else delivery.status()

    def start(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "chronicle-webhook")
        self._thread = threading.Thread(target=self._loop, name="chronicle-webhooks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; requests in flight are aborted, and repeated after a restart."""
        self._ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for stream, listener in self._heard.items():
            stream.unsubscribe(listener)

    def _loop(self) -> None:
        assert self._pool is not None
        while not self._ended.is_set():
            self._wake.clear()
            now = time.monotonic()
            due = now + LOOK_S
            with self._lock:
                for each in self._deliveries.values():
                    if each.ready(now):
                        each.busy = True
                        self._pool.submit(self._deliver, each)
                    elif each.progress.failures and not each.busy:
                        due = min(due, max(each.due, now + 0.01))
            self._wake.wait(due - now)

    def _deliver(self, delivery: _Delivery) -> None:
        try:
            while not self._ended.is_set() and delivery.attempt(self._ended):
                pass
        except Exception as error:  # such as a disk error: retried
            if not delivery.dropped and not delivery.sink.stream.commits.closed:
                logger.exception("webhook of %s", delivery.sink.query)
            failures = delivery.progress.failures + 1
            delivery.progress = replace(
                delivery.progress, failures=failures, error=str(error), parked=too_many(failures)
            )
            delivery.due = time.monotonic() + PAUSE_S_MAX
        finally:
            with self._lock:
                delivery.busy = False
                if delivery.resumed:
                    with suppress(OSError):  # of the disk: it waits as after a failure
                        delivery.go_on()
            self._wake.set()
