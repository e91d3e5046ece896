"""Reading Parquet and Arrow: typed batches as the chunks that text readers give.

Truncated input is an error: an Arrow stream must have its end marker.  Sizes are checked before
decoding (``arrowframes.py``, ``parquetpages.py``), batches before use (``core/soundness.py``); an
invalid batch is an error of the file.  Memory: some pages per column, or one Arrow batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.ownership import LOADING
from ..core.soundness import require_sound
from ..errors import InvalidData, UnsupportedType
from ..schema import storage_of
from .arrowframes import FramedStream, check_file
from .badrows import BadRow
from .chunks import Texts
from .convert import decoded_bytes, flatten
from .int96 import Int96Columns, names_of_int96
from .jsonout import json_bytes
from .limits import Limits, Meter
from .parquetpages import check_pages
from .sources import ByteSource

__all__ = ["ArrowRecords", "ParquetRecords"]

_BATCH_ROWS = 1 << 16
_ITEM_BYTES = 32
"""Estimated bytes per list item, for sizing batches."""

_BUFFER_BYTES = 1 << 20


class BatchChunk:
    def __init__(self, source: str, batch: pa.RecordBatch, first_row: int, meter: Meter) -> None:
        self._source = source
        self._batch = batch
        self._meter = meter
        self.first_row = first_row

    def parse(self, types: Mapping[str, pa.DataType | None] | None) -> dict[str, pa.Array]:
        columns = {
            name: self._batch.column(at)
            for at, name in enumerate(self._batch.schema.names)
            if types is None or name in types
        }
        for name, column in columns.items():
            self._meter.piece(decoded_bytes(column), f"a dictionary of column {name!r}")
        return {name: flatten(column) for name, column in columns.items()}

    def texts(self) -> Texts:
        return Texts(self.parse(None), np.arange(self._batch.num_rows))

    def describe(self, record: int) -> BadRow:
        row = json_bytes(self._batch.slice(record, 1), last="}").decode()
        return BadRow(self._source, self.first_row + record, "", record=row)


@contextlib.contextmanager
def _explained(source: str, what: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidData(
            f"{source}: not a complete {what} ({reason[:200]}); it is cut off or damaged, "
            "fetch it again"
        ) from None
    except InvalidData as error:
        if str(error).startswith(source):
            raise
        raise InvalidData(f"{source}: {error}; the {what} is damaged") from None


class ParquetRecords:
    typed = True

    def __init__(self, source: ByteSource, limits: Limits) -> None:
        with LOADING:
            import pyarrow.parquet as pq

        self._name = source.name
        self._meter = Meter(limits, source.name)
        if not source.peek(1):
            raise InvalidData(f"{source.name} is empty; expected a Parquet file")
        self._bytes = source.seekable()
        with _explained(source.name, "Parquet file"):
            footer = pq.ParquetFile(self._bytes)
            self._meter.columns(footer.metadata.num_columns)
            self.schema: pa.Schema = footer.schema_arrow
        self._metadata = footer.metadata
        self._source = source
        self._rows = max(1, footer.metadata.num_rows)
        self._columns = list(self.schema.names)

    def keep(self, columns: list[str], nested: Collection[str]) -> None:
        """Read only these columns; ``nested`` may be lists or structs."""
        self._columns = columns
        for name in columns:
            type_ = self.schema.field(name).type
            if pa.types.is_nested(type_) and (name not in nested or storage_of(type_) is None):
                raise UnsupportedType(
                    f"{self._name}: column {name!r} holds {type_}, which a stream cannot store "
                    "in a column of that kind; select the other columns"
                )

    def _open(self) -> tuple[Any, int]:
        """The file with its pages checked, and the rows to read at a time.

        Dictionaries stay encoded, as any number of rows may refer to one long string; delta-encoded
        strings may each be as long as their page.
        """
        with LOADING:
            import pyarrow.parquet as pq

        wanted = set(self._columns)
        metadata = self._metadata
        leaves = [
            at
            for at in range(metadata.num_columns)
            if metadata.schema.column(at).path.split(".", 1)[0] in wanted
            or metadata.schema.column(at).path in wanted
        ]
        self._meter.expect(max(metadata.num_rows * max(1, len(leaves)), _values(metadata, leaves)))
        largest = check_pages(self._bytes, metadata, leaves, self._meter)
        rows, dictionaries = _BATCH_ROWS, set()
        for group in range(metadata.num_row_groups):
            for leaf in leaves:
                column = metadata.row_group(group).column(leaf)
                if column.path_in_schema not in wanted:  # a list: any number of items per row
                    items = column.num_values // max(1, metadata.row_group(group).num_rows)
                    most = self._meter.limits.piece_bytes // (_ITEM_BYTES * (items + 1))
                    rows = min(rows, max(1, most))
                if column.physical_type != "BYTE_ARRAY":
                    continue
                if column.has_dictionary_page and column.path_in_schema in wanted:
                    dictionaries.add(column.path_in_schema)
                elif column.has_dictionary_page:  # Arrow decodes it inside lists and structs
                    rows = min(rows, max(1, self._meter.limits.piece_bytes // max(1, largest)))
                if "DELTA_BYTE_ARRAY" in column.encodings:
                    rows = min(rows, max(1, self._meter.limits.piece_bytes // max(1, largest)))
        # Buffered reads: a row group may exceed the memory bound.
        file = pq.ParquetFile(
            self._bytes,
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            read_dictionary=sorted(dictionaries),
        )
        return file, rows

    def chunks(self) -> Iterator[BatchChunk]:
        row = 1
        with _explained(self._name, "Parquet file"):
            file, rows = self._open()
            batches = file.iter_batches(batch_size=rows, columns=self._columns, use_threads=True)
            times = self._times_of_96_bits(rows)
        while True:
            with _explained(self._name, "Parquet file"):
                batch = next(batches, None)
                if batch is not None and times is not None:
                    batch = times.into(batch)
            if batch is None:
                return
            require_sound(batch, self._name, row - 1)
            yield BatchChunk(self._name, batch, row, self._meter)
            row += batch.num_rows
            self._source.at_share(row / self._rows)

    def _times_of_96_bits(self, rows: int) -> Int96Columns | None:
        with LOADING:
            import pyarrow.parquet as pq

        names = sorted(names_of_int96(self._metadata) & set(self._columns))

        def batches(unit: str) -> Iterator[pa.RecordBatch]:
            file = pq.ParquetFile(
                self._bytes, pre_buffer=False, buffer_size=_BUFFER_BYTES,
                coerce_int96_timestamp_unit=unit,
            )  # fmt: skip
            found: Iterator[pa.RecordBatch] = file.iter_batches(batch_size=rows, columns=names)
            return found

        return Int96Columns(self._name, names, batches) if names else None


def _values(metadata: Any, leaves: list[int]) -> int:
    groups = range(metadata.num_row_groups)
    return sum(metadata.row_group(g).column(leaf).num_values for g in groups for leaf in leaves)


class ArrowRecords:
    typed = True

    def __init__(self, source: ByteSource, limits: Limits) -> None:
        self._name = source.name
        self._source = source
        self._meter = Meter(limits, source.name)
        head = source.peek(6)
        if not head:
            raise InvalidData(f"{source.name} is empty; expected an Arrow stream or file")
        self._stream: FramedStream | None = None
        self._reader: Any
        with _explained(source.name, "Arrow stream or file"):
            if head == b"ARROW1":
                file = source.seekable()
                check_file(file, self._meter)
                self._reader = pa.ipc.open_file(file)
            else:
                self._stream = FramedStream(source, self._meter)
                self._reader = pa.ipc.open_stream(pa.PythonFile(self._stream, "r"))
        self.schema: pa.Schema = self._reader.schema
        self._meter.columns(len(self.schema))
        self._columns: list[str] | None = None

    def keep(self, columns: list[str], nested: Collection[str]) -> None:
        del nested
        self._columns = columns

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._stream is None:
            count = self._reader.num_record_batches
            for at in range(count):
                yield self._reader.get_batch(at)
                self._source.at_share((at + 1) / count)
            return
        yield from self._reader
        if not self._stream.ended:
            raise pa.ArrowInvalid("the end-of-stream marker is missing")

    def chunks(self) -> Iterator[BatchChunk]:
        row = 1
        batches = self._batches()
        while True:
            with _explained(self._name, "Arrow stream or file"):
                batch = next(batches, None)
            if batch is None:
                return
            require_sound(batch, self._name, row - 1)
            if self._columns is not None:
                batch = batch.select(self._columns)
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                part = batch.slice(start, _BATCH_ROWS)
                yield BatchChunk(self._name, part, row, self._meter)
                row += part.num_rows
