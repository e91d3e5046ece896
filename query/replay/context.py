"""What a pattern is planned on: one snapshot, its timeline, and the indexes as of one moment.

Purpose
    Every stage of planning (see :mod:`.planning`) asks the same things of the stream.
    :class:`PlanContext` holds them, fixed for the length of one plan.

Invariants
    Nothing in a context changes but :attr:`PlanContext.metrics`, which counts what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...indexes.lookup import IndexMetrics
from ...indexes.stream_indexes import Catalogue, StreamIndexes
from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from .applicability import Demands
from .cost import Weights
from .symbols import Outline
from .timeline import Timeline

__all__ = ["READ_GAP", "PlanContext"]

READ_GAP = 2048
"""Events between two spans that are read, not skipped: beginning a span costs about as much."""


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
        Spans nearer than this are read as one.
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
        return cls(
            snapshot, timeline, pattern, wants, indexes, catalogue, weights or Weights(),
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
    def indexed(self) -> Mapping[str, int]:
        """Attributes that have an index, with its identifier."""
        return {} if self.catalogue is None else self.catalogue.attributes

    @property
    def partitioned(self) -> bool:
        """Whether the clause has PARTITION BY."""
        return bool(self.wants.partition_by)
