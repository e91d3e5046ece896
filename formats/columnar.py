"""Reading Parquet and Arrow: typed batches as the chunks that text readers give.

Truncated input is an error: an Arrow stream must have its end marker.  Nothing is allocated for a
length that an Arrow stream has no bytes for; what is unpacked is bounded by the memory of the
process, so that untrusted files belong into a worker (``isolated.py``).  Batches are checked before
use (``core/soundness.py``); an invalid one is an error of the file.  Memory: some pages per column,
or one Arrow batch.  Encrypted files are refused.

INT96 times (a day and nanoseconds in it) are read without overflow; Arrow wraps around: nanoseconds
outside 1678 to 2261, microseconds beyond five-digit years.  Columns are read in several units and
compared: a batch has microseconds if exact, else nanoseconds, else text (an error inside lists and
structs), whose values that do not fit become bad rows.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.nested_types import is_nested
from ..core.ownership import LOADING
from ..core.soundness import require_sound
from ..errors import InvalidData, ResourceLimit, UnsupportedType
from ..schema import storage_of
from .chunks import BadRow, Columns, slices
from .convert import decoded_bytes, flatten
from .dialect import Limits, Meter
from .sources import ByteSource
from .writers import json_bytes

_READ_BYTES = 8 << 20
_END = bytes(4)
"""The length of the message at the end of a stream."""


class SupportsRead(Protocol):
    def read(self, size: int, /) -> bytes: ...


class StreamFile(io.RawIOBase):
    """An Arrow stream as a file that takes no memory for absent bytes; ``ended``: by its marker."""

    def __init__(self, source: SupportsRead) -> None:
        self._source = source
        self.ended = False

    def read(self, size: int = -1) -> bytes:
        pieces = []
        left = size if size >= 0 else 1 << 62
        while left > 0 and (piece := self._source.read(min(left, _READ_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.ended = data == _END
        return data

    def readable(self) -> bool:
        return True


UNITS = ("ns", "us", "s")
Ticks = npt.NDArray[np.int64]


def names_of_int96(metadata: Any) -> set[str]:
    """Columns of a file with INT96 times, also inside lists and structs."""
    schema = metadata.schema.to_arrow_schema()
    names = [field.name for field in schema for _ in _leaves(field.type)]
    leaves = map(metadata.schema.column, range(metadata.num_columns))
    pairs = zip(names, leaves, strict=True)
    return {name for name, leaf in pairs if leaf.physical_type == "INT96"}


def _leaves(type_: pa.DataType) -> Iterator[pa.DataType]:
    """The parts of a type that are columns of a file; paths are ambiguous where names have dots."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if not pa.types.is_nested(type_) or not type_.num_fields:
        yield type_
        return
    for at in range(type_.num_fields):
        yield from _leaves(type_.field(at).type)


class Int96Columns:
    """Reads columns in step with the file; ``batches`` reads them in a given unit."""

    def __init__(
        self, source: str, names: list[str], batches: Callable[[str], Iterable[pa.RecordBatch]]
    ) -> None:
        self._source = source
        self._names = names
        self._readers = {unit: _InStep(batches(unit)) for unit in UNITS}

    def into(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        read = {unit: reader.take(batch.num_rows) for unit, reader in self._readers.items()}
        for name in self._names:
            at = batch.schema.get_field_index(name)
            exact = self._exact(name, {unit: table.column(name) for unit, table in read.items()})
            batch = batch.set_column(at, pa.field(name, exact.type), exact)
        return batch

    def _exact(self, name: str, read: dict[str, pa.Array]) -> pa.Array:
        fits_us, fits_ns, fine = [], [], []
        for nanos, micros, seconds in _ticks_of([read[unit] for unit in UNITS]):
            fits_us.append(micros // 1_000_000 == seconds)
            fits_ns.append(fits_us[-1] & (nanos // 1000 == micros))
            fine.append(fits_ns[-1] & (nanos % 1000 != 0))
        if all(f.all() for f in fits_us) and not any(f.any() for f in fine):
            return read["us"]
        if all(f.all() for f in fits_ns):
            return read["ns"]
        if is_nested(read["ns"].type):
            raise InvalidData(
                f"{self._source}: column {name!r} holds times (INT96) of which neither "
                "microseconds nor nanoseconds hold all; write it with a unit"
            )
        texts = [read[unit].cast(pa.string()).to_pylist() for unit in UNITS]
        chosen = np.where(fits_ns[0], 0, np.where(fits_us[0], 1, 2)).tolist()
        return pa.array([texts[unit][row] for row, unit in enumerate(chosen)], pa.string())


class _InStep:
    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._held: list[pa.RecordBatch] = []

    def take(self, rows: int) -> pa.RecordBatch:
        while sum(batch.num_rows for batch in self._held) < rows:
            self._held.append(next(self._batches))
        table = pa.Table.from_batches(self._held).combine_chunks()
        whole = table.to_batches()[0] if rows else self._held[0].slice(0, 0)
        self._held = [whole.slice(rows)] if rows else self._held
        return whole.slice(0, rows)


def _ticks_of(read: list[pa.Array]) -> Iterator[list[Ticks]]:
    """Ticks in each unit of INT96 times, the only ones that come in seconds; 0 for nulls."""
    type_ = read[-1].type
    if pa.types.is_timestamp(type_) and type_.unit == UNITS[-1]:
        ticks = (values.cast(pa.int64()).fill_null(0) for values in read)
        yield [np.asarray(values.to_numpy(zero_copy_only=False)) for values in ticks]
    elif pa.types.is_struct(type_):
        for at in range(type_.num_fields):
            yield from _ticks_of([values.field(at) for values in read])
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        yield from _ticks_of([values.values for values in read])


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

    def parts(self) -> Iterator[Columns]:
        columns = dict(zip(self._batch.schema.names, self._batch.columns, strict=True))
        for name, column in columns.items():
            self._meter.piece(decoded_bytes(column), f"a dictionary of column {name!r}")
        flat = {name: flatten(column) for name, column in columns.items()}
        yield Columns(flat, np.arange(self._batch.num_rows))

    def describe(self, record: int) -> BadRow:
        row = json_bytes(self._batch.slice(record, 1), last="}").decode()
        return BadRow(self._source, self.first_row + record, "", record=row)


@contextlib.contextmanager
def _explained(source: str, what: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise ResourceLimit(
            f"{source}: its parts take more memory at once than there is; write it in smaller ones"
        ) from None
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
        self._name = source.name
        self._meter = Meter(limits, source.name)
        if not source.peek(1):
            raise InvalidData(f"{source.name} is empty; expected a Parquet file")
        self._bytes = source.seekable()
        with _explained(source.name, "Parquet file"):
            footer = self._file()
            self._meter.columns(footer.metadata.num_columns)
            self.schema: pa.Schema = footer.schema_arrow
        self._metadata = footer.metadata
        self._source = source
        self._rows = max(1, footer.metadata.num_rows)
        self._columns = list(self.schema.names)

    def _file(self, **options: Any) -> Any:
        with LOADING:
            import pyarrow.parquet as pq

        # Buffered reads: a row group may exceed the memory bound.
        return pq.ParquetFile(self._bytes, pre_buffer=False, buffer_size=_BUFFER_BYTES, **options)

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
        """The file, and the rows to read at a time.

        Dictionaries stay encoded, as any number of rows may refer to one long string.
        """
        wanted = set(self._columns)
        metadata = self._metadata
        leaves = [
            at
            for at in range(metadata.num_columns)
            if metadata.schema.column(at).path.split(".", 1)[0] in wanted
            or metadata.schema.column(at).path in wanted
        ]
        self._meter.expect(max(metadata.num_rows * max(1, len(leaves)), _values(metadata, leaves)))
        rows, dictionaries = _BATCH_ROWS, set()
        for group in range(metadata.num_row_groups):
            for leaf in leaves:
                column = metadata.row_group(group).column(leaf)
                if column.path_in_schema not in wanted:  # a list: any number of items per row
                    items = column.num_values // max(1, metadata.row_group(group).num_rows)
                    most = self._meter.limits.piece_bytes // (_ITEM_BYTES * (items + 1))
                    rows = min(rows, max(1, most))
                elif column.physical_type == "BYTE_ARRAY" and column.has_dictionary_page:
                    dictionaries.add(column.path_in_schema)
        return self._file(read_dictionary=sorted(dictionaries)), rows

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
        names = sorted(names_of_int96(self._metadata) & set(self._columns))

        def batches(unit: str) -> Iterator[pa.RecordBatch]:
            file = self._file(coerce_int96_timestamp_unit=unit)
            read: Iterator[pa.RecordBatch] = file.iter_batches(batch_size=rows, columns=names)
            return read

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
        self._stream: StreamFile | None = None
        self._reader: Any
        with _explained(source.name, "Arrow stream or file"):
            if head == b"ARROW1":
                self._reader = pa.ipc.open_file(source.seekable())
            else:
                self._stream = StreamFile(source)
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
            for part in slices([batch], _BATCH_ROWS):
                yield BatchChunk(self._name, part, row, self._meter)
                row += part.num_rows
