"""Look up chosen terms in index runs or, where there are none, in the events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .candidates import (
    ChosenBlock,
    ChosenTerm,
    KeptLookups,
    LookupRange,
    occurrences,
    term_key,
    unindexed,
)
from .coarse import CoarseMap
from .context import PlanContext
from .offers import Offer
from .spans import Spans

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrangement:
    """Looked-up blocks at their places in the pattern.  ``before`` and ``after``: symbols before
    the first and after the last; ``leading`` and ``trailing``: whether any number of events may
    come there.
    """

    blocks: list[ChosenBlock]
    before: int
    after: int
    leading: bool
    trailing: bool


@dataclass(frozen=True)
class Lookups:
    """The stream in ``chunks``, with index runs or to be evaluated.  ``bounds`` are those of the
    chunks; ``indexed``: base events in chunks with runs; ``kept``: cache of all alternatives of the
    pattern.
    """

    context: PlanContext
    coarse: CoarseMap
    picked: tuple[Offer, ...]
    chunks: list[LookupRange]
    bounds: Spans
    indexed: int
    kept: KeptLookups | None = None

    @classmethod
    def of(
        cls,
        context: PlanContext,
        coarse: CoarseMap,
        picked: Sequence[Offer],
        kept: KeptLookups | None = None,
    ) -> Lookups:
        names = {name for offer in picked for name in offer.term.attributes}
        columns = sorted(names & set(context.indexed))
        chunks = context.chunks(columns)
        indexed = sum(chunk.end - chunk.start for chunk in chunks)
        chunks = sorted(chunks + unindexed(chunks, context.total), key=lambda chunk: chunk.start)
        bounds = Spans(
            np.array([chunk.start for chunk in chunks], np.int64),
            np.array([chunk.end for chunk in chunks], np.int64),
        )
        return cls(context, coarse, tuple(picked), chunks, bounds, indexed, kept)

    def knows(self, offer: Offer) -> bool:
        cache = self.kept
        return cache is not None and any(cache.knows(term_key(offer.term, c)) for c in self.chunks)

    def order(self) -> list[int]:
        """Blocks with a term, rarest first."""

        def share(block: int) -> float:
            rate = 1.0
            for offer in self.picked:
                if offer.block == block:
                    rate *= max(offer.share, 1e-12)
            return rate

        return sorted({offer.block for offer in self.picked}, key=share)

    def occurrences(self, block: int, spans: Spans, inside: Spans | None = None) -> Ints:
        """Starts of a block, in the chunks that ``spans`` touch and only within ``inside``."""
        context = self.context
        return occurrences(
            self._block(block), self.chunks, self.bounds.touches(spans), context.timeline,
            context.indexes, context.schema, self.coarse, context.metrics, inside, self.kept,
        )  # fmt: skip

    def arranged(self, used: Sequence[int]) -> Arrangement:
        pattern = self.context.pattern
        lengths = [len(block.symbols) for block in pattern.blocks]
        blocks = []
        for i, number in enumerate(used):
            between = sum(lengths[used[i - 1] + 1 : number]) if i else 0
            blocks.append(ChosenBlock(self._block(number).terms, lengths[number], between))
        return Arrangement(
            blocks,
            sum(lengths[: used[0]]),
            sum(lengths[used[-1] + 1 :]),
            pattern.leading or used[0] > 0,
            pattern.trailing or used[-1] < len(lengths) - 1,
        )

    def _block(self, number: int) -> ChosenBlock:
        terms = sorted((o for o in self.picked if o.block == number), key=lambda o: o.entries)
        return ChosenBlock(
            tuple(ChosenTerm(o.term, o.symbol, o.offset) for o in terms),
            len(self.context.pattern.blocks[number].symbols),
            0,
        )
