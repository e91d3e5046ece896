"""Sections of a column's chunk: which of them hold the values of some rows.

Purpose
    A chunk is compared with one checksum, and a long one also section by section
    (:data:`~.layout.SECTION_BYTES`), so that a few rows of a leaf can be read without the rest of
    its column.  This module says which bytes those are.

Layout
    ::

        chunk     | validity | where pages or zones begin | values ............................ |
                  \\_____________ prefix ________________/      rows 900 .. 1000
        sections  |--------------|--------------|--------------|--------------|--------------|--|
                         x              x                             x

Guarantee
    :func:`value_spans` is exact: decoding the rows reads no other byte behind the prefix that it
    uses.  :func:`about` is a guess, for whoever asks for bytes before the prefix is there.

Limits
    Texts of variable length have one offset for each row of the leaf: they are read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..schema import Storage
from .columns import ChunkEntry
from .layout import PAGE_EVENTS, ZONE_EVENTS, Codec, Encoding, align

__all__ = ["Ranges", "Spans", "about", "prefix_bytes", "sections_of", "value_spans", "worthwhile"]

Ranges = Sequence[tuple[int, int]]
"""Rows of a leaf, half-open, none of them empty."""

Spans = Sequence[tuple[int, int]]
"""Bytes of a chunk, half-open."""

TOLD = (Encoding.PLAIN, Encoding.DELTA, Encoding.PACKED, Encoding.DICTIONARY)
"""Encodings that tell where the values of a row lie."""

WORTHWHILE = 2
"""Rows of a leaf, by those that are wanted, from which on sections are looked at."""


def worthwhile(entry: ChunkEntry, events: int, ranges: Ranges) -> bool:
    """Whether some rows of a column of that many had better be read by sections."""
    if not entry.section or entry.encoding not in TOLD:
        return False
    return WORTHWHILE * sum(end - first for first, end in ranges) < events


def _validity_bytes(entry: ChunkEntry, events: int) -> int:
    return align((events + 7) // 8) if entry.nulls else 0


def prefix_bytes(entry: ChunkEntry, events: int) -> int:
    """Bytes at the beginning of a chunk that are read whichever rows are."""
    validity = _validity_bytes(entry, events)
    if entry.encoding is not Encoding.PLAIN:
        return validity + 8 * (4 * -(-events // ZONE_EVENTS) + 1)
    return validity if entry.codec is Codec.NONE else validity + 8 * (entry.pages + 1)


def value_spans(
    chunk: memoryview, entry: ChunkEntry, storage: Storage, events: int, ranges: Ranges
) -> Iterator[tuple[int, int]]:
    """Where the values of some rows lie in a chunk, whose prefix is sound.

    Parameters
    ----------
    storage : Storage
        Of the column.
    events : int
        Rows of the leaf.
    """
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
    """About where they lie, as if every row took as much; with the prefix."""
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
    """Numbers of the sections that some bytes lie in, of those that are not known to be sound."""
    found: dict[int, None] = {}
    shift = entry.section
    for low, high in spans:
        if low < high:
            for number in range(low >> shift, min((high - 1 >> shift) + 1, len(sound))):
                if not sound[number]:
                    found[number] = None
    return sorted(found)
