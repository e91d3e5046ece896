"""Look up chosen terms in index runs or, where there are none, in the events.

The first merge of ``candidates``: a term of a block sets the bit at ``event position - place of its
symbol in the block``, and the bitmaps of a block's terms are joined by AND.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.times import moved
from ...indexes.index_key import index_key
from ...indexes.keys import positions_of_bits
from ...indexes.lookup import KeyRanges, excluded, mark_run
from ...indexes.runs import Run
from .candidates import Arrangement, LookupRange, keep_inside, mark_events, unindexed
from .coarse import CoarseMap
from .context import PlanContext
from .offers import Offer
from .spans import Spans
from .terms import Term
from .timeline import Timeline

Bits = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lookups:
    """The stream in ``chunks``, with index runs or to be evaluated.  ``bounds`` are those of the
    chunks; ``indexed``: base events in chunks with runs.
    """

    context: PlanContext
    coarse: CoarseMap
    picked: tuple[Offer, ...]
    chunks: list[LookupRange]
    bounds: Spans
    indexed: int

    @classmethod
    def of(cls, context: PlanContext, coarse: CoarseMap, picked: Sequence[Offer]) -> Lookups:
        names = {name for offer in picked for name in offer.term.attributes}
        columns = sorted(names & set(context.indexed))
        chunks = context.chunks(columns)
        indexed = sum(chunk.end - chunk.start for chunk in chunks)
        chunks = sorted(chunks + unindexed(chunks, context.total), key=lambda chunk: chunk.start)
        bounds = Spans(
            np.array([chunk.start for chunk in chunks], np.int64),
            np.array([chunk.end for chunk in chunks], np.int64),
        )
        return cls(context, coarse, tuple(picked), chunks, bounds, indexed)

    def order(self) -> list[int]:
        """Blocks with a term, rarest first."""

        def share(block: int) -> float:
            rate = 1.0
            for offer in self.picked:
                if offer.block == block:
                    rate *= max(offer.share, 1e-12)
            return rate

        return sorted({offer.block for offer in self.picked}, key=share)

    def arranged(self, used: Sequence[int]) -> Arrangement:
        pattern = self.context.pattern
        lengths = [len(block.symbols) for block in pattern.blocks]
        between = [
            sum(lengths[used[i - 1] + 1 : number]) if i else 0 for i, number in enumerate(used)
        ]
        return Arrangement(
            np.array([lengths[number] for number in used], np.int64),
            np.array(between, np.int64),
            sum(lengths[: used[0]]),
            sum(lengths[used[-1] + 1 :]),
            pattern.leading or used[0] > 0,
            pattern.trailing or used[-1] < len(lengths) - 1,
        )

    def occurrences(self, block: int, spans: Spans) -> Ints:
        """Ascending positions in ``spans`` at which a block begins."""
        context, metrics = self.context, self.context.metrics
        wanted = self.bounds.touches(spans)
        taken = [self.chunks[i] for i in np.flatnonzero(wanted)]
        if not taken:
            return np.zeros(0, np.int64)
        offers = sorted((o for o in self.picked if o.block == block), key=lambda o: o.entries)
        # the bitmap goes from the first to the last position at which the block can begin
        reach = max(offer.offset for offer in offers)
        origin = max(0, taken[0].start - reach) // 64 * 64
        size = min(context.total, taken[-1].end) - origin
        bits = np.zeros((size + 63) // 64, np.uint64)
        for number, offer in enumerate(offers):
            keys = self._keys_of(offer.term)
            target = np.zeros_like(bits) if number else bits
            for chunk in taken:
                if number:
                    low = max(0, chunk.start - offer.offset - origin)
                    useful = bool(bits[low >> 6 : ((chunk.end - 1 - origin) >> 6) + 1].any())
                else:
                    useful = self.coarse.may_hold(offer.symbol, chunk.start, chunk.end)
                if not useful:
                    metrics.runs_skipped += 1
                    continue
                self._mark(offer.term, chunk, keys, offer.offset + origin, size, target)
            if number:
                bits &= target
        here = spans.clip(origin, origin + size)
        keep_inside(bits, here.starts - origin, here.ends - origin)
        out = np.empty(int(np.bitwise_count(bits).sum()), np.int64)
        positions_of_bits(bits, origin, out)
        return out

    def _keys_of(self, term: Term) -> dict[str, KeyRanges]:
        indexes, schema = self.context.indexes, self.context.schema
        if indexes is None:
            return {}
        return {
            name: KeyRanges(indexes, term.atoms_on(name), index_key(name, schema).attribute)
            for name in term.attributes
        }

    def _mark(
        self,
        term: Term,
        chunk: LookupRange,
        keys: dict[str, KeyRanges],
        place: int,
        size: int,
        target: Bits,
    ) -> None:
        """Set the bits of a chunk's events that satisfy a term, ``place`` before them."""
        context, metrics = self.context, self.context.metrics
        for name in term.attributes:
            run = chunk.runs.get(name)
            if run is None:
                metrics.events_evaluated += mark_events(
                    context.timeline, context.schema, term.atoms_on(name), chunk.start, chunk.end,
                    place, target, size, term.inside,
                )  # fmt: skip
                continue
            absent = _absent_until(run, chunk, term.inside, context.timeline)
            if excluded(run, keys[name], absent):
                metrics.runs_skipped += 1
                continue
            # a run may hold positions that are newer than this snapshot, beyond the chunk
            last = min(size, chunk.end - place)
            mark_run(run, keys[name], chunk.origin - place, target, last, metrics, absent)


def _absent_until(
    run: Run, chunk: LookupRange, inside: int | None, timeline: Timeline
) -> int | None:
    """Run position from which on all that events can look back at (``inside`` ticks) is indexed."""
    seen = chunk.origin - run.first + run.seen
    if not run.absent or not seen:
        return 0
    if inside is None:
        return None
    until = timeline.upper(moved(timeline.ticks_at(np.array([seen], np.int64)), inside))
    return max(0, int(until[0]) - chunk.origin)
