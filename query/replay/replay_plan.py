"""What a pattern query will replay, as a value; only ``intervals`` are sent to other processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...indexes.lookup import IndexMetrics
from .partitions import PartitionSpans
from .spans import Spans
from .symbols import Outline, SharedColumn
from .timeline import Timeline

if TYPE_CHECKING:
    from .offers import Offer


@dataclass(frozen=True)
class Estimate:
    """Expected work: ``intervals``, base ``events`` in them, and nanoseconds of the replay and of
    the lookups.
    """

    intervals: float
    events: float
    replay_ns: float
    lookup_ns: float


@dataclass(frozen=True)
class TermChoice:
    """The ``offers`` and those ``picked``: empty for the coarse map alone, None for a full replay,
    which ``reason`` explains.
    """

    offers: tuple[Offer, ...] = ()
    picked: tuple[Offer, ...] | None = ()
    reason: str = ""
    estimate: Estimate | None = None

    @property
    def expected_ns(self) -> float:
        """Expected cost of the intervals; infinite for a full replay."""
        estimate = self.estimate
        return math.inf if estimate is None else estimate.replay_ns + estimate.lookup_ns


@dataclass(frozen=True)
class ReplayIntervals:
    """Where matches can be: positions ``spans``.  ``by_time``: spans (by number) that are read by
    inclusive ticks, because late events lie in them; ``partitions``: the rows of ``spans`` that are
    replayed (None: all); ``before`` and ``after``: rows around each span that conditions look at;
    ``deciding``: positions of the only events in spans that matter (None: all do).
    """

    spans: Spans
    by_time: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    partitions: PartitionSpans | None = None
    before: int = 0
    after: int = 0
    deciding: npt.NDArray[np.int64] | None = None

    @property
    def decided(self) -> npt.NDArray[np.int64] | None:
        """``deciding``, of partitions as well."""
        keyed = None if self.partitions is None else self.partitions.deciding
        return self.deciding if keyed is None else keyed[0]


@dataclass(frozen=True)
class ReplayPlan:
    """A plan; ``intervals`` is None for the whole stream, and ``reason`` says why.  ``picked``:
    terms actually looked up (a lookup may make others unnecessary); ``unavailable``: why existing
    indexes or runs cannot be used; ``covered``: fraction of base events that the used indexes
    cover; ``allowed``: base events that the coarse map leaves; ``needed``: base events in intervals
    before near ones are joined; ``ways``: outlines of alternatives that were looked up one by one;
    ``phases`` in milliseconds.
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
    ways: tuple[str, ...] = ()
    metrics: IndexMetrics = field(default_factory=IndexMetrics)
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def spans(self) -> Spans | None:
        return None if self.intervals is None else self.intervals.spans

    @property
    def partitions(self) -> PartitionSpans | None:
        return None if self.intervals is None else self.intervals.partitions

    @property
    def total(self) -> int:
        return 0 if self.timeline is None else self.timeline.total

    @property
    def chosen(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.show, self.picked)))

    @property
    def offered(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.show, self.choice.offers)))

    @property
    def lookups_declined(self) -> bool:
        """Whether ``auto`` replays everything because lookups, or even a plan, would not pay."""
        tried = bool(self.choice.offers) or self.outline is None
        return self.strategy == "auto" and self.intervals is None and tried

    def again(self) -> ReplayPlan:
        """The same plan for another run; its figures are those of when it was made."""
        intervals = self.intervals
        if intervals is not None and intervals.partitions is not None:
            keys = intervals.partitions.keys.on(self.timeline)
            partitions = replace(intervals.partitions, keys=keys)
            intervals = replace(intervals, partitions=partitions)
        return replace(self, intervals=intervals)

    def replayed(self, given: int | None = None) -> float:
        """Fraction of base events fed to the matcher (``given``), or its upper bound."""
        if self.spans is None:
            return 1.0
        if not self.total:
            return 0.0
        return (self.spans.total if given is None else given) / self.total

    def details(
        self, given: int | None = None
    ) -> tuple[tuple[str, str | int | float | tuple[str, ...]], ...]:
        lines: list[tuple[str, str | int | float | tuple[str, ...]]] = [("strategy", self.strategy)]
        if self.outline is not None:
            lines.append(("symbols", " or ".join(self.ways) or str(self.outline)))
        if self.unavailable:
            lines.append(("indexes_unavailable", self.unavailable))
        if self.spans is None:
            lines.append(("replay", f"whole stream: {self.reason}"))
            return tuple(lines)
        chosen = self.chosen
        lines.append(("indexes", chosen or ("none: the coarse pattern map alone",)))
        if self.shared is not None:
            lines.append(("one_value_of", str(self.shared)))
        rest = tuple(text for text in self.offered if text not in chosen)
        if rest:
            lines.append(("indexes_not_used", rest))
        if self.picked and self.choice.estimate is not None and self.total:
            share = self.choice.estimate.events / self.total
            lines.append(("estimated_replay", f"{share:.4%} of the stream"))
        parts = self.partitions
        if parts is None:
            text = f"{self.replayed(given):.4%} of the stream in {len(self.spans)} intervals"
        else:
            read = self.spans.total / self.total if self.total else 0.0
            share_text = "" if given is None else f"{given / max(1, self.total):.4%}: "
            text = (
                f"{share_text}{len(parts.inside)} intervals of {parts.partitions} partitions, "
                f"in {len(self.spans)} spans of {read:.4%} of the stream"
            )
        lines.append(("replay", text))
        return tuple(lines)

    def figures(self, given: int | None = None) -> tuple[tuple[str, int | float], ...]:
        if self.intervals is None or self.spans is None:
            return tuple(self.phases.items())
        events = self.spans.total if given is None else given
        parts = self.partitions
        whole = parts is None and self.intervals.deciding is None
        spans = len(self.spans) if parts is None else len(parts.inside)
        return (
            ("intervals", spans),
            ("events_replayed", events),
            ("share_replayed", events / self.total if self.total else 0.0),
            ("events_in_spans_read", self.spans.total if whole else events),
            ("partition_keys_read", 0 if parts is None else parts.keys.events_read),
            ("covered_by_indexes", self.covered),
            ("index_entries_read", self.metrics.entries_read),
            ("index_blocks_read", self.metrics.blocks_read),
            ("index_bytes_read", self.metrics.bytes_read),
            ("index_runs_skipped", self.metrics.runs_skipped),
            ("events_evaluated", self.metrics.events_evaluated),
            *(
                [("keys_told_by_indexes", self.metrics.keys_listed)]
                if self.metrics.keys_listed
                else []
            ),
            *self.phases.items(),
        )
