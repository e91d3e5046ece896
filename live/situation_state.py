"""Cache of a live query's open runs and situations at the mark::

           reach                W0              W1
    ....|---------------------|===============|
          read once, matches    advanced over: the matches that become known
          are not searched      between W0 and W1

Valid for one watermark and one set of events up to it; rebuilt within the reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from ..core.times import moved
from ..query.pattern.matcher import MatchLimits
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
Check = Callable[[], None] | None


class SituationState:
    def __init__(self) -> None:
        self.watermark: int | None = None
        self.nbytes = 0
        self._rows: FromTick | None = None
        self._schema: StreamSchema | None = None
        self._gone = Removals(0, 0, 0, 0)
        self._partitions = 0

    def holds(self, snapshot: Snapshot, watermark: int) -> bool:
        """Whether it is valid at a watermark for the events of a snapshot."""
        return (
            self._rows is not None
            and self.watermark == watermark
            and self._schema == snapshot.schema
            and self._spared(snapshot, watermark)
            and self._rows.stream.deriver.groups <= max(PARTITIONS_LEAST, 2 * self._partitions)
        )

    def _spared(self, snapshot: Snapshot, watermark: int) -> bool:
        if self._gone == Removals.of(snapshot.state):
            return True
        assert self._rows is not None
        compiled = self._rows.compiled
        reached = SituationRange.of(snapshot, compiled, moved(watermark, 1), watermark)
        return self._gone.spare(snapshot.state, reached.begin)

    def drop(self) -> None:
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
        if not self.holds(snapshot, since):
            self.drop()
            self._rows = self._rebuilt(snapshot, compiled, since, metrics, check, limits)
        rows = self._rows
        assert rows is not None
        self.watermark = None  # None if the step fails
        rows.on(snapshot, metrics, check)
        found = _taken(rows, snapshot, since + 1, known, metrics, check)
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
        bounded = replace(limits, memory_bytes=min(limits.memory_bytes, STATE_BYTES_MAX))
        begin = SituationRange.of(snapshot, compiled, moved(since, 1), since).begin
        rows = FromTick(snapshot, compiled, begin, since + 1, metrics, check, bounded)
        _taken(rows, snapshot, begin, since, metrics, check)  # no match becomes known here
        self._partitions = rows.stream.deriver.groups
        return rows


class SituationStep(SituationPart):
    """Query part with the matches of a step; running it advances the state."""

    def __init__(self, state: SituationState, since: int, known: int) -> None:
        self._state = state
        self._since, self._known = since, known
        self._found: list[pa.RecordBatch] | None = None

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks that it reads, where the state is kept."""
        return half_open(self._since + 1, self._known)

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if self._found is None:  # a part may be run repeatedly
            self._found = self._state.advance(
                snapshot, compiled, self._since, self._known, metrics, check,
                limits or MatchLimits(),
            )  # fmt: skip
        yield from self._found

    def describe(self) -> str:
        return f"matches known by time ({self._since}, {self._known}]"


def _taken(
    rows: FromTick, snapshot: Snapshot, low: int, high: int, metrics: ScanMetrics, check: Check
) -> list[pa.RecordBatch]:
    columns = rows.compiled.input_columns
    found: list[pa.RecordBatch] = []
    for batch in snapshot.scan(*half_open(low, high), columns, metrics=metrics, check=check):
        found += rows.feed(batch)
    found += rows.stream.finish(last=high)
    return found
