"""Set the bits that an index would set where there is none, by evaluating conditions on events.

Values are compared through the index keys (``chronicle.indexes.keys``), so the answer is the same.
Reads no zone whose minimum and maximum exclude the condition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.times import moved
from ...indexes.index_key import DerivedKey, index_key
from ...indexes.keys import KEY_MAX, encode, key_range
from ...indexes.looking_back import ColumnReader
from ...schema import Attribute, StreamSchema
from ...store.layout import ZONE_EVENTS
from ...store.leaf_map import LeafMap
from ...store.prune import AnyOf, IsNull, NotNull, Pruner, Range
from ...store.tail import MemoryLeaf
from .base_reader import read_arrays
from .timeline import Timeline

__all__ = ["mark_events", "satisfied"]

Mask = npt.NDArray[np.bool_]
Atom = Range | IsNull | NotNull
LOOKED_BACK = 1 << 14
"""Events in which a partition's earlier rows are searched, if no window bounds the distance."""


def satisfied(array: pa.Array, atoms: Sequence[Atom], attribute: Attribute) -> Mask:
    """Which values satisfy one of the atoms, or for long texts may."""
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    found = np.zeros(len(array), np.bool_)
    if any(isinstance(atom, NotNull) for atom in atoms):
        found |= valid
    ranges = [atom for atom in atoms if isinstance(atom, Range)]
    if ranges and valid.any():
        keys, dictionary = encode(array if valid.all() else array.drop_null(), attribute)
        hit = np.zeros(len(keys), np.bool_)
        for atom in ranges:
            span = key_range(atom, attribute, dictionary)
            if span is None:
                continue
            low, high = span
            if high >= KEY_MAX:
                hit |= keys >= np.uint64(low)
            else:
                hit |= (keys >= np.uint64(low)) & (keys <= np.uint64(max(0, high)))
        found[valid] |= hit
    if any(isinstance(atom, IsNull) for atom in atoms):
        found |= ~valid
    return found


@kernel
def _set_bits(flags, base, bits, size):  # type: ignore[no-untyped-def]
    """Set bit ``base + i`` where ``flags[i]``, if it lies in [0, size)."""
    one = np.uint64(1)
    for i in range(flags.shape[0]):
        place = base + i
        if flags[i] and 0 <= place < size:
            bits[place >> 6] |= one << np.uint64(place & 63)


def mark_events(
    timeline: Timeline,
    schema: StreamSchema,
    atoms: Sequence[Atom],
    first: int,
    end: int,
    offset: int,
    bits: npt.NDArray[np.uint64],
    size: int,
    inside: int | None = None,
) -> int:
    """Set bit ``p - offset`` of positions ``p`` in [first, end) that satisfy one of the atoms, all
    on one attribute; returns the values read.  ``inside``: ticks that a derived value looks back at
    most.
    """
    key = index_key(atoms[0].column, schema)
    if isinstance(key, DerivedKey):
        return _mark_derived(timeline, key, atoms, first, end, offset, bits, size, inside)
    read = 0
    for part in timeline.parts:
        low, high = max(first, part.start), min(end, part.end)
        if low >= high:
            continue
        a, b = low - part.start, high - part.start
        if part.leaves is not None and key.name in schema:
            base = part.start - offset
            read += _mark_leaves(part.leaves, key.attribute, atoms, a, b, base, bits, size)
            continue
        reader = part.leaves.column if part.leaves is not None else _reader(part.tail, schema)
        column = key.values(reader, a, b).column
        if column is None:
            found = np.full(b - a, any(isinstance(atom, IsNull) for atom in atoms))
        else:
            found = satisfied(column.combine_chunks(), atoms, key.attribute)
        _set_bits(found, low - offset, bits, size)
        read += len(key.columns) * (b - a)
    return read


def _mark_derived(
    timeline: Timeline,
    key: DerivedKey,
    atoms: Sequence[Atom],
    first: int,
    end: int,
    offset: int,
    bits: npt.NDArray[np.uint64],
    size: int,
    inside: int | None,
) -> int:
    end = min(end, timeline.total)
    if first >= end:
        return 0
    lowest = max(0, first - LOOKED_BACK)
    if inside is not None:
        tick = moved(timeline.ticks_at(np.array([first], np.int64)), -inside)
        lowest = min(first, int(timeline.lower(tick)[0]))
    reader = _PositionReader(timeline)
    values = key.values(reader, first, end, lowest)
    assert values.column is not None
    assert values.gaps is not None
    unknown = any(isinstance(atom, IsNull) for atom in atoms)
    valued = [atom for atom in atoms if not isinstance(atom, IsNull)]
    found = satisfied(values.column.combine_chunks(), valued, key.attribute)
    if unknown:
        found[values.gaps.unknown] = True
        if inside is None and values.gaps.seen:
            found[values.gaps.absent] = True
    _set_bits(found, first - offset, bits, size)
    return reader.read


class _PositionReader:
    def __init__(self, timeline: Timeline) -> None:
        self.read = 0
        self._timeline = timeline

    def __call__(self, name: str, first: int, end: int) -> pa.ChunkedArray:
        field = self._timeline.schema.arrow.field(name)
        self.read += end - first
        parts = read_arrays(self._timeline, [name], pa.schema([field]), first, end)
        return pa.chunked_array([arrays[0] for _, arrays in parts], field.type)


def _reader(tail: MemoryLeaf | None, schema: StreamSchema) -> ColumnReader:
    assert tail is not None

    def read(name: str, first: int, end: int) -> pa.Array:
        return tail.batch.column(schema.names.index(name)).slice(first, end - first)

    return read


def _mark_leaves(
    leaves: LeafMap,
    attribute: Attribute,
    atoms: Sequence[Atom],
    first: int,
    end: int,
    base: int,
    bits: npt.NDArray[np.uint64],
    size: int,
) -> int:
    """``mark_events`` within a segment: its position ``p`` has bit ``base + p``."""
    view = leaves.view
    name = attribute.name
    if name not in view.file.schema:  # older than the attribute: null throughout
        if any(isinstance(atom, IsNull) for atom in atoms):
            _set_bits(np.ones(end - first, np.bool_), base + first, bits, size)
        return 0
    pruner = Pruner(AnyOf(tuple(atoms)), view.file.schema)
    read, at = 0, first
    for leaf, low, high in leaves.pieces(first, end, (name,)):
        zones = np.flatnonzero(pruner.mask(leaf.zones))
        zones = zones[(zones >= low // ZONE_EVENTS) & (zones * ZONE_EVENTS < high)]
        for group in np.split(zones, np.flatnonzero(np.diff(zones) > 1) + 1):
            if not len(group):
                continue
            a = max(low, int(group[0]) * ZONE_EVENTS)
            b = min(high, (int(group[-1]) + 1) * ZONE_EVENTS)
            column = view.column(leaf, name, a, b)
            _set_bits(satisfied(column, atoms, attribute), base + at + a - low, bits, size)
            read += b - a
        at += high - low
    return read
