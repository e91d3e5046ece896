"""Read-ahead of run blocks: those of many runs are requested together, while others are searched.

Fences in memory tell which blocks a lookup needs.  At most twice ``AHEAD_BYTES`` are ahead. ::

    range of values                  |-----------------|
    fences of a run     |.......|.......|.......|.......|.......|
    key blocks                   x                    x             where it begins and ends
    position blocks              x       x       x    x
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

import numpy as np

from ..core.ownership import OwnThreads
from .lookup import KeyRanges
from .opened import OpenedIndexes
from .runs import Run
from .storage import block_key

__all__ = ["ahead", "blocks_between"]

FIRST_BYTES, AHEAD_BYTES = 4 << 20, 8 << 20

LOOKUPS = 8

_looking = OwnThreads(LOOKUPS, "chronicle-ahead-of-lookups")

Item = TypeVar("Item")


def blocks_between(run: Run, low: int, high: int) -> list[tuple[bytes, int]]:
    """Kinds and numbers of the blocks that locate the entries with keys in [low, high]."""
    if not run.entries or high < int(run.fences[0]) or low > int(run.fences[-1]):
        return []
    fences = run.fences[:-1]
    first, last = 0, run.blocks - 1
    keys: list[int] = []
    if low > int(fences[0]):
        first = int(np.searchsorted(fences, np.uint64(low), side="left")) - 1
        keys.append(first)
    if high < int(run.fences[-1]):
        last = int(np.searchsorted(fences, np.uint64(high), side="right")) - 1
        keys.append(last)
    return [
        *((b"k", number) for number in dict.fromkeys(keys)),
        *((b"p", number) for number in range(first, last + 1)),
    ]


def _missing(keys: KeyRanges, run: Run) -> tuple[list[bytes], int]:
    spans, nulls = keys.of(run)
    blocks = [block for low, high in spans for block in blocks_between(run, low, high)]
    if nulls and run.nulls and run.entries:
        blocks.append((b"n", 0))
    at = run.index, run.segment, run.first, run.generation
    ends = [block_key(kind, *at, number) for kind, number in blocks[:1] + blocks[-1:]]
    if all(map(keys.indexes.holds, ends)):  # cached together, so evicted together
        return [], 0
    names = [block_key(kind, *at, number) for kind, number in blocks]
    return names, len(names) * run.size // max(1, 2 * run.blocks)


def ahead(
    wanted: Iterable[tuple[Item, Sequence[tuple[Run, KeyRanges]]]], indexes: OpenedIndexes | None
) -> Iterator[Item]:
    """The items in order, each after the blocks of its runs were fetched."""
    if indexes is None:
        yield from (item for item, _ in wanted)
        return
    before: list[Item] = []
    coming: Future[None] | None = None
    for group, names in _groups(wanted):
        asked = _looking.pool().submit(indexes.fetch, names) if names else None
        if coming is not None:
            coming.result()
        yield from before
        before, coming = group, asked
    if coming is not None:
        coming.result()
    yield from before


def _groups(
    wanted: Iterable[tuple[Item, Sequence[tuple[Run, KeyRanges]]]],
) -> Iterator[tuple[list[Item], list[bytes]]]:
    group: list[Item] = []
    names: list[bytes] = []
    size, most = 0, FIRST_BYTES
    for item, runs in wanted:
        group.append(item)
        for run, keys in runs:
            found, taken = _missing(keys, run)
            names += found
            size += taken
        if size >= most:
            yield group, names
            group, names, size, most = [], [], 0, AHEAD_BYTES
    yield group, names
