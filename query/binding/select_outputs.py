"""Columns of a query; a ``ColumnUse`` only where values are an attribute's, row by row."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from ..sql.gate import AGGREGATES
from .scope import ColumnUse, Names, OutputColumn, Scope, own_nodes

__all__ = ["is_plain", "outputs_of", "renamed"]


def renamed(outputs: list[OutputColumn] | None, alias: Any) -> list[OutputColumn] | None:
    columns = alias.args.get("columns") if alias is not None else None
    if outputs is None or not columns:
        return outputs
    names = [column.name for column in columns]
    return [
        OutputColumn(names[i] if i < len(names) else output.name, output.type, output.use)
        for i, output in enumerate(outputs)
    ]


def is_plain(select: Any) -> bool:
    """Whether each input row gives at most one output row."""
    for key in ("group", "having", "limit", "offset", "distinct", "qualify", "sample", "windows"):
        if select.args.get(key):
            return False
    return not any(
        isinstance(node, exp.Window)
        or (isinstance(node, exp.Anonymous) and node.name.lower() in (*AGGREGATES, "unnest"))
        for projection in select.expressions
        for node in own_nodes(projection)
    )


def outputs_of(node: Any, scope: Scope, names: Names) -> list[OutputColumn] | None:
    """The columns of a resolved SELECT; None if unknown."""
    transparent = is_plain(node)
    merged = any(
        join.args.get("using")
        or str(join.method).upper() == "NATURAL"
        or str(join.kind).upper() in ("SEMI", "ANTI")
        for join in node.args.get("joins") or ()
    )
    outputs: list[OutputColumn] = []
    for projection in node.expressions:
        column = projection.this if isinstance(projection, exp.Alias) else projection
        star = column.this if isinstance(column, exp.Column) else column
        if isinstance(star, exp.Star):
            alias = column.table.lower() if isinstance(column, exp.Column) else None
            expanded = None if merged else _star(star, alias, scope)
            if expanded is None:
                return None
            outputs.extend(expanded)
            continue
        name = projection.alias or (column.name if isinstance(column, exp.Column) else None)
        found = names.output(column)
        if isinstance(column, exp.Column) and not projection.alias and found is not None:
            name = found.name
        outputs.append(OutputColumn(name, names.declared_type(column), names.use(column)))
    if not transparent:
        return [OutputColumn(output.name, output.type) for output in outputs]
    return outputs


def _star(star: Any, alias: str | None, scope: Scope) -> list[OutputColumn] | None:
    if any(star.args.get(key) for key in ("rename",)):
        return None
    dropped = {node.name.lower() for node in star.args.get("except_") or ()}
    replaced = {node.alias.lower() for node in star.args.get("replace") or ()}
    outputs = []
    for source in scope.sources:
        if alias is not None and source.alias != alias:
            continue
        if source.opaque:
            return None
        for output in source.outputs:
            name = (output.name or "").lower()
            if name in dropped:
                continue
            if name in replaced:
                outputs.append(OutputColumn(output.name))
                continue
            use = output.use
            if use is not None:
                nullable = use.nullable or source.nullable
                use = (
                    ColumnUse(use.site, use.attribute, nullable, scope.number)
                    if source.pushable
                    else None
                )
            outputs.append(OutputColumn(output.name, output.type, use))
    return outputs
