"""MATCH_SITUATIONS in FROM: bound to its stream, or to the query that gives its rows.

Guarantee
    Only the columns that the clause needs are read.  A clause without parameters is compiled once
    per statement.

Limits
    A subquery needs ORDER BY: its first key is the time of situations.  Its rows are sorted in
    memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from ..conditions.constants import Folder
from ..situations.compiled import CompiledSituations, compile_situations
from ..sql.situation_clause import situation_clause
from .from_operator import OperatorSite
from .match_binding import BoundClause, bare, input_of, time_of, with_values

__all__ = ["BoundSituations", "bind_situations"]


@dataclass(frozen=True)
class BoundSituations(BoundClause):
    """MATCH_SITUATIONS bound to its input."""

    compiled: CompiledSituations

    def compiled_with(self, folder: Folder) -> CompiledSituations:
        """The clause with the values that its parameters have in one execution."""
        if self.clause.find(exp.Placeholder) is None:
            return self.compiled
        clause = situation_clause(with_values(self.clause, folder))
        return compile_situations(clause, self.columns, self.stream or "")


def bind_situations(site: OperatorSite) -> BoundSituations:
    """Bind the clause to its stream or subquery; raises SqlError with position."""
    node = site.item.args["match"].copy()
    clause = situation_clause(bare(node))
    columns, stream, query = input_of(site, lambda arrow: time_of(clause.order_by, arrow))
    compiled = compile_situations(clause, columns, stream or "")
    strategy = {"index": "optimal"}.get(site.strategy, site.strategy)
    return BoundSituations(node, columns, stream, query, strategy, compiled)
