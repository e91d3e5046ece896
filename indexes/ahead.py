"""Blocks of many runs, read together before they are looked at.

Purpose
    A lookup asks one range of values of every run, and each run answers from two key blocks and
    the position blocks between them.  Which ones is known from the fences in memory, so they are
    asked for in few requests, not block by block as the search comes to them, and the next ones
    while these are searched: :func:`ahead`.

Layout
    ::

        range of values                  |-----------------|
        fences of a run     |.......|.......|.......|.......|.......|
        key blocks                   x                    x             where it begins and ends
        position blocks              x       x       x    x

Guarantee
    A hint: what cannot be read here is read, and told, by who needs it.

Limits
    At most twice :data:`AHEAD_BYTES` are read ahead of the search.
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
"""That wait at once."""

_looking = OwnThreads(LOOKUPS, "chronicle-ahead-of-lookups")
"""Threads that wait for blocks."""

Item = TypeVar("Item")


def blocks_between(run: Run, low: int, high: int) -> list[tuple[bytes, int]]:
    """Kinds and numbers of the blocks that tell which entries have keys in [low, high]."""
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
    """Keys of the blocks of a run that are not in memory, and about how many bytes they have."""
    spans, nulls = keys.of(run)
    blocks = [block for low, high in spans for block in blocks_between(run, low, high)]
    if nulls and run.nulls and run.entries:
        blocks.append((b"n", 0))
    at = run.index, run.segment, run.first, run.generation
    ends = [block_key(kind, *at, number) for kind, number in blocks[:1] + blocks[-1:]]
    if all(map(keys.indexes.holds, ends)):  # they came together, and are as long ago
        return [], 0
    names = [block_key(kind, *at, number) for kind, number in blocks]
    return names, len(names) * run.size // max(1, 2 * run.blocks)


def ahead(
    wanted: Iterable[tuple[Item, Sequence[tuple[Run, KeyRanges]]]], indexes: OpenedIndexes | None
) -> Iterator[Item]:
    """Items in order, after the blocks of the runs that each is going to look up.

    Parameters
    ----------
    wanted : iterable of (item, runs)
        Runs with the values that are looked up in them.
    indexes : OpenedIndexes, optional
        Of all these runs; without them there are none.
    """
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
    """Items whose blocks are asked for together, and the keys of those that are missing."""
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
