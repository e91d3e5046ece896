"""Relations of a running query, and the base of clauses over rows (input and EXPLAIN).

All scans see one snapshot per stream and apply pushed filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core.ownership import LOADING
from ...core.times import half_open
from ...store.aggregates import LightweightAggregates
from ...store.prune import AllOf, Prune, RowFilter
from ...store.segment import ScanMetrics
from ..binding.tree_aggregates import one_row, one_row_schema, result_table
from ..conditions.predicates import TICK_MAX, TICK_MIN, describe, range_text
from ..conditions.row_filters import PredicateFilter, Split, split_filter
from ..contract.explanation import Operator, Regions
from ..plan.nodes import Leaf, Scan, TreeAggregate
from ..relational.interface import evaluated_by
from .context import RunContext

if TYPE_CHECKING:
    from ..replay.filtering import FilterPlan


class StreamRelation:
    def __init__(self, node: Scan, run: RunContext) -> None:
        self._node = node
        self._snapshot = run.snapshot(node.stream)
        self._indexes = run.indexes(node.stream)
        self._control = run.control
        self._index: FilterPlan | None = None
        self._scanned = False
        self._metrics = ScanMetrics()

    @property
    def schema(self) -> pa.Schema:
        return self._snapshot.schema.arrow

    def scan(
        self, columns: Sequence[str] | None, filter: RowFilter | None
    ) -> Iterator[pa.RecordBatch]:
        if self._node.applied:
            assert filter is None  # no operator above could push one
            rest = PredicateFilter(self._node.prune or AllOf(()), self._snapshot.schema)
            split = Split(TICK_MIN, TICK_MAX, None, rest)
        else:
            split = split_filter(filter, self._snapshot.schema)
        low, high = max(self._node.low, split.low), min(self._node.high, split.high)
        if low > high:
            return
        start, end = half_open(low, high)
        parts = tuple(part for part in (self._node.prune, split.prune) if part is not None)
        prune = None if not parts else parts[0] if len(parts) == 1 else AllOf(parts)
        lookup = self._looked_up(prune, low, high)
        self._index, self._scanned = lookup or self._index, True
        check = self._control.check
        if lookup is not None:
            if self._node.limit is None and lookup.replay.spans is not None:
                self._control.progress.expect([self._metrics], lookup.replay.spans.total)
            yield from lookup.scan(
                low, high, columns, split.rest, self._node.limit, self._metrics, check
            )
            return
        if self._node.limit is None:
            snapshot = self._snapshot
            self._control.progress.expect(
                [self._metrics], snapshot.count, lambda: snapshot.events_between(start, end)
            )
        yield from self._snapshot.scan(
            start,
            end,
            columns,
            prune=prune,
            filter=split.rest,
            limit=self._node.limit,
            metrics=self._metrics,
            check=check,
        )

    def _looked_up(self, prune: Prune | None, low: int, high: int) -> FilterPlan | None:
        if self._indexes is None or prune is None:
            return None
        with LOADING:
            from ..replay.filtering import plan_filter

        return plan_filter(self._snapshot, self._indexes, prune, low, high, self._control.check)

    def operator(self, executor: dict[str, Any], figures: bool) -> Operator:
        """The node of the plan; without a run the lookup is made for EXPLAIN."""
        schema = self._snapshot.schema
        if not self._scanned and self._node.low <= self._node.high:
            self._index = self._looked_up(self._node.prune, self._node.low, self._node.high)
        columns = _listed(executor.get("Projections")) or tuple(schema.names)
        details = (
            ("stream", self._node.stream),
            ("range", range_text(self._node.low, self._node.high, schema)),
            ("columns", columns),
            ("prune", describe(self._node.prune, schema)),
            ("filter", self._filter_text(executor)),
            ("limit", self._node.limit),
            ("index", self._index.details() if self._index is not None else None),
            ("indexes_unavailable", (self._indexes and self._indexes.trouble()) or None),
        )
        present = tuple((key, value) for key, value in details if value is not None)
        actual: tuple[tuple[str, int | float], ...] = ()
        if figures:
            actual = (
                ("rows", int(executor.get("rows", 0))),
                ("time_ms", float(executor.get("time_ms", 0.0))),
                *self._metrics.figures,
            )
        return Operator("Scan", present, actual, regions=self._regions())

    def _regions(self) -> Regions | None:
        node = self._node
        if node.limit is not None:
            return None
        with LOADING:
            from ..replay.regions import regions_of, regions_of_scan

        if self._index is not None:
            return regions_of(self._index.replay, self._snapshot, "looked_up")
        return regions_of_scan(self._snapshot, node.low, node.high, node.prune)

    def _filter_text(self, executor: dict[str, Any]) -> str | None:
        if self._node.applied:
            return describe(self._node.prune, self._snapshot.schema)
        return " and ".join(_listed(executor.get("Filters"))) or None


class AggregateRelation:
    """The single row of an aggregate that the tree answers, with columns ``a0, a1, ...``."""

    def __init__(self, node: TreeAggregate, run: RunContext) -> None:
        self._node = node
        self._snapshot = run.snapshot(node.scan.stream)
        self._metrics = ScanMetrics()

    @property
    def schema(self) -> pa.Schema:
        return one_row_schema(self._node.calls)

    def _answer(self) -> LightweightAggregates:
        scan = self._node.scan
        start, end = half_open(scan.low, scan.high)
        return self._snapshot.aggregate(self._node.attributes, start, end, metrics=self._metrics)

    def scan(
        self, columns: Sequence[str] | None, filter: RowFilter | None
    ) -> Iterator[pa.RecordBatch]:
        batch = one_row(self._node.calls, self._answer(), self._node.scan.schema.time)
        if filter is not None:
            batch = filter(batch)
        yield batch if columns is None else batch.select(list(columns))

    def table(self) -> pa.Table:
        node = self._node
        assert node.columns is not None
        return result_table(node.calls, node.columns, self._answer(), node.scan.schema.time)

    def operator(self, executor: dict[str, Any], figures: bool) -> Operator:
        actual: tuple[tuple[str, int | float], ...] = ()
        if figures:
            actual = (
                ("rows", int(executor.get("rows", 1))),
                ("time_ms", float(executor.get("time_ms", 0.0))),
                *self._metrics.figures,
            )
        node = self._node
        calls = tuple(f"{call.function}({call.attribute or '*'})" for call in node.calls)
        span = range_text(node.scan.low, node.scan.high, node.scan.schema)
        details = (
            ("stream", node.scan.stream),
            ("range", span or "all of time"),
            ("aggregates", calls),
        )
        scan = node.scan
        with LOADING:
            from ..replay.regions import regions_of_scan

        regions = regions_of_scan(self._snapshot, scan.low, scan.high, kind="aggregated")
        return Operator("TreeAggregate", details, actual, regions=regions)


class OperatorRelation:
    """A stream operator within a query; the executor evaluates its expressions."""

    def __init__(self, leaf: Leaf, run: RunContext) -> None:
        self._by = (run.executor, run.control)
        with evaluated_by(*self._by):
            self._relation = run.open(leaf)

    @property
    def schema(self) -> pa.Schema:
        with evaluated_by(*self._by):
            return self._relation.schema

    def scan(
        self, columns: Sequence[str] | None, filter: RowFilter | None
    ) -> Iterator[pa.RecordBatch]:
        if filter is None:
            yield from self._batches(columns)
            return
        wanted = list(self.schema.names if columns is None else columns)
        needed = wanted + [name for name in filter.columns if name not in wanted]
        for batch in self._batches(needed, filter):
            passing = filter(batch)
            if passing.num_rows:
                yield passing.select(wanted)

    def operator(self, executor: dict[str, Any], figures: bool) -> Operator:
        with evaluated_by(*self._by):
            return self._relation.explain()

    def _batches(
        self, columns: Sequence[str] | None, passing: RowFilter | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows; each batch may be taken in another thread."""
        batches = self._relation.batches(columns, passing)
        while True:
            with evaluated_by(*self._by):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def _listed(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value)
