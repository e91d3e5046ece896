"""The terms that indexes can look up for a pattern, with their rates; no index block is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from ...indexes.kernels import count_bits
from .candidates import LookupRange
from .coarse import CoarseMap
from .context import PlanContext
from .event_lookup import mark_events
from .extremes import all_hold
from .rates import EntryCounts, RateMap
from .spans import Spans
from .terms import Term

__all__ = ["Offer", "Offers", "list_offers"]

Floats = npt.NDArray[np.float64]

SAMPLES = 12
"""Pieces of the stream in which terms without an index are counted."""
SAMPLE_EVENTS = 4096


@dataclass(frozen=True)
class Offer:
    """A term that could be looked up, with the places of its symbol, block, and symbol in the
    block.  ``share`` of the events in its alive buckets satisfy it, about ``entries`` in all;
    ``runs``: runs that the coarse map leaves; ``rates[buckets]``: probability that an event
    satisfies it.
    """

    term: Term
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
    known = context.indexed
    if not len(coarse.allowed):
        return Offers()
    places = _places(context, evaluated)
    names = sorted({name for _, _, _, term in places for name in term.attributes} & set(known))
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
    rates = RateMap(context.schema, coarse, left, context.memo)
    measured: dict[tuple[Term, bytes], tuple[Floats, float, float, int]] = {}
    offers = []
    for symbol, block, offset, term in places:
        alive = coarse.alive[symbol]
        key = (term, alive.tobytes())
        if key not in measured:
            if left and all(name in known for name in term.attributes):
                entries = counts.of(term)
            else:
                entries = rates.spread(_guess(context, coarse, term))
            found = rates.rates(term, symbol, entries)
            held = float(found @ rates.sizes)
            share = held / max(1.0, float(rates.sizes[alive].sum()))
            measured[key] = found, share, float(entries.sum()), rates.chunks_with(found)
        found, share, total, runs = measured[key]
        offers.append(Offer(term, symbol, block, offset, share, total, runs, found))
    return Offers(tuple(offers), left, spans.total)


def _places(context: PlanContext, evaluated: bool) -> list[tuple[int, int, int, Term]]:
    found: list[tuple[int, int, int, Term]] = []
    symbol = 0
    for number, block in enumerate(context.pattern.blocks):
        for offset, wanted in enumerate(block.symbols):
            found.extend(
                (symbol, number, offset, term)
                for term in wanted.terms
                if (evaluated or all(name in context.indexed for name in term.attributes))
                and all_hold(term.needs, context.timeline)
            )
            symbol += 1
    return found


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
    return int(count_bits(bits))
