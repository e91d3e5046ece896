"""Checks of the sizes that Arrow messages declare, before anything is decoded.

A compressed buffer states its decoded size in its first eight bytes, and the library allocates that
much at once.  Nothing is allocated for a length that the source has no bytes for.  Flatbuffer
fields read (format/Message.fbs and File.fbs of Apache Arrow)::

    Message          1 type of header   2 header   3 body length
    RecordBatch      0 rows   1 nodes   2 buffers (offset, length)   3 compression
    DictionaryBatch  0 id     1 RecordBatch
    Footer           2 dictionaries   3 record batches (offset, metadata length, body length)
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import IO

import pyarrow as pa

from .limits import Meter
from .sources import ByteSource

__all__ = ["FramedStream", "check_file"]

_CONTINUATION = 0xFFFFFFFF
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_METADATA_BYTES_MAX = 64 << 20
_READ_BYTES = 8 << 20
_MAGIC = b"ARROW1"


class _Table:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        if self._fields < 0 or at < 0:
            raise struct.error("a table lies outside of the message")

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data)[0])

    def _place(self, field: int) -> int:
        size = struct.unpack_from("<H", self._data, self._fields)[0]
        if 4 + 2 * field >= size:
            return 0
        offset: int = struct.unpack_from("<H", self._data, self._fields + 4 + 2 * field)[0]
        return offset and self._at + offset

    def number(self, field: int, code: str) -> int:
        place = self._place(field)
        return int(struct.unpack_from(code, self._data, place)[0]) if place else 0

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        if not place:
            return None
        return _Table(self._data, place + struct.unpack_from("<I", self._data, place)[0])

    def structs(self, field: int, code: str) -> list[tuple[int, ...]]:
        place = self._place(field)
        if not place:
            return []
        start = place + struct.unpack_from("<I", self._data, place)[0]
        count = struct.unpack_from("<I", self._data, start)[0]
        width = struct.calcsize(code)
        if start + 4 + count * width > len(self._data):
            raise struct.error("a vector lies outside of the message")
        return [struct.unpack_from(code, self._data, start + 4 + i * width) for i in range(count)]


def _check_message(metadata: bytes, body: Callable[[int, int], bytes], meter: Meter) -> None:
    message = _Table.root(metadata)
    kind = message.number(1, "<B")
    batch = message.table(2)
    if kind == _DICTIONARY_BATCH and batch is not None:
        batch = batch.table(1)
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH) or batch is None:
        return
    buffers = batch.structs(2, "<qq")
    size = 0
    compressed = batch.table(3) is not None
    for offset, length in buffers:
        unpacked = length
        if compressed and length >= 8:
            head = body(offset, 8)
            unpacked = struct.unpack("<q", head)[0] if len(head) == 8 else length
            if unpacked == -1:  # stored uncompressed
                unpacked = length - 8
        size += max(unpacked, 0)
    what = "a dictionary" if kind == _DICTIONARY_BATCH else "a record batch"
    meter.piece(size, what)
    if kind == _DICTIONARY_BATCH:
        meter.hold(size)  # dictionaries stay in memory until the stream ends


class FramedStream:
    """An IPC stream as a file, each message checked first; ``ended`` after the end marker."""

    def __init__(self, source: ByteSource, meter: Meter) -> None:
        self._source = source
        self._meter = meter
        self._pieces: list[bytes] = []
        self.ended = False
        self.closed = False

    def _exactly(self, size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := self._source.read(min(size, _READ_BYTES))):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _next_message(self) -> None:
        head = self._exactly(4)
        if len(head) < 4:
            self._pieces = [head] if head else []
            return
        length = struct.unpack("<I", head)[0]
        if length == _CONTINUATION:
            rest = self._exactly(4)
            head += rest
            length = struct.unpack("<I", rest)[0] if len(rest) == 4 else 0
            if len(rest) < 4:
                self._pieces = [head]
                return
        if length == 0:
            self.ended = True
            self._pieces = [head]
            return
        if length > _METADATA_BYTES_MAX:
            raise pa.ArrowInvalid(f"the metadata of a message is said to have {length} bytes")
        metadata = self._exactly(length)
        body = b""
        if len(metadata) == length:
            try:
                size = _Table.root(metadata).number(3, "<q")
                if size > 0:
                    body = self._exactly(size)
                _check_message(metadata, lambda at, count: body[at : at + count], self._meter)
            except struct.error as error:
                raise pa.ArrowInvalid(f"a message has unreadable metadata: {error}") from None
        self._pieces = [piece for piece in (head, metadata, body) if piece]

    def read(self, size: int = -1) -> bytes:
        taken: list[bytes] = []
        left = size if size >= 0 else 1 << 62
        while left:
            if not self._pieces:
                if self.ended:
                    break
                self._next_message()
                if not self._pieces:
                    break
            piece = self._pieces.pop(0)
            if len(piece) > left:
                self._pieces.insert(0, piece[left:])
                piece = piece[:left]
            taken.append(piece)
            left -= len(piece)
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def check_file(file: IO[bytes], meter: Meter) -> None:
    """Check the sizes of all blocks of an IPC file; raises ResourceLimit or ArrowInvalid."""
    end = file.seek(0, 2)
    try:
        file.seek(max(0, end - 10))
        tail = file.read(10)
        size, magic = struct.unpack("<i6s", tail)
        if magic != _MAGIC or not 0 < size <= end - 10:
            raise pa.ArrowInvalid("the footer is missing")
        file.seek(end - 10 - size)
        footer = _Table.root(file.read(size))
        for field in (2, 3):
            for offset, length, _ in footer.structs(field, "<qi4xq"):
                if not 0 <= offset <= offset + length <= end:
                    raise pa.ArrowInvalid("a block lies outside of the file")
                file.seek(offset)
                message = file.read(length)
                start = 8 if message[:4] == b"\xff\xff\xff\xff" else 4
                body = offset + length

                def at(place: int, count: int, body: int = body) -> bytes:
                    if not 0 <= body + place <= end:
                        return b""
                    file.seek(body + place)
                    return file.read(count)

                _check_message(message[start:], at, meter)
    except (struct.error, ValueError) as error:
        raise pa.ArrowInvalid(f"the footer cannot be read: {error}") from None
    finally:
        file.seek(0)
