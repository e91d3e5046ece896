"""Reconciliation: which results late events may have changed, and their corrections::

    late events of the commits (p0, p1]          Reconciliation.late
      |      the form knows their effects        .corrected -> .exchanged
      |      else regions of result times        .regions
    want = the query over the snapshots p1, in a region
    have = the sink's net contents there
    have - want is retracted, want - have is added         .region

Regions may be too large or repeated.  Results of events that retention may have dropped stay.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..core.times import INT64_MAX, INT64_MIN, moved
from ..store.tap import Spans
from .changes import Changes, Corrected, Results, Said, beyond, difference, newly
from .combined import Combined, Moment, fewer
from .definition import LiveDefinition
from .sink import Mark, SinkReader
from .sources import Sources
from .spent import Spent

__all__ = ["Reconciliation"]


@dataclass(frozen=True)
class Reconciliation:
    """A live query between its last step (``before``, ``told``) and a moment."""

    definition: LiveDefinition
    form: Combined
    sources: Sources
    sink: SinkReader
    spent: Spent
    first: int
    before: Mark
    told: Moment
    moment: Moment

    # -- what came late ---------------------------------------------------------------------------

    def late(self) -> tuple[int, dict[str, Spans]]:
        """Number of late events since the last step, and their ranges of ticks per stream."""
        if self.before.watermark is None:
            return 0, {}
        return self.sources.late(self.moment, self.before, self.definition)

    def corrected(self, late: Mapping[str, Spans], count: int, upto: int) -> Corrected | None:
        """The effect of late events, if the form knows it."""
        before, definition = self.before, self.definition
        if self.form.appends and (not definition.correct or definition.every_ms is not None):
            return None
        told = {name: snapshot.version for name, snapshot in self.told.items()}
        if (
            before.watermark is None or told != before.positions or not definition.store
            or definition.correct_for is not None or self.sources.truncated(before) is not None
            or any(spans[0][0] <= INT64_MIN for spans in late.values())
            or any(self.sources.deleted(name, before) for name in self.moment)
        ):  # fmt: skip
            return None
        events = {
            name: self.sources.late_events(name, self.moment[name], before, definition)
            for name in late
        }
        begun = time.perf_counter()
        found = self.form.corrected(
            self.told, self.moment, late, count, before.watermark, events, upto
        )
        if found is not None:
            self.spent.count(begun)
        return found

    def added_by(self) -> Results | None:
        """Results of late events, if each is one by itself and the events are at hand."""
        before = self.before
        if not self.form.by_event or not self.definition.correct or before.watermark is None:
            return None
        if {name: snapshot.version for name, snapshot in self.told.items()} != before.positions:
            return None  # their earlier output is unknown
        events = {}
        for name, snapshot in self.moment.items():
            late = self.sources.late_events(name, snapshot, before, self.definition)
            if late is None:
                return None
            events[name] = late
        begun = time.perf_counter()
        found = self.form.added_by(self.moment, events)
        if found is None:
            return None
        self.spent.count(begun)
        return found.where(found.time >= self.floor(before.watermark))

    def exchanged(self, corrected: Corrected, new: Results) -> Changes:
        watermark, found = self.before.watermark, corrected.found
        assert watermark is not None
        floor = self.floor(watermark)
        want = Results.joined([found.where(found.time >= floor), new])
        ids = pa.concat_arrays([corrected.ids, want.id])
        times = np.concatenate([corrected.time, want.time])
        if not len(times):
            return Changes.added(want)
        return difference(want, self.said_of(ids, max(floor, int(times.min())), int(times.max())))

    def newly(self, more: Results, low: int, high: int) -> Changes:
        return newly(more, self.said_of(more.id, low, high)) if len(more) else Changes.added(more)

    # -- regions ----------------------------------------------------------------------------------

    def regions(self, late: Mapping[str, Spans]) -> Spans:
        watermark, moment = self.before.watermark, self.moment
        if not late or not self.definition.correct or watermark is None:
            return ()
        if self.definition.correct_for is None:  # with a limit, events between must not be touched
            between = self.form.region_events
            late = {n: fewer({n: moment[n]}, spans, between) for n, spans in late.items()}
        top = self.form.closed(watermark)
        regions = self.within(self.form.changed(moment, late, watermark), top)
        return regions if self.definition.correct_for is not None else fewer(moment, regions)

    def within(self, spans: Spans, top: int = INT64_MAX) -> Spans:
        if not spans or self.before.watermark is None:
            return ()
        floor = self.floor(self.before.watermark)
        return tuple(
            (max(low, floor), min(high, top)) for low, high in spans if high >= floor and low <= top
        )

    def floor(self, watermark: int) -> int:
        """Least time of results that may change after retention; truncation does not count."""
        if self.sources.truncated(self.before) is not None:
            return self.first
        held = self.definition.rollup is not None
        frozen = self.sources.frozen(self.moment, self.form, watermark, held=held)
        return self.first if frozen is None else max(self.first, moved(frozen, 1))

    def region(self, low: int, high: int, known: int) -> Changes:
        with self.spent.timed():
            want, said = self.form.results(self.moment, low, high, known), self.said(low, high)
            takes_back = self.definition.correct or self.definition.every_ms is not None
            return difference(want, said) if takes_back else newly(want, said)

    def closed_since(self, low: int, high: int, known: int) -> Changes:
        """Additions for results that closed after the mark; earlier ones stay as emitted."""
        watermark = self.before.watermark
        assert watermark is not None
        want = self.form.results(self.moment, low, high, known)
        before = self.form.results(self.moment, low, high, watermark)
        return self.newly(beyond(want, before), low, high)

    def said_of(self, ids: pa.Array, low: int, high: int) -> Said:
        if self.definition.store:
            return self.sink.said_of(ids, low, high)
        return self.said(low, high).named(ids)

    def said(self, low: int, high: int) -> Said:
        """The output in a region; recomputed if results are not stored."""
        if self.definition.store:
            return self.sink.said(low, high)
        if (watermark := self.before.watermark) is None:
            low, high, watermark = 1, 0, 0
        top = min(high, self.form.closed(watermark))
        return Said.anew(self.form.results(self.told, max(low, self.first), top, watermark))
