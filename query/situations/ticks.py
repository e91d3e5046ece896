"""Situations over a time range, with late events in their places, and what late rows change.

A match begins at most its reach before its instant.  Rows before that are read only where a match
depends on them, because a run may have begun earlier; with PREV, for every partition of the range.

The last rows of partitions before a tick are found by a backward scan in pieces of doubling size.
Late events are included; keys are equal as under PARTITION BY.  The columns are read back to the
farthest row; for a partition without one, to the beginning of the stream, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.sorting import distinct
from ...core.times import INT64_MAX, INT64_MIN, half_open, moved
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ...store.tail import ticks_of_column
from ...store.tap import Spans, united
from ..conditions.predicates import tail_start
from ..contract.operator import InstantSearch, PartRun
from ..pattern.buffers import row_words
from ..pattern.columns import KeyCodes, flat, numbers
from .compiled import CompiledSituations
from .deriving import Partitions
from .stream import Before, Certifier, SituationStream

Ints = npt.NDArray[np.int64]
ROWS_FIRST = 1 << 12
ROWS_MAX = 1 << 20


@kernel
def _last_of(codes, place, left, kept):  # type: ignore[no-untyped-def]
    """Mark the last rows of partitions, ``left[place[code]]`` more of each that has a place."""
    found = 0
    for i in range(codes.shape[0] - 1, -1, -1):
        at = place[codes[i]]
        if at >= 0 and left[at] > 0:
            left[at] -= 1
            kept[i] = True
            found += 1
    return found


class RowsBefore:
    """Finds rows before a tick, but not before ``lowest``; ``columns`` include the keys."""

    def __init__(
        self,
        snapshot: Snapshot,
        columns: Sequence[str],
        partition_by: Sequence[str],
        before: int,
        lowest: int = INT64_MIN,
        metrics: ScanMetrics | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.columns = list(columns)
        self.keys = list(partition_by)
        self.before = before
        span = snapshot.time_range
        self.lowest = before if span is None else max(lowest, span[0])
        self.metrics = metrics
        self.check = check or (lambda: None)
        self._codes = KeyCodes(max(1, len(self.keys)))
        self._all: int | None = None  # number of partitions, once all were seen

    def on(
        self, snapshot: Snapshot, metrics: ScanMetrics, check: Callable[[], None] | None
    ) -> None:
        """Continue on a snapshot with the same rows before the tick."""
        self.snapshot, self.metrics, self.check = snapshot, metrics, check or (lambda: None)

    def _encode(self, table: pa.Table) -> Ints:
        if not self.keys:
            return np.zeros(table.num_rows, np.int64)
        return self._codes.encode([table.column(name) for name in self.keys])

    def find(self, keys: pa.Table, count: int = 1) -> tuple[pa.Table, Ints]:
        """Up to ``count`` last rows of each key, in stream order, and their keys' numbers."""
        codes = self._encode(keys) if self.keys else np.zeros(1, np.int64)
        place = np.full(max(self._codes.count, 1), -1, np.int64)
        place[codes] = np.arange(len(codes))
        left = np.full(len(codes), count, np.int64)
        if self._all is not None:
            left[codes >= self._all] = 0  # these first occur after the tick
        missing = int(left.sum())
        high, rows = self.before, ROWS_FIRST
        parts: list[pa.Table] = []
        of: list[Ints] = []
        while missing and high > self.lowest:
            self.check()
            low = max(self.lowest, tail_start(self.snapshot, self.lowest, high - 1, rows))
            table = self._read(low, high)
            found = self._encode(table)
            place = np.concatenate([place, np.full(max(0, self._codes.count - len(place)), -1)])
            kept = np.zeros(len(found), np.bool_)
            missing -= _last_of(found, place, left, kept)
            parts.append(table.filter(pa.array(kept)))
            of.append(place[found[kept]])
            high, rows = low, min(2 * rows, ROWS_MAX)
        if missing and self._all is None:
            self._all = max(1, self._codes.count)
        if not parts:
            parts.append(self._read(self.before, self.before))
        none = np.zeros(0, np.int64)
        return pa.concat_tables(parts[::-1]), np.concatenate([none, *of[::-1]])

    def _read(self, low: int, high: int) -> pa.Table:
        schema = self.snapshot.schema.arrow
        fields = pa.schema([schema.field(name) for name in self.columns])
        batches = self.snapshot.scan(
            low, high, self.columns, metrics=self.metrics, check=self.check
        )
        return pa.Table.from_batches(list(batches) if low < high else [], fields)


class FromTick(InstantSearch):
    """A run over the rows from a tick on, which reads earlier rows where needed.  No relevant match
    begins before ``begin``; matches known before ``since`` are not reported.
    """

    def __init__(self, run: PartRun, compiled: CompiledSituations, begin: int, since: int) -> None:
        snapshot = run.snapshot
        self.compiled = compiled
        self.stream = SituationStream(compiled, run.limits, run.check, since=since)
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
        self._before = RowsBefore(snapshot, columns, keys, begin, lowest, run.metrics, run.check)
        if not compiled.history:
            self.stream.certified = BordersOfTime(compiled, self._keys, self._before).certified
        elif not compiled.partition_by:
            self._prepare(np.zeros(1, np.int64))

    def go_on(self, run: PartRun) -> None:
        self.stream.check = run.check or (lambda: None)
        if self._before is not None:
            self._before.on(run.snapshot, run.metrics, run.check)

    @property
    def nbytes(self) -> int:
        return self.stream.nbytes

    @property
    def partitions(self) -> int:
        return self.stream.deriver.groups

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._before is not None and self.compiled.history and self.compiled.partition_by:
            known = self._keys.count
            self._keys.encode(pa.Table.from_batches([batch]))
            if self._keys.count > known:
                self._prepare(np.arange(known, self._keys.count))
        return self.stream.feed(batch)

    def finish(self, last: int | None = None) -> Iterator[pa.RecordBatch]:
        return self.stream.finish(last)

    def _prepare(self, groups: Ints) -> None:
        """Give conditions with PREV the earlier rows of newly seen partitions."""
        assert self._before is not None
        rows, _ = self._before.find(self._keys.values(groups), self.compiled.history + 1)
        self.stream.precede(rows)


class BordersOfTime(Certifier):
    """Certifies runs by the rows before a tick; partitions are numbered by ``keys``."""

    def __init__(self, compiled: CompiledSituations, keys: Partitions, before: RowsBefore) -> None:
        super().__init__(compiled)
        self._keys = keys
        self._before = before

    def rows_before(self, groups: Ints, rows: Ints) -> list[Before]:
        found, of = self._before.find(self._keys.values(groups))
        words = row_words(self.compiled.tests, found, np.array([0, found.num_rows], np.int64))
        ticks, _ = numbers(flat(found.column(self.compiled.time)), "i")
        told: list[Before] = [None] * len(groups)
        for i, word, tick in zip(of.tolist(), words.tolist(), ticks.tolist(), strict=True):
            told[i] = (int(word), int(tick))
        return told


def changed_instants(
    compiled: CompiledSituations, snapshot: Snapshot, spans: Spans, watermark: int
) -> Spans:
    """Instants up to a watermark of matches that late rows in ranges of ticks may have changed.

    A late row in a partition changes the runs that contain it, end or begin at it, or, if it splits
    or joins two of them, begin at the next row (with PREV also behind rows that look back at it;
    with GAP no further).  A match of such a run becomes known no earlier than the event, and at
    most its reach after the run's start::

                 t           next row of p
          -------x-----------x--------------------
                 [--------- reach ---)             runs that begin up to t
                             [--------- reach ---) runs that begin at the next row
    """
    reach, found = compiled.reach, []
    assert reach is not None
    for first, last in spans:
        if compiled.gap is not None and not compiled.history:
            found.append((first, moved(moved(last, compiled.gap), reach)))
            continue
        found.append((first, moved(last, reach)))
        behind = _next_rows(compiled, snapshot, first, last, watermark)
        found += [(tick, moved(tick, reach)) for tick in behind]
    return united(tuple((low, min(watermark, high)) for low, high in found))


def _next_rows(
    compiled: CompiledSituations, snapshot: Snapshot, first: int, last: int, watermark: int
) -> list[int]:
    """Times of rows behind a range that look back at a row in it, in any partition."""
    names = list(compiled.partition_by)
    codes = KeyCodes(max(1, len(names)))

    def rows(low: int, high: int) -> tuple[Ints, Ints]:
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
    left[touched] = compiled.history + 1
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
