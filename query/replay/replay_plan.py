"""What a pattern query will replay, as a value: for the run, and for EXPLAIN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...indexes.lookup import IndexMetrics
from .cost import Estimate
from .partition_spans import PartitionSpans
from .spans import Spans
from .symbols import Outline
from .timeline import Timeline

__all__ = ["ReplayPlan"]


@dataclass
class ReplayPlan:
    """What a pattern query will replay.

    Attributes
    ----------
    strategy : str
        As asked for.
    reason : str
        Why the whole stream is replayed; empty when it is not.
    outline : Outline or None
    spans : Spans or None
        Positions to replay; None for the whole stream.
    by_time : dict
        Spans (by number) read by ticks because late events lie in them.
    picked : sequence of Offer
        Terms that were looked up.
    offers : sequence of Offer
        Terms that could have been.
    show : callable
        Text of an offer.
    unavailable : str
        Why indexes, or runs of them, that there are cannot be used.
    estimate : Estimate or None
    estimate_uniform : callable, optional
        What the cost model would say of the same terms without the coarse pattern map, as if values
        did not change with time (for the comparison of thesis Figure 3.14).
    examined : int
        Choices of terms that were looked at.
    total : int
        Base events.
    covered : float
        Fraction of them that the indexes used cover.
    allowed : int
        Base events that the coarse pattern map leaves.
    needed : int
        Base events in intervals, before near ones are joined: what the estimate is about.
    partitions : PartitionSpans or None
        Under PARTITION BY, which rows of ``spans`` are replayed: those of some partitions.
        None: all of them.
    given : int or None
        Events given to the matcher; known when it has run.
    metrics : IndexMetrics
    phases : dict of str to float
        Milliseconds.
    """

    strategy: str
    reason: str = ""
    outline: Outline | None = None
    spans: Spans | None = None
    by_time: dict[int, tuple[int, int]] = field(default_factory=dict)
    picked: Sequence[Any] = ()
    offers: Sequence[Any] = ()
    show: Callable[[Any], str] = str
    unavailable: str = ""
    estimate: Estimate | None = None
    estimate_uniform: Callable[[], Estimate] | None = None
    examined: int = 0
    total: int = 0
    covered: float = 0.0
    allowed: int = 0
    needed: int = 0
    partitions: PartitionSpans | None = None
    given: int | None = None
    metrics: IndexMetrics = field(default_factory=IndexMetrics)
    phases: dict[str, float] = field(default_factory=dict)
    timeline: Timeline | None = None
    before: int = 1
    after: int = 1

    @property
    def chosen(self) -> tuple[str, ...]:
        """Texts of the terms that were looked up."""
        return tuple(map(self.show, self.picked))

    @property
    def offered(self) -> tuple[str, ...]:
        """Texts of the terms that could have been looked up."""
        return tuple(map(self.show, self.offers))

    @property
    def replayed(self) -> float:
        """Fraction of the base events that were replayed or, before the run, will be at most."""
        if self.spans is None:
            return 1.0
        if not self.total:
            return 0.0
        return (self.spans.total if self.given is None else self.given) / self.total

    def details(self) -> tuple[tuple[str, str | int | float | tuple[str, ...]], ...]:
        """What EXPLAIN shows."""
        found: list[tuple[str, str | int | float | tuple[str, ...]]] = [("strategy", self.strategy)]
        if self.outline is not None:
            found.append(("symbols", str(self.outline)))
        if self.unavailable:
            found.append(("indexes_unavailable", self.unavailable))
        if self.reason:
            found.append(("replay", f"whole stream: {self.reason}"))
            return tuple(found)
        assert self.spans is not None
        chosen = self.chosen
        found.append(("indexes", chosen or ("none: the coarse pattern map alone",)))
        rest = tuple(text for text in self.offered if text not in chosen)
        if rest:
            found.append(("indexes_not_used", rest))
        if self.estimate is not None and self.total:
            share = self.estimate.events / self.total
            found.append(("estimated_replay", f"{share:.4%} of the stream"))
        parts = self.partitions
        if parts is None:
            text = f"{self.replayed:.4%} of the stream in {len(self.spans)} intervals"
        else:
            read = self.spans.total / self.total if self.total else 0.0
            given = "" if self.given is None else f"{self.given / max(1, self.total):.4%}: "
            text = (
                f"{given}{len(parts.inside)} intervals of {parts.partitions} partitions, "
                f"in {len(self.spans)} spans of {read:.4%} of the stream"
            )
        found.append(("replay", text))
        return tuple(found)

    def figures(self) -> tuple[tuple[str, int | float], ...]:
        """What EXPLAIN ANALYZE shows."""
        if self.spans is None:
            return tuple(self.phases.items())
        given = self.spans.total if self.given is None else self.given
        parts = self.partitions
        spans = len(self.spans) if parts is None else len(parts.inside)
        return (
            ("intervals", spans),
            ("events_replayed", given),
            ("share_replayed", given / self.total if self.total else 0.0),
            ("events_in_spans_read", self.spans.total),
            ("partition_keys_read", 0 if parts is None else parts.keys.events_read),
            ("covered_by_indexes", self.covered),
            ("choices_examined", self.examined),
            ("index_entries_read", self.metrics.entries_read),
            ("index_blocks_read", self.metrics.blocks_read),
            ("index_bytes_read", self.metrics.bytes_read),
            ("index_runs_skipped", self.metrics.runs_skipped),
            ("events_evaluated", self.metrics.events_evaluated),
            *self.phases.items(),
        )
