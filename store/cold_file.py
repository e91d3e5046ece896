"""Cold segments for readers: a file of holes, filled by requests for what is wanted.

Purpose
    A segment that has moved to an :class:`~chronicle.store.object_store.ObjectStore` is read as if
    it lay on the disk: through a mapping.  What is mapped is an anonymous file of the segment's
    length, at first all holes; :meth:`ColdMapping.need` fetches ranges of the object into it.

    ::

        object     |header|leaf|leaf|leaf|node|leaf|leaf| ... |node|summary|footer|
        mapping    |......|....|leaf|....|node|....|....| ... |node|summary|footer|    . hole
                                need()    from the stub

Requests
    Pages of :data:`PAGE` bytes are there or not.  Ranges that are missing are joined where the gap
    between them costs less to read than a request of its own (:data:`GAP_BYTES`), cut into pieces
    of :data:`PIECE_BYTES`, and asked for side by side.  Who reads on from where it stopped has
    twice as much fetched each time, up to :data:`AHEAD_BYTES`.

Guarantee
    A page is read only when all of its bytes have come; blocks are verified by their checksums like
    those of any segment.  Pages are never taken out of a mapping, so arrays that point into one
    stay valid: a mapping is given up as a whole, and another begun, when the mappings of this
    process take more than :data:`CACHE_BYTES` (or ``CHRONICLE_COLD_CACHE_BYTES`` of the
    environment), the least recently used first.

Limits
    The cache lies in nameless files of the directory for temporary files (``TMPDIR``), is this
    process's own and ends with it.  What queries hold of a mapping that was given up takes space
    until they end, and so does a single segment that is larger than the cache.
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
"""Threads that wait for objects."""


class ColdMapping:
    """A mapping of a cold segment.

    Attributes
    ----------
    data : memoryview
        All of the segment's bytes, those that nobody has needed yet as zeros.
    number : int
        No other mapping of this process has it.
    bytes : int
        Of them that are there.
    held : int
        Who has asked that it be not given up now.
    retired : bool
        Given up: whoever needs more begins another.

    Parameters
    ----------
    kept : iterable of (int, memoryview)
        What is there from the beginning, and where.
    heads : callable
        Gives the heads of leaves that are kept which have bytes of some ranges.
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
        """See to it that these bytes are there.

        Raises
        ------
        StorageFailed
            The object could not be read.
        """
        if not self._gaps(ranges):
            return
        with self._lock:  # what another thread fetches is not fetched twice
            self._fill_heads(ranges)
            missing = [
                found for offset, length in ranges for found in self._missing(offset, length)
            ]
            if len(ranges) == 1 and missing:
                missing = self._read_on(*missing[-1], before=missing[:-1])
            pieces = list(requests(missing, GAP_BYTES, PIECE_BYTES))
            if pieces:  # or they were there, or heads on the disk
                self._fetch(pieces)
        cache.used(self, sum(length for _, length in pieces))

    def has(self, offset: int, length: int) -> bool:
        """Whether these bytes are there, or on the disk."""
        if self._heads is not None and self._gaps(((offset, length),)):
            with self._lock:
                self._fill_heads(((offset, length),))
            cache.used(self, 0)
        return not self._gaps(((offset, length),))

    def _fill_heads(self, ranges: Sequence[Range]) -> None:
        """Put the heads of leaves that are kept of what is missing in places; the lock is held."""
        if self._heads is not None:
            with suppress(FileNotFoundError):  # removed meanwhile: ask the object
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
        """The runs of pages of a range that are not there."""
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
        """More than was asked for, where the reader goes on from where it stopped."""
        end = offset + length
        goes_on = 0 <= offset - self._next <= GAP_BYTES
        self._ahead = min(AHEAD_BYTES, max(2 * self._ahead, length)) if goes_on else 0
        self._next = min(end + self._ahead, self._stub.length)
        return [*before, (offset, length), *self._missing(end, self._next - end)]

    def _fill(self, offset: int, content: bytes | memoryview) -> None:
        """Put bytes in their place; pages are there once all of their bytes are."""
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
        """Have a bound method called when it is given up; of the first who wants that."""
        if forget is not None and self._forget is None:
            self._forget = weakref.WeakMethod(forget)

    def give_up(self) -> None:
        """Have its readers let go of it; what was handed out stays valid."""
        forget = None if self._forget is None else self._forget()
        if forget is not None:
            forget()


def _ended(descriptor: int, number: int) -> None:
    """A mapping has gone."""
    os.close(descriptor)
    cache.drop(number)


class ColdFile:
    """A cold segment, opened; see :class:`~chronicle.store.file_contract.ReadFile`.

    Parameters
    ----------
    path : str
        Of the segment, beside which its stub lies.
    """

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._stub = ColdStub.read(files, path + SUFFIX)
        self._lock = OwnedLock(path)
        self._mapping: ColdMapping | None = None
        self._closed = False

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._stub.length

    def sparse(self, forget: Callable[[], object] | None = None) -> ColdMapping:
        """The mapping, without fetching anything; ``forget`` is called when it is given up."""
        mapping = self._mapping
        if mapping is not None and not mapping.retired:
            mapping.tell(forget)
            return mapping
        with self._lock:  # who holds a mapping and who reads must have the same one
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
        """Have the mapping not be given up meanwhile."""
        mapping = self.sparse(forget)
        while not cache.hold(mapping, 1):
            mapping = self.sparse(forget)
        try:
            yield
        finally:
            cache.hold(mapping, -1)

    def check_heads(self) -> None:
        """Compare what is kept here of leaves with its checksum.

        Raises
        ------
        CorruptStore
        """
        if self._stub.heads:
            self._stub.check_heads(self._files, self.path + SUFFIX)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``."""
        if offset + length > self.size:
            raise short_read(self.path, offset, length, self.size)
        mapping = self.sparse()
        mapping.need([(offset, length)])
        return bytes(mapping.data[offset : offset + length])

    def map(self) -> memoryview:
        """The whole file, fetched."""
        mapping = self.sparse()
        mapping.need([(0, self.size)])
        return mapping.data

    def announce(self, ranges: Sequence[Range]) -> None:
        """Fetch bytes that will be read, side by side."""
        with suppress(StorageFailed):  # whoever reads them is told
            self.sparse().need(ranges)

    def close(self) -> None:
        """Let go of the mapping; buffers from it stay valid."""
        self._closed, self._mapping = True, None

    def __enter__(self) -> ColdFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Cache:
    """The mappings of this process, least recently used first, and what they take.

    Attributes
    ----------
    limit : int
        Bytes that they may take.
    bytes : int
        Bytes that they take.
    fetched : int
        Bytes that have come from objects since the process began.
    """

    def __init__(self) -> None:
        self.limit = int(os.environ.get("CHRONICLE_COLD_CACHE_BYTES", CACHE_BYTES))
        self.bytes = 0
        self.fetched = 0
        self._lock = ModuleLock()
        self._mappings: OrderedDict[int, tuple[weakref.ref[ColdMapping], int]] = OrderedDict()
        self._dropped: deque[int] = deque()

    def used(self, mapping: ColdMapping, fetched: int) -> None:
        """A mapping has grown: it is the most recently used, and others may have to go."""
        with self._lock.lock:
            self.fetched += fetched
            if mapping.retired:  # who still reads of it keeps it no longer than that
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
        """Keep a mapping from being given up, or no longer; False when it was already."""
        with self._lock.lock:
            if not mapping.retired:
                mapping.held += count
            return not mapping.retired

    def drop(self, number: int) -> None:
        """A mapping has gone; noted without the lock, whose holder may be who collects it."""
        self._dropped.append(number)


cache = _Cache()
"""Of this process."""
