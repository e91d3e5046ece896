"""The mover: a thread of the store's writer that moves due segments (``tiering``) to objects.

It checks every stream each ``LOOK_SECONDS``, moves segments one by one, and removes unused objects.
A failure changes nothing: it is logged, shown by ``Mover.status``, and retried after
``RETRY_SECONDS``, doubled each time, up to ``RETRY_SECONDS_MAX``.  The retry begins with the next
stream, so one failing stream does not block the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import ChronicleError, StoreClosed
from .moving import Moved, Stopped, never
from .object_store import ObjectStore
from .stream import EventStream
from .tiering import due_now

logger = logging.getLogger("chronicle.store")

LOOK_SECONDS = 5.0
RETRY_SECONDS = 5.0
RETRY_SECONDS_MAX = 300.0


def move_due(stream: EventStream, to: ObjectStore, owner: str, stopped: Stopped = never) -> Moved:
    """Move a stream's due segments, and remove unused objects; no requests without work."""
    chosen = due_now(stream.commits)
    return Moved(0, 0) if chosen is None else stream.move(to, owner, chosen, stopped)


class Mover:
    """Moves due segments until stopped; ``stream`` returns None if one cannot be opened."""

    def __init__(
        self,
        streams: Callable[[], list[str]],
        stream: Callable[[str], EventStream | None],
        objects: ObjectStore,
        owner: str,
    ) -> None:
        self._streams = streams
        self._stream = stream
        self._owner = owner
        self.objects = objects
        self._stopped = threading.Event()
        self._failures = 0
        self._failed_total = 0
        self._error: str | None = None
        self._failing_since: float | None = None
        self._next_try: float | None = None
        self._first = ""
        self._thread = threading.Thread(target=self._run, name="chronicle-mover", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """Address, ``"waiting"`` or ``"failing"``, error, failures, seconds to the next attempt."""
        next_try = self._next_try
        return {
            "objects": self.objects.url.partition("?")[0],
            "state": "failing" if self._failures else "waiting",
            "error": self._error,
            "failing_since": self._failing_since,
            "failures": self._failures,
            "failed_total": self._failed_total,
            "next_try_s": None if next_try is None else max(0.0, next_try - time.monotonic()),
        }

    def _run(self) -> None:
        while not self._stopped.wait(self._pause()):
            try:
                self._round()
            except StoreClosed:
                return
            except (ChronicleError, OSError) as error:
                logger.warning("streams cannot be looked at for what is to move: %s", error)
            except Exception:
                logger.exception("what is due to move was not looked at")

    def _pause(self) -> float:
        if not self._failures:
            self._next_try = None
            return LOOK_SECONDS
        seconds = min(RETRY_SECONDS * (1 << min(self._failures - 1, 30)), RETRY_SECONDS_MAX)
        self._next_try = time.monotonic() + seconds
        return seconds

    def _round(self) -> None:
        names = sorted(self._streams())
        at = sum(name < self._first for name in names)
        for name in names[at:] + names[:at]:
            if self._stopped.is_set():
                return
            try:
                stream = self._stream(name)
                if stream is None:
                    continue
                done = move_due(stream, self.objects, self._owner, self._stopped.is_set)
            except StoreClosed:
                continue  # just dropped, renamed or repaired
            except (ChronicleError, OSError) as error:
                self._fail(name, error)
                return
            if done.segments:
                logger.info(
                    "%s: %d segments, %d bytes moved to objects", name, done.segments, done.bytes
                )
        if self._failures:
            logger.info("moving to objects works again")
        self._failures, self._error, self._failing_since = 0, None, None

    def _fail(self, name: str, error: BaseException) -> None:
        if self._failing_since is None:
            self._failing_since = time.time()
        self._failures += 1
        self._failed_total += 1
        self._error = f"{name}: {error}"
        self._first = name + "\0"  # the one behind it
        logger.warning("%s: segments cannot move to objects: %s", name, error)

    def stop(self) -> None:
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
