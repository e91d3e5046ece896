"""Candidates whose events share a value: PARTITION BY that a condition implies.

If all looked-up blocks have a ``SharedColumn``, it is read at their occurrences, and these are
merged by key, as under PARTITION BY.  Nulls count as one key, which only adds candidates.  What
lies between the events of a candidate is replayed whatever its value: it may break a match.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from ...core.sorting import order_of
from ...core.times import moved
from .candidates import Candidates, find_candidates, in_any_order
from .lookups import Lookups
from .partition_keys import NEAR_EVENTS, PartitionKeys
from .shared_columns import SharedColumn
from .spans import Spans
from .timeline import Timeline, near

__all__ = ["keyed_spans", "keyed_stretches", "shared_by"]

Ints = npt.NDArray[np.int64]
WORTH_EVENTS = 1 << 13
"""Events in intervals from which on reading keys is worth it."""
COLUMN_SHARE = 16
"""Events of which one column may be read per event in the intervals."""


def keyed_stretches(
    lookups: Lookups, found: Mapping[int, Ints], codes: Mapping[int, Ints], partitions: int
) -> tuple[Candidates, Ints, Ints]:
    """Candidates of blocks (sorted by key, ``partitions`` keys), and their rows [low, high)."""
    context, timeline = lookups.context, lookups.context.timeline
    within = context.pattern.within
    assert within is not None
    used = sorted(found)
    at = lookups.arranged(used)
    candidates = find_candidates(
        [found[number] for number in used], at.blocks, at.before, at.after, timeline, within, None,
        codes=[codes[number] for number in used], partitions=partitions, ties=context.wants.ties,
    )  # fmt: skip
    low, high = candidates.first, candidates.farthest + 1
    if at.leading:
        ticks = moved(candidates.nearest_ticks, -within)
        low = in_any_order(timeline, ticks, Timeline.lower)
    if at.trailing:
        ticks = moved(candidates.first_ticks, within)
        high = in_any_order(timeline, ticks, Timeline.upper)
    elif context.wants.ties:
        high = in_any_order(timeline, candidates.farthest_ticks, Timeline.upper)
    return candidates, low, high


def keyed_spans(
    lookups: Lookups, found: Mapping[int, Ints], spans: Spans
) -> tuple[Spans, SharedColumn] | None:
    """Spans of candidates of one key within ``spans``, and the column; None if not worth it."""
    context = lookups.context
    pattern, timeline = context.pattern, context.timeline
    if pattern.within is None or len(found) < 2 or spans.total < WORTH_EVENTS:
        return None
    known_by = shared_by(lookups, found)
    if known_by is None:
        return None
    shared, places = known_by
    rows = {block: at + places[block] for block, at in found.items()}
    rows = {block: at[at < timeline.total] for block, at in rows.items()}
    read = sum(
        int(at[high - 1] - at[low]) + 1
        for at in rows.values()
        for low, high in near(at, NEAR_EVENTS)
    )
    if read > COLUMN_SHARE * spans.total:
        return None
    keys = PartitionKeys(timeline, (shared.column,), context.schema)
    starts: dict[int, Ints] = {}
    codes: dict[int, Ints] = {}
    for block in sorted(found, key=lambda number: len(found[number])):
        context.check()
        of = keys.codes_at(rows[block]) if codes else keys.learn(rows[block])
        known = np.flatnonzero(of >= 0)
        arranged = known[order_of(of[known])]
        starts[block], codes[block] = rows[block][arranged] - places[block], of[arranged]
    _, low, high = keyed_stretches(lookups, starts, codes, keys.count)
    kept = Spans.of(low, np.minimum(high, timeline.total)).intersect(spans)
    return kept, shared


def shared_by(
    lookups: Lookups, found: Collection[int]
) -> tuple[SharedColumn, dict[int, int]] | None:
    """A column that all blocks share, and the symbol of each block that has it."""
    blocks = lookups.context.pattern.blocks
    for one in lookups.context.pattern.shared:
        places = {}
        for number in found:
            names = [symbol.name for symbol in blocks[number].symbols]
            inside = [i for i, name in enumerate(names) if name in one.variables]
            if inside:
                places[number] = inside[0]
        if len(places) == len(found):
            return one, places
    return None
