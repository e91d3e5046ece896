"""Parts of a query over situations: each good for its own share of the matches.

Purpose
    A match depends on nothing but the rows of its partition up to its instant, so any cut of time
    or of the partitions divides the matches.  A part is made where the query is planned, or where a
    live query asks for a region, and run by any process that can open the same snapshot.

Layout
    ===============  ==========================================================================
    part             its matches
    ===============  ==========================================================================
    SituationRange   those that become known in a range of time
    SituationShare   those of the partitions whose keys hash to its number
    SituationSpans   those in some of the replay intervals
    ===============  ==========================================================================

    A range reads the rows from which its matches can be made, and asks for rows before these where
    a match depends on them::

                reach      low            high
        . . . |----------|==============|         instants of its matches
         ^    begin                               what seems to begin here may have begun before

Guarantee
    All parts together have each match once.  Parts in the order of time give the rows in the order
    of the whole.

Cost
    With PREV the rows before are read for every partition of the range, as conditions look at them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ...ticks import INT64_MAX, INT64_MIN
from ..conditions.ranges import tail_start
from ..pattern.buffers import row_words
from ..pattern.columns import flat, numbers
from ..pattern.compiled import MatchLimits
from ..replay.replay_plan import ReplayPlan
from ..replay.situation_intervals import SituationRun, run_replayed
from ..situations.certifying import Before, Certifier
from ..situations.compiled import CompiledSituations
from ..situations.deriving import Partitions
from ..situations.stream import SituationStream
from .parts import SpanPart
from .rows_before import RowsBefore
from .shares import of_share

__all__ = [
    "FromTick",
    "SituationPart",
    "SituationRange",
    "SituationShare",
    "SituationSpans",
    "furthest",
]

Ints = npt.NDArray[np.int64]
Check = Callable[[], None] | None


def furthest(compiled: CompiledSituations) -> int | None:
    """Ticks before the instant of a match in which all of it began; None for no bound."""
    reach = [compiled.kept(i) for i in range(len(compiled.names))]
    known = [ticks for ticks in reach if ticks is not None]
    return max(known) if len(known) == len(reach) else None


class SituationPart(ABC):
    """A share of the matches of one clause over one snapshot."""

    @property
    @abstractmethod
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks that it reads; None where open."""

    @abstractmethod
    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of its matches, in order."""

    @abstractmethod
    def describe(self) -> str:
        """What it reads, for people."""


@dataclass(frozen=True)
class SituationRange(SituationPart):
    """Matches by the time at which they become known.

    Attributes
    ----------
    low, high : int
        Ticks, both inclusive.
    begin : int
        From which tick on all rows are read.
    lowest : int or None
        Rows before that may count from this tick on; None for any.
    """

    low: int
    high: int
    begin: int
    lowest: int | None

    @classmethod
    def of(
        cls, snapshot: Snapshot, compiled: CompiledSituations, low: int, high: int
    ) -> SituationRange:
        """The matches of a clause with a bound that become known in a range."""
        reach, span = furthest(compiled), snapshot.time_range
        assert reach is not None
        assert span is not None
        begin = max(INT64_MIN, low - reach)
        lowest = None
        if not compiled.partition_by:
            lowest = tail_start(snapshot, span[0], begin - 1, compiled.history + 1)
        elif compiled.gap is not None and not compiled.history:
            lowest = max(INT64_MIN, begin - compiled.gap)
        return cls(low, high, begin, lowest)

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return self.lowest, None if self.high >= INT64_MAX else self.high + 1

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        span = snapshot.time_range
        if span is None or self.low > self.high:
            return
        since = max(self.low, INT64_MIN + 1) - 1
        rows = FromTick(snapshot, compiled, self.begin, since, metrics, check, limits)
        for batch in snapshot.scan(
            max(self.begin, span[0]), self.ticks[1], compiled.input_columns, metrics=metrics,
            check=check,
        ):  # fmt: skip
            yield from rows.feed(batch)
        yield from rows.stream.finish(last=min(self.high, span[1]))

    def describe(self) -> str:
        return f"matches known from {self.low} to {self.high}"


@dataclass(frozen=True)
class SituationShare(SituationPart):
    """The partitions whose keys hash to a number.

    Attributes
    ----------
    last : int
        The last tick of the stream, which the rows of a share may not reach.
    """

    share: int
    shares: int
    last: int

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return None, None

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        stream = SituationStream(compiled, limits or MatchLimits(), check)
        for batch in of_share(
            snapshot, compiled.input_columns, compiled.partition_by, self.share, self.shares,
            metrics, check,
        ):  # fmt: skip
            yield from stream.feed(batch)
        yield from stream.finish(last=self.last)

    def describe(self) -> str:
        return f"partitions of share {self.share} of {self.shares}"


@dataclass(frozen=True, eq=False)
class SituationSpans(SituationPart):
    """Some of the intervals of a replay plan.

    Attributes
    ----------
    spans : SpanPart
    """

    spans: SpanPart

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        # the rows before an interval may lie anywhere; the one behind it says how far it goes
        return None, None

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        intervals, timeline = self.spans.placed(snapshot)
        plan = ReplayPlan("replay", intervals=intervals, timeline=timeline)
        done = SituationRun(metrics)
        yield from run_replayed(
            snapshot, compiled, plan, done, check or (lambda: None), limits or MatchLimits()
        )

    def describe(self) -> str:
        return self.spans.describe()


class FromTick:
    """A run over the rows from a tick on, which asks for those before where they count.

    Attributes
    ----------
    stream : SituationStream

    Parameters
    ----------
    begin : int
        No match that is looked for begins before it.
    since : int
        Matches known by then are not looked for.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        begin: int,
        since: int,
        metrics: ScanMetrics,
        check: Check,
        limits: MatchLimits | None,
    ) -> None:
        self.compiled = compiled
        self.stream = SituationStream(compiled, limits or MatchLimits(), check, since=since)
        self._keys = self.stream.deriver.keys
        self._before: RowsBefore | None = None
        span = snapshot.time_range
        if span is None or begin <= span[0]:
            return
        gap, wanted = compiled.gap, set(compiled.input_columns)
        lowest = INT64_MIN
        if not compiled.history:
            wanted -= compiled.measured_columns - compiled.condition_columns
            wanted |= {compiled.time, *compiled.partition_by}
            if gap is not None and begin >= INT64_MIN + gap:
                lowest = begin - gap
        columns = [name for name in compiled.columns.arrow.names if name in wanted]
        keys = compiled.partition_by
        self._before = RowsBefore(snapshot, columns, keys, begin, lowest, metrics, check)
        if not compiled.history:
            self.stream.certified = BordersOfTime(compiled, self._keys, self._before).certified
        elif not compiled.partition_by:
            self._prepare(np.zeros(1, np.int64))

    def on(self, snapshot: Snapshot, metrics: ScanMetrics, check: Check) -> None:
        """Go on with a snapshot that has the same rows, and later ones."""
        self.stream.check = check or (lambda: None)
        if self._before is not None:
            self._before.on(snapshot, metrics, check)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; yields what is known by the tick before its last."""
        if self._before is not None and self.compiled.history and self.compiled.partition_by:
            known = self._keys.count
            self._keys.encode(pa.Table.from_batches([batch]))
            if self._keys.count > known:
                self._prepare(np.arange(known, self._keys.count))
        return self.stream.feed(batch)

    def _prepare(self, groups: Ints) -> None:
        """Show conditions with PREV the rows before, of partitions that are met first."""
        assert self._before is not None
        rows, _ = self._before.find(self._keys.values(groups), self.compiled.history + 1)
        self.stream.precede(rows)


class BordersOfTime(Certifier):
    """The rows before a tick, of the partitions that are asked for.

    Parameters
    ----------
    keys : Partitions
        Whose numbers the askers go by.
    """

    def __init__(self, compiled: CompiledSituations, keys: Partitions, before: RowsBefore) -> None:
        super().__init__(compiled)
        self._keys = keys
        self._before = before

    def rows_before(self, groups: Ints, rows: Ints) -> list[Before]:
        """Go back in time for them."""
        found, of = self._before.find(self._keys.values(groups))
        words = row_words(self.compiled.tests, found, np.array([0, found.num_rows], np.int64))
        ticks, _ = numbers(flat(found.column(self.compiled.time)), "i")
        told: list[Before] = [None] * len(groups)
        for i, word, tick in zip(of.tolist(), words.tolist(), ticks.tolist(), strict=True):
            told[i] = (int(word), int(tick))
        return told
