"""The interface between plan nodes and rows."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa

from ...errors import ResourceLimit

if TYPE_CHECKING:
    from ...indexes.stream_indexes import StreamIndexes
    from ...store.prune import RowFilter
    from ...store.snapshot import Snapshot
    from ..contract.cancellation import QueryControl
    from ..contract.explanation import Operator
    from ..contract.result import Result
    from ..plan.nodes import Leaf, QueryPlan
    from ..relational.interface import RelationalExecutor


@dataclass(frozen=True)
class RunContext:
    """What executions of plans run with.  ``control.check()`` must be called between blocks and
    kernels; ``snapshot`` returns the same one per stream throughout; ``indexes``: None for a stream
    without any; ``analyze``: collect figures; ``answer`` runs another plan.
    """

    executor: RelationalExecutor
    openers: Openers
    snapshot: Callable[[str], Snapshot]
    indexes: Callable[[str], StreamIndexes | None]
    control: QueryControl
    answer: Callable[[QueryPlan, RunContext], Result]
    analyze: bool = False

    def open(self, leaf: Leaf) -> Relation:
        """A node that another operator reads."""
        relation: Relation = self.openers[type(leaf)](leaf, self)
        return relation

    def rows(self, plan: QueryPlan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows of a plan that feeds an operator."""
        result = self.answer(plan, replace(self, analyze=False))
        return result.schema, result.batches()


class Relation(Protocol):
    """A node of the plan as a source of batches that can be read repeatedly."""

    @property
    def schema(self) -> pa.Schema:
        """Columns in the order of ``SELECT *``."""

    def batches(
        self, columns: Sequence[str] | None, passing: RowFilter | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the named columns (None: all), in this order; rows that do not satisfy
        ``passing`` may be missing.
        """

    def explain(self) -> Operator:
        """The node as EXPLAIN shows it, with figures when analyzed."""


Node = TypeVar("Node")


class LeafOperator(ABC, Generic[Node]):
    """A ``Relation`` of a node, which counts its ``_rows`` and the ``_seconds`` that they took."""

    def __init__(self, node: Node, run: RunContext) -> None:
        self._node = node
        self._run = run
        self._rows = 0
        self._seconds = 0.0

    @property
    def schema(self) -> pa.Schema:
        return self._node.schema  # type: ignore[attr-defined]

    def batches(
        self, columns: Sequence[str] | None, passing: RowFilter | None = None
    ) -> Iterator[pa.RecordBatch]:
        wanted = list(self.schema.names if columns is None else columns)
        begun = time.perf_counter()
        try:
            results = self._results(wanted) if passing is None else self._passing(wanted, passing)
            for batch in results:
                self._rows += batch.num_rows
                self._seconds += time.perf_counter() - begun
                yield batch if batch.schema.names == wanted else batch.select(wanted)
                begun = time.perf_counter()
        except pa.ArrowInvalid as error:
            if "overflowed" not in str(error):
                raise
            raise ResourceLimit(
                "long texts that repeat in many results take more than 2 GiB at once; shorten them "
                "in a subquery, or join them to the results by the time of their event"
            ) from None
        self._seconds += time.perf_counter() - begun

    @abstractmethod
    def _results(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Results with at least these columns."""

    def _passing(self, columns: list[str], filter: RowFilter) -> Iterator[pa.RecordBatch]:
        """Results of which those that do not pass a filter may be missing."""
        return self._results(columns)

    @abstractmethod
    def explain(self) -> Operator:
        """The node as EXPLAIN shows it, with figures after a run."""


Openers = Mapping[type, Callable[[Any, RunContext], Relation]]
