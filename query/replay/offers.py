"""The terms that indexes can look up for a pattern, with their rates; no index block is read.

The fences of an index's runs tell, to about a thousandth, how many of a run's million events
satisfy a term.  Thesis section 3.4.3, "Adaption to Non-Uniform Data": these lie in the leaves that
may hold the symbol, by minimum and maximum, and count as evenly spread over them.  Terms without an
index are counted in a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from ...indexes.index_key import index_key
from ...indexes.lookup import RunFences, estimate_runs
from ...indexes.stream_indexes import StreamIndexes
from ...schema import StreamSchema
from .candidates import LookupRange, mark_events
from .coarse import CoarseMap
from .context import PlanContext
from .spans import Spans
from .terms import Term

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class EntryCounts:
    """Estimates from run fences how many events of each chunk satisfy a term."""

    def __init__(
        self, schema: StreamSchema, chunks: Sequence[LookupRange], indexes: StreamIndexes | None
    ) -> None:
        self._schema, self._chunks, self._indexes = schema, chunks, indexes
        self._fences: dict[str, RunFences] = {}
        self._known: dict[Term, Floats] = {}

    def of(self, term: Term) -> Floats:
        if term not in self._known:
            self._known[term] = self._counted(term)
        return self._known[term]

    def _counted(self, term: Term) -> Floats:
        assert self._indexes is not None
        total = np.zeros(len(self._chunks))
        for name in term.attributes:
            atoms = [atom for atom in term.atoms if atom.column == name]
            attribute = index_key(name, self._schema).attribute
            if name not in self._fences:
                runs = [chunk.runs[name] for chunk in self._chunks]
                self._fences[name] = RunFences(runs, attribute)
            away = term.inside is None  # with a bound, absent values hardly ever count
            total += estimate_runs(self._indexes, self._fences[name], atoms, attribute, away)
        return total


class RateMap:
    """Rates of terms in the buckets of the coarse map; ``chunks`` are the indexed ranges."""

    def __init__(self, coarse: CoarseMap, chunks: Sequence[LookupRange]) -> None:
        self._coarse = coarse
        self._chunks = chunks
        self.sizes = (coarse.ends - coarse.starts).astype(np.float64)
        middles = (coarse.starts + coarse.ends) // 2
        # without an index, all events form one chunk
        starts = np.array([chunk.start for chunk in chunks] or [0], np.int64)
        ends = np.array([chunk.end for chunk in chunks] or [2**62], np.int64)
        self._chunk_of = np.maximum(np.searchsorted(starts, middles, side="right") - 1, 0)
        # buckets without an index are assumed to be like the nearest chunk
        self._indexed = (starts[self._chunk_of] <= middles) & (middles < ends[self._chunk_of])

    def spread(self, share: float) -> Floats:
        """Events of each chunk if a share of all satisfies a term."""
        inside = self.sizes * self._indexed
        held = np.bincount(self._chunk_of, inside, minlength=max(1, len(self._chunks)))
        return np.asarray(held * share, np.float64)

    def rates(self, symbol: int, entries: Floats) -> Floats:
        """Probability that an event of each bucket satisfies a term, given entries by chunk."""
        possible = self._coarse.possible[symbol]
        inside = self.sizes * (self._indexed & possible)
        held = np.bincount(self._chunk_of, inside, minlength=len(entries))
        share = np.divide(entries, held, out=np.zeros(len(entries)), where=held > 0)
        rates: Floats = np.minimum(1.0, share[self._chunk_of])
        return np.where(self._coarse.alive[symbol], rates, 0.0)

    def chunks_with(self, rates: Floats) -> int:
        return int(np.count_nonzero(np.bincount(self._chunk_of[(rates > 0) & self._indexed])))


SAMPLES = 4
"""Pieces of the stream in which terms without an index are counted."""
SAMPLE_EVENTS = 4096


@dataclass(frozen=True)
class Offer:
    """A term that could be looked up, with the name and places of its symbol: among all, its block,
    and in the block.  ``share`` of the events in its alive buckets satisfy it, about ``entries`` in
    all; ``runs``: runs that the coarse map leaves; ``rates[buckets]``: probability that an event
    satisfies it.
    """

    term: Term
    name: str
    symbol: int
    block: int
    offset: int
    share: float = 0.0
    entries: float = 0.0
    runs: int = 0
    rates: Floats = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)


@dataclass(frozen=True)
class Offers:
    """All offers for an outline.  ``chunks``: indexed ranges that the coarse map leaves;
    ``covered``: base events that the offers' indexes cover, regardless of the coarse map.
    """

    items: tuple[Offer, ...] = ()
    chunks: tuple[LookupRange, ...] = ()
    covered: int = 0


def list_offers(context: PlanContext, coarse: CoarseMap, evaluated: bool = False) -> Offers:
    """Terms that can be looked up; ``evaluated``: also those without an index."""
    indexed = context.indexed
    if not len(coarse.allowed):
        return Offers()
    places = _places(context, evaluated)
    names = sorted({name for *_, term in places for name in term.attributes} & set(indexed))
    chunks = context.chunks(names)
    if not chunks and not evaluated:
        return Offers()
    starts = np.array([chunk.start for chunk in chunks], np.int64)
    spans = Spans(starts, np.array([chunk.end for chunk in chunks], np.int64))
    touched = spans.touches(coarse.allowed)
    left = tuple(chunks[i] for i in np.flatnonzero(touched))
    counts = context.memo.once(
        ("entries", *names, touched.tobytes()),
        lambda: EntryCounts(context.schema, left, context.indexes),
    )
    rates = RateMap(coarse, left)
    measured: dict[tuple[Term, bytes], tuple[Floats, float, float, int]] = {}
    result = []
    for name, symbol, block, offset, term in places:
        alive = coarse.alive[symbol]
        key = (term, alive.tobytes())
        if key not in measured:
            if left and all(column in indexed for column in term.attributes):
                entries = counts.of(term)
            else:
                entries = rates.spread(_guess(context, coarse, term))
            chances = rates.rates(symbol, entries)
            held = float(chances @ rates.sizes)
            share = held / max(1.0, float(rates.sizes[alive].sum()))
            measured[key] = chances, share, float(entries.sum()), rates.chunks_with(chances)
        chances, share, total, runs = measured[key]
        result.append(Offer(term, name, symbol, block, offset, share, total, runs, chances))
    return Offers(tuple(result), left, spans.total)


def _places(context: PlanContext, evaluated: bool) -> list[tuple[str, int, int, int, Term]]:
    places: list[tuple[str, int, int, int, Term]] = []
    symbol = 0
    for number, block in enumerate(context.pattern.blocks):
        for offset, wanted in enumerate(block.symbols):
            places.extend(
                (wanted.name, symbol, number, offset, term)
                for term in wanted.terms
                if evaluated or all(name in context.indexed for name in term.attributes)
            )
            symbol += 1
    return places


def _guess(context: PlanContext, coarse: CoarseMap, term: Term) -> float:
    allowed, hits, seen = coarse.allowed, 0, 0
    for number in np.unique(np.linspace(0, len(allowed) - 1, SAMPLES).astype(np.int64)):
        low, high = int(allowed.starts[number]), int(allowed.ends[number])
        first = low if len(allowed) > 1 else low + max(0, high - low - SAMPLE_EVENTS) // 2
        end = min(high, first + SAMPLE_EVENTS)
        hits += context.memo.once(
            ("hits", term, first, end), partial(_hits, context, term, first, end)
        )
        seen += end - first
    # a term without a hit is rare, not absent
    return max(hits, 0.5) / max(1, seen)


def _hits(context: PlanContext, term: Term, first: int, end: int) -> int:
    bits = np.zeros(SAMPLE_EVENTS // 64, np.uint64)
    for name in term.attributes:
        atoms = [atom for atom in term.atoms if atom.column == name]
        mark_events(context.timeline, context.schema, atoms, first, end, first, bits, SAMPLE_EVENTS)
    return int(np.bitwise_count(bits).sum())
