"""The cost model of replay intervals: which terms to look up, and whether intervals pay.

Thesis section 3.4.3, simplified.  In each bucket every block occurs at each position independently,
at the rate of its terms.  An occurrence of the rarest chosen block is a *candidate* if each other
chosen block occurs within a window of it, and its interval is a window long on each side where the
match may have further events::

    rate of candidates   = rate(rarest) * product of (1 - exp(-rate(other) * window))
    share that is read   = 1 - exp(-rate of candidates * length of an interval)

Under PARTITION BY, a window holds only the events of one partition; their number is counted in a
sample.  Terms are taken rarest first, as many as make the estimate lowest.  Estimates are rough:
``pays`` compares the intervals that were found again, by their actual length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.caches import lazy
from ...store.layout import Codec
from .coarse import CoarseMap
from .context import REPLAY_GAP, Costs, PlanContext
from .offers import Offer, Offers
from .partitions import FIRST_REACH, MUCH, ROWS_HELD, PartitionKeys
from .replay_plan import Estimate, ReplayIntervals, TermChoice
from .spans import Spans

Floats = npt.NDArray[np.float64]

LITTLE = 0.9
"""Share of the stream up to which the coarse map alone makes intervals."""
CLEARLY = 0.75
"""Most that intervals may be expected to cost, as a fraction of a full replay: the model errs."""
STILL = 0.6
"""The same for intervals that were found, when lookups are paid for."""
PROBE = 0.1
"""Cost of lookups that are made in any case, as a fraction of reading what the coarse map leaves: a
term often holds for fewer events than estimated, or for many near one another."""
TERM_NS = 200_000.0
"""What such a lookup costs besides, whatever it reads: the tail is evaluated."""
LIKELY = 3.0
"""Events, by the number of partitions, in which a row of a partition is expected."""
SAMPLE_EVENTS = 4096
KEYED_SEEKS = 2
"""Seeks at an interval under PARTITION BY: keys and other columns are read one after the other."""
PLAIN = 0.2
"""Cost of a seek in a stream without a codec, by that in another one."""
ROW_BY_ROW = 2.0
"""Cost of testing conditions on an event row by row, by that of replaying it."""


@dataclass(frozen=True)
class CostModel:
    """Prices plans of one outline.  ``whole``: events replayed without lookups."""

    context: PlanContext
    coarse: CoarseMap
    offers: Offers
    whole: int

    @property
    def costs(self) -> Costs:
        return self.context.costs

    @lazy
    def event_ns(self) -> float:
        wants = self.context.wants
        one = self.costs.keyed if self.context.partitioned else self.costs.event
        return one + (ROW_BY_ROW * self.costs.event if wants.searching or wants.queries else 0.0)

    @property
    def full_ns(self) -> float:
        return self.whole * self.event_ns

    def lookup_ns(self, offer: Offer) -> float:
        """Cost for a run of looking up one term; events without an index are decoded."""
        cost = offer.entries * (self.costs.entry + self.costs.occurrence)
        for name in offer.term.attributes:
            indexed = name in self.context.indexed
            cost += offer.runs * self.costs.seek if indexed else 0.0
            missing = self.coarse.allowed.total - (self.offers.covered if indexed else 0)
            cost += max(0, missing) * self.costs.decoded
        return cost / self.costs.runs

    def estimate(self, picked: Sequence[Offer]) -> Estimate:
        lookups = sum(map(self.lookup_ns, picked))
        rates: dict[int, Floats] = {}
        for offer in picked:
            rates[offer.block] = rates.get(offer.block, 1.0) * offer.rates
        if not rates:
            allowed = self.coarse.allowed
            return Estimate(float(len(allowed)), float(allowed.total), self._read_ns(allowed), 0.0)
        sizes, window = self._sizes, self._window
        rarest = min(rates, key=lambda block: float(sizes @ rates[block]))
        candidates = rates[rarest]
        for block, rate in rates.items():
            if block != rarest:
                candidates = candidates * -np.expm1(-rate * window / self._partitions)
        length = self._length(sorted(rates))
        events = float(sizes @ -np.expm1(-candidates * length))
        intervals = float(sizes @ (candidates * np.exp(-candidates * length)))
        skipped = max(0.0, self.coarse.allowed.total - events)
        replay = min(intervals * self._seek_ns, skipped * self.event_ns)
        if self.context.partitioned:
            keyed = min(events, float(sizes @ candidates) * length / self._partitions)
            reached = -np.expm1(-2 * rates[rarest] * window)
            read = float(sizes @ rates[rarest])
            read += sum(float(sizes @ (rates[b] * reached)) for b in rates if b != rarest)
            keys = read * self.costs.located + min(read, len(sizes)) * self.costs.seek
            keys += float(sizes @ rates[rarest]) * self.context.near * self.costs.decoded
            if self.context.pattern.within is None:
                keys += self._beside(rates[rarest]) * self.costs.key
            lookups += keys / self.costs.runs
            replay += self._keys_ns(events, keyed) + 2 * keyed * self.event_ns
        else:
            replay += (events + intervals * REPLAY_GAP) * self.event_ns
        return Estimate(max(1.0, intervals), events, replay, lookups)

    def pays(self, intervals: ReplayIntervals) -> bool:
        """Whether intervals that were found are cheaper than a full replay and the coarse map."""
        most = min(STILL * self.full_ns, self._read_ns(self.coarse.allowed))
        return self.found_ns(intervals) < most

    @property
    def coarse_pays(self) -> bool:
        return self._read_ns(self.coarse.allowed) <= CLEARLY * self.full_ns

    def found_ns(self, intervals: ReplayIntervals) -> float:
        spans, partitions = intervals.spans, intervals.partitions
        decided = intervals.decided
        if decided is not None and not intervals.by_time:
            return self._gaps_ns(spans) + 2 * len(decided) * self.event_ns
        if partitions is None:
            return self._read_ns(spans)
        whole = sum(int(spans.ends[i] - spans.starts[i]) for i in intervals.by_time)
        return self.spans_ns(spans, partitions.inside.total + whole * self._partitions)

    def spans_ns(self, spans: Spans, keyed: float) -> float:
        """Cost of replaying spans; under PARTITION BY intervals of ``keyed`` events in all, of
        which each partition has its share.
        """
        if not self.context.partitioned:
            return self._read_ns(spans)
        events = min(keyed / self._partitions, spans.total)
        keys = self._keys_ns(spans.total, events)
        return keys + self._gaps_ns(spans) + 2 * events * self.event_ns

    def _keys_ns(self, events: float, keyed: float) -> float:
        """Cost for a run of finding ``keyed`` rows of partitions among events; few are held."""
        return events * self.costs.key / (self.costs.runs if keyed <= ROWS_HELD else 1.0)

    def _read_ns(self, spans: Spans) -> float:
        return spans.total * self.event_ns + self._gaps_ns(spans)

    def _gaps_ns(self, spans: Spans) -> float:
        """What lies between spans is decoded or, if that costs more, left out by a seek."""
        gaps = (spans.starts[1:] - spans.ends[:-1]) * self.event_ns
        return float(np.minimum(gaps, self._seek_ns).sum()) + self._seek_ns

    @lazy
    def _seek_ns(self) -> float:
        """Cost of beginning an interval: pages are decompressed, of several columns."""
        stored = [part.leaves for part in self.context.timeline.parts if part.leaves is not None]
        time = self.context.schema.time
        plain = bool(stored) and stored[-1].leaf(0).chunk_entry(time).codec is Codec.NONE
        keyed = KEYED_SEEKS if self.context.partitioned else 1.0
        return self.costs.seek * keyed * (PLAIN if plain else 1.0)

    # -- shape of the stream ------------------------------------------------------------------

    @lazy
    def _sizes(self) -> Floats:
        return self.coarse.events_allowed().astype(np.float64)

    @lazy
    def _window(self) -> float:
        """Events that a match can span."""
        coarse, pattern = self.coarse, self.context.pattern
        window = float(max(1, self.context.total))
        if pattern.longest is not None:
            window = min(window, float(pattern.longest))
        elif pattern.within is None and pattern.longest_partition is not None:
            window = min(window, float(pattern.longest_partition) * self._partitions)
        if pattern.within is not None and len(coarse.starts):
            inside = Spans(coarse.starts, coarse.ends).touches(coarse.allowed)
            events = (coarse.ends - coarse.starts)[inside].sum()
            ticks = (coarse.last - coarse.first)[inside].astype(np.float64).sum()
            if events and ticks > 0:
                window = min(window, 1.0 + pattern.within * float(events) / float(ticks))
        return window

    def _beside(self, rates: Floats) -> float:
        """Events whose partitions are read to find rows of those of the occurrences."""
        reach = max(FIRST_REACH, LIKELY * self._partitions)
        beside = float(self._sizes @ -np.expm1(-2 * reach * rates))
        return float(self.context.total) if MUCH * beside > self.context.total else beside

    def _length(self, used: list[int]) -> float:
        """Events of the interval of one candidate."""
        pattern = self.context.pattern
        before = pattern.leading or used[0] > 0
        after = pattern.trailing or used[-1] < len(pattern.blocks) - 1
        if len(used) == 1 and not before and not after:
            return float(len(pattern.blocks[used[0]].symbols))
        return self._window * max(1, before + after)

    @lazy
    def _partitions(self) -> float:
        """Partitions whose events are interleaved, in a sample."""
        context, allowed = self.context, self.coarse.allowed
        if not context.partitioned or not len(allowed):
            return 1.0
        first = int(allowed.starts[len(allowed) // 2])
        end = min(context.total, first + SAMPLE_EVENTS)

        def counted() -> int:
            keys = PartitionKeys(context.timeline, context.wants.partition_by, context.schema)
            keys.learn(np.arange(first, end))
            return keys.count

        which = ("partitions", *context.wants.partition_by, first)
        return float(max(1, context.memo.once(which, counted)))


def choose_terms(model: CostModel, strategy: str) -> TermChoice:
    """The terms to look up: ``all`` that are offered, or with ``auto`` those that pay."""
    items = model.offers.items
    if strategy == "all":
        return TermChoice(items, items, estimate=model.estimate(items))
    if not items and model.coarse.allowed.total > LITTLE * model.context.total:
        reason = "no index can be used and the coarse pattern map excludes too little"
        return TermChoice(items, None, reason)
    choices = [TermChoice(items, (), estimate=model.estimate(()))]
    if choices[0].expected_ns < model.costs.plan:
        return choices[0]
    rarest_first, full = sorted(items, key=lambda offer: offer.share), model.full_ns
    lookups, best = 0.0, choices[0]
    for count, offer in enumerate(rarest_first, 1):
        lookups += model.lookup_ns(offer)
        if lookups > best.expected_ns:
            break
        picked = tuple(rarest_first[:count])
        choices.append(TermChoice(items, picked, estimate=model.estimate(picked)))
        best = min(best, choices[-1], key=lambda choice: choice.expected_ns)
    least, each = PROBE * min(best.expected_ns, full), TERM_NS / model.costs.runs
    for count in range(len(choices) - 1, 0, -1):
        estimate = choices[count].estimate
        if estimate is not None and estimate.lookup_ns + count * each <= least:
            return max(best, choices[count], key=lambda choice: len(choice.picked or ()))
    if best.expected_ns <= CLEARLY * full:
        return best
    costs = f"{best.expected_ns / 1e6:.1f} ms, a full replay {full / 1e6:.1f} ms"
    return TermChoice(items, None, f"intervals would cost {costs}")
