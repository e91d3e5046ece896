"""Live joins whose sides are subqueries that filter and project, rewritten to joins of streams::

    FROM a JOIN (SELECT t, k AS key, x * 2 AS twice FROM s WHERE x > 1) AS v
      ON v.key = a.k AND v.t BETWEEN a.t - 5 AND a.t WHERE twice > 8

    FROM a JOIN s AS v ON v.k = a.k AND v.t BETWEEN a.t - 5 AND a.t
      WHERE (v.x * 2) > 8 AND (v.x > 1)

Computed columns of an event that LEFT JOIN did not find are NULL, whatever the expression does with
NULL.  Aggregates, DISTINCT, UNNEST, joins, OVER and lambdas are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from ..errors import SqlError
from ..query.binding.select_outputs import is_plain
from ..query.binding.views import path_of
from ..schema import StreamSchema
from .refusals import aggregate_in, check_live, refused

__all__ = ["over_streams"]

SchemaOf = Callable[[Any], tuple[str, StreamSchema]]
NamesOf = Callable[[Any], Sequence[str]]


@dataclass(frozen=True)
class _Side:
    """``columns`` maps lower-case names to the name and an expression on ``stream``."""

    alias: str
    stream: Any
    columns: dict[str, tuple[str, Any]]
    condition: Any
    schema: StreamSchema


def over_streams(tree: Any, text: str, schema_of: SchemaOf, names_of: NamesOf) -> Any:
    """The equivalent join of streams; SqlError if a side's rows are not a stream's events."""
    made = tree.copy()
    joins = made.args["joins"]
    holders = [made.args["from_"], *joins]
    if not any(isinstance(holder.this, exp.Subquery) for holder in holders):
        return tree
    _refuse_lambdas(made, text)
    sides = [_side(holder.this, text, schema_of, names_of) for holder in holders]
    optional = [s for s, join in zip(sides[1:], joins, strict=True) if join.side]
    _write_stars_out(made, sides)
    for join in joins:
        asked = join.args.get("on")
        if asked is not None:
            join.set("on", _over(asked, sides, text))
    made.set("expressions", [_over(node, sides, text, optional) for node in made.expressions])
    where = made.args.get("where")
    if where is not None:
        where.set("this", _over(where.this, sides, text, optional))
    for holder, side in zip(holders, sides, strict=True):
        derived = holder.this
        if not isinstance(derived, exp.Subquery):
            continue
        name = exp.to_identifier(side.alias, quoted=True)
        table = exp.Table(this=side.stream.copy(), alias=exp.TableAlias(this=name))
        table.meta.update(derived.meta)
        holder.set("this", table)
        if side.condition is None:
            continue
        if isinstance(holder, exp.Join) and holder.side:
            asked = holder.args.get("on")
            parts = [side.condition] if asked is None else [asked, side.condition]
            holder.set("on", exp.and_(*parts, copy=False))
        else:
            made.where(side.condition, copy=False)
    return made


def _side(item: Any, text: str, schema_of: SchemaOf, names_of: NamesOf) -> _Side:
    if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
        _, schema = schema_of(item)
        alias = item.alias or item.name
        columns = {name.lower(): (name, _column(name, alias)) for name in schema.names}
        return _Side(alias, item.this, columns, None, schema)
    decorated = any(item.args.get(key) for key in ("joins", "sample", "laterals", "pivots"))
    named = item.args.get("alias")
    if not isinstance(item, exp.Subquery) or decorated or named is None or named.columns:
        raise _no_events(text, item)
    side = _query(item.this, item.alias, text, schema_of, names_of)
    flat = exp.select(*(node.copy() for _, node in side.columns.values()))
    flat = flat.from_(exp.Table(this=side.stream.copy()))
    check_live(flat if side.condition is None else flat.where(side.condition.copy()), text)
    return side


def _query(query: Any, alias: str, text: str, schema_of: SchemaOf, names_of: NamesOf) -> _Side:
    said = {key for key, value in query.args.items() if value and key != "kind"}
    if not isinstance(query, exp.Select) or not said <= {"expressions", "from_", "where"}:
        raise _no_events(text, query)
    if aggregate_in(query) is not None or not is_plain(query):
        raise _no_events(text, query)
    source: Any = query.args["from_"].this
    if isinstance(source, exp.Subquery):
        below = _query(source.this, alias, text, schema_of, names_of)
    elif isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        _, schema = schema_of(source)
        columns = {name.lower(): (name, _column(name, alias)) for name in schema.names}
        below = _Side(alias, source.this, columns, None, schema)
    else:
        raise _no_events(text, source)
    if any(source.args.get(key) for key in ("joins", "sample", "laterals", "pivots")):
        raise _no_events(text, source)
    own = _Side(source.alias_or_name, below.stream, below.columns, None, below.schema)
    made: list[Any] = []
    for shown in query.expressions:
        star = shown.this if isinstance(shown, exp.Column) else shown
        if not isinstance(star, exp.Star):
            made.append(_over(shown.unalias().copy(), [own], text))
        elif any(star.args.values()):
            raise _no_events(text, shown)
        else:
            made += [node.copy() for _, node in below.columns.values()]
    names = names_of(query)
    columns = {name.lower(): (name, node) for name, node in zip(names, made, strict=True)}
    if len(columns) < len(names):
        raise refused(text, query, "two columns of this query have one name; give one an alias")
    where = query.args.get("where")
    conditions = [] if below.condition is None else [below.condition]
    if where is not None:
        conditions.append(exp.paren(_over(where.this.copy(), [own], text)))
    condition = exp.and_(*conditions, copy=False) if conditions else None
    return _Side(alias, below.stream, columns, condition, below.schema)


def _over(node: Any, sides: Sequence[_Side], text: str, optional: Sequence[_Side] = ()) -> Any:
    """Rewrite an expression in place; ``optional`` sides may have no event."""
    holder = exp.paren(node, copy=False)
    for column in list(holder.find_all(exp.Column)):
        side, parts = _of(column, sides)
        if side is None:
            if any(parts[0].name.lower() in _hidden(side) for side in sides):
                raise refused(
                    text, column, f"which {parts[0].name!r} is meant? write the name of its table "
                    "before it"
                )  # fmt: skip
            continue
        _, found = side.columns[parts[0].name.lower()]
        if isinstance(found, exp.Column):
            made = path_of([*(each.copy() for each in found.parts), *parts[1:]], column)
        elif len(parts) > 1:
            raise refused(text, column, "members of a computed column: take them out in the query")
        else:
            made = exp.paren(found.copy(), copy=False)
            if any(side is each for each in optional):
                there = exp.Is(this=_column(side.schema.time, side.alias), expression=exp.Null())
                made = exp.paren(
                    exp.Case(ifs=[exp.If(this=exp.not_(there), true=made)]), copy=False
                )
            made.meta.update(column.meta)
        column.replace(made)
    found = holder.this
    found.pop()
    return found


def _of(column: Any, sides: Sequence[_Side]) -> tuple[_Side | None, list[Any]]:
    """The side of a column, and the column's name with the members behind it."""
    parts = list(column.parts)
    if len(parts) > 1:
        for side in sides:
            if side.alias.lower() == parts[0].name.lower():
                known = parts[1].name.lower() in side.columns
                return (side if known else None), parts[1:]
    for side in sides:
        if parts[0].name.lower() in side.columns:
            return side, parts
    return None, parts


def _hidden(side: _Side) -> set[str]:
    return {name.lower() for name in side.schema.names} - set(side.columns)


def _write_stars_out(tree: Any, sides: Sequence[_Side]) -> None:
    shown: list[Any] = []
    for node in tree.expressions:
        star = node.this if isinstance(node, exp.Column) else node
        if not isinstance(star, exp.Star) or any(star.args.values()):
            shown.append(node)
            continue
        for side in sides:
            if star is node or side.alias.lower() == node.table.lower():
                shown += [_column(name, side.alias) for name, _ in side.columns.values()]
    tree.set("expressions", shown)


def _refuse_lambdas(tree: Any, text: str) -> None:
    found = tree.find(exp.Lambda)
    if found is not None:
        raise refused(text, found, "a live join of queries has no lambdas")


def _no_events(text: str, node: Any) -> SqlError:
    return refused(
        text, node, "a live join is of two streams, or of queries and views that filter one and "
        "compute columns of its events"
    )  # fmt: skip


def _column(name: str, alias: str) -> Any:
    return exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(alias, quoted=True))
