"""Candidates: where the chosen symbols occur in the order and at the distances of the pattern.

Algorithm 3.1 of the thesis.  The first merge finds occurrences of a basic block by shift-AND: an
index answer sets the bit at ``event position - place of the symbol in the block``.  The second
merge combines blocks in one sweep over the first block's occurrences, with a pointer into each::

    position      0 1 2 3 4 5 6 7            block (A B), B at place 1
    A             . x . . x . x .            bits of A at p
    B             . . x . . . . x            bits of B at p - 1:  . x . . . . x .
    occurs        . x . . . . x .            AND

For each occurrence of the first block only the nearest and the farthest end of a candidate matter,
because all intervals between them overlap (``docs/indexes.md``).  Under PARTITION BY every block is
one event, sorted by (partition, position), and the second merge runs per partition.  Guarantee:
every match without a late event among or between its own events has a candidate.

Where there is no index, the bits that it would set are set by evaluating conditions on events.
Reads no zone whose minimum and maximum exclude the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.sorting import order_of
from ...core.times import moved
from ...indexes.derived_values import ColumnReader
from ...indexes.index_key import DerivedKey, index_key
from ...indexes.opened import Catalogue
from ...indexes.runs import Run
from ...schema import Attribute, StreamSchema
from ...store.layout import ZONE_EVENTS
from ...store.leaf_map import LeafMap
from ...store.prune import AnyOf, IsNull, NotNull, Pruner, Range
from ...store.tail import MemoryLeaf
from ..conditions.row_filters import possible_values
from ..pattern.search import horizon
from .timeline import Timeline, read_arrays

Mask = npt.NDArray[np.bool_]
Atom = Range | IsNull | NotNull
LOOKED_BACK = 1 << 14
"""Events in which a partition's earlier rows are searched, if no window bounds the distance."""


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
            truth = np.full(b - a, any(isinstance(atom, IsNull) for atom in atoms))
        else:
            truth = possible_values(atoms, column.combine_chunks(), key.attribute)
        _set_bits(truth, low - offset, bits, size)
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
    truth = possible_values(valued, values.column.combine_chunks(), key.attribute)
    if unknown:
        truth[values.gaps.unknown] = True
        if inside is None and values.gaps.seen:
            truth[values.gaps.absent] = True
    _set_bits(truth, first - offset, bits, size)
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
            column = view.column(leaf, name, a, b, encoded=True)
            truths = possible_values(atoms, column, attribute)
            _set_bits(truths, base + at + a - low, bits, size)
            read += b - a
        at += high - low
    return read


Bits = npt.NDArray[np.uint64]


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LookupRange:
    """Base positions [start, end) that are looked up in the same way.  ``runs`` by attribute;
    attributes without a run are evaluated on the events.  ``skipped``: events of the runs before
    ``start`` that retention hides.
    """

    start: int
    end: int
    runs: dict[str, Run]
    skipped: int = 0

    @property
    def origin(self) -> int:
        """Position of the runs' first event; negative where hidden events precede position 0."""
        return self.start - self.skipped


@dataclass(frozen=True)
class Candidates:
    """One row per occurrence of the first chosen block that has a candidate.  ``first``: latest
    position at which the match can begin (exact without a gap before the block); ``nearest`` and
    ``farthest``: earliest end of the nearest and of the farthest candidate; ``*_ticks`` their times
    (zeros without a window); ``partition`` codes (zeros without PARTITION BY).
    """

    first: Ints
    nearest: Ints
    farthest: Ints
    first_ticks: Ints
    nearest_ticks: Ints
    farthest_ticks: Ints
    partition: Ints


def chunks_of(
    catalogue: Catalogue, timeline: Timeline, attributes: Sequence[str]
) -> list[LookupRange]:
    """Ranges of base events in which all of some attributes are indexed."""
    chunks = []
    for part in timeline.parts:
        if part.view is None:
            continue
        segment, hidden = part.view.file.segment_id, max(0, -part.start)
        events = part.view.events
        columns = [
            {
                run.first: run
                for run in catalogue.runs.get((catalogue.attributes[name], segment), ())
            }
            for name in attributes
        ]
        timed = {times.first: times.end for times in catalogue.times.get(segment, ())}
        for first, timed_end in timed.items():
            if not all(first in runs for runs in columns):
                continue
            ends = [runs[first].end for runs in columns]
            begin, end = max(first, hidden), min([timed_end, events, *ends])
            runs = {name: c[first] for name, c in zip(attributes, columns, strict=True)}
            if end > begin and not any(
                run.seen < hidden and isinstance(index_key(name, timeline.schema), DerivedKey)
                for name, run in runs.items()  # its values may look back at hidden events
            ):
                chunks.append(
                    LookupRange(part.start + begin, part.start + end, runs, begin - first)
                )
    chunks.sort(key=lambda chunk: chunk.start)
    return chunks


@kernel
def _merge(  # type: ignore[no-untyped-def]
    groups, first, starts, bounds, lengths, between, ends_at, ticks, end_ticks, window, span, out
):
    """The second merge; returns the number of candidates in ``out``.
    ``starts[bounds[b, g]:bounds[b, g + 1]]`` are the occurrences of block ``b`` in group ``g``;
    ``first`` and ``ticks`` belong to those of block 0, ``ends_at`` and ``end_ticks`` to those of
    the last block.
    """
    blocks = bounds.shape[0]
    pointer = np.zeros(blocks, np.int64)
    last = bounds[blocks - 1, 0]
    count = 0
    for g in range(groups):
        for b in range(blocks):
            pointer[b] = bounds[b, g]
        far = bounds[blocks - 1, g]
        stop_last = bounds[blocks - 1, g + 1]
        for i in range(bounds[0, g], bounds[0, g + 1]):
            a = first[i]
            if a < 0:
                continue
            at = starts[i] + lengths[0]
            alive = True
            near = i
            for b in range(1, blocks):
                j = pointer[b]
                stop = bounds[b, g + 1]
                low = at + between[b]
                while j < stop and starts[j] < low:
                    j += 1
                pointer[b] = j
                if j == stop:
                    alive = False
                    break
                at = starts[j] + lengths[b]
                near = j
            if not alive:
                break
            z = ends_at[near - last]
            if z < 0 or z - a >= span:
                continue
            if end_ticks[near - last] > horizon(ticks[i], window):
                continue
            farthest = near
            if blocks > 1:
                if far < near:
                    far = near
                while far + 1 < stop_last:
                    z = ends_at[far + 1 - last]
                    if z < 0 or z - a >= span:
                        break
                    if end_ticks[far + 1 - last] > horizon(ticks[i], window):
                        break
                    far += 1
                farthest = far
            out[0, count] = a
            out[1, count] = ends_at[near - last]
            out[2, count] = ends_at[farthest - last]
            out[3, count] = ticks[i]
            out[4, count] = end_ticks[near - last]
            out[5, count] = end_ticks[farthest - last]
            out[6, count] = g
            count += 1
    return count


@dataclass(frozen=True)
class Arrangement:
    """Looked-up blocks at their places in the pattern.  ``lengths``: symbols of each; ``between``:
    fewest events between the one before and it; ``before`` and ``after``: symbols before the first
    and after the last; ``leading`` and ``trailing``: whether any number of events may come there.
    """

    lengths: list[int]
    between: list[int]
    before: int
    after: int
    leading: bool
    trailing: bool


def find_candidates(
    found: Sequence[Ints],
    at: Arrangement,
    timeline: Timeline,
    within: int | None,
    longest: int | None,
    *,
    codes: Sequence[Ints] | None = None,
    partitions: int = 1,
    ties: bool = False,
) -> Candidates:
    """Merge the occurrences of blocks (ascending in each partition) to candidates.  ``within``:
    inclusive ticks, ``longest``: events.  With ``ties`` the matcher may reorder events of one time:
    only times count, blocks are one symbol.
    """
    lengths, between = np.array(at.lengths, np.int64), np.array(at.between, np.int64)
    if codes is None:
        rows = np.concatenate(([0], np.cumsum([len(f) for f in found]))).astype(np.int64)
        bounds = np.stack([rows[:-1], rows[1:]], axis=1)
    else:
        edges = np.arange(partitions + 1)
        first_of = np.concatenate(([0], np.cumsum([len(f) for f in found])))[:-1].tolist()
        bounds = np.stack(
            [
                base + np.searchsorted(some, edges)
                for base, some in zip(first_of, codes, strict=True)
            ]
        ).astype(np.int64)
    if ties:
        found = [in_any_order(timeline, some, _to_tick_start) for some in found]
        lengths[:], between[:] = 0, 0
        first, ends_at = found[0].copy(), found[-1].copy()
    else:
        first = found[0] - at.before
        ends_at = found[-1] + (at.lengths[-1] + at.after - 1)
        ends_at[ends_at >= timeline.total] = -1
    ticks, end_ticks = np.zeros(len(first), np.int64), np.zeros(len(ends_at), np.int64)
    if within is not None:
        begin = np.maximum(first, 0)
        last = np.where(ends_at < 0, timeline.total - 1, ends_at)
        ticks = in_any_order(timeline, begin, Timeline.ticks_at)
        same = np.array_equal(begin, last)  # of one block of one symbol
        end_ticks = ticks if same else in_any_order(timeline, last, Timeline.ticks_at)
    out = np.empty((7, len(first)), np.int64)
    window = -1 if within is None else min(within, 2**62)
    span = 2**62 if longest is None else longest
    count = _merge(
        partitions, first, np.concatenate(found), bounds, lengths, between, ends_at, ticks,
        end_ticks, window, span, out,
    )  # fmt: skip
    filled = out[:, :count]
    return Candidates(filled[0], filled[1], filled[2], filled[3], filled[4], filled[5], filled[6])


def _to_tick_start(timeline: Timeline, positions: Ints) -> Ints:
    return timeline.lower(timeline.ticks_at(positions))


def in_any_order(timeline: Timeline, values: Ints, of: Callable[[Timeline, Ints], Ints]) -> Ints:
    """Apply a function of ascending values to values in any order."""
    if len(values) < 2 or not np.any(values[1:] < values[:-1]):
        return of(timeline, values)
    order = order_of(values)
    out = np.empty(len(values), np.int64)
    out[order] = of(timeline, values[order])
    return out
