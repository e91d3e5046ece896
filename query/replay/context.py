"""What a pattern is planned on: one snapshot, its timeline, and the indexes at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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
from .spans import READ_GAP
from .symbols import Outline
from .timeline import Timeline

REPLAY_GAP = 64
"""Events between two intervals that are replayed: another interval costs about as much."""
LOOKED_UP_BYTES, SHARED_BYTES = 1 << 20, 64 << 20
"""What is kept of lookups for one outline, and for those of several alternatives."""


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of each operation; only their ratios matter.

    - event: replaying one event; keyed: the same under PARTITION BY
    - key: reading the partition of one event in an interval
    - decoded: decoding a column of one event
    - entry: reading one index entry
    - occurrence: merging one occurrence of a block with those of others; located: the same in its
      partition, which is read
    - seek: beginning an interval, opening a run of an index, or a leaf for the keys in it
    - plan: a replay that costs less is not planned
    - runs (a number): how often the plan is expected to run, which shares the cost of its lookups
    """

    event: float = 12.0
    keyed: float = 45.0
    key: float = 30.0
    decoded: float = 10.0
    entry: float = 2.5
    occurrence: float = 25.0
    located: float = 200.0
    seek: float = 30_000.0
    plan: float = 5_000_000.0
    runs: float = 1.0


@dataclass(frozen=True)
class PlanContext:
    """The inputs of one plan, immutable but for ``metrics`` and ``looked_up`` (what lookups found),
    which outlines share, and ``memo``.  Plans over the same state of the stream share ``memo`` and
    ``timeline``.  Spans nearer than
    ``gap`` are merged; ``near``: events whose keys are read to find the row before one; ``check``
    may raise.
    """

    snapshot: Snapshot
    timeline: Timeline
    pattern: Outline
    wants: Demands
    indexes: StreamIndexes | None
    catalogue: Catalogue | None
    costs: Costs
    check: Callable[[], None]
    gap: int
    near: float = 0.0
    metrics: IndexMetrics = field(default_factory=IndexMetrics)
    memo: PlanMemo = field(default_factory=PlanMemo)
    looked_up: PlanMemo = field(default_factory=lambda: PlanMemo(LOOKED_UP_BYTES))

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        pattern: Outline,
        wants: Demands,
        indexes: StreamIndexes | None = None,
        costs: Costs | None = None,
        check: Callable[[], None] | None = None,
        gap: int = READ_GAP,
    ) -> PlanContext:
        catalogue = None if indexes is None else indexes.catalogue()
        notes, name = snapshot.state.notes, "timeline" if indexes is None else "indexed timeline"
        shared = notes.get(name)
        if shared is None or shared[0] is not catalogue:
            shared = notes[name] = catalogue, Timeline(snapshot, indexes, catalogue), PlanMemo()
        _, timeline, memo = shared
        return cls(
            snapshot, timeline, pattern, wants, indexes, catalogue, costs or Costs(),
            check or (lambda: None), gap, memo=memo,
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
