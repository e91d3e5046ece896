"""MATCH_SITUATIONS in FROM: bound to its stream, or to a subquery sorted in memory by its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from ..conditions.constants import Folder
from ..situations.compiled import CompiledSituations, compile_situations
from ..sql.situation_clause import situation_clause
from .binder import conjuncts
from .match_binding import BoundClause, bare, input_of, time_of, with_values
from .scope import OperatorSite


@dataclass(frozen=True)
class BoundSituations(BoundClause):
    """``asked`` are conjuncts of WHERE on a single measure, which narrow the input."""

    compiled: CompiledSituations
    asked: Mapping[str, tuple[Any, ...]]

    def compiled_with(self, folder: Folder) -> CompiledSituations:
        if self.clause.find(exp.Placeholder) is None:
            return self.compiled
        clause = situation_clause(with_values(self.clause, folder))
        return compile_situations(clause, self.columns, self.stream or "")


def bind_situations(site: OperatorSite) -> BoundSituations:
    """Bind the clause; raises SqlError with position."""
    node = site.item.args["match"].copy()
    order_by = situation_clause(bare(node)).order_by
    columns, stream, query = input_of(site, lambda arrow: time_of(order_by, arrow))
    site.settle(node, columns.arrow)
    compiled = compile_situations(situation_clause(bare(node)), columns, stream or "")
    strategy = site.hint("strategy").replace("index", "all")
    return BoundSituations(
        node, columns, stream, query, strategy, compiled, _asked(site, node, compiled)
    )


def _asked(
    site: OperatorSite, clause: Any, compiled: CompiledSituations
) -> dict[str, tuple[Any, ...]]:
    select = site.select
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if where is None or any(select.args.get(key) for key in ("joins", "laterals")):
        return {}
    alias = clause.args["alias"].name.lower() if clause.args.get("alias") else ""
    outputs = {name.lower(): name for name in compiled.outputs}
    found: dict[str, tuple[Any, ...]] = {}
    for part in conjuncts(where.this):
        columns = list(part.find_all(exp.Column))
        names = {column.name.lower() for column in columns}
        mine = all(column.table.lower() in ("", alias) for column in columns)
        if len(names) == 1 and mine and part.find(exp.Query) is None:
            name = outputs.get(names.pop())
            if name is not None:
                site.settle(part, compiled.output_schema)
                found[name] = (*found.get(name, ()), part.copy())
    return found
