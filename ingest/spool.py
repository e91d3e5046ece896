"""Events on their way: sorted runs in an unnamed temporary file, merged into time order at the end.

Purpose
    An ingest must not store anything before it has read everything (the last file may be broken,
    the last row may show a wider type), must hand events to the store in time order (files rarely
    are), and must not hold them in memory.  A :class:`Spool` takes batches in any order and gives
    them back sorted.

Guarantee
    The order is the stable sort by time of everything added: equal times keep their order of
    arrival. Memory is bounded by a run (:data:`RUN_BYTES`, twice while it is sorted) and, while
    merging, by one block of each of at most :data:`FAN_IN` runs.  The file has no name: whatever
    happens to the process, nothing is left behind.

Layout
    ::

        run     [block][block][block]      sorted by time; each block an Arrow IPC message
        run     [block][block]
        index   per block: offset, bytes, first and last time (in memory, 60 bytes a block)

    Runs whose times do not overlap are read one after another.  Overlapping ones are merged: the
    run whose current block ends first is the pivot; what all runs have up to the pivot's end is
    concatenated in order of arrival and stably sorted.

    ::

        run 0   |-----a-----|                    taken: a, and of b and c
        run 1      |--------:b------|            what lies before the end of a
        run 2         |-----:---c-------|

Limits
    The file takes as much disk as the events do in Arrow format, in the directory of the store.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import StorageFull
from ..formats import conform
from ..ticks import TICKS_PER_SECOND

__all__ = ["Spool", "regroup"]

RUN_BYTES = 32 << 20
BLOCK_BYTES = 512 << 10
BLOCK_ROWS_MIN = 1024
FAN_IN = 128


@dataclass(frozen=True)
class _Block:
    offset: int
    size: int
    first: int
    last: int


@dataclass
class _Run:
    """A sorted run: where its blocks are, and the schema they were written with."""

    schema: pa.Schema
    blocks: list[_Block]

    @property
    def first(self) -> int:
        return self.blocks[0].first

    @property
    def last(self) -> int:
        return self.blocks[-1].last


class Spool:
    """Takes events in any order, gives them back in time order; a context manager.

    Parameters
    ----------
    directory : path
        Where the temporary file lives: a directory on a disk with room for the events.
    time : callable
        Gives the name of the time column (it may be settled by the first batch only).
    """

    def __init__(self, directory: str | os.PathLike[str], *, run_bytes: int = RUN_BYTES) -> None:
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed by close()
        self._run_bytes = run_bytes
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._runs: list[_Run] = []
        self._time = ""
        self._end = 0
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch, time: str) -> None:
        """Take a batch; ``time`` names its time column."""
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
        """Everything in time order, in the final schema.

        Raises
        ------
        InvalidData
            When an early value does not fit a type that has widened since.
        """
        if not self._runs:
            if self._pending:
                yield from self._sorted_pending(schema)
            return
        self._spill()
        yield from self._merged(self._runs, schema, FAN_IN)

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()
        self._pending.clear()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------- writing

    def _sorted_pending(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All events, when they fit into memory: no file is needed."""
        batches = [conform(batch, schema) for batch in self._pending]
        yield from _sorted(batches, self._time)

    def _spill(self) -> None:
        """Sort what is pending and write it as a run."""
        if not self._pending:
            return
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
                ticks = _ticks(part, self._time)
                message = part.serialize()
                self._append(message)
                blocks.append(_Block(self._end, message.size, int(ticks[0]), int(ticks[-1])))
                self._end += message.size
        return _Run(schema, blocks)

    def _append(self, message: pa.Buffer) -> None:
        view = memoryview(message)
        offset = self._end
        try:
            while view:
                written = os.pwrite(self._file.fileno(), view, offset)
                view = view[written:]
                offset += written
        except OSError as error:
            raise StorageFull(
                f"no room for the temporary file of the ingest ({error.strerror}); free some space "
                f"on the disk of the store: {self._end >> 20} MB were not enough"
            ) from None

    # ------------------------------------------------------------------------------- merging

    def _read(self, run: _Run, block: _Block, schema: pa.Schema) -> pa.RecordBatch:
        data = os.pread(self._file.fileno(), block.size, block.offset)
        return conform(pa.ipc.read_record_batch(pa.py_buffer(data), run.schema), schema)

    def _merged(
        self, runs: Sequence[_Run], schema: pa.Schema, fan_in: int
    ) -> Iterator[pa.RecordBatch]:
        for cluster in _clusters(runs, self._scales(runs, schema)):
            while len(cluster) > fan_in:
                cluster = [
                    self._write(schema, self._merge(cluster[at : at + fan_in], schema))
                    for at in range(0, len(cluster), fan_in)
                ]
            if len(cluster) == 1:
                for block in cluster[0].blocks:
                    yield self._read(cluster[0], block, schema)
            else:
                yield from self._merge(cluster, schema)

    def _scales(self, runs: Sequence[_Run], schema: pa.Schema) -> list[int]:
        """Factor from each run's time unit to the final one."""
        final = schema.field(self._time).type
        return [_scale(run.schema.field(self._time).type, final) for run in runs]

    def _merge(self, runs: Sequence[_Run], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Merge runs, given in order of arrival."""
        cursors = [_Cursor(self, run, schema) for run in runs]
        while active := [cursor for cursor in cursors if cursor.load()]:
            if len(active) == 1:
                yield active[0].take_all()
                continue
            pivot = min(range(len(active)), key=lambda at: active[at].last)
            border = active[pivot].last
            parts = []
            for at, cursor in enumerate(active):
                if at == pivot:
                    part = cursor.take_all()
                else:
                    part = cursor.take(border, inclusive=at < pivot)
                if part.num_rows:
                    parts.append(part)
            yield from _sorted(parts, self._time)


class _Cursor:
    """A position in a run that is being merged."""

    def __init__(self, spool: Spool, run: _Run, schema: pa.Schema) -> None:
        self._spool = spool
        self._run = run
        self._schema = schema
        self._next = 0
        self._batch: pa.RecordBatch | None = None
        self._ticks: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def load(self) -> bool:
        """Have a block in hand; False when the run is at its end."""
        if self._batch is not None and self._batch.num_rows:
            return True
        if self._next == len(self._run.blocks):
            self._batch = None
            return False
        block = self._run.blocks[self._next]
        self._batch = self._spool._read(self._run, block, self._schema)
        self._ticks = _ticks(self._batch, self._spool._time)
        self._next += 1
        return True

    @property
    def last(self) -> int:
        return int(self._ticks[-1])

    def take_all(self) -> pa.RecordBatch:
        batch = self._batch
        assert batch is not None
        self._batch = None
        return batch

    def take(self, border: int, *, inclusive: bool) -> pa.RecordBatch:
        """What lies before the border, or up to and with it."""
        assert self._batch is not None
        rows = int(np.searchsorted(self._ticks, border, "right" if inclusive else "left"))
        part = self._batch.slice(0, rows)
        self._batch = self._batch.slice(rows)
        self._ticks = self._ticks[rows:]
        return part


def _scale(type_: pa.DataType, final: pa.DataType) -> int:
    if not pa.types.is_timestamp(type_) or not pa.types.is_timestamp(final):
        return 1
    return TICKS_PER_SECOND[final.unit] // TICKS_PER_SECOND[type_.unit]


def _clusters(runs: Sequence[_Run], scales: Sequence[int]) -> Iterator[list[_Run]]:
    """Groups of runs whose times overlap, in time order; each in order of arrival."""
    spans = sorted(
        (run.first * scale, at, run.last * scale)
        for at, (run, scale) in enumerate(zip(runs, scales, strict=True))
    )
    members: list[int] = []
    end: int | None = None
    for first, at, last in spans:
        if end is not None and first > end:
            yield [runs[member] for member in sorted(members)]
            members = []
            end = None
        members.append(at)
        end = last if end is None else max(end, last)
    if members:
        yield [runs[member] for member in sorted(members)]


def _ticks(batch: pa.RecordBatch, time: str) -> npt.NDArray[np.int64]:
    column = batch.column(batch.schema.get_field_index(time))
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _sorted(batches: Sequence[pa.RecordBatch], time: str) -> list[pa.RecordBatch]:
    """Batches stably sorted by time; as they are when they are in order."""
    times = [_ticks(batch, time) for batch in batches]
    ticks = times[0] if len(times) == 1 else np.concatenate(times)
    if bool(np.all(ticks[1:] >= ticks[:-1])):
        return list(batches)
    table = pa.Table.from_batches(batches)
    order = pa.array(np.argsort(ticks, kind="stable"))
    result: list[pa.RecordBatch] = table.take(order).combine_chunks().to_batches()
    return result


def regroup(
    batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int = 32 << 20
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most ``rows_max`` rows, about ``bytes_max`` bytes."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for whole in batches:
        batch: Any = whole
        while batch.num_rows:
            part = batch.slice(0, rows_max - rows)
            batch = batch.slice(part.num_rows)
            held.append(part)
            rows += part.num_rows
            size += part.nbytes
            if rows >= rows_max or size >= bytes_max:
                yield _joined(held)
                held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
