"""Intervals of a pattern under PARTITION BY: spans that contain every match of the base events.

Events are located by time; if the pattern bounds only the number of events, by their places in the
partition, which takes two passes over the PARTITION BY columns.

If a condition implies PARTITION BY, candidates are those whose events share a value.  If all
looked-up blocks have a ``SharedColumn``, it is read at their occurrences, and these are merged by
key, as under PARTITION BY.  Nulls count as one key, which only adds candidates.  What lies between
the events of a candidate is replayed whatever its value: it may break a match.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...core.sorting import distinct, order_of
from ...core.times import moved
from .candidates import Candidates, find_candidates, in_any_order
from .coded_spans import coded_spans
from .fitting import fitted
from .lookups import Lookups
from .partitions import (
    NEAR_EVENTS,
    PartitionKeys,
    PartitionSpans,
    RowFlags,
    positions,
    ranks,
    rows_beside,
)
from .spans import Spans
from .symbols import SharedColumn
from .timeline import Timeline, near

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


CHECKED_OCCURRENCES = 1 << 20
"""Occurrences whose partitions are read per batch."""


@dataclass(frozen=True)
class PartitionIntervals:
    """``spans`` contain every match; ``fitted``: what bands left of the occurrences."""

    spans: PartitionSpans
    fitted: tuple[str, ...] = ()


def partition_intervals(lookups: Lookups) -> PartitionIntervals:
    search = _Search(lookups)
    return PartitionIntervals(search.run(), search.fitted)


class _Search:
    def __init__(self, lookups: Lookups) -> None:
        context = lookups.context
        self.lookups = lookups
        self.wants = context.wants
        self.timeline = context.timeline
        self.within = context.pattern.within
        self.keys = PartitionKeys(context.timeline, context.wants.partition_by, context.schema)
        self.found: dict[int, Ints] = {}
        self.codes: dict[int, Ints] = {}
        self.fitted: tuple[str, ...] = ()

    def run(self) -> PartitionSpans:
        none = np.zeros(0, np.int64)
        nothing = PartitionSpans.of(self.keys, none, none, none, self.timeline.total + 1)
        allowed = self.lookups.coarse.allowed
        coded = coded_spans(self.lookups, self.wants.partition_by)
        if coded is not None:
            allowed = allowed.intersect(coded)
        reach: PartitionSpans | None = None
        for number, block in enumerate(self.lookups.order()):
            self.lookups.context.check()
            spans = allowed if reach is None else allowed.intersect(reach.hull())
            at = self.lookups.occurrences(block, spans, spans)
            if number:
                at, of = self._in_reach(at, reach)
            else:
                of = self._learned(at)
            arranged = order_of(of)
            self.found[block], self.codes[block] = at[arranged], of[arranged]
            if not len(at):
                return nothing
            if self.within is not None:
                reach = self._in_time([block])
        if self.within is None:
            return self._in_places()
        result = self._in_time(sorted(self.found)).intersect(allowed)
        left = fitted(self.lookups.context, self.found, self.codes, result.hull().total)
        if left.texts:
            self.found, self.codes, self.fitted = dict(left.found), dict(left.codes), left.texts
            if not all(map(len, self.found.values())):
                return nothing
            result = self._in_time(sorted(self.found)).intersect(allowed)
        return self._with_neighbours(result) if self.wants.neighbours else result

    def _learned(self, at: Ints) -> Ints:
        kept, keys = self.lookups.kept, self.keys
        if kept is None:
            return keys.learn(at)
        self.keys, codes = kept.once(("learned", at.tobytes()), lambda: (keys, keys.learn(at)))
        return codes

    def _in_reach(self, at: Ints, reach: PartitionSpans | None) -> tuple[Ints, Ints]:
        """Occurrences whose partition has an interval where they are, and their codes."""
        kept, codes = [], []
        flags = None if reach is None else RowFlags(reach)
        for low in range(0, len(at), CHECKED_OCCURRENCES):
            some = at[low : low + CHECKED_OCCURRENCES]
            of = self.keys.codes_at(some)
            known = of >= 0
            if flags is not None:
                known &= flags.at(of, some) > 0
            kept.append(some[known])
            codes.append(of[known])
        if not kept:
            return at, at
        return np.concatenate(kept), np.concatenate(codes)

    def _in_time(self, used: Sequence[int]) -> PartitionSpans:
        found = {number: self.found[number] for number in used}
        candidates, low, high = keyed_stretches(self.lookups, found, self.codes, self.keys.count)
        stride = self.timeline.total + 1
        return PartitionSpans.of(self.keys, candidates.partition, low, high, stride)

    def _in_places(self) -> PartitionSpans:
        inner, total = self.lookups.context.pattern.within_partition, self.timeline.total
        assert inner is not None
        assert inner.longest is not None
        keys, found, codes = self.keys, self.found, self.codes
        every = np.arange(keys.count)
        sizes = [*map(len, found.values()), keys.count]
        told = ranks(
            keys,
            total,
            np.concatenate([*codes.values(), every]),
            np.concatenate([*found.values(), np.full(keys.count, total)]),
        )
        *places, events = np.split(told, np.cumsum(sizes)[:-1])
        place = dict(zip(found, places, strict=True))
        stride = total + 1
        at_block: dict[int, Ints] = {}
        symbol = 0
        for number, block in enumerate(inner.blocks):
            for offset in range(len(block.symbols)):
                if symbol in place:
                    start = place[symbol] - offset
                    some = (codes[symbol] * stride + start)[start >= 0]
                    known = at_block.get(number)
                    some = distinct(some)
                    if known is not None:
                        some = np.intersect1d(known, some, assume_unique=True)
                    at_block[number] = some
                symbol += 1
        used = sorted(at_block)
        at = self.lookups.arranged(used, inner)
        starts = [at_block[number] for number in used]
        candidates = find_candidates(
            [s % stride for s in starts], at.blocks, at.before, at.after, self.timeline, None,
            inner.longest, codes=[s // stride for s in starts], partitions=keys.count,
        )  # fmt: skip
        low, high = candidates.first, candidates.farthest + 1
        if at.leading:
            low = np.maximum(candidates.nearest - inner.longest + 1, 0)
        if at.trailing:
            high = candidates.first + inner.longest
        high = np.minimum(high, events[candidates.partition])
        return self._placed(PartitionSpans.of(keys, candidates.partition, low, high, stride))

    # -- neighbours ---------------------------------------------------------------------------

    def _with_neighbours(self, spans: PartitionSpans) -> PartitionSpans:
        stride = spans.stride
        code = spans.inside.starts // stride
        low, high = spans.inside.starts - code * stride, spans.inside.ends - code * stride
        around = rows_beside(
            self.keys, self.timeline.total, (code, low, high), self.wants.before, self.wants.after,
            self.lookups.context.weights,
        )  # fmt: skip
        return replace(spans, shown=_single(code, around, stride))

    def _placed(self, spans: PartitionSpans) -> PartitionSpans:
        """Spans of places within partitions as spans of positions, with neighbours shown."""
        stride = spans.stride
        code = spans.inside.starts // stride
        low, high = spans.inside.starts - code * stride, spans.inside.ends - code * stride
        first, last, *around = self._rows(code, [low, high - 1, *self._beside(low, high)])
        inside = Spans.of(code * stride + first, code * stride + last + 1)
        return PartitionSpans(self.keys, inside, _single(code, around, stride), stride)

    def _beside(self, low: Ints, high: Ints) -> list[Ints]:
        before, after = self.wants.before, self.wants.after
        return [low - 1 - i for i in range(before)] + [high + i for i in range(after)]

    def _rows(self, code: Ints, wanted: list[Ints]) -> list[Ints]:
        codes = np.tile(code, len(wanted))
        found = positions(self.keys, self.timeline.total, codes, np.concatenate(wanted))
        return np.split(found, len(wanted))


def _single(code: Ints, found: Sequence[Ints], stride: int) -> Spans:
    parts = [(code * stride + rows)[rows >= 0] for rows in found]
    place = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return Spans.of(place, place + 1)
