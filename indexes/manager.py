"""The indexes of all streams of a store: made, kept up to date, closed.

Purpose
    What :class:`chronicle.database.Database` calls.  In a writing process one background thread
    builds runs for committed leaves: after each commit of an indexed stream, and for existing data
    when an index is made.

Guarantee
    Appends never wait for the thread, unless an index was made with a limit on its lag; queries
    are right at any lag.  Closing stops between two runs: what is missing is built after the next
    opening.

Limits
    A reading process sees the runs that the writer has put on disk: after each round of the thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import ChronicleError, IndexNotFound, UnsupportedFormat
from ..store import EventStream, Store
from ..store.snapshot import StreamState
from .copying import copy_indexes
from .stream_indexes import StreamIndexes

__all__ = ["StoreIndexes"]

logger = logging.getLogger("chronicle.indexes")


class StoreIndexes:
    """See the module.

    Parameters
    ----------
    store : Store
        Open; closed by its owner after this.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writable = store.mode == "rw"
        self._known: dict[str, StreamIndexes] = {}
        self._handles: dict[str, Any] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        self._lock = threading.RLock()
        self._wake = threading.Condition()
        self._todo: set[str] = set()
        self._busy: str | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        if self._writable:
            for name in store.streams():
                path = self._path(name)
                if path is None or not (path / "CURRENT").exists():
                    continue
                try:
                    self._attach(name)
                except ChronicleError as error:  # it is set aside; the others are served
                    logger.error("%s: %s", name, error)
                else:
                    self._notify(name)

    def _path(self, name: str) -> Path | None:
        local = self._store.files.local_path(f"{self._store.directory_of(name)}/indexes")
        return None if local is None else Path(local)

    # -- streams ------------------------------------------------------------------------------

    def of(self, name: str) -> StreamIndexes | None:
        """The indexes of a stream, as of now; None when it has none."""
        with self._lock:
            if self._closed:
                return None
            found = self._known.get(name)
            if found is None and not self._writable:
                path = self._path(name)
                if path is None or not (path / "CURRENT").exists():
                    return None
                found = self._known[name] = StreamIndexes(path, False)
        if found is None or self._writable:
            return found if found is not None and found.attributes else None
        state = self._store.stream(name).snapshot().state
        version = (state.position, state.manifest_version)
        if self._versions.get(name) != version:
            found.refresh()
            self._versions[name] = version
        return found if found.attributes else None

    def _attach(self, name: str) -> StreamIndexes:
        with self._lock:
            handle = self._store.stream(name)
            known = self._known.get(name)
            if known is None:
                path = self._path(name)
                if path is None:
                    raise UnsupportedFormat(
                        "indexes need a store in a directory; this one is kept in memory"
                    )
                known = self._known[name] = StreamIndexes(path, True)
            if self._handles.get(name) is not handle and isinstance(handle, EventStream):
                self._handles[name] = handle
                known.forget(handle.snapshot().state, opened=True)
                handle.subscribe(self._listener(name, known))
            return known

    def _listener(self, name: str, indexes: StreamIndexes) -> Callable[[StreamState], None]:
        def heard(state: StreamState) -> None:
            if not indexes.attributes:
                return
            self._notify(name)
            if not indexes.overdue(state):
                return
            try:
                while indexes.overdue(state, 0.5) and indexes.build_next(state, eager=True):
                    pass
            except Exception:
                # the events are committed: what is not indexed costs time, not answers
                logger.exception("%s: indexes lag further behind than they should", name)

        return heard

    # -- what the database calls --------------------------------------------------------------

    def create(
        self, stream: str, attribute: str, wait: bool, lag_events_max: int | None = None
    ) -> None:
        """Make an index and build it, in the background when ``wait`` is false."""
        handle = self._store.stream(stream)
        indexes = self._attach(stream)
        indexes.create(attribute, handle.schema, lag_events_max)
        if wait:
            indexes.catch_up(handle.snapshot().state)
        else:
            self._notify(stream)

    def drop(self, stream: str, attribute: str) -> None:
        """Remove an index."""
        indexes = self.of(stream)
        if indexes is None:
            raise IndexNotFound(f"there is no index on {stream} ({attribute})")
        indexes.drop(attribute)

    def drop_stream(self, stream: str) -> None:
        """Close the indexes of a stream that is being dropped; its directory goes with it."""
        with self._lock:
            indexes = self._known.pop(stream, None)
            self._handles.pop(stream, None)
        if indexes is not None:
            indexes.close()

    def list(self, stream: str) -> list[dict[str, Any]]:
        """Attribute, state, covered fraction, runs and bytes of each index of a stream."""
        indexes = self.of(stream)
        if indexes is None:
            return []
        state = self._store.stream(stream).snapshot().state
        return [indexes.figures(name, state) for name in indexes.attributes]

    def catch_up(self, stream: str) -> None:
        """Index every committed leaf of a stream now."""
        indexes = self.of(stream)
        if indexes is not None and self._writable:
            state = self._store.stream(stream).snapshot().state
            indexes.forget(state)
            indexes.catch_up(state)

    def backup(self, path: Path) -> None:
        """Copy the indexes into a copy of the store that is being made."""
        with Store.open(path, "r", unfinished=True) as copy:
            for name in copy.streams():
                indexes = self.of(name) if name in self._store.streams() else None
                if indexes is not None:
                    state = copy.stream(name).snapshot().state
                    copy_indexes(indexes, path / copy.directory_of(name) / "indexes", state)

    def check(self, repair: bool = False) -> Sequence[str]:
        """Compare every index with its events; with ``repair``, rebuild those that differ.

        A repair also builds what is missing, such as the runs of segments that it wrote anew.

        Returns
        -------
        list of str
            What is wrong, as ``stream: problem``; after a repair, what still is.
        """
        problems = []
        for name in self._store.streams():
            try:
                indexes = self.of(name)
                if indexes is None:
                    continue
                if self._writable:
                    self._attach(name)  # a repair has opened the stream anew
                state = self._store.stream(name).snapshot().state
                if self._writable:
                    indexes.forget(state)
                found = indexes.verify(state)
                if found and repair and self._writable:
                    logger.warning("%s: rebuilding indexes: %s", name, "; ".join(found))
                    indexes.rebuild()
                    indexes.catch_up(state)
                    found = indexes.verify(state)
                elif repair and self._writable:
                    indexes.catch_up(state)
                problems += [f"{name}: {what}" for what in found]
            except ChronicleError as error:
                problems.append(f"{name}: {error}")
        return problems

    def close(self) -> None:
        """Stop building and close every index."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            known, self._known = list(self._known.values()), {}
        for indexes in known:
            indexes.close()

    # -- the thread ---------------------------------------------------------------------------

    def _notify(self, name: str) -> None:
        with self._wake:
            if self._closed:
                return
            self._todo.add(name)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="chronicle-indexes", daemon=True
                )
                self._thread.start()
            self._wake.notify_all()

    def wait_idle(self, timeout: float = 60.0) -> bool:
        """Wait until the thread has nothing to do; False after ``timeout`` seconds."""
        until = time.monotonic() + timeout
        with self._wake:
            while self._todo or self._busy is not None:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._wake.wait(left)
        return True

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._todo and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                name = self._todo.pop()
                self._busy = name
            try:
                self._advance(name)
            except Exception:
                # what is not indexed is replayed: a failure here costs time, not answers
                logger.exception(
                    "%s: building indexes failed; it is tried again at the next commit", name
                )
            finally:
                with self._wake:
                    self._busy = None
                    self._wake.notify_all()

    def _advance(self, name: str) -> None:
        with self._lock:
            indexes, handle = self._known.get(name), self._handles.get(name)
        if indexes is None or handle is None:
            return
        built = False
        while not self._closed:
            state = handle.snapshot().state
            indexes.forget(state)
            if not indexes.build_next(state):
                break
            built = True
        if built:
            indexes.flush()
