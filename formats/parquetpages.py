"""Check of the sizes that Parquet pages declare, before any page is decompressed.

A page header is a Thrift struct in the compact protocol (parquet.thrift): 1 type, 2 uncompressed
size, 3 compressed size; 5, 7, 8 header of the kind of page.  A field begins with a byte: four bits
of distance to the previous field id, four bits of type.  Encrypted files are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

from ..errors import InvalidData
from .limits import Meter

__all__ = ["check_pages"]

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
