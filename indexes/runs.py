"""Runs: the sorted (key, position) entries of one attribute over a range of positions of a segment.

Per ``BLOCK_ENTRIES`` entries one key block and one position block (see ``kernels``)::

    descriptor   first, end, entries, nulls, kind; fences: first key of each block, last key of
                 the run; how often these occur in a block, and how many keys lie between them
    key blocks   sorted keys, delta-packed         position blocks   bit-packed, in key order
    nulls        positions without a value         dictionary        sorted distinct strings

Positions count from the run's first; times are stored once per range, for all attributes.  Fences
are an equi-depth histogram.  Nulls of derived values are in three ascending parts: unknown, without
a PREV event (``Gaps``), and certainly NULL.

Invariants: keys ascend over the whole run, positions among equal keys; ``entries + nulls == end -
first``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.caches import lazy
from ..errors import CorruptStore
from ..schema import Attribute
from ..store.layout import Encoding
from ..store.packing import pack
from .keys import encode, pack_positions, settle

BLOCK_ENTRIES = 8192
RUN_EVENTS = 1 << 20
"""Positions of a full run; a bitmap over them fits the second-level cache."""

Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint16]
_COUNT = struct.Struct("<I")


@dataclass(frozen=True)
class Gaps:
    """Events not certainly NULL: values ``unknown``, or PREV events ``absent`` from ``seen`` on."""

    unknown: Ints
    absent: Ints
    seen: int

    @classmethod
    def of(cls, unknown: npt.ArrayLike, absent: npt.ArrayLike, seen: int) -> Gaps:
        return cls(np.asarray(unknown, np.int64), np.asarray(absent, np.int64), seen)


@dataclass(frozen=True)
class Run:
    """Descriptor of a run over positions [first, end) of a segment.

    ``generation``: distinguishes the blocks of successive runs.
    ``width``: bits of a position; ``size``: bytes of its values.
    ``fences``: uint64[blocks + 1]: first key of each block, then the greatest key.
    ``text``: ``""``, or for strings ``"dictionary"`` or ``"prefix"``.
    ``unknown``, ``absent``, ``seen``: the ``Gaps``; -1 for attributes and in older runs.
    ``counts``: uint16[blocks, 3]: occurrences of a block's first key, of the next fence, and the
        number of distinct keys between; empty in older runs.
    """

    index: int
    segment: int
    first: int
    end: int
    generation: int
    entries: int
    nulls: int
    width: int
    text: str
    size: int
    fences: npt.NDArray[np.uint64] = field(repr=False, compare=False)
    unknown: int = -1
    absent: int = 0
    seen: int = 0
    counts: Counts = field(
        default_factory=lambda: np.zeros((0, 3), np.uint16), repr=False, compare=False
    )

    @property
    def listed(self) -> bool:
        """Whether it has a block with the positions of events without a value."""
        return self.nulls > 0 and (self.entries > 0 or self.unknown + self.absent > 0)

    @property
    def blocks(self) -> int:
        return -(-self.entries // BLOCK_ENTRIES)

    def block_entries(self, block: int) -> int:
        return min(BLOCK_ENTRIES, self.entries - block * BLOCK_ENTRIES)

    @lazy
    def frequencies(self) -> npt.NDArray[np.float64]:
        """Of each fence, and as an estimate of a key between it and the next one."""
        if not self.entries:
            return np.zeros((0, 2))
        sizes = np.full(self.blocks, BLOCK_ENTRIES, np.float64)
        sizes[-1] = self.block_entries(self.blocks - 1)
        counts = np.zeros((len(self.fences), 2))
        if not len(self.counts):  # from one entry to a whole block: their geometric mean
            counts[:] = np.sqrt(np.append(sizes, sizes[-1]))[:, None]
            return counts
        head, tail, between = self.counts.T.astype(np.float64)
        counts[:-1, 0] = head
        counts[1:, 0] += tail
        np.divide(sizes - head - tail, between, out=counts[:-1, 1], where=between > 0)
        return counts

    def says_the_same_as(self, other: object) -> bool:
        """Equal in all; an older run has no counts."""
        return (
            isinstance(other, Run)
            and self == other
            and np.array_equal(self.fences, other.fences)
            and (not len(self.counts) or np.array_equal(self.counts, other.counts))
        )

    def to_bytes(self) -> bytes:
        fields: dict[str, Any] = {
            "end": self.end, "generation": self.generation, "entries": self.entries,
            "nulls": self.nulls, "width": self.width, "text": self.text, "size": self.size,
        }  # fmt: skip
        if self.unknown >= 0:
            fields.update(unknown=self.unknown, absent=self.absent, seen=self.seen)
        head = json.dumps(fields).encode()
        return _COUNT.pack(len(head)) + head + self.fences.tobytes() + self.counts.tobytes()

    @classmethod
    def from_bytes(cls, index: int, segment: int, first: int, data: bytes) -> Run:
        """Inverse of ``to_bytes``; ``CorruptStore`` if damaged."""
        try:
            (length,) = _COUNT.unpack_from(data)
            head = json.loads(data[4 : 4 + length])
            blocks = -(-int(head["entries"]) // BLOCK_ENTRIES)
            begin = 4 + length + 8 * (blocks + 1 if blocks else 0)
            counts = np.frombuffer(data[begin:], np.uint16).reshape(-1, 3)
            fences = np.frombuffer(data[4 + length : begin], np.uint64)
            run = cls(index, segment, first, fences=fences, counts=counts, **head)
        except (ValueError, TypeError, KeyError, struct.error) as error:
            raise CorruptStore(f"the descriptor of an index run does not read: {error}") from error
        wanted = blocks + 1 if blocks else 0
        if len(fences) != wanted or len(counts) not in (0, blocks):
            raise CorruptStore(
                f"an index run of {run.entries} entries has {len(fences)} fences and counts of "
                f"{len(counts)} blocks, expected {wanted} and {blocks}"
            )
        return run


@dataclass(frozen=True)
class BuiltRun:
    run: Run
    keys: list[bytes]
    positions: list[bytes]
    nulls: bytes | None
    dictionary: bytes | None


def build_times(ticks: npt.NDArray[np.int64]) -> bytes:
    return pack(np.ascontiguousarray(ticks), Encoding.DELTA)


def _sorted(
    keys: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint32] | None
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Pairs by key, then position; sorts words of key prefix and position, then resolves ties."""
    n = len(keys)
    bits = max(1, (n - 1).bit_length())
    least = keys.min()
    span = int(keys.max()) - int(least)
    drop = max(0, span.bit_length() + bits - 64)
    words = keys - least
    words >>= np.uint64(drop)
    words <<= np.uint64(bits)
    words |= np.arange(n, dtype=np.uint64)
    words.sort()
    places = (words & np.uint64((1 << bits) - 1)).astype(np.uint32)
    ordered = keys[places]
    if drop and not settle(ordered, places, 4 * n):
        places = np.argsort(keys, kind="stable").astype(np.uint32)
        ordered = keys[places]
    return ordered, places if positions is None else positions[places]


def build_run(
    index: int,
    segment: int,
    first: int,
    generation: int,
    events: int,
    column: pa.ChunkedArray | None,
    attribute: Attribute,
    gaps: Gaps | None = None,
) -> BuiltRun:
    """Sort and pack ``events`` entries; ``column`` None when all values are null."""
    end = first + events
    width = max(1, (events - 1).bit_length())
    empty = np.zeros(0, np.uint64)
    gap_counts = (-1, 0, 0) if gaps is None else (len(gaps.unknown), len(gaps.absent), gaps.seen)
    if column is None or column.null_count == events:
        run = Run(
            index, segment, first, end, generation, 0, events, width, "", 0, empty, *gap_counts
        )
        nulls = _nulls(np.arange(events), gaps, width) if run.listed else None
        return BuiltRun(replace(run, size=len(nulls or b"")), [], [], nulls, None)
    array = pa.concat_arrays(column.chunks) if column.num_chunks > 1 else column.chunk(0)
    positions = missing = None
    if array.null_count:
        valid = np.asarray(array.is_valid())
        positions = np.flatnonzero(valid).astype(np.uint32)
        missing = np.flatnonzero(~valid)
        array = pc.drop_null(array)
    keys, dictionary = encode(array, attribute)
    keys, positions = _sorted(keys, positions)
    key_blocks, position_blocks, fences = [], [], []
    for start in range(0, len(keys), BLOCK_ENTRIES):
        part = np.ascontiguousarray(keys[start : start + BLOCK_ENTRIES]).view(np.int64)
        key_blocks.append(pack(part, Encoding.DELTA))
        position_blocks.append(_packed(positions[start : start + BLOCK_ENTRIES], width))
        fences.append(keys[start])
    fences.append(keys[-1])
    nulls = None if missing is None else _nulls(missing, gaps, width)
    words = None if dictionary is None else _dictionary(dictionary)
    size = sum(map(len, key_blocks)) + sum(map(len, position_blocks))
    size += len(nulls or b"") + len(words or b"")
    text = "" if dictionary is None else "dictionary"
    if dictionary is None and (
        pa.types.is_string(attribute.type)
        or pa.types.is_large_string(attribute.type)
        or pa.types.is_binary(attribute.type)
        or pa.types.is_large_binary(attribute.type)
    ):
        text = "prefix"
    run = Run(
        index, segment, first, end, generation, len(keys), events - len(keys), width, text, size,
        np.array(fences, np.uint64), *gap_counts, key_counts(keys),
    )  # fmt: skip
    return BuiltRun(run, key_blocks, position_blocks, nulls, words)


def key_counts(keys: npt.NDArray[np.uint64]) -> Counts:
    starts = np.arange(0, len(keys), BLOCK_ENTRIES)
    ends = np.append(starts[1:], len(keys))
    fences = keys[np.append(starts, len(keys) - 1)]
    new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    new[starts] = True
    differing = np.add.reduceat(new, starts, dtype=np.int64)
    head = np.minimum(np.searchsorted(keys, fences[:-1], side="right"), ends) - starts
    tail = ends - np.minimum(np.maximum(np.searchsorted(keys, fences[1:]), starts), ends)
    between = np.where(fences[:-1] == fences[1:], 0, differing - 1 - (tail > 0))
    return np.stack([head, tail, between], axis=1).astype(np.uint16)


def _nulls(missing: Ints, gaps: Gaps | None, width: int) -> bytes:
    if gaps is not None:
        named = np.concatenate([gaps.unknown, gaps.absent])
        missing = np.concatenate([named, np.setdiff1d(missing, named, assume_unique=True)])
    return _packed(missing.astype(np.uint32), width)


def _packed(positions: npt.NDArray[np.uint32], width: int) -> bytes:
    words = np.zeros((len(positions) * width + 63) // 64, np.uint64)
    pack_positions(np.ascontiguousarray(positions), width, words)
    return words.tobytes()


def _dictionary(values: Sequence[bytes]) -> bytes:
    lengths = np.array([len(value) for value in values], np.uint32)
    return _COUNT.pack(len(values)) + lengths.tobytes() + b"".join(values)


def read_dictionary(data: bytes) -> list[bytes]:
    (count,) = _COUNT.unpack_from(data)
    lengths = np.frombuffer(data, np.uint32, count, 4)
    ends = np.cumsum(lengths) + 4 + 4 * count
    starts = ends - lengths
    return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
