"""The store: a directory of streams with one writer and many readers.

Purpose
    Opens, creates, drops and backs up streams.  What a stream is inside is
    :mod:`~chronicle.store.stream`'s business for the writer and :mod:`.stream_reader`'s for
    readers.

Layout
    ::

        CHRONICLE            marks the directory as a store: a manifest with version and identity
        LOCK                 held by the writer (pid, host)
        streams/<name>/      one directory per stream; names are percent-encoded

Guarantee
    One writer process at a time; a second gets :class:`~chronicle.errors.StoreLocked` that names
    the first. Readers (``mode="r"``) take no lock, need no right to write, and see the last commit
    as of :meth:`~.stream_reader.StreamReader.snapshot`.

Limits
    A stream exists when its directory has a manifest: a crash in the middle of a creation leaves a
    directory without one, which is not listed and is used again.  A directory that holds events and
    no manifest is a stream that has lost it: listed, and damaged.

Damage
    A stream that cannot be opened is set aside: :meth:`Store.damaged` names it, and
    :meth:`Store.stream` raises what is wrong with it.  The others are served.  It can be repaired
    (:meth:`Store.check`) or dropped.
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
from ..schema import StreamSchema
from .catalog import directory_name, stream_name
from .check import CheckReport, check_stream
from .cold_files import ColdFiles
from .edit import Edit
from .file_contract import Files
from .files import RealFiles
from .filling import HIDDEN, filled_directory, hidden_directory
from .lock import WriterLock
from .manifest import read_manifest, write_manifest
from .mover import Mover
from .object_store import ObjectStore
from .options import StreamOptions
from .progress import each
from .recovery import lost_manifest
from .repair import Loss, repair_stream
from .stream import EventStream
from .stream_reader import StreamReader
from .views import check_free

__all__ = ["Store"]

logger = logging.getLogger("chronicle.store")

FORMAT_VERSION = 2
"""Of a store with streams that have an owner, and marks in their logs; without any it is 1."""
MARK = "CHRONICLE"
UNFINISHED = "UNFINISHED-BACKUP"
"""A file that a backup has until it is whole."""

NAME_BYTES_MAX = 200


def _make_root(root: str) -> None:
    """Make the directory of a store and its parents, durably."""
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


class Store:
    """A directory of streams; open one with :meth:`open`."""

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

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        mode: str = "rw",
        files: Files | None = None,
        *,
        unfinished: bool = False,
    ) -> Store:
        """Open a store, creating it in mode ``rw`` when the directory is missing or empty.

        Parameters
        ----------
        path : str or path-like
        mode : str
            ``rw`` for the one writer, ``r`` for readers.
        files : Files, optional
            The seam to the disk; the real file system below ``path`` when not given.
        unfinished : bool
            Open a backup that is still being written, to add to it; or begin one.

        Raises
        ------
        NotAStore
            The directory holds something else, or (in mode ``r``) does not exist.
        StoreLocked
            Another process writes to it.
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
            if files.exists("streams"):  # a creation that was cut short has none
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
                # A crash may have left names that are visible and not durable: a stream that is
                # there now must not be lost with all that is going to be appended to it.
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

    def _check_writable(self) -> None:
        self._check_open()
        if self.mode == "r":
            raise ReadOnlyStore(
                f"the store {self.path} is open for reading; open it with mode 'rw'"
            )

    def streams(self) -> list[str]:
        """Names of the streams, sorted."""
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
        """Streams that cannot be opened, each with what is wrong."""
        found = {}
        for name in self.streams():
            try:
                self.stream(name)
            except StreamNotFound:
                continue  # dropped a moment ago
            except (CorruptStore, UnsupportedFormat, StorageFailed) as error:
                found[name] = str(error)
        return found

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
        """Create a stream.

        Parameters
        ----------
        owner : str, optional
            Who alone may append to it.
        events : pyarrow.Table or iterable of pyarrow.RecordBatch, optional
            What it holds from the beginning, in the schema's columns; empty without it.

        Raises
        ------
        StreamExists
            Unless ``if_not_exists`` is set and the stream has the same schema.
        """
        self._check_writable()
        _check_name(self.files, name)
        chosen = options or StreamOptions()
        filled: AbstractContextManager[str | None] = nullcontext()
        if events is not None:  # not under the lock: it may take long
            filled = filled_directory(self.files, name, schema, chosen, events)
        with filled as made_in, self._lock:
            directory = f"streams/{directory_name(name)}"
            if self._exists(directory):
                found = self.stream(name)
                if if_not_exists and found.schema == schema:
                    assert isinstance(found, EventStream)
                    return found
                what = "with another schema" if if_not_exists else "already"
                raise StreamExists(
                    f"there is a stream {name!r} {what}; drop it or choose another name"
                )
            if owner is not None:
                self._raise_format()
            if made_in is None:
                made = EventStream.create(self.files, directory, name, schema, chosen, owner)
                self.files.sync_directory("streams")
            else:
                self.files.remove_tree(directory)  # what a creation that was cut short has left
                self.files.replace(made_in, directory)
                self.files.sync_directory("streams")
                made = EventStream(self.files, directory)
            self._open[name] = made
            return made

    def _raise_format(self) -> None:
        """Have older releases refuse the store: they cannot read what it is going to hold."""
        body = read_manifest(self.files, MARK)
        assert body is not None
        if body["store"] < FORMAT_VERSION:
            write_manifest(self.files, MARK, {**body, "store": FORMAT_VERSION})

    def owner_of(self, name: str) -> str | None:
        """Who alone may append to a stream; None where anybody may."""
        found = self.stream(name)
        return found.commits.manifest.owner if isinstance(found, EventStream) else found.owner

    def stream(self, name: str) -> EventStream | StreamReader:
        """A stream by name: its writer in mode ``rw``, a reader in mode ``r``.

        Raises
        ------
        StreamNotFound
            With the names that there are.
        CorruptStore, UnsupportedFormat, StorageFailed
            It cannot be opened and is set aside; the others are served.
        """
        self._check_open()
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                return found
            directory = f"streams/{directory_name(name)}"
            if not name or not self._exists(directory):
                names = self.streams()
                known = f"there are {', '.join(names)}" if names else "there are none yet"
                raise StreamNotFound(f"no stream {name!r}; {known}")
            if name in self._aside:
                raise CorruptStore(self._aside[name])
            opened = self._open[name] = self._opened(name, directory)
            return opened

    def _exists(self, directory: str) -> bool:
        if len(directory.encode()) > len("streams/") + NAME_BYTES_MAX:
            return False  # no stream can have that name, and the system may refuse to look
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
            if self.mode == "rw":  # in mode r, the process that writes may repair it meanwhile
                self._aside[name] = what
            raise CorruptStore(what) from error
        except OSError as error:
            raise StorageFailed(
                f"the stream {name!r} cannot be opened: {error}; the other streams are served"
            ) from error

    def drop_stream(self, name: str) -> None:
        """Remove a stream with all of its events, a damaged one, too.

        It is given another name first, so a crash leaves either the stream or a directory that the
        next opening removes.
        """
        self._check_writable()
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
        """Give a stream another name: that of its directory, which is what a crash leaves whole.

        Handles of the stream are closed; what still reads it ends with an error where it has not
        opened all of its files.

        Raises
        ------
        StreamNotFound, StreamExists, InvalidArgument
        """
        self._check_writable()
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
            self.files.remove_tree(target)  # what a creation that was cut short has left
            self.files.replace(self.directory_of(name), target)
            self.files.sync_directory("streams")
            self.stream(to)

    def check(self, repair: bool = False) -> CheckReport:
        """Verify every checksum and invariant of every stream: :mod:`~chronicle.store.check`.

        Parameters
        ----------
        repair : bool
            Save what can be saved of damaged streams (:mod:`~chronicle.store.repair`).  Handles of
            a stream that is repaired are closed: get it again with :meth:`stream`.

        Returns
        -------
        CheckReport
            Of the streams as they are now, with what was repaired.
        """
        self._check_open()
        if repair:
            self._check_writable()
        report = CheckReport()
        for name in each(self.streams()):
            found = CheckReport()
            self._check_stream(name, found)
            if repair and not found.ok:
                losses = self._repair_stream(name, found)
                if losses is not None:
                    found = CheckReport()
                    self._check_stream(name, found)
                    found.repairs = [str(loss) for loss in losses]
                    found.lost_events = sum(loss.lost for loss in losses)
            report.add(found)
        return report

    def _check_stream(self, name: str, report: CheckReport) -> None:
        stream = self._open.get(name)
        if isinstance(stream, EventStream):
            with stream.quiet():
                stream.check_log(report)
            check_stream(self.files, self.directory_of(name), name, report, stream.quiet())
        else:
            check_stream(self.files, self.directory_of(name), name, report)

    def _repair_stream(self, name: str, found: CheckReport) -> list[Loss] | None:
        """Repair a stream; None, with a note, where that cannot be done."""
        with self._lock:
            stream = self._open.pop(name, None)
            self._aside.pop(name, None)
            if stream is not None:
                with suppress(ChronicleError, OSError):  # what it waits for may be what is damaged
                    stream.close()
            try:
                return repair_stream(self.files, self.directory_of(name), name)
            except (CorruptStore, UnsupportedFormat) as error:
                found.notes.append(f"{name}: cannot be repaired: {error}")
                return None

    @property
    def identity(self) -> str:
        """What the store was called when it was made, like no other; begins keys of its objects."""
        body = read_manifest(self.files, MARK)
        assert body is not None
        return str(body["identity"])

    def move_to(self, objects: ObjectStore) -> None:
        """Have segments move to objects from now on, by the settings of their streams.

        See :mod:`.mover`.
        """
        self._check_writable()

        def opened(name: str) -> EventStream | None:
            try:
                found = self.stream(name)
            except (StreamNotFound, CorruptStore, UnsupportedFormat):
                return None  # told by who asks for it
            return found if isinstance(found, EventStream) else None

        assert self._mover is None
        self._mover = Mover(self.streams, opened, objects, self.identity)

    def moving(self) -> dict[str, Any] | None:
        """How moving to objects does (:meth:`.mover.Mover.status`); None where nothing moves."""
        mover = self._mover
        return None if mover is None else mover.status()

    def backup(
        self,
        path: str | os.PathLike[str],
        add: Callable[[str], None] | None = None,
        name: str | None = None,
    ) -> None:
        """Copy the store while writing goes on; see :mod:`.backup` and :mod:`.object_backup`."""
        with LOADING:
            from .backup import backup_store
            from .backups import is_address
            from .object_backup import backup_to_objects
            from .object_store import object_store

        self._check_open()
        if is_address(path):
            backup_to_objects(self, object_store(os.fspath(path)), name, add)
        elif name is not None:
            raise InvalidArgument("a backup in a directory is named by its path: leave name out")
        else:
            backup_store(self, path, add)

    def directory_of(self, name: str) -> str:
        """Directory of a stream, relative to the store."""
        return f"streams/{directory_name(name)}"

    def close(self) -> None:
        """Close every stream and give the store free; doing so again does nothing.

        Nor does it in a forked child: the store is its parent's.
        """
        if not self._lock.here:
            return
        if self._mover is not None:  # not under the lock, which it may wait for
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

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_name(files: Files, name: str) -> None:
    """Refuse what cannot be the name of a stream, or is that of a view."""
    check_free(files, name)
    if not name or len(directory_name(name).encode()) > NAME_BYTES_MAX or "\0" in name:
        raise InvalidArgument(
            f"a stream's name must have 1 to {NAME_BYTES_MAX} bytes, found {name!r}"
        )
