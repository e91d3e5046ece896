"""The interface between plan nodes and rows."""

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


@dataclass(slots=True)
class RunContext:
    """What one execution provides to operators.  ``control.check()`` must be called between blocks
    and kernels; ``snapshot`` returns the same one per stream throughout; ``indexes``: None for a
    stream without any; ``rows`` runs a plan that feeds an operator; ``open`` opens a node that
    another operator reads; ``analyze``: collect figures.
    """

    control: QueryControl
    snapshot: Callable[[str], Snapshot]
    indexes: Callable[[str], StreamIndexes | None]
    rows: Callable[[QueryPlan], tuple[pa.Schema, Iterator[pa.RecordBatch]]]
    open: Callable[[Leaf], Relation]
    analyze: bool


class Relation(Protocol):
    """A node of the plan as a source of batches that can be read repeatedly."""

    @property
    def schema(self) -> pa.Schema:
        """Columns in the order of ``SELECT *``."""

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Batches of the named columns (None: all), in this order."""

    def explain(self) -> Operator:
        """The node as EXPLAIN shows it, with figures when analyzed."""


Openers = Mapping[type, Callable[[Any, RunContext], Relation]]
