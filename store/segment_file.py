"""Segment files for readers: a mapping, and the blocks of it that are known to be sound.

Purpose
    :class:`SegmentFile` maps a file, finds blocks in it and remembers those it has verified.

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
    Remembered blocks are bounded (:data:`BLOCKS_REMEMBERED` per segment, oldest out first).
    Arrays that were handed out point into the mapping: a file that is cut in the moment between
    the look at its length and the use of a block, or under a result that is kept, still kills.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..errors import CorruptBlock, UnsupportedFormat
from ..ownership import OwnedLock
from ..schema import StreamSchema
from .dictionary import read_page
from .file_contract import Files, ReadFile
from .layout import FILE_HEADER, FORMAT_VERSION, SEGMENT_MAGIC
from .leaf import LeafReader
from .node import read_node

__all__ = ["SegmentFile"]

Table = npt.NDArray[np.int64]
BLOCKS_REMEMBERED = 4096


class SegmentFile:
    """A mapped segment file and the blocks of it that are known to be sound.

    Parameters
    ----------
    schema : StreamSchema
        Of the segment.
    verify : bool
        Whether the header of the file must be sound; a repair looks at the blocks all the same.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        segment_id: int,
        schema: StreamSchema,
        *,
        verify: bool = True,
    ) -> None:
        self._verify = verify
        self.path = path
        self.segment_id = segment_id
        self.schema = schema
        self._files = files
        self._file: ReadFile | None = None
        self._data = memoryview(b"")
        self._blocks: dict[int, LeafReader | Table] = {}
        self._dictionaries: dict[str, tuple[int, pa.Array]] = {}
        self._lock = OwnedLock(path)

    def data(self, length: int) -> memoryview:
        """The mapping, at least ``length`` committed bytes of it.

        What lies behind them may be cut off and written anew by the writer: it is not looked at.
        A mapping whose file was cut is refused (the system kills who touches it), or a parent's.
        """
        self._lock.check()
        # the mapping before the size: another thread may add to both
        file, known = self._file, len(self._data)
        if file is not None and (size := file.size) < known:
            raise CorruptBlock(
                f"expected {known} committed bytes, found {size}: the file was cut while "
                "it was open",
                self.path,
                size,
            )
        if len(self._data) < length:
            with self._lock:
                if self._file is None:
                    self._file = self._files.open(self.path)
                    if self._verify:
                        self._check_header()
                if len(self._data) < length:
                    mapped = self._file.map()
                    if len(mapped) < length:
                        raise CorruptBlock(
                            f"expected {length} committed bytes, found {len(mapped)}",
                            self.path,
                            len(mapped),
                        )
                    self._data = mapped[:length]
        return self._data

    def _check_header(self) -> None:
        assert self._file is not None
        header = bytes(self._file.read(0, FILE_HEADER.size))
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

    def leaf(self, offset: int, length: int) -> LeafReader:
        """The leaf at an offset."""
        data = self.data(offset + length)
        block = self._blocks.get(offset)
        if isinstance(block, LeafReader):
            return block
        leaf = LeafReader(data, offset, self.segment_id, self.schema, self.path)
        self._remember(offset, leaf)
        return leaf

    def node(self, offset: int, length: int) -> Table:
        """The entry table of the node at an offset."""
        data = self.data(offset + length)
        block = self._blocks.get(offset)
        if isinstance(block, np.ndarray):
            return block
        table = read_node(data, offset, self.segment_id, self.schema, self.path)
        self._remember(offset, table)
        return table

    def dictionary(self, name: str, pages: Sequence[int]) -> pa.Array:
        """Values of an attribute's dictionary pages; more pages than asked for do no harm."""
        known = self._dictionaries.get(name)
        if known is not None and known[0] >= len(pages):
            return known[1]
        attribute = self.schema.attribute(name)
        parts = [] if known is None else [known[1]]
        for offset in pages[0 if known is None else known[0] :]:
            data = self.data(offset + 64)
            first, values = read_page(data, offset, self.segment_id, attribute, self.path)
            if first != sum(len(part) for part in parts):
                raise CorruptBlock(f"a dictionary page of {name!r} is missing", self.path, offset)
            parts.append(values)
        values = pa.concat_arrays(parts) if parts else pa.array([], attribute.type)
        self._dictionaries[name] = (len(pages), values)
        return values

    def close(self) -> None:
        """Close the file; arrays that point into its mapping stay valid."""
        with self._lock:
            self._blocks.clear()
            self._data = memoryview(b"")
            if self._file is not None:
                self._file.close()
                self._file = None
