"""Situations over a time range, with late events in their places.

A match begins at most its reach before its instant.  Rows before that are read only where a match
depends on them, because a run may have begun earlier; with PREV, for every partition of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.times import INT64_MAX, INT64_MIN
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..pattern.buffers import row_words
from ..pattern.columns import flat, numbers
from ..pattern.compiled import MatchLimits
from ..situations.certifying import Before, Certifier
from ..situations.compiled import CompiledSituations
from ..situations.deriving import Partitions
from ..situations.stream import SituationStream
from .rows_before import RowsBefore

__all__ = ["FromTick", "furthest", "run_ticks"]

Ints = npt.NDArray[np.int64]
Check = Callable[[], None] | None


def furthest(compiled: CompiledSituations) -> int | None:
    """Ticks before the instant of a match within which all of it began; None if unbounded."""
    reach = [compiled.kept(i) for i in range(len(compiled.names))]
    known = [ticks for ticks in reach if ticks is not None]
    return max(known) if len(known) == len(reach) else None


def run_ticks(
    snapshot: Snapshot,
    compiled: CompiledSituations,
    instants: tuple[int, int],
    metrics: ScanMetrics,
    check: Check = None,
    limits: MatchLimits | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of the matches that become known in a range of inclusive ticks."""
    low, high = instants
    span = snapshot.time_range
    if span is None or low > high:
        return
    reach = furthest(compiled)
    begin = INT64_MIN if reach is None else max(INT64_MIN, low - reach)
    rows = FromTick(snapshot, compiled, begin, low, metrics, check, limits)
    columns, stop = compiled.input_columns, None if high >= INT64_MAX else high + 1
    begin = max(begin, span[0])
    for batch in snapshot.scan(begin, stop, columns, metrics=metrics, check=check):
        yield from rows.feed(batch)
    yield from rows.stream.finish(last=min(high, span[1]))


class FromTick:
    """A run over the rows from a tick on, which reads earlier rows where needed.  No relevant match
    begins before ``begin``; matches known before ``since`` are not reported.
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
        self.stream.check = check or (lambda: None)
        if self._before is not None:
            self._before.on(snapshot, metrics, check)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._before is not None and self.compiled.history and self.compiled.partition_by:
            known = self._keys.count
            self._keys.encode(pa.Table.from_batches([batch]))
            if self._keys.count > known:
                self._prepare(np.arange(known, self._keys.count))
        return self.stream.feed(batch)

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
