"""Cut views: segments without the events that retention hides at their start (``floor``).

A cut view has the interface of any view.  It consists of the right siblings along one path, in time
order: a list of entry tables like the flank of the active segment, the lowest level first::

                 root                     fragments
          |====|======|======|            (2: right of the path), behind
               |  path                    (1: from the leaf on)
             |==|=>|==|
             hidden|shown

Positions in the segment do not change (``SegmentView.skipped``).

Cost: reads a path of nodes, and a leaf where the tick is inside of one: in a base segment only
where events of one time span two leaves, since ``leaf_at`` gives the beginnings of leaves.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .layout import ROW_FIRST, ROW_LAST, ROW_LENGTH, ROW_OFFSET
from .node import find_children
from .segment import TICK_MAX, AggregatedColumns, SegmentView

__all__ = ["cut_view", "leaf_at"]

Table = npt.NDArray[np.int64]
Fragments = tuple[tuple[int, Table], ...]


def leaf_at(view: SegmentView, tick: int) -> tuple[int, int] | None:
    """First and last tick of the first leaf that reaches a tick; None if none does."""
    for level, table in view.fragments:
        child = int(find_children(table, tick, TICK_MAX)[0])
        if child == table.shape[1]:
            continue
        while level > 1:
            table = view.file.node(int(table[ROW_OFFSET, child]), int(table[ROW_LENGTH, child]))
            child = int(find_children(table, tick, TICK_MAX)[0])
            level -= 1
        return int(table[ROW_FIRST, child]), int(table[ROW_LAST, child])
    return None


def cut_view(view: SegmentView, tick: int) -> SegmentView | None:
    """The events of a segment from a tick on; None where there are none."""
    selection = AggregatedColumns(view.file.schema, ())
    words = selection.words()
    view.aggregate(selection, tick, TICK_MAX, words, None)
    shown, first = int(words[0]), int(words[1])
    if not shown:
        return None
    if shown == view.events:
        return view
    return view.behind(_behind(view, tick), view.events - shown, shown, first, tick)


def _behind(view: SegmentView, tick: int) -> Fragments:
    found: list[tuple[int, Table]] = []
    for level, table in view.fragments:
        _rest(view, level, table, tick, found)
    return tuple(found)


def _rest(
    view: SegmentView, level: int, table: Table, tick: int, found: list[tuple[int, Table]]
) -> None:
    child = int(find_children(table, tick, TICK_MAX)[0])
    if level > 1 and child < table.shape[1] and table[ROW_FIRST, child] < tick:
        below = view.file.node(int(table[ROW_OFFSET, child]), int(table[ROW_LENGTH, child]))
        _rest(view, level - 1, below, tick, found)
        child += 1
    if child < table.shape[1]:
        rest = np.ascontiguousarray(table[:, child:])
        rest.flags.writeable = False  # kernels are compiled for read-only arrays
        found.append((level, rest))
