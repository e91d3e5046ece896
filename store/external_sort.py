"""External merge sort of events by time, in bounded memory.

The sort is stable: equal times keep their order of arrival.  Memory is bounded by one run
(``RUN_BYTES``, twice while sorting) and, while merging, one block of each of at most ``FAN_IN``
runs.  The temporary file is unnamed, so a crash leaves nothing behind.  The schema may widen::

    run     [block][block][block]      sorted by time; each block an Arrow IPC message
    run     [block][block]
    index   per block: offset, bytes, first and last time (in memory, 60 bytes a block)

Runs with disjoint times are read one after another.  Of overlapping ones, the run whose current
block ends first is the pivot; rows up to its end are concatenated in order of arrival and sorted::

    run 0   |-----a-----|                    taken: a, and of b and c
    run 1      |--------:b------|            what lies before the end of a
    run 2         |-----:---c-------|
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.closing import Closing
from ..errors import StorageFull
from .merge import sort_nearly
from .tail import ticks_of_column

RUN_BYTES = 32 << 20
PREFIX_BYTES = 32 << 20
"""After this many bytes in order, ``runs_in_order`` stops buffering."""

BLOCK_BYTES = 512 << 10
BLOCK_ROWS_MIN = 1024
FAN_IN = 128


class _Block(NamedTuple):
    offset: int
    size: int
    first: int
    last: int


class _Run(NamedTuple):
    schema: pa.Schema
    blocks: list[_Block]

    def span(self, column: pa.Field) -> tuple[int, int]:
        ends = pa.array([self.blocks[0].first, self.blocks[-1].last])
        own = self.schema.field(column.name).type
        # A value that does not fit the other unit is reported when its block is read.
        first, last = ends.cast(own).cast(column.type, safe=False).cast(pa.int64()).to_pylist()
        return first, last


Convert = Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch]
"""Converts an early batch to the final, wider schema."""


class ExternalSort(Closing):
    """Takes events in any order and returns them in time order; a context manager."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        run_bytes: int = RUN_BYTES,
        convert: Convert = lambda batch, _: batch,
    ) -> None:
        self._convert = convert
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._run_bytes = run_bytes
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._runs: list[_Run] = []
        self._time = ""
        self._end = 0
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch, time: str) -> None:
        self._time = time
        if not batch.num_rows:
            return
        if self._pending and not self._pending[0].schema.equals(batch.schema):
            self._spill()
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        if self._pending_bytes >= self._run_bytes:
            self._spill()

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All events in time order; InvalidData if an early value does not fit the final schema."""
        if self._runs:
            if self._pending:
                self._spill()
            yield from self._merged(schema)
        elif self._pending:
            batches = [self._convert(batch, schema) for batch in self._pending]
            self._pending = []
            yield from _sorted(batches, self._time)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._pending.clear()

    # ------------------------------------------------------------------------------- writing

    def _spill(self) -> None:
        schema = self._pending[0].schema
        batches = _sorted(self._pending, self._time)
        self._pending, self._pending_bytes = [], 0
        self._runs.append(self._write(schema, batches))
        del batches
        pa.default_memory_pool().release_unused()

    def _write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> _Run:
        blocks: list[_Block] = []
        for batch in batches:
            rows = max(BLOCK_ROWS_MIN, BLOCK_BYTES * batch.num_rows // max(1, batch.nbytes))
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                ticks = ticks_of_column(part.column(self._time))
                message = part.serialize()
                self._append(message)
                blocks.append(_Block(self._end, message.size, int(ticks[0]), int(ticks[-1])))
                self._end += message.size
        return _Run(schema, blocks)

    def _append(self, message: pa.Buffer) -> None:
        view = memoryview(message)
        offset = self._end
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - by close()
            while view:
                written = os.pwrite(self._file.fileno(), view, offset)
                view = view[written:]
                offset += written
        except OSError as error:
            raise StorageFull(
                f"no room to sort events in {self._directory or tempfile.gettempdir()} "
                f"({error.strerror}): {self._end >> 20} MB were not enough; free some space there"
            ) from None

    # ------------------------------------------------------------------------------- merging

    def read(self, run: _Run, block: _Block, schema: pa.Schema) -> pa.RecordBatch:
        assert self._file is not None
        data = os.pread(self._file.fileno(), block.size, block.offset)
        return self._convert(pa.ipc.read_record_batch(pa.py_buffer(data), run.schema), schema)

    def _merged(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for cluster in _clusters(self._runs, schema.field(self._time)):
            while len(cluster) > FAN_IN:
                cluster = [
                    self._write(schema, self._merge(cluster[at : at + FAN_IN], schema))
                    for at in range(0, len(cluster), FAN_IN)
                ]
            if len(cluster) == 1:
                for block in cluster[0].blocks:
                    yield self.read(cluster[0], block, schema)
            else:
                yield from self._merge(cluster, schema)

    def _merge(self, runs: Sequence[_Run], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        cursors = [_Cursor(self, run, schema, self._time) for run in runs]
        while active := [cursor for cursor in cursors if cursor.load()]:
            pivot = min(range(len(active)), key=lambda at: active[at].last)
            border = active[pivot].last
            parts = [cursor.take(border, at <= pivot) for at, cursor in enumerate(active)]
            yield from _sorted([part for part in parts if part.num_rows], self._time)


class _Cursor:
    def __init__(self, sort: ExternalSort, run: _Run, schema: pa.Schema, time: str) -> None:
        self._blocks = (sort.read(run, block, schema) for block in run.blocks)
        self._time = time
        self._batch: pa.RecordBatch | None = None
        self._ticks: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def load(self) -> bool:
        if not self._ticks.size:
            self._batch = next(self._blocks, None)
            if self._batch is not None:
                self._ticks = ticks_of_column(self._batch.column(self._time))
        return self._batch is not None

    @property
    def last(self) -> int:
        return int(self._ticks[-1])

    def take(self, border: int, inclusive: bool) -> pa.RecordBatch:
        assert self._batch is not None
        rows = int(np.searchsorted(self._ticks, border, "right" if inclusive else "left"))
        part, self._batch = self._batch.slice(0, rows), self._batch.slice(rows)
        self._ticks = self._ticks[rows:]
        return part


def _clusters(runs: Sequence[_Run], time: pa.Field) -> Iterator[list[_Run]]:
    """Groups of runs with overlapping times, in time order; each in order of arrival."""
    members: list[int] = []
    end: int | None = None
    for (first, last), at in sorted((run.span(time), at) for at, run in enumerate(runs)):
        if end is not None and first > end:
            yield [runs[member] for member in sorted(members)]
            members, end = [], None
        members.append(at)
        end = last if end is None else max(end, last)
    if members:
        yield [runs[member] for member in sorted(members)]


def _sorted(batches: Sequence[pa.RecordBatch], time: str) -> list[pa.RecordBatch]:
    times = [ticks_of_column(batch.column(time)) for batch in batches]
    ticks = times[0] if len(times) == 1 else np.concatenate(times)
    if bool(np.all(ticks[1:] >= ticks[:-1])):
        return list(batches)
    return [sort_nearly(pa.concat_batches(batches), ticks)]


# --------------------------------------------------------------------------- runs of a task's input


def runs_in_order(
    batches: Iterator[pa.RecordBatch],
    time: str,
    *,
    directory: str | os.PathLike[str] | None = None,
    run_bytes: int = RUN_BYTES,
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Split batches of one schema into at most two runs in time order.

    Up to ``PREFIX_BYTES`` are buffered: if in order, they pass through, and a second run is sorted
    from where order ends; else everything is sorted.  Each run must be read to its end before the
    next.
    """
    ordered = _WhileInOrder(batches, time)
    prefix: list[pa.RecordBatch] = []
    size = 0
    for batch in ordered:
        prefix.append(batch)
        size += batch.nbytes
        if size >= min(run_bytes, PREFIX_BYTES):
            break
    if ordered.rest is None:
        if prefix:
            yield itertools.chain(prefix, ordered)
        prefix = []
    if ordered.rest is None:
        return
    with ExternalSort(directory, run_bytes=run_bytes) as sort:
        for batch in itertools.chain(prefix, [ordered.rest], batches):
            sort.add(batch, time)
        prefix.clear()
        yield sort.batches(ordered.rest.schema)


class _WhileInOrder:
    def __init__(self, batches: Iterator[pa.RecordBatch], time: str) -> None:
        self._batches = batches
        self._time = time
        self._last: int | None = None
        self.rest: pa.RecordBatch | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if not batch.num_rows:
                continue
            ticks = ticks_of_column(batch.column(self._time))
            if (self._last is not None and ticks[0] < self._last) or np.any(ticks[1:] < ticks[:-1]):
                self.rest = batch
                return
            self._last = int(ticks[-1])
            yield batch
