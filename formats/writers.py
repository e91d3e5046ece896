"""Writing query results and events: record batches into chunks of bytes of any format.

Purpose
    :func:`encode` is a generator, so that a server can stream it and a command can write it to a
    pipe; :func:`write` does the latter.

Guarantee
    Every answer is complete in its format: an empty result is ``[]``, a header line, or a stream
    with a schema and no batches.  An error in the middle of the batches leaves the answer visibly
    unfinished (no closing bracket, no end-of-stream marker, no footer).  Memory is bounded by one
    batch and its text.

Limits
    NDJSON and CSV have no end marker: a reader cannot tell a complete answer from one that broke
    off.
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
"""Rows turned into text at a time."""


def encode(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    format: str,
    *,
    codec: str | None = None,
    line_end: str = "\r\n",
) -> Iterator[bytes]:
    """Encode batches as they come.

    Intervals with months are refused before anything is written where a format cannot hold them.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the batches; what an empty answer is made from.
    format : {"json", "ndjson", "csv", "arrow", "arrow file", "parquet"}
        ``arrow`` is the IPC *stream* format, ``arrow file`` what is called ``.arrow``.
    codec : str, optional
        Compression inside Arrow (``lz4``, ``zstd``) and Parquet (default ``zstd``).
    line_end : str
        Of CSV; CR LF is RFC 4180's.

    Yields
    ------
    bytes
        Never empty; for the text formats, whole rows.
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
    """Encode batches into a binary file as they come; see :func:`encode`."""
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
    """A file to write to whose content is taken away piece by piece."""

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
        writer.write_batch(batch)
        chunk = drain.take()
        if chunk:
            yield chunk
    writer.close()
    yield drain.take()
