r"""Sections of a column chunk: which bytes hold some rows, to verify and read only these::

    chunk     | validity | starts of pages or zones | values ............................ |
              \_____________ prefix _______________/      rows 900 .. 1000
    sections  |--------------|--------------|--------------|--------------|-------------|
                     x              x                             x

``value_spans`` is exact: decoding the rows reads no other byte behind the prefix.  ``about`` is an
estimate, for requests before the prefix is present.  Variable-length strings, with one offset per
row, are read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..schema import Storage
from .columns import ChunkEntry
from .layout import PAGE_EVENTS, ZONE_EVENTS, Codec, Encoding, align

__all__ = ["Ranges", "Spans", "about", "prefix_bytes", "sections_of", "value_spans", "worthwhile"]

Ranges = Sequence[tuple[int, int]]
"""Half-open, non-empty ranges of rows of a leaf."""

Spans = Sequence[tuple[int, int]]

TOLD = (Encoding.PLAIN, Encoding.DELTA, Encoding.PACKED, Encoding.DICTIONARY)
"""Encodings that allow to locate the values of a row."""

WORTHWHILE = 2
"""Sections are used if at most this fraction (1/n) of a leaf's rows is wanted."""


def worthwhile(entry: ChunkEntry, events: int, ranges: Ranges) -> bool:
    if not entry.section or entry.encoding not in TOLD:
        return False
    return WORTHWHILE * sum(end - first for first, end in ranges) < events


def _validity_bytes(entry: ChunkEntry, events: int) -> int:
    return align((events + 7) // 8) if entry.nulls else 0


def prefix_bytes(entry: ChunkEntry, events: int) -> int:
    """Bytes at the beginning of a chunk that any rows need."""
    validity = _validity_bytes(entry, events)
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
    found: dict[int, None] = {}
    shift = entry.section
    for low, high in spans:
        if low < high:
            for number in range(low >> shift, min((high - 1 >> shift) + 1, len(sound))):
                if not sound[number]:
                    found[number] = None
    return sorted(found)
