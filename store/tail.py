"""Events in memory, with the interface of a leaf: the unfinished last leaf and the late buffer.

A ``Tail`` only grows, so a snapshot that remembers its row count is stable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.native import kernel
from ..core.ownership import OwnedLock
from ..core.sorting import order_of
from ..schema import StreamSchema
from .columns import ColumnView
from .leaf import zone_table

Table = npt.NDArray[np.int64]
BATCHES_MAX = 1024
"""A tail's batches are concatenated at this number: small ones are mostly overhead."""


@kernel
def is_sorted(values):  # type: ignore[no-untyped-def]
    """Whether an int64 array never decreases."""
    return np.all(values[1:] >= values[:-1])


def ticks_of(batch: pa.RecordBatch, schema: StreamSchema) -> npt.NDArray[np.int64]:
    """Times of a batch as int64 ticks, without a copy."""
    return ticks_of_column(batch.column(batch.schema.get_field_index(schema.time)))


def ticks_of_column(array: pa.Array) -> npt.NDArray[np.int64]:
    """Values of a time column as int64 ticks, without a copy."""
    buffer = array.buffers()[1] if len(array) else None
    view = np.frombuffer(buffer or b"", np.int64)[array.offset : array.offset + len(array)]
    view.flags.writeable = False
    return view


def sort_batch(batch: pa.RecordBatch, schema: StreamSchema) -> pa.RecordBatch:
    """The batch in time order, stable; not copied if already sorted."""
    ticks = ticks_of(batch, schema)
    if is_sorted(ticks):
        return batch
    return batch.take(pa.array(order_of(ticks)))


def concat_batches(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = [
        pa.concat_arrays([batch.column(i) for batch in batches])
        if batches
        else pa.array([], field.type)
        for i, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class MemoryLeaf:
    """A batch in time order with the interface of a leaf."""

    def __init__(self, batch: pa.RecordBatch, schema: StreamSchema) -> None:
        self.batch = batch
        self.schema = schema
        self.events = batch.num_rows
        self._ticks = ticks_of(batch, schema)
        self._tables: dict[tuple[str, ...], Table] = {}

    @property
    def first(self) -> int:
        return int(self._ticks[0])

    @property
    def last(self) -> int:
        return int(self._ticks[-1])

    def ticks(self, first: int = 0, end: int | None = None) -> npt.NDArray[np.int64]:
        return self._ticks[first : self.events if end is None else end]

    def zones_of(self, names: tuple[str, ...]) -> Table:
        table = self._tables.get(names)
        if table is None:
            columns = [
                ColumnView(self.schema.attribute(name), self.column(name, 0, self.events))
                for name in (self.schema.time, *names)
            ]
            table = zone_table(self.schema.time, columns, 0, self.events)
            self._tables[names] = table
        return table

    def column(self, name: str, first: int, end: int) -> pa.Array:
        return self.batch.column(self.schema.names.index(name)).slice(first, end - first)

    def rows(self, start: int, last: int) -> tuple[int, int]:
        low = int(np.searchsorted(self._ticks, start, "left"))
        return low, int(np.searchsorted(self._ticks, last, "right"))


class Tail:
    """Append-only events in time order that do not fill a leaf; ``first`` is None while empty."""

    def __init__(self, schema: StreamSchema, batches: Sequence[pa.RecordBatch] = ()) -> None:
        self.schema = schema
        self._batches = [batch for batch in batches if batch.num_rows]
        self.rows = sum(batch.num_rows for batch in self._batches)
        self.bytes = sum(batch.nbytes for batch in self._batches)
        self.first = int(ticks_of(self._batches[0], schema)[0]) if self._batches else None
        self._lock = OwnedLock("the stream of this tail")
        self._leaf: MemoryLeaf | None = None

    def add(self, batch: pa.RecordBatch, first: int, size: int) -> None:
        """Append a batch that is not older; its first tick and its size in bytes."""
        with self._lock:
            self._batches.append(batch)
            self.rows += batch.num_rows
            self.bytes += size
            if self.first is None:
                self.first = first
            if len(self._batches) >= BATCHES_MAX:
                self._batches = [concat_batches(self._batches, self.schema.arrow)]

    def batch(self, rows: int | None = None) -> pa.RecordBatch:
        with self._lock:
            if len(self._batches) != 1:
                self._batches = [concat_batches(self._batches, self.schema.arrow)]
            return self._batches[0].slice(0, rows)

    def leaf(self, rows: int) -> MemoryLeaf:
        """The first ``rows`` events as a leaf; the latest one is cached."""
        leaf = self._leaf
        if leaf is None or leaf.events != rows:
            leaf = MemoryLeaf(self.batch(rows), self.schema)
            self._leaf = leaf
        return leaf
