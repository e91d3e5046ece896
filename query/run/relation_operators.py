"""Runs the sources that need no stream operator: NET, frames and system tables.

A result of NET holds if it was inserted once more than retracted, by identity and revision.  A
frame's rows come in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.times import half_open
from ...store.tail import ticks_of_column
from ..binding.relation_binding import DIFFERENCE
from ..conditions.ranges import range_text
from ..contract.explanation import Operator
from ..plan.nodes import FrameRows, NetRows, SystemRows
from .context import RunContext


class NetOperator:
    def __init__(self, node: NetRows, run: RunContext) -> None:
        self._node = node
        self._run = run
        self._changes = self._rows = 0

    @property
    def schema(self) -> pa.Schema:
        return self._node.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        node = self._node
        wanted = list(self.schema.names if columns is None else columns)
        if node.scan.low > node.scan.high:
            return
        needed = wanted
        if node.revoked:
            needed = list(dict.fromkeys([*wanted, "_time", "_id", "_rev", DIFFERENCE]))
        scan = self._run.snapshot(node.scan.stream).scan(
            *half_open(node.scan.low, node.scan.high), needed, check=self._run.control.check
        )
        for batch in _whole_ticks(scan) if node.revoked else scan:
            self._changes += batch.num_rows
            kept = settled(batch) if node.revoked else batch
            self._rows += kept.num_rows
            if kept.num_rows:
                yield kept.select(wanted)

    def explain(self) -> Operator:
        scan = self._node.scan
        shown = range_text(scan.low, scan.high, scan.schema)
        details = (("stream", scan.stream), *([("time", shown)] if shown else []))
        figures = (("changes", self._changes), ("rows", self._rows)) if self._changes else ()
        return Operator("Net", details, figures)


def _whole_ticks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        ticks = ticks_of_column(batch.column("_time"))
        cut = int(np.searchsorted(ticks, ticks[-1]))
        if cut:
            yield _joined([*held, batch.slice(0, cut)])
            held = []
        elif held and ticks_of_column(held[-1].column("_time"))[-1] != ticks[-1]:
            yield _joined(held)
            held = []
        held.append(batch.slice(cut))
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def settled(changes: pa.RecordBatch) -> pa.RecordBatch:
    """The changes that still hold, of a time-ordered batch with all changes of each tick."""
    difference = changes.column(DIFFERENCE).to_numpy(zero_copy_only=False).astype(np.int64)
    if not (difference < 0).any():
        return changes
    words = np.stack(
        [
            ticks_of_column(changes.column("_time")),
            changes.column("_rev").to_numpy(zero_copy_only=False).astype(np.int64),
        ],
        axis=1,
    )
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(words), [None, pa.py_buffer(np.ascontiguousarray(words))]
    )
    key = pc.binary_join_element_wise(changes.column("_id"), fixed.cast(pa.binary()), b"")
    codes = pc.dictionary_encode(key).indices.to_numpy(zero_copy_only=False)
    count = int(codes.max()) + 1
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, difference)
    said = np.flatnonzero(difference > 0)
    last = np.full(count, -1, np.int64)
    last[codes[said]] = said  # of repeated insertions the last one wins
    return changes.take(pa.array(np.sort(last[(sums > 0) & (last >= 0)])))


class FrameOperator:
    def __init__(self, node: FrameRows, run: RunContext) -> None:
        self._frame = node.frame
        self._rows = 0

    @property
    def schema(self) -> pa.Schema:
        return self._frame.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        for batch in self._frame.batches(self.schema.names if columns is None else columns):
            self._rows += batch.num_rows
            yield batch

    def explain(self) -> Operator:
        details = (("name", self._frame.name), ("columns", tuple(self.schema.names)))
        return Operator("Frame", details, (("rows", self._rows),) if self._rows else ())


class SystemTableOperator:
    def __init__(self, node: SystemRows, _: RunContext) -> None:
        self._node = node

    @property
    def schema(self) -> pa.Schema:
        return self._node.rows.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        rows = self._node.rows
        yield from (rows if columns is None else rows.select(list(columns))).to_batches()

    def explain(self) -> Operator:
        return Operator("SystemTable", (("table", self._node.name),), ())
