"""Writing record batches as chunks of bytes in any format.

An empty result is complete: ``[]``, a header line, a schema.  After an error the output is visibly
unfinished, except for NDJSON and CSV, which have no end marker.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import IO, Any

import pyarrow as pa

from ..core.ownership import LOADING
from ..errors import InvalidArgument
from .jsonout import csv_bytes, csv_header, json_bytes
from .kinds import WRITE_FORMATS

__all__ = ["encode", "write"]

_ROWS = 1 << 16


def encode(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    format: str,
    *,
    codec: str | None = None,
    line_end: str = "\r\n",
) -> Iterator[bytes]:
    """Encode batches as they come, in whole rows for text formats; ``codec`` compresses inside.

    ``arrow`` is the IPC stream, "arrow file" the file.  Intervals with months are refused at once
    if the format cannot store them.
    """
    if format == "json":
        return _json(batches)
    if format == "ndjson":
        return _ndjson(batches)
    if format == "csv":
        return _csv(batches, schema, line_end)
    if format in ("arrow", "arrow file"):
        return _arrow(batches, schema, codec, as_file=format != "arrow")
    if format == "parquet":
        for field in schema:
            if pa.types.is_interval(field.type):
                raise InvalidArgument(
                    f"column {field.name!r} holds intervals with months, which have no length in "
                    f"microseconds and no type in Parquet; CAST({field.name} AS VARCHAR) writes "
                    "them as text"
                )
        return _parquet(batches, schema, codec or "zstd")
    raise InvalidArgument(f"unknown format {format!r}; known are {', '.join(WRITE_FORMATS)}")


def write(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    format: str,
    out: IO[bytes],
    *,
    line_end: str = "\r\n",
) -> None:
    for chunk in encode(batches, schema, format, line_end=line_end):
        out.write(chunk)


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            yield batch.slice(start, _ROWS)


def _json(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    first = True
    for batch in _slices(batches):
        text = json_bytes(batch, last="},\n")[:-2]
        yield (b"[" if first else b",\n") + text
        first = False
    yield b"[]\n" if first else b"]\n"


def _ndjson(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in _slices(batches):
        yield json_bytes(batch)


def _csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, line_end: str) -> Iterator[bytes]:
    yield csv_header(schema, line_end)
    for batch in _slices(batches):
        text = csv_bytes(batch, line_end)
        if text:
            yield text


class _Drain(io.RawIOBase):
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._written += len(data)
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def _arrow(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, codec: str | None, *, as_file: bool
) -> Iterator[bytes]:
    drain = _Drain()
    sink = pa.PythonFile(drain, "w")
    options = pa.ipc.IpcWriteOptions(compression=codec)
    make = pa.ipc.new_file if as_file else pa.ipc.new_stream
    writer = make(sink, schema, options=options)
    for batch in batches:
        writer.write_batch(batch)
        sink.flush()
        chunk = drain.take()
        if chunk:
            yield chunk
    writer.close()
    sink.flush()
    yield drain.take()


def _parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, codec: str) -> Iterator[bytes]:
    with LOADING:
        import pyarrow.parquet as pq

    drain = _Drain()
    sink = pa.PythonFile(drain, "w")
    writer = pq.ParquetWriter(sink, schema, compression=codec)
    for batch in batches:
        try:
            writer.write_batch(batch)
        except pa.ArrowInvalid as error:
            raise InvalidArgument(
                f"Parquet counts milliseconds, which a time does not fit ({error}); take another "
                "format"
            ) from None
        chunk = drain.take()
        if chunk:
            yield chunk
    writer.close()
    yield drain.take()
