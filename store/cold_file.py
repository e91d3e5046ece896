"""Cold segments for readers: a sparse, memory-mapped file, filled by requests on demand::

    object     |header|leaf|leaf|leaf|node|leaf|leaf| ... |node|summary|footer|
    mapping    |......|....|leaf|....|node|....|....| ... |node|summary|footer|    . hole
                            need()    from the stub

Pages of ``PAGE`` bytes are present or missing.  Missing ranges are joined where the gap costs less
than another request (``GAP_BYTES``), cut into pieces of ``PIECE_BYTES``, and fetched in parallel.
Sequential reads double the read-ahead each time, up to ``AHEAD_BYTES``.

Guarantee: pages are never evicted singly, so arrays that point into a mapping stay valid.  Whole
mappings are evicted, least recently used first, above ``CACHE_BYTES`` (or
``CHRONICLE_COLD_CACHE_BYTES`` of the environment); an evicted one takes space until its readers
end.  The files are unnamed, in ``TMPDIR``, and private to this process.

Stubs: the local remainder of a segment that has moved to an object.

``00000017.seg.cold`` replaces ``00000017.seg``.  It caches the tree's nodes, summary and footer, so
that planning and aggregating over whole leaves need no request; and leaf heads and dictionaries,
where each of the two is a small part of the segment.

Layout: the mark ``CHRCOLD`` and the version (a byte: 2 with heads, else 1), the length of the JSON
(uint64) and its XXH3-64, the JSON, and the cached page-aligned ranges, heads last::

    {"store": "s3://bucket/prefix", "key": "<store>/<stream>/00000017.seg",
     "bytes": 1073741824, "digest": "<xxh3-64 of the object>",
     "kept": [[offset, length], ...], "kept_digest": "<xxh3-64 of those bytes>",
     "heads": [[offset, length], ...], "heads_digest": "<xxh3-64 of those bytes>"}

Guarantee: a stub is durable before the segment's file is removed, and written only after the object
was read back and compared.  While both exist, the file is read.

File layer: ``ColdFiles`` wraps another ``Files``: a segment that has only a stub is opened,
measured, listed, copied and removed under its own name.  A local file takes precedence over its
stub.  Removing a cold segment renames its stub, without a request; ``purge`` later removes the
objects of renamed stubs.  A reader of a removed object gets ``SnapshotExpired``.
"""

from __future__ import annotations

import itertools
import json
import logging
import mmap
import os
import posixpath
import struct
import tempfile
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from ..core.closing import Closing
from ..core.ownership import ModuleLock, OwnedLock, OwnThreads
from ..errors import CorruptStore, SnapshotExpired, StorageFailed, StoreClosed
from .catalog import MANIFEST
from .file_contract import AppendFile, Files, ReadFile, check_version, short_read
from .files import Range, joined, requests
from .object_store import REQUESTS, object_store

SUFFIX = ".cold"
MAGIC = b"CHRCOLD"
VERSION = 2
PAGE = 4096
_HEAD = struct.Struct("<7sBQQ")


@dataclass(frozen=True)
class ColdStub:
    """Address and digests (XXH3-64) of a segment, and its cached page-aligned (offset, length)
    ranges.
    """

    store: str
    key: str
    length: int
    digest: str
    ranges: tuple[tuple[int, int], ...]
    copies_digest: str
    heads: tuple[tuple[int, int], ...] = ()
    heads_digest: str = ""

    def to_bytes(self, copies: bytes, heads: bytes = b"") -> bytes:
        body = json.dumps(
            {
                "store": self.store,
                "key": self.key,
                "bytes": self.length,
                "digest": self.digest,
                "kept": [list(each) for each in self.ranges],
                "kept_digest": self.copies_digest,
                **self._of_heads(),
            }
        ).encode()
        version = VERSION if self.heads else 1
        start = _HEAD.pack(MAGIC, version, len(body), xxh3_64_intdigest(body))
        return start + body + copies + heads

    def _of_heads(self) -> dict[str, object]:
        if not self.heads:
            return {}
        return {"heads": [list(each) for each in self.heads], "heads_digest": self.heads_digest}

    @classmethod
    def read(cls, files: Files, path: str) -> ColdStub:
        """Read the stub without the cached bytes; ``CorruptStore`` or ``UnsupportedFormat``."""
        with files.open(path) as file:
            if file.size < _HEAD.size:
                raise _damaged(path, f"it has {file.size} bytes")
            magic, version, length, checksum = _HEAD.unpack(bytes(file.read(0, _HEAD.size)))
            if magic != MAGIC:
                raise _damaged(path, "it is no stub of a segment")
            check_version(path, version, VERSION)
            if length > file.size - _HEAD.size:
                raise _damaged(path, "it was cut")
            text = bytes(file.read(_HEAD.size, length))
        if xxh3_64_intdigest(text) != checksum:
            raise _damaged(path, "it does not hash to what it says")
        try:
            body = json.loads(text)
            return cls(
                body["store"],
                body["key"],
                body["bytes"],
                body["digest"],
                tuple((offset, size) for offset, size in body["kept"]),
                body["kept_digest"],
                tuple((offset, size) for offset, size in body.get("heads", ())),
                body.get("heads_digest", ""),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, f"it misses something: {error!r}") from None

    def copies(self, files: Files, path: str) -> Iterator[tuple[int, memoryview]]:
        behind = sum(length for _, length in self.heads)
        return _ranges(files, path, self.ranges, self.copies_digest, behind)

    def leaf_heads(self, files: Files, path: str) -> Iterator[tuple[int, memoryview]]:
        if not self.heads:
            return iter(())
        return _ranges(files, path, self.heads, self.heads_digest, 0)


def _ranges(
    files: Files, path: str, ranges: Sequence[tuple[int, int]], digest: str, behind: int
) -> Iterator[tuple[int, memoryview]]:
    size = sum(length for _, length in ranges)
    with files.open(path) as file:
        if file.size < size + behind:
            raise _damaged(path, "it was cut")
        content = memoryview(file.read(file.size - size - behind, size))
    if xxh3_64_hexdigest(content) != digest:
        raise _damaged(path, "what it keeps does not hash to what it says")
    at = 0
    for offset, length in ranges:
        yield offset, content[at : at + length]
        at += length


def _damaged(path: str, what: str) -> CorruptStore:
    return CorruptStore(
        f"{path} is damaged: {what}; restore it from a backup, or the stream from its objects with "
        "`chronicle restore`"
    )


def pages_of(ranges: Sequence[tuple[int, int]], length: int) -> tuple[tuple[int, int], ...]:
    """Byte ranges widened to whole pages of a file of that length, merged and ascending."""
    ends = ((at // PAGE * PAGE, min(-(-(at + size) // PAGE) * PAGE, length)) for at, size in ranges)
    return tuple(joined(((first, end - first) for first, end in ends), 0))


GAP_BYTES = 256 << 10
PIECE_BYTES = 4 << 20
AHEAD_BYTES = 16 << 20

CACHE_BYTES = 8 << 30

_numbers = itertools.count()

_waiting = OwnThreads(REQUESTS, "chronicle-objects")


class ColdMapping:
    """A mapping of a cold segment; missing bytes of ``data`` are zero.  ``copies`` are present from
    the start, ``heads`` of leaves once a leaf is wanted.  ``held`` counts holds against eviction;
    once ``retired`` (evicted), readers begin another mapping.
    """

    def __init__(
        self,
        stub: ColdStub,
        copies: Iterable[tuple[int, memoryview]],
        heads: Callable[[], Iterable[tuple[int, memoryview]]],
    ) -> None:
        self.number = next(_numbers)
        self._stub = stub
        self._forget: weakref.WeakMethod[Callable[[], object]] | None = None
        self.retired = False
        with tempfile.TemporaryFile(buffering=0) as file:
            file.truncate(stub.length)
            mapped = mmap.mmap(file.fileno(), stub.length, access=mmap.ACCESS_READ)
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, _ended, self._descriptor, self.number).atexit = False
        self.data = memoryview(mapped)
        self._there = np.zeros(-(-stub.length // PAGE), np.bool_)
        self._lock = threading.Lock()
        self._next = -1
        self._ahead = 0
        self._heads: Callable[[], Iterable[tuple[int, memoryview]]] | None = heads
        self.bytes = 0
        self.held = 0
        for offset, content in copies:
            self._fill(offset, content)

    def need(self, ranges: Sequence[Range]) -> None:
        """Fetch these ranges if they are missing; ``StorageFailed`` if the object is unreadable."""
        if not self._gaps(ranges):
            return
        with self._lock:  # no two threads fetch the same range
            self._fill_heads()
            missing = self._gaps(ranges)
            if len(ranges) == 1 and missing:
                missing = self._read_on(*missing[-1], before=missing[:-1])
            pieces = list(requests(missing, GAP_BYTES, PIECE_BYTES))
            if pieces:  # else all was present, or in the stub
                self._fetch(pieces)
        cache.used(self, sum(length for _, length in pieces))

    def has(self, offset: int, length: int) -> bool:
        if self._heads is not None and self._gaps(((offset, length),)):
            with self._lock:
                self._fill_heads()
            cache.used(self, 0)
        return not self._gaps(((offset, length),))

    def _fill_heads(self) -> None:
        if self._heads is not None:
            with suppress(FileNotFoundError):  # removed meanwhile: read the object
                for offset, content in self._heads():
                    self._fill(offset, content)
            self._heads = None

    def _fetch(self, pieces: Sequence[Range]) -> None:
        store, key = object_store(self._stub.store), self._stub.key
        if len(pieces) == 1:
            self._fill(pieces[0][0], store.read(key, *pieces[0]))
            return
        pending = [(piece, _waiting.pool().submit(store.read, key, *piece)) for piece in pieces]
        try:
            for piece, answer in pending:
                self._fill(piece[0], answer.result())
        finally:
            for _, answer in pending:
                answer.cancel()

    def _gaps(self, ranges: Sequence[Range]) -> list[Range]:
        return [gap for offset, length in ranges for gap in self._missing(offset, length)]

    def _missing(self, offset: int, length: int) -> Iterator[Range]:
        if length <= 0:
            return
        first, end = offset // PAGE, -(-min(offset + length, self._stub.length) // PAGE)
        there = self._there[first:end]
        if there.all():
            return
        edges = np.flatnonzero(np.diff(there, prepend=True, append=True))
        for low, high in edges.reshape(-1, 2).tolist():
            start = (first + low) * PAGE
            yield start, min((first + high) * PAGE, self._stub.length) - start

    def _read_on(self, offset: int, length: int, before: list[Range]) -> list[Range]:
        """The missing ranges plus read-ahead, if the reader continues where it stopped."""
        end = offset + length
        goes_on = 0 <= offset - self._next <= GAP_BYTES
        self._ahead = min(AHEAD_BYTES, max(2 * self._ahead, length)) if goes_on else 0
        self._next = min(end + self._ahead, self._stub.length)
        return [*before, (offset, length), *self._missing(end, self._next - end)]

    def _fill(self, offset: int, content: bytes | memoryview) -> None:
        view, at = memoryview(content), offset
        while len(view):
            written = os.pwrite(self._descriptor, view, at)
            view, at = view[written:], at + written
        end = offset + len(content)
        whole = -(-end // PAGE) if end == self._stub.length else end // PAGE
        pages = self._there[-(-offset // PAGE) : whole]
        self.bytes += (len(pages) - int(np.count_nonzero(pages))) * PAGE
        pages[:] = True

    def tell(self, forget: Callable[[], object] | None) -> None:
        """Have a bound method called on eviction; only the first caller's."""
        if forget is not None and self._forget is None:
            self._forget = weakref.WeakMethod(forget)

    def give_up(self) -> None:
        """Notify readers of the eviction; arrays that they hold stay valid."""
        forget = None if self._forget is None else self._forget()
        if forget is not None:
            forget()


def _ended(descriptor: int, number: int) -> None:
    os.close(descriptor)
    cache.drop(number)


class ColdFile(Closing):
    """An open cold segment (a ``file_contract.ReadFile``); its stub lies beside ``path``."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._stub = ColdStub.read(files, path + SUFFIX)
        self._lock = OwnedLock(path)
        self._mapping: ColdMapping | None = None
        self._closed = False

    @property
    def size(self) -> int:
        return self._stub.length

    def sparse(self, forget: Callable[[], object] | None = None) -> ColdMapping:
        """The mapping, without fetching; ``forget`` is called when it is evicted."""
        mapping = self._mapping
        if mapping is not None and not mapping.retired:
            mapping.tell(forget)
            return mapping
        with self._lock:  # all users of a file share one mapping
            if self._closed:
                raise StoreClosed(f"{self.path} was used after it had been closed")
            mapping = self._mapping
            if mapping is None or mapping.retired:
                if not self._files.exists(self.path + SUFFIX):
                    raise SnapshotExpired(
                        f"{self.path} was replaced while it was read, and its object removed: ask "
                        "again"
                    )
                stub, where = self._stub, (self._files, self.path + SUFFIX)
                heads = partial(stub.leaf_heads, *where)
                mapping = self._mapping = ColdMapping(stub, stub.copies(*where), heads)
            mapping.tell(forget)
            return mapping

    @contextmanager
    def held(self, forget: Callable[[], object] | None = None) -> Iterator[None]:
        """Keep the mapping from eviction during a block."""
        mapping = self.sparse(forget)
        while not cache.hold(mapping, 1):
            mapping = self.sparse(forget)
        try:
            yield
        finally:
            cache.hold(mapping, -1)

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self.size:
            raise short_read(self.path, offset, length, self.size)
        mapping = self.sparse()
        mapping.need([(offset, length)])
        return bytes(mapping.data[offset : offset + length])

    def map(self) -> memoryview:
        mapping = self.sparse()
        mapping.need([(0, self.size)])
        return mapping.data

    def announce(self, ranges: Sequence[Range]) -> None:
        with suppress(StorageFailed):  # the later read raises it
            self.sparse().need(ranges)

    def close(self) -> None:
        """Drop the mapping; buffers from it stay valid."""
        self._closed, self._mapping = True, None


class _Cache:
    """LRU of this process's mappings: ``limit``, ``bytes`` and bytes ``fetched`` so far."""

    def __init__(self) -> None:
        self.limit = int(os.environ.get("CHRONICLE_COLD_CACHE_BYTES", CACHE_BYTES))
        self.bytes = 0
        self.fetched = 0
        self._lock = ModuleLock()
        self._mappings: OrderedDict[int, tuple[weakref.ref[ColdMapping], int]] = OrderedDict()
        self._dropped: deque[int] = deque()

    def used(self, mapping: ColdMapping, fetched: int) -> None:
        with self._lock:
            self.fetched += fetched
            if mapping.retired:  # its readers alone keep it alive
                return
            while self._dropped:
                self.bytes -= self._mappings.pop(self._dropped.popleft(), (None, 0))[1]
            _, bytes_before = self._mappings.pop(mapping.number, (None, 0))
            self.bytes += mapping.bytes - bytes_before
            self._mappings[mapping.number] = weakref.ref(mapping), mapping.bytes
            evicted = list(self._over(mapping))
        for old in evicted:
            old.give_up()

    def _over(self, newest: ColdMapping) -> Iterator[ColdMapping]:
        for key, (reference, taken) in list(self._mappings.items()):
            if self.bytes <= self.limit:
                return
            old = reference()
            if old is newest or (old is not None and old.held):
                continue
            del self._mappings[key]
            self.bytes -= taken
            if old is not None:
                old.retired = True
                yield old

    def hold(self, mapping: ColdMapping, count: int) -> bool:
        with self._lock:
            if not mapping.retired:
                mapping.held += count
            return not mapping.retired

    def drop(self, number: int) -> None:
        """Note a mapping's end; lock-free, as the garbage collector may run inside the lock."""
        self._dropped.append(number)


cache = _Cache()


logger = logging.getLogger("chronicle.store")

SEGMENT = ".seg"
COLD = SEGMENT + SUFFIX
DOOMED = ".doomed"
"""Suffix of a stub whose object is to be removed."""

MOVING = ".moving"
"""Suffix of a stub whose object is not yet complete."""


class ColdFiles:
    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self.create = inner.create
        self.append = inner.append
        self.read = inner.read
        self.make_directory = inner.make_directory
        self.replace = inner.replace
        self.sync_directory = inner.sync_directory
        self.lock = inner.lock
        self.free_bytes = inner.free_bytes

    def __repr__(self) -> str:
        return f"ColdFiles({self.inner!r})"

    def is_cold(self, path: str) -> bool:
        return (
            path.endswith(SEGMENT)
            and not self.inner.exists(path)
            and self.inner.exists(path + SUFFIX)
        )

    def open(self, path: str) -> ReadFile:
        try:
            return self.inner.open(path)
        except FileNotFoundError:
            if not self.is_cold(path):
                raise
        return ColdFile(self.inner, path)

    def size(self, path: str) -> int:
        try:
            return self.inner.size(path)
        except FileNotFoundError:
            if not self.is_cold(path):
                raise
        return ColdStub.read(self.inner, path + SUFFIX).length

    def exists(self, path: str) -> bool:
        return self.inner.exists(path) or self.is_cold(path)

    def list(self, directory: str) -> list[str]:
        names = self.inner.list(directory)
        if not any(name.endswith(COLD) for name in names):
            return names
        return sorted(
            {name.removesuffix(SUFFIX) if name.endswith(COLD) else name for name in names}
        )

    def remove(self, path: str) -> None:
        stub = path + SUFFIX
        if not path.endswith(SEGMENT) or not self.inner.exists(stub):
            self.inner.remove(path)
            return
        self.inner.replace(stub, path + DOOMED)
        if self.inner.exists(path):
            self.inner.remove(path)

    def remove_tree(self, path: str) -> None:
        _forget(self.inner, path)
        purge(self.inner, path, (SUFFIX, DOOMED, MOVING))
        self.inner.remove_tree(path)

    def link(self, source: str, target: str) -> None:
        if not self.is_cold(source):
            self.inner.link(source, target)
            return
        with self.inner.create(target) as copy:
            self._copy(source, copy)

    def export(self, path: str, outside_path: str, *, length: int | None = None) -> None:
        if not self.is_cold(path):
            self.inner.export(path, outside_path, length=length)
            return
        from .files import RealFiles

        directory, name = os.path.split(outside_path)
        with RealFiles(directory).create(name) as copy:
            self._copy(path, copy, length)

    def _copy(self, source: str, copy: AppendFile, length: int | None = None) -> None:
        with ColdFile(self.inner, source) as file:
            end = file.size if length is None else length
            for offset in range(0, end, PIECE_BYTES):
                copy.write(file.read(offset, min(PIECE_BYTES, end - offset)))
            copy.sync()

    def local_path(self, path: str) -> str | None:
        return None if self.is_cold(path) else self.inner.local_path(path)


def cold_segments(files: Files, directory: str) -> set[str]:
    """Names of the segments of a stream that have only a stub."""
    names = set(files.inner.list(directory)) if isinstance(files, ColdFiles) else set()
    return {name.removesuffix(SUFFIX) for name in names if name.endswith(COLD)} - names


def _forget(files: Files, directory: str) -> None:
    """Remove a stream's manifest from the object store, so that a restore cannot revive it."""
    try:
        names = files.list(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    stubs = (name for name in names if name.endswith((COLD, SEGMENT + DOOMED, SEGMENT + MOVING)))
    if MANIFEST not in names or (stub := next(stubs, None)) is None:
        return
    manifest_stub = ColdStub.read(files, f"{directory}/{stub}")
    place, objects = posixpath.dirname(manifest_stub.key), object_store(manifest_stub.store)
    for key in objects.list(f"{place}/"):  # the manifest before its pages
        if SEGMENT not in key:
            objects.remove(key)


def purge_quietly(files: Files, directory: str, endings: tuple[str, ...] = (DOOMED,)) -> None:
    try:
        purge(files, directory, endings)
    except OSError as error:
        logger.warning("%s: %s", directory, error)


def purge(files: Files, directory: str, endings: tuple[str, ...] = (DOOMED,)) -> int:
    """Remove the objects of stubs with these ``endings``, recursively; returns their number."""
    try:
        names = files.list(directory)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    removed = 0
    for name in names:
        path = f"{directory}/{name}"
        if name.endswith(tuple(SEGMENT + ending for ending in endings)):
            try:
                stub = ColdStub.read(files, path)
                objects = object_store(stub.store)
                objects.remove(stub.key + SUFFIX)  # a restore reads it first
                objects.remove(stub.key)
                files.remove(path)
            except FileNotFoundError:
                continue  # another call removed it
            removed += 1
        elif "." not in name:
            removed += purge(files, path, endings)
    return removed
