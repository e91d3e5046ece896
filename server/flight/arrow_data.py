"""Record batches to FlightData and back: IPC messages with another framing. ::

    IPC stream   ff ff ff ff | length | metadata, padded | body, padded  | ...
    FlightData                          data_header        data_body

A sent message has at most ``MESSAGE_BYTES`` (drivers refuse large ones), unless one row is larger.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ..http.body_pipe import BodyPipe
from .messages import made

__all__ = ["END_OF_STREAM", "as_stream", "framed", "schema_bytes", "write_rows", "written"]

MESSAGE_BYTES = 1 << 20
END_OF_STREAM = struct.pack("<Ii", 0xFFFFFFFF, 0)


class _Gathered:
    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        """Does nothing."""

    def taken(self) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, []
        source = pa.BufferReader(b"".join(pieces))
        for message in pa.ipc.MessageReader.open_stream(source):
            body = b"" if message.body is None else message.body.to_pybytes()
            data = made("FlightData", data_header=message.metadata.to_pybytes(), data_body=body)
            yield data.SerializeToString()


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows < 2 or batch.nbytes <= MESSAGE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))


def written(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    out = _Gathered()
    writer = pa.ipc.new_stream(out, schema)
    yield from out.taken()
    for batch in batches:
        for piece in _cut(batch):
            writer.write_batch(piece)
            yield from out.taken()


def write_rows(schema: pa.Schema, batches: Iterator[pa.RecordBatch], pipe: BodyPipe) -> None:
    """Write the messages of rows to a pipe, one block each; blocks while the client is slow."""
    for message in written(schema, batches):
        pipe.write(message)
        pipe.flush()


def framed(data: Any) -> bytes:
    header: bytes = data.data_header
    padding = -len(header) % 8
    return struct.pack("<Ii", 0xFFFFFFFF, len(header) + padding) + header + bytes(padding)


def as_stream(data: Any) -> bytes:
    """A message and its body, framed for an IPC stream; empty for one without a header."""
    if not data.data_header:
        return b""
    body = data.data_body
    return b"".join((framed(data), body, bytes(-len(body) % 8)))


def schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize().to_pybytes())
