"""From chosen terms to what is replayed: candidates, intervals, late events, neighbours.

Purpose
    :class:`Locator` looks chosen terms up and fills in a plan: spans of the stream, or, under
    PARTITION BY, spans of single partitions.

Layout
    ::

        terms -> occurrences -> candidates -> intervals -> + late events, joined   the whole stream
        terms -> occurrences -> partition codes (rarest first; the next symbol's
                 occurrences only where an interval of their partition is)
                 -> candidates per partition -> intervals per partition            PARTITION BY
                 -> + neighbouring rows where the clause looks at them

    Within a partition events are found by time; where the pattern is bounded by its number of
    events alone, by their places in the partition, which takes two passes over the PARTITION BY
    columns, as looking for neighbours does.

Guarantee
    What is filled in contains every match of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...indexes.stream_indexes import Catalogue, StreamIndexes
from ...store.snapshot import Snapshot
from .applicability import Demands
from .candidates import (
    Candidates,
    ChosenBlock,
    ChosenTerm,
    Chunk,
    Offer,
    chunks_of,
    find_candidates,
    in_any_order,
    occurrences,
    unindexed,
)
from .coarse import CoarseMap
from .intervals import candidate_spans, dirty_spans, shift
from .partition_keys import PartitionKeys
from .partition_spans import PartitionSpans, RowFlags, positions, ranks
from .replay_plan import ReplayPlan
from .spans import Spans
from .symbols import Outline
from .timeline import Timeline

__all__ = ["READ_GAP", "Judge", "Locator", "ReplayIsCheaper"]

Ints = npt.NDArray[np.int64]

DENSE = 64
"""Occurrences of a block in a chunk from which it is clear that they lie all over it."""
READ_GAP = 2048
"""Events between two spans that are read, not skipped: beginning a span costs about as much."""


class ReplayIsCheaper(Exception):
    """What lookups have found so far says that the whole stream had better be replayed."""


class Judge(Protocol):
    """Decides, with what lookups have found, whether further ones are worth it."""

    def hopeless(self, block: int, occurrences: int) -> bool:
        """Whether a block occurs so often that a replay is expected to be cheaper."""

    def enough(self, spans: Spans, rest: Sequence[tuple[Offer, float]]) -> bool:
        """Whether replaying spans costs less than looking up the rest.

        Parameters
        ----------
        spans : Spans
            They contain every match.
        rest : sequence of (Offer, float)
            Terms that are not looked up yet, each with the part of its runs that would be read.
        """


class Locator:
    """See the module.

    Parameters
    ----------
    snapshot : Snapshot
    timeline : Timeline
        Of the snapshot.
    pattern : Outline
    coarse : CoarseMap
    wants : Demands
    indexes, catalogue : optional
    plan : ReplayPlan
        Filled in.
    check : callable
        Called between steps; may raise.
    gap : int
        Spans nearer than this are joined.
    judge : Judge, optional
        Asked after each lookup whether to go on; without one all are made.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        timeline: Timeline,
        pattern: Outline,
        coarse: CoarseMap,
        wants: Demands,
        indexes: StreamIndexes | None,
        catalogue: Catalogue | None,
        plan: ReplayPlan,
        check: Callable[[], None],
        gap: int,
        judge: Judge | None = None,
    ) -> None:
        self.judge = judge
        self.snapshot = snapshot
        self.timeline = timeline
        self.pattern = pattern
        self.coarse = coarse
        self.wants = wants
        self.indexes = indexes
        self.catalogue = catalogue
        self.plan = plan
        self.check = check
        self.gap = gap

    def run(self, picked: Sequence[Offer]) -> None:
        """Fill the plan in: all of the coarse map's leaves where nothing is picked."""
        if not picked:
            self._finish(self.coarse.allowed)
        elif self.wants.partition_by:
            self._finish_partitions(self._partitioned(picked))
        else:
            self._finish(self._lookup(picked))

    # -- without partitions -------------------------------------------------------------------

    def _chunks(self, picked: Sequence[Offer]) -> list[Chunk]:
        """The stream in pieces: with runs where there are some, else to be looked at."""
        names = {name for offer in picked for name in offer.term.attributes}
        chunks: list[Chunk] = []
        if self.catalogue is not None and (known := names & set(self.catalogue.attributes)):
            chunks = chunks_of(self.catalogue, self.timeline, sorted(known))
        self.plan.covered = sum(c.end - c.start for c in chunks) / self.timeline.total
        return sorted(
            chunks + unindexed(chunks, self.timeline.total), key=lambda chunk: chunk.start
        )

    def _lookup(self, picked: Sequence[Offer]) -> Spans:
        """Intervals of the candidates of chosen terms."""
        chunks = self._chunks(picked)
        each = Spans(
            np.array([chunk.start for chunk in chunks], np.int64),
            np.array([chunk.end for chunk in chunks], np.int64),
        )
        found: dict[int, Ints] = {}
        spans = self.coarse.allowed
        order = sorted({offer.block for offer in picked}, key=lambda b: _rarity(picked, b))
        asked = max(1, int(each.touches(spans).sum()))
        for number, block in enumerate(order):
            self.check()
            found[block] = self._occurrences(self._block(picked, block), chunks, each, spans)
            if not len(found[block]):
                return Spans.empty()
            if self.judge is not None and self.judge.hopeless(block, len(found[block])):
                raise ReplayIsCheaper
            if block == order[-1]:
                break  # nothing is looked up after it
            if len(found[block]) > DENSE * len(chunks):
                reach = self._reach_of(found[block], each)
            else:
                reach = self._spans({block: found[block]}, picked)
            spans = spans.intersect(reach)
            if self.judge is not None:
                part = float(each.touches(spans).sum()) / asked
                left = order[number + 1 :]
                rest = [(offer, part) for offer in picked if offer.block in left]
                if self.judge.enough(spans, rest):
                    self.plan.picked = [offer for offer in picked if offer.block not in left]
                    return spans
        return self._spans(found, picked).intersect(self.coarse.allowed)

    def _reach_of(self, places: Ints, each: Spans) -> Spans:
        """What matches with an event at some places can reach, chunk by chunk.

        Says which chunks matter at all at the cost of two times each, where finding the interval
        of every place would cost more than it spares.
        """
        first = np.searchsorted(places, each.starts)
        end = np.searchsorted(places, each.ends)
        held = np.flatnonzero(end > first)
        low, high = places[first[held]], places[end[held] - 1]
        starts, ends = np.zeros(len(held), np.int64), np.full(len(held), self.timeline.total)
        within, longest = self.pattern.within, self.pattern.longest
        if within is not None:
            starts = self.timeline.lower(shift(self.timeline.ticks_at(low), -within))
            ends = self.timeline.upper(shift(self.timeline.ticks_at(high), within))
        if longest is not None:
            starts = np.maximum(starts, low - longest + 1)
            ends = np.minimum(ends, high + longest)
        return Spans.of(starts, ends)

    def _occurrences(
        self,
        block: ChosenBlock,
        chunks: Sequence[Chunk],
        each: Spans,
        spans: Spans,
        inside: Spans | None = None,
    ) -> Ints:
        return occurrences(
            block, chunks, each.touches(spans), self.timeline, self.indexes, self.snapshot.schema,
            self.coarse, self.plan.metrics, inside,
        )  # fmt: skip

    def _block(
        self,
        picked: Sequence[Offer],
        number: int,
        between: int = 0,
        pattern: Outline | None = None,
    ) -> ChosenBlock:
        pattern = pattern or self.pattern
        terms = sorted((o for o in picked if o.block == number), key=lambda o: o.entries)
        return ChosenBlock(
            tuple(ChosenTerm(o.term, o.symbol, o.offset) for o in terms),
            len(pattern.blocks[number].symbols),
            between,
        )

    def _arranged(
        self, used: Sequence[int], picked: Sequence[Offer], pattern: Outline
    ) -> tuple[list[ChosenBlock], int, int, bool, bool]:
        """Chosen blocks, symbols before and after them, and whether gaps are there."""
        lengths = [len(block.symbols) for block in pattern.blocks]
        blocks = []
        for i, number in enumerate(used):
            between = sum(lengths[used[i - 1] + 1 : number]) if i else 0
            blocks.append(self._block(picked, number, between, pattern))
        before, after = sum(lengths[: used[0]]), sum(lengths[used[-1] + 1 :])
        leading = pattern.leading or used[0] > 0
        trailing = pattern.trailing or used[-1] < len(lengths) - 1
        return blocks, before, after, leading, trailing

    def _spans(self, found: dict[int, Ints], picked: Sequence[Offer]) -> Spans:
        """Intervals of the candidates made of some blocks."""
        pattern, timeline = self.pattern, self.timeline
        used = sorted(found)
        blocks, before, after, leading, trailing = self._arranged(used, picked, pattern)
        candidates = find_candidates(
            [found[number] for number in used], blocks, before, after, timeline, pattern.within,
            pattern.longest, ties=self.wants.ties,
        )  # fmt: skip
        spans = candidate_spans(
            candidates, timeline, leading, trailing, pattern.within, pattern.longest
        )
        return whole_ticks(spans, timeline) if self.wants.ties else spans

    # -- per partition ------------------------------------------------------------------------

    def _partitioned(self, picked: Sequence[Offer]) -> PartitionSpans:
        """Intervals of the candidates of each partition."""
        timeline = self.timeline
        chunks = self._chunks(picked)
        each = Spans(
            np.array([chunk.start for chunk in chunks], np.int64),
            np.array([chunk.end for chunk in chunks], np.int64),
        )
        keys = PartitionKeys(timeline, self.wants.partition_by, self.snapshot.schema)
        none = np.zeros(0, np.int64)
        nothing = PartitionSpans.of(keys, none, none, none, timeline.total + 1)
        found: dict[int, Ints] = {}
        codes: dict[int, Ints] = {}
        reach: PartitionSpans | None = None
        order = sorted({offer.block for offer in picked}, key=lambda b: _rarity(picked, b))
        for block in order:
            self.check()
            spans = self.coarse.allowed
            if reach is not None and self.pattern.within is not None:
                spans = spans.intersect(reach.hull())
            at = self._occurrences(self._block(picked, block), chunks, each, spans, spans)
            if reach is None:
                of = keys.learn(at)
            else:
                at, of = self._in_reach(at, None if self.pattern.within is None else reach, keys)
            arranged = np.argsort(of, kind="stable")
            found[block], codes[block] = at[arranged], of[arranged]
            if not len(at):
                return nothing
            if self.pattern.within is None:
                reach = nothing
                continue
            reach = self._intervals({block: found[block]}, {block: codes[block]}, picked, keys)
        if self.pattern.within is None:
            result = self._by_rank(found, codes, picked, keys)
        else:
            result = self._intervals(found, codes, picked, keys)
            result = result.intersect(self.coarse.allowed)
            if self.wants.neighbours:
                result = self._with_neighbours(result)
        return result

    def _in_reach(
        self, at: Ints, reach: PartitionSpans | None, keys: PartitionKeys
    ) -> tuple[Ints, Ints]:
        """Occurrences whose partition has an interval where they are, and their codes."""
        kept, codes = [], []
        flags = None if reach is None else RowFlags(reach)
        step = 1 << 20
        for low in range(0, len(at), step):
            some = at[low : low + step]
            of = keys.codes_at(some)
            known = of >= 0
            if flags is not None:
                known &= flags.at(of, some) > 0
            kept.append(some[known])
            codes.append(of[known])
        if not kept:
            return at, at
        return np.concatenate(kept), np.concatenate(codes)

    def _candidates(
        self,
        found: dict[int, Ints],
        codes: dict[int, Ints],
        picked: Sequence[Offer],
        keys: PartitionKeys,
    ) -> tuple[Candidates, bool, bool]:
        pattern = self.pattern
        used = sorted(found)
        blocks, before, after, leading, trailing = self._arranged(used, picked, pattern)
        candidates = find_candidates(
            [found[number] for number in used], blocks, before, after, self.timeline,
            pattern.within, None, codes=[codes[number] for number in used],
            partitions=keys.count, ties=self.wants.ties,
        )  # fmt: skip
        return candidates, leading, trailing

    def _intervals(
        self,
        found: dict[int, Ints],
        codes: dict[int, Ints],
        picked: Sequence[Offer],
        keys: PartitionKeys,
    ) -> PartitionSpans:
        """Intervals in time of the candidates of each partition."""
        timeline, within = self.timeline, self.pattern.within
        assert within is not None
        candidates, leading, trailing = self._candidates(found, codes, picked, keys)
        low, high = candidates.first, candidates.farthest + 1
        if leading:
            ticks = shift(candidates.nearest_ticks, -within)
            low = in_any_order(timeline, ticks, Timeline.lower)
        if trailing:
            ticks = shift(candidates.first_ticks, within)
            high = in_any_order(timeline, ticks, Timeline.upper)
        elif self.wants.ties:
            high = in_any_order(timeline, candidates.farthest_ticks, Timeline.upper)
        return PartitionSpans.of(keys, candidates.partition, low, high, timeline.total + 1)

    def _by_rank(
        self,
        found: dict[int, Ints],
        codes: dict[int, Ints],
        picked: Sequence[Offer],
        keys: PartitionKeys,
    ) -> PartitionSpans:
        """Intervals in places of the partition, for a pattern bounded by its number of events."""
        inner, total = self.pattern.within_partition, self.timeline.total
        assert inner is not None
        assert inner.longest is not None
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
                    at_block[number] = some if known is None else np.intersect1d(known, some)
                symbol += 1
        used = sorted(at_block)
        blocks, before, after, leading, trailing = self._arranged(used, (), inner)
        starts = [np.unique(at_block[number]) for number in used]
        candidates = find_candidates(
            [s % stride for s in starts], blocks, before, after, self.timeline, None, inner.longest,
            codes=[s // stride for s in starts], partitions=keys.count,
        )  # fmt: skip
        low, high = candidates.first, candidates.farthest + 1
        if leading:
            low = np.maximum(candidates.nearest - inner.longest + 1, 0)
        if trailing:
            high = candidates.first + inner.longest
        high = np.minimum(high, events[candidates.partition])
        return self._placed(PartitionSpans.of(keys, candidates.partition, low, high, stride))

    def _with_neighbours(self, spans: PartitionSpans) -> PartitionSpans:
        """The same rows, and those of their partitions right before and after them shown."""
        keys, total, stride = spans.keys, self.timeline.total, spans.stride
        code = spans.inside.starts // stride
        ends = np.concatenate([spans.inside.starts, spans.inside.ends]) - np.tile(code, 2) * stride
        place = ranks(keys, total, np.tile(code, 2), ends)
        low, high = place[: len(code)], place[len(code) :]
        return replace(spans, shown=self._around(keys, code, low, high))

    def _placed(self, spans: PartitionSpans) -> PartitionSpans:
        """Spans of places within partitions as spans of positions, with neighbours shown."""
        keys, stride = spans.keys, spans.stride
        code = spans.inside.starts // stride
        low, high = spans.inside.starts - code * stride, spans.inside.ends - code * stride
        first, last, *around = self._rows(keys, code, [low, high - 1, *self._beside(low, high)])
        inside = Spans.of(code * stride + first, code * stride + last + 1)
        return PartitionSpans(keys, inside, _single(code, around, stride), stride)

    def _around(self, keys: PartitionKeys, code: Ints, low: Ints, high: Ints) -> Spans:
        """Single places of the rows before and after spans of ranks."""
        found = self._rows(keys, code, self._beside(low, high))
        return _single(code, found, self.timeline.total + 1)

    def _beside(self, low: Ints, high: Ints) -> list[Ints]:
        """Ranks of the rows before and after spans of ranks."""
        before, after = self.wants.before, self.wants.after
        return [low - 1 - i for i in range(before)] + [high + i for i in range(after)]

    def _rows(self, keys: PartitionKeys, code: Ints, wanted: list[Ints]) -> list[Ints]:
        """Positions of several ranks of each partition named, in one pass over the keys."""
        codes = np.tile(code, len(wanted))
        found = positions(keys, self.timeline.total, codes, np.concatenate(wanted))
        return np.split(found, len(wanted))

    # -- what is replayed ---------------------------------------------------------------------

    def _finish_partitions(self, found: PartitionSpans) -> None:
        """Hull of the partitions' intervals, with late events' surroundings for all partitions."""
        plan = self.plan
        plan.before = plan.after = 0
        plan.partitions = found
        hull = found.hull()
        plan.needed = hull.total
        dirty, by_time = self._dirty(Spans.empty(), 0)
        rest = hull.joined(self.gap).minus(dirty)
        order = np.argsort(np.concatenate([dirty.starts, rest.starts]), kind="stable")
        plan.spans = Spans(
            np.concatenate([dirty.starts, rest.starts])[order],
            np.concatenate([dirty.ends, rest.ends])[order],
        )
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        plan.by_time = {int(place[number]): ticks for number, ticks in by_time.items()}

    def _finish(self, spans: Spans) -> None:
        """Add what late events make unsure, join near spans, and fix which are read by time."""
        plan = self.plan
        if self.wants.ties:
            spans = whole_ticks(spans, self.timeline)
        if self.wants.partition_by and not self.wants.neighbours:
            plan.before = plan.after = 0
        plan.needed = spans.total
        plan.spans, plan.by_time = self._dirty(spans, max(self.gap, plan.before + plan.after))

    def _dirty(self, spans: Spans, gap: int) -> tuple[Spans, dict[int, tuple[int, int]]]:
        """Spans joined with those near late events, and which of them are read by what ticks."""
        timeline, pattern = self.timeline, self.pattern
        dirty = self.snapshot.dirty_ranges()
        by_time: dict[int, tuple[int, int]] = {}
        if not dirty:
            return spans.joined(gap), by_time
        unsure, first, last = dirty_spans(dirty, timeline, pattern.within, pattern.longest)
        spans = whole_ticks(spans.union(unsure), timeline).joined(gap)
        hit = spans.touches(unsure)
        places, untils = timeline.lower(first), timeline.upper(last)
        for number in np.flatnonzero(hit).tolist():
            start, end = int(spans.starts[number]), int(spans.ends[number])
            low, high = timeline.tick(start), timeline.tick(end - 1)
            # late events in reach may lie before the first or after the last base event of the span
            near = np.flatnonzero((places <= end) & (untils >= start))
            if len(near):
                low, high = min(low, int(first[near].min())), max(high, int(last[near].max()))
            by_time[number] = (low, high)
        return spans, by_time


def _single(code: Ints, found: Sequence[Ints], stride: int) -> Spans:
    """The places of single rows; those that are not there are negative."""
    parts = [(code * stride + rows)[rows >= 0] for rows in found]
    place = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return Spans.of(place, place + 1)


def whole_ticks(spans: Spans, timeline: Timeline) -> Spans:
    """Spans that begin and end between two times."""
    if not len(spans):
        return spans
    first = timeline.lower(timeline.ticks_at(spans.starts))
    end = timeline.upper(timeline.ticks_at(spans.ends - 1))
    return Spans.of(first, end)


def _rarity(picked: Sequence[Offer], block: int) -> float:
    rate = 1.0
    for offer in picked:
        if offer.block == block:
            rate *= max(offer.share, 1e-12)
    return rate
