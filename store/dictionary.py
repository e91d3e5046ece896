"""String dictionaries: each distinct value of an attribute is written once per segment.

Purpose
    Identifiers and categories repeat.  A leaf then holds small codes, bit-packed; the strings
    stand in dictionary pages of the same segment, so a segment stays complete in itself: it can be
    dropped, backed up, or built by another process without touching anything shared.

Guarantee
    A page is written before the first leaf that uses its codes, in the same file, so whatever
    commits the leaf commits the page.

Layout
    A dictionary page is a block of kind DICTIONARY:
    :data:`~chronicle.store.layout.DICTIONARY_HEADER` after the frame, then as body the offsets
    (int32 x (strings + 1)) and the bytes.  Codes count through the pages of an attribute in the
    order of writing.

Limits
    When an attribute turns out to have too many distinct values (:data:`VALUES_MAX`, or
    :data:`BYTES_MAX` of text) the rest of the segment stores its strings as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..errors import CorruptBlock
from ..schema import Attribute, Storage
from .block import frame_head, open_block, verify_chunk
from .layout import BLOCK_FRAME, DICTIONARY_HEADER, BlockKind, align

__all__ = ["DictionaryBuilder", "read_page"]

VALUES_MAX = 32_768
BYTES_MAX = 4 << 20


class DictionaryBuilder:
    """Codes of one attribute in the segment being written.

    Parameters
    ----------
    attribute : Attribute
        Of string or binary type.
    column : int
        Its position among the stream's columns.
    known : pyarrow.Array, optional
        Values of the pages already in the segment (after a reopening).
    """

    def __init__(self, attribute: Attribute, column: int, known: pa.Array | None = None) -> None:
        self.attribute = attribute
        self.column = column
        self._plain = pa.string() if attribute.storage is Storage.STRING else pa.binary()
        self._codes: dict[Any, int] = {}
        self._values: list[Any] = []
        self._bytes = 0
        self.written = 0
        if known is not None:
            self._add(known.to_pylist())
            self.written = len(self._values)
        self.exploded = False

    def _add(self, values: list[Any]) -> None:
        for value in values:
            if value not in self._codes:
                self._codes[value] = len(self._values)
                self._values.append(value)
                self._bytes += len(value)

    def encode(self, array: pa.Array) -> npt.NDArray[np.int64] | None:
        """Codes of the values, nulls as 0; None once the attribute has too many distinct values."""
        if self.exploded:
            return None
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        distinct = encoded.dictionary
        if len(distinct) > VALUES_MAX or distinct.nbytes > 4 * BYTES_MAX:
            self.exploded = True
            return None
        values = distinct.to_pylist()
        if None in values:  # a dictionary handed in may hold a null of its own
            return self.encode(array.cast(self.attribute.type))
        if not values:
            return np.zeros(len(array), np.int64)
        if len(self._values) + len(values) > VALUES_MAX:
            fresh = sum(1 for value in values if value not in self._codes)
            if len(self._values) + fresh > VALUES_MAX:
                self.exploded = True
                return None
        self._add(values)
        if self._bytes > BYTES_MAX:
            self.exploded = True
            return None
        mapping = np.fromiter((self._codes[value] for value in values), np.int64, len(values))
        indices = encoded.indices
        if indices.null_count:
            indices = indices.fill_null(0)
        codes: npt.NDArray[np.int64] = mapping[indices.to_numpy(zero_copy_only=False)]
        return codes

    def page(self, offset: int, segment_id: int) -> tuple[list[Any], int] | None:
        """The block that holds the values not yet written; None when there are none.

        Returns
        -------
        parts, total_bytes
        """
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


def _end(array: pa.Array) -> int:
    return int(np.frombuffer(array.buffers()[1], np.int32, len(array) + 1)[-1])


def read_page(
    data: memoryview, offset: int, segment_id: int, attribute: Attribute, file: str
) -> tuple[int, pa.Array]:
    """Read a dictionary page.

    Returns
    -------
    first_code : int
    values : pyarrow.Array
        Of the attribute's type, pointing into the mapped file where its offsets are 32 bits wide.
    """
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
