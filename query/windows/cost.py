"""Cost model for windowed aggregation: replay or index (thesis 3.3.2).

With ``S`` non-empty slices (evenly filled; at most one per event), ``W`` windows, ``N`` events,
``F`` attributes, ``Z`` zones per leaf and ``D`` children per node::

    replay   N * event + N * F * field + leaves * leaf_scan + all pages * page
             + S * slice_replayed + S * F * slice_field + W * window
    index    min(leaves, S * D) * child               children of the nodes that a boundary cuts
             + min(leaves, S) * (leaf + Z * child)    zones of the leaves that a boundary cuts
             + C * (zone + F * zone_field)            events of the C = min(zones, S) cut zones
             + C * (1 - C / zones) * seek             of which some are not adjacent
             + min(pages, S) * page                   where leaves are compressed
             + S * slice_swept + S * F * slice_field + W * window

Costs are linear in the constants, so ``calibration`` can fit them.  The thesis multiplies the
merges of one slide; here leaves and zones are upper bounds, because slides smaller than a leaf
share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...core.caches import lazy
from ...store.layout import (
    NODE_FANOUT,
    PAGE_EVENTS,
    ROW_COUNT,
    ROW_LENGTH,
    ROW_OFFSET,
    ZONE_EVENTS,
    Codec,
)
from ...store.segment import SegmentView
from ...store.snapshot import Snapshot
from ..contract.constants import ConstantsFile
from .aggregation import SelectedRange
from .spec import CountWindows, TimeWindows

__all__ = [
    "Calibration",
    "Costs",
    "Shape",
    "estimate",
    "load_calibration",
    "priced",
    "save_calibration",
    "shape_of",
    "terms",
]


@dataclass(frozen=True)
class Calibration:
    """Nanoseconds per operation; defaults of a small virtual machine.
    ``child``: skip or absorb a child or zone.  ``zone``: find slices in a zone.  ``seek``: jump to
    a zone.  ``page``: decompress a page of a column.  ``field``, ``zone_field``, ``slice_field``:
    fold one attribute of an event, zone, slice.
    """

    event: float = 1.6
    field: float = 2.4
    leaf_scan: float = 30_000.0
    child: float = 9.0
    leaf: float = 2_500.0
    zone: float = 400.0
    zone_field: float = 950.0
    seek: float = 500.0
    page: float = 4_000.0
    slice_replayed: float = 40.0
    slice_swept: float = 150.0
    slice_field: float = 165.0
    window: float = 170.0


@dataclass(frozen=True)
class Shape:
    events: float
    span: float
    leaves: float
    zones: float
    tail: float
    columns_compressed: float


@dataclass(frozen=True)
class Costs:
    """Estimates for one query in nanoseconds; ``columns``: number of aggregated attributes."""

    replay: float
    index: float
    slices: float
    shape: Shape
    windows: TimeWindows | CountWindows
    columns: int
    calibration: Calibration

    @lazy
    def break_even(self) -> float | None:
        """Slide from which on the index is cheaper, or None; only EXPLAIN needs it."""

        def costs(slide: float) -> tuple[float, float]:
            replay, index = terms(self.shape, self.windows, slide, self.columns)
            return priced(replay, self.calibration), priced(index, self.calibration)

        timed = isinstance(self.windows, TimeWindows)
        return _break_even(costs, self.shape.span if timed else self.shape.events)


def estimate(
    snapshot: Snapshot,
    windows: TimeWindows | CountWindows,
    selected: SelectedRange,
    names: tuple[str, ...],
    calibration: Calibration,
) -> Costs:
    shape = shape_of(snapshot, selected, names)
    replay, index = terms(shape, windows, float(windows.slide), len(names))
    return Costs(
        priced(replay, calibration), priced(index, calibration), replay["slice_replayed"], shape,
        windows, len(names), calibration,
    )  # fmt: skip


def priced(operations: Mapping[str, float], calibration: Calibration) -> float:
    return sum(count * float(getattr(calibration, name)) for name, count in operations.items())


def terms(
    shape: Shape, windows: TimeWindows | CountWindows, slide: float, columns: int
) -> tuple[dict[str, float], dict[str, float]]:
    span = shape.span if isinstance(windows, TimeWindows) else shape.events
    per_slide = 2 if windows.cut and slide == windows.slide else 1
    slices = min(span / max(slide, 1e-9) * per_slide + 1, max(shape.events, 1.0))
    steps = span / max(slide, 1e-9) + windows.size / max(slide, 1e-9)
    given = min(steps, slices * max(1.0, windows.size / max(slide, 1e-9)))
    pages = shape.events / PAGE_EVENTS
    per_leaf = shape.zones / shape.leaves if shape.leaves else 0.0
    cut = min(shape.leaves, slices)
    zones = min(shape.zones, slices)
    replay = {
        "event": shape.events,
        "field": shape.events * columns,
        "leaf_scan": shape.leaves,
        "page": pages * shape.columns_compressed,
        "slice_replayed": slices,
        "slice_field": slices * columns,
        "window": given,
    }
    index = {
        "event": shape.tail,
        "field": shape.tail * columns,
        "child": min(shape.leaves, slices * NODE_FANOUT) + cut * per_leaf,
        "leaf": cut,
        "zone": zones,
        "zone_field": zones * columns,
        "seek": zones * (1 - zones / shape.zones) if shape.zones else 0.0,
        "page": min(pages, slices) * shape.columns_compressed,
        "slice_swept": slices,
        "slice_field": slices * columns,
        "window": given,
    }
    return replay, index


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


def shape_of(snapshot: Snapshot, selected: SelectedRange, names: tuple[str, ...]) -> Shape:
    inside = snapshot.aggregate((), selected.start, selected.end)
    first, last = inside.first, inside.last
    if first is None or last is None:
        return Shape(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    state = snapshot.state
    leaves = stored = compressed = 0.0
    views = [v for v in (*state.segments, *state.runs) if v.events]
    for view in views:
        if view.last < first or view.first > last:
            continue
        covered = min(view.last, last) - max(view.first, first) + 1
        share = min(1.0, covered / (view.last - view.first + 1))
        per_leaf, packed = _leaf_shape(view, names)
        leaves += share * view.events / per_leaf
        stored += share * view.events
        compressed = max(compressed, packed)
    tail = max(0.0, inside.count - stored)
    return Shape(
        float(inside.count), float(last - first + 1), max(leaves, 1.0) if stored else 0.0,
        stored / ZONE_EVENTS, tail, compressed,
    )  # fmt: skip


def _leaf_shape(view: SegmentView, names: tuple[str, ...]) -> tuple[float, float]:
    level, table = view.fragments[0]
    while level > 1:
        table = view.file.node(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
        level -= 1
    leaf = view.file.leaf(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
    columns = [leaf.schema.time, *(name for name in names if name in leaf.schema)]
    packed = sum(leaf.chunk_entry(name).codec is not Codec.NONE for name in columns)
    return float(max(1, table[ROW_COUNT].mean())), float(packed)


# -------------------------------------------------------------------------- calibration

_FILE = ConstantsFile("calibration.json", Calibration)
load_calibration = _FILE.load
save_calibration = _FILE.save
