"""What plans of one pattern cost: the formulas of ``cost``, fed from offers and the coarse map.

How many pairs of events satisfy a band (``bands``) is estimated from samples.  Pairs within each of
``PIECES`` pieces are compared, restricted to the symbol's range of the column; its other conditions
count as independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.caches import lazy
from ...store.prune import Range
from .bands import Band
from .coarse import CoarseMap
from .context import PlanContext
from .cost import READ_GAP, BlockCosts, CostModel, Model, PartitionedModel
from .offers import Offer, Offers, strata
from .partitions import FIRST_REACH, PartitionKeys
from .replay_plan import ReplayIntervals
from .spans import Spans
from .symbols import Symbol
from .terms import merged
from .timeline import read_arrays

PIECES = 4
PIECE_EVENTS = 1024
LEAST = 1e-4
"""Smallest fraction that a sample of that size can show."""

Floats = npt.NDArray[np.float64]


def agreements(context: PlanContext, coarse: CoarseMap) -> dict[Band, float]:
    """Fraction of the pairs of events in each other's neighbourhood that fit, by band."""
    bands = context.pattern.bands
    if not bands or not len(coarse.allowed):
        return {}
    symbols = context.pattern.symbols
    columns = sorted({name for b in bands for name in (b.condition.source, b.condition.column)})
    fit = dict.fromkeys(bands, 0.0)
    asked = dict.fromkeys(bands, 0.0)
    for piece in _pieces(context, coarse, columns):
        for band in bands:
            one = band.condition
            here, there = piece[one.source], piece[one.column]
            if one.equal:
                found, pairs = _equal(here)
            else:
                earlier = _values(here, symbols[band.earlier], one.source)
                later = np.sort(_values(there, symbols[band.later], one.column))
                low, high = one.own(earlier, earlier)
                upto = np.searchsorted(later, high, side="right")
                found = float(np.maximum(upto - np.searchsorted(later, low), 0).sum())
                pairs = float(len(earlier)) * float(len(later))
            fit[band] += found
            asked[band] += pairs
    return {b: max(LEAST, fit[b] / asked[b]) if asked[b] else 1.0 for b in bands}


def _pieces(
    context: PlanContext, coarse: CoarseMap, columns: list[str]
) -> Iterator[dict[str, pa.Array]]:
    allowed = coarse.allowed
    middles = np.linspace(0, allowed.total - 1, 2 * PIECES + 1).astype(np.int64)[1::2]
    behind = np.cumsum(allowed.ends - allowed.starts)
    for middle in np.unique(middles).tolist():
        number = int(np.searchsorted(behind, middle, side="right"))
        at = int(allowed.ends[number]) - (int(behind[number]) - middle)
        first = max(0, at - PIECE_EVENTS // 2)
        yield context.memo.once(("piece", first, *columns), partial(_read, context, first, columns))


def _read(context: PlanContext, first: int, columns: list[str]) -> dict[str, pa.Array]:
    output = pa.schema([context.schema.arrow.field(name) for name in columns])
    end = min(context.total, first + PIECE_EVENTS)
    parts = [a for _, a in read_arrays(context.timeline, columns, output, first, end)]
    return {
        name: pa.concat_arrays([arrays[i] for arrays in parts]) for i, name in enumerate(columns)
    }


def _equal(array: pa.Array) -> tuple[float, float]:
    """Number of pairs of equal values, and of all pairs."""
    encoded = array.drop_null().dictionary_encode()
    counts = np.bincount(encoded.indices.to_numpy(zero_copy_only=False), minlength=1)
    return float((counts.astype(np.float64) ** 2).sum()), float(counts.sum()) ** 2


def _values(array: pa.Array, symbol: Symbol, column: str) -> Floats:
    some = array.drop_null()
    if pa.types.is_timestamp(some.type):
        some = some.cast(pa.int64())
    values: Floats = some.to_numpy(zero_copy_only=False).astype(np.float64)
    values = values[np.isfinite(values)]
    for item in merged(symbol.prune):
        if isinstance(item, Range) and item.column == column:
            low, high = (
                otherwise if not isinstance(bound, int | float) else float(bound)
                for bound, otherwise in ((item.low, -np.inf), (item.high, np.inf))
            )
            values = values[(values >= low) & (values <= high)]
    return values


SAMPLED = 4.0
"""Cost of a full replay, in plannings, from which on pairs of events are sampled."""
WALK_EVENTS = 1_000
"""Most rows of a window that a row-by-row search is assumed to visit."""
UNKNOWN_SHARE = 0.1
"""Assumed share of events that begin a match, without a term of the first symbol."""
CROWD_EVENTS = 1 << 15
"""Events sampled to count interleaved partitions."""


@dataclass(frozen=True)
class MatcherCosts:
    """Costs of the replaying operator under PARTITION BY.  ``overhead_ns``: fixed cost of looking
    up; ``near``: events whose keys are read per occurrence.
    """

    overhead_ns: float = 0.0
    near: float = 16.0


ROWS = MatcherCosts()


@dataclass(frozen=True)
class Pricing:
    """Prices plans of one pattern in nanoseconds."""

    context: PlanContext
    coarse: CoarseMap
    offers: Offers
    whole: int | None = None
    """Events that are replayed if nothing is looked up; None: all."""
    matcher: MatcherCosts = ROWS

    # -- parts of a plan ----------------------------------------------------------------------

    @lazy
    def event_ns(self) -> float:
        weights = self.context.weights
        return self._walk_ns + (weights.grouped if self.context.partitioned else weights.event)

    @lazy
    def _walk_ns(self) -> float:
        if not self.context.wants.searching or not self.context.pattern.blocks:
            return 0.0
        first = min((o.share for o in self.offers.items if o.symbol == 0), default=UNKNOWN_SHARE)
        window = self._window(False) / (self.crowd if self.context.partitioned else 1.0)
        return first * min(window, WALK_EVENTS) * self.context.weights.walk

    @property
    def full_ns(self) -> float:
        return (self.context.total if self.whole is None else self.whole) * self.event_ns

    def spans_ns(self, spans: Spans) -> float:
        weights, stretches = self.context.weights, spans.joined(READ_GAP)
        return (
            spans.total * self.event_ns
            + (stretches.total - spans.total) * weights.decoded
            + len(stretches) * weights.interval
            + (len(spans) - len(stretches)) * weights.near
        )

    def lookup_ns(self, offer: Offer) -> float:
        weights = self.context.weights
        entries, opened = self.looked_up(offer)
        return entries * weights.entry + opened * weights.run

    def looked_up(self, offer: Offer) -> tuple[float, int]:
        """Entries read (or events evaluated in their place) and runs opened for one term."""
        opened, looked = self._opened(offer)
        return offer.entries + looked, opened

    def probe_ns(self, offer: Offer) -> float:
        """Cost of looking up one term under PARTITION BY, the keys of its events included."""
        return (
            self.matcher.overhead_ns
            + self.lookup_ns(offer)
            + min(self.context.total, offer.entries * self.matcher.near) * self.context.weights.key
            + self._beside(offer.entries)
        )

    def partitions_ns(self, intervals: ReplayIntervals, probed: Sequence[Offer]) -> float:
        """Cost of replaying the partition intervals that a probe found, the probe included."""
        spans, weights = intervals.spans, self.context.weights
        return (
            self.partition_events(intervals) * (self.event_ns + weights.picked)
            + spans.total * weights.key
            + len(spans) * weights.interval
            + sum(map(self.probe_ns, probed))
        )

    def partition_events(self, intervals: ReplayIntervals) -> float:
        """Approximate events that partition intervals feed to the matcher."""
        assert intervals.partitions is not None
        spans = intervals.spans
        whole = sum(int(spans.ends[i] - spans.starts[i]) for i in intervals.by_time)
        return intervals.partitions.inside.total / self.crowd + whole

    def _opened(self, offer: Offer) -> tuple[int, float]:
        runs, looked = 0, 0.0
        for name in offer.term.attributes:
            indexed = name in self.context.indexed
            runs += offer.runs if indexed else 0
            covered = self.offers.covered if indexed else 0
            looked += max(0, self.coarse.allowed.total - covered)
        return runs, looked

    def _passes(self, made: bool) -> float:
        return self.context.total * self.context.weights.around if made else 0.0

    @property
    def _beside_ns(self) -> float:
        weights = self.context.weights
        made = self.context.wants.neighbours and self.context.pattern.within is not None
        return 2 * (weights.interval + FIRST_REACH * weights.key) if made else 0.0

    def _beside(self, intervals: float) -> float:
        return min(self._passes(True), intervals * self._beside_ns)

    # -- the model of choices -----------------------------------------------------------------

    def model(self, by_block: Sequence[Sequence[Offer]], uniform: bool = False) -> Model:
        """The cost model of each block's terms, rarest first; ``uniform``: thesis Figure 3.14."""
        context, pattern = self.context, self.context.pattern
        shape = (len(by_block), max(map(len, by_block), default=0) + 1)
        entries, runs, passes = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        region = self.coarse.events_allowed().astype(np.float64)
        reach = self._reach()
        if uniform:
            events = np.array([float(max(1, context.total))])
            rates = np.ones((1, *shape))
            inside = np.zeros(0, np.bool_)
            label, weight = np.zeros(0, np.int64), np.zeros(0)
        else:
            every = [offer.rates for listed in by_block for offer in listed]
            label = strata(every, region)
            inside = label >= 0
            events = np.bincount(label[inside], region[inside], minlength=1)
            rates = np.ones((len(events), *shape))
            label, weight = label[inside], region[inside]
        for b, listed in enumerate(by_block):
            for k, offer in enumerate(listed, 1):
                if uniform:
                    rate = np.array([offer.entries / max(1.0, float(self.offers.covered))])
                else:
                    held = np.bincount(label, weight * offer.rates[inside], minlength=len(events))
                    rate = held / np.maximum(events, 1.0)
                rates[:, b, k] = rates[:, b, k - 1] * np.clip(rate, 1e-12, 1.0)
                # events that no run covers are evaluated, which counts like entries
                opened, looked = self._opened(offer)
                entries[b, k] = entries[b, k - 1] + offer.entries + looked
                runs[b, k] = runs[b, k - 1] + opened
                passes[b, k] = passes[b, k - 1] + reach * (2 if k == 1 else 3)
        kept = events > 0
        costs = BlockCosts(
            events[kept], np.ascontiguousarray(rates[kept]), entries, runs, passes,
            np.array([len(block.symbols) for block in pattern.blocks], np.int64), self._fits(),
            self._rooms(),
        )  # fmt: skip
        last = pattern.room(len(pattern.blocks) - 1)
        about = CostModel(
            costs, self._window(uniform), pattern.leading, pattern.trailing and not last.bounded,
            replace(
                context.weights, event=context.weights.event + self._walk_ns,
                grouped=context.weights.grouped + self._walk_ns,
            ),
            context.gap,
        )  # fmt: skip
        if not context.partitioned:
            return about
        over = self._passes(pattern.within is None) + self.matcher.overhead_ns
        allowed = float(self.coarse.allowed.total)
        return PartitionedModel(
            about, self.crowd, allowed, over, self.matcher.near, self._beside_ns, self._passes(True)
        )

    @lazy
    def agreeing(self) -> dict[Band, float]:
        """Fraction of the pairs of events that fit, by band between blocks with offers."""
        offered = {offer.block for offer in self.offers.items}
        little = self.full_ns < SAMPLED * self.context.weights.query
        if len(offered) < 2 or self.context.pattern.within is None or little:
            return {}
        return agreements(self.context, self.coarse)

    def _fits(self) -> npt.NDArray[np.float64]:
        """``BlockCosts.fits``; bands between the same blocks count as independent."""
        pattern = self.context.pattern
        if not any(fit < 1.0 for fit in self.agreeing.values()):
            return np.ones((0, 0))
        of = [number for number, block in enumerate(pattern.blocks) for _ in block.symbols]
        found = np.ones((len(pattern.blocks), len(pattern.blocks)))
        for band, fit in self.agreeing.items():
            found[of[band.earlier], of[band.later]] *= fit
        return found

    def _rooms(self) -> npt.NDArray[np.float64]:
        """``BlockCosts.rooms``; a repeated variable is assumed to repeat once."""
        pattern = self.context.pattern
        count = len(pattern.blocks)
        if not any(pattern.room(block).bounded for block in range(count - 1)):
            return np.ones((0, 0))
        found = np.full((count, count), np.inf)
        for earlier in range(count):
            for later in range(earlier + 1, count):
                distance = pattern.distance(earlier, later)
                if distance is not None:
                    found[earlier, later] = distance
                elif later == earlier + 1 and pattern.room(earlier).repeats:
                    found[earlier, later] = 1.0
        return found

    def _reach(self) -> int:
        """Positions from the first to the last that is looked up: the length of bitmaps."""
        chunks = self.offers.chunks
        if not chunks or self.offers.covered < self.context.total:
            return self.context.total
        return chunks[-1].end - chunks[0].start

    @lazy
    def crowd(self) -> float:
        context, allowed, sizes = self.context, self.coarse.allowed, []
        window = self._window(False)
        for number in {0, len(allowed) // 2, len(allowed) - 1}:
            if not 0 <= number < len(allowed):
                continue
            low, high = int(allowed.starts[number]), int(allowed.ends[number])
            first = (low + high) // 2
            end = min(high, first + int(min(window, CROWD_EVENTS)) + 1)
            sizes.append(
                context.memo.once(("crowd", first, end), partial(_met, context, first, end))
            )
        return max(1.0, float(np.median(sizes))) if sizes else 1.0

    def _window(self, uniform: bool) -> float:
        coarse, pattern = self.coarse, self.context.pattern
        window = float(max(1, self.context.total))
        if pattern.longest is not None:
            window = min(window, float(pattern.longest))
        if pattern.within is not None and len(coarse.starts):
            inside = np.ones(len(coarse.starts), np.bool_)
            if not uniform:
                inside = Spans(coarse.starts, coarse.ends).touches(coarse.allowed)
            events = (coarse.ends - coarse.starts)[inside].sum()
            ticks = (coarse.last - coarse.first)[inside].astype(np.float64).sum()
            if events and ticks > 0:
                window = min(window, 1.0 + pattern.within * float(events) / float(ticks))
        return max(1.0, window)


def _met(context: PlanContext, first: int, end: int) -> int:
    keys = PartitionKeys(context.timeline, context.wants.partition_by, context.schema)
    keys.learn(np.arange(first, end))
    return keys.count
