"""Cost model for windowed aggregation: replay or index (thesis 3.3.2).

With ``S`` non-empty slices (evenly filled; at most one per event), ``W`` windows, ``N`` events,
``F`` attributes, and ``P`` pages of compressed columns::

    replay   N * (EVENT + F * FIELD) + P * PAGE + (S * F + W) * SLICE
    index    min(zones, S) * (ZONE + 512 * F * FIELD)     zones that a boundary cuts
             + min(P, S) * PAGE + (S * F + W + S) * SLICE

Only their ratios decide, so they are constants of a small machine, in nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

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
class Costs:
    """Estimates for one query in nanoseconds."""

    replay: float
    index: float
    slices: float


def estimate(
    snapshot: Snapshot,
    windows: TimeWindows | CountWindows,
    selected: SelectedRange,
    names: tuple[str, ...],
) -> Costs:
    inside = snapshot.aggregate((), selected.start, selected.end)
    first, last = inside.first, inside.last
    events, span, stored, packed = float(inside.count), 0.0, 0.0, 0
    if first is not None and last is not None:
        span = float(last - first + 1)
        for view in (*snapshot.state.segments, *snapshot.state.runs):
            if not view.events or view.last < first or view.first > last:
                continue
            covered = min(view.last, last) - max(view.first, first) + 1
            stored += min(1.0, covered / (view.last - view.first + 1)) * view.events
            packed = max(packed, _packed(view, names))
    stored = min(stored, events)
    width = span if isinstance(windows, TimeWindows) else events
    slides = width / windows.slide
    slices = min(slides * (2 if windows.cut else 1) + 1, max(events, 1.0))
    overlap = windows.size / windows.slide
    results = min(slides + overlap, slices * max(1.0, overlap))
    pages = stored / PAGE_EVENTS * packed
    event_ns = EVENT_NS + len(names) * FIELD_NS
    both = (events - stored) * event_ns + (slices * len(names) + results) * SLICE_NS
    replay = stored * event_ns + pages * PAGE_NS
    cut = min(stored / ZONE_EVENTS, slices)
    index = cut * (ZONE_NS + ZONE_EVENTS * len(names) * FIELD_NS) + slices * SLICE_NS
    index += min(pages, slices * packed) * PAGE_NS
    return Costs(both + replay, both + index, slices)


def _packed(view: SegmentView, names: tuple[str, ...]) -> int:
    """The number of columns that are compressed in a segment, judging by one leaf."""
    level, table = view.fragments[0]
    while level > 1:
        table = view.file.node(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
        level -= 1
    leaf = view.file.leaf(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
    columns = [leaf.schema.time, *(name for name in names if name in leaf.schema)]
    return sum(leaf.chunk_entry(name).codec is not Codec.NONE for name in columns)
