"""Spans that contain every match of the base events, by looking up the picked terms.

Blocks are looked up rarest first, each only where matches of those before can reach.  Then their
occurrences are merged to candidates (``candidates``), and these are widened to spans
(``stretches``).  A stream without PARTITION BY is one partition.  Under PARTITION BY, occurrences
have the codes of their partitions, which are read at their positions.  If the pattern bounds only
the number of events, a span is that many rows of its partition around an occurrence.

If all looked-up blocks have a ``SharedColumn``, it is read at their occurrences, which are merged
once more by its values, as under PARTITION BY.  Nulls count as one key, which only adds candidates.
What lies between the events of a candidate is replayed whatever its value: it may break a match.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...core.sorting import order_of
from ...core.times import moved
from .candidates import find_candidates, in_any_order
from .coded_spans import coded_spans
from .cost import CostModel
from .lookups import Lookups
from .offers import Offer
from .partitions import NEAR_EVENTS, PartitionKeys, PartitionSpans, RowFlags, rows_beside
from .replay_plan import ReplayIntervals
from .spans import Spans
from .symbols import SharedColumn
from .timeline import Timeline, near

Ints = npt.NDArray[np.int64]

DENSE = 64
"""Occurrences per chunk from which on a block is assumed to occur throughout."""
WORTH_EVENTS = 1 << 13
"""Events in intervals from which on reading a shared column is worth it."""
COLUMN_SHARE = 16
"""Events of which a shared column may be read per event in the intervals."""
CHECKED_OCCURRENCES = 1 << 20
"""Occurrences whose partitions are read per batch."""


@dataclass(frozen=True)
class Located:
    """The result of lookups; ``spans`` contain every match (None: ``reason`` says why not).
    ``used``: terms looked up; ``shared``: the column of which candidates have one value.
    """

    spans: Spans | PartitionSpans | None
    used: tuple[Offer, ...] = ()
    shared: SharedColumn | None = None
    reason: str = ""


def located(lookups: Lookups, model: CostModel | None = None) -> Located:
    """Spans of the candidates of the picked terms; with a model, lookups end when they cost more
    than replaying what is left.
    """
    return _Search(lookups, model).run()


def stretches(
    lookups: Lookups,
    found: Mapping[int, Ints],
    codes: Mapping[int, Ints] | None = None,
    partitions: int = 1,
) -> tuple[Ints, Ints, Ints]:
    """Partition codes and rows [low, high) of candidates, given the starts of blocks, ascending in
    each partition.

    ``Interval(c, w)`` of thesis section 3.4.2, in positions where the pattern fixes them and in
    time elsewhere.  ``A`` is the latest position at which a candidate's match can begin, ``Z`` the
    earliest at which it can end (``candidates``; symbols before and after the chosen ones count)::

        gap before   gap after   interval                                              thesis
        no           no          [A, farthest Z], exact positions                      S2
        no           yes         [A, last position with t <= t(A) + w]                 S1
        yes          no          [first position with t >= t(Z) - w, farthest Z]       S3
        yes          yes         [first ... t(Z) - w, last ... t(A) + w]               base case

    A bound in events (no Kleene symbol, contiguous) bounds the same interval.
    """
    context = lookups.context
    timeline, wants = context.timeline, context.wants
    within, longest = context.pattern.within, context.pattern.longest
    used = sorted(found)
    at = lookups.arranged(used)
    one = find_candidates(
        [found[number] for number in used], at.blocks, at.before, at.after, timeline, within,
        longest, codes=None if codes is None else [codes[number] for number in used],
        partitions=partitions, ties=wants.ties,
    )  # fmt: skip
    partition, low, high = one.partition, one.first, one.farthest + 1
    if longest is not None:
        low = np.maximum(one.nearest - longest + 1, 0) if at.leading else low
        high = np.minimum(one.first + longest, timeline.total) if at.trailing else high
    if within is None or not len(low):
        return partition, low, high
    since = moved(one.nearest_ticks, -within) if at.leading else one.first_ticks
    until = moved(one.first_ticks, within) if at.trailing else one.farthest_ticks
    if longest is None:  # overlapping ones first become one: fewer times are searched
        apart = (since[1:] > until[:-1]) | (partition[1:] != partition[:-1])
        breaks = np.flatnonzero(apart)
        first = np.append(0, breaks + 1)
        last = np.append(breaks, len(low) - 1)
        partition, low, high = partition[first], low[first], high[last]
        since, until = since[first], until[last]
    if at.leading:
        begins = in_any_order(timeline, since, Timeline.lower)
        low = begins if longest is None else np.maximum(low, begins)
    if at.trailing or wants.ties:
        ends = in_any_order(timeline, until, Timeline.upper)
        high = ends if longest is None else np.minimum(high, ends)
    return partition, low, high


class _Search:
    def __init__(self, lookups: Lookups, model: CostModel | None) -> None:
        context = lookups.context
        self.lookups, self.model = lookups, model
        self.context, self.pattern = context, context.pattern
        self.timeline, self.stride = context.timeline, context.total + 1
        self.keys = (
            PartitionKeys(context.timeline, context.wants.partition_by, context.schema)
            if context.partitioned
            else None
        )
        self.found: dict[int, Ints] = {}
        self.codes: dict[int, Ints] = {}

    def run(self) -> Located:
        spans, used = self._coded(self.lookups.coarse.allowed), self.lookups.picked
        order = self.lookups.order()
        reach: Spans | PartitionSpans | None = None
        for number, block in enumerate(order):
            self.context.check()
            at = self.lookups.occurrences(block, spans, spans)
            self._take(block, at, reach)
            if not len(self.found[block]):
                return Located(self._spans({}), used)
            bounded = self.keys is None or self.pattern.within is not None
            if block == order[-1] and (bounded or reach is not None):
                break
            reach = self._reach(block, reach)
            if reach is None:
                far = "rows of the same partition may lie far away from one another"
                return Located(None, reason=far)
            spans = spans.intersect(_hull(reach))
            rest = [offer for offer in used if offer.block in order[number + 1 :]]
            if rest and self._enough(reach, spans, rest):
                used = tuple(offer for offer in used if offer not in rest)
                break
        if self.keys is None:
            return self._of_stream(spans, used)
        return self._of_partitions(reach, spans, used)

    def _of_stream(self, spans: Spans, used: tuple[Offer, ...]) -> Located:
        found = self._spans(self.found)
        assert isinstance(found, Spans)
        found = found.intersect(spans)
        self.found = {block: at[_inside(at, found)] for block, at in self.found.items()}
        keyed = self._of_one_value(found)
        if keyed is None:
            return Located(found, used)
        return Located(keyed[0], used, keyed[1])

    def _of_partitions(
        self, reach: Spans | PartitionSpans | None, spans: Spans, used: tuple[Offer, ...]
    ) -> Located:
        found = reach if self.pattern.within is None else self._spans(self.found)
        assert isinstance(found, PartitionSpans)
        if self.pattern.within is None:
            found = self._with_all_blocks(found)
        found = found.intersect(spans)
        if not self.context.wants.neighbours and self.pattern.within is not None:
            return Located(found, used)
        shown = self._neighbours(found)
        if shown is None:
            return Located(None, reason="the rows next to intervals may lie far away")
        return Located(shown, used)

    # -- one block ----------------------------------------------------------------------------

    def _take(self, block: int, at: Ints, reach: Spans | PartitionSpans | None) -> None:
        """Keep the occurrences of a block, by partition and position."""
        if self.keys is None:
            self.found[block] = at
            return
        if isinstance(reach, PartitionSpans):
            at, of = self._in_reach(at, self.keys, reach)
        else:
            of = self._learned(at, self.keys)
        arranged = order_of(of)
        self.found[block], self.codes[block] = at[arranged], of[arranged]

    def _learned(self, at: Ints, keys: PartitionKeys) -> Ints:
        kept = self.lookups.kept
        if kept is None:
            return keys.learn(at)
        self.keys, codes = kept.once(("learned", at.tobytes()), lambda: (keys, keys.learn(at)))
        return codes

    def _in_reach(self, at: Ints, keys: PartitionKeys, reach: PartitionSpans) -> tuple[Ints, Ints]:
        """Occurrences whose partition has an interval where they are, and their codes."""
        places, codes, flags = [at[:0]], [at[:0]], RowFlags(reach)
        for low in range(0, len(at), CHECKED_OCCURRENCES):
            some = at[low : low + CHECKED_OCCURRENCES]
            of = keys.codes_at(some)
            there = (of >= 0) & (flags.at(of, some) > 0)
            places.append(some[there])
            codes.append(of[there])
        return np.concatenate(places), np.concatenate(codes)

    def _reach(
        self, block: int, before: Spans | PartitionSpans | None
    ) -> Spans | PartitionSpans | None:
        """What matches with one of a block's occurrences can reach; None if that is too far."""
        at = self.found[block]
        if self.keys is None:
            if len(at) > DENSE * len(self.lookups.chunks):
                return self.lookups.coarse.allowed if before is None else before
            return self._spans({block: at})
        if self.pattern.within is not None:
            return self._spans({block: at})
        return self._rows_around(block, self.keys) if before is None else before

    def _rows_around(self, block: int, keys: PartitionKeys) -> PartitionSpans | None:
        most, blocks = self.pattern.longest_partition, len(self.pattern.blocks)
        assert most is not None
        code, at = self.codes[block], self.found[block]
        before, after = most - blocks + block, most - 1 - block
        rows = rows_beside(keys, self.timeline.total, (code, at, at + 1), before, after)
        if rows is None:
            return None
        low, high = at, at + 1
        for row in rows[:before]:
            low = np.where(row >= 0, row, low)
        for row in rows[before:]:
            high = np.where(row >= 0, row + 1, high)
        return PartitionSpans.of(keys, code, low, high, self.stride)

    def _enough(self, reach: Spans | PartitionSpans, spans: Spans, rest: Collection[Offer]) -> bool:
        if self.model is None:
            return False
        chunks = self.lookups.bounds
        asked = max(1, int(chunks.touches(self.lookups.coarse.allowed).sum()))
        part = float(chunks.touches(spans).sum()) / asked
        keyed = reach if isinstance(reach, PartitionSpans) else None
        joined = spans.joined(self.context.gap)
        left = self.model.found_ns(ReplayIntervals(joined, partitions=keyed))
        return left <= part * sum(
            self.model.lookup_ns(offer) for offer in rest if not self.lookups.knows(offer)
        )

    # -- all blocks ---------------------------------------------------------------------------

    def _spans(self, found: Mapping[int, Ints]) -> Spans | PartitionSpans:
        if self.keys is None:
            return Spans.of(*stretches(self.lookups, found)[1:]) if found else Spans.empty()
        none = np.zeros(0, np.int64)
        code, low, high = none, none, none
        if found:
            code, low, high = stretches(self.lookups, found, self.codes, self.keys.count)
        return PartitionSpans.of(self.keys, code, low, high, self.stride)

    def _with_all_blocks(self, spans: PartitionSpans) -> PartitionSpans:
        """The intervals that hold an occurrence of each block."""
        inside = spans.inside
        held = np.ones(len(inside), np.bool_)
        for block, at in self.found.items():
            here = np.zeros(len(inside), np.bool_)
            places = self.codes[block] * self.stride + at
            here[np.searchsorted(inside.starts, places, side="right") - 1] = True
            held &= here
        return replace(spans, inside=Spans(inside.starts[held], inside.ends[held]))

    def _neighbours(self, spans: PartitionSpans) -> PartitionSpans | None:
        wants, stride, starts = self.context.wants, spans.stride, spans.inside.starts
        code = starts // stride
        low, high = starts - code * stride, spans.inside.ends - code * stride
        around = rows_beside(
            spans.keys, self.timeline.total, (code, low, high), wants.before, wants.after
        )
        if around is None:
            return None
        parts = [(code * stride + rows)[rows >= 0] for rows in around]
        places = np.concatenate(parts)
        return replace(spans, shown=Spans.of(places, places + 1))

    # -- columns with one value ---------------------------------------------------------------

    def _coded(self, allowed: Spans) -> Spans:
        wanted: list[tuple[tuple[str, ...], frozenset[str] | None]]
        wanted = [((one.column,), one.variables) for one in self.pattern.shared]
        if self.keys is not None:
            wanted = [(self.keys.columns, None)]
        for columns, variables in wanted:
            coded = coded_spans(self.lookups, columns, variables)
            if coded is not None:
                allowed = allowed.intersect(coded)
        return allowed

    def _of_one_value(self, spans: Spans) -> tuple[Spans, SharedColumn] | None:
        """Spans of candidates with one value of a shared column; None if not worth it."""
        found, total = self.found, self.timeline.total
        if self.pattern.within is None or len(found) < 2 or spans.total < WORTH_EVENTS:
            return None
        shared, places = self._shared_by(found)
        if shared is None:
            return None
        rows = {block: at + places[block] for block, at in found.items()}
        rows = {block: at[at < total] for block, at in rows.items()}
        read = sum(
            int(at[high - 1] - at[low]) + 1
            for at in rows.values()
            for low, high in near(at, NEAR_EVENTS)
        )
        if read > COLUMN_SHARE * spans.total:
            return None
        keys = PartitionKeys(self.timeline, (shared.column,), self.context.schema)
        starts: dict[int, Ints] = {}
        codes: dict[int, Ints] = {}
        for block in sorted(found, key=lambda number: len(found[number])):
            self.context.check()
            of = keys.codes_at(rows[block]) if codes else keys.learn(rows[block])
            known = np.flatnonzero(of >= 0)
            arranged = known[order_of(of[known])]
            starts[block], codes[block] = rows[block][arranged] - places[block], of[arranged]
        _, low, high = stretches(self.lookups, starts, codes, keys.count)
        return Spans.of(low, high).intersect(spans), shared

    def _shared_by(self, found: Collection[int]) -> tuple[SharedColumn | None, dict[int, int]]:
        """A column that all blocks share, and the symbol of each block that has it."""
        for one in self.pattern.shared:
            places = {}
            for number in found:
                names = [symbol.name for symbol in self.pattern.blocks[number].symbols]
                inside = [i for i, name in enumerate(names) if name in one.variables]
                if inside:
                    places[number] = inside[0]
            if len(places) == len(found):
                return one, places
        return None, {}


def _hull(spans: Spans | PartitionSpans) -> Spans:
    return spans.hull() if isinstance(spans, PartitionSpans) else spans


def _inside(places: Ints, spans: Spans) -> npt.NDArray[np.bool_]:
    return Spans(places, places + 1).touches(spans)
