"""Object storage: a bucket of an S3-compatible service, or a directory, for cold segments.

Addresses: ``s3://bucket/prefix``, with ``?region=...&endpoint_override=host:port&scheme=http`` for
services other than Amazon's; ``file:///directory`` for a mounted disk.  Credentials come from the
environment (``AWS_ACCESS_KEY_ID`` and so on), never from the address, which is stored in files.

Each call has timeouts and ``ATTEMPTS``; failures are ``StorageFailed`` and name the object.  An
object whose source failed may exist in part: callers of ``put`` must verify it.

Objects in a directory are dropped from the page cache once written or read back: they would evict
pages that queries need, and ``contents`` gives what the disk has, not what the cache remembers of a
write.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from ..core.caches import Lru
from ..core.ownership import ModuleLock
from ..errors import InvalidArgument, StorageFailed

ATTEMPTS = 4
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
OPTIONS = ("region", "endpoint_override", "scheme")
FILES_OPEN = 256
PIECE_BYTES = 4 << 20
REQUESTS = 128
"""Maximum concurrent requests of this process: they mostly wait."""


class ObjectStore:
    """Objects below one address."""

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
        self._local = parts.scheme == "file"
        self._root = parts.path if self._local else (parts.netloc + parts.path).strip("/")

    def put(self, key: str, parts: Iterable[bytes | memoryview]) -> None:
        """Store the bytes of some parts as one object, replacing an existing one."""
        with _telling("write", self, key):
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
        with open(f"{target}.tmp", "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            _uncache(file.fileno())
        os.replace(f"{target}.tmp", target)
        directory = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def read(self, key: str, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes of an object from ``offset``; thread-safe."""
        with _telling("read", self, key):
            files = self._files()
            file = self._open.get(key)
            if file is None:
                file = files.open_input_file(self._path(key))
                self._open.put(key, file)
            data: bytes = file.read_at(length, offset)
        if len(data) != length:
            raise StorageFailed(
                f"{self.describe(key)} ends at byte {offset + len(data)}; {length} bytes from "
                f"{offset} were wanted: it was replaced or cut"
            )
        return data

    def contents(self, key: str, length: int) -> Iterator[bytes]:
        """The bytes of an object in order, past caches; one that has grown may give more."""
        if not self._local:
            for offset in range(0, length, PIECE_BYTES):
                yield self.read(key, offset, min(PIECE_BYTES, length - offset))
            return
        with _telling("read", self, key), open(self._path(key), "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
            _uncache(file.fileno())

    def size(self, key: str) -> int | None:
        """Length of an object in bytes; None when there is none."""
        from pyarrow.fs import FileType

        with _telling("look at", self, key):
            info = self._files().get_file_info(self._path(key))
        return int(info.size) if info.type == FileType.File else None

    def remove(self, key: str) -> None:
        self._open.drop(key)
        with _telling("remove", self, key), suppress(FileNotFoundError):
            self._files().delete_file(self._path(key))

    def list(self, prefix: str) -> list[str]:
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Length in bytes of each object below a prefix that ends with ``/``."""
        from pyarrow.fs import FileSelector, FileType

        with _telling("list", self, prefix):
            wanted = FileSelector(
                self._path(prefix).rstrip("/"), allow_not_found=True, recursive=True
            )
            infos = self._files().get_file_info(wanted)
        skip = len(self._root) + 1
        return {
            info.path[skip:]: int(info.size)
            for info in infos
            if info.type == FileType.File and not info.path.endswith(".tmp")
        }

    def describe(self, key: str) -> str:
        return f"{self.url.partition('?')[0]}/{key}"

    def _path(self, key: str) -> str:
        return posixpath.join(self._root, key)

    def _files(self) -> Any:
        if self._filesystem is None or self._pid != os.getpid():
            with self._lock:
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


def _uncache(descriptor: int) -> None:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def _telling(doing: str, store: ObjectStore, key: str) -> Iterator[None]:
    try:
        yield
    except StorageFailed:
        raise
    except (OSError, pa.ArrowException) as error:
        raise StorageFailed(
            f"could not {doing} {store.describe(key)}: {error}; nothing that is stored is "
            "affected: try again when the place of the objects answers"
        ) from error


_stores: Lru[str, ObjectStore] = Lru(16)


def object_store(url: str) -> ObjectStore:
    """The ``ObjectStore`` of an address, one per process."""
    store = _stores.get(url.rstrip("/"))
    if store is None:
        store = ObjectStore(url)
        _stores.put(store.url, store)
    return store
