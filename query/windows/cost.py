"""The cost model: replay or index (thesis section 3.3.2).

Purpose
    :func:`estimate` says what each operator would cost on a snapshot, in nanoseconds of this
    machine, from the shape of its trees and the constants of a :class:`Calibration`.

Model
    As in the thesis, what counts is computations.  With ``S`` slices that hold events, ``N``
    events, ``B`` events in a leaf, ``Z`` zones in a leaf and ``D`` children in a node::

        replay   N * (event + fields * field) + leaves * leaf_scan
        index    min(leaves, S * D) * child               children of the nodes that a boundary cuts
               + min(leaves, S) * (leaf + Z * child)      zones of the leaves that a boundary cuts
               + min(zones, S) * zone                     events of the zones that a boundary cuts
               + min(pages, S) * page                     where leaves are compressed
        both     S * slice + windows * window

    The thesis counts the merges of one slide and multiplies; here the number of leaves and zones
    is a ceiling, because slides smaller than a leaf share it.

Limits
    Slices are estimated as evenly filled: ``S`` is the span over the slide, at most one per event.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

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
from .aggregation import Selected
from .spec import CountWindows, TimeWindows

__all__ = [
    "CALIBRATION_FILE",
    "Calibration",
    "Costs",
    "estimate",
    "load_calibration",
    "save_calibration",
]

CALIBRATION_FILE = "calibration.json"
_VERSION = 1


@dataclass(frozen=True)
class Calibration:
    """What operations cost, in nanoseconds; the defaults are those of a 2-core virtual machine of 2020.

    Attributes
    ----------
    event : float
        Scanning one event and finding its slice.
    field : float
        Folding one attribute of one scanned event.
    leaf_scan : float
        Opening one leaf for a scan.
    child : float
        Passing over or absorbing a child or a zone.
    leaf : float
        Opening one leaf in a sweep.
    zone : float
        Looking at the events of one zone.
    page : float
        Decompressing one page of one column.
    slice : float
        Beginning and finishing one slice.
    window : float
        Putting one window together and giving it out.
    """

    event: float = 4.0
    field: float = 1.6
    leaf_scan: float = 60_000.0
    child: float = 12.0
    leaf: float = 2_500.0
    zone: float = 1_600.0
    page: float = 25_000.0
    slice: float = 220.0
    window: float = 250.0


@dataclass(frozen=True)
class Costs:
    """Estimates for one query, in nanoseconds.

    Attributes
    ----------
    replay, index : float
    slices, events : float
        What they are based on.
    break_even : float or None
        Slide, in the windows' own unit, from which on the index is cheaper; None when it always or
        never is.
    """

    replay: float
    index: float
    slices: float
    events: float
    break_even: float | None


@dataclass(frozen=True)
class _Shape:
    """A snapshot within bounds, as the model sees it."""

    events: float
    span: float
    leaves: float
    zones: float
    tail: float
    columns_compressed: float


def estimate(
    snapshot: Snapshot,
    windows: TimeWindows | CountWindows,
    selected: Selected,
    names: tuple[str, ...],
    calibration: Calibration,
) -> Costs:
    """Estimate both operators for one query."""
    shape = _shape(snapshot, selected, names)
    by_time = isinstance(windows, TimeWindows)
    span = shape.span if by_time else shape.events

    def costs(slide: float) -> tuple[float, float, float]:
        per_slide = 2 if windows.cut and slide == windows.slide else 1
        slices = min(span / max(slide, 1e-9) * per_slide + 1, max(shape.events, 1.0))
        given = min(span / max(slide, 1e-9) + windows.overlap, slices * max(1, windows.overlap))
        shared = slices * calibration.slice + given * calibration.window
        columns = len(names)
        event = calibration.event + columns * calibration.field
        replay = shape.events * event + shape.leaves * calibration.leaf_scan
        pages = shape.events / PAGE_EVENTS
        replay += pages * calibration.page * shape.columns_compressed
        index = min(shape.leaves, slices * NODE_FANOUT) * calibration.child
        zones_per_leaf = shape.zones / shape.leaves if shape.leaves else 0.0
        index += min(shape.leaves, slices) * (calibration.leaf + zones_per_leaf * calibration.child)
        index += min(shape.zones, slices) * calibration.zone * (1 + columns) / 2
        index += min(pages, slices) * calibration.page * shape.columns_compressed
        index += shape.tail * event
        return replay + shared, index + shared, slices

    replay, index, slices = costs(float(windows.slide))
    return Costs(replay, index, slices, shape.events, _break_even(costs, span))


def _break_even(costs: object, span: float) -> float | None:
    """The slide at which both cost the same, by bisection on a logarithmic scale."""
    low, high = 1.0, max(span, 2.0)

    def cheaper(slide: float) -> bool:
        replay, index, _ = costs(slide)  # type: ignore[operator]
        return bool(index < replay)

    if cheaper(low) or not cheaper(high):
        return None
    for _ in range(48):
        middle = (low * high) ** 0.5
        if cheaper(middle):
            high = middle
        else:
            low = middle
    return high


def _shape(snapshot: Snapshot, selected: Selected, names: tuple[str, ...]) -> _Shape:
    inside = snapshot.aggregate((), selected.start, selected.end)
    first, last = inside.first, inside.last
    if first is None or last is None:
        return _Shape(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
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
    return _Shape(
        float(inside.count), float(last - first + 1), max(leaves, 1.0) if stored else 0.0,
        stored / ZONE_EVENTS, tail, compressed,
    )  # fmt: skip


def _leaf_shape(view: SegmentView, names: tuple[str, ...]) -> tuple[float, float]:
    """Events in a typical leaf of a tree, and how many of the columns are compressed there."""
    level, table = view.fragments[0]
    while level > 1:
        table = view.file.node(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
        level -= 1
    leaf = view.file.leaf(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
    columns = [leaf.schema.time, *(name for name in names if name in leaf.schema)]
    packed = sum(leaf.chunk_entry(name).codec is not Codec.NONE for name in columns)
    return float(max(1, table[ROW_COUNT].mean())), float(packed)


# -------------------------------------------------------------------------- calibration

_loaded: dict[str, tuple[float, Calibration]] = {}


def load_calibration(store: str | os.PathLike[str] | None) -> Calibration:
    """The constants kept in a store's directory; the defaults where there are none that can be read."""
    if store is None:
        return Calibration()
    path = Path(store) / CALIBRATION_FILE
    try:
        changed = path.stat().st_mtime
    except OSError:
        return Calibration()
    known = _loaded.get(str(path))
    if known is not None and known[0] == changed:
        return known[1]
    try:
        document = json.loads(path.read_text())
        names = {item.name for item in dataclasses.fields(Calibration)}
        constants = {k: float(v) for k, v in document["nanoseconds"].items() if k in names}
        found = Calibration(**constants)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Calibration()
    _loaded[str(path)] = (changed, found)
    return found


def save_calibration(store: str | os.PathLike[str], calibration: Calibration) -> Path:
    """Keep constants in a store's directory; replaces the file as a whole."""
    path = Path(store) / CALIBRATION_FILE
    text = json.dumps(
        {"version": _VERSION, "nanoseconds": dataclasses.asdict(calibration)}, indent=2
    )
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(text + "\n")
    os.replace(temporary, path)
    return path
