"""Read-ahead for replay intervals in object storage.

Each request has a latency, and batches begin small for queries with a LIMIT, so what many batches
read together is requested at once, of all segments in parallel, and the next group while rows are
matched.  Only a hint: whatever fails is requested again, and reported, by the reader.  At most two
groups of about ``GROUP_BYTES`` (the first: ``FIRST_BYTES``) are in memory.
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

Ints = npt.NDArray[np.int64]
Cuts = Sequence[tuple[int, int]]
Wanted = Callable[[Ints], Iterable[tuple[LeafMap, Sequence[tuple[int, Ranges]]]]]
"""Maps ranges of positions to the rows of leaves in object storage."""


def ahead(ranges: Ints, cuts: Cuts, names: Sequence[str], wanted: Wanted) -> Iterator[Ints]:
    """Batches of ranges (int64[n, 2] positions, grouped by ``cuts``), each when its data is in."""
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
    return [
        _asking.pool().submit(_fetch, leaves, rows, names)
        for leaves, rows in wanted(ranges[group[0][0] : group[-1][1]])
    ]


def _fetch(leaves: LeafMap, rows: Sequence[tuple[int, Ranges]], names: Sequence[str]) -> None:
    with suppress(ChronicleError):  # the reader reports the error
        for _ in leaves.ahead(rows, names):
            pass
