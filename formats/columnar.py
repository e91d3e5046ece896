"""Reading Parquet and Arrow: batches that have types already.

Purpose
    :class:`ParquetRecords` and :class:`ArrowRecords` give the same chunks as the text readers do,
    so that renaming, casting, checking of times and the handling of bad rows are the same for all
    formats.

Guarantee
    A file or stream that is cut off is an error even where the library would stop quietly: an
    Arrow stream has to end with its end-of-stream marker.  Memory is bounded by some
    pages of each column (Parquet) or one batch (Arrow).

Limits
    A Parquet file or Arrow file from a pipe goes through a temporary file (``sources.py``).  A
    batch of an Arrow file is held as a whole.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
import pyarrow as pa

from ..errors import InvalidData
from .badrows import BadRow
from .chunks import Texts
from .convert import flatten
from .sources import ByteSource

__all__ = ["ArrowRecords", "ParquetRecords"]

_BATCH_ROWS = 1 << 16
_BUFFER_BYTES = 1 << 20
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class BatchChunk:
    """One typed batch; see :class:`~chronicle.formats.chunks.Chunk`."""

    def __init__(self, source: str, batch: pa.RecordBatch, first_row: int) -> None:
        self._source = source
        self._batch = batch
        self.first_row = first_row

    def parse(self, types: Mapping[str, pa.DataType | None] | None) -> dict[str, pa.Array]:
        """Columns as they are."""
        return {
            name: flatten(self._batch.column(at))
            for at, name in enumerate(self._batch.schema.names)
            if types is None or name in types
        }

    def texts(self) -> Texts:
        """Columns as they are: a typed batch has no broken rows."""
        return Texts(self.parse(None), np.arange(self._batch.num_rows))

    def describe(self, record: int) -> BadRow:
        """Row number, and the row as JSON."""
        values = self._batch.slice(record, 1).to_pylist()[0]
        return BadRow(
            self._source, self.first_row + record, "", record=json.dumps(values, default=str)
        )


class _Tail:
    """A binary file that remembers the last bytes read from it."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.tail = b""
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size if size >= 0 else 1 << 30)
        if data:
            self.tail = (self.tail + data[-8:])[-8:]
        return data

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


@contextlib.contextmanager
def _explained(source: str, what: str) -> Iterator[None]:
    """Turn what Arrow says of damaged bytes into an InvalidData."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidData(
            f"{source}: not a complete {what} ({reason[:200]}); it is cut off or damaged, "
            "fetch it again"
        ) from None


class ParquetRecords:
    """The rows of a Parquet file.

    Parameters
    ----------
    source : ByteSource
    """

    typed = True

    def __init__(self, source: ByteSource) -> None:
        import pyarrow.parquet as pq

        self._name = source.name
        if not source.peek(1):
            raise InvalidData(f"{source.name} is empty; expected a Parquet file")
        with _explained(source.name, "Parquet file"):
            # Columns are read in pieces: a row group may be larger than memory should get.
            self._file = pq.ParquetFile(
                source.seekable(), pre_buffer=False, buffer_size=_BUFFER_BYTES
            )
        self._source = source
        self._rows = max(1, self._file.metadata.num_rows)
        self.schema: pa.Schema = self._file.schema_arrow
        self._columns: list[str] | None = None

    def keep(self, columns: list[str]) -> None:
        """Read only these columns."""
        self._columns = columns

    def chunks(self) -> Iterator[BatchChunk]:
        """Batches in file order."""
        row = 1
        with _explained(self._name, "Parquet file"):
            batches = self._file.iter_batches(
                batch_size=_BATCH_ROWS, columns=self._columns, use_threads=True
            )
        while True:
            with _explained(self._name, "Parquet file"):
                batch = next(batches, None)
            if batch is None:
                return
            yield BatchChunk(self._name, batch, row)
            row += batch.num_rows
            self._source.at_share(row / self._rows)


class ArrowRecords:
    """The rows of an Arrow IPC stream or file."""

    typed = True

    def __init__(self, source: ByteSource) -> None:
        self._name = source.name
        self._source = source
        head = source.peek(6)
        if not head:
            raise InvalidData(f"{source.name} is empty; expected an Arrow stream or file")
        self._tail: _Tail | None = None
        self._file: IO[bytes] | None = None
        self._reader: Any
        with _explained(source.name, "Arrow stream or file"):
            if head == b"ARROW1":
                self._file = source.seekable()
                self._reader = pa.ipc.open_file(self._file)
            else:
                self._tail = _Tail(source)
                self._reader = pa.ipc.open_stream(pa.PythonFile(self._tail, "r"))
        self.schema: pa.Schema = self._reader.schema
        self._columns: list[str] | None = None

    def keep(self, columns: list[str]) -> None:
        """Give only these columns."""
        self._columns = columns

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._tail is None:
            count = self._reader.num_record_batches
            for at in range(count):
                yield self._reader.get_batch(at)
                self._source.at_share((at + 1) / count)
            return
        yield from self._reader
        if self._tail.tail != _END_OF_STREAM:
            raise pa.ArrowInvalid("the end-of-stream marker is missing")

    def chunks(self) -> Iterator[BatchChunk]:
        """Batches in order, large ones in slices."""
        row = 1
        batches = self._batches()
        while True:
            with _explained(self._name, "Arrow stream or file"):
                batch = next(batches, None)
                if batch is not None:
                    batch.validate()
            if batch is None:
                return
            if self._columns is not None:
                batch = batch.select(self._columns)
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                part = batch.slice(start, _BATCH_ROWS)
                yield BatchChunk(self._name, part, row)
                row += part.num_rows
