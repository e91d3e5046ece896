"""The indexes of all streams of a store: created, built in the background, closed.

In a writing process one thread builds runs for committed leaves.  Appends never wait for it, except
at a lag limit; queries are correct at any lag.  Unusable indexes do not keep a store from opening:
they are logged, listed by ``StoreIndexes.list`` and ``check``, and retried at the next commit;
damaged ones wait for a repair.  A reading process sees the runs after each round of the thread.

A backup copies the runs, without links: RocksDB files mix those of all segments.  A run that ends
within the copy's part of its segment stays valid there.  Runs that are replaced during the copy, or
unreadable, are rebuilt when the copy is opened for writing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core.ownership import Condition
from ..errors import (
    AttributeNotFound,
    ChronicleError,
    CorruptStore,
    IndexNotFound,
    InvalidArgument,
    StoreClosed,
    StreamNotFound,
    UnsupportedFormat,
)
from ..schema import Attribute, StreamSchema, storage_of
from ..store.evolution import widens
from ..store.progress import each
from ..store.recovery import load
from ..store.snapshot import StreamState
from ..store.store import Store
from ..store.stream import EventStream
from . import definitions
from .definitions import has_indexes
from .index_key import IndexKey, index_key
from .opened import OpenedIndexes, RunsChanged, TimeRange, blocks_of
from .runs import Run
from .storage import IndexStorage, block_key, descriptor_key
from .stream_indexes import StreamIndexes


def copy_indexes(
    indexes: OpenedIndexes, path: Path, schema: StreamSchema, alive: Mapping[int, int]
) -> None:
    """Write the runs valid in a copy; ``alive`` has the number of events of its segments."""
    valid = indexes.definitions
    for name in indexes.attributes:
        try:
            index_key(name, schema)
        except AttributeNotFound:  # newer than the copy
            valid = valid.without(name)
    target = IndexStorage(path, True)
    try:
        for entries in _copied(indexes, alive):
            target.write(entries)
    finally:
        target.close()
    definitions.replace(path, valid)


def _copied(
    indexes: OpenedIndexes, alive: Mapping[int, int]
) -> Iterator[list[tuple[bytes, bytes]]]:
    catalogue = indexes.catalogue()
    stored: Iterable[Run | TimeRange] = chain(*catalogue.times.values(), *catalogue.runs.values())
    for run in stored:
        if run.end > alive.get(run.segment, 0):
            continue
        at = (run.index, run.segment, run.first)
        with suppress(RunsChanged):
            blocks = [
                (block_key(kind, *at, run.generation, number), indexes.block(kind, run, number))
                for kind, number in blocks_of(run)
            ]
            yield [*blocks, (descriptor_key(*at), run.to_bytes())]


logger = logging.getLogger("chronicle.indexes")


class StoreIndexes:
    """The indexes of an open store's streams; the owner closes this before the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writable = store.mode == "rw"
        self._streams: dict[str, StreamIndexes] = {}
        self._handles: dict[str, Any] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        self._reported: dict[str, str] = {}
        self._lock = threading.RLock()
        self._wake = Condition()
        self._todo: set[str] = set()
        self._busy: str | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        if self._writable:
            for name in store.streams():
                path = self._path(name)
                if path is None or not has_indexes(path):
                    continue
                try:
                    self._attach(name)
                    self._notify(name)
                except ChronicleError as error:  # set aside; others are not affected
                    logger.warning("%s: opened without its indexes: %s", name, error)

    def _path(self, name: str) -> Path | None:
        local = self._store.files.local_path(f"{self._store.directory_of(name)}/indexes")
        return None if local is None else Path(local)

    # -- streams ------------------------------------------------------------------------------

    def of(self, name: str) -> StreamIndexes | None:
        with self._lock:
            if self._closed:
                return None
            indexes = self._streams.get(name)
            if indexes is None and not self._writable:
                path = self._path(name)
                if path is None or not has_indexes(path):
                    return None
                indexes = self._streams[name] = StreamIndexes(path, False)
        if indexes is None or self._writable:
            return indexes if indexes is not None and indexes.attributes else None
        state = self._store.stream(name).snapshot().state
        version = (state.position, state.manifest_version)
        if self._versions.get(name) != version:
            indexes.refresh()
            self._versions[name] = version
        return indexes if indexes.attributes else None

    def _attach(self, name: str) -> StreamIndexes:
        with self._lock:
            handle = self._store.stream(name)
            indexes = self._streams.get(name)
            if indexes is None:
                path = self._path(name)
                if path is None:
                    raise UnsupportedFormat(
                        "indexes need a store in a directory; this one is kept in memory"
                    )
                indexes = self._streams[name] = StreamIndexes(path, True)
                indexes.heard = partial(self._notify, name)
            if self._handles.get(name) is not handle and isinstance(handle, EventStream):
                self._handles[name] = handle
                indexes.follow(handle.commits)
                indexes.forget(handle.snapshot().state, opened=True)
                handle.subscribe(self._listener(name, indexes))
            return indexes

    def _listener(self, name: str, indexes: StreamIndexes) -> Callable[[StreamState], None]:
        def heard(state: StreamState) -> None:
            if not indexes.attributes or indexes.broken:
                return
            self._notify(name)
            if not indexes.overdue(state):
                return
            try:
                while indexes.overdue(state, 0.5) and indexes.build_next(state, eager=True):
                    pass
            except Exception as error:
                # the events are committed: a missing index costs time, not answers
                if self._reported.get(name) != str(error):
                    logger.exception("%s: indexes lag further behind than they should", name)
                self._reported[name] = str(error)

        return heard

    # -- what the database calls --------------------------------------------------------------

    def create(
        self, stream: str, attribute: str, wait: bool, lag_events_max: int | None = None
    ) -> None:
        """Create and build an index; in the background when ``wait`` is false."""
        handle = self._store.stream(stream)
        indexes = self._attach(stream)
        state = handle.snapshot().state if wait else None
        try:
            indexes.create(attribute, handle.schema, lag_events_max, state)
        except StoreClosed:
            if self._closed or self._streams.get(stream) is indexes:
                raise
            raise StreamNotFound(f"the stream {stream!r} was dropped meanwhile") from None
        if not wait:
            self._notify(stream)

    def drop(self, stream: str, attribute: str) -> None:
        name = index_key(attribute, self._store.stream(stream).schema).name
        indexes = self.of(stream)
        if indexes is None:
            raise IndexNotFound(f"there is no index on {stream} ({name})")
        indexes.drop(name)

    def follow(self, stream: str) -> None:
        """Adopt the current names of a stream's attributes."""
        handle, indexes = self._store.stream(stream), self.of(stream)
        if indexes is not None and isinstance(handle, EventStream):
            indexes.follow(handle.commits)
            self._notify(stream)

    @contextmanager
    def widening(
        self, stream: str, schema: StreamSchema, attribute: Attribute, type_: pa.DataType
    ) -> Iterator[None]:
        """A context for a type change, without indexing; refused if keys would change.  Its caller
        holds the stream's lock, which a listener takes before the indexes', too; those who drop or
        close the stream hold the store's lock and wait for it, so that is not taken here.
        """
        indexes = self._streams.get(stream)
        if indexes is None or not widens(attribute.type, type_):  # refused anyway
            yield
            return
        with indexes.held():
            for name in indexes.attributes:
                key = index_key(name, schema)
                same = type(key) is IndexKey and storage_of(type_) is attribute.storage
                if attribute.name in key.columns and not same:
                    raise InvalidArgument(
                        f"the index on {stream} ({name}) sorts events by {attribute.name!r} as a "
                        f"{attribute.type}, not as a {type_}: drop it, and create it again "
                        "afterwards"
                    )
            yield

    def attach(self, stream: str) -> None:
        path = self._path(stream)
        if path is not None and has_indexes(path):
            self._attach(stream)
            self._notify(stream)

    @contextmanager
    def dropping(self, stream: str) -> Iterator[None]:
        """A context for the removal of a stream: closes its indexes."""
        with self._lock:
            indexes = self._streams.pop(stream, None)
            self._handles.pop(stream, None)
            self._versions.pop(stream, None)
            if indexes is not None:
                indexes.close()
            yield

    def list(self, stream: str) -> list[dict[str, Any]]:
        """Attribute, state, covered fraction, runs and bytes of each index of a stream."""
        indexes = self.of(stream)
        if indexes is None:
            return []
        state = self._store.stream(stream).snapshot().state
        return [indexes.figures(name, state) for name in indexes.attributes]

    def catch_up(self, stream: str) -> None:
        indexes = self.of(stream)
        if indexes is not None and self._writable and not indexes.broken:
            state = self._store.stream(stream).snapshot().state
            indexes.forget(state)
            indexes.catch_up(state)

    def purge(self, stream: str) -> None:
        """Physically remove index data of a stream's dropped segments."""
        indexes = self.of(stream)
        if indexes is not None and self._writable and not indexes.broken:
            indexes.purge(self._store.stream(stream).snapshot().state)

    def backup(self, path: Path) -> None:
        """Copy the indexes into a store copy in progress, which may lack its segments."""
        with Store.open(path, "r", unfinished=True) as copy:
            for name in copy.streams():
                indexes = self.of(name) if name in self._store.streams() else None
                if indexes is not None:
                    directory = copy.directory_of(name)
                    loaded = load(copy.files, directory)
                    segments, extent = loaded.manifest.segments, loaded.journal.extent
                    alive = dict(zip(segments.ids.tolist(), segments.events.tolist(), strict=True))
                    if extent is not None:
                        alive[extent.segment_id] = extent.events
                    schema = loaded.manifest.schema
                    copy_indexes(indexes, path / directory / "indexes", schema, alive)

    def check(self, repair: bool = False) -> Sequence[str]:
        """Compare indexes with events; returns problems, after a ``repair`` those left."""
        problems = []
        for name in each(self._store.streams()):
            try:
                problems += [f"{name}: {what}" for what in self._checked(name, repair)]
            except ChronicleError as error:
                problems.append(f"{name}: {error}")
        return problems

    def _checked(self, name: str, repair: bool) -> Sequence[str]:
        path = self._path(name)
        if path is None or not has_indexes(path):
            return []
        if not self._writable:
            self.of(name)
            with self._lock:
                indexes = self._streams.get(name)
            state = self._store.stream(name).snapshot().state
            return [] if indexes is None else indexes.verify(state)
        indexes = self._attach(name)  # a repair has reopened the stream
        state = self._store.stream(name).snapshot().state
        indexes.forget(state)
        problems = indexes.verify(state)
        if not repair:
            return problems
        if problems:
            logger.warning("%s: rebuilding indexes: %s", name, "; ".join(problems))
            indexes.rebuild()
        try:
            indexes.catch_up(state)
        except CorruptStore as error:  # found only now by RocksDB; the indexes are empty
            logger.warning("%s: indexes are built anew: %s", name, error)
            indexes.catch_up(state)
        return indexes.verify(state)

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            streams, self._streams = list(self._streams.values()), {}
        for indexes in streams:
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
                self._reported.pop(name, None)
            except (ChronicleError, OSError) as error:
                # unindexed events are replayed: a failure costs time, not answers
                if self._reported.get(name) != str(error) and not self._closed:
                    logger.warning(
                        "%s: building indexes failed; it is tried again at the next commit: %s",
                        name, error,
                    )  # fmt: skip
                self._reported[name] = str(error)
            except Exception:
                logger.exception("%s: building indexes failed", name)
            finally:
                with self._wake:
                    self._busy = None
                    self._wake.notify_all()

    def _advance(self, name: str) -> None:
        with self._lock:
            indexes, handle = self._streams.get(name), self._handles.get(name)
        if indexes is None or handle is None or indexes.broken:
            return
        built = False
        indexes.follow(handle.commits)  # a live query may have widened a column
        while not self._closed:
            state = handle.snapshot().state
            indexes.forget(state)
            if not indexes.build_next(state):
                break
            built = True
        if built:
            indexes.flush()
