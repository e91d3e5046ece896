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
"""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np

from ..core.ownership import ModuleLock, OwnedLock, OwnThreads
from ..errors import SnapshotExpired, StorageFailed, StoreClosed
from .cold_stub import PAGE, SUFFIX, ColdStub
from .file_contract import Files, short_read
from .object_store import REQUESTS, object_store
from .read_plan import Range, requests

__all__ = ["ColdFile", "ColdMapping", "cache"]


GAP_BYTES = 256 << 10
PIECE_BYTES = 4 << 20
AHEAD_BYTES = 16 << 20

CACHE_BYTES = 8 << 30

_numbers = itertools.count()

_waiting = OwnThreads(REQUESTS, "chronicle-objects")


class ColdMapping:
    """A mapping of a cold segment; missing bytes of ``data`` are zero.  ``kept`` are present from
    the start; ``heads`` gives cached leaf heads.  ``held`` counts holds against eviction; once
    ``retired`` (evicted), readers begin another mapping.
    """

    def __init__(
        self,
        stub: ColdStub,
        kept: Iterable[tuple[int, memoryview]],
        heads: Callable[[Sequence[Range]], Iterable[tuple[int, memoryview]]] | None = None,
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
        self._heads = heads if stub.heads else None
        self.bytes = 0
        self.held = 0
        for offset, content in kept:
            self._fill(offset, content)

    def need(self, ranges: Sequence[Range]) -> None:
        """Fetch these ranges if they are missing; ``StorageFailed`` if the object is unreadable."""
        if not self._gaps(ranges):
            return
        with self._lock:  # no two threads fetch the same range
            self._fill_heads(ranges)
            missing = [
                found for offset, length in ranges for found in self._missing(offset, length)
            ]
            if len(ranges) == 1 and missing:
                missing = self._read_on(*missing[-1], before=missing[:-1])
            pieces = list(requests(missing, GAP_BYTES, PIECE_BYTES))
            if pieces:  # else all was present, or in the stub
                self._fetch(pieces)
        cache.used(self, sum(length for _, length in pieces))

    def has(self, offset: int, length: int) -> bool:
        if self._heads is not None and self._gaps(((offset, length),)):
            with self._lock:
                self._fill_heads(((offset, length),))
            cache.used(self, 0)
        return not self._gaps(((offset, length),))

    def _fill_heads(self, ranges: Sequence[Range]) -> None:
        if self._heads is not None:
            with suppress(FileNotFoundError):  # removed meanwhile: read the object
                for offset, content in self._heads(self._gaps(ranges)):
                    self._fill(offset, content)

    def _fetch(self, pieces: Sequence[Range]) -> None:
        store, key = object_store(self._stub.store), self._stub.key
        if len(pieces) == 1:
            self._fill(pieces[0][0], store.read(key, *pieces[0]))
            return
        asked = [(piece, _waiting.pool().submit(store.read, key, *piece)) for piece in pieces]
        try:
            for piece, answer in asked:
                self._fill(piece[0], answer.result())
        finally:
            for _, answer in asked:
                answer.cancel()

    def _gaps(self, ranges: Sequence[Range]) -> list[Range]:
        return [found for offset, length in ranges for found in self._missing(offset, length)]

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


class ColdFile:
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
                kept = self._stub.kept(self._files, self.path + SUFFIX)
                heads = partial(self._stub.kept_heads, self._files, self.path + SUFFIX)
                mapping = self._mapping = ColdMapping(self._stub, kept, heads)
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

    def check_heads(self) -> None:
        if self._stub.heads:
            self._stub.check_heads(self._files, self.path + SUFFIX)

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

    def __enter__(self) -> ColdFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        with self._lock.lock:
            self.fetched += fetched
            if mapping.retired:  # its readers alone keep it alive
                return
            while self._dropped:
                self.bytes -= self._mappings.pop(self._dropped.popleft(), (None, 0))[1]
            _, known = self._mappings.pop(mapping.number, (None, 0))
            self.bytes += mapping.bytes - known
            self._mappings[mapping.number] = weakref.ref(mapping), mapping.bytes
            given_up = list(self._over(mapping))
        for old in given_up:
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
        with self._lock.lock:
            if not mapping.retired:
                mapping.held += count
            return not mapping.retired

    def drop(self, number: int) -> None:
        """Note a mapping's end; lock-free, as the garbage collector may run inside the lock."""
        self._dropped.append(number)


cache = _Cache()
