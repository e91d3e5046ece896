"""Runs RECENT JOIN; the requested columns of both sides are in memory.

Pairs are ordered by start of the archive row, end of the live row, place of the archive row, place
of the live row; unpaired live rows (LEFT) follow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..contract.explanation import Operator
from ..plan.nodes import RecentJoin
from ..recent.pairs import Pairing
from ..relational.evaluation import evaluate
from .context import RunContext
from .recent_side import SideRun, events_of, regions_of

__all__ = ["RecentOperator"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
BATCH_ROWS = 1 << 17


class RecentOperator:
    def __init__(self, node: RecentJoin, run: RunContext) -> None:
        self._node = node
        self._run = run
        self._live = SideRun(node.live, run, node.weights)
        self._archive = SideRun(node.archive, run, node.weights)
        self._figures = {"rows": 0, "live_rows": 0, "archive_rows": 0, "pairs": 0}
        self._seconds = 0.0

    @property
    def schema(self) -> pa.Schema:
        return self._node.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        wanted = list(self.schema.names if columns is None else columns)
        begun = time.perf_counter()
        for batch in self._results(wanted):
            self._figures["rows"] += batch.num_rows
            self._seconds += time.perf_counter() - begun
            yield batch
            begun = time.perf_counter()
        self._seconds += time.perf_counter() - begun

    def _results(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        node = self._node
        needed = [*wanted, *node.condition_columns, *(name for key in node.keys for name in key)]
        live, archive = self._read(needed)
        self._figures["live_rows"], self._figures["archive_rows"] = len(live), len(archive)
        mine, theirs = events_of(
            self._live, self._archive, node.unit,
            [(live.column(one), archive.column(other)) for one, other in node.keys],
        )  # fmt: skip
        pairing = Pairing(mine, theirs, node.distance)
        rows = _Rows(live, archive, wanted, node.schema)
        if node.kind in ("semi", "anti"):
            partnered = self._partnered(pairing, live, archive, len(mine))
            chosen = np.flatnonzero(partnered if node.kind == "semi" else ~partnered)
            yield from rows.alone(chosen)
            return
        partnered = np.zeros(len(mine), np.bool_)
        for ours, others in self._pairs(pairing, live, archive):
            self._figures["pairs"] += len(ours)
            if node.kind == "left":
                partnered[ours] = True
            yield from rows.paired(ours, others)
        if node.kind == "left":
            yield from rows.alone(np.flatnonzero(~partnered))

    def _read(self, needed: list[str]) -> tuple[pa.Table, pa.Table]:
        """The rows of both sides; unless eager, those of the second only near the first."""
        node = self._node
        if node.ends != (None, None):
            live = self._live.ending(needed, node.ends)
            regions = regions_of(
                self._live, self._archive, live, node.keys, node.distance, node.unit, True
            )
            return live, self._archive.read(needed, regions)
        if node.order == "archive_first":
            archive = self._archive.read(needed)
            keys = [(other, one) for one, other in node.keys]
            regions = regions_of(
                self._archive, self._live, archive, keys, node.distance, node.unit, False
            )
            return self._live.read(needed, regions), archive
        live = self._live.read(needed)
        if node.order == "eager":
            return live, self._archive.read(needed)
        regions = regions_of(
            self._live, self._archive, live, node.keys, node.distance, node.unit, True
        )
        return live, self._archive.read(needed, regions)

    def _partnered(self, pairing: Pairing, live: pa.Table, archive: pa.Table, count: int) -> Mask:
        if self._node.condition is None:
            return pairing.partnered()
        found = np.zeros(count, np.bool_)
        for ours, _ in self._kept(pairing.batches(), live, archive):
            self._figures["pairs"] += len(ours)
            found[ours] = True
        return found

    def _pairs(
        self, pairing: Pairing, live: pa.Table, archive: pa.Table
    ) -> Iterator[tuple[Ints, Ints]]:
        if self._node.last is None:
            yield from self._kept(pairing.batches(), live, archive)
            return
        batches = self._kept(pairing.batches(newest_first=True), live, archive)
        yield from reversed(list(pairing.newest(batches, self._node.last)))

    def _kept(
        self, batches: Iterator[tuple[Ints, Ints]], live: pa.Table, archive: pa.Table
    ) -> Iterator[tuple[Ints, Ints]]:
        node, check = self._node, self._run.control.check
        for ours, others in batches:
            check()
            if node.condition is None:
                yield ours, others
                continue
            columns = {
                name: live.column(name).take(pa.array(ours))
                if name in live.column_names
                else archive.column(name).take(pa.array(others))
                for name in node.condition_columns
            }
            if not columns:  # a condition of constants
                columns = {"one": pa.array(np.ones(len(ours), np.bool_))}
            true = evaluate(f"SELECT {node.condition} AS c FROM rows", rows=pa.table(columns))
            kept = true.column(0).cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
            where = np.asarray(kept, np.bool_)
            yield ours[where], others[where]

    def explain(self) -> Operator:
        node = self._node
        details: list[tuple[str, str | tuple[str, ...]]] = [
            ("join", node.kind if node.last is None else f"{node.kind}, the last {node.last}"),
            ("within", "unbounded" if node.distance is None else f"{node.distance} ticks"),
        ]
        details.append(("order", f"{node.order.replace('_', ' ')}: {node.why}"))
        for name, side in (("live_side", self._live), ("archive_side", self._archive)):
            if side.told():
                details.append((name, side.told()))
        if node.keys:
            details.append(("keys", tuple(f"{one} = {other}" for one, other in node.keys)))
        if node.condition is not None:
            details.append(("condition", node.condition.replace('"rows".', "")))
        figures: tuple[tuple[str, int | float], ...] = ()
        if self._run.analyze:
            figures = (*self._figures.items(), ("time_ms", self._seconds * 1000))
        below = (self._live.explain(), self._archive.explain())
        return Operator("RecentJoin", tuple(details), figures, below)


class _Rows:
    def __init__(
        self, live: pa.Table, archive: pa.Table, wanted: Sequence[str], schema: pa.Schema
    ) -> None:
        self._live, self._archive = live, archive
        self._schema = pa.schema([schema.field(name) for name in wanted])

    def paired(self, ours: Ints, others: Ints) -> Iterator[pa.RecordBatch]:
        for low in range(0, len(ours), BATCH_ROWS):
            some = slice(low, low + BATCH_ROWS)
            yield self._batch(ours[some], pa.array(others[some]))

    def alone(self, ours: Ints) -> Iterator[pa.RecordBatch]:
        for low in range(0, len(ours), BATCH_ROWS):
            some = ours[low : low + BATCH_ROWS]
            yield self._batch(some, pa.nulls(len(some), pa.int64()))

    def _batch(self, ours: Ints, others: pa.Array) -> pa.RecordBatch:
        mine = pa.array(ours)
        arrays = []
        for field in self._schema:
            if field.name in self._live.column_names:
                column = self._live.column(field.name).take(mine)
            else:
                column = self._archive.column(field.name).take(others)
            arrays.append(column.combine_chunks().cast(field.type))
        if not arrays:
            raise AssertionError("a batch needs a column to have rows")
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
