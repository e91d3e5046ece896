"""What may stand in FROM besides streams and queries: the seam that operators are bound at.

Purpose
    Windows (``TUMBLE``, ``HOP``, ...) and row patterns (``MATCH_RECOGNIZE``) are answered by
    operators of this system, not by the relational executor.  The binder hands the FROM item of
    one to its binding function as an :class:`OperatorSite` and gets a :class:`BoundOperator`: a
    relation with known columns.  Which functions there are is said in one table,
    :mod:`chronicle.query.operators`.

Guarantee
    A site is bound once per statement text and schema.  A binding function may rewrite the SELECT
    that the item stands in (for instance replace ``avg(x)`` by a column that the operator
    delivers): the tree is the binder's own, and what is left of it is what the executor runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ...schema import StreamSchema
from ..contract.frames import Frame

if TYPE_CHECKING:
    from .binder import BoundQuery

__all__ = ["Binders", "BoundOperator", "OperatorSite"]


class BoundOperator(Protocol):
    """An operator bound to its arguments, good for any number of executions."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the relation."""

    @property
    def streams(self) -> Sequence[str]:
        """Streams that it reads; the statement is bound anew when the schema of one changes."""

    @property
    def ordered_by(self) -> Sequence[str]:
        """Columns by which its rows come in ascending order, the most significant first."""


@dataclass(frozen=True)
class OperatorSite:
    """Where an operator stands.

    Attributes
    ----------
    item : sqlglot tree
        The FROM item: an ``exp.Table`` around the call, or a ``MatchRelation``.
    select : sqlglot tree
        The SELECT around it; an operator may rewrite it.
    text : str
        The statement, for error positions.
    strategy : str
        The plan hint of the SELECT; ``auto`` without one.
    functions : frozenset of str
        Names that stand for operators in FROM, in lower case.
    streams : sequence of str
        Names of all streams.
    frames : mapping
        Tables of the program around the database, by name in lower case.
    stream : callable
        Name and schema of the stream that a node names; SqlError with its position for others.
    bound : callable
        Binds a query that stands in the item, as a query of its own; the tree is changed.
    selection : str
        The hint on SKIP TILL ANY MATCH; ``auto`` without one.
    recent : str
        The hint on recency joins; ``auto`` without one.
    threads : int
        The hint on how many threads put matches out; 0 without one.
    rollup : str
        The hint on roll-ups; ``auto`` without one.
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
    selection: str = "auto"
    recent: str = "auto"
    threads: int = 0
    rollup: str = "auto"


Binders = Mapping[str | type, Callable[[OperatorSite], BoundOperator]]
"""What binds FROM items: table functions by name, clauses by the class of their node."""
