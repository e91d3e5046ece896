"""Segment files for readers: a mapping, and its verified blocks.

Every byte is compared with its checksum before its first use by this process; after that the
mapping is trusted while the block is cached (``BLOCKS_REMEMBERED`` per segment).  Of a cold segment
(``cold_file``) bytes are fetched before they are read.

Truncated files: a mistaken copy or ``truncate`` may shorten committed bytes, and reading a mapping
behind the end of its file kills the process (SIGBUS).  So the length is verified at every access to
a block (one ``fstat``, below a microsecond): a truncated file raises ``CorruptBlock``.  ``pread``
would copy every block.  A file that is truncated between the check and the use of a block, or under
a stored result, still kills the process.

Open files are limited: the least recently used are closed, and reopened on demand.  Each takes two
descriptors.  Arrays from a closed file's mapping stay valid, and keep its descriptor.  Files whose
names are about to be removed are not counted and stay open.  The order is second-chance (CLOCK):
reads set only a flag.
"""

from __future__ import annotations

import os
import resource
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..core.ownership import ModuleLock, OwnedLock
from ..errors import CorruptBlock, SnapshotExpired
from ..schema import StreamSchema
from .cold_file import ColdFile, ColdFiles, ColdMapping
from .dictionary import read_page
from .evolution import Evolution, EvolvedLeaf
from .file_contract import Files, ReadFile, check_version
from .files import Range
from .layout import BLOCK_FRAME, FILE_HEADER, FORMAT_VERSION, SEGMENT_MAGIC
from .leaf import LeafReader, Need, head_limit
from .node import read_node

DESCRIPTORS_EACH = 2
SHARE = 4
"""1/4 of the descriptors that a process may have are for segments."""
OPEN_MAX = 4096
OPEN_MIN = 16


class OpenFiles:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = ModuleLock()
        self._open: OrderedDict[int, weakref.ref[SegmentFile]] = OrderedDict()
        os.register_at_fork(after_in_child=self._forget)

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, file: SegmentFile) -> None:
        with self._lock:
            self._open[id(file)] = weakref.ref(file)
            over = len(self._open) - self.limit
            to_close = self._oldest(file, over) if over > 0 else []
        for each in to_close:
            if not each.let_go():
                with self._lock:
                    self._open[id(each)] = weakref.ref(each)

    def closed(self, file: SegmentFile) -> None:
        with self._lock:
            self._open.pop(id(file), None)

    def _oldest(self, newest: SegmentFile, count: int) -> list[SegmentFile]:
        files: list[SegmentFile] = []
        for _ in range(2 * len(self._open)):
            if count <= 0:
                break
            key, reference = self._open.popitem(last=False)
            file = reference()
            if file is None:
                count -= 1
            elif file is newest or file.read_since:
                file.read_since = False
                self._open[key] = reference
            else:
                files.append(file)
                count -= 1
        return files

    def _forget(self) -> None:
        self._open = OrderedDict()


def _affordable() -> int:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return OPEN_MAX
    return max(OPEN_MIN, min(OPEN_MAX, allowed // (SHARE * DESCRIPTORS_EACH)))


open_files = OpenFiles(_affordable())


Table = npt.NDArray[np.int64]
BLOCKS_REMEMBERED = 4096
HEAD_SHARE, HEAD_BYTES = 64, 4096
"""Estimated size of a leaf's head: a share of the leaf, plus a constant."""


class Epoch:
    """Identity of the time during which a segment is read through one mapping."""

    __slots__ = ("__weakref__",)


class SegmentFile:
    """A mapped segment file and its verified blocks, read with ``schema``.  ``epoch`` is replaced
    with the mapping; ``needs`` keeps, for example, a lease; without ``verify`` the header may be
    damaged.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        segment_id: int,
        schema: StreamSchema,
        *,
        verify: bool = True,
        evolution: Evolution | None = None,
    ) -> None:
        self._verify = verify
        self._evolution = evolution
        self.path = path
        self.segment_id = segment_id
        self.schema = schema
        self._files = files
        self.epoch = Epoch()
        self._file: ReadFile | None = None
        self._holders = 0
        self._stays = True
        self._verified = False
        self.read_since = False
        self.needs: object = None
        self._data = memoryview(b"")
        self._blocks: dict[int, LeafReader | Table] = {}
        self._dictionaries: dict[str, tuple[int, pa.Array]] = {}
        self._lock = OwnedLock(path)

    def data(self, length: int) -> memoryview:
        """The mapping with ``length`` committed bytes; raises if truncated, or forked."""
        self._lock.check()
        # read the mapping before the size: another thread may extend both
        file, data = self._file, self._data
        if file is not None and (size := file.size) < len(data):
            raise CorruptBlock(
                f"expected {len(data)} committed bytes, found {size}: the file was cut while "
                "it was open",
                self.path,
                size,
            )
        self.read_since = True
        if file is not None and 0 < length <= len(data):
            return data
        with self._lock:
            file = self._opened()
            if isinstance(file, ColdFile):
                return self.block(0, length)
            data = self._data
            if len(data) < length:
                mapped = file.map()
                if len(mapped) < length:
                    raise CorruptBlock(
                        f"expected {length} committed bytes, found {len(mapped)}",
                        self.path,
                        len(mapped),
                    )
                data = self._data = mapped[:length]
        return data

    def block(self, offset: int, length: int) -> memoryview:
        """The mapping, with these bytes present."""
        cold = self._cold(offset + length)
        if cold is None:
            return self.data(offset + length)
        cold.need(((offset, length),))
        return cold.data

    def sparse(self, length: int) -> memoryview:
        """The mapping with only requested blocks present; callers use ``held``."""
        cold = self._cold(0)
        return self.data(length) if cold is None else cold.data

    @property
    def moved(self) -> bool:
        """Whether it is read from an object, with high latency."""
        return isinstance(self._opened(), ColdFile)

    @property
    def evolved(self) -> bool:
        """Whether entries are converted from other columns."""
        return self._evolution is not None

    @property
    def in_objects(self) -> bool:
        return isinstance(self._files, ColdFiles) and self._files.is_cold(self.path)

    def fetch(self, ranges: Sequence[Range]) -> None:
        """Prefetch ranges together; waits only for objects."""
        if not ranges:
            return
        self._needs(self._cold(0))(ranges)

    def _needs(self, cold: ColdMapping | None) -> Need:
        return self._opened().announce if cold is None else cold.need

    def knows(self, offset: int) -> bool:
        return offset in self._blocks

    def head_limit(self, events: int, length: int) -> int:
        written = self.schema if self._evolution is None else self._evolution.written
        return head_limit(written, events, length)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the mapping during a block."""
        with self._lock:
            self._holders += 1
            file = self._opened()
        try:
            if isinstance(file, ColdFile):
                with file.held(self._forget):
                    yield
            else:
                yield
        finally:
            with self._lock:
                self._holders -= 1

    def _cold(self, end: int) -> ColdMapping | None:
        """The mapping of a segment in objects, which has at least so many bytes; None of a local
        one.
        """
        file = self._opened()
        if not isinstance(file, ColdFile):
            return None
        self._lock.check()
        if end > file.size:
            what = f"expected {end} committed bytes, found {file.size}"
            raise CorruptBlock(what, self.path, file.size)
        return file.sparse(self._forget)

    def _opened(self) -> ReadFile:
        file = self._file
        if file is not None:
            return file
        with self._lock:
            if self._file is None:
                try:
                    file = self._files.open(self.path)
                except FileNotFoundError as error:
                    if not self._verified:
                        raise
                    raise SnapshotExpired(
                        f"{self.path} was removed since this snapshot was taken, and nothing kept "
                        "it: read from a new snapshot, of an open stream"
                    ) from error
                if self._verify:
                    self._check_header(file)
                self._file, self._verified = file, True
            else:
                file = self._file
            stays = self._stays
        if not stays:
            open_files.opened(self)
        return file

    def may_close(self) -> None:
        """Allow closing when many files are open; it reopens on demand."""
        with self._lock:
            self._stays = False
            is_open = self._file is not None
        if is_open:
            open_files.opened(self)

    def stay_open(self) -> None:
        """Keep it open from now on, even when its name is removed."""
        with self._lock:
            self._stays = True
            self.block(0, FILE_HEADER.size)
        open_files.closed(self)

    def let_go(self) -> bool:
        """Close the file until it is read again; False when that is impossible now."""
        if not self._lock.here or not self._lock.acquire(blocking=False):
            return False
        try:
            if self._stays or self._holders:
                return False
            self._file = None  # closed with the last reader's reference
            self._forget()
            return True
        finally:
            self._lock.release()

    def reopen(self) -> None:
        """Reopen after a move: later reads use the new location."""
        with self._lock:
            file, self._file = self._file, None
            self._forget()
            if file is not None:
                file.close()
        open_files.closed(self)

    def _forget(self) -> None:
        self.epoch = Epoch()
        self._data = memoryview(b"")
        self._blocks = {}
        self._dictionaries = {}

    def _check_header(self, file: ReadFile) -> None:
        header = bytes(file.read(0, min(file.size, FILE_HEADER.size)))
        if len(header) < FILE_HEADER.size:
            raise CorruptBlock(f"a segment cannot be {len(header)} bytes long", self.path, 0)
        magic, version, _, _, segment_id, signature = FILE_HEADER.unpack(header)
        if magic != SEGMENT_MAGIC:
            raise CorruptBlock("this is no segment file", self.path, 0)
        if xxhash.xxh3_64_intdigest(header[:-8]) != signature:  # before its version is used
            raise CorruptBlock("the header does not hash to what it should", self.path, 0)
        check_version(self.path, version, FORMAT_VERSION)
        if segment_id != self.segment_id:
            raise CorruptBlock(f"the header is not that of segment {self.segment_id}", self.path, 0)

    def _remember(self, offset: int, block: LeafReader | Table) -> None:
        blocks = self._blocks
        if len(blocks) >= BLOCKS_REMEMBERED:
            with self._lock:
                for old in list(blocks)[: BLOCKS_REMEMBERED // 8]:
                    blocks.pop(old, None)
        blocks[offset] = block

    def leaf(self, offset: int, length: int, *, announced: bool = False) -> LeafReader:
        """The leaf at an offset; ``asked``: its head was already prefetched."""
        cold = self._cold(offset + length)
        data = self.data(offset + length) if cold is None else cold.data
        need, holes = self._needs(cold), cold is not None
        block = self._blocks.get(offset)
        if isinstance(block, LeafReader) and (not holes or block.reads(data)):
            return block
        if not announced and (cold is None or not cold.has(offset, BLOCK_FRAME.size)):
            need(((offset, min(length, HEAD_BYTES + length // HEAD_SHARE)),))
        if holes:  # the prefetch may have filled a mapping that was evicted
            need(((offset, BLOCK_FRAME.size),))
            need(((offset, min(length, int(BLOCK_FRAME.unpack_from(data, offset)[5]))),))
        leaf: LeafReader
        if self._evolution is None:
            leaf = LeafReader(
                data, offset, self.segment_id, self.schema, self.path, need=need, holes=holes
            )
        else:
            leaf = EvolvedLeaf(
                data, offset, self.segment_id, self._evolution, self.path, need, holes
            )
        self._remember(offset, leaf)
        return leaf

    def node(self, offset: int, length: int) -> Table:
        data = self.block(offset, length)
        block = self._blocks.get(offset)
        if isinstance(block, np.ndarray):
            return block
        if not self.moved:
            self.fetch(((offset, length),))
        written = self.schema if self._evolution is None else self._evolution.written
        table = read_node(data, offset, self.segment_id, written, self.path)
        if self._evolution is not None:
            table = self._evolution.table(table)
        self._remember(offset, table)
        return table

    def as_written(self, names: Iterable[str]) -> bool:
        """Whether the bytes of these columns can be used without conversion."""
        return self._evolution is None or not self._evolution.changes(names)

    def dictionary(self, name: str, pages: Sequence[int]) -> pa.Array:
        """Values of an attribute's dictionary pages; may include later pages."""
        cached = self._dictionaries.get(name)
        if cached is not None and cached[0] >= len(pages):
            return cached[1]
        attribute = self.schema.attribute(name)
        parts = [] if cached is None else [cached[1]]
        for offset in pages[0 if cached is None else cached[0] :]:
            data = self.block(offset, BLOCK_FRAME.size)
            if self.moved:
                data = self.block(offset, int(BLOCK_FRAME.unpack_from(data, offset)[6]))
            first, values = read_page(data, offset, self.segment_id, attribute, self.path)
            if first != sum(len(part) for part in parts):
                raise CorruptBlock(f"a dictionary page of {name!r} is missing", self.path, offset)
            parts.append(values)
        values = pa.concat_arrays(parts) if parts else pa.array([], attribute.type)
        self._dictionaries[name] = (len(pages), values)
        return values

    def close(self) -> None:
        """Close the file; arrays that point into its mapping stay valid."""
        self.reopen()
