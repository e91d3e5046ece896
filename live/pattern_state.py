"""Cache of a live pattern's searches, so that a step in order reads only its own events::

    cut            W0                W1
     |.. replayed ..|.. advanced over ..|
     found by the   nothing is emitted  decided matches are the rows of the step
     region's rule

A step gives what region evaluation gives that is new at W1.  A state is valid for one watermark and
one set of events up to it (``PatternState.holds``), and is rebuilt from the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ..core.sorting import firsts
from ..core.times import INT64_MIN, moved
from ..query.pattern.advancing import AdvancingMatch, Positions, marks_ends
from ..query.pattern.columns import KeyCodes
from ..query.pattern.compiled import CompiledMatch
from ..query.pattern.late_region import Late, late_matches
from ..query.pattern.matcher import MatchLimits
from ..query.replay.applicability import demands
from ..query.split.cuts import known_part, told_at_once
from ..query.split.parts import Cut, Reach
from ..schema import StreamSchema
from ..store.segment import ScanMetrics
from ..store.snapshot import Snapshot
from ..store.tail import ticks_of_column
from .forms import half_open

__all__ = ["STATE_BYTES_MAX", "Correction", "Known", "PatternState", "Step", "keeps_state"]

STATE_BYTES_MAX = 256 << 20
"""Limit per live query; beyond it steps evaluate regions."""
CHUNK_ROWS = 1 << 16
LATE_FEW = 16
"""Up to this many late events, correcting pays even if the state must be rebuilt."""
Check = Callable[[], None] | None


def keeps_state(compiled: CompiledMatch) -> bool:
    """Whether a continued search decides matches exactly when the search of a region does.  Further
    sort keys, or INCREMENTAL MATCH, leave open where a search stands at a position; where rows
    before a cut matter, searches start at the first event, which pays only with partitions.
    """
    asks = demands(compiled)
    return (
        compiled.in_time_order
        and (compiled.clause.selection is None or told_at_once(compiled))
        and compiled.clause.rows != "all with unmatched"
        and not compiled.lookahead
        and not marks_ends(compiled)
        and not asks.ties
        and (bool(asks.partition_by) or not asks.neighbours)
    )


class PatternState:
    """Searches at ``watermark``, None after a failure; ``hits``: events that can match."""

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.nbytes = 0
        self.hits = 0
        self._stream: AdvancingMatch | None = None
        self._schema: StreamSchema | None = None
        self._dropped = self._rewritten = 0

    def holds(self, snapshot: Snapshot, watermark: int) -> bool:
        """Whether it is valid at a watermark for the events of a snapshot."""
        stream = self._stream
        if stream is None or self.watermark != watermark or self._schema != snapshot.schema:
            return False
        if self._rewritten != snapshot.state.rewritten:
            return False
        if self._dropped == snapshot.state.dropped:
            return True
        first, kept = snapshot.time_range, stream.kept_from  # are open matches still stored?
        return first is not None and (kept is None or kept > first[0])

    def pays(self, snapshot: Snapshot, watermark: int, late: int) -> bool:
        """Whether the late events are few enough to search only their partitions."""
        known = 0
        if self._stream is not None and self.holds(snapshot, watermark):
            known = self._stream.input.rows.partitions
        return late <= max(LATE_FEW, known // 4)

    def drop(self) -> None:
        self.watermark, self._stream, self._schema, self.nbytes = None, None, None, 0

    def advance(
        self,
        snapshot: Snapshot,
        compiled: CompiledMatch,
        since: int,
        known: int,
        metrics: ScanMetrics,
        check: Check,
        limits: MatchLimits,
    ) -> list[pa.Table]:
        if not self.holds(snapshot, since):
            self.drop()
            self._stream = self._rebuilt(snapshot, compiled, since, metrics, check, limits)
        stream = self._stream
        assert stream is not None
        self.watermark = None  # None if the step fails
        hits = stream.hits
        found = []
        new = _scan(snapshot, compiled, since + 1, known, metrics, check)
        for table, watermark in _chunks(new, snapshot.schema.time, known):
            decided = stream.advance(table, watermark)
            if decided.rows.num_rows:
                found.append(decided.rows)
        self.watermark, self.nbytes = known, stream.nbytes
        self.hits += stream.hits - hits
        self._schema, self._dropped = snapshot.schema, snapshot.state.dropped
        self._rewritten = snapshot.state.rewritten
        return found

    def correct(
        self,
        old: Snapshot,
        snapshot: Snapshot,
        compiled: CompiledMatch,
        late: Late,
        since: int,
        metrics: ScanMetrics,
        check: Check,
        limits: MatchLimits,
    ) -> tuple[pa.Table, pa.Table] | None:
        """Apply late events, which ``old`` lacks; rows of matches removed or changed, and of new
        ones.  None where evaluating regions is cheaper.
        """
        if not self.holds(old, since):
            self.drop()
            self._stream = self._rebuilt(old, compiled, since, metrics, check, limits)
        stream, self.watermark = self._stream, None  # None if the step fails
        assert stream is not None
        fields = [snapshot.schema.arrow.field(name) for name in compiled.input_columns]

        def scan(low: int, high: int) -> pa.Table:
            batches = _scan(snapshot, compiled, low, high, metrics, check)
            return pa.Table.from_batches(batches, pa.schema(fields))

        assert snapshot.time_range is not None
        changed = late_matches(stream, scan, late, snapshot.time_range[0])
        if changed is not None:
            self.watermark, self.nbytes = since, stream.nbytes
            self._schema, self._dropped = snapshot.schema, snapshot.state.dropped
        return changed

    def _rebuilt(
        self,
        snapshot: Snapshot,
        compiled: CompiledMatch,
        since: int,
        metrics: ScanMetrics,
        check: Check,
        limits: MatchLimits,
    ) -> AdvancingMatch:
        bounded = replace(limits, memory_bytes=min(limits.memory_bytes, STATE_BYTES_MAX))
        stream = AdvancingMatch(compiled, bounded, check, in_turn=True)
        reach, cut = Reach(snapshot, compiled), None
        if not demands(compiled).neighbours:
            begin = reach.back(min(moved(since, 1), reach.last))
            cut = known_part(snapshot, compiled, begin, since, check).low
        low = reach.first if cut is None else cut.tick
        if cut is not None and len(cut.carried):
            rows = pa.Table.from_batches(_scan(snapshot, compiled, low, cut.last, metrics, check))
            stream.restore(_positions(compiled, cut, rows), low - 1)
        old = _scan(snapshot, compiled, low, since, metrics, check)
        for table, watermark in _chunks(old, snapshot.schema.time, since):
            stream.replay(table, watermark)
        return stream


class Step:
    """Query part with the matches decided by a step; running it advances the state."""

    def __init__(self, state: PatternState, since: int, known: int) -> None:
        self._state = state
        self._since, self._known = since, known
        self._found: list[pa.Table] | None = None

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks that it reads, where the state is kept."""
        return half_open(self._since + 1, self._known)

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledMatch,
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
        for table in self._found:
            yield from table.to_batches()

    def describe(self) -> str:
        return f"what is decided by time ({self._since}, {self._known}]"


class Correction:
    """Query part with matches that late events change; ``gone``: removed ones, or None."""

    def __init__(self, state: PatternState, old: Snapshot, late: Late, since: int) -> None:
        self._state, self._old, self._late, self._since = state, old, late, since
        self._found: pa.Table | None = None
        self.gone: pa.Table | None = None

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks that it reads, or more."""
        return half_open(INT64_MIN, self._since)

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledMatch,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if self._found is None:  # a part may be run repeatedly
            changed = self._state.correct(
                self._old, snapshot, compiled, self._late, self._since, metrics, check,
                limits or MatchLimits(),
            )  # fmt: skip
            nothing = compiled.output_schema.empty_table()
            self._found = nothing if changed is None else changed[1]
            self.gone = None if changed is None else changed[0]
        yield from self._found.to_batches()

    def describe(self) -> str:
        return f"what late events change up to {self._since}"


class Known:
    """Query part with given rows of matches."""

    ticks: tuple[int | None, int | None] = (0, 0)

    def __init__(self, rows: pa.Table | None = None) -> None:
        self._rows = rows

    def run(self, *_: object, **__: object) -> Iterator[pa.RecordBatch]:
        yield from () if self._rows is None else self._rows.to_batches()

    def describe(self) -> str:
        return "nothing"


def _scan(
    snapshot: Snapshot, compiled: CompiledMatch, low: int, high: int, metrics: ScanMetrics,
    check: Check,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    start, end = half_open(low, high)
    return snapshot.scan(start, end, compiled.input_columns, metrics=metrics, check=check)


def _chunks(
    batches: Iterable[pa.RecordBatch], time: str, upto: int
) -> Iterator[tuple[pa.Table | None, int]]:
    """Tables of about ``CHUNK_ROWS`` rows, each with the tick up to which rows are complete."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if rows >= CHUNK_ROWS:
            yield pa.Table.from_batches(waiting), int(ticks_of_column(batch.column(time))[0]) - 1
            waiting, rows = [], 0
        waiting.append(batch)
        rows += batch.num_rows
    yield (pa.Table.from_batches(waiting) if waiting else None), upto


def _positions(compiled: CompiledMatch, cut: Cut, rows: pa.Table) -> Positions:
    """Start positions of searches behind a cut, for partitions with carried rows."""
    keys = list(compiled.partition_by)
    codes = np.zeros(rows.num_rows, np.int64)
    if keys:
        codes = KeyCodes(len(keys)).encode([rows.column(name) for name in keys])
    ticks = np.concatenate(
        [ticks_of_column(part) for part in rows.column(str(compiled.columns.time)).chunks]
    )
    reverse = cut.carried[::-1]
    last = reverse[firsts(codes[reverse])[1]]  # of each partition
    rank = [int(((codes[:row] == codes[row]) & (ticks[:row] == ticks[row])).sum()) for row in last]
    positions = {name: rows.column(name).take(pa.array(last)) for name in keys}
    positions |= {
        "@tick": ticks[last], "@rank": np.array(rank, np.int64) + 1,
        "@number": np.zeros(len(last), np.int64), "@seen": np.ones(len(last), np.bool_),
    }  # fmt: skip
    none = rows.schema.empty_table().append_column("@rank", pa.array([], pa.int64()))
    none = none.append_column("@marks", pa.array([], pa.int64()))
    return Positions(pa.table(positions), none)
