"""String dictionaries: each distinct value of an attribute is written once per segment.

Leaves hold bit-packed codes; the strings are in dictionary pages of the same segment, written
before the first leaf that uses them, so a segment is self-contained.  A page is a block of kind
DICTIONARY: ``layout.DICTIONARY_HEADER`` after the frame, then as body the offsets (int32 x (strings
+ 1)) and the bytes.  Codes number the values of all pages of an attribute in the order of writing.
Above ``VALUES_MAX`` distinct values, or ``BYTES_MAX`` of text, the rest of the segment stores plain
strings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ..core.native import kernel
from ..errors import CorruptBlock
from ..schema import Attribute, Storage
from .block import frame_head, open_block, verify_chunk
from .layout import BLOCK_FRAME, DICTIONARY_HEADER, BlockKind, align
from .packing import pooled

VALUES_MAX = 32_768
BYTES_MAX = 4 << 20


class DictionaryBuilder:
    """Codes of one attribute in the segment being written; ``known`` from existing pages."""

    def __init__(self, attribute: Attribute, column: int, values: pa.Array | None = None) -> None:
        self.attribute = attribute
        self.column = column
        self._plain = pa.string() if attribute.storage is Storage.STRING else pa.binary()
        self._codes: dict[Any, int] = {}
        self._values: list[Any] = []
        self._bytes = 0
        self._source: tuple[Any, pa.Array, npt.NDArray[np.int64]] | None = None
        self.written = 0
        if values is not None:
            self._add(values.to_pylist())
            self.written = len(self._values)
        self.exploded = False

    def _add(self, values: list[Any]) -> None:
        for value in values:
            if value not in self._codes:
                self._codes[value] = len(self._values)
                self._values.append(value)
                self._bytes += len(value)

    def encode(self, array: pa.Array) -> npt.NDArray[np.int64] | None:
        """Codes of the values (any for null); None once there are too many distinct ones."""
        if self.exploded:
            return None
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        distinct = encoded.dictionary
        if distinct.null_count:  # an input dictionary may contain a null
            return self.encode(array.cast(self.attribute.type))
        if not len(distinct):
            return np.zeros(len(array), np.int64)
        codes = self._codes_of(distinct)
        indices = encoded.indices
        translated = pooled(len(array), np.int64)
        local = _words(indices.fill_null(0) if indices.null_count else indices)
        unknown = _translate(local, codes, translated)
        if unknown < 0:
            raise ValueError(f"an index of {self.attribute.name!r} lies outside its dictionary")
        if not unknown:
            return translated
        occurs = np.sort(pc.unique(indices).drop_null().to_numpy(zero_copy_only=False))
        fresh = occurs[codes[occurs] < 0].astype(np.int64)
        if fresh.size and not self._take_over(distinct, fresh, codes):
            self.exploded, self._source = True, None
            return None
        _translate(local, codes, translated)
        return translated

    def _codes_of(self, distinct: pa.Array) -> npt.NDArray[np.int64]:
        place = (len(distinct), distinct.offset, *(b and b.address for b in distinct.buffers()))
        if self._source is None or self._source[0] != place:
            self._source = (place, distinct, np.full(len(distinct), -1, np.int64))
        return self._source[2]

    def _take_over(
        self, distinct: pa.Array, fresh: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]
    ) -> bool:
        values = distinct.take(pa.array(fresh))
        if fresh.size > VALUES_MAX or values.nbytes > 4 * BYTES_MAX:
            return False
        listed = values.to_pylist()
        if len(self._values) + len(listed) > VALUES_MAX:
            more = sum(1 for value in listed if value not in self._codes)
            if len(self._values) + more > VALUES_MAX:
                return False
        self._add(listed)
        codes[fresh] = np.fromiter((self._codes[value] for value in listed), np.int64, len(listed))
        return self._bytes <= BYTES_MAX

    def page(self, offset: int, segment_id: int) -> tuple[list[Any], int] | None:
        """Parts and total bytes of a block with the unwritten values; None without any."""
        fresh = self._values[self.written :]
        if not fresh:
            return None
        array = pa.array(fresh, self._plain)
        _, offsets, data = array.buffers()
        text = bytes(data) if data is not None else b""
        body = np.frombuffer(offsets, np.int32, len(fresh) + 1).tobytes() + text[: _end(array)]
        header = DICTIONARY_HEADER.pack(
            self.column, self.written, len(fresh), 0, len(body), xxhash.xxh3_64_intdigest(body)
        )
        padding = bytes(align(len(body)) - len(body))
        head = frame_head(
            BlockKind.DICTIONARY, 0, offset, header, len(body) + len(padding), 0, segment_id
        )
        self.written = len(self._values)
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


def _end(array: pa.Array) -> int:
    return int(np.frombuffer(array.buffers()[1], np.int32, len(array) + 1)[-1])


def read_page(
    data: memoryview, offset: int, segment_id: int, attribute: Attribute, file: str
) -> tuple[int, pa.Array]:
    frame = open_block(data, offset, segment_id, file)
    if frame.kind is not BlockKind.DICTIONARY:
        raise CorruptBlock(
            f"expected a dictionary page, found a {frame.kind.name} block", file, offset
        )
    _, first, count, _, length, checksum = DICTIONARY_HEADER.unpack_from(
        data, offset + BLOCK_FRAME.size
    )
    start = offset + frame.head_bytes
    body = data[start : start + length]
    verify_chunk(body, checksum, f"the dictionary page of {attribute.name!r}", file, offset)
    plain = pa.string() if attribute.storage is Storage.STRING else pa.binary()
    offsets, text = body[: 4 * (count + 1)], body[4 * (count + 1) :]
    array = pa.Array.from_buffers(plain, count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return first, array if plain == attribute.type else array.cast(attribute.type)
