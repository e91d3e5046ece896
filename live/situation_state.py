"""Runs and situations of a live query: kept from one step to the next, and never the truth.

Purpose
    The matches of a step are made of situations that began within their reach before it.
    :class:`SituationState` keeps these, and the runs that last, as they stand at the mark, so that
    a step reads its own events and no others.

Layout
    ::

             reach                W0              W1
        ....|---------------------|===============|
            read once, matches    advanced over: the matches that become known
            are not looked for    between W0 and W1

Guarantee
    What a step says is what a region would: a match is known at its instant, whatever the steps
    are.  A state holds for one watermark and one set of events up to it; whatever goes wrong with
    it, it can be dropped: the next one is made from the stream, within the reach.

Limits
    A state takes at most :data:`STATE_BYTES_MAX`.  When most of its partitions are long silent it
    is made anew, of those that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from ..core.times import moved
from ..query.pattern.compiled import MatchLimits
from ..query.replay.situation_ticks import FromTick
from ..query.situations.compiled import CompiledSituations
from ..query.split.situation_parts import SituationPart, SituationRange
from ..schema import StreamSchema
from ..store.segment import ScanMetrics
from ..store.snapshot import Snapshot
from .forms import half_open
from .pattern_state import STATE_BYTES_MAX
from .removals import Removals

__all__ = ["SituationState", "SituationStep"]

PARTITIONS_LEAST = 1 << 16
"""Fewer partitions are not worth making a state anew."""
Check = Callable[[], None] | None


class SituationState:
    """Runs and situations at a watermark.

    Attributes
    ----------
    watermark : int or None
        Up to which events were taken in; None before any, and after a failure.
    nbytes : int
        Memory that is kept.
    """

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.nbytes = 0
        self._rows: FromTick | None = None
        self._schema: StreamSchema | None = None
        self._gone = Removals(0, 0, 0, 0)
        self._partitions = 0

    def holds(self, snapshot: Snapshot, watermark: int) -> bool:
        """Whether it is the state at a watermark; no event up to that came or went since."""
        return (
            self._rows is not None
            and self.watermark == watermark
            and self._schema == snapshot.schema
            and self._spared(snapshot, watermark)
            and self._rows.stream.deriver.groups <= max(PARTITIONS_LEAST, 2 * self._partitions)
        )

    def _spared(self, snapshot: Snapshot, watermark: int) -> bool:
        """Whether nothing has gone since of the events that decide what there is at a watermark."""
        if self._gone == Removals.of(snapshot.state):
            return True
        assert self._rows is not None
        compiled = self._rows.compiled
        reached = SituationRange.of(snapshot, compiled, moved(watermark, 1), watermark)
        return self._gone.spare(snapshot.state, reached.begin)

    def drop(self) -> None:
        """Forget it."""
        self.watermark, self._rows, self.nbytes = None, None, 0

    def advance(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        since: int,
        known: int,
        metrics: ScanMetrics,
        check: Check,
        limits: MatchLimits,
    ) -> list[pa.RecordBatch]:
        """Take in the events of ``(since, known]``; rows of the matches known by them."""
        if not self.holds(snapshot, since):
            self.drop()
            self._rows = self._rebuilt(snapshot, compiled, since, metrics, check, limits)
        rows = self._rows
        assert rows is not None
        self.watermark = None  # until all is well
        rows.on(snapshot, metrics, check)
        found = _taken(rows, snapshot, moved(since, 1), known, metrics, check)
        self.watermark, self.nbytes = known, rows.stream.nbytes
        self._schema, self._gone = snapshot.schema, Removals.of(snapshot.state)
        return found

    def _rebuilt(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        since: int,
        metrics: ScanMetrics,
        check: Check,
        limits: MatchLimits,
    ) -> FromTick:
        """Runs and situations at a watermark, from the rows within the reach."""
        bounded = replace(limits, memory_bytes=min(limits.memory_bytes, STATE_BYTES_MAX))
        begin = SituationRange.of(snapshot, compiled, moved(since, 1), since).begin
        rows = FromTick(snapshot, compiled, begin, since + 1, metrics, check, bounded)
        _taken(rows, snapshot, begin, since, metrics, check)  # nothing is known by them
        self._partitions = rows.stream.deriver.groups
        return rows


class SituationStep(SituationPart):
    """The matches that become known in a step, as a part of the query.

    Parameters
    ----------
    state : SituationState
        It is moved on when the part is run.
    since, known : int
        Watermarks before and after the step.
    """

    def __init__(self, state: SituationState, since: int, known: int) -> None:
        self._state = state
        self._since, self._known = since, known
        self._found: list[pa.RecordBatch] | None = None

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks that it reads, where the state is kept."""
        return half_open(moved(self._since, 1), self._known)

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of its matches."""
        if self._found is None:  # however often it is asked
            self._found = self._state.advance(
                snapshot, compiled, self._since, self._known, metrics, check,
                limits or MatchLimits(),
            )  # fmt: skip
        yield from self._found

    def describe(self) -> str:
        """What it gives, for people."""
        return f"matches known by time ({self._since}, {self._known}]"


def _taken(
    rows: FromTick, snapshot: Snapshot, low: int, high: int, metrics: ScanMetrics, check: Check
) -> list[pa.RecordBatch]:
    """Take in the events with ``low <= t <= high``, all there are up to then."""
    columns = rows.compiled.input_columns
    found: list[pa.RecordBatch] = []
    for batch in snapshot.scan(*half_open(low, high), columns, metrics=metrics, check=check):
        found += rows.feed(batch)
    found += rows.stream.finish(last=high)
    return found
