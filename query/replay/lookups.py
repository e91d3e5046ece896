"""Look up chosen terms in index runs or, where there are none, in the events.

Each term is looked up once per chunk, also for the alternatives of a pattern.  What the index says
is gathered in a bitmap of the chunk; of a rare term its positions are cached instead, so that a
lookup costs the entries, not the events.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.sorting import places_in
from ...core.times import moved
from ...indexes.index_key import index_key
from ...indexes.keys import positions_of_bits
from ...indexes.lookup import KeyRanges, excluded, mark_run
from ...indexes.runs import Run
from .candidates import Arrangement, Bits, LookupRange, mark_events
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

    def occurrences(self, block: int, spans: Spans) -> Ints:
        """Ascending starts of a block within ``spans``."""
        terms = sorted((o for o in self.picked if o.block == block), key=lambda o: o.entries)
        rarest = terms[0]
        taken = [self.chunks[i] for i in np.flatnonzero(self.bounds.touches(spans)).tolist()]
        parts: list[Ints] = [np.zeros(0, np.int64)]
        waiting: list[Ints] = []
        for chunk in taken:
            if not self.coarse.may_hold(rarest.symbol, chunk.start, chunk.end):
                self.context.metrics.runs_skipped += 1
                continue
            waiting.append(_positions(self._marks(rarest.term, chunk), chunk) - rarest.offset)
            if sum(map(len, waiting)) >= EVALUATED_EVENTS:
                parts.append(self._confirmed(waiting, spans, terms[1:], taken))
                waiting = []
        parts.append(self._confirmed(waiting, spans, terms[1:], taken))
        return np.concatenate(parts)

    def _confirmed(
        self, parts: list[Ints], spans: Spans, terms: Sequence[Offer], chunks: Sequence[LookupRange]
    ) -> Ints:
        """The starts of a block within ``spans`` at which further terms hold, too."""
        if not parts:
            return np.zeros(0, np.int64)
        starts = np.concatenate(parts)
        starts = starts[Spans(starts, starts + 1).touches(spans)]
        for offer in terms:
            at = starts + offer.offset
            held = np.zeros(len(at), np.bool_)
            for chunk in chunks:
                low, high = np.searchsorted(at, (chunk.start, chunk.end)).tolist()
                if low == high:
                    self.context.metrics.runs_skipped += 1
                    continue
                held[low:high] = _holds(self._marks(offer.term, chunk), chunk, at[low:high])
            starts = starts[held]
        return starts

    def _marks(self, term: Term, chunk: LookupRange) -> Bits | Ints:
        """The events of a chunk that satisfy a term: ascending positions if they are few, else bits
        from the word that the chunk begins in.
        """

        def looked_up() -> Bits | Ints:
            bits = self._marked(term, chunk)
            count = int(np.bitwise_count(bits).sum())
            return bits if count > len(bits) else _of_bits(bits, chunk, count)

        return self.context.looked_up.once(_key(term, chunk), looked_up)

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


def _of_bits(bits: Bits, chunk: LookupRange, count: int) -> Ints:
    positions = np.empty(count, np.int64)
    positions_of_bits(bits, chunk.start // 64 * 64, positions)
    return positions


def _positions(marks: Bits | Ints, chunk: LookupRange) -> Ints:
    if marks.dtype == np.int64:
        return marks.view(np.int64)
    bits = marks.view(np.uint64)
    return _of_bits(bits, chunk, int(np.bitwise_count(bits).sum()))


def _holds(marks: Bits | Ints, chunk: LookupRange, at: Ints) -> npt.NDArray[np.bool_]:
    """Whether ascending positions of a chunk are among the marked ones."""
    held: npt.NDArray[np.bool_]
    if marks.dtype == np.int64:
        where = places_in(marks.view(np.int64), at)
        held = where < len(marks)
        held[held] = marks[where[held]] == at[held]
        return held
    bit = at - chunk.start // 64 * 64
    words = marks.view(np.uint64)[bit >> 6]
    held = (words >> (bit & 63).view(np.uint64) & np.uint64(1)) != 0
    return held


def _key(term: Term, chunk: LookupRange) -> Hashable:
    return "term", term, chunk.start, chunk.end
