"""Webhook delivery: in order of ``_seq``, at least once, until parked.

``live/<name>/DELIVERY`` is a JSON document::

    {"after": 17, "upto": 21, "at": "2018-08-01T05:00:00+00:00", "failures": 2,
     "parked": null, "error": "..."}

Rows up to ``after`` were delivered (answer 200 to 299); the current request has those up to
``upto``.  It is repeated with the same body and ``webhook-id`` after ``PAUSE_S``, doubling up to
``PAUSE_S_MAX``, also after a restart; a row accepted just before a crash is sent again.  After
``ATTEMPTS_MAX`` failures or a 410 the delivery is *parked* until the query is resumed.  Stalled
receivers delay others only if they occupy all ``THREADS``.  Rows dropped by retention are not sent.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from ..formats.jsonout import json_bytes
from ..store import EventStream
from ..store.atomic_file import replace_file
from ..store.catalog import directory_name
from ..store.file_contract import Files
from .definition import DIRECTORY
from .sink import Sink
from .webhooks import Undelivered, Webhook, send

__all__ = ["Deliveries"]

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
        if failures >= ATTEMPTS_MAX:
            parked = f"{failures} requests failed in a row"
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
            found = self._deliveries.pop(name, None)
            if found is None:
                return
            found.dropped = True
            stream = found.sink.stream
            if not any(each.sink.stream is stream for each in self._deliveries.values()):
                stream.unsubscribe(self._heard.pop(stream))

    def resume(self, name: str) -> None:
        """Have a delivery that was parked, or waits, go on at once.

        One with a request on its way goes on when that has been answered.
        """
        with self._lock:
            found = self._deliveries.get(name)
            if found is not None and found.busy:
                found.resumed = True
            elif found is not None:
                found.go_on()
        self._wake.set()

    def status(self, name: str) -> dict[str, Any] | None:
        found = self._deliveries.get(name)
        return None if found is None else found.status()

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
            delivery.progress = replace(delivery.progress, failures=failures, error=str(error))
            delivery.due = time.monotonic() + PAUSE_S_MAX
        finally:
            with self._lock:
                delivery.busy = False
                if delivery.resumed:
                    with suppress(OSError):  # of the disk: it waits as after a failure
                        delivery.go_on()
            self._wake.set()
