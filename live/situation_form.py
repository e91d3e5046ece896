"""Live situations: one result per match, final at the instant of its completion or detection.

A region reads rows from the reach of a match before it (``query.split.situation_parts``).  A late
row in a partition changes the runs that contain it, end or begin at it, or, if it splits or joins
two of them, begin at the next row (with PREV also behind rows that look back at it; with GAP no
further).  A match of such a run becomes known no earlier than the event, and at most its reach
after the run's start::

             t           next row of p
      -------x-----------x--------------------
             [--------- reach ---)             runs that begin up to t
                         [--------- reach ---) runs that begin at the next row

Where retention has dropped the row before a run, the run begins at the first row left, as ad hoc.

The open runs and situations at the mark are cached::

           reach                W0              W1
    ....|---------------------|===============|
          read once, matches    advanced over: the matches that become known
          are not searched      between W0 and W1

Valid for one watermark and one set of events up to it; rebuilt within the reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.native import kernel
from ..core.sorting import distinct
from ..core.times import INT64_MAX, INT64_MIN, moved
from ..errors import ChronicleError, ResourceLimit
from ..query.contract.result import Result
from ..query.pattern.columns import KeyCodes
from ..query.pattern.matcher import MatchLimits
from ..query.replay.situation_ticks import FromTick, furthest
from ..query.situations.compiled import CompiledSituations
from ..query.split.situation_parts import SituationPart, SituationRange
from ..schema import StreamSchema
from ..store.segment import ScanMetrics
from ..store.snapshot import Snapshot
from ..store.tail import ticks_of_column
from ..store.tap import Spans, united
from .changes import Removals, Results
from .forms import Evaluator, Moment, StreamForm, chosen, half_open, ticks_of
from .pattern_form import MATCH, STATE_BYTES_MAX
from .row_form import TIME

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


ROWS_FIRST = 1 << 12
ROWS_MAX = 1 << 20


class SituationForm(StreamForm):
    kind = "situations"
    appends = False
    incremental = True
    rebuilds = True

    def __init__(
        self, evaluator: Evaluator, columns: tuple[str, ...], compiled: CompiledSituations
    ) -> None:
        super().__init__(evaluator, columns)
        self._compiled = compiled
        reach = furthest(compiled)
        assert reach is not None
        self._reach = reach
        self._state: SituationState | None = SituationState()

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        snapshot = moment[self.stream]
        high, span = min(high, known), snapshot.time_range
        if span is None or low > high:
            return self._named(self.evaluator.over(snapshot, 0, 0), 1, 0)
        if low <= span[0]:  # all of history, evaluated as an ad-hoc query
            return self._named(self.evaluator.over(snapshot), low, high)

        def part(at: Snapshot, compiled: CompiledSituations) -> SituationRange:
            return SituationRange.of(at, compiled, low, high)

        return self._named(self.evaluator.over(snapshot, situations=part), low, high)

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        state, snapshot = self._state, moment[self.stream]
        if state is None or snapshot.time_range is None:
            return None
        step = SituationStep(state, since, known)
        try:
            found = self.evaluator.over(snapshot, situations=lambda *_: step)
            return self._named(found, INT64_MIN, INT64_MAX)
        except ResourceLimit:  # a rebuilt state would be too large again
            self._state = None
            return None
        except ChronicleError:  # the region reports the error, or avoids it
            self.drop_state()
            return None
        except BaseException:
            self.drop_state()
            raise

    def _named(self, result: Result, low: int, high: int) -> Results:
        table, ticks = self._table(result, low, high, lambda table: ticks_of(table, TIME))
        names = table.column(MATCH).combine_chunks()
        if isinstance(names, pa.ChunkedArray):
            names = pa.concat_arrays(names.chunks)
        return Results(ticks, names, chosen(table, self.columns))

    @property
    def state_bytes(self) -> int:
        return 0 if self._state is None else self._state.nbytes

    def drop_state(self) -> None:
        if self._state is not None:
            self._state.drop()

    # -- late events -------------------------------------------------------------------------

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        snapshot, compiled, found = moment[self.stream], self._compiled, []
        for first, last in late.get(self.stream, ()):
            if compiled.gap is not None and not compiled.history:
                found.append((first, moved(moved(last, compiled.gap), self._reach)))
                continue
            found.append((first, moved(last, self._reach)))
            behind = self._next_rows(snapshot, first, last, watermark)
            found += [(tick, moved(tick, self._reach)) for tick in behind]
        return united(tuple((low, min(watermark, high)) for low, high in found))

    def _next_rows(self, snapshot: Snapshot, first: int, last: int, watermark: int) -> list[int]:
        """Times of rows behind a range that look back at a row in it, in any partition."""
        names = list(self._compiled.partition_by)
        codes = KeyCodes(max(1, len(names)))

        def rows(low: int, high: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
            time = snapshot.schema.time
            read = snapshot.scan(*half_open(low, high), list(dict.fromkeys([*names, time])))
            ticks, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
            for batch in read:
                table = pa.Table.from_batches([batch])
                ticks.append(ticks_of_column(batch.column(time)).astype(np.int64))
                keys = [table.column(name) for name in names]
                found.append(codes.encode(keys) if names else np.zeros(len(ticks[-1]), np.int64))
            return np.concatenate(ticks), np.concatenate(found)

        _, touched = rows(first, last)
        left = np.zeros(max(codes.count, 1), np.int64)
        left[touched] = self._compiled.history + 1
        told: list[int] = []
        low, step = last + 1, max(1, last - first + 1)
        while left.any() and low <= watermark:
            high = min(watermark, low + step)
            ticks, found = rows(low, high)
            left = np.concatenate([left, np.zeros(max(0, codes.count - len(left)), np.int64)])
            kept = np.zeros(len(found), np.bool_)
            _first_of(found, left, kept)
            told += distinct(ticks[kept]).tolist()
            low = high + 1
            step = _wider(step, len(found))
        return told

    def explain(self) -> list[tuple[str, str]]:
        early = self._compiled.early
        return [
            ("class", f"{self.kind} ({'on detection' if early else 'on completion'})"),
            ("reach", f"{self._reach} ticks"),
            ("closed", f"when the watermark passes the {'detection' if early else 'completion'}"),
            (
                "state",
                "incremental: runs that last and situations within the reach are kept and a step "
                "reads its own events; one with late events, or after a restart, those of the reach"
                if self._state is not None
                else "none: events within the reach are read again",
            ),
        ]


def _wider(step: int, rows: int) -> int:
    """Ticks to read next, given the number of rows in the last range."""
    return step if rows > ROWS_MAX else min(step * (8 if rows < ROWS_FIRST else 2), INT64_MAX // 4)


@kernel
def _first_of(codes, left, kept):  # type: ignore[no-untyped-def]
    """Mark the first ``left[code]`` rows of each partition."""
    for i in range(codes.shape[0]):
        if left[codes[i]] > 0:
            left[codes[i]] -= 1
            kept[i] = True
