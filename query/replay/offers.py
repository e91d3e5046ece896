"""The terms that indexes can look up for a pattern, with their rates; no index block is read.

Rates say how often a term holds where.  The fences of an index's runs tell, to about a thousandth,
how many of a run's million events satisfy a term; the TAB+-tree's leaf entries tell where in the
run these lie.  Thesis section 3.4.3, "Adaption to Non-Uniform Data", takes the leaves that may hold
a symbol; here each has a weight::

    run         |------------- 1,000 entries -------------|
    leaves      | 0 | 0 |  min/max/mean: 10 %, 60 %, 30 % | 0 |      values taken as normal
    rate          0   0     100    600    300 / events      0

Leaves with similar rates of all terms form a *stratum*, for which the model is evaluated once.
Texts count as evenly spread over leaves that may hold them; terms as independent in a stratum.
Bounds of columns that a term needs (``terms.Bounded``) are checked against leaf entries and the
tail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from ...indexes.index_key import index_key
from ...indexes.keys import count_bits
from ...indexes.lookup import RunFences, estimate_runs
from ...indexes.stream_indexes import StreamIndexes
from ...schema import Storage, StreamSchema
from ...store.layout import ROW_ATTRIBUTES, ROWS_PER_ATTRIBUTE
from ...store.prune import Range
from .buckets import Histogram, PlanMemo
from .candidates import LookupRange, mark_events
from .coarse import CoarseMap
from .context import PlanContext
from .spans import Spans
from .terms import Bounded, Term
from .timeline import Timeline, TimelinePart

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STRATA = 8
DRIFT = 0.1
"""Leaves whose midpoints differ by less than this part of their widths do not drift."""


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
            if name not in self._fences:
                self._fences[name] = RunFences([chunk.runs[name] for chunk in self._chunks])
            attribute = index_key(name, self._schema).attribute
            away = term.inside is None  # with a bound, absent values hardly ever count
            total += estimate_runs(self._indexes, self._fences[name], atoms, attribute, away)
        return total


class RateMap:
    """Rates of terms in the buckets of the coarse map; ``chunks`` are the indexed ranges."""

    def __init__(
        self, schema: StreamSchema, coarse: CoarseMap, chunks: Sequence[LookupRange], memo: PlanMemo
    ) -> None:
        self._schema = schema
        self._coarse = coarse
        self._chunks = chunks
        self._memo = memo
        self.sizes = (coarse.ends - coarse.starts).astype(np.float64)
        middles = (coarse.starts + coarse.ends) // 2
        # without an index, all events form one chunk
        starts = np.array([chunk.start for chunk in chunks] or [0], np.int64)
        ends = np.array([chunk.end for chunk in chunks] or [2**62], np.int64)
        self._chunk_of = np.maximum(np.searchsorted(starts, middles, side="right") - 1, 0)
        # buckets without an index are assumed to be like the nearest chunk
        self._indexed = (starts[self._chunk_of] <= middles) & (middles < ends[self._chunk_of])
        self._even = np.ones(len(self.sizes))

    def spread(self, share: float) -> Floats:
        """Events of each chunk if a share of all satisfies a term."""
        inside = self.sizes * self._indexed
        held = np.bincount(self._chunk_of, inside, minlength=max(1, len(self._chunks)))
        return np.asarray(held * share, np.float64)

    def rates(self, term: Term, symbol: int, entries: Floats) -> Floats:
        """Probability that an event of each bucket satisfies a term."""
        weight = self._weights(term) * self._coarse.possible[symbol]
        inside = weight * self.sizes * self._indexed
        held = np.bincount(self._chunk_of, inside, minlength=len(entries))
        share = np.divide(entries, held, out=np.zeros(len(entries)), where=held > 0)
        found: Floats = np.minimum(1.0, weight * share[self._chunk_of])
        return np.where(self._coarse.alive[symbol], found, 0.0)

    def chunks_with(self, rates: Floats) -> int:
        return int(np.count_nonzero(np.bincount(self._chunk_of[(rates > 0) & self._indexed])))

    def _weights(self, term: Term) -> Floats:
        total: Floats | None = None
        for atom in term.atoms:
            shape = self._shape(atom.column) if isinstance(atom, Range) else None
            if shape is None:
                return self._even
            assert isinstance(atom, Range)
            part = _normal(shape, atom)
            total = part if total is None else total + part
        # min/max permits the value, so its weight must not be zero
        return self._even if total is None else np.maximum(1e-6, total)

    def _shape(self, name: str) -> tuple[Floats, Floats] | None:
        """Mean and deviation of an attribute in each bucket; None if it does not drift."""
        histogram = self._coarse.histogram
        return self._memo.once(
            ("shape", histogram, name), lambda: _shape(histogram, name, self._schema)
        )


def _shape(histogram: Histogram, name: str, schema: StreamSchema) -> tuple[Floats, Floats] | None:
    if name not in schema:
        return None  # leaves have no statistics on derived values
    if schema.attribute(name).storage not in (Storage.FLOAT, Storage.SIGNED):
        return None
    kind = np.float64 if schema.attribute(name).storage is Storage.FLOAT else np.int64
    sizes = (histogram.ends - histogram.starts).astype(np.float64)
    low, high = np.full(len(sizes), np.nan), np.full(len(sizes), np.nan)
    at = 0
    for entries in histogram.parts:
        count = len(entries.starts)
        view = entries.part.view
        if entries.table is not None and view is not None and name in view.file.schema:
            place = [a.name for a in view.file.schema.payload].index(name)
            row = ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * place
            low[at : at + count] = entries.table[row + 1].view(kind)
            high[at : at + count] = entries.table[row + 2].view(kind)
        at += count
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and very large doubles
        middle, width = low / 2 + high / 2, high - low
    known = np.isfinite(middle) & np.isfinite(width)
    if not known.any():
        return None
    if np.ptp(middle[known]) <= DRIFT * width[known].mean():
        return None
    # the extremes of n normal values lie about sqrt(2 ln n) deviations from their mean
    spread = np.sqrt(2.0 * np.log(np.maximum(sizes, 3.0)))
    spread -= (np.log(np.log(np.maximum(sizes, 3.0))) + 2.53) / (2.0 * spread)
    middle[~known], width[~known] = middle[known].mean(), width[known].max()
    return middle, np.maximum(width / (2.0 * np.maximum(spread, 0.5)), 1e-300)


def _normal(shape: tuple[Floats, Floats], atom: Range) -> Floats:
    mean, deviation = shape
    high, low = _bound(atom.high, math.inf), _bound(atom.low, -math.inf)
    with np.errstate(over="ignore"):  # far outside, the quotient overflows to infinity
        found: Floats = _below((high - mean) / deviation) - _below((low - mean) / deviation)
    return found


def _bound(value: object, otherwise: float) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return otherwise if math.isnan(number) else number


def _below(z: Floats) -> Floats:
    """The normal distribution function, to a hundredth."""
    z = np.clip(z, -8.0, 8.0)
    found: Floats = 1.0 / (1.0 + np.exp(-1.5976 * z - 0.07056 * z**3))
    return found


def strata(rates: Sequence[Floats], sizes: Floats) -> Ints:
    """Stratum of each bucket by similar rates, below ``STRATA``; -1 for buckets without events."""
    label = np.full(len(sizes), -1, np.int64)
    inside = np.flatnonzero(sizes > 0)
    label[inside] = 0
    varied = np.zeros(len(inside))
    seen: set[int] = set()
    for rate in rates:
        if id(rate) in seen:
            continue
        seen.add(id(rate))
        here = rate[inside]
        most = here.max(initial=0.0)
        if most > 0 and here.min() < 0.8 * most:
            varied += np.log(np.maximum(here, 1e-3 * most))
    if len(inside) and np.ptp(varied) > 0:
        # rates a thousand times below the maximum contribute nothing: no strata for them
        most = varied.max()
        varied = np.maximum(varied, most - math.log(1000.0))
        edges = np.linspace(varied.min(), most, STRATA + 1)[1:-1]
        label[inside] = np.searchsorted(edges, varied, side="right")
    return label


def all_hold(needs: Iterable[Bounded], timeline: Timeline) -> bool:
    """Whether double columns have no number outside of their bounds."""
    return all(
        low >= one.low and high <= one.high
        for one in needs
        for part in timeline.parts
        for low, high in _ends(part, one.column)
    )


def _ends(part: TimelinePart, column: str) -> list[tuple[float, float]]:
    if part.leaves is None:
        assert part.tail is not None
        if column not in part.tail.batch.schema.names:
            return []
        values = part.tail.batch.column(column).drop_null().to_numpy(zero_copy_only=False)
        return [(float(values.min()), float(values.max()))] if len(values) else []
    schema = part.leaves.view.file.schema
    if column not in schema:
        return []
    place = [attribute.name for attribute in schema.payload].index(column)
    row = ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * place
    present, low, high = part.leaves.table[row : row + 3]
    held = present > 0
    if not held.any():
        return []
    return [
        (
            float(np.min(low[held].view(np.float64))),
            float(np.max(high[held].view(np.float64))),
        )
    ]


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
