"""Windows with rows for those without events; see ``windows.filling``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ...errors import ResourceLimit
from ..conditions.ranges import TICK_MAX, TICK_MIN
from ..contract.explanation import Operator
from ..plan.nodes import FilledWindows
from ..windows.calendar import CalendarWindows
from ..windows.filling import HELD_BYTES_MAX, Filler, Grid
from ..windows.slices import ticks_of
from .context import RunContext

__all__ = ["FilledOperator"]


class FilledOperator:
    def __init__(self, node: FilledWindows, run: RunContext) -> None:
        self._node = node
        self._run = run
        self._input = run.open(node.input)
        self._rows = 0

    @property
    def schema(self) -> pa.Schema:
        return self._node.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        node = self._node
        wanted = list(self.schema.names if columns is None else columns)
        filler = Filler(node.fill, self.schema, node.keys, node.counts)
        source = (batch for batch in self._input.batches(self.schema.names) if batch.num_rows)
        for batch in self._by_key(filler, source) if node.keys else self._passing(filler, source):
            self._run.control.check()
            self._rows += batch.num_rows
            yield batch.select(wanted)

    def _passing(
        self, filler: Filler, source: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        first, upto = self._range()
        last: pa.Table | None = None
        for batch in source:
            rows = pa.Table.from_batches([batch])
            known = rows if last is None else pa.concat_tables([last, rows])
            grid = self._grid(known, first, None)
            if grid is not None:
                yield from filler.passing(grid, rows, last, first, None)
            last, first = rows.slice(rows.num_rows - 1), None
        if upto is None or (last is None and first is None):
            return
        nothing = self.schema.empty_table()
        grid = self._grid(nothing if last is None else last, first, upto)
        if grid is not None:
            yield from filler.passing(grid, nothing, last, first, upto)

    def _by_key(self, filler: Filler, source: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held, size = [], 0
        for batch in source:
            held.append(batch)
            size += batch.nbytes
            if size > HELD_BYTES_MAX:
                raise ResourceLimit(
                    f"windows of {sum(each.num_rows for each in held):,} keys and times take more "
                    "than 1 GiB, and to fill gaps they are held: narrow the range of time in WHERE"
                )
        rows = pa.Table.from_batches(held, self.schema)
        grid = self._grid(rows, *self._range())
        if grid is not None:
            yield from filler.by_key(grid, rows, *self._range())

    def _range(self) -> tuple[int | None, int | None]:
        """First and last tick of the query's range; None if unbounded."""
        low, high = self._node.low, self._node.high
        if low > high:
            return None, None
        return (None if low == TICK_MIN else low), (None if high == TICK_MAX else high)

    def _grid(self, rows: pa.Table, first: int | None, upto: int | None) -> Grid | None:
        """Numbers the windows from the first to the last row or tick; None without any."""
        windows = self._node.windows
        if not isinstance(windows, CalendarWindows):
            return windows
        ticks = [tick for tick in (first, upto) if tick is not None]
        if rows.num_rows:
            starts = ticks_of(rows.column(0).combine_chunks())
            ticks += [int(np.min(starts)), int(np.max(starts))]
        if not ticks:
            return None
        per_second = self._node.per_second
        assert per_second is not None
        return windows.calendar(min(ticks), max(ticks), per_second)

    def explain(self) -> Operator:
        figures = (("rows", self._rows),) if self._rows else ()
        details = (("fill", str(self._node.fill)), ("windows", self._node.windows.describe()))
        return Operator("FillGaps", details, figures, inputs=(self._input.explain(),))
