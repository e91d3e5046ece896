"""Cut views: segments without what retention hides in front of them.

Purpose
    Retention hides the oldest events of a stream at every commit (:mod:`.floor`); their bytes stay
    in the file until the segment is dropped or rewritten.  A cut view is the rest of a tree behind
    a tick, and looks like any other view: who reads it needs to know nothing.

Layout
    The rest of a tree is the right siblings along one path, in time order, so it is a list of entry
    tables as the flank of the active segment is, the lowest level first::

                     root                     fragments
              |====|======|======|            (2: right of the path), behind
                   |  path                    (1: from the leaf on)
                 |==|=>|==|
                 hidden|shown

Guarantee
    A cut view shows the events from its tick on, and has their number and first time.  Positions in
    the segment stay what they were (:attr:`~.segment.SegmentView.skipped`).

Cost
    A path of nodes is read, and a leaf where the tick lies inside of one: of a base segment that is
    only where events of one time lie in two leaves, for :func:`leaf_at` says where leaves begin.
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
    """First and last tick of the first leaf that reaches a tick; None where none does."""
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
    """The entry tables of all leaves that reach a tick, in time order."""
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
        rest.flags.writeable = False  # as files give them: kernels are compiled once
        found.append((level, rest))
