"""Segment files for readers: a mapping, and the blocks of it that are known to be sound.

Purpose
    :class:`SegmentFile` maps a file, finds blocks in it and remembers those it has verified.  Of a
    segment that has moved to an object (:mod:`.cold_file`) it sees to it that bytes are there
    before they are looked at; :meth:`SegmentFile.fetch` says beforehand which will be wanted, so
    that they come side by side, from an object or from a disk.

Guarantee
    Every byte is compared with its checksum before it is used for the first time by this process;
    after that the mapping is trusted while the block stays among the remembered ones.

Files that are cut
    Nothing of Chronicle shortens committed bytes, but a mistaken copy or ``truncate`` may, and to
    touch a mapping behind the end of its file kills the process (SIGBUS).  So lengths are verified
    when a file is opened and again (one ``fstat``, below a microsecond) whenever a block of it is
    asked for: a file that was cut raises :class:`~chronicle.errors.CorruptBlock`.  Reading with
    ``pread`` instead would copy every block, and lose what mappings are for: plain columns without
    a copy, and memory that the system can take back.

Limits
    Remembered blocks are bounded (:data:`BLOCKS_REMEMBERED` per segment, oldest out first), and so
    are the files that are open (:mod:`.open_files`): one that is closed for others forgets its.
    Arrays that were handed out point into the mapping: a file that is cut in the moment between
    the look at its length and the use of a block, or under a result that is kept, still kills.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..core.ownership import OwnedLock
from ..errors import CorruptBlock, UnsupportedFormat
from ..schema import StreamSchema
from .cold_file import ColdFile, ColdMapping
from .cold_files import ColdFiles
from .dictionary import read_page
from .evolution import Evolution, EvolvedLeaf
from .file_contract import Files, ReadFile
from .layout import BLOCK_FRAME, FILE_HEADER, FORMAT_VERSION, SEGMENT_MAGIC
from .leaf import LeafReader, Need, head_limit
from .node import read_node
from .open_files import open_files
from .read_plan import Range

__all__ = ["Epoch", "SegmentFile"]

Table = npt.NDArray[np.int64]
BLOCKS_REMEMBERED = 4096
HEAD_SHARE, HEAD_BYTES = 64, 4096
"""Of a leaf, about what its head takes: a part of it, and what is there in any case."""


class Epoch:
    """The time in which a segment is read through one mapping, for those who remember of it."""

    __slots__ = ("__weakref__",)


class SegmentFile:
    """A mapped segment file and the blocks of it that are known to be sound.

    Attributes
    ----------
    epoch : Epoch
        Another one when the bytes are read from elsewhere, for they moved or were given up.
    needs : object
        Lives as long as this: what keeps the file there.
    read_since : bool
        See :class:`.open_files.Reopened`.

    Parameters
    ----------
    schema : StreamSchema
        Of the segment.
    verify : bool
        Whether the header of the file must be sound; a repair looks at the blocks all the same.
    evolution : Evolution, optional
        Where it is read as one of other columns than it was written with: ``schema`` are those.
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
        self.read_since = False
        self.needs: object = None
        self._data = memoryview(b"")
        self._blocks: dict[int, LeafReader | Table] = {}
        self._dictionaries: dict[str, tuple[int, pa.Array]] = {}
        self._lock = OwnedLock(path)

    def data(self, length: int) -> memoryview:
        """The mapping, at least ``length`` committed bytes of it, all of them there.

        What lies behind them may be cut off and written anew by the writer: it is not looked at.
        A mapping whose file was cut is refused (the system kills who touches it), or a parent's.
        """
        self._lock.check()
        # the mapping before the size: another thread may add to both
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
                return self._there(file, 0, length)
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
        """The mapping, of which these bytes are there."""
        file = self._opened()
        if not isinstance(file, ColdFile):
            return self.data(offset + length)
        self._lock.check()
        return self._there(file, offset, length)

    def sparse(self, length: int) -> memoryview:
        """The mapping, of which only the blocks that were asked for need be there.

        For kernels that go over it themselves; they must hold it (:meth:`held`).
        """
        return self.block(0, 0) if self.moved else self.data(length)

    @property
    def moved(self) -> bool:
        """Whether it is read from an object, where to wait for each block takes long."""
        return isinstance(self._opened(), ColdFile)

    @property
    def evolved(self) -> bool:
        """Whether entries of its nodes are read as others than were written."""
        return self._evolution is not None

    @property
    def in_objects(self) -> bool:
        """Whether the segment has moved to an object; nothing is opened for the answer."""
        return isinstance(self._files, ColdFiles) and self._files.is_cold(self.path)

    def fetch(self, ranges: Sequence[Range]) -> None:
        """Have bytes that will be wanted come together: wait for them only if it has moved."""
        if not ranges:
            return
        file = self._opened()
        if isinstance(file, ColdFile):
            file.sparse(self._forget).need(ranges)
        else:
            file.announce(ranges)

    def check_heads(self) -> None:
        """Compare what the disk keeps of the leaves of a segment that has moved.

        Raises
        ------
        CorruptStore
        """
        file = self._opened()
        if isinstance(file, ColdFile):
            file.check_heads()

    def knows(self, offset: int) -> bool:
        """Whether the block at an offset has been read, and is remembered."""
        return offset in self._blocks

    def head_limit(self, events: int, length: int) -> int:
        """Bytes that the head of a leaf takes at most."""
        written = self.schema if self._evolution is None else self._evolution.written
        return head_limit(written, events, length)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the mapping stay the same meanwhile."""
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

    def _there(self, cold: ColdFile, offset: int, length: int) -> memoryview:
        mapping = self._mapping_of(cold, offset, length)
        mapping.need(((offset, length),))
        return mapping.data

    def _mapping_of(self, cold: ColdFile, offset: int, length: int) -> ColdMapping:
        """The mapping of a segment that has moved, which has these bytes, there or not."""
        if offset + length > cold.size:
            raise CorruptBlock(
                f"expected {offset + length} committed bytes, found {cold.size}",
                self.path,
                cold.size,
            )
        return cold.sparse(self._forget)

    def _opened(self) -> ReadFile:
        """The file, which is opened if it is not open."""
        file = self._file
        if file is not None:
            return file
        with self._lock:
            if self._file is None:
                file = self._files.open(self.path)
                if self._verify:
                    self._check_header(file)
                self._file = file
            else:
                file = self._file
            stays = self._stays
        if not stays:
            open_files.opened(self)
        return file

    def may_close(self) -> None:
        """Close the file when many others are open, and open it again when it is read."""
        with self._lock:
            self._stays = False
            known = self._file is not None
        if known:
            open_files.opened(self)

    def stay_open(self) -> None:
        """Have it open from now on, whatever becomes of its name."""
        with self._lock:
            self._stays = True
            self.block(0, FILE_HEADER.size)
        open_files.closed(self)

    def let_go(self) -> bool:
        """Close the file until it is read again; False when that may not be now."""
        if not self._lock.here or not self._lock.acquire(blocking=False):
            return False
        try:
            if self._stays or self._holders:
                return False
            self._file = None  # closed by the last who reads of it
            self._forget()
            return True
        finally:
            self._lock.release()

    def reopen(self) -> None:
        """The segment has moved: what is read from now on is read from where it is."""
        with self._lock:
            file, self._file = self._file, None
            self._forget()
            if file is not None:
                file.close()
        open_files.closed(self)

    def _forget(self) -> None:
        """Let go of what points into the mapping."""
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
        if xxhash.xxh3_64_intdigest(header[:-8]) != signature:  # before its version is believed
            raise CorruptBlock("the header does not hash to what it should", self.path, 0)
        if version > FORMAT_VERSION:
            raise UnsupportedFormat(
                f"{self.path} has format version {version}; this release reads up to "
                f"{FORMAT_VERSION}, use a newer one"
            )
        if segment_id != self.segment_id:
            raise CorruptBlock(f"the header is not that of segment {self.segment_id}", self.path, 0)

    def _remember(self, offset: int, block: LeafReader | Table) -> None:
        blocks = self._blocks
        if len(blocks) >= BLOCKS_REMEMBERED:
            with self._lock:
                for old in list(blocks)[: BLOCKS_REMEMBERED // 8]:
                    blocks.pop(old, None)
        blocks[offset] = block

    def leaf(self, offset: int, length: int, *, asked: bool = False) -> LeafReader:
        """The leaf at an offset; ``asked``: its head was asked for with those of others."""
        data, need, holes = self._leaf_bytes(offset, length)
        block = self._blocks.get(offset)
        if isinstance(block, LeafReader) and (not holes or block.reads(data)):
            return block
        if not asked and not (holes and self._has(offset)):
            need(((offset, min(length, HEAD_BYTES + length // HEAD_SHARE)),))
        if holes:  # what was asked for may have come to a mapping that is given up
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

    def _has(self, offset: int) -> bool:
        """Whether the frame of a block is there: its whole head is, or is asked for by its size."""
        file = self._opened()
        return isinstance(file, ColdFile) and file.sparse(self._forget).has(
            offset, BLOCK_FRAME.size
        )

    def _leaf_bytes(self, offset: int, length: int) -> tuple[memoryview, Need, bool]:
        """The mapping, who is told what is wanted of it, and whether it has holes."""
        file = self._opened()
        if not isinstance(file, ColdFile):
            return self.data(offset + length), file.announce, False
        self._lock.check()
        mapping = self._mapping_of(file, offset, length)
        return mapping.data, mapping.need, True

    def node(self, offset: int, length: int) -> Table:
        """The entry table of the node at an offset."""
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
        """Whether the bytes of these columns are what is read, for who looks at them itself."""
        return self._evolution is None or not self._evolution.changes(names)

    def dictionary(self, name: str, pages: Sequence[int]) -> pa.Array:
        """Values of an attribute's dictionary pages; more pages than asked for do no harm."""
        known = self._dictionaries.get(name)
        if known is not None and known[0] >= len(pages):
            return known[1]
        attribute = self.schema.attribute(name)
        parts = [] if known is None else [known[1]]
        for offset in pages[0 if known is None else known[0] :]:
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
