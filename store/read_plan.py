"""Read planning: byte ranges become few requests, in order, for disks (hints) and objects::

wanted       |--|  |-|     |---|                |----------------|
joined       |-----------------|                |----------------|    gaps below ``gap``
cut          |-----------------|                |------|------|--|    at ``piece``
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["Range", "joined", "requests"]

Range = tuple[int, int]


def joined(ranges: Iterable[Range], gap: int) -> Iterator[Range]:
    """Ranges in order, merged where they overlap or have at most ``gap`` bytes between them."""
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
    """The merged ranges, cut into pieces of at most ``piece`` bytes."""
    for offset, length in joined(ranges, gap):
        for start in range(offset, offset + length, piece):
            yield start, min(piece, offset + length - start)
