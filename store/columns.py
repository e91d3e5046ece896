r"""Column chunks: the encoded values of one attribute in one leaf (PAX).

Guarantee: values are preserved bit for bit, except those under a null, and NaN payloads.  Plain
fixed-width values decode without a copy: the Arrow array points into the mapped file.

Layout: ``[validity bitmap, padded to 64][values]``; the bitmap exists only with nulls.  Values are,
by ``layout.Encoding``: plain fixed width; bit-packed integers (``packing``); numbers as scaled
integers (``scaled``; floats only with a codec: without one they are read in place); packed offsets
and bytes; packed dictionary codes; or for lists and structs an Arrow IPC message with their
validity.  With a codec, plain values are cut into pages of 4096 events, ``[page starts: uint64 x
(pages + 1)][page]...``; the bytes of texts, or a message, are one page.  A codec is used only where
it saves a tenth, estimated from the first page.

Limits: offsets are 32 bits wide: a leaf holds less than 2 GiB of string bytes; ``segment_writer``
cuts leaves by bytes.

Sections of a column chunk: which bytes hold some rows, to verify and read only these::

    chunk     | validity | starts of pages or zones | values ............................ |
              \_____________ prefix _______________/      rows 900 .. 1000
    sections  |--------------|--------------|--------------|--------------|-------------|
                     x              x                             x

``value_spans`` is exact: decoding the rows reads no other byte behind the prefix.  ``about`` is an
estimate, for requests before the prefix is present.  Strings of different lengths are read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ..core.json_text import json_column
from ..core.native import kernel
from ..core.nested_types import value_bytes
from ..errors import CorruptBlock
from ..schema import Attribute, Storage
from .aggregates import aggregate_floats, aggregate_integers, aggregate_prefixes
from .layout import PAGE_EVENTS, ZONE_EVENTS, Codec, Encoding, align
from .packing import Packing, fill_nulls, pooled, unpack, word_at
from .scaled import (
    FLOAT32,
    FLOAT64,
    INTEGERS,
    decode_scaled,
    packed_starts,
    scaled_floats,
    scaled_integers,
    tabulated,
)

NO_VALIDITY = np.empty(0, np.uint8)
NO_PREFIXES = np.empty(0, np.uint64)
VARIABLE = frozenset((Storage.STRING, Storage.BINARY, Storage.JSON))

SIZED = VARIABLE | {Storage.NESTED}
"""Storage with values of different lengths."""

NO_FLIP, TURNED = np.int64(0), np.int64(-(2**63))
_LOW_1, _LOW_2 = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
MESSAGE_COLUMN = "values"
WORTHWHILE = 0.9
"""A codec must bring a chunk below this share of its plain size."""

_CODECS = {Codec.LZ4: pa.Codec("lz4_raw"), Codec.ZSTD: pa.Codec("zstd")}
_SIGNED_BY_WIDTH: dict[int, type[np.signedinteger[Any]]] = {
    1: np.int8,
    2: np.int16,
    4: np.int32,
    8: np.int64,
}


def codec_of(name: str) -> Codec:
    return {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}[name]


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """Position and encoding of a chunk; ``section`` is log2 of the bytes per checksum, or 0."""

    encoding: Encoding
    codec: Codec
    nulls: int
    offset: int
    length: int
    checksum: int
    pages: int
    """Compressed pages; SCALED: words before the packed ones."""
    page_events: int
    section: int = 0


@dataclass(slots=True)
class EncodedChunk:
    encoding: Encoding
    codec: Codec
    nulls: int
    parts: list[Any]
    length: int
    checksum: int
    pages: int


@kernel
def _copy_bits(source, bit_start, count, out):  # type: ignore[no-untyped-def]
    """Copy ``count`` bits from any bit position to the start of ``out``."""
    shift = bit_start & 7
    byte = bit_start >> 3
    for i in range(out.size):
        low = np.uint64(source[byte + i]) >> np.uint64(shift)
        if shift and byte + i + 1 < source.size:
            low |= np.uint64(source[byte + i + 1]) << np.uint64(8 - shift)
        out[i] = np.uint8(low & np.uint64(0xFF))
    spare = out.size * 8 - count
    if spare:
        out[out.size - 1] &= np.uint8(0xFF >> spare)


@kernel
def _prefixes(offsets, data, out):  # type: ignore[no-untyped-def]
    """First eight bytes of each value as a big-endian number, zero-padded."""
    for i in range(out.size):
        start, size = offsets[i], offsets[i + 1] - offsets[i]
        if size <= 0:
            out[i] = 0
        elif start + 8 <= data.size:
            word = word_at(data, np.uint64(start))
            word = ((word & _LOW_1) << np.uint64(8)) | ((word >> np.uint64(8)) & _LOW_1)
            word = ((word & _LOW_2) << np.uint64(16)) | ((word >> np.uint64(16)) & _LOW_2)
            word = (word << np.uint64(32)) | (word >> np.uint64(32))
            if size < 8:
                word &= ~(~np.uint64(0) >> np.uint64(8 * size))
            out[i] = word
        else:
            word = np.uint64(0)
            for at in range(start, min(start + size, start + 8)):
                word = (word << np.uint64(8)) | np.uint64(data[at])
            out[i] = word << np.uint64(8 * (8 - min(size, 8)))


def _bits(source: npt.NDArray[np.uint8], bit_start: int, count: int) -> npt.NDArray[np.uint8]:
    out = np.empty((count + 7) // 8, np.uint8)
    if count:
        _copy_bits(source, bit_start, count, out)
    return out


def _buffer(buffer: pa.Buffer | None, dtype: Any) -> npt.NDArray[Any]:
    if buffer is None or buffer.size == 0:
        return np.empty(0, dtype)
    dtype = np.dtype(dtype)
    return np.frombuffer(buffer, dtype, buffer.size // dtype.itemsize)


class ColumnView:
    """A column of a batch, prepared for slicing into leaves; ``codes`` are dictionary codes, which
    have ``prefixes``, as ``prefix_words``.
    """

    def __init__(
        self,
        attribute: Attribute,
        array: pa.Array,
        codes: npt.NDArray[np.int64] | None = None,
        prefixes: npt.NDArray[np.uint64] = NO_PREFIXES,
    ) -> None:
        self.attribute = attribute
        self._array = array
        self._codes = codes
        self._prefixes = prefixes
        self.nulls = array.null_count
        storage = attribute.storage
        values = array.storage if isinstance(array, pa.ExtensionArray) else array
        if pa.types.is_dictionary(array.type):
            if codes is None:
                values = array.dictionary_decode()
                self._array = values
            else:
                values = array.indices
        buffers = values.buffers()
        self._offset = values.offset
        self.validity = _buffer(buffers[0], np.uint8) if self.nulls else NO_VALIDITY
        self.values: npt.NDArray[Any]
        self.data = NO_VALIDITY
        """Bytes of variable-width values; ``values`` are their offsets."""
        self._wide: npt.NDArray[np.float64] | None = None
        if storage is Storage.NESTED:
            self.values = NO_VALIDITY
        elif storage is Storage.BOOL:
            self.values = _buffer(buffers[1], np.uint8)
        elif storage is Storage.DECIMAL:
            raw = _buffer(buffers[1], np.uint8)
            self.values = raw[16 * self._offset : 16 * (self._offset + len(array))]
        elif storage in VARIABLE:
            if codes is None:
                wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(
                    values.type
                )
                offsets = _buffer(buffers[1], np.int64 if wide else np.int32)
                if not offsets.size:
                    offsets = np.zeros(1, np.int32)
                self.values = offsets[self._offset : self._offset + len(array) + 1]
                self.data = _buffer(buffers[2], np.uint8)
            else:
                self.values = self._codes  # type: ignore[assignment]
        else:
            self.values = _buffer(buffers[1], number_type(attribute.type))[
                self._offset : self._offset + len(array)
            ]

    def row_bytes(self) -> npt.NDArray[np.int64] | None:
        """Bytes of each variable-width value; None for fixed width."""
        if self.attribute.storage in VARIABLE and self._codes is None:
            return np.diff(self.values).astype(np.int64)
        if self.attribute.storage is Storage.NESTED:
            return value_bytes(self._array)
        return None

    def aggregate(
        self, starts: npt.NDArray[np.int64], table: npt.NDArray[np.int64], row: int
    ) -> None:
        """Aggregate the ranges between ``starts`` into rows ``row`` to ``row + 5`` of a table."""
        storage = self.attribute.storage
        validity, offset = self.validity, self._offset
        if storage is Storage.SIGNED:
            aggregate_integers(self.values, NO_FLIP, validity, offset, starts, table, row)
        elif storage is Storage.FLOAT:
            aggregate_floats(self._doubles(), validity, offset, starts, table, row)
        elif storage is Storage.UNSIGNED:
            words, flip = _signed(self.values)
            aggregate_integers(words, flip, validity, offset, starts, table, row)
        elif storage is Storage.BOOL:
            first, end = offset + int(starts[0]), offset + int(starts[-1])
            part = self.values[first >> 3 : (end + 7) >> 3]
            bits = np.unpackbits(part, bitorder="little")[first & 7 :]
            aggregate_integers(bits, NO_FLIP, validity, first, starts - starts[0], table, row)
        elif not self.attribute.comparable or storage is Storage.DECIMAL:
            for zone in range(len(starts) - 1):
                first, end = int(starts[zone]), int(starts[zone + 1])
                table[row, zone] = end - first - self._array.slice(first, end - first).null_count
            table[row + 1 : row + 5] = 0
        else:
            if self._codes is not None:
                prefixes = self._prefixes
                aggregate_prefixes(prefixes, self._codes, validity, offset, starts, table, row)
                return
            words, flip = _signed(prefix_words(self._array))
            aggregate_integers(words, flip, validity, offset, starts, table, row)
            table[row + 3 : row + 5] = 0  # strings have no sum

    def _doubles(self) -> npt.NDArray[np.float64]:
        if self.values.dtype == np.float64:
            return self.values
        if self._wide is None:
            self._wide = self.values.astype(np.float64)
        return self._wide

    def encode(self, first: int, end: int, codec: Codec) -> EncodedChunk:
        count = end - first
        nulls = self._array.slice(first, count).null_count if self.nulls else 0
        parts: list[Any] = []
        if nulls and self.attribute.storage is not Storage.NESTED:
            bitmap = _bits(self.validity, self._offset + first, count)
            parts.append(bitmap)
            parts.append(bytes(align(bitmap.size) - bitmap.size))
        encoding, used, values, pages = self._encode_values(first, end, nulls, codec)
        parts.extend(values)
        digest = xxhash.xxh3_64()
        length = 0
        for part in parts:
            digest.update(part)
            length += part.nbytes if isinstance(part, np.ndarray) else len(part)
        return EncodedChunk(encoding, used, nulls, parts, length, digest.intdigest(), pages)

    def _encode_values(
        self, first: int, end: int, nulls: int, codec: Codec
    ) -> tuple[Encoding, Codec, list[Any], int]:
        storage = self.attribute.storage
        if storage is Storage.NESTED:
            return self._encode_message(first, end, codec)
        if storage is Storage.BOOL:
            return (
                Encoding.PLAIN,
                Codec.NONE,
                [_bits(self.values, self._offset + first, end - first)],
                1,
            )
        if storage in VARIABLE:
            if self._codes is not None:
                codes = np.ascontiguousarray(self._codes[first:end])
                return (
                    Encoding.DICTIONARY,
                    Codec.NONE,
                    [Packing(codes, Encoding.PACKED).packed()],
                    1,
                )
            return self._encode_variable(first, end, codec)
        if storage is Storage.DECIMAL:
            values = self.values[16 * first : 16 * end].view("V16")
        else:
            values = self.values[first:end]
        if nulls and storage is not Storage.DECIMAL:
            filled = np.empty_like(values)
            fill_nulls(values, self.validity, self._offset + first, filled)
            values = filled
        if storage in (Storage.SIGNED, Storage.UNSIGNED):
            integers = _encode_integers(values)
            if integers is not None:
                return integers
        scaled = None
        if storage is Storage.FLOAT and codec is not Codec.NONE:
            scaled = scaled_floats(values)
            others = scaled.nbytes if scaled is not None else values.nbytes
            kind = FLOAT32 if values.itemsize == 4 else FLOAT64
            bits = values.view(f"i{values.itemsize}").astype(np.int64, copy=False)
            scaled = tabulated(bits, kind, others) or scaled
        share = min(WORTHWHILE, scaled.nbytes / values.nbytes) if scaled else WORTHWHILE
        if codec is not Codec.NONE:
            pages = _compress_pages(values, codec, share)
            if pages is not None:
                return Encoding.PLAIN, codec, pages, len(pages) - 1
        if scaled is not None and share < WORTHWHILE:
            return Encoding.SCALED, Codec.NONE, scaled.parts(), scaled.prefix_words
        return Encoding.PLAIN, Codec.NONE, [memoryview(values.view(np.uint8).data)], 1

    def _encode_variable(
        self, first: int, end: int, codec: Codec
    ) -> tuple[Encoding, Codec, list[Any], int]:
        offsets = self.values[first : end + 1]
        start, stop = int(offsets[0]), int(offsets[-1])
        used, data = compressed(self.data[start:stop].data, codec)
        packed = scaled_integers((offsets - offsets[0]).astype(np.int64))
        head = np.array([stop - start, packed.nbytes // 8])
        return Encoding.TEXT, used, [head, *packed.parts(), data], packed.prefix_words

    def _encode_message(
        self, first: int, end: int, codec: Codec
    ) -> tuple[Encoding, Codec, list[Any], int]:
        values = self._array.slice(first, end - first)
        raw = memoryview(pa.RecordBatch.from_arrays([values], names=[MESSAGE_COLUMN]).serialize())
        used, data = compressed(raw, codec)
        head = [] if used is Codec.NONE else [len(raw).to_bytes(8, "little")]
        return Encoding.MESSAGE, used, [*head, data], 1


def _signed(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], np.int64]:
    if values.dtype == np.uint64:
        return values.view(np.int64), TURNED
    return values, NO_FLIP


def number_type(type_: pa.DataType) -> Any:
    """NumPy type of a fixed-width column's raw values (dates and timestamps as integers)."""
    if pa.types.is_floating(type_):
        return np.float32 if type_.bit_width == 32 else np.float64
    signed = _SIGNED_BY_WIDTH[type_.bit_width // 8]
    if pa.types.is_unsigned_integer(type_):
        return np.dtype(signed).str.replace("i", "u")
    return signed


def prefix_words(array: pa.Array) -> npt.NDArray[np.uint64]:
    """First eight bytes of each value as big-endian uint64, 0 for nulls; orders them up to ties."""
    buffers = array.buffers()
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    out = np.zeros(len(array), np.uint64)
    if len(array):
        offsets = _buffer(buffers[1], np.int64 if wide else np.int32)
        _prefixes(
            offsets[array.offset : array.offset + len(array) + 1],
            _buffer(buffers[2], np.uint8),
            out,
        )
    return out


def _encode_integers(values: npt.NDArray[Any]) -> tuple[Encoding, Codec, list[Any], int] | None:
    """Integers packed, or scaled where that saves a tenth and a bit a word; None if neither is
    worthwhile.
    """
    if not values.size:
        return None
    unsigned64 = values.dtype == np.uint64
    wide = values.view(np.int64) if unsigned64 else values.astype(np.int64, copy=False)
    best = Packing(wide, Encoding.DELTA)
    if not best.ascends:
        best = min(best, Packing(wide, Encoding.PACKED), key=lambda each: each.nbytes)
    bound = min(WORTHWHILE * min(best.nbytes, values.nbytes), best.nbytes - values.nbytes / 64)
    scaled = scaled_integers(wide) if bound > 0 else None
    if scaled is not None and scaled.nbytes < bound:
        bound = scaled.nbytes
    else:
        scaled = None
    scaled = tabulated(wide, INTEGERS, bound) or scaled
    if scaled is not None:
        return Encoding.SCALED, Codec.NONE, scaled.parts(), scaled.prefix_words
    if best.nbytes > WORTHWHILE * values.nbytes:
        return None
    return best.encoding, Codec.NONE, [best.packed()], 1


def compressed(raw: Any, codec: Codec) -> tuple[Codec, Any]:
    """The bytes compressed where that saves a tenth, and the codec that is then used."""
    if codec is not Codec.NONE and len(raw):
        data = _CODECS[codec].compress(raw, asbytes=True)
        if len(data) < WORTHWHILE * len(raw):
            return codec, data
    return Codec.NONE, raw


def decompressed(body: memoryview, codec: Codec) -> memoryview:
    """What ``compressed`` got; with a codec, its size precedes the body."""
    if codec is Codec.NONE:
        return body
    size = int.from_bytes(body[:8], "little")
    return memoryview(_CODECS[codec].decompress(body[8:], decompressed_size=size))


def _compress_pages(values: npt.NDArray[Any], codec: Codec, share: float) -> list[Any] | None:
    """Compressed pages; None unless they take at most this share of the values' bytes."""
    compress = _CODECS[codec].compress
    raw = values.view(np.uint8).data
    step = PAGE_EVENTS * values.dtype.itemsize
    pages: list[Any] = []
    starts = [0]
    for at in range(0, len(raw), step):
        piece = raw[at : at + step]
        page = compress(piece, asbytes=True)
        pages.append(page)
        starts.append(starts[-1] + len(page))
        if at == 0 and len(page) > share * len(piece):
            return None
    if not pages or starts[-1] > share * len(raw):
        return None
    return [np.array(starts, np.uint64), *pages]


def _decompress_pages(
    chunk: memoryview, codec: Codec, pages: int, itemsize: int, count: int, first: int, end: int
) -> tuple[npt.NDArray[np.uint8], int]:
    starts = np.frombuffer(chunk, np.uint64, pages + 1)
    body = chunk[8 * (pages + 1) :]
    first_page, end_page = first // PAGE_EVENTS, -(-end // PAGE_EVENTS)
    base = first_page * PAGE_EVENTS
    out = pooled((min(end_page * PAGE_EVENTS, count) - base) * itemsize, np.uint8)
    at = 0
    for page in range(first_page, end_page):
        size = (min((page + 1) * PAGE_EVENTS, count) - page * PAGE_EVENTS) * itemsize
        piece = body[int(starts[page]) : int(starts[page + 1])]
        plain = _CODECS[codec].decompress(piece, decompressed_size=size)
        out[at : at + size] = np.frombuffer(plain, np.uint8)
        at += size
    return out, base


def decode_values(
    chunk: memoryview, entry: ChunkEntry, dtype: Any, count: int, first: int, end: int
) -> npt.NDArray[Any]:
    """Rows [first, end) of a fixed-width chunk of ``count`` values; null slots are undefined."""
    if entry.nulls:
        chunk = chunk[align((count + 7) // 8) :]
    itemsize = np.dtype(dtype).itemsize
    if entry.encoding is Encoding.PLAIN:
        if entry.codec is Codec.NONE:
            return np.frombuffer(chunk, dtype, end - first, first * itemsize)
        raw, base = _decompress_pages(chunk, entry.codec, entry.pages, itemsize, count, first, end)
        rows: npt.NDArray[Any] = raw.view(dtype)[first - base : end - base]
        return rows
    if entry.encoding is Encoding.SCALED:
        return decode_scaled(_words(chunk), entry.pages, dtype, count, first, end)
    wide = unpack(chunk, entry.encoding, count, first, end)
    if itemsize == 8:
        return wide.view(dtype)
    return wide.astype(dtype)


def _decode_message(chunk: memoryview, entry: ChunkEntry, attribute: Attribute) -> pa.Array:
    schema = pa.schema([pa.field(MESSAGE_COLUMN, attribute.type)])
    message = pa.py_buffer(decompressed(chunk, entry.codec))
    return pa.ipc.read_record_batch(message, schema).column(0)


def _words(chunk: memoryview) -> npt.NDArray[np.int64]:
    return np.frombuffer(chunk, np.int64)


def _decode_text(
    chunk: memoryview, entry: ChunkEntry, attribute: Attribute, count: int, first: int, end: int
) -> pa.Array:
    validity, body = None, chunk
    if entry.nulls:
        size = (count + 7) // 8
        validity = pa.py_buffer(_bits(np.frombuffer(chunk, np.uint8, size), first, end - first))
        body = chunk[align(size) :]
    offsets: npt.NDArray[np.int32]
    if entry.encoding is Encoding.TEXT:
        size, words = np.frombuffer(body, np.int64, 2).tolist()
        packed = np.frombuffer(body, np.int64, words, 16)
        offsets = decode_scaled(packed, entry.pages, np.int32, count + 1, first, end + 1)
        data = body[16 + 8 * words :]
        if entry.codec is not Codec.NONE:
            data = memoryview(_CODECS[entry.codec].decompress(data, decompressed_size=size))
    else:
        body = decompressed(body, entry.codec)
        offsets = np.frombuffer(body, np.int32, end - first + 1, 4 * first)
        data = body[4 * (count + 1) :]
    narrow = pa.binary() if attribute.storage is Storage.BINARY else pa.string()
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(narrow, end - first, buffers)
    if attribute.storage is Storage.JSON:
        return json_column(array)
    return array if narrow == attribute.type else array.cast(attribute.type)


def decode_chunk(
    chunk: memoryview,
    entry: ChunkEntry,
    attribute: Attribute,
    count: int,
    first: int,
    end: int,
    dictionary: pa.Array | None = None,
    keep_dictionary: bool = False,
) -> pa.Array:
    """Rows [first, end) of a chunk of ``count`` values as an Arrow array, which may point into the
    chunk.  ``CorruptBlock`` when a code is outside of the dictionary.
    """
    rows = end - first
    if entry.encoding is Encoding.MESSAGE:
        return _decode_message(chunk, entry, attribute).slice(first, rows)
    validity = pa.py_buffer(chunk[: (count + 7) // 8]) if entry.nulls else None
    storage = attribute.storage
    if entry.encoding is Encoding.DICTIONARY:
        body = chunk[align((count + 7) // 8) :] if entry.nulls else chunk
        codes = unpack(body, Encoding.PACKED, count, first, end, np.int32)
        if dictionary is not None and not len(dictionary) and not codes.any():
            return pa.nulls(rows, attribute.type)  # only nulls so far
        if dictionary is None or (rows and int(codes.max()) >= len(dictionary)):
            raise CorruptBlock(f"attribute {attribute.name!r} has a code outside its dictionary")
        bitmap = None
        if validity is not None:
            bitmap = pa.py_buffer(_bits(np.frombuffer(validity, np.uint8), first, rows))
        indices = pa.Array.from_buffers(pa.int32(), rows, [bitmap, pa.py_buffer(codes)])
        if keep_dictionary:
            return pa.DictionaryArray.from_arrays(indices, dictionary, safe=False)
        return pc.take(dictionary, indices)
    body = chunk[align((count + 7) // 8) :] if entry.nulls else chunk
    type_ = attribute.type
    if entry.encoding in (Encoding.TEXT, Encoding.VARIABLE):
        return _decode_text(chunk, entry, attribute, count, first, end)
    if entry.encoding is Encoding.PLAIN and entry.codec is Codec.NONE:
        return pa.Array.from_buffers(type_, rows, [validity, pa.py_buffer(body)], offset=first)
    if storage is Storage.DECIMAL:
        raw, base = _decompress_pages(body, entry.codec, entry.pages, 16, count, first, end)
        buffer = pa.py_buffer(raw[16 * (first - base) : 16 * (end - base)])
    else:
        values = decode_values(chunk, entry, number_type(type_), count, first, end)
        buffer = pa.py_buffer(np.ascontiguousarray(values))
    bitmap = None
    if validity is not None:
        bitmap = pa.py_buffer(_bits(np.frombuffer(validity, np.uint8), first, rows))
    return pa.Array.from_buffers(type_, rows, [bitmap, buffer])


Ranges = Sequence[tuple[int, int]]
"""Half-open, non-empty ranges of rows of a leaf."""

Spans = Sequence[tuple[int, int]]

ROW_ADDRESSED = (
    Encoding.PLAIN, Encoding.DELTA, Encoding.PACKED, Encoding.DICTIONARY, Encoding.SCALED
)  # fmt: skip
"""Encodings that allow to locate the values of a row."""

SECTIONS_WORTHWHILE = 2
"""Sections are used if at most this fraction (1/n) of a leaf's rows is wanted."""


def worthwhile(entry: ChunkEntry, events: int, ranges: Ranges) -> bool:
    if not entry.section or entry.encoding not in ROW_ADDRESSED:
        return False
    return SECTIONS_WORTHWHILE * sum(end - first for first, end in ranges) < events


def _validity_bytes(entry: ChunkEntry, events: int) -> int:
    return align((events + 7) // 8) if entry.nulls else 0


def prefix_bytes(entry: ChunkEntry, events: int) -> int:
    """Bytes at the beginning of a chunk that any rows need."""
    validity = _validity_bytes(entry, events)
    if entry.encoding is Encoding.SCALED:
        return validity + 8 * entry.pages
    if entry.encoding is not Encoding.PLAIN:
        return validity + 8 * (4 * -(-events // ZONE_EVENTS) + 1)
    return validity if entry.codec is Codec.NONE else validity + 8 * (entry.pages + 1)


def value_spans(
    chunk: memoryview, entry: ChunkEntry, storage: Storage, events: int, ranges: Ranges
) -> Iterator[tuple[int, int]]:
    """Byte ranges of the values of some rows, in a chunk with a verified prefix."""
    at = _validity_bytes(entry, events)
    body = prefix_bytes(entry, events)
    if entry.encoding is Encoding.PLAIN and entry.codec is Codec.NONE:
        bits = 1 if storage is Storage.BOOL else 8 * (entry.length - body) // events
        for first, end in ranges:
            yield body + bits * first // 8, body - (-bits * end // 8)
        return
    step = ZONE_EVENTS
    if entry.encoding is Encoding.PLAIN:
        step, unit = PAGE_EVENTS, 1
        starts = np.frombuffer(chunk, np.uint64, entry.pages + 1, at)
    elif entry.encoding is Encoding.SCALED:
        unit, starts = 8, packed_starts(_words(chunk[at:body]), entry.pages, events).view(np.uint64)
    else:
        zones = -(-events // step)
        unit, starts = 8, np.frombuffer(chunk, np.uint64, zones + 1, at + 16 * zones)
    for first, end in ranges:
        low, high = first // step, -(-end // step)
        yield body + unit * int(starts[low]), body + unit * int(starts[high])


def about(entry: ChunkEntry, events: int, ranges: Ranges) -> Iterator[tuple[int, int]]:
    """Estimated byte ranges of some rows, including the prefix."""
    body = prefix_bytes(entry, events)
    if body:
        yield 0, body
    size = entry.length - body
    exact = entry.encoding is Encoding.PLAIN and entry.codec is Codec.NONE
    around = 0 if exact else 1 << entry.section
    for first, end in ranges:
        low = body + first * size // events - around
        high = body - (-end * size // events) + around
        yield max(0, low), min(entry.length, high)


def sections_of(entry: ChunkEntry, spans: Iterator[tuple[int, int]], sound: bytearray) -> list[int]:
    """Numbers of the unverified sections that overlap some byte ranges."""
    numbers: dict[int, None] = {}
    shift = entry.section
    for low, high in spans:
        if low < high:
            for number in range(low >> shift, min((high - 1 >> shift) + 1, len(sound))):
                if not sound[number]:
                    numbers[number] = None
    return sorted(numbers)
