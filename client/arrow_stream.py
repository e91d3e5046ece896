"""An incremental decoder of Arrow IPC streams, for blocking and asynchronous readers.

Arrow's own reader pulls from a file and takes end of file for end of stream.  ``ArrowDecoder``
is fed bytes, says how many it needs next, and yields batches.  A stream is::

    ffffffff | length of metadata, int32 | metadata, a flatbuffer | body
    ffffffff | 00000000                                            the end marker

Only the message's kind and body length are read here, by the offsets of the flatbuffer's table:
``header_type`` is its second field, ``bodyLength`` the fourth.  ``ended`` is True after the end
marker only.  Bodies are not copied.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping

import pyarrow as pa

__all__ = ["ArrowDecoder", "Told"]

Told = tuple[pa.RecordBatch, Mapping[bytes, bytes]]
"""A batch and the metadata of its message."""

_PREFIX_BYTES = 8
_CONTINUED = 0xFFFFFFFF
_RECORD_BATCH = 3
_METADATA_BYTES_MAX = 1 << 28


class ArrowDecoder:
    """One stream; ``feed`` takes exactly ``needed`` bytes; ``schema`` is None until its message
    came.
    """

    def __init__(self) -> None:
        self.needed = _PREFIX_BYTES
        self.schema: pa.Schema | None = None
        self.ended = False
        self._inbox = _Inbox()
        self._reader: pa.RecordBatchReader | None = None
        self._body_bytes: int | None = None
        self._kind = 0
        self._in_metadata = False

    def feed(self, data: bytes) -> Told | None:
        """Take the next bytes; returns a batch when complete.  Raises ``pyarrow.ArrowInvalid``."""
        self._inbox.put(data)
        if self._body_bytes is not None:
            return self._message()
        if not self._in_metadata:
            mark, length = struct.unpack("<Ii", data)
            if mark != _CONTINUED or not 0 <= length <= _METADATA_BYTES_MAX:
                raise pa.ArrowInvalid("not an Arrow stream")
            self.ended, self._in_metadata, self.needed = not length, bool(length), length
            return None
        self._kind, self._body_bytes = _kind_and_body(data)
        self.needed = self._body_bytes
        return None if self.needed else self._message()

    def _message(self) -> Told | None:
        self.needed, self._body_bytes, self._in_metadata = _PREFIX_BYTES, None, False
        if self._reader is None:
            self._reader = pa.ipc.open_stream(self._inbox)
            self.schema = self._reader.schema
            return None
        if self._kind != _RECORD_BATCH:  # a dictionary is read with the batch that needs it
            return None
        batch, marks = self._reader.read_next_batch_with_custom_metadata()
        return batch, dict(marks or {})


def _kind_and_body(metadata: bytes) -> tuple[int, int]:
    """Kind and body length of a message, from its flatbuffer."""
    try:
        (table,) = struct.unpack_from("<I", metadata, 0)
        (back,) = struct.unpack_from("<i", metadata, table)
        offsets = struct.unpack_from("<6H", metadata, table - back)
        kind = struct.unpack_from("<B", metadata, table + offsets[3])[0] if offsets[3] else 0
        reaches = offsets[0] >= 12 and offsets[5]
        body = struct.unpack_from("<q", metadata, table + offsets[5])[0] if reaches else 0
    except struct.error as error:
        raise pa.ArrowInvalid(f"not an Arrow message: {error}") from None
    if body < 0:
        raise pa.ArrowInvalid("not an Arrow message: a body of a negative length")
    return kind, body


class _Inbox:
    closed = False

    def __init__(self) -> None:
        self._pieces: deque[bytes | memoryview] = deque()

    def put(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)

    def read(self, size: int = -1) -> bytes | memoryview:
        """At most ``size`` bytes; Arrow asks for whole parts of messages."""
        if not self._pieces or size == 0:
            return b""
        piece = self._pieces.popleft()
        if size < 0 or len(piece) <= size:
            rest = size - len(piece)
            if size < 0 or not rest or not self._pieces:
                return piece
            return bytes(piece) + bytes(self.read(rest))
        view = memoryview(piece)
        self._pieces.appendleft(view[size:])
        return view[:size]
