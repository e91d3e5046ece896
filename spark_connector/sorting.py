"""Runs of events in time order, out of the batches of one Spark task.

Purpose
    A segment is written from left to right, so a task must bring its events into time order first.
    :func:`runs_in_order` yields *runs*: iterators of batches, each in time order from its first
    event to its last.  A task whose input is sorted already (the ingest pipeline sorts) gives one
    run and holds next to nothing in memory; any other input is sorted, on local disk when it is
    large.

Guarantee
    Events with equal times keep the order in which they came.  Memory is bounded by a small
    multiple of ``memory_bytes``, whatever the size of the input.  Spilled files are removed when
    the generator ends or is closed.

Layout
    ::

        batches --> [ hold up to PREFIX_BYTES ] --in order--> one run, passed through as it comes
                                |                                | out of order all at once:
                                |                                v the run ends here
                                +--out of order--> [ sort, spill ] ... [ merge ] --> one run

    The merge reads one batch of each spilled file at a time.  What is earlier than the last event
    of every batch in hand is complete: it is taken from all of them, sorted stably and passed on.

Limits
    At most two runs: a prefix that was in order for longer than :data:`PREFIX_BYTES`, and
    everything after it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["MEMORY_BYTES", "runs_in_order"]

MEMORY_BYTES = 128 << 20
"""Plain bytes of events out of order that a task holds before it writes them somewhere."""

PREFIX_BYTES = 32 << 20
"""Plain bytes in order after which a task takes its input for sorted and begins to write: what is
written early is on its way to the disk while the rest still comes."""

BATCH_ROWS = 65_536
"""Rows of a spilled batch, and about as many of a merged one."""


def runs_in_order(
    batches: Iterator[pa.RecordBatch],
    time: str,
    *,
    memory_bytes: int = MEMORY_BYTES,
    directory: str | None = None,
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Split batches into runs in time order; each run must be read to its end before the next.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        All of one schema, in any order of time.
    time : str
        Name of the time column: an integer or a timestamp, without nulls.
    memory_bytes : int
        What may be held before anything is written; :data:`PREFIX_BYTES` at most while it is in
        order.
    directory : str, optional
        Where spilled files go; the system's temporary directory by default.

    Yields
    ------
    iterator of pyarrow.RecordBatch
        One run in time order; never an empty one.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    ordered = True
    last: int | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        ordered = ordered and _continues(batch, time, last)
        last = int(_ticks(batch, time)[-1])
        held.append(batch)
        size += batch.nbytes
        if size >= (min(memory_bytes, PREFIX_BYTES) if ordered else memory_bytes):
            break
    else:
        if held:
            yield iter(held) if ordered else _sorted(held, time)
        return
    if ordered:
        rest = _Rest()
        yield _while_in_order(held, batches, time, last, rest)
        if rest.batch is None:
            return
        held = [rest.batch]
    yield _spilled(held, batches, time, memory_bytes, directory)


class _Rest:
    """Where a run leaves the batch that did not continue it."""

    batch: pa.RecordBatch | None = None


def _while_in_order(
    held: list[pa.RecordBatch],
    batches: Iterator[pa.RecordBatch],
    time: str,
    last: int | None,
    rest: _Rest,
) -> Iterator[pa.RecordBatch]:
    held.reverse()
    while held:
        yield held.pop()
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if not _continues(batch, time, last):
            rest.batch = batch
            return
        last = int(_ticks(batch, time)[-1])
        yield batch


def _ticks(batch: pa.RecordBatch, time: str) -> npt.NDArray[np.int64]:
    array = batch.column(time)
    ticks: npt.NDArray[np.int64] = (
        array.view(pa.int64()) if array.type.bit_width == 64 else array.cast(pa.int64())
    ).to_numpy(zero_copy_only=True)
    return ticks


def _continues(batch: pa.RecordBatch, time: str, last: int | None) -> bool:
    ticks = _ticks(batch, time)
    return (last is None or last <= ticks[0]) and bool(np.all(ticks[:-1] <= ticks[1:]))


def _sorted(batches: list[pa.RecordBatch], time: str) -> Iterator[pa.RecordBatch]:
    """Sort batches stably by time and cut them anew; empties the list to free memory early."""
    whole = pa.concat_batches(batches)
    batches.clear()
    order = np.argsort(_ticks(whole, time), kind="stable")
    for start in range(0, whole.num_rows, BATCH_ROWS):
        yield whole.take(pa.array(order[start : start + BATCH_ROWS]))


def _spilled(
    held: list[pa.RecordBatch],
    batches: Iterator[pa.RecordBatch],
    time: str,
    memory_bytes: int,
    directory: str | None,
) -> Iterator[pa.RecordBatch]:
    with tempfile.TemporaryDirectory(prefix="chronicle-sort-", dir=directory) as place:
        paths: list[Path] = []

        def spill() -> None:
            path = Path(place) / f"{len(paths)}.arrow"
            schema = held[0].schema
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
                for batch in _sorted(held, time):
                    out.write_batch(batch)
            paths.append(path)

        size = sum(batch.nbytes for batch in held)
        for batch in batches:
            if size >= memory_bytes:
                spill()
                size = 0
            if batch.num_rows:
                held.append(batch)
                size += batch.nbytes
        if not paths:
            yield from _sorted(held, time)
            return
        if held:
            spill()
        yield from _merged([_Spill(path, time) for path in paths], time)


class _Spill:
    """One spilled file in time order: the batch in hand and the ones to come."""

    def __init__(self, path: Path, time: str) -> None:
        self._reader = pa.ipc.open_file(pa.memory_map(str(path)))
        self._next = 0
        self._time = time
        self.batch: pa.RecordBatch | None = None
        self.advance()

    def advance(self) -> None:
        """Take the next batch; what is in hand still goes in front of it."""
        if self._next == self._reader.num_record_batches:
            return
        batch = self._reader.get_batch(self._next)
        self._next += 1
        self.batch = batch if self.batch is None else pa.concat_batches([self.batch, batch])

    @property
    def exhausted(self) -> bool:
        return bool(self._next == self._reader.num_record_batches)

    def last(self) -> int:
        assert self.batch is not None
        return int(_ticks(self.batch, self._time)[-1])

    def take_before(self, bound: int | None) -> pa.RecordBatch | None:
        """Cut off and give back the events before a bound, or all of them."""
        if self.batch is None:
            return None
        count = self.batch.num_rows
        if bound is not None:
            count = int(np.searchsorted(_ticks(self.batch, self._time), bound, side="left"))
        taken = self.batch.slice(0, count)
        self.batch = self.batch.slice(count) if count < self.batch.num_rows else None
        return taken


def _merged(spills: list[_Spill], time: str) -> Iterator[pa.RecordBatch]:
    while spills:
        for spill in spills:
            if spill.batch is None:
                spill.advance()
        # A file with more to come may continue with the time of its last event in hand, and those
        # events must go before equal ones of later files: only what is strictly earlier is
        # complete.
        open_ends = [spill for spill in spills if not spill.exhausted]
        bound = min((spill.last() for spill in open_ends), default=None)
        taken = [part for spill in spills if (part := spill.take_before(bound)) is not None]
        if any(part.num_rows for part in taken):
            yield from _sorted([part for part in taken if part.num_rows], time)
        elif bound is not None:  # nothing but ties in hand: read on where they come from
            next(spill for spill in open_ends if spill.last() == bound).advance()
        spills = [s for s in spills if s.batch is not None or not s.exhausted]
