"""Interface between the binder and the operators in FROM (windows, row patterns, ...).

A binding function (``query.operators``) may rewrite the surrounding SELECT, for instance replace
``avg(x)`` by a column that the operator delivers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ...schema import StreamSchema
from ..contract.frames import Frame
from ..sql.sql_types import TimeUse, settle_times, type_in

if TYPE_CHECKING:
    from .binder import BoundQuery


class BoundOperator(Protocol):
    """An operator bound to its arguments, reusable for any number of executions."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the relation."""

    @property
    def streams(self) -> Sequence[str]:
        """Streams read; a change of their schema requires binding again."""

    @property
    def ordered_by(self) -> Sequence[str]:
        """Columns by which rows are sorted, most significant first."""


@dataclass(frozen=True)
class OperatorSite:
    """An operator's FROM item, its SELECT, and plan hints (``auto`` or 0 without).  ``stream``
    resolves a node to a stream; ``bound`` binds a nested query in place.
    """

    item: Any
    select: Any
    text: str
    strategy: str
    functions: frozenset[str]
    streams: Sequence[str]
    frames: Mapping[str, Frame]
    stream: Callable[[Any], tuple[str, StreamSchema]]
    bound: Callable[[Any], BoundQuery]
    recent: str = "auto"
    threads: int = 0
    rollup: str = "auto"
    times: list[TimeUse] = field(default_factory=list)

    def settle(self, node: Any, schema: pa.Schema) -> None:
        """Read texts that stand for times in a tree over columns; see :mod:`..sql.sql_types`."""
        self.times.extend(settle_times(node, type_in(schema), self.text))


Binders = Mapping[str | type, Callable[[OperatorSite], BoundOperator]]
"""Binding functions: table functions by name, clauses by node class."""
