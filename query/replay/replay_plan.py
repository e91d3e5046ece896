"""What a pattern query will replay, as a value: for the run, for other processes, and for EXPLAIN.

Layout
    ::

        ReplayPlan          what was decided, and why          stays where the query is planned
          |- intervals      what is replayed; None: the whole stream         can be sent
          |- timeline       of the snapshot that positions refer to
          '- choice         terms that were looked up, and what they were expected to cost
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...indexes.lookup import IndexMetrics
from .choice import TermChoice
from .partition_spans import PartitionSpans
from .shared_columns import SharedColumn
from .spans import Spans
from .symbols import Outline
from .timeline import Timeline

if TYPE_CHECKING:
    from .offers import Offer

__all__ = ["ReplayIntervals", "ReplayPlan"]


@dataclass(frozen=True)
class ReplayIntervals:
    """Where matches can be.

    Attributes
    ----------
    spans : Spans
        Positions to replay.
    by_time : mapping of int to (int, int)
        Spans (by number) read by ticks, inclusive, because late events lie in them.
    partitions : PartitionSpans or None
        Under PARTITION BY, which rows of ``spans`` are replayed: those of some partitions.
        None: all of them.
    before, after : int
        Rows around each span that conditions look at.
    """

    spans: Spans
    by_time: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    partitions: PartitionSpans | None = None
    before: int = 0
    after: int = 0


@dataclass(frozen=True)
class ReplayPlan:
    """See the module.

    Attributes
    ----------
    strategy : str
        As asked for.
    reason : str
        Why the whole stream is replayed; empty when it is not.
    intervals : ReplayIntervals or None
        What is replayed; None for the whole stream.
    choice : TermChoice
        Terms that could have been looked up, and those that were to be.
    picked : tuple of Offer
        Terms that were looked up: a lookup may find that further ones are not worth it.
    show : callable
        Text of an offer.
    unavailable : str
        Why indexes, or runs of them, that there are cannot be used.
    covered : float
        Fraction of the base events that the indexes used cover.
    allowed : int
        Base events that the coarse pattern map leaves.
    needed : int
        Base events in intervals, before near ones are joined: what the estimate is about.
    shared : SharedColumn or None
        What the events of each interval have in common, where that was looked at.
    fitted : tuple of str
        What was asked of pairs of occurrences, and how many are left.
    ways : tuple of str
        Outlines of the ways that the pattern can go, where these were looked up one by one.
    metrics : IndexMetrics
        What planning read of indexes.
    phases : mapping of str to float
        Milliseconds.
    """

    strategy: str
    reason: str = ""
    intervals: ReplayIntervals | None = None
    outline: Outline | None = None
    timeline: Timeline | None = None
    choice: TermChoice = field(default_factory=TermChoice)
    picked: tuple[Offer, ...] = ()
    show: Callable[[Offer], str] = str
    unavailable: str = ""
    covered: float = 0.0
    allowed: int = 0
    needed: int = 0
    shared: SharedColumn | None = None
    fitted: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    metrics: IndexMetrics = field(default_factory=IndexMetrics)
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def spans(self) -> Spans | None:
        """Positions to replay; None for the whole stream."""
        return None if self.intervals is None else self.intervals.spans

    @property
    def partitions(self) -> PartitionSpans | None:
        """Which rows of the spans are replayed; None: all of them."""
        return None if self.intervals is None else self.intervals.partitions

    @property
    def total(self) -> int:
        """Base events."""
        return 0 if self.timeline is None else self.timeline.total

    @property
    def chosen(self) -> tuple[str, ...]:
        """Texts of the terms that were looked up, those of several ways once."""
        return tuple(dict.fromkeys(map(self.show, self.picked)))

    @property
    def offered(self) -> tuple[str, ...]:
        """Texts of the terms that could have been looked up, those of several ways once."""
        return tuple(dict.fromkeys(map(self.show, self.choice.offers)))

    def replayed(self, given: int | None = None) -> float:
        """Fraction of the base events that a run has replayed or, before it, will at most.

        Parameters
        ----------
        given : int, optional
            Events given to the matcher, when it has run.
        """
        if self.spans is None:
            return 1.0
        if not self.total:
            return 0.0
        return (self.spans.total if given is None else given) / self.total

    def details(
        self, given: int | None = None
    ) -> tuple[tuple[str, str | int | float | tuple[str, ...]], ...]:
        """What EXPLAIN shows; ``given`` as in :meth:`replayed`."""
        found: list[tuple[str, str | int | float | tuple[str, ...]]] = [("strategy", self.strategy)]
        if self.outline is not None:
            found.append(("symbols", " or ".join(self.ways) or str(self.outline)))
        if self.unavailable:
            found.append(("indexes_unavailable", self.unavailable))
        if self.spans is None:
            found.append(("replay", f"whole stream: {self.reason}"))
            return tuple(found)
        chosen = self.chosen
        found.append(("indexes", chosen or ("none: the coarse pattern map alone",)))
        if self.shared is not None:
            found.append(("one_value_of", str(self.shared)))
        if self.choice.agreeing:
            found.append(("pairs_expected_to_fit", self.choice.agreeing))
        if self.fitted:
            found.append(("pairs_that_fit", self.fitted))
        rest = tuple(text for text in self.offered if text not in chosen)
        if rest:
            found.append(("indexes_not_used", rest))
        if self.choice.estimate is not None and self.total:
            share = self.choice.estimate.events / self.total
            found.append(("estimated_replay", f"{share:.4%} of the stream"))
        parts = self.partitions
        if parts is None:
            text = f"{self.replayed(given):.4%} of the stream in {len(self.spans)} intervals"
        else:
            read = self.spans.total / self.total if self.total else 0.0
            share_given = "" if given is None else f"{given / max(1, self.total):.4%}: "
            text = (
                f"{share_given}{len(parts.inside)} intervals of {parts.partitions} partitions, "
                f"in {len(self.spans)} spans of {read:.4%} of the stream"
            )
        found.append(("replay", text))
        return tuple(found)

    def figures(self, given: int | None = None) -> tuple[tuple[str, int | float], ...]:
        """What EXPLAIN ANALYZE shows; ``given`` as in :meth:`replayed`."""
        if self.spans is None:
            return tuple(self.phases.items())
        events = self.spans.total if given is None else given
        parts = self.partitions
        spans = len(self.spans) if parts is None else len(parts.inside)
        return (
            ("intervals", spans),
            ("events_replayed", events),
            ("share_replayed", events / self.total if self.total else 0.0),
            ("events_in_spans_read", self.spans.total),
            ("partition_keys_read", 0 if parts is None else parts.keys.events_read),
            ("covered_by_indexes", self.covered),
            ("choices_examined", self.choice.examined),
            ("index_entries_read", self.metrics.entries_read),
            ("index_blocks_read", self.metrics.blocks_read),
            ("index_bytes_read", self.metrics.bytes_read),
            ("index_runs_skipped", self.metrics.runs_skipped),
            ("events_evaluated", self.metrics.events_evaluated),
            *([("keys_told_by_indexes", self.metrics.keys_told)] if self.metrics.keys_told else []),
            *self.phases.items(),
        )
