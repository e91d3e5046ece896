"""What plans of one pattern cost: the cost model filled in from offers and the coarse map.

Purpose
    :class:`Pricing` knows what is looked up, read and matched for how much (:mod:`.cost` has the
    formulas), so that :mod:`.choosing` can compare plans before and while indexes are read.

Guarantee
    Prices steer the choice between plans that give the same rows; they never touch the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...lazy import lazy
from .coarse import CoarseMap
from .context import PlanContext
from .cost import BlockCosts, CostModel, Model, PartitionedModel
from .offers import Offer, Offers
from .partition_keys import PartitionKeys
from .rates import strata
from .replay_plan import ReplayIntervals
from .spans import Spans

__all__ = ["Pricing"]

CROWD_EVENTS = 1 << 15
"""Events that are looked at to see how many partitions lie between one another."""


@dataclass(frozen=True)
class Pricing:
    """See the module."""

    context: PlanContext
    coarse: CoarseMap
    offers: Offers
    whole: int | None = None
    """Events that are replayed where nothing is looked up; None: all."""

    # -- parts of a plan ----------------------------------------------------------------------

    @property
    def event_ns(self) -> float:
        """Replaying one event."""
        weights = self.context.weights
        return weights.grouped if self.context.partitioned else weights.event

    @property
    def full_ns(self) -> float:
        """Replaying everything that matters."""
        return (self.context.total if self.whole is None else self.whole) * self.event_ns

    def spans_ns(self, spans: Spans) -> float:
        """Replaying spans."""
        return spans.total * self.event_ns + len(spans) * self.context.weights.interval

    def lookup_ns(self, offer: Offer) -> float:
        """Looking one term up."""
        weights = self.context.weights
        opened, looked = self._opened(offer)
        return (offer.entries + looked) * weights.entry + opened * weights.run

    def probe_ns(self, offer: Offer) -> float:
        """Looking one term up under PARTITION BY, keys of its events included."""
        return (
            self.lookup_ns(offer)
            + offer.entries * self.context.weights.key
            + self._passes(self.context.wants.neighbours)
        )

    def partitions_ns(self, intervals: ReplayIntervals, probed: Sequence[Offer]) -> float:
        """Replaying intervals of partitions that a probe has found, the probe included."""
        spans, weights = intervals.spans, self.context.weights
        return (
            self.partition_events(intervals) * self.event_ns
            + spans.total * weights.key
            + len(spans) * weights.interval
            + sum(map(self.probe_ns, probed))
        )

    def partition_events(self, intervals: ReplayIntervals) -> float:
        """About how many events intervals of partitions give to the matcher."""
        assert intervals.partitions is not None
        spans = intervals.spans
        whole = sum(int(spans.ends[i] - spans.starts[i]) for i in intervals.by_time)
        return intervals.partitions.inside.total / self.crowd + whole

    def _opened(self, offer: Offer) -> tuple[int, float]:
        """Runs that looking a term up opens, and events that it takes a look at."""
        runs, looked = 0, 0.0
        for name in offer.term.attributes:
            indexed = name in self.context.indexed
            runs += offer.runs if indexed else 0
            covered = self.offers.covered if indexed else 0
            looked += max(0, self.coarse.allowed.total - covered)
        return runs, looked

    def _passes(self, made: bool) -> float:
        """Passes over the PARTITION BY columns of all events, where they are made."""
        return 5.0 * self.context.total * self.context.weights.key if made else 0.0

    # -- the model of choices -----------------------------------------------------------------

    def model(self, by_block: Sequence[Sequence[Offer]], uniform: bool = False) -> Model:
        """The cost model of the rarest terms of each block.

        Parameters
        ----------
        by_block : sequence of sequence of Offer
            Rarest first.
        uniform : bool
            As if values did not change with time (thesis Figure 3.14 compares).
        """
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
                # events that no run covers are looked at: like entries, but with their values
                opened, looked = self._opened(offer)
                entries[b, k] = entries[b, k - 1] + offer.entries + looked
                runs[b, k] = runs[b, k - 1] + opened
                passes[b, k] = passes[b, k - 1] + reach * (2 if k == 1 else 3)
        kept = events > 0
        costs = BlockCosts(
            events[kept], np.ascontiguousarray(rates[kept]), entries, runs, passes,
            np.array([len(block.symbols) for block in pattern.blocks], np.int64),
        )  # fmt: skip
        about = CostModel(
            costs, self._window(uniform), pattern.leading, pattern.trailing, context.weights,
            context.gap,
        )  # fmt: skip
        if not context.partitioned:
            return about
        over_keys = self._passes(context.wants.neighbours or pattern.within is None)
        return PartitionedModel(about, self.crowd, float(self.coarse.allowed.total), over_keys)

    def _reach(self) -> int:
        """Positions from the first to the last that is looked up: how long bitmaps are."""
        chunks = self.offers.chunks
        if not chunks or self.offers.covered < self.context.total:
            return self.context.total
        return chunks[-1].end - chunks[0].start

    @lazy
    def crowd(self) -> float:
        """Partitions whose events lie between one another: about how many a window meets."""
        context, allowed, sizes = self.context, self.coarse.allowed, []
        keys = PartitionKeys(context.timeline, context.wants.partition_by, context.schema)
        window = self._window(False)
        for number in {0, len(allowed) // 2, len(allowed) - 1}:
            if not 0 <= number < len(allowed):
                continue
            low, high = int(allowed.starts[number]), int(allowed.ends[number])
            first = (low + high) // 2
            end = min(high, first + int(min(window, CROWD_EVENTS)) + 1)
            keys.learn(np.arange(first, end))
            sizes.append(keys.count)
        return max(1.0, float(np.median(sizes))) if sizes else 1.0

    def _window(self, uniform: bool) -> float:
        """Events that a match can span, about."""
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
