"""What a pattern is planned on: one snapshot, its timeline, and the indexes as of one moment.

Purpose
    Every stage of planning (see :mod:`.planning`) asks the same things of the stream.
    :class:`PlanContext` holds them, fixed for the length of one plan.

Invariants
    Nothing in a context changes but :attr:`PlanContext.metrics`, which counts what was read, and
    :attr:`PlanContext.memo`, where what was found out is kept.  Contexts of several outlines of a
    pattern have both in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...core.caches import lazy
from ...indexes.lookup import IndexMetrics
from ...indexes.stream_indexes import Catalogue, StreamIndexes
from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from .applicability import Demands
from .buckets import Histogram
from .candidates import LookupRange, chunks_of
from .cost import READ_GAP, Weights
from .memo import PlanMemo
from .symbols import Outline
from .timeline import Timeline

__all__ = ["READ_GAP", "REPLAY_GAP", "PlanContext"]

REPLAY_GAP = 64
"""Events between two intervals that are replayed, not left out: an interval costs about as much."""
GAP_LEAST = 256


@dataclass(frozen=True)
class PlanContext:
    """See the module.

    Attributes
    ----------
    timeline : Timeline
        Of the snapshot.
    wants : Demands
        What the clause looks at besides its matches.
    catalogue : Catalogue or None
        What of the indexes is used.
    check : callable
        Called between steps; may raise.
    gap : int
        Spans nearer than this are replayed as one.
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
        """The context of a snapshot, with what the indexes hold now."""
        catalogue = None if indexes is None else indexes.catalogue()
        timeline = Timeline(snapshot, indexes, catalogue)
        told = weights or Weights()
        more = told.condition * wants.queries
        told = replace(told, event=told.event + more, grouped=told.grouped + more)
        if more:  # of dear events fewer are read for nothing
            one = told.grouped if wants.partition_by else told.event
            gap = min(gap, max(GAP_LEAST, int(gap * (1.0 - more / one))))
        return cls(
            snapshot, timeline, pattern, wants, indexes, catalogue, told,
            check or (lambda: None), gap,
        )  # fmt: skip

    @property
    def schema(self) -> StreamSchema:
        """Of the stream."""
        return self.snapshot.schema

    @property
    def total(self) -> int:
        """Base events."""
        return self.timeline.total

    @property
    def histogram(self) -> Histogram:
        """The leaves as buckets."""
        return self.memo.once("histogram", lambda: Histogram.of(self.timeline))

    @property
    def back(self) -> int:
        """How many events before an event decide, at most, whether it satisfies a term."""
        return max((term.back for one in self.pattern.symbols for term in one.terms), default=0)

    def chunks(self, names: Sequence[str]) -> list[LookupRange]:
        """Stretches of the base events for which all of some attributes are indexed."""
        catalogue = self.catalogue
        if catalogue is None or not names:
            return []
        return self.memo.once(
            ("chunks", *names), lambda: chunks_of(catalogue, self.timeline, names)
        )

    @lazy
    def late(self) -> list[tuple[int, int]]:
        """Ticks, inclusive, between which late events lie, or events that look back at them.

        With PARTITION BY a match that looks at events before it is not planned over late events;
        else what it looks back at lies inside of it, so no further from a late one than the window.
        """
        dirty = self.snapshot.dirty_ranges()
        if not dirty or not self.back or self.partitioned:
            return dirty
        after = self.timeline.upper(np.array([last for _, last in dirty], np.int64)) + self.back - 1
        ticks = self.timeline.ticks_at(np.minimum(after, self.total - 1)).tolist()
        return [(first, max(last, tick)) for (first, last), tick in zip(dirty, ticks, strict=True)]

    @property
    def indexed(self) -> Mapping[str, int]:
        """Attributes that have an index, with its identifier."""
        return {} if self.catalogue is None else self.catalogue.attributes

    @property
    def partitioned(self) -> bool:
        """Whether the clause has PARTITION BY."""
        return bool(self.wants.partition_by)
