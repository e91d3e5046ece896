"""What the relations of a running query are: streams, one-row aggregates and operators.

Purpose
    A query's FROM items become :class:`Scannable` objects behind the datasets that the executor
    reads. This module holds those that the planner makes itself.

Guarantee
    All scans of one execution see the same snapshot of a stream.  Filters that the executor pushes
    are applied exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...ownership import LOADING
from ...store.prune import AllOf
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..binding.operators import Relation
from ..binding.tree_aggregates import Candidate, one_row, one_row_schema
from ..conditions.pushed_filters import split_filter
from ..conditions.ranges import describe, half_open, range_text
from ..contract.cancellation import QueryControl
from ..contract.explanation import Operator
from ..plan.nodes import ScanSpec

if TYPE_CHECKING:
    from ..replay.filtering import FilterPlan

__all__ = ["AggregateRelation", "OperatorRelation", "StreamRelation"]


def figures_of(metrics: ScanMetrics) -> tuple[tuple[str, int | float], ...]:
    """The store's counters in the order in which plans show them."""
    return (
        ("blocks_read", metrics.blocks_read),
        ("blocks_skipped", metrics.blocks_skipped),
        ("nodes_read", metrics.nodes_read),
        ("bytes_read", metrics.bytes_read),
        ("events_read", metrics.events_read),
    )


class StreamRelation:
    """A stream within a query.

    Parameters
    ----------
    name : str
    snapshot : Snapshot
    spec : ScanSpec
    limit : int, optional
        Events after which a scan may stop.
    control : QueryControl
    indexes : StreamIndexes, optional
        Secondary indexes of the stream.
    """

    def __init__(
        self,
        name: str,
        snapshot: Snapshot,
        spec: ScanSpec,
        control: QueryControl,
        limit: int | None = None,
        indexes: Any = None,
    ) -> None:
        self.name = name
        self.spec = spec
        self.limit = limit
        self.index: FilterPlan | None = None
        self._indexes = indexes
        self.metrics = ScanMetrics()
        self._snapshot = snapshot
        self._control = control

    @property
    def schema(self) -> pa.Schema:
        """Attributes of the stream."""
        return self._snapshot.schema.arrow

    def scan(
        self, columns: Sequence[str] | None, filter: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """Events of the range that satisfy the filter, in time order."""
        split = split_filter(filter, self._snapshot.schema)
        low, high = max(self.spec.low, split.low), min(self.spec.high, split.high)
        if low > high:
            return
        start, end = half_open(low, high)
        parts = tuple(part for part in (self.spec.prune, split.prune) if part is not None)
        prune = None if not parts else parts[0] if len(parts) == 1 else AllOf(parts)
        if self._indexes is not None and prune is not None:
            with LOADING:
                from ..replay.filtering import plan_filter

            found = plan_filter(
                self._snapshot, self._indexes, prune, low, high, self._control.check
            )
            if found is not None:
                self.index = found
                yield from found.scan(
                    low, high, columns, split.rest, self.limit, self.metrics, self._control.check
                )
                return
        yield from self._snapshot.scan(
            start,
            end,
            columns,
            prune=prune,
            filter=split.rest,
            limit=self.limit,
            metrics=self.metrics,
            check=self._control.check,
        )

    def operator(self, executor: dict[str, Any], figures: bool) -> Operator:
        """The node of the plan.

        Parameters
        ----------
        executor : dict
            What the executor says about this scan: ``Projections``, ``Filters``, rows and time.
        figures : bool
            Whether the query ran.
        """
        schema = self._snapshot.schema
        columns = _listed(executor.get("Projections")) or tuple(schema.names)
        details = (
            ("stream", self.name),
            ("range", range_text(self.spec.low, self.spec.high, schema)),
            ("columns", columns),
            ("prune", describe(self.spec.prune, schema)),
            ("filter", " and ".join(_listed(executor.get("Filters"))) or None),
            ("limit", self.limit),
            ("index", self.index.details() if self.index is not None else None),
            ("indexes_unavailable", (self._indexes and self._indexes.trouble()) or None),
        )
        known = tuple((key, value) for key, value in details if value is not None)
        actual: tuple[tuple[str, int | float], ...] = ()
        if figures:
            actual = (
                ("rows", int(executor.get("rows", 0))),
                ("time_ms", float(executor.get("time_ms", 0.0))),
                *figures_of(self.metrics),
            )
        return Operator("Scan", known, actual)


class AggregateRelation:
    """The one row of an ad-hoc aggregate that the tree answers."""

    def __init__(self, name: str, snapshot: Snapshot, spec: ScanSpec, candidate: Candidate) -> None:
        self.name = name
        self.spec = spec
        self.metrics = ScanMetrics()
        self._snapshot = snapshot
        self._candidate = candidate

    @property
    def schema(self) -> pa.Schema:
        """``a0, a1, ...``, one column a call."""
        return one_row_schema(self._candidate)

    def scan(
        self, columns: Sequence[str] | None, filter: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """The row, computed anew."""
        start, end = half_open(self.spec.low, self.spec.high)
        answer = self._snapshot.aggregate(
            self._candidate.attributes, start, end, metrics=self.metrics
        )
        batch = one_row(self._candidate, answer)
        if filter is not None:
            batch = batch.filter(filter)
        yield batch if columns is None else batch.select(list(columns))

    def operator(self, executor: dict[str, Any], figures: bool) -> Operator:
        """The node of the plan."""
        actual: tuple[tuple[str, int | float], ...] = ()
        if figures:
            actual = (
                ("rows", int(executor.get("rows", 1))),
                ("time_ms", float(executor.get("time_ms", 0.0))),
                *figures_of(self.metrics),
            )
        return tree_aggregate_operator(self.name, self.spec, self._candidate, actual)


def tree_aggregate_operator(
    name: str,
    spec: ScanSpec,
    candidate: Candidate,
    figures: tuple[tuple[str, int | float], ...] = (),
) -> Operator:
    """The plan node of an ad-hoc aggregate."""
    calls = tuple(f"{call.function}({call.attribute or '*'})" for call in candidate.calls)
    span = range_text(spec.low, spec.high, candidate.schema)
    details = (("stream", name), ("range", span or "all of time"), ("aggregates", calls))
    return Operator("TreeAggregate", details, figures)


class OperatorRelation:
    """A stream operator within a query."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation

    @property
    def schema(self) -> pa.Schema:
        """Columns of the operator."""
        return self._relation.schema

    def scan(
        self, columns: Sequence[str] | None, filter: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows that satisfy the filter: operators deliver, the filter is applied here."""
        if filter is None:
            yield from self._relation.batches(columns)
            return
        wanted = list(self.schema.names if columns is None else columns)
        text = str(filter)
        needed = wanted + [n for n in self.schema.names if n not in wanted and n in text]
        for batch in self._relation.batches(needed):
            kept = batch.filter(filter)
            if kept.num_rows:
                yield kept.select(wanted)

    def operator(self, executor: dict[str, Any], figures: bool) -> Operator:
        """The node of the plan, as the operator itself describes it."""
        return self._relation.explain()


def _listed(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value)
