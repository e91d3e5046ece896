"""Object storage: a bucket of an S3-compatible service, or a directory, for cold segments.

Addresses: ``s3://bucket/prefix``, with ``?region=...&endpoint_override=host:port&scheme=http`` for
services other than Amazon's; ``file:///directory`` for a mounted disk.  Credentials come from the
environment (``AWS_ACCESS_KEY_ID`` and so on), never from the address, which is stored in files.

Each call has timeouts and ``ATTEMPTS``; failures are ``StorageFailed`` and name the object.  An
object whose source failed may exist in part: callers of ``put`` must verify it.

Direct I/O (``O_DIRECT``) serves files that are written once and hardly read again: the page cache
would evict pages that queries need, and managing its pages is most of the processor time of a
segment's move.  Without support for it the same bytes go through the cache, as does the unaligned
rest of a file.  ``contents`` gives what the disk has, not what the cache remembers of a write.
Linux; each buffer is one synchronous request, without read-ahead.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import posixpath
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pyarrow as pa

from ..core.caches import Lru
from ..core.ownership import ModuleLock
from ..errors import InvalidArgument, StorageFailed
from .file_contract import nbytes

BUFFER_BYTES = 1 << 20
"""A multiple of all disk block sizes; the buffer is mapped, so aligned in memory."""

_DIRECT = getattr(os, "O_DIRECT", 0)


def _set_direct(descriptor: int, wanted: bool) -> bool:
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    asked = flags | _DIRECT if wanted else flags & ~_DIRECT
    with suppress(OSError):  # not supported by the file system
        fcntl.fcntl(descriptor, fcntl.F_SETFL, asked)
        return wanted and _DIRECT != 0
    return False


class DirectWriter:
    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)
        self._bytes = np.frombuffer(self._buffer, np.uint8)
        self._used = 0
        self._direct = _set_direct(self._descriptor, True)

    def write(self, data: bytes | memoryview) -> None:
        if not nbytes(data):  # NumPy rejects empty buffers
            return
        left = np.frombuffer(data, np.uint8)
        while left.size:
            step = min(left.size, BUFFER_BYTES - self._used)
            # NumPy releases the interpreter lock, a slice of the mapping would not
            np.copyto(self._bytes[self._used : self._used + step], left[:step])
            self._used, left = self._used + step, left[step:]
            if self._used == BUFFER_BYTES:
                self._put_out()

    def sync(self) -> None:
        if self._direct:
            self._direct = _set_direct(self._descriptor, False)
        self._put_out()
        os.fsync(self._descriptor)

    def _put_out(self) -> None:
        view = memoryview(self._buffer)[: self._used]
        while view:
            try:
                written = os.write(self._descriptor, view)
            except OSError as error:
                if not self._direct or error.errno != errno.EINVAL:
                    raise
                written = 0  # larger disk blocks, or no direct I/O after all
            if self._direct and (written % mmap.PAGESIZE or not written):
                self._direct = _set_direct(self._descriptor, False)
            view = view[written:]
        self._used = 0

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def contents(path: str) -> Iterator[memoryview]:
    """The bytes of a file in order; each view is valid until the next one is requested."""
    buffer = mmap.mmap(-1, BUFFER_BYTES)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        direct, offset = _set_direct(descriptor, True), 0
        while True:
            try:
                found = os.preadv(descriptor, [buffer], offset)
            except OSError as error:
                if not direct or error.errno != errno.EINVAL:
                    raise
                direct = _set_direct(descriptor, False)
                continue
            if not found:
                return
            yield memoryview(buffer)[:found]
            offset += found
            if direct and found % mmap.PAGESIZE:  # the end of the file, or an unaligned rest
                direct = _set_direct(descriptor, False)
    finally:
        os.close(descriptor)


ATTEMPTS = 4
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
OPTIONS = ("region", "endpoint_override", "scheme")
FILES_OPEN = 256
PIECE_BYTES = 4 << 20
REQUESTS = 128
"""Maximum concurrent requests of this process: they mostly wait."""


class ObjectStore:
    """Objects below one address; ``in_this_thread``: no other threads are started."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._filesystem: Any = None
        self._pid = 0
        self._lock = ModuleLock()
        self._open: Lru[str, Any] = Lru(FILES_OPEN)
        parts = urlsplit(self.url)
        if parts.scheme not in ("s3", "file") or parts.fragment:
            raise InvalidArgument(
                f"expected s3://bucket/prefix or file:///directory, found {url!r}"
            )
        if parts.scheme == "file" and (parts.netloc or not parts.path or parts.query):
            raise InvalidArgument(f"expected file:///directory, found {url!r}")
        if parts.scheme == "s3" and not parts.netloc:
            raise InvalidArgument(f"expected s3://bucket/prefix, found {url!r}")
        if "@" in parts.netloc:
            raise InvalidArgument(
                "an address of objects has no keys in it: put them into the environment "
                "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
            )
        self._options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := set(self._options) - set(OPTIONS):
            raise InvalidArgument(
                f"{url!r} has {sorted(unknown)[0]!r}; known are {', '.join(OPTIONS)}"
            )
        self._local = self.in_this_thread = parts.scheme == "file"
        self._root = parts.path if self._local else (parts.netloc + parts.path).strip("/")

    def put(self, key: str, parts: Iterable[bytes | memoryview]) -> None:
        """Store the bytes of some parts as one object, replacing an existing one."""
        with _Telling("write", self, key):
            self._write(key, parts)

    def _write(self, key: str, parts: Iterable[bytes | memoryview]) -> None:
        self._open.drop(key)
        target = self._path(key)
        if not self._local:
            with self._files().open_output_stream(target) as stream:
                for part in parts:
                    stream.write(part)
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with DirectWriter(f"{target}.tmp") as writing:
            for part in parts:
                writing.write(part)
            writing.sync()
        os.replace(f"{target}.tmp", target)
        directory = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def read(self, key: str, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes of an object from ``offset``; thread-safe."""
        with _Telling("read", self, key):
            files = self._files()
            file = self._open.get(key)
            if file is None:
                file = files.open_input_file(self._path(key))
                self._open.put(key, file)
            found: bytes = file.read_at(length, offset)
        if len(found) != length:
            raise StorageFailed(
                f"{self.describe(key)} ends at byte {offset + len(found)}; {length} bytes from "
                f"{offset} were wanted: it was replaced or cut"
            )
        return found

    def contents(self, key: str, length: int) -> Iterator[memoryview | bytes]:
        """The bytes of an object in order, past caches; one that has grown may give more."""
        if not self._local:
            for offset in range(0, length, PIECE_BYTES):
                yield self.read(key, offset, min(PIECE_BYTES, length - offset))
            return
        with _Telling("read", self, key):
            yield from contents(self._path(key))

    def size(self, key: str) -> int | None:
        """Length of an object in bytes; None when there is none."""
        from pyarrow.fs import FileType

        with _Telling("look at", self, key):
            info = self._files().get_file_info(self._path(key))
        return int(info.size) if info.type == FileType.File else None

    def remove(self, key: str) -> None:
        self._open.drop(key)
        with _Telling("remove", self, key), suppress(FileNotFoundError):
            self._files().delete_file(self._path(key))

    def list(self, prefix: str) -> list[str]:
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Length in bytes of each object below a prefix that ends with ``/``."""
        from pyarrow.fs import FileSelector, FileType

        with _Telling("list", self, prefix):
            wanted = FileSelector(
                self._path(prefix).rstrip("/"), allow_not_found=True, recursive=True
            )
            found = self._files().get_file_info(wanted)
        skip = len(self._root) + 1
        return {
            info.path[skip:]: int(info.size)
            for info in found
            if info.type == FileType.File and not info.path.endswith(".tmp")
        }

    def describe(self, key: str) -> str:
        return f"{self.url.partition('?')[0]}/{key}"

    def _path(self, key: str) -> str:
        return posixpath.join(self._root, key)

    def _files(self) -> Any:
        if self._filesystem is None or self._pid != os.getpid():
            with self._lock.lock:
                self._open.clear()
                self._filesystem = self._connected()
                self._pid = os.getpid()
        return self._filesystem

    def _connected(self) -> Any:
        from pyarrow import fs

        if self._local:
            return fs.LocalFileSystem()
        # Arrow opens as many connections to a service as it has threads
        pa.set_io_thread_count(max(REQUESTS, pa.io_thread_count()))
        return fs.S3FileSystem(
            **self._options,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=ANSWER_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        )


class _Telling:
    __slots__ = ("_doing", "_key", "_store")

    def __init__(self, doing: str, store: ObjectStore, key: str) -> None:
        self._doing, self._store, self._key = doing, store, key

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, (OSError, pa.ArrowException)) and not isinstance(error, StorageFailed):
            raise StorageFailed(
                f"could not {self._doing} {self._store.describe(self._key)}: {error}; nothing that "
                "is stored is affected: try again when the place of the objects answers"
            ) from error


_stores: Lru[str, ObjectStore] = Lru(16)


def object_store(url: str) -> ObjectStore:
    """The ``ObjectStore`` of an address, one per process."""
    known = _stores.get(url.rstrip("/"))
    if known is None:
        known = ObjectStore(url)
        _stores.put(known.url, known)
    return known
