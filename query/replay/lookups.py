"""Look up chosen terms in index runs or, where there are none, in the events.

Each term is looked up once per chunk, also for the alternatives of a pattern, as a bitmap that
``mark_shifted`` moves to the block's start.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.times import moved
from ...indexes.index_key import index_key
from ...indexes.lookup import KeyRanges, excluded, mark_run
from ...indexes.runs import Run
from .candidates import Arrangement, Bits, LookupRange, mark_events, mark_shifted, positions_inside
from .coarse import CoarseMap
from .context import PlanContext
from .offers import Offer
from .spans import Spans
from .terms import Term

Ints = npt.NDArray[np.int64]
EVALUATED_EVENTS = 1 << 17
"""Positions without an index that are evaluated per batch."""


def _unindexed(chunks: Sequence[LookupRange], total: int) -> list[LookupRange]:
    """The base events outside of some chunks, in pieces of ``EVALUATED_EVENTS``."""
    rest = Spans.of([c.start for c in chunks], [c.end for c in chunks]).complement(total)
    return [
        LookupRange(at, min(end, at + EVALUATED_EVENTS), {})
        for start, end in zip(rest.starts.tolist(), rest.ends.tolist(), strict=True)
        for at in range(start, end, EVALUATED_EVENTS)
    ]


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
        chunks = context.chunks(sorted(names & set(context.indexed)))
        indexed = sum(chunk.end - chunk.start for chunk in chunks)
        chunks = sorted(chunks + _unindexed(chunks, context.total), key=lambda chunk: chunk.start)
        bounds = Spans(
            np.array([chunk.start for chunk in chunks], np.int64),
            np.array([chunk.end for chunk in chunks], np.int64),
        )
        return cls(context, coarse, tuple(picked), chunks, bounds, indexed)

    def knows(self, offer: Offer) -> bool:
        return any(self.context.looked_up.knows(_key(offer.term, c)) for c in self.chunks)

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
        before = [used[0], *(number + 1 for number in used[:-1])]
        return Arrangement(
            [lengths[number] for number in used],
            [sum(lengths[low:number]) for low, number in zip(before, used, strict=True)],
            sum(lengths[: used[0]]),
            sum(lengths[used[-1] + 1 :]),
            pattern.leading or used[0] > 0,
            pattern.trailing or used[-1] < len(lengths) - 1,
        )

    def occurrences(self, block: int, spans: Spans, inside: Spans | None = None) -> Ints:
        """Ascending starts of a block, in the chunks that ``spans`` touch and within ``inside``."""
        context = self.context
        taken = [self.chunks[i] for i in np.flatnonzero(self.bounds.touches(spans)).tolist()]
        if not taken:
            return np.zeros(0, np.int64)
        terms = sorted((o for o in self.picked if o.block == block), key=lambda o: o.entries)
        # the bitmap goes from the first to the last position at which the block can begin
        origin = max(0, taken[0].start - max(offer.offset for offer in terms)) // 64 * 64
        size = min(context.total, taken[-1].end) - origin
        bits = np.zeros((size + 63) // 64, np.uint64)
        for number, offer in enumerate(terms):
            target = np.zeros_like(bits) if number else bits
            for chunk in taken:
                if number:
                    low = max(0, chunk.start - offer.offset - origin)
                    needed = bool(bits[low >> 6 : ((chunk.end - 1 - origin) >> 6) + 1].any())
                else:
                    needed = self.coarse.may_hold(offer.symbol, chunk.start, chunk.end)
                if not needed:
                    context.metrics.runs_skipped += 1
                    continue
                base = chunk.start // 64 * 64
                mark_shifted(self._bits(offer.term, chunk), base - offer.offset - origin, target)
            if number:
                bits &= target
        return positions_inside(bits, origin, size, inside)

    def _bits(self, term: Term, chunk: LookupRange) -> Bits:
        """The events of a chunk that satisfy a term, from the word that the chunk begins in."""
        return self.context.looked_up.once(_key(term, chunk), lambda: self._marked(term, chunk))

    def _marked(self, term: Term, chunk: LookupRange) -> Bits:
        context, base = self.context, chunk.start // 64 * 64
        size = chunk.end - base
        bits = np.zeros((size + 63) // 64, np.uint64)
        for name in term.attributes:
            run = chunk.runs.get(name)
            if run is None:
                atoms = [atom for atom in term.atoms if atom.column == name]
                context.metrics.events_evaluated += mark_events(
                    context.timeline, context.schema, atoms, chunk.start, chunk.end, base, bits,
                    size, term.inside,
                )  # fmt: skip
                continue
            keys, absent = self._keys(term, name), self._absent_until(run, chunk, term)
            if excluded(run, keys, absent):
                context.metrics.runs_skipped += 1
                continue
            # a run may hold positions that are newer than this snapshot, beyond the chunk
            mark_run(run, keys, chunk.origin - base, bits, size, context.metrics, absent)
        return bits

    def _keys(self, term: Term, name: str) -> KeyRanges:
        context, indexes = self.context, self.context.indexes
        assert indexes is not None
        atoms = [atom for atom in term.atoms if atom.column == name]
        attribute = index_key(name, context.schema).attribute
        which = ("keys", name, term)  # one for all chunks, whose runs share the ranges
        return context.looked_up.once(which, lambda: KeyRanges(indexes, atoms, attribute))

    def _absent_until(self, run: Run, chunk: LookupRange, term: Term) -> int | None:
        """Run position from which on all that events can look back at is indexed."""
        timeline = self.context.timeline
        seen = chunk.origin - run.first + run.seen
        if not run.absent or not seen:
            return 0
        if term.inside is None:
            return None
        tick = moved(timeline.ticks_at(np.array([seen], np.int64)), term.inside)
        return max(0, int(timeline.upper(tick)[0]) - chunk.origin)


def _key(term: Term, chunk: LookupRange) -> Hashable:
    return "term", term, chunk.start, chunk.end
