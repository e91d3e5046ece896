"""Planning reads: ranges of bytes become few requests, in order.

Purpose
    Whoever knows what it will read says so before it does (:meth:`~.leaf_map.LeafMap.fetch`).
    This module turns such ranges into requests, for the disk (:class:`~.files.RealReadFile`
    announces them to the system, which reads them side by side while we go on) and for objects
    (:class:`~.cold_file.ColdMapping` asks for them side by side, and waits).

Layout
    ::

        wanted       |--|  |-|     |---|                |----------------|
        joined       |-----------------|                |----------------|    gaps below ``gap``
        cut          |-----------------|                |------|------|--|    at ``piece``

    A gap is read where that costs less than a request of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["Range", "joined", "requests"]

Range = tuple[int, int]
"""Offset and length."""


def joined(ranges: Iterable[Range], gap: int) -> Iterator[Range]:
    """Ranges in order, those as one that overlap or have at most ``gap`` bytes between them."""
    begun: Range | None = None
    for offset, length in sorted(ranges):
        if begun is not None and offset - sum(begun) <= gap:
            begun = begun[0], max(sum(begun), offset + length) - begun[0]
            continue
        if begun is not None:
            yield begun
        begun = offset, length
    if begun is not None:
        yield begun


def requests(ranges: Iterable[Range], gap: int, piece: int) -> Iterator[Range]:
    """The same, those cut that are longer than a request should be."""
    for offset, length in joined(ranges, gap):
        for start in range(offset, offset + length, piece):
            yield start, min(piece, offset + length - start)
