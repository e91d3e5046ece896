"""Reading replay intervals ahead where segments lie in objects: what comes next comes meanwhile.

Purpose
    Each request to an object waits, however little it asks for, and batches begin small so that who
    wants few rows does not wait for many.  Batch by batch a pattern over years would wait for each
    of them, and for each segment in it.  :func:`ahead` asks for what many batches read together, of
    all segments side by side, and for what comes after while the rows before are matched.

Layout
    ::

        batches         |.|....|......|........|........|........| ...
        groups          |      first      |         next         | ...
        asked for       at once           when the first has come, then that after it ...

Guarantee
    A hint: what could not be read here is asked for again, and told, by who reads it.

Limits
    At most two groups of about :data:`GROUP_BYTES` are ahead of who reads; the first is of
    :data:`FIRST_BYTES`.  Segments on the disk are left to the system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from ...core.ownership import OwnThreads
from ...errors import ChronicleError
from ...store.layout import SECTION_BYTES
from ...store.leaf_map import LeafMap
from ...store.sections import Ranges

__all__ = ["ahead"]

FIRST_BYTES = 8 << 20
GROUP_BYTES = 32 << 20

SEGMENTS_AT_ONCE = 16

_asking = OwnThreads(SEGMENTS_AT_ONCE, "chronicle-ahead")
"""Threads that wait for segments."""

Ints = npt.NDArray[np.int64]
Cuts = Sequence[tuple[int, int]]
Wanted = Callable[[Ints], Iterable[tuple[LeafMap, Sequence[tuple[int, Ranges]]]]]
"""Says of ranges of positions which rows of which leaves they are, of segments in objects."""


def ahead(ranges: Ints, cuts: Cuts, names: Sequence[str], wanted: Wanted) -> Iterator[Ints]:
    """Batches of ranges, each when what it reads has come, if it could.

    Parameters
    ----------
    ranges : int64[n, 2]
        Positions, ascending.
    cuts : sequence of (int, int)
        Which of the ranges are in each batch, in order.
    names : sequence of str
        Columns that are read of them.
    """
    groups = _groups(ranges, cuts, len(names))
    coming: list[Future[None]] = []
    try:
        for number, group in enumerate(groups):
            if not number:
                coming = _ask(ranges, group, names, wanted)
            for answer in coming:
                answer.result()
            if number + 1 < len(groups):
                coming = _ask(ranges, groups[number + 1], names, wanted)
            for low, high in group:
                yield ranges[low:high]
    finally:
        for answer in coming:
            answer.cancel()


def _groups(ranges: Ints, cuts: Cuts, columns: int) -> list[Cuts]:
    """Batches that are asked for together."""
    rows = ranges[:, 1] - ranges[:, 0]
    size = np.cumsum(columns * (8 * rows + SECTION_BYTES))
    groups: list[list[tuple[int, int]]] = []
    done, most = 0, FIRST_BYTES
    for low, high in cuts:
        if not groups:
            groups.append([])
        elif int(size[high - 1]) - done > most:
            done, most = int(size[low - 1]), GROUP_BYTES
            groups.append([])
        groups[-1].append((low, high))
    return list(groups)


def _ask(ranges: Ints, group: Cuts, names: Sequence[str], wanted: Wanted) -> list[Future[None]]:
    """Begin to ask for what a group of batches reads."""
    return [
        _asking.pool().submit(_fetch, leaves, rows, names)
        for leaves, rows in wanted(ranges[group[0][0] : group[-1][1]])
    ]


def _fetch(leaves: LeafMap, rows: Sequence[tuple[int, Ranges]], names: Sequence[str]) -> None:
    with suppress(ChronicleError):  # whoever reads it is told
        for _ in leaves.ahead(rows, names):
            pass
