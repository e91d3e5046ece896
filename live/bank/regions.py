"""Open matches, at a watermark, of patterns that are added to a bank.

The search begins at a cut (``cuts.free_rows``) more than a window before the watermark, in a
stretch that is doubled until it has one: matches from before the stretch end within a window of its
begin, and one that covers a row begins at most a window before it, so three windows mostly suffice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.times import INT64_MAX, INT64_MIN
from ...query.pattern.columns import take_ranges
from .cuts import free_rows, hits_behind
from .layer import Layer, empty_kept
from .partitions import Partitions
from .pattern_bank import PatternBank
from .predicate_index import Columns
from .searching import Kept

__all__ = ["Scan", "open_at", "sorted_kept"]

IntArray = npt.NDArray[np.int64]
Scan = Callable[[int, int], pa.Table]
"""Events with ``low <= t <= high`` in time order, with the columns of the bank."""


def open_at(bank: PatternBank, layer: Layer, scan: Scan, first: int, watermark: int) -> None:
    """Set a layer's open matches at the bank's watermark; ``first`` is the stream's first tick."""
    assert layer.longest >= 0
    reach = max(1, layer.longest)
    while True:
        low = max(first, watermark - 3 * reach)
        places, table = bank.no_partitions(), scan(low, watermark)
        fresh, order = places.arrange(table)
        bound = np.full(len(places), min(watermark, INT64_MAX - 1) + 1)
        since = np.full(len(places), INT64_MIN if low <= first else low)
        hits = layer.hits(layer.read(Columns(table)), order, fresh, bank.room)
        begin = free_rows(layer, hits, fresh, bound, since, bank.room)
        if (begin[1] >= 0).all():
            break
        reach *= 2
    behind = hits_behind(hits, fresh, *begin)
    found = layer.search(behind, fresh, empty_kept(), watermark, bank.room)
    number = _numbers(places, bank.partitions)
    layer.kept = sorted_kept([_moved(found.kept, places, bank.partitions, number)])


def _moved(kept: Kept, local: Partitions, places: Partitions, number: IntArray) -> Kept:
    shift = places.count[number] - local.count
    newer = local.tick > places.tick[number]
    newer |= (local.tick == places.tick[number]) & (local.rank > places.rank[number])
    places.tick[number[newer]] = local.tick[newer]
    places.rank[number[newer]] = local.rank[newer]
    rank = kept.rank + np.repeat(shift[kept.partition], np.diff(kept.first))
    return kept._replace(partition=number[kept.partition], rank=rank)


def _numbers(local: Partitions, places: Partitions) -> IntArray:
    if not local.partition_by:
        return np.zeros(1, np.int64)
    return places.numbers_of(local.keys) if len(local) else np.zeros(0, np.int64)


def sorted_kept(parts: list[Kept]) -> Kept:
    """Several ``Kept``, merged by pattern and partition."""
    sizes = np.concatenate([np.diff(part.first) for part in parts])
    query = np.concatenate([part.query for part in parts])
    partition = np.concatenate([part.partition for part in parts])
    order = np.lexsort((partition, query))
    ends = np.cumsum(sizes)
    rows = take_ranges((ends - sizes)[order], ends[order])
    columns = (np.concatenate([part[i] for part in parts])[rows] for i in range(3, 7))
    first = np.concatenate([[0], np.cumsum(sizes[order])]).astype(np.int64)
    return Kept(query[order], partition[order], first, *columns)
