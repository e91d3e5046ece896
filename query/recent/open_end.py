"""Matches of a pattern without WITHIN and greatest length, near some ranges of time only::

    range                     [ low ........ high ]
    MAXIMAL, SKIP TO NEXT     [ read ............ and on ...) until all starts are decided
    INCREMENTAL      [ ....   [ read ............ and on ...)
                     '- all searches that are open here have died before low

Matches that begin (INCREMENTAL: end) in a range are those of the whole stream, each once, if the
clause's matches are independent.  ``back_to`` needs at most 64 positions, and fails if searches
stay open for long.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.native import kernel
from ...core.times import INT64_MAX
from ...store.snapshot import Snapshot
from ..conditions.ranges import half_open, tail_start
from ..pattern.automaton import ACCEPT
from ..pattern.columns import flat
from ..pattern.compiled import CompiledMatch, MatchLimits
from ..pattern.groups import KeyCodes, group_rows
from ..pattern.match_stream import condition_columns
from ..pattern.matcher import Groups
from ..replay.interval_stream import IntervalStream
from ..replay.timeline import Timeline
from ..split.parts import MatchPart, PartRun

__all__ = ["OpenEndedPart", "back_to"]

Ints = npt.NDArray[np.int64]
Check = Callable[[], None] | None

AHEAD_ROWS = 256
"""Rows read at first beyond a range; doubled each time."""
BACK_ROWS = (64, 1024, 1 << 14)
"""Rows before a range that are searched for a place to begin."""


@dataclass(frozen=True, eq=False)
class OpenEndedPart(MatchPart):
    """The matches near disjoint, ascending, inclusive tick ranges.  Reading starts at ``begin``
    (``low`` or before); ``column``: the time that must lie in a range, start or end of a match;
    ``keys``: other values of these columns are dropped.
    """

    low: Ints
    high: Ints
    begin: Ints
    column: str
    keys: tuple[tuple[str, pa.Array], ...] = field(default=())

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return None, None

    def _rows(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        timeline = Timeline(run.snapshot)
        history = max(1, run.compiled.history)
        for low, high, begin in zip(self.low, self.high, self.begin, strict=True):
            for batch in self._near(run, timeline, int(high), int(begin), history):
                ticks = batch.column(self.column).cast(pa.int64())
                found = ticks.fill_null(low - 1).to_numpy(zero_copy_only=False)
                inside = (found >= low) & (found <= high)
                if inside.any():
                    yield batch.filter(pa.array(inside))

    def _near(
        self, run: PartRun, timeline: Timeline, high: int, begin: int, history: int
    ) -> Iterator[pa.RecordBatch]:
        stream = _Decided(run.compiled, run.limits, run.check)
        before = _history_from(run.snapshot, timeline, begin, history)
        if before < begin:
            for batch in self._scan(run, before, begin - 1):
                yield from stream.feed_piece(batch, False)
        for batch in self._scan(run, begin, high):
            yield from stream.feed_piece(batch, True)
        stream.edge = stream.fed
        if high < INT64_MAX:
            for batch in _growing(self._scan(run, high + 1, INT64_MAX)):
                yield from stream.settle()
                if stream.decided:
                    return
                yield from stream.feed_piece(batch, True)
        yield from stream.finish()

    def _scan(self, run: PartRun, low: int, high: int) -> Iterator[pa.RecordBatch]:
        if low > high:
            return
        start, end = half_open(low, high)
        columns = run.compiled.input_columns
        for batch in run.snapshot.scan(start, end, columns, metrics=run.metrics, check=run.check):
            yield _of_keys(batch, self.keys)

    def describe(self) -> str:
        return f"{len(self.low)} ranges of time, and on until every match that counts is decided"


class _Decided(IntervalStream):
    def __init__(self, compiled: CompiledMatch, limits: MatchLimits, check: Check) -> None:
        super().__init__(compiled, limits, check)
        self.edge = INT64_MAX
        self._open_from = 0

    @property
    def fed(self) -> int:
        return self._fed

    @property
    def decided(self) -> bool:
        return self._open_from >= self.edge

    def settle(self) -> Iterator[pa.RecordBatch]:
        yield from self._search(final=False)

    def _keep(self, groups: Groups) -> int:
        self._open_from = super()._keep(groups)
        return self._open_from


def _growing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = AHEAD_ROWS
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            piece = batch.slice(at, size)
            yield piece
            at += piece.num_rows
            size *= 2


def _of_keys(batch: pa.RecordBatch, keys: tuple[tuple[str, pa.Array], ...]) -> pa.RecordBatch:
    for name, values in keys:
        batch = batch.filter(pc.is_in(batch.column(name), value_set=values))
    return batch


def _history_from(snapshot: Snapshot, timeline: Timeline, tick: int, rows: int) -> int:
    span = snapshot.time_range
    if span is None or tick <= span[0]:
        return tick
    if snapshot.dirty_ranges():
        return tail_start(snapshot, span[0], tick - 1, rows)
    place = int(timeline.lower(np.array([tick]))[0])
    return timeline.tick(max(0, place - rows)) if place else tick


# ------------------------------------------------------------------------------ back


@kernel
def _open_at(words, offsets, ticks, follow, every, history, low):
    """Whether a search that was open before the rows (at any position) may be open at a tick."""
    for g in range(offsets.shape[0] - 1):
        alive = every
        for row in range(offsets[g], offsets[g + 1]):
            if ticks[row] >= low:
                return True
            if row - offsets[g] < history:
                continue
            reached = np.uint64(0)
            left = alive
            p = 0
            while left:
                if left & np.uint64(1):
                    reached |= follow[p]
                left >>= np.uint64(1)
                p += 1
            alive = reached & words[row]
            if alive == 0:
                break
    return False


def back_to(
    snapshot: Snapshot,
    timeline: Timeline,
    compiled: CompiledMatch,
    low: int,
    high: int,
    keys: tuple[tuple[str, pa.Array], ...],
    check: Check = None,
) -> int | None:
    """A tick such that matches that end in [low, high] begin there or later; None if unknown."""
    plan = compiled.conditions
    if not plan.by_position:
        return None
    span = snapshot.time_range
    if span is None or low <= span[0]:
        return low
    late = bool(snapshot.dirty_ranges())
    place = int(timeline.lower(np.array([low]))[0])
    follow = np.zeros(64, np.uint64)
    for p, edges in enumerate(compiled.automaton.edges):
        if p:
            bits = sum(1 << int(plan.bit[e.target]) for e in edges if e.target != ACCEPT)
            follow[int(plan.bit[p])] = bits
    every = np.uint64(sum(1 << int(plan.bit[p]) for p in range(1, len(compiled.automaton.names))))
    columns = compiled.input_columns
    time = str(compiled.columns.time)
    for rows in BACK_ROWS:
        first = max(0, place - rows)
        begin = timeline.tick(first) if first else span[0]
        until = high if compiled.partition_by else low - 1
        start, end = half_open(begin, until)
        batches = [
            _of_keys(batch, keys) for batch in snapshot.scan(start, end, columns, check=check)
        ]
        if not batches:
            return begin
        table = pa.Table.from_batches(batches)
        order, offsets = None, np.array([0, table.num_rows], np.int64)
        if compiled.partition_by:
            coded = KeyCodes(len(compiled.partition_by))
            codes = coded.encode([table.column(name) for name in compiled.partition_by])
            order, offsets = group_rows(codes, coded.count)
            table = table.take(pa.array(order))
        words = plan.prepare(table.select(condition_columns(compiled)), offsets).words
        ticks = flat(table.column(time)).cast(pa.int64()).to_numpy()
        unknown = compiled.history if first or late else 0
        # without partitions the rows end before the range: a dummy row at low tests what is open
        if not compiled.partition_by:
            words = np.append(words, np.uint64(0))
            ticks = np.append(ticks, low)
            offsets = np.array([0, len(ticks)], np.int64)
        if not _open_at(words, offsets, ticks, follow, every, unknown, low):
            return begin
        if not first:
            return begin
    return None
