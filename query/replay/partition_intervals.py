"""Intervals of a pattern under PARTITION BY: spans that contain every match of the base events.

Events are located by time; if the pattern bounds only the number of events, by their places in the
partition, which takes two passes over the PARTITION BY columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...core.sorting import distinct, order_of
from .candidates import find_candidates
from .coded_spans import coded_spans
from .fitting import fitted
from .lookups import Lookups
from .partition_keys import PartitionKeys
from .partition_neighbours import rows_beside
from .partition_spans import PartitionSpans, RowFlags, positions, ranks
from .shared_keys import keyed_stretches
from .spans import Spans

__all__ = ["PartitionIntervals", "partition_intervals"]

Ints = npt.NDArray[np.int64]
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
