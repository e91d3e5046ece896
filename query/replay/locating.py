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

from ...core.sorting import distinct, order_of
from ...core.times import moved
from .candidates import find_candidates, in_any_order
from .coded_spans import coded_spans
from .cost import CostModel
from .lookups import Lookups
from .offers import Offer
from .partitions import PartitionKeys, PartitionSpans, RowFlags, rows_beside
from .spans import Spans
from .symbols import SharedColumn
from .timeline import Timeline

Ints = npt.NDArray[np.int64]

DENSE = 64
"""Occurrences per chunk from which on a block is assumed to occur throughout."""
WORTH_EVENTS = 1 << 13
"""Events in intervals from which on reading a shared column is worth it."""


@dataclass(frozen=True)
class Located:
    """The result of lookups; ``spans`` contain every match (None: ``reason`` says why not).
    ``used``: terms looked up; ``shared``: the column of which candidates have one value;
    ``deciding``: ascending positions in ``spans`` of the stream, if no others matter.
    """

    spans: Spans | PartitionSpans | None
    used: tuple[Offer, ...] = ()
    shared: SharedColumn | None = None
    reason: str = ""
    deciding: Ints | None = None


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
        [found[number] for number in used], at, timeline, within, longest,
        codes=None if codes is None else [codes[number] for number in used],
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
        self.learned = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def run(self) -> Located:
        if self.keys is not None and self.pattern.within is None:
            found = self._by_rows(self.keys)
            self.keys.forget()
            return found
        spans, used = self._by_time()
        near = self._around(self.found).intersect(spans)
        self.found = {block: at[_inside(at, near)] for block, at in self.found.items()}
        if self.keys is not None:
            one_key = self._of_one_key(self.keys, self.found, dict.fromkeys(self.found, 0))
            return self._shown(PartitionSpans.of(self.keys, *one_key, self.stride), near, used)
        if self._tell_all():
            every = distinct(np.concatenate(list(self.found.values())))
            return Located(near, used, deciding=every)
        shared = self._of_one_value(near)
        return Located(near, used) if shared is None else Located(shared[0], used, shared[1])

    def _by_time(self) -> tuple[Spans, tuple[Offer, ...]]:
        """Look up blocks, each where those before can be reached, whatever their partitions."""
        spans, used = self._coded(self.lookups.coarse.allowed), self.lookups.picked
        order = self.lookups.order()
        for number, block in enumerate(order):
            self.context.check()
            at = self.found[block] = self.lookups.occurrences(block, spans)
            if not len(at):
                return Spans.empty(), used
            if block != order[-1] and len(at) <= DENSE * len(self.lookups.chunks):
                spans = spans.intersect(self._around({block: at}))
            rest = [offer for offer in used if offer.block in order[number + 1 :]]
            if rest and self._enough(spans, spans.total, rest):
                return spans, tuple(offer for offer in used if offer not in rest)
        return spans, used

    def _by_rows(self, keys: PartitionKeys) -> Located:
        """Look up blocks of a pattern that bounds only the events of a match in its partition."""
        spans, used = self._coded(self.lookups.coarse.allowed), self.lookups.picked
        order = self.lookups.order()
        reach: PartitionSpans | None = None
        for number, block in enumerate(order):
            self.context.check()
            at = self.lookups.occurrences(block, spans)
            if reach is None:
                of = keys.learn(at)
            else:
                at, of = self._in_reach(at, keys, reach)
            if not len(at):
                none = np.zeros(0, np.int64)
                return Located(PartitionSpans.of(keys, none, none, none, self.stride), used)
            arranged = order_of(of)
            self.found[block], self.codes[block] = at[arranged], of[arranged]
            if reach is None:
                reach = self._rows_around(block, keys)
            if reach is None:
                far = "rows of the same partition may lie far away from one another"
                return Located(None, reason=far)
            spans = spans.intersect(reach.hull())
            rest = [offer for offer in used if offer.block in order[number + 1 :]]
            if rest and self._enough(spans, reach.inside.total, rest):
                used = tuple(offer for offer in used if offer not in rest)
                break
        assert reach is not None
        return self._shown(self._with_all_blocks(reach), spans, used)

    def _shown(self, found: PartitionSpans, spans: Spans, used: tuple[Offer, ...]) -> Located:
        """Intervals of partitions, with the rows around them that conditions look at."""
        found = found.intersect(spans)
        if not self.context.wants.neighbours and self.pattern.within is not None:
            return Located(self._decided(found), used)
        shown = self._neighbours(found)
        if shown is None:
            return Located(None, reason="the rows next to intervals may lie far away")
        return Located(shown, used)

    def _decided(self, found: PartitionSpans) -> PartitionSpans:
        """The intervals, with the only events in them that matter if the lookups tell these."""
        if not self._tell_all():
            return found
        positions, codes = self.learned
        there = RowFlags(found).of(codes, positions) > 0
        return replace(found, deciding=(positions[there], codes[there]))

    def _tell_all(self) -> bool:
        """Whether the lookups tell all events that matter."""
        names, blocks = self.context.wants.deciding, self.pattern.blocks
        single = all(len(block.symbols) == 1 for block in blocks) and len(self.found) == len(blocks)
        return single and bool(names) and names.issubset(s.name for s in self.pattern.symbols)

    # -- blocks -------------------------------------------------------------------------------

    def _around(self, found: Mapping[int, Ints]) -> Spans:
        """Spans of the candidates of some blocks, whatever their partitions."""
        if not all(map(len, found.values())):
            return Spans.empty()
        return Spans.of(*stretches(self.lookups, found)[1:])

    def _of_one_key(
        self, keys: PartitionKeys, found: Mapping[int, Ints], places: Mapping[int, int]
    ) -> tuple[Ints, Ints, Ints]:
        """``stretches`` of candidates with one key; ``places``: the symbol of each block that has
        it.
        """
        none = np.zeros(0, np.int64)
        if not all(map(len, found.values())):
            return none, none, none
        total = self.timeline.total
        found = {block: at[at + places[block] < total] for block, at in found.items()}
        rows = {block: at + places[block] for block, at in found.items()}
        every = distinct(np.concatenate(list(rows.values())))
        learned = keys.learn(every)
        self.learned = every, learned
        starts: dict[int, Ints] = {}
        codes: dict[int, Ints] = {}
        for block, at in found.items():
            of = learned[np.searchsorted(every, rows[block])]
            order = order_of(of)
            starts[block], codes[block] = at[order], of[order]
        return stretches(self.lookups, starts, codes, keys.count)

    def _in_reach(self, at: Ints, keys: PartitionKeys, reach: PartitionSpans) -> tuple[Ints, Ints]:
        """Occurrences whose partition has an interval where they are, and their codes."""
        of, inside = keys.codes_at(at), reach.inside
        places = of * self.stride + at
        number = np.searchsorted(inside.starts, places, side="right") - 1
        there = (of >= 0) & (number >= 0) & (places < inside.ends[number])
        return at[there], of[there]

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

    def _enough(self, spans: Spans, keyed: int, rest: Collection[Offer]) -> bool:
        """Whether replaying spans, with ``keyed`` events of their partitions, costs less than
        looking up the rest.
        """
        if self.model is None:
            return False
        chunks = self.lookups.bounds
        chunks_allowed = max(1, int(chunks.touches(self.lookups.coarse.allowed).sum()))
        part = float(chunks.touches(spans).sum()) / chunks_allowed
        left = self.model.spans_ns(spans.joined(self.context.gap), keyed)
        return left <= part * sum(
            self.model.lookup_ns(offer) for offer in rest if not self.lookups.knows(offer)
        )

    # -- all blocks ---------------------------------------------------------------------------

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
        candidates = self.found
        if self.pattern.within is None or len(candidates) < 2 or spans.total < WORTH_EVENTS:
            return None
        shared, places = self._shared_by(candidates)
        if shared is None:
            return None
        if sum(map(len, candidates.values())) > spans.total:
            return None
        keys = PartitionKeys(self.timeline, (shared.column,), self.context.schema)
        _, low, high = self._of_one_key(keys, candidates, places)
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


def _inside(places: Ints, spans: Spans) -> npt.NDArray[np.bool_]:
    return Spans(places, places + 1).touches(spans)
