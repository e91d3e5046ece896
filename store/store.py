"""The store: a directory of streams with one writer and many readers::

    CHRONICLE            marks the directory as a store: a manifest with version and identity
    LOCK                 held by the writer (pid, host)
    streams/<name>/      one directory per stream; names are percent-encoded

Readers (``mode="r"``) take no lock, need no write access, and see the last commit.

A stream exists when its directory has a manifest: an interrupted creation leaves a directory
without one, which is reused.  A directory with events but no manifest is a damaged stream.  A
damaged stream is set aside (``Store.damaged``), to be repaired (``Store.check``) or dropped; others
are not affected.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ..core.closing import Closing
from ..core.heap import keep_freed_memory
from ..core.ownership import LOADING, OwnedLock
from ..errors import (
    ChronicleError,
    CorruptStore,
    InvalidArgument,
    NotAStore,
    ReadOnlyStore,
    StorageFailed,
    StoreClosed,
    StreamExists,
    StreamNotFound,
    UnsupportedFormat,
)
from ..schema import StreamSchema, require_zones
from .catalog import directory_name, read_manifest, stream_name, write_manifest
from .check import CheckReport, check_stream
from .cold_file import ColdFiles
from .commits import Edit, initialise
from .file_contract import Files
from .files import RealFiles
from .filling import HIDDEN, filled_directory, hidden_directory
from .lock import WriterLock
from .moving import Mover
from .object_store import ObjectStore
from .options import StreamOptions
from .progress import each
from .recovery import lost_manifest
from .repair import Loss, repair_stream
from .stream import EventStream, StreamReader
from .views import check_free

logger = logging.getLogger("chronicle.store")

FORMAT_VERSION = 2
"""Version of a store with stream owners and log marks; without any it is 1."""
MARK = "CHRONICLE"
UNFINISHED = "UNFINISHED-BACKUP"

NAME_BYTES_MAX = 200


def _make_root(root: str) -> None:
    parent = os.path.dirname(root)
    if not os.path.isdir(parent):
        _make_root(parent)
    with suppress(FileExistsError):
        os.mkdir(root)
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Store(Closing):
    def __init__(self, files: Files, path: str, mode: str, lock: WriterLock | None) -> None:
        self.files = files
        self.path = path
        self.mode = mode
        self._lock_file = lock
        self._lock = OwnedLock(f"the store {path}")
        self._open: dict[str, EventStream | StreamReader] = {}
        self._aside: dict[str, str] = {}
        self._closed = False
        self._mover: Mover | None = None
        keep_freed_memory()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        mode: str = "rw",
        files: Files | None = None,
        *,
        unfinished: bool = False,
    ) -> Store:
        """Open a store; mode ``rw`` creates it when missing or empty.  ``unfinished`` opens or
        begins an incomplete backup.  ``NotAStore`` for anything else, ``StoreLocked`` for a second
        writer.
        """
        if mode not in ("rw", "r"):
            raise InvalidArgument(f"mode must be 'rw' or 'r', found {mode!r}")
        root = os.fspath(path)
        if files is None:
            if os.path.exists(root) and not os.path.isdir(root):
                raise NotAStore(f"{root} is a file; a store is a directory")
            if mode == "r" and not os.path.isdir(root):
                raise NotAStore(f"there is no store at {root}; create one by ingesting into it")
            if mode == "rw":
                try:
                    if not os.path.isdir(root):
                        _make_root(os.path.abspath(root))
                except OSError as error:
                    raise NotAStore(f"cannot create a store at {root}: {error.strerror}") from error
            files = RealFiles(root)
        files = ColdFiles(files)
        if files.exists(UNFINISHED) and not unfinished:
            raise NotAStore(
                f"{root} is a backup that was cut short (it holds the file {UNFINISHED}), or that "
                "is still being written; remove it and make another one"
            )
        marked = files.exists(MARK + "/MANIFEST")
        if not marked:
            own = ("LOCK", "streams", MARK, *([UNFINISHED] if unfinished else []))
            present = [name for name in files.list("") if name not in own]
            if files.exists("streams"):  # an interrupted creation has no streams
                present += [f"streams/{name}" for name in files.list("streams")]
            if mode == "r" or present:
                raise NotAStore(
                    f"{root} is not a Chronicle store"
                    + (f": it holds {present[0]!r} but no {MARK} mark" if present else "")
                    + "; check the path"
                )
        lock = WriterLock.acquire(files) if mode == "rw" else None
        try:
            if not marked:
                files.make_directory("streams")
                files.make_directory(MARK)
                files.sync_directory("")
                write_manifest(files, MARK, {"store": 1, "identity": uuid.uuid4().hex})
            elif lock is not None:
                # Names may be visible but not durable after a crash; sync them, so that no
                # stream is lost later with all that is appended to it.
                for directory in ("", MARK, "streams"):
                    files.sync_directory(directory)
                for name in files.list("streams"):
                    if name.startswith(HIDDEN):
                        files.remove_tree(f"streams/{name}")
            body = read_manifest(files, MARK)
            if body is None or not isinstance(body.get("store"), int):
                raise CorruptStore(f"{root}/{MARK} does not say what store this is")
            if body["store"] > FORMAT_VERSION:
                raise NotAStore(
                    f"{root} has store version {body['store']}, this release knows "
                    f"{FORMAT_VERSION}; use a newer one"
                )
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return cls(files, root, mode, lock)

    def _check_open(self) -> None:
        self._lock.check()
        if self._closed:
            raise StoreClosed(f"the store {self.path} is closed")

    def check_writable(self, what: str) -> None:
        self._check_open()
        if self.mode == "r":
            raise ReadOnlyStore(
                f"cannot {what}: the store was opened with mode='r'; open it with mode='rw'"
            )

    def streams(self) -> list[str]:
        self._check_open()
        return sorted(
            stream_name(directory)
            for directory in self.files.list("streams")
            if not directory.startswith(HIDDEN)
            and (
                self.files.exists(f"streams/{directory}/MANIFEST")
                or lost_manifest(self.files, f"streams/{directory}")
            )
        )

    def damaged(self) -> dict[str, str]:
        """Streams that cannot be opened, each with the reason."""
        reasons = {}
        for name in self.streams():
            try:
                self.stream(name)
            except StreamNotFound:
                continue  # just dropped
            except (CorruptStore, UnsupportedFormat, StorageFailed) as error:
                reasons[name] = str(error)
        return reasons

    def create_stream(
        self,
        name: str,
        schema: StreamSchema,
        options: StreamOptions | None = None,
        *,
        if_not_exists: bool = False,
        owner: str | None = None,
        events: pa.Table | Iterable[pa.RecordBatch] | None = None,
    ) -> EventStream:
        """Create a stream with ``events``, in any order.  ``StreamExists`` unless ``if_not_exists``
        is set and the schema is the same; ``owner`` alone may append.
        """
        self.check_writable(f"create the stream {name!r}")
        _check_name(self.files, name)
        require_zones(schema)
        chosen = options or StreamOptions()
        filled: AbstractContextManager[str | None] = nullcontext()
        if events is not None:  # without the lock: it may take long
            filled = filled_directory(self.files, name, schema, chosen, events)
        with filled as made_in, self._lock:
            directory = f"streams/{directory_name(name)}"
            if self._exists(directory):
                stream = self.stream(name)
                if if_not_exists and stream.schema == schema:
                    assert isinstance(stream, EventStream)
                    return stream
                what = "with another schema" if if_not_exists else "already"
                raise StreamExists(
                    f"there is a stream {name!r} {what}; drop it or choose another name"
                )
            if owner is not None:
                self._raise_format()
            if made_in is None:
                initialise(self.files, directory, name, schema, chosen, owner)
            else:
                self.files.remove_tree(directory)  # leftovers of an interrupted creation
                self.files.replace(made_in, directory)
            self.files.sync_directory("streams")
            made = self._open[name] = EventStream(self.files, directory)
            return made

    def _raise_format(self) -> None:
        """Raise the format version, so that older releases refuse the store."""
        body = read_manifest(self.files, MARK)
        assert body is not None
        if body["store"] < FORMAT_VERSION:
            write_manifest(self.files, MARK, {**body, "store": FORMAT_VERSION})

    def stream(self, name: str) -> EventStream | StreamReader:
        """A stream's writer (mode ``rw``) or reader; an error means that it is set aside."""
        self._check_open()
        with self._lock:
            stream = self._open.get(name)
            if stream is not None:
                return stream
            directory = f"streams/{directory_name(name)}"
            if not name or not self._exists(directory):
                names = self.streams()
                existing = f"there are {', '.join(names)}" if names else "there are none yet"
                raise StreamNotFound(f"no stream {name!r}; {existing}")
            if name in self._aside:
                raise CorruptStore(self._aside[name])
            opened = self._open[name] = self._opened(name, directory)
            return opened

    def writer(self, name: str, what: str = "write to") -> EventStream:
        """A stream's writer; ``ReadOnlyStore`` in mode ``r``, where one cannot ``what``."""
        self.check_writable(f"{what} {name!r}")
        stream = self.stream(name)
        assert isinstance(stream, EventStream)
        return stream

    def _exists(self, directory: str) -> bool:
        if len(directory.encode()) > len("streams/") + NAME_BYTES_MAX:
            return False  # an impossible name, which the system may refuse
        return self.files.exists(f"{directory}/MANIFEST") or lost_manifest(self.files, directory)

    def _opened(self, name: str, directory: str) -> EventStream | StreamReader:
        kind = EventStream if self.mode == "rw" else StreamReader
        try:
            return kind(self.files, directory)
        except (CorruptStore, FileNotFoundError) as error:
            what = (
                f"the stream {name!r} is damaged and set aside, the others are served: {error}; "
                "repair it with `chronicle check --repair`, restore it from a backup, or drop it"
            )
            if self.mode == "rw":  # in mode r, the writer may repair it meanwhile
                self._aside[name] = what
            raise CorruptStore(what) from error
        except OSError as error:
            raise StorageFailed(
                f"the stream {name!r} cannot be opened: {error}; the other streams are served"
            ) from error

    def drop_stream(self, name: str) -> None:
        """Remove a stream, also a damaged one; renamed first, so that a crash drops it or not."""
        self.check_writable(f"drop the stream {name!r}")
        with self._lock:
            try:
                self.stream(name).close()
            except (CorruptStore, UnsupportedFormat) as error:
                logger.info("dropping a stream that cannot be opened: %s", error)
            self._open.pop(name, None)
            dropped = hidden_directory()
            self.files.replace(self.directory_of(name), dropped)
            self._aside.pop(name, None)
            self.files.sync_directory("streams")
            self.files.remove_tree(dropped)
            self.files.sync_directory("streams")

    def rename_stream(self, name: str, to: str) -> None:
        """Rename a stream atomically; its handles are closed, running readers may fail."""
        self.check_writable(f"rename {name!r}")
        _check_name(self.files, to)
        with self._lock:
            stream = self.stream(name)
            assert isinstance(stream, EventStream)
            target = f"streams/{directory_name(to)}"
            if self._exists(target):
                raise StreamExists(f"there is a stream {to!r} already; choose another name")
            commits = stream.commits
            commits.check_owner(None)
            with commits.lock:
                commits.check_writable()
                announced = replace(commits.manifest, renaming=to)
                commits.apply(Edit(commits.journal, commits.active, announced))
            stream.close()
            self._open.pop(name, None)
            self.files.remove_tree(target)  # leftovers of an interrupted creation
            self.files.replace(self.directory_of(name), target)
            self.files.sync_directory("streams")
            self.stream(to)

    def check(self, repair: bool = False) -> CheckReport:
        """Verify every stream; ``repair`` salvages damaged ones and closes their handles."""
        self._check_open()
        if repair:
            self.check_writable("repair streams")
        report = CheckReport()
        for name in each(self.streams()):
            stream_report = CheckReport()
            self._check_stream(name, stream_report)
            if repair and not stream_report.ok:
                losses = self._repair_stream(name, stream_report)
                if losses is not None:
                    stream_report = CheckReport()
                    self._check_stream(name, stream_report)
                    stream_report.repairs = [str(loss) for loss in losses]
                    stream_report.lost_events = sum(loss.lost for loss in losses)
            report.add(stream_report)
        return report

    def _check_stream(self, name: str, report: CheckReport) -> None:
        stream = self._open.get(name)
        if isinstance(stream, EventStream):
            with stream.quiet():
                stream.check_log(report)
            check_stream(self.files, self.directory_of(name), name, report, stream.quiet())
        else:
            check_stream(self.files, self.directory_of(name), name, report)

    def _repair_stream(self, name: str, report: CheckReport) -> list[Loss] | None:
        with self._lock:
            stream = self._open.pop(name, None)
            self._aside.pop(name, None)
            if stream is not None:
                with suppress(ChronicleError, OSError):  # closing may fail because of the damage
                    stream.close()
            try:
                return repair_stream(self.files, self.directory_of(name), name)
            except (CorruptStore, UnsupportedFormat) as error:
                report.notes.append(f"{name}: cannot be repaired: {error}")
                return None

    @property
    def identity(self) -> str:
        body = read_manifest(self.files, MARK)
        assert body is not None
        return str(body["identity"])

    def move_to(self, objects: ObjectStore) -> None:
        """Start moving segments to objects, as the streams' options say (``moving``)."""
        self.check_writable("move segments")

        def opened(name: str) -> EventStream | None:
            try:
                stream = self.stream(name)
            except (StreamNotFound, CorruptStore, UnsupportedFormat):
                return None  # reported on access
            return stream if isinstance(stream, EventStream) else None

        assert self._mover is None
        self._mover = Mover(self.streams, opened, objects, self.identity)

    def moving(self) -> dict[str, Any] | None:
        mover = self._mover
        return None if mover is None else mover.status()

    def backup(
        self,
        path: str | os.PathLike[str],
        add: Callable[[str], None] | None = None,
        name: str | None = None,
    ) -> None:
        """Copy the store while writing goes on; see ``backup``."""
        with LOADING:
            from .backup import backup_store, backup_to_objects, is_address
            from .object_store import object_store

        self._check_open()
        if is_address(path):
            backup_to_objects(self, object_store(os.fspath(path)), name, add)
        elif name is not None:
            raise InvalidArgument("a backup in a directory is named by its path: leave name out")
        else:
            backup_store(self, path, add)

    def directory_of(self, name: str) -> str:
        return f"streams/{directory_name(name)}"

    def close(self) -> None:
        """Close every stream and release the store; idempotent, and a no-op in a forked child."""
        if not self._lock.here:
            return
        if self._mover is not None:  # without the lock, which the mover may wait for
            self._mover.stop()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                for stream in self._open.values():
                    stream.close()
            finally:
                self._open.clear()
                if self._lock_file is not None:
                    with suppress(OSError):
                        self._lock_file.release()


def _check_name(files: Files, name: str) -> None:
    check_free(files, name)
    if not name or len(directory_name(name).encode()) > NAME_BYTES_MAX or "\0" in name:
        raise InvalidArgument(
            f"a stream's name must have 1 to {NAME_BYTES_MAX} bytes, found {name!r}"
        )
