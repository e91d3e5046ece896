"""What a pattern is planned on: one snapshot, its timeline, and the indexes at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...core.caches import lazy
from ...indexes.lookup import IndexMetrics
from ...indexes.opened import Catalogue
from ...indexes.stream_indexes import StreamIndexes
from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from .applicability import Demands
from .buckets import Histogram, PlanMemo
from .candidates import LookupRange, chunks_of
from .cost import READ_GAP, Weights
from .symbols import Outline
from .timeline import Timeline

REPLAY_GAP = 64
"""Events between two intervals that are replayed: another interval costs about as much."""
GAP_LEAST = 256


@dataclass(frozen=True)
class PlanContext:
    """The inputs of one plan, immutable but for ``metrics`` and ``memo``, which outlines share;
    spans nearer than ``gap`` are merged; ``check`` may raise.
    """

    snapshot: Snapshot
    timeline: Timeline
    pattern: Outline
    wants: Demands
    indexes: StreamIndexes | None
    catalogue: Catalogue | None
    weights: Weights
    check: Callable[[], None]
    gap: int = READ_GAP
    metrics: IndexMetrics = field(default_factory=IndexMetrics)
    memo: PlanMemo = field(default_factory=PlanMemo)

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        pattern: Outline,
        wants: Demands,
        indexes: StreamIndexes | None = None,
        weights: Weights | None = None,
        check: Callable[[], None] | None = None,
        gap: int = READ_GAP,
    ) -> PlanContext:
        catalogue = None if indexes is None else indexes.catalogue()
        timeline = Timeline(snapshot, indexes, catalogue)
        told = weights or Weights()
        more = told.condition * wants.queries
        told = replace(told, event=told.event + more, grouped=told.grouped + more)
        if more:  # expensive events: replay fewer between intervals
            one = told.grouped if wants.partition_by else told.event
            gap = min(gap, max(GAP_LEAST, int(gap * (1.0 - more / one))))
        return cls(
            snapshot, timeline, pattern, wants, indexes, catalogue, told,
            check or (lambda: None), gap,
        )  # fmt: skip

    @property
    def schema(self) -> StreamSchema:
        return self.snapshot.schema

    @property
    def total(self) -> int:
        return self.timeline.total

    @property
    def histogram(self) -> Histogram:
        return self.memo.once("histogram", lambda: Histogram.of(self.timeline))

    @property
    def back(self) -> int:
        """Most earlier events that decide whether an event satisfies a term."""
        return max((term.back for one in self.pattern.symbols for term in one.terms), default=0)

    def chunks(self, names: Sequence[str]) -> list[LookupRange]:
        catalogue = self.catalogue
        if catalogue is None or not names:
            return []
        return self.memo.once(
            ("chunks", *names), lambda: chunks_of(catalogue, self.timeline, names)
        )

    @lazy
    def late(self) -> list[tuple[int, int]]:
        """Inclusive ticks of late events, and of events that look back at them.  Under PARTITION
        BY, terms that look back are not used over late events; else they look back inside of the
        match.
        """
        dirty = self.snapshot.dirty_ranges()
        if not dirty or not self.back or self.partitioned:
            return dirty
        after = self.timeline.upper(np.array([last for _, last in dirty], np.int64)) + self.back - 1
        ticks = self.timeline.ticks_at(np.minimum(after, self.total - 1)).tolist()
        return [(first, max(last, tick)) for (first, last), tick in zip(dirty, ticks, strict=True)]

    @property
    def indexed(self) -> Mapping[str, int]:
        return {} if self.catalogue is None else self.catalogue.attributes

    @property
    def partitioned(self) -> bool:
        return bool(self.wants.partition_by)
