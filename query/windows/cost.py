"""Cost model for windowed aggregation: replay or index (thesis 3.3.2).

With ``S`` non-empty slices (evenly filled; at most one per event), ``W`` windows, ``N`` events,
``F`` attributes, and ``P`` pages of compressed columns::

    replay   N * (EVENT + F * FIELD) + P * PAGE + (S * F + W) * SLICE
    index    min(zones, S) * (ZONE + 512 * F * FIELD)     zones that a boundary cuts
             + min(P, S) * PAGE + (S * F + W + S) * SLICE

Only their ratios decide, so they are constants of a small machine, in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...core.caches import lazy
from ...store.layout import PAGE_EVENTS, ROW_LENGTH, ROW_OFFSET, ZONE_EVENTS, Codec
from ...store.segment import SegmentView
from ...store.snapshot import Snapshot
from .aggregation import SelectedRange
from .spec import CountWindows, TimeWindows

EVENT_NS = 5.0
FIELD_NS = 2.1
ZONE_NS = 500.0
PAGE_NS = 4_000.0
SLICE_NS = 150.0


@dataclass(frozen=True)
class Shape:
    """What a query reads; ``tail``: events in memory; ``packed``: compressed columns."""

    events: float
    span: float
    tail: float
    fields: int
    packed: int


@dataclass(frozen=True)
class Costs:
    """Estimates for one query in nanoseconds."""

    replay: float
    index: float
    slices: float
    shape: Shape
    windows: TimeWindows | CountWindows

    @lazy
    def break_even(self) -> float | None:
        """Slide from which on the index is cheaper, or None; only EXPLAIN needs it."""
        timed = isinstance(self.windows, TimeWindows)
        return _break_even(
            lambda slide: _priced(self.shape, self.windows, slide),
            self.shape.span if timed else self.shape.events,
        )


def estimate(
    snapshot: Snapshot,
    windows: TimeWindows | CountWindows,
    selected: SelectedRange,
    names: tuple[str, ...],
) -> Costs:
    shape = _shape(snapshot, selected, names)
    slices = _slices(shape, windows, windows.slide)
    return Costs(*_priced(shape, windows, windows.slide), slices, shape, windows)


def _slices(shape: Shape, windows: TimeWindows | CountWindows, slide: float) -> float:
    span = shape.span if isinstance(windows, TimeWindows) else shape.events
    per_slide = 2 if windows.cut and slide == windows.slide else 1
    return min(span / slide * per_slide + 1, max(shape.events, 1.0))


def _priced(shape: Shape, windows: TimeWindows | CountWindows, slide: float) -> tuple[float, float]:
    """Replay and index, with a given slide."""
    span = shape.span if isinstance(windows, TimeWindows) else shape.events
    slices, overlap = _slices(shape, windows, slide), windows.size / slide
    given = min(span / slide + overlap, slices * max(1.0, overlap))
    stored = shape.events - shape.tail
    pages = stored / PAGE_EVENTS * shape.packed
    event_ns = EVENT_NS + shape.fields * FIELD_NS
    both = shape.tail * event_ns + (slices * shape.fields + given) * SLICE_NS
    replay = stored * event_ns + pages * PAGE_NS
    cut = min(stored / ZONE_EVENTS, slices)
    index = cut * (ZONE_NS + ZONE_EVENTS * shape.fields * FIELD_NS) + slices * SLICE_NS
    return both + replay, both + index + min(pages, slices * shape.packed) * PAGE_NS


def _break_even(costs: Callable[[float], tuple[float, float]], span: float) -> float | None:
    low, high = 1.0, max(span, 2.0)

    def cheaper(slide: float) -> bool:
        replay, index = costs(slide)
        return index < replay

    if cheaper(low) or not cheaper(high):
        return None
    for _ in range(48):
        middle = (low * high) ** 0.5
        if cheaper(middle):
            high = middle
        else:
            low = middle
    return high


def _shape(snapshot: Snapshot, selected: SelectedRange, names: tuple[str, ...]) -> Shape:
    inside = snapshot.aggregate((), selected.start, selected.end)
    first, last = inside.first, inside.last
    if first is None or last is None:
        return Shape(0.0, 0.0, 0.0, len(names), 0)
    stored, packed = 0.0, 0
    for view in (*snapshot.state.segments, *snapshot.state.runs):
        if not view.events or view.last < first or view.first > last:
            continue
        covered = min(view.last, last) - max(view.first, first) + 1
        stored += min(1.0, covered / (view.last - view.first + 1)) * view.events
        packed = max(packed, _packed(view, names))
    tail = max(0.0, inside.count - stored)
    return Shape(float(inside.count), float(last - first + 1), tail, len(names), packed)


def _packed(view: SegmentView, names: tuple[str, ...]) -> int:
    """The number of columns that are compressed in a segment, judging by one leaf."""
    level, table = view.fragments[0]
    while level > 1:
        table = view.file.node(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
        level -= 1
    leaf = view.file.leaf(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
    columns = [leaf.schema.time, *(name for name in names if name in leaf.schema)]
    return sum(leaf.chunk_entry(name).codec is not Codec.NONE for name in columns)
