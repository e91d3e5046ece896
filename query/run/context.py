"""What an operator is opened with, and what it is then: the seam between plan nodes and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from ...indexes.stream_indexes import StreamIndexes
    from ...store.snapshot import Snapshot
    from ..contract.cancellation import QueryControl
    from ..contract.explanation import Operator
    from ..plan.nodes import Leaf, QueryPlan

__all__ = ["Openers", "Relation", "RunContext"]


@dataclass(slots=True)
class RunContext:
    """What one execution provides.

    Attributes
    ----------
    control : QueryControl
        ``control.check()`` is to be called between blocks and kernels.
    snapshot : callable
        Snapshot of a stream by name; the same one each time within an execution.
    indexes : callable
        Secondary indexes of a stream by name; None for a stream without any.
    rows : callable
        Runs a plan that feeds an operator: its schema and its batches.
    open : callable
        Opens a node that another operator reads.
    analyze : bool
        Whether figures are wanted.
    threads : int
        That a query may use.
    """

    control: QueryControl
    snapshot: Callable[[str], Snapshot]
    indexes: Callable[[str], StreamIndexes | None]
    rows: Callable[[QueryPlan], tuple[pa.Schema, Iterator[pa.RecordBatch]]]
    open: Callable[[Leaf], Relation]
    analyze: bool
    threads: int = 1


class Relation(Protocol):
    """A node of the plan as a source of batches that can be read any number of times."""

    @property
    def schema(self) -> pa.Schema:
        """Columns, in the order in which ``SELECT *`` shows them."""

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Batches of the named columns (all when None), in this order."""

    def explain(self) -> Operator:
        """The node as EXPLAIN shows it, with figures when analyzed."""


Openers = Mapping[type, Callable[[Any, RunContext], Relation]]
"""What opens the nodes of operators, by their class."""
