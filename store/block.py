"""Blocks: the framing of every leaf, node and dictionary page.

A frame (``layout.BLOCK_FRAME``) gives kind, position, length and checksum, so that a reader detects
a wrong pointer and a torn or flipped byte: ``open_block`` returns a frame only if the head's
checksum holds and the block was written for this segment and offset.  Layout: ``[frame: 64
bytes][tables of the kind, padded to 64][body chunks, each padded to 64]``; the first two are the
head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from ..errors import CorruptBlock
from .layout import BLOCK_FRAME, BLOCK_MAGIC, SECTION_BYTES, BlockKind, align

_BODY = BLOCK_FRAME.size
_CHECKSUM_AT = _BODY - 8


@dataclass(frozen=True, slots=True)
class Frame:
    kind: BlockKind
    level: int
    offset: int
    head_bytes: int
    total_bytes: int
    events: int


def frame_head(
    kind: BlockKind,
    level: int,
    offset: int,
    tables: bytes,
    body_bytes: int,
    events: int,
    segment_id: int,
) -> bytes:
    """The head of a block with ``tables`` and checksum; ``events`` are those below the block."""
    head_bytes = align(_BODY + len(tables))
    total = head_bytes + body_bytes
    frame = BLOCK_FRAME.pack(
        BLOCK_MAGIC, kind, level, 0, offset, head_bytes, total, events, segment_id, 0, 0
    )
    padding = bytes(head_bytes - _BODY - len(tables))
    digest = xxhash.xxh3_64(frame[:_CHECKSUM_AT])
    digest.update(tables)
    digest.update(padding)
    signature = digest.intdigest().to_bytes(8, "little")
    return b"".join((frame[:_CHECKSUM_AT], signature, tables, padding))


def open_block(data: memoryview, offset: int, segment_id: int, file: str) -> Frame:
    """Read and verify the head of a block in a mapped segment; else ``CorruptBlock``."""
    if offset < 0 or offset + _BODY > len(data):
        raise CorruptBlock(f"expected a block, found the end at byte {len(data)}", file, offset)
    magic, kind, level, _, own, head, total, events, segment, _, signature = (
        BLOCK_FRAME.unpack_from(data, offset)
    )
    if magic != BLOCK_MAGIC:
        raise CorruptBlock(f"expected the mark {BLOCK_MAGIC!r}, found {magic!r}", file, offset)
    if head < _BODY or total < head or offset + total > len(data):
        raise CorruptBlock(
            f"a block of {total} bytes does not fit the file's {len(data)}", file, offset
        )
    digest = xxhash.xxh3_64(data[offset : offset + _CHECKSUM_AT])
    digest.update(data[offset + _BODY : offset + head])
    if digest.intdigest() != signature:
        raise CorruptBlock(
            f"the block's head hashes to {digest.intdigest():016x}, expected {signature:016x}",
            file,
            offset,
        )
    if own != offset or segment != segment_id:
        raise CorruptBlock(
            f"the block was written for segment {segment} at byte {own}, not for segment "
            f"{segment_id}",
            file,
            offset,
        )
    try:
        block_kind = BlockKind(kind)
    except ValueError:
        raise CorruptBlock(f"unknown block kind {kind}", file, offset) from None
    return Frame(block_kind, level, offset, head, total, events)


def verify_chunk(chunk: memoryview, checksum: int, what: str, file: str, offset: int) -> None:
    """Compare a chunk of a block's body with its checksum; ``CorruptBlock`` if it differs."""
    actual = xxhash.xxh3_64_intdigest(chunk)
    if actual != checksum:
        raise CorruptBlock(
            f"{what} hashes to {actual:016x}, expected {checksum:016x}", file, offset
        )


def section_sums(parts: Sequence[Any], length: int) -> npt.NDArray[np.uint64]:
    """Checksums of the sections of a chunk of ``length`` bytes; none when it is one section."""
    if length <= SECTION_BYTES:
        return np.zeros(0, np.uint64)
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    chunk = views[0] if len(views) == 1 else memoryview(b"".join(views))
    starts = range(0, length, SECTION_BYTES)
    digest = xxhash.xxh3_64_intdigest
    return np.array([digest(chunk[at : at + SECTION_BYTES]) for at in starts], np.uint64)
