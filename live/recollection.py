"""Cache of a live query's recent output, by identity, to avoid reading its sink::

    identity --PairNumbers--> entry     last revision, newest row, latest time
                                |
    row   time, revision, entry, next older row of the entry; whether it holds
    and the result columns of each row, as stored in the sink

From ``Recollection.since`` on it equals the sink; a restart, a failure or any other change of the
sink invalidates it.  Retracted rows stay until compaction.  Beyond ``ROWS_MAX`` rows the earlier
half is dropped; the queries of a store share ``BYTES_MAX`` (LRU).
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.identity import words_of
from ..core.native import kernel
from ..core.pair_numbers import PairNumbers, Pairs
from ..core.sorting import distinct
from ..core.times import INT64_MIN
from .changes import Results, Said

__all__ = ["ROWS_MAX", "Recollection", "RecollectionBudget"]

IntArray = npt.NDArray[np.int64]
ROWS_MAX = 1 << 17
ROWS_FEW = 1 << 12
BYTES_MAX = 64 << 20


@kernel
def _noted(entry, time, revision, sign, first, entries, rows, holds):
    """Apply changes in order of emission; returns the number of rows."""
    count = first
    for i in range(entry.shape[0]):
        e = entry[i]
        entries[e, 0] = max(entries[e, 0], revision[i])
        entries[e, 2] = max(entries[e, 2], time[i])
        if sign[i] > 0:
            rows[count, 0] = time[i]
            rows[count, 1] = revision[i]
            rows[count, 2] = e
            rows[count, 3] = entries[e, 1]
            holds[count] = True
            entries[e, 1] = count
            count += 1
            continue
        row = entries[e, 1]
        while row >= 0:
            if holds[row] and rows[row, 0] == time[i] and rows[row, 1] == revision[i]:
                holds[row] = False
                break
            row = rows[row, 3]
    return count


@kernel
def _holding(entry, entries, rows, holds, low, high, out):
    """Rows of entries that hold and have a time in a range; returns their number."""
    count = 0
    for i in range(entry.shape[0]):
        row = entries[entry[i], 1] if entry[i] >= 0 else np.int64(-1)
        while row >= 0:
            if holds[row] and low <= rows[row, 0] <= high:
                if count < out.shape[0]:
                    out[count] = row
                count += 1
            row = rows[row, 3]
    return count


class Recollection:
    """All output from ``since`` on must be passed to ``note``."""

    def __init__(self, since: int, columns: Sequence[pa.Field]) -> None:
        self.since = since
        self._schema = pa.schema(columns)
        self._numbers = PairNumbers()
        self._entries = np.empty((0, 3), np.int64)
        self._count = 0
        self._rows = np.empty((0, 4), np.int64)
        self._holds = np.empty(0, np.bool_)
        self._columns: list[pa.RecordBatch] = []

    @property
    def nbytes(self) -> int:
        own = self._rows.nbytes + self._holds.nbytes + self._entries.nbytes + self._numbers.nbytes
        return int(own + sum(part.nbytes for part in self._columns))

    def note(
        self,
        time: IntArray,
        ids: pa.Array,
        revision: IntArray,
        sign: IntArray,
        rows: pa.RecordBatch,
    ) -> None:
        """Apply emitted changes in order; ``rows`` has the columns of all of them."""
        if time.min(initial=self.since) < self.since:
            held = time >= self.since
            mask = pa.array(held)
            time, ids, revision, sign = time[held], ids.filter(mask), revision[held], sign[held]
            rows = rows.filter(mask)
        if self._put(self._numbers.take(words_of(ids)), time, revision, sign):
            some = sign > 0
            self._columns.append(rows if some.all() else rows.filter(pa.array(some)))
            self._columns = _levelled(self._columns)
        most = min(ROWS_MAX, ROWS_FEW + 4 * int(self._holds[: self._count].sum()))
        if self._count > most or self._numbers.count > 2 * ROWS_MAX:
            self._pack()

    def _put(self, entry: IntArray, time: IntArray, revision: IntArray, sign: IntArray) -> int:
        first = self._count
        self._rows = _longer(self._rows, first + len(time), -1)
        self._holds = _longer(self._holds, first + len(time), False)
        self._entries = _longer(self._entries, self._numbers.count, [-1, -1, INT64_MIN])
        self._count = int(
            _noted(entry, time, revision, sign, first, self._entries, self._rows, self._holds)
        )
        return self._count - first

    def _pack(self) -> None:
        rows, holds = self._rows[: self._count], self._holds[: self._count].copy()
        latest = self._entries[: self._numbers.count, 2]
        if 2 * max(int(holds.sum()), self._numbers.count // 2) > ROWS_MAX:
            self.since = int(np.median(latest)) + 1
            holds &= rows[:, 0] >= self.since
        stays = latest >= self.since
        number = np.cumsum(stays) - 1
        self._numbers.keep(stays)
        self._entries = self._entries[: len(stays)][stays]
        self._entries[:, 1] = -1
        self._columns = [self._take(np.flatnonzero(holds))]
        time, revision, entry, _ = rows[holds].T.copy()
        self._count = 0
        self._put(number[entry], time, revision, np.ones(len(time), np.int64))

    def _take(self, rows: IntArray) -> pa.RecordBatch:
        table = pa.Table.from_batches(self._columns, self._schema).take(pa.array(rows))
        whole = table.combine_chunks().to_batches()
        return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=self._schema)

    # -- what was said ----------------------------------------------------------------------------

    def said(self, low: int, high: int) -> Said:
        """The output with times ``low`` to ``high``."""
        time, holds = self._rows[: self._count, 0], self._holds[: self._count]
        return self._said(np.flatnonzero(holds & (time >= low) & (time <= high)))

    def said_of(self, ids: pa.Array, low: int, high: int) -> Said:
        entry = distinct(self._numbers.find(words_of(ids)))
        out = np.empty(len(entry), np.int64)
        while (count := self._found(entry, low, high, out)) > len(out):
            out = np.empty(count, np.int64)
        return self._said(np.sort(out[:count]))

    def _found(self, entry: IntArray, low: int, high: int, out: IntArray) -> int:
        return int(_holding(entry, self._entries, self._rows, self._holds, low, high, out))

    def _said(self, rows: IntArray) -> Said:
        rows = rows[np.argsort(self._rows[rows, 0], kind="stable")]
        time, revision, entry, _ = self._rows[rows].T.copy()
        net = Results(
            time, ids_of(self._numbers.pairs[entry]), pa.Table.from_batches([self._take(rows)])
        )
        return Said(net, revision, self._last_of)

    def _last_of(self, ids: pa.Array) -> IntArray:
        number = self._numbers.find(words_of(ids))
        last: IntArray = np.append(self._entries[: self._numbers.count, 0], -1)[number]
        return last


class Forgetful(Protocol):
    def forget(self) -> None:
        """Drop the cache."""


class RecollectionBudget:
    """LRU budget of the recollections of a store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[Forgetful, int]] = OrderedDict()
        self._bytes = 0

    def hold(self, owner: Forgetful, size: int) -> None:
        with self._lock:
            _, before = self._held.pop(id(owner), (owner, 0))
            self._held[id(owner)] = owner, size
            self._bytes += size - before
            old = []
            while self._bytes > BYTES_MAX and len(self._held) > 1:
                _, (other, least) = self._held.popitem(last=False)
                self._bytes -= least
                old.append(other)
        for other in old:
            other.forget()

    def release(self, owner: Forgetful) -> None:
        with self._lock:
            _, size = self._held.pop(id(owner), (owner, 0))
            self._bytes -= size


def ids_of(words: Pairs) -> pa.Array:
    held = pa.py_buffer(np.ascontiguousarray(words))
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(words), [None, held])
    return fixed.cast(pa.binary())


def _longer(array: npt.NDArray[Any], needed: int, rest: object) -> npt.NDArray[Any]:
    """An array with at least ``needed`` rows."""
    had = len(array)
    if needed <= had:
        return array
    longer = np.empty((max(needed, 2 * had), *array.shape[1:]), array.dtype)
    longer[:had], longer[had:] = array, rest
    return longer


def _levelled(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows in few batches, each more than twice as long as the next."""
    while len(parts) > 1 and parts[-2].num_rows <= 2 * parts[-1].num_rows:
        parts[-2:] = [pa.concat_batches(parts[-2:])]
    return parts
