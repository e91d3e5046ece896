"""Reading Parquet and Arrow: typed batches as the chunks that text readers give.

Truncated input is an error: an Arrow stream must have its end marker.  Sizes are checked before
decoding, batches before use (``core/soundness.py``); an invalid batch is an error of the file.
Memory: some pages per column, or one Arrow batch.

Arrow: a compressed buffer states its decoded size in its first eight bytes, and the library
allocates that much at once.  Nothing is allocated for a length that the source has no bytes for.
Flatbuffer fields read (format/Message.fbs and File.fbs of Apache Arrow)::

    Message          1 type of header   2 header   3 body length
    RecordBatch      0 rows   1 nodes   2 buffers (offset, length)   3 compression
    DictionaryBatch  0 id     1 RecordBatch
    Footer           2 dictionaries   3 record batches (offset, metadata length, body length)

Parquet: a page header is a Thrift struct in the compact protocol (parquet.thrift): 1 type, 2
uncompressed size, 3 compressed size; 5, 7, 8 header of the kind of page.  A field begins with a
byte: four bits of distance to the previous field id, four bits of type.  Encrypted files are
refused.

INT96 times (a day and nanoseconds in it) are read without overflow; Arrow wraps around: nanoseconds
outside 1678 to 2261, microseconds beyond five-digit years.  Columns are read in several units and
compared: a batch has microseconds if exact, else nanoseconds, else text (an error inside lists and
structs), whose values that do not fit become bad rows.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.nested_types import is_nested
from ..core.ownership import LOADING
from ..core.soundness import require_sound
from ..errors import InvalidData, UnsupportedType
from ..schema import storage_of
from .chunks import BadRow, Texts
from .convert import decoded_bytes, flatten
from .limits import Limits, Meter
from .sources import ByteSource
from .writers import json_bytes

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


_HEADER_BYTES = 1 << 12
_HEADER_BYTES_MAX = 16 << 20
_NESTING_MAX = 16
_BOOLEANS, _BYTE, _VARINTS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (
    (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12,
)  # fmt: skip


class _Incomplete(Exception):
    """The header continues beyond the given bytes."""


class _Compact:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def byte(self) -> int:
        if self.at >= len(self._data):
            raise _Incomplete
        self.at += 1
        return self._data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number does not end")

    def skip_bytes(self, count: int) -> None:
        if self.at + count > len(self._data):
            raise _Incomplete
        self.at += count

    def skip(self, kind: int, depth: int = 0, *, element: bool = False) -> None:
        if depth > _NESTING_MAX:
            raise ValueError("the header is nested too deeply")
        if kind in _BOOLEANS:
            self.skip_bytes(1 if element else 0)
        elif kind == _BYTE:
            self.skip_bytes(1)
        elif kind in _VARINTS:
            self.varint()
        elif kind == _DOUBLE:
            self.skip_bytes(8)
        elif kind == _BINARY:
            self.skip_bytes(self.varint())
        elif kind in _LISTS:
            head = self.byte()
            for _ in range(head >> 4 if head >> 4 < 15 else self.varint()):
                self.skip(head & 15, depth + 1, element=True)
        elif kind == _MAP:
            count = self.varint()
            kinds = self.byte() if count else 0
            for _ in range(count):
                self.skip(kinds >> 4, depth + 1, element=True)
                self.skip(kinds & 15, depth + 1, element=True)
        elif kind == _STRUCT:
            while head := self.byte():
                if not head >> 4:
                    self.varint()
                self.skip(head & 15, depth + 1)
        else:
            raise ValueError(f"a field has the unknown type {kind}")

    def page(self) -> tuple[int, int]:
        sizes = {2: -1, 3: -1}
        field = 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else (self.varint() >> 1)
            if field in sizes and head & 15 == 5:
                number = self.varint()
                sizes[field] = (number >> 1) ^ -(number & 1)
            else:
                self.skip(head & 15)
        return sizes[2], sizes[3]


def check_pages(file: IO[bytes], metadata: Any, leaves: Iterable[int], meter: Meter) -> int:
    """Walk the pages of some leaf columns; returns the largest uncompressed size.

    Raises InvalidData for unreadable headers, ResourceLimit; ``file`` is rewound.
    """
    largest = 0
    size = file.seek(0, 2)
    for group in range(metadata.num_row_groups):
        for leaf in leaves:
            column = metadata.row_group(group).column(leaf)
            if not metadata.row_group(group).num_rows:
                continue  # offsets are undefined in an empty group
            starts = [column.data_page_offset]
            if column.has_dictionary_page and (column.dictionary_page_offset or 0) > 0:
                starts.append(column.dictionary_page_offset)
            at = min(starts)
            end = at + column.total_compressed_size
            if not 0 < at <= end <= size:
                raise InvalidData(f"column {column.path_in_schema!r} lies outside of the file")
            while at < end:
                header, unpacked, packed = _header(file, at, end)
                if unpacked < 0 or packed < 0:
                    raise InvalidData(f"a page of column {column.path_in_schema!r} has no size")
                meter.piece(unpacked, f"a page of column {column.path_in_schema!r}")
                largest = max(largest, unpacked)
                at += header + packed
    file.seek(0)
    return largest


def _header(file: IO[bytes], at: int, end: int) -> tuple[int, int, int]:
    size = _HEADER_BYTES
    while True:
        file.seek(at)
        cursor = _Compact(file.read(min(size, end - at)))
        try:
            unpacked, packed = cursor.page()
        except _Incomplete:
            if size >= min(end - at, _HEADER_BYTES_MAX):
                raise InvalidData(f"the page header at byte {at} is cut off") from None
            size *= 8
        except ValueError as error:
            raise InvalidData(f"the page header at byte {at} cannot be read: {error}") from None
        else:
            return cursor.at, unpacked, packed


UNITS = ("ns", "us", "s")
Ticks = npt.NDArray[np.int64]


def names_of_int96(metadata: Any) -> set[str]:
    """Columns of a file with INT96 times, also inside lists and structs."""
    leaves = (metadata.schema.column(at) for at in range(metadata.num_columns))
    return {leaf.path.split(".", 1)[0] for leaf in leaves if leaf.physical_type == "INT96"}


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
