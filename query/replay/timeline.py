"""Positions and times of a snapshot's base events: those of the segments, in order, then the tail.

``Timeline`` maps positions to times and back by the times stored with indexes, else by leaves::

    segment 7               segment 9        tail
    |- piece -|- piece -|   |- piece -|piece| |      a piece has stored times, or not
    0        2^20       ...                   total

Events that retention hides (``chronicle.store.floor``) and late events have no position.  Where a
piece with stored times ends inside a leaf, the times at this border are taken to be anywhere in the
leaf until a time in the leaf is requested; then they are looked up in the stored times.  So no leaf
is read to build a timeline over stored times, which matters for leaves in object storage::

    piece                   |------------- a -------------|------------- b --------
    leaf                         ...  |F ---------------- + ---------------- G| ...
    requested               x  of a                     y  looked up             x  of b

``read_positions`` reads columns of base events by position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import distinct, places_in
from ...indexes.keys import first_not_below, ticks_at
from ...indexes.opened import Catalogue, RunsChanged, TimeRange
from ...indexes.stream_indexes import StreamIndexes
from ...store.columns import Ranges
from ...store.floor import events_shown
from ...store.layout import PAGE_EVENTS, ROW_FIRST, ZONE_EVENTS, Encoding
from ...store.leaf_map import LeafMap, leaf_map
from ...store.packing import unpack
from ...store.segment import ScanMetrics, SegmentView
from ...store.snapshot import Snapshot
from ...store.tail import MemoryLeaf

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TimelinePart:
    """A segment, or the tail (``view`` is None), at positions [start, end).  If retention has cut a
    segment in front, ``start`` is that of its first event in the file, before 0.
    """

    start: int
    end: int
    view: SegmentView | None
    leaves: LeafMap | None
    tail: MemoryLeaf | None


@dataclass(frozen=True)
class _Piece:
    start: int
    end: int
    part: TimelinePart
    times: TimeRange | None


class _Bounds(NamedTuple):
    """Pieces begin not before ``firsts`` and end not after ``lasts``; ``vague``: only the last
    tick's leaf is known.  All vague borders in one leaf have the leaf's bounds: ticks outside are
    found although the pieces are not ordered among themselves, and one tick inside makes all of
    them exact.
    """

    firsts: Ints
    lasts: Ints
    vague: npt.NDArray[np.bool_]


class Timeline:
    """Maps positions to times and back; ``catalogue`` selects the index data to use."""

    def __init__(
        self,
        snapshot: Snapshot,
        indexes: StreamIndexes | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        self._indexes = indexes
        self.schema = snapshot.schema
        self.parts: list[TimelinePart] = []
        self.moved = False  # whether a segment lies in objects
        pieces: list[_Piece] = []
        at = 0
        state = snapshot.state
        for view in state.segments:
            shown, _ = events_shown(view, state.floor)
            if not shown:
                continue
            total, skipped = view.events, view.events - shown
            leaves = leaf_map(view, skipped)
            self.moved |= view.file.moved
            base = at - skipped
            part = TimelinePart(base, base + total, view, leaves, None)
            self.parts.append(part)
            catalogued = () if catalogue is None else catalogue.times.get(view.file.segment_id, ())
            done = skipped
            for times in catalogued:
                if times.first > done:
                    pieces.append(_Piece(base + done, base + min(times.first, total), part, None))
                    done = times.first
                if times.first >= total:
                    break
                begin, done = done, max(done, min(times.end, total))
                pieces.append(_Piece(base + begin, base + done, part, times))
            if done < total:
                pieces.append(_Piece(base + done, base + total, part, None))
            at += shown
        if state.tail is not None and state.tail_events:
            tail = state.tail()
            part = TimelinePart(at, at + tail.events, None, None, tail)
            self.parts.append(part)
            pieces.append(_Piece(at, at + tail.events, part, None))
            at += tail.events
        self.total = at
        self._pieces = [piece for piece in pieces if piece.end > piece.start]
        self._starts = np.array([piece.start for piece in self._pieces], np.int64)
        self.part_starts = np.array([part.start for part in self.parts], np.int64)
        self._bounds = self._bounded()

    def _bounded(self) -> _Bounds:
        count = len(self._pieces)
        firsts, lasts = np.zeros(count, np.int64), np.zeros(count, np.int64)
        vague = np.zeros(count, np.bool_)
        number = 0
        for _, some in groupby(self._pieces, key=lambda piece: id(piece.part)):
            together = list(some)
            here = slice(number, number + len(together))
            number = here.stop
            part = together[0].part
            if part.leaves is None:
                assert part.tail is not None
                firsts[here], lasts[here] = part.tail.first, part.tail.last
                continue
            starts = np.array([piece.start - part.start for piece in together], np.int64)
            ends = np.append(starts[1:], part.end - part.start)
            stored = np.array([piece.times is not None for piece in together], np.bool_)
            vague[here] = stored & ~part.leaves.begins(ends) & (self._indexes is not None)
            early = np.append(False, vague[here][:-1])
            exact = np.concatenate([starts[~early], ends[~vague[here]] - 1])
            part.leaves.fetch_ticks(exact)
            firsts[here] = part.leaves.around(starts)[0]
            lasts[here] = part.leaves.around(ends - 1)[1]
            sharp = ~vague[here]
            for out, sure, at in ((firsts, ~early, starts), (lasts, sharp, ends - 1)):
                out[here][sure] = [part.leaves.tick(each) for each in at[sure].tolist()]
        return _Bounds(firsts, lasts, vague)

    def _bounds_for(self, ticks: Ints) -> _Bounds:
        """The bounds, exact where one of these ascending ticks may be at a border."""
        bounds = self._bounds
        vague = np.flatnonzero(bounds.vague)
        if not len(vague):
            return bounds
        low = np.searchsorted(ticks, bounds.firsts[vague + 1], side="left")
        high = np.searchsorted(ticks, bounds.lasts[vague], side="right")
        unclear = vague[high > low]
        if not len(unclear):
            return bounds
        lasts, still = bounds.lasts.copy(), bounds.vague.copy()
        lasts[unclear] = self.ticks_at(self._starts[unclear + 1] - 1)
        still[unclear] = False
        self._bounds = bounds = _Bounds(bounds.firsts, lasts, still)
        return bounds

    def _packed(self, piece: _Piece) -> Ints | None:
        """Stored times of a piece; None if they are missing or gone, so that leaves are read."""
        if piece.times is None or self._indexes is None:
            return None
        try:
            return self._indexes.words(b"t", piece.times)
        except RunsChanged:
            return None

    # -- positions to times -------------------------------------------------------------------

    def ticks_at(self, positions: Ints) -> Ints:
        out = np.empty(len(positions), np.int64)
        if not len(positions):
            return out
        cuts = np.searchsorted(positions, self._starts, side="left").tolist()
        cuts.append(len(positions))
        for number, piece in enumerate(self._pieces):
            low, high = cuts[number], cuts[number + 1]
            if high > low:
                self._piece_ticks(piece, positions[low:high], out[low:high])
        return out

    def ticks_between(self, first: int, end: int) -> Ints:
        """Times of positions [first, end); several times as fast as ``ticks_at``."""
        out = np.empty(max(0, end - first), np.int64)
        for piece in self._pieces:
            low, high = max(first, piece.start), min(end, piece.end)
            if low >= high:
                continue
            part, times, packed = piece.part, piece.times, self._packed(piece)
            here = out[low - first : high - first]
            if part.tail is not None:
                here[:] = part.tail.ticks()[low - part.start : high - part.start]
            elif times is not None and packed is not None:
                a, b = low - part.start - times.first, high - part.start - times.first
                here[:] = unpack(packed.data, Encoding.DELTA, times.end - times.first, a, b)
            else:
                assert part.leaves is not None
                here[:] = part.leaves.ticks(low - part.start, high - part.start)
        return out

    def tick(self, position: int) -> int:
        return int(self.ticks_at(np.array([position], np.int64))[0])

    def _piece_ticks(self, piece: _Piece, positions: Ints, out: Ints) -> None:
        part = piece.part
        if part.tail is not None:
            out[:] = part.tail.ticks()[positions - part.start]
            return
        times, packed = piece.times, self._packed(piece)
        if times is not None and packed is not None:
            within = positions - (part.start + times.first)
            ticks_at(packed, times.end - times.first, within, out)
            return
        leaves = part.leaves
        assert leaves is not None
        within = positions - part.start
        numbers = places_in(leaves.starts, within, "right") - 1
        leaves.fetch(distinct(numbers).tolist(), (self.schema.time,))
        for low, high in near(numbers, 0):  # one leaf at a time
            number = int(numbers[low])
            leaf, rows = leaves.leaf(number), within[low:high] - leaves.starts[number]
            packed = leaf.packed_ticks()
            if packed is not None:
                ticks_at(packed, leaf.events, rows, out[low:high])
                continue
            for start, stop in near(rows, 4096):
                first = int(rows[start])
                ticks = leaf.ticks(first, int(rows[stop - 1]) + 1)
                out[low + start : low + stop] = ticks[rows[start:stop] - first]

    # -- times to positions -------------------------------------------------------------------

    def lower(self, ticks: Ints) -> Ints:
        """For each tick (ascending) the first position whose time is not before it."""
        return self._places(np.ascontiguousarray(ticks), False)

    def upper(self, ticks: Ints) -> Ints:
        """For each tick (ascending) one past the last position whose time is not after it."""
        return self._places(np.ascontiguousarray(ticks), True)

    def _places(self, ticks: Ints, upper: bool) -> Ints:
        # the wanted place lies in the first piece whose last tick is not below (not at or below)
        side: Any = "right" if upper else "left"
        bounds = self._bounds_for(ticks)
        number = places_in(bounds.lasts, ticks, side)
        out = np.full(len(ticks), self.total, np.int64)
        inside = number < len(self._pieces)
        begins = bounds.firsts[np.minimum(number, len(self._pieces) - 1)] if len(ticks) else ticks
        early = inside & ((ticks < begins) if upper else (ticks <= begins))
        out[early] = self._starts[number[early]]
        rest = np.flatnonzero(inside & ~early)
        if not len(rest):
            return out
        for group in np.split(rest, np.flatnonzero(np.diff(number[rest])) + 1):
            piece = self._pieces[int(number[group[0]])]
            piece_places = np.empty(len(group), np.int64)
            self._piece_places(piece, ticks[group], upper, piece_places)
            out[group] = np.minimum(piece_places, piece.end)
        return out

    def _piece_places(self, piece: _Piece, ticks: Ints, upper: bool, out: Ints) -> None:
        part = piece.part
        side: Any = "right" if upper else "left"
        if part.tail is not None:
            out[:] = part.start + np.searchsorted(part.tail.ticks(), ticks, side=side)
            return
        times, packed = piece.times, self._packed(piece)
        if times is not None and packed is not None:
            first_not_below(packed, times.end - times.first, ticks, upper, False, out)
            out += part.start + times.first
            return
        leaves = part.leaves
        assert leaves is not None
        numbers = places_in(leaves.last_ticks, ticks, side)
        beyond = int(np.searchsorted(numbers, len(leaves.last_ticks)))
        out[beyond:] = part.end
        leaves.fetch(distinct(numbers[:beyond]).tolist(), (self.schema.time,))
        for low, high in near(numbers[:beyond], 0):  # one leaf at a time
            number = int(numbers[low])
            leaf = leaves.leaf(number)
            zones = np.searchsorted(leaf.zones[ROW_FIRST], ticks[low:high], side=side) - 1
            base = max(0, int(zones[0])) * ZONE_EVENTS
            stop = min((max(0, int(zones[-1])) + 1) * ZONE_EVENTS, leaf.events)
            inside = leaf.ticks(base, stop)
            start = part.start + int(leaves.starts[number]) + base
            out[low:high] = start + np.searchsorted(inside, ticks[low:high], side=side)


def near(positions: Ints, gap: int) -> Iterator[tuple[int, int]]:
    """Runs of ascending positions whose neighbours are at most ``gap`` apart."""
    if not len(positions):
        return
    breaks = np.flatnonzero(np.diff(positions) > gap) + 1
    bounds = [0, *breaks.tolist(), len(positions)]
    yield from pairwise(bounds)


def read_arrays(
    timeline: Timeline,
    columns: Sequence[str],
    output: pa.Schema,
    first: int,
    end: int,
    metrics: ScanMetrics | None = None,
    dictionary: bool = False,
) -> Iterator[tuple[int, list[pa.Array]]]:
    """Columns of positions [first, end) by leaf, with the first position of each; ``dictionary``
    keeps codes.
    """
    for part in timeline.parts:
        low, high = max(first, part.start), min(end, part.end)
        if low >= high:
            continue
        if part.tail is not None:
            batch = part.tail.batch.slice(low - part.start, high - low).select(list(columns))
            yield low, batch.columns
            continue
        leaves = part.leaves
        assert leaves is not None
        at = low
        for leaf, a, b in leaves.pieces(low - part.start, high - part.start, output.names):
            arrays = [
                leaves.view.column(leaf, field.name, a, b, type_=field.type, encoded=dictionary)
                for field in output
            ]
            if metrics is not None:
                metrics.blocks_read += 1
                metrics.events_read += b - a
            yield at, arrays
            at += b - a


def leaf_rows(
    timeline: Timeline, positions: Ints
) -> Iterator[tuple[TimelinePart, int, int, list[tuple[int, Ints]]]]:
    """The ascending positions [low, high) by part, as rows of leaves (by number), in groups of near
    ones.
    """
    ends = np.append(np.searchsorted(positions, timeline.part_starts[1:]), len(positions))
    held = np.flatnonzero(np.diff(ends, prepend=0)).tolist()
    for number, (low, high) in zip(held, pairwise([0, *ends[held].tolist()]), strict=True):
        part = timeline.parts[number]
        rows = positions[low:high] - part.start
        if part.leaves is None:
            yield part, low, high, [(0, rows)]
            continue
        starts = part.leaves.starts
        gaps = np.flatnonzero(np.diff(rows) > PAGE_EVENTS) + 1
        bounds = distinct(np.concatenate([np.searchsorted(rows, starts), gaps, [0, len(rows)]]))
        leaves = np.searchsorted(starts, rows[bounds[:-1]], side="right") - 1
        pairs = zip(leaves.tolist(), pairwise(bounds.tolist()), strict=True)
        yield part, low, high, [(leaf, rows[a:b] - starts[leaf]) for leaf, (a, b) in pairs]


def hulls(groups: Sequence[tuple[int, Ints]]) -> list[tuple[int, Ranges]]:
    return [(number, ((int(rows[0]), int(rows[-1]) + 1),)) for number, rows in groups]


def rows_at(
    timeline: Timeline, output: pa.Schema, positions: Ints, metrics: ScanMetrics | None = None
) -> Iterator[tuple[int, int, list[pa.Array]]]:
    """Columns of the ascending positions [low, high) by part; strings may be dictionary arrays."""
    for part, low, high, groups in leaf_rows(timeline, positions):
        leaves = part.leaves
        if leaves is None:
            assert part.tail is not None
            rows, batch = groups[0][1], part.tail.batch.select(output.names)
            first, end = int(rows[0]), int(rows[-1]) + 1
            dense = end - first == len(rows)
            batch = batch.slice(first, len(rows)) if dense else batch.take(pa.array(rows))
            yield low, high, batch.columns
            continue
        coming = leaves.ahead(hulls(groups), output.names)
        wanted = [(leaf, rows) for (leaf, _), (_, rows) in zip(coming, groups, strict=True)]
        if metrics is not None:
            metrics.blocks_read += len(dict(groups))
            metrics.events_read += high - low
        view = leaves.view
        yield low, high, [view.column_at(wanted, field.name, field.type) for field in output]


def read_positions(
    timeline: Timeline,
    columns: Sequence[str],
    output: pa.Schema,
    first: int,
    end: int,
    metrics: ScanMetrics | None = None,
    dictionary: bool = False,
) -> Iterator[pa.RecordBatch]:
    for _, arrays in read_arrays(timeline, columns, output, first, end, metrics, dictionary):
        coded = any(pa.types.is_dictionary(array.type) for array in arrays)
        schema = pa.schema(zip(output.names, [array.type for array in arrays], strict=True))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema if coded else output)
