"""The last rows of partitions before a tick, by a backward scan in pieces of doubling size.

Late events are included; keys are equal as under PARTITION BY.  The columns are read back to the
farthest row; for a partition without one, to the beginning of the stream, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.times import INT64_MIN
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..conditions.ranges import tail_start
from ..pattern.groups import KeyCodes

__all__ = ["RowsBefore"]

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
