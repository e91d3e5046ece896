"""String dictionaries: each distinct value of an attribute is written once per segment.

Leaves hold bit-packed codes; the strings are in dictionary pages of the same segment, written
before the first leaf that uses them, so a segment is self-contained.  A page is a block of kind
DICTIONARY: ``layout.DICTIONARY_HEADER`` after the frame, then as body the offsets (int32 x (strings
+ 1)) and the bytes, compressed where that pays.  Codes number the values of all pages of an
attribute in the order of writing.  Above ``VALUES_MAX`` distinct values, or ``BYTES_MAX`` of text,
the rest of the segment stores plain strings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ..core.native import kernel
from ..core.text_numbers import TextNumbers
from ..errors import CorruptBlock
from ..schema import Attribute, Storage
from .block import frame_head, open_block, verify_chunk
from .columns import compressed, decompressed
from .layout import BLOCK_FRAME, DICTIONARY_HEADER, BlockKind, Codec, align
from .packing import pooled

VALUES_MAX = 1 << 18
BYTES_MAX = 4 << 20
_AT_ONCE = 1 << 15
"""Values that are numbered before the limits are checked."""


class DictionaryBuilder:
    """Codes of one attribute in the segment being written; ``values`` of existing pages."""

    def __init__(self, attribute: Attribute, column: int, values: pa.Array | None = None) -> None:
        self.attribute = attribute
        self.column = column
        self._plain = pa.string() if attribute.storage is Storage.STRING else pa.binary()
        self._numbers = TextNumbers()
        self._source: tuple[Any, pa.Array, npt.NDArray[np.int64]] | None = None
        self.written = 0
        if values is not None:
            self._numbers.take(values.cast(self._plain))
            self.written = self._numbers.count
        self.exploded = False

    @property
    def prefixes(self) -> npt.NDArray[np.uint64]:
        """The first eight bytes of each value by code, as ``columns.prefix_words``."""
        return self._numbers.prefixes

    def encode(self, array: pa.Array) -> npt.NDArray[np.int64] | None:
        """Codes of the values (any for null); None once there are too many distinct ones."""
        if self.exploded:
            return None
        if pa.types.is_dictionary(array.type):
            return self._encode_dictionary(array)
        if not array.null_count:
            return self._number(array)
        codes = np.zeros(len(array), np.int64)
        numbers = self._number(array.drop_null())
        if numbers is None:
            return None
        codes[array.is_valid().to_numpy(zero_copy_only=False)] = numbers
        return codes

    def _encode_dictionary(self, array: pa.Array) -> npt.NDArray[np.int64] | None:
        distinct, indices = array.dictionary, array.indices
        if distinct.null_count:
            return self.encode(array.cast(self.attribute.type))
        if not len(distinct):
            return np.zeros(len(array), np.int64)
        codes = self._codes_of(distinct)
        translated = pooled(len(array), np.int64)
        local = _words(indices.fill_null(0) if indices.null_count else indices)
        unknown = _translate(local, codes, translated)
        if unknown < 0:
            raise ValueError(f"an index of {self.attribute.name!r} lies outside its dictionary")
        if not unknown:
            return translated
        occurs = np.sort(pc.unique(indices).drop_null().to_numpy(zero_copy_only=False))
        fresh = occurs[codes[occurs] < 0].astype(np.int64)
        numbers = self._number(distinct.take(pa.array(fresh)))
        if numbers is None:
            return None
        codes[fresh] = numbers
        _translate(local, codes, translated)
        return translated

    def _codes_of(self, distinct: pa.Array) -> npt.NDArray[np.int64]:
        place = (len(distinct), distinct.offset, *(b and b.address for b in distinct.buffers()))
        if self._source is None or self._source[0] != place:
            self._source = (place, distinct, np.full(len(distinct), -1, np.int64))
        return self._source[2]

    def _number(self, texts: pa.Array) -> npt.NDArray[np.int64] | None:
        before = self._numbers.count
        codes = np.empty(len(texts), np.int64)
        for first in range(0, len(texts), _AT_ONCE):
            part = texts.slice(first, _AT_ONCE).cast(self._plain)
            codes[first : first + _AT_ONCE] = self._numbers.take(part)
            if self._numbers.count > VALUES_MAX or self._numbers.size > BYTES_MAX:
                values = self._numbers.values.slice(0, before)
                self.exploded, self._source, self._numbers = True, None, TextNumbers()
                self._numbers.take(values)
                return None
        return codes

    def page(self, offset: int, segment_id: int, codec: Codec) -> tuple[list[Any], int] | None:
        """Parts and total bytes of a block with the unwritten values; None without any."""
        if self._numbers.count == self.written:
            return None
        fresh = self._numbers.count - self.written
        offsets, text = self._numbers.laid_out(self.written)
        plain = offsets.astype(np.int32).tobytes() + text.tobytes()
        used, body = compressed(plain, codec)
        if used is not Codec.NONE:
            body = len(plain).to_bytes(8, "little") + body
        digest = xxhash.xxh3_64_intdigest(body)
        header = DICTIONARY_HEADER.pack(self.column, self.written, fresh, used, len(body), digest)
        padding = bytes(align(len(body)) - len(body))
        head = frame_head(
            BlockKind.DICTIONARY, 0, offset, header, len(body) + len(padding), 0, segment_id
        )
        self.written = self._numbers.count
        return [head, body, padding], len(head) + len(body) + len(padding)


@kernel
def _translate(indices, codes, translated):  # type: ignore[no-untyped-def]
    """Look up codes, 0 if missing; returns the number missing, or -1 for an invalid index."""
    unknown = 0
    for i in range(indices.size):
        index = indices[i]
        if index < 0 or index >= codes.size:
            return -1
        code = codes[index]
        if code < 0:
            unknown += 1
            code = np.int64(0)
        translated[i] = code
    return unknown


def _words(indices: pa.Array) -> npt.NDArray[np.int32]:
    words: npt.NDArray[np.int32] = indices.to_numpy(zero_copy_only=False)
    return words.astype(np.int32, copy=False)


def read_page(
    data: memoryview, offset: int, segment_id: int, attribute: Attribute, file: str
) -> tuple[int, pa.Array]:
    frame = open_block(data, offset, segment_id, file)
    if frame.kind is not BlockKind.DICTIONARY:
        raise CorruptBlock(
            f"expected a dictionary page, found a {frame.kind.name} block", file, offset
        )
    _, first, count, codec, length, checksum = DICTIONARY_HEADER.unpack_from(
        data, offset + BLOCK_FRAME.size
    )
    start = offset + frame.head_bytes
    body = data[start : start + length]
    verify_chunk(body, checksum, f"the dictionary page of {attribute.name!r}", file, offset)
    body = decompressed(body, Codec(codec))
    plain = pa.string() if attribute.storage is Storage.STRING else pa.binary()
    offsets, text = body[: 4 * (count + 1)], body[4 * (count + 1) :]
    array = pa.Array.from_buffers(plain, count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return first, array if plain == attribute.type else array.cast(attribute.type)
