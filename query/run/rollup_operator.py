"""Runs windows from a roll-up, and from events where it has no answer; holds open windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import InvalidArgument
from ..conditions.ranges import TICK_MIN, shown_time
from ..contract.explanation import Operator
from ..plan.nodes import QueryPlan, RollupWindows, WindowAggregate
from ..windows.aggregation import ReplayAggregation, WindowAggregation, times_array
from ..windows.fields import aggregate_column, key_column
from ..windows.grains import GrainFold
from ..windows.keyed import KeyedAggregation
from ..windows.slices import ticks_of
from ..windows.spec import TimeWindows
from .context import Relation, RunContext

__all__ = ["RollupOperator"]

Words = npt.NDArray[np.int64]

EACH_NUMBER = TimeWindows(1, 1)


class RollupOperator:
    def __init__(self, node: RollupWindows, run: RunContext) -> None:
        self._node = node
        self._run = run
        self._raw: dict[int, Relation] = {
            place: run.open(piece)
            for place, piece in enumerate(node.pieces)
            if isinstance(piece, WindowAggregate)
        }
        self._grains = self._windows = 0

    @property
    def schema(self) -> pa.Schema:
        return self._node.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        wanted = list(self.schema.names if columns is None else columns)
        for batch in self._together() if not self._node.same else self._as_they_are():
            self._windows += batch.num_rows
            yield batch.select(wanted)

    def _as_they_are(self) -> Iterator[pa.RecordBatch]:
        node = self._node
        places = [node.partials.index(aggregate) for aggregate in node.aggregates]
        for numbers, keys, partials in self._pieces():
            yield self._batch(numbers, keys, [partials[place] for place in places])

    def _together(self) -> Iterator[pa.RecordBatch]:
        node = self._node
        types = [self.schema.field(key_column(i)).type for i in range(node.keys)]
        fold = GrainFold(node.event_schema, node.partials, node.aggregates, types)

        def scan(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            for numbers, keys, partials in self._pieces():
                yield fold.rows(numbers, keys, partials).select(list(columns))

        check = self._run.control.check
        merged: WindowAggregation
        if node.keys:
            merged = KeyedAggregation(fold.events, EACH_NUMBER, fold.merged, fold.keys, scan, check)
        else:
            merged = ReplayAggregation(fold.events, EACH_NUMBER, fold.merged, scan, check)
        for batch in merged.batches():
            numbers = batch.column("window_start").to_numpy()
            keys = [batch.column(name) for name in fold.keys]
            found = [batch.column(aggregate_column(i)) for i in range(len(fold.merged))]
            yield self._batch(numbers, keys, fold.results(found))

    def _batch(
        self, numbers: Words, keys: Sequence[pa.Array], results: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        start, end = self._node.windows.bounds(np.ascontiguousarray(numbers))
        time = self.schema.field("window_start").type
        arrays = [times_array(start, time), times_array(end, time), *keys, *results]
        cast = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(cast, schema=self.schema)

    def _pieces(self) -> Iterator[tuple[Words, list[pa.Array], list[pa.Array]]]:
        node, last = self._node, None
        names = [key_column(i) for i in range(node.keys)]
        names += [aggregate_column(i) for i in range(len(node.partials))]
        for place, piece in enumerate(node.pieces):
            if isinstance(piece, QueryPlan):
                clock, back = "_time", node.size - 1
                _, batches = self._run.rows(piece)
            else:
                clock, back = "window_start", 0
                batches = self._raw[place].batches([clock, *names])
            for batch in batches:
                self._run.control.check()
                if not batch.num_rows:
                    continue
                if isinstance(piece, QueryPlan):
                    self._grains += batch.num_rows
                ticks = ticks_of(batch.column(batch.schema.get_field_index(clock))) - back
                numbers = node.windows.windows_of(ticks)[1]
                if (last is not None and int(numbers[0]) < last) or (np.diff(numbers) < 0).any():
                    raise InvalidArgument(
                        "the roll-up gave windows out of order; please report this query, and "
                        "write /*+ rollups(none) */ behind SELECT meanwhile"
                    )
                last = int(numbers[-1])
                found = [batch.column(batch.schema.get_field_index(name)) for name in names]
                yield numbers, found[: node.keys], found[node.keys :]

    def explain(self) -> Operator:
        node = self._node
        type_ = self.schema.field("window_start").type

        def shown(tick: int) -> str:
            return shown_time(tick, type_) if pa.types.is_timestamp(type_) else str(tick)

        details: list[tuple[str, Any]] = [
            ("stream", node.stream),
            ("rollup", node.rollup),
            ("from", "the first" if node.since == TICK_MIN else shown(node.since)),
            ("to", shown(node.until)),
            ("windows", node.described),
            ("aggregates", tuple(str(a) for a in node.aggregates)),
            ("notes", node.notes),
        ]
        figures = (("rows_of_rollup", self._grains), ("windows", self._windows))
        below = tuple(self._raw[place].explain() for place in sorted(self._raw))
        return Operator(
            "RollupWindows", tuple(details), figures if self._windows else (), inputs=below
        )
