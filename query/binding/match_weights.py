"""SELECTs that need only the number of matches, or matches from an offset.

Only a SELECT from the clause alone, with ``count``, ``count(DISTINCT x)``, ``min``, ``max`` and
``sum`` of integers (others depend on the order), over columns that a match's first event decides.
Counts beyond 2^63 - 1 are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..pattern.automaton import ACCEPT, Automaton
from ..pattern.binding import CLASSIFIER, Bound, Navigation
from ..pattern.scalar import evaluate
from ..sql.dialect import to_text
from ..sql.gate import AGGREGATES, is_volatile

__all__ = ["WEIGHT", "count_by_start", "of_first_event", "take_offset"]

WEIGHT = "@matches"
"""Number of matches that a row represents."""


def of_first_event(bound: Bound, automaton: Automaton) -> bool:
    """Whether a match's first event alone decides a measure."""
    names = automaton.names
    first = {names[edge.target] for edge in automaton.edges[0] if edge.target != ACCEPT}
    later = {
        names[edge.target]
        for edges in automaton.edges[1:]
        for edge in edges
        if edge.target != ACCEPT
    }
    for leaf in bound.leaves:
        if not isinstance(leaf, Navigation) or CLASSIFIER in leaf.row.columns or leaf.offset:
            return False
        chosen = leaf.variables
        if chosen is not None and not first <= chosen:
            return False
        if not leaf.first and (chosen is None or later & chosen):
            return False
    return True


def count_by_start(select: Any, item: Any, columns: Sequence[str], schema: pa.Schema) -> bool:
    """Rewrite a counting SELECT to sum ``WEIGHT`` per first event; False if it does more."""
    parts = _parts_of(select, item)
    if parts is None or select.args.get("distinct"):
        return False
    called = [call for part in parts for call in part.find_all(exp.Anonymous)]
    calls = [call for call in called if call.name.lower() in AGGREGATES]
    integers = {f.name.lower() for f in schema if pa.types.is_integer(f.type)}
    if not calls or not all(_countable(call, integers) for call in calls):
        return False
    if any(is_volatile(call.name.lower()) for call in called if call not in calls):
        return False
    known = {name.lower() for name in columns}
    alias = item.args["match"].args.get("alias")
    relations = ("", "" if alias is None else alias.name.lower())
    for part in parts:
        for column in part.find_all(exp.Column):
            if column.name.lower() not in known or column.table.lower() not in relations:
                return False
        if any(star.parent not in calls for star in part.find_all(exp.Star)):
            return False
    names = _names_of(select, item, schema)
    for call in calls:
        argument = call.expressions[0] if call.expressions else exp.Star()
        if call.name.lower() == "count" and not isinstance(argument, exp.Distinct):
            call.replace(_summed(argument))
        elif call.name.lower() == "sum":  # sums of integers are HUGEINT
            wide = exp.cast(argument.copy(), "HUGEINT", dialect="duckdb")
            call.set("expressions", [exp.Mul(this=wide, expression=_weight())])
    projections = [
        shown if name is None else exp.alias_(shown, name, quoted=True)
        for shown, name in zip(select.expressions, names, strict=True)
    ]
    select.set("expressions", projections)
    return True


def _parts_of(select: Any, item: Any) -> list[Any] | None:
    """The SELECT's clauses except FROM; None unless it is plain and reads the clause alone."""
    clause = select.args.get("from_")
    if clause is None or clause.this is not item or select.args.get("laterals"):
        return None
    if select.args.get("joins") or item.args.get("joins") or item.args.get("sample"):
        return None
    alias = item.args["match"].args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    parts = []
    for key, child in select.args.items():
        if key in ("from_", "with_", "hint"):
            continue
        listed = child if isinstance(child, list) else [child]
        parts += [part for part in listed if isinstance(part, exp.Expression)]
    strange = (exp.Query, exp.Window, exp.Filter, exp.Qualify, exp.Lambda, exp.WithinGroup)
    return None if any(part.find(*strange) for part in parts) else parts


def _countable(call: Any, integers: set[str]) -> bool:
    name, arguments = call.name.lower(), call.expressions
    if name == "count":
        return len(arguments) <= 1
    if name == "sum" and len(arguments) == 1:
        return isinstance(arguments[0], exp.Column) and arguments[0].name.lower() in integers
    return name in ("min", "max") and len(arguments) == 1


def _weight() -> Any:
    return exp.column(exp.to_identifier(WEIGHT, quoted=True))


def _summed(argument: Any) -> Any:
    weight = _weight()
    if not isinstance(argument, exp.Star):
        known = exp.Not(this=exp.Is(this=argument.copy(), expression=exp.Null()))
        weight = exp.Case(ifs=[exp.If(this=known, true=weight)])
    total = exp.Anonymous(this="sum", expressions=[weight])
    total = exp.Anonymous(this="coalesce", expressions=[total, exp.Literal.number(0)])
    return exp.cast(total, "BIGINT", dialect="duckdb")


def _names_of(select: Any, item: Any, schema: pa.Schema) -> list[str | None]:
    named = [bool(shown.alias) or isinstance(shown, exp.Column) for shown in select.expressions]
    if all(named):
        return [None] * len(named)
    alias = item.args["match"].args.get("alias")
    table = alias.name if alias is not None and alias.name else "match"
    bare = exp.select(*(shown.copy() for shown in select.expressions)).from_(
        exp.Table(this=exp.to_identifier(table, quoted=True))
    )
    for parameter in list(bare.find_all(exp.Placeholder)):
        parameter.replace(exp.Null())
    group = select.args.get("group")
    if group is not None:
        bare.set("group", group.copy())
    found = evaluate(to_text(bare), **{table: schema.empty_table()}).schema.names
    return [None if keeps else name for keeps, name in zip(named, found, strict=True)]


def take_offset(select: Any, item: Any, literal: Callable[[Any], int | None]) -> int:
    """Remove OFFSET if each row is a match; the number of rows to skip."""
    parts = _parts_of(select, item)
    clauses = ("where", "group", "having", "order", "distinct", "qualify", "sample")
    if parts is None or any(select.args.get(name) for name in clauses):
        return 0
    called = [call.name.lower() for part in parts for call in part.find_all(exp.Anonymous)]
    if any(name in AGGREGATES or name == "unnest" for name in called):
        return 0
    offset = select.args.get("offset")
    found = None if offset is None else literal(offset.expression)
    if found is None:
        return 0
    select.set("offset", None)
    return found
