"""Binding of a join in a time window.

The conditions of ``a JOIN b ON ...`` are split::

    a.k = b.k                                       keys, by which rows are found
    b.t BETWEEN a.t - p AND a.t + q                 bounds, as -p <= b.t - a.t <= q in ticks
    a.x > 3                                         of one side: evaluated when it is read
    a.x < b.x                                       evaluated on pairs

Pairs that satisfy keys and bounds are a superset of the join's.  DuckDB adds intervals in
microseconds: for finer times the bounds are widened by a microsecond, and the condition itself is
also evaluated on pairs.

Live joins whose sides are subqueries that filter and project, rewritten to joins of streams::

    FROM a JOIN (SELECT t, k AS key, x * 2 AS twice FROM s WHERE x > 1) AS v
      ON v.key = a.k AND v.t BETWEEN a.t - 5 AND a.t WHERE twice > 8

    FROM a JOIN s AS v ON v.k = a.k AND v.t BETWEEN a.t - 5 AND a.t
      WHERE (v.x * 2) > 8 AND (v.x > 1)

Computed columns of an event that LEFT JOIN did not find are NULL, whatever the expression does with
NULL.  Aggregates, DISTINCT, UNNEST, joins, OVER and lambdas are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..core.times import NS_PER_SECOND
from ..errors import SqlError
from ..query.binding.binder import conjuncts
from ..query.binding.scope import is_plain
from ..query.binding.views import path_of
from ..query.conditions.constants import Folder, Kind
from ..schema import StreamSchema
from .analysis import aggregate_in, check_live, column_node, refused, without_stars


@dataclass
class JoinedStream:
    """A side of a join: its stream, pushed-down conditions and key expressions."""

    stream: str
    alias: str
    schema: StreamSchema
    conditions: list[Any] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)

    def attribute(self, column: Any) -> str | None:
        if column.table and column.table.lower() != self.alias.lower():
            return None
        for name in self.schema.names:
            if name.lower() == column.name.lower():
                return name
        return None


@dataclass
class BoundJoin:
    """``left - before <= right <= left + behind`` in ticks; ``outer`` is LEFT JOIN; ``on`` is left
    for pairs, ``where`` for rows.
    """

    left: JoinedStream
    right: JoinedStream
    outer: bool
    before: int = 0
    behind: int = 0
    on: list[Any] = field(default_factory=list)
    where: list[Any] = field(default_factory=list)

    @property
    def sides(self) -> tuple[JoinedStream, JoinedStream]:
        return self.left, self.right

    def side_of(self, column: Any) -> int | None:
        """0 or 1 for a column of the left or right side; None for neither."""
        for number, side in enumerate(self.sides):
            if side.attribute(column) is not None:
                return number
        return None

    def field_of(self, column: Any) -> tuple[int, pa.Field] | None:
        """The side and the attribute of a column; None for neither side's."""
        number = self.side_of(column)
        if number is None:
            return None
        side = self.sides[number]
        return number, side.schema.attribute(str(side.attribute(column)))

    def sides_in(self, node: Any) -> set[int | None]:
        return {self.side_of(column) for column in node.find_all(exp.Column)}


def bind_join(
    tree: Any, text: str, schema_of: Callable[[Any], tuple[str, StreamSchema]], folder: Folder
) -> BoundJoin:
    """Bind a SELECT with one join; SqlError if it is not a join in a time window."""
    joins = tree.args["joins"]
    if len(joins) > 1:
        raise refused(
            text, joins[1], "a live query joins two streams; make one of the first two and join "
            "the third where it is read"
        )  # fmt: skip
    join = joins[0]
    _check_kind(join, text)
    tables = (tree.args["from_"].this, join.this)
    sides = []
    for table in tables:
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise refused(text, table, "a live join is of two streams, or queries of one each")
        name, schema = schema_of(table)
        sides.append(JoinedStream(name, table.alias or table.name, schema))
    bound = BoundJoin(sides[0], sides[1], outer=join.side.upper() == "LEFT")
    if sides[0].schema.time_type != sides[1].schema.time_type:
        raise refused(
            text, join, f"the times of {sides[0].stream} are {sides[0].schema.time_type} and those "
            f"of {sides[1].stream} {sides[1].schema.time_type}: a live query reads streams whose "
            "times have one type"
        )  # fmt: skip
    where = tree.args.get("where")
    conditions = list(conjuncts(join.args.get("on")))
    after = [] if where is None else list(conjuncts(where.this))
    if not bound.outer:
        conditions, after = [*conditions, *after], []
    _take_apart(bound, conditions, after, folder, text, join)
    return bound


def _check_kind(join: Any, text: str) -> None:
    advice = None
    if join.args.get("using"):
        names = [f"a.{column.name} = b.{column.name}" for column in join.args["using"]]
        advice = f"write ON {' AND '.join(names)} AND b.time BETWEEN ..."
    elif join.method or join.kind.upper() not in ("", "INNER", "OUTER", "CROSS"):
        advice = "write JOIN or LEFT JOIN with a condition that bounds the times"
    elif join.side.upper() not in ("", "LEFT"):
        advice = "write LEFT JOIN, the streams the other way round"
        if join.side.upper() == "FULL":
            advice = "write a LEFT JOIN each way, in two live queries"
    if advice is not None:
        words = " ".join(word for word in (join.method, join.side, join.kind) if word).upper()
        raise refused(text, join.this, f"this {words or 'USING'} join cannot be live: {advice}")


def _take_apart(
    bound: BoundJoin, on: Sequence[Any], after: Sequence[Any], folder: Folder, text: str, at: Any
) -> None:
    lows: list[int] = []
    highs: list[int] = []
    per_second = bound.left.schema.ticks_per_second
    fine = per_second == NS_PER_SECOND
    for node in on:
        limits = list(_limits(bound, node, folder))
        lows += [low for low, _ in limits if low is not None]
        highs += [high for _, high in limits if high is not None]
        sides = bound.sides_in(node)
        if limits:
            bound.on += [node] if fine else []
        elif sides == {1} or (sides == {0} and not bound.outer):
            bound.sides[min(side for side in sides if side is not None)].conditions.append(node)
        elif not _keys(bound, node):
            bound.on.append(node)
    for node in after:  # LEFT JOIN: push conditions on the left side down
        if bound.sides_in(node) == {0}:
            bound.left.conditions.append(node)
        else:
            bound.where.append(node)
    if not lows or not highs:
        raise _unbounded(bound, text, at, bool(lows), bool(highs))
    slack = per_second // 1_000_000 if fine and per_second is not None else 0
    bound.before, bound.behind = slack - max(lows), slack + min(highs)
    if bound.before + bound.behind < 0:
        raise refused(text, at.this, "no two times are within the bounds of this join: turn them")


def _unbounded(bound: BoundJoin, text: str, at: Any, lower: bool, upper: bool) -> SqlError:
    left = f"{bound.left.alias}.{bound.left.schema.time}"
    right = f"{bound.right.alias}.{bound.right.schema.time}"
    length = "60" if bound.left.schema.ticks_per_second is None else "INTERVAL '1' MINUTE"
    missing = "an upper bound" if lower else "a lower bound" if upper else "any bound"
    return refused(
        text, at.this, f"a join without {missing} on the difference of times would wait for ever: "
        f"ON ... AND {right} BETWEEN {left} - {length} AND {left} + {length}"
    )  # fmt: skip


def _keys(bound: BoundJoin, node: Any) -> bool:
    """Take an equality of columns of one type, one per side, as a key; else False."""
    if not isinstance(node, exp.EQ):
        return False
    one, other = node.this, node.expression
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
        return False
    if (bound.side_of(one), bound.side_of(other)) == (1, 0):
        one, other = other, one
    elif (bound.side_of(one), bound.side_of(other)) != (0, 1):
        return False
    names = bound.left.attribute(one), bound.right.attribute(other)
    types = [
        side.schema.attribute(name).type
        for side, name in zip(bound.sides, names, strict=True)
        if name is not None
    ]
    if types[0] != types[1]:
        return False
    bound.left.keys.append(one)
    bound.right.keys.append(other)
    return True


# -- bounds of time ---------------------------------------------------------------------------

_Linear = tuple[int, int, Fraction]
"""Coefficients of the left and the right time, and a constant in ticks."""

_TURNED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.EQ: exp.EQ}


def _limits(bound: BoundJoin, node: Any, folder: Folder) -> Iterator[tuple[int | None, int | None]]:
    """Inclusive bounds of ``right - left`` that a condition sets."""
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        pairs = [(exp.GTE, node.this, node.args["low"]), (exp.LTE, node.this, node.args["high"])]
        limits = [_limit(bound, *pair, folder) for pair in pairs]
        if None not in limits:  # else the condition is evaluated on pairs
            yield from (each for each in limits if each is not None)
    elif type(node) in _TURNED:
        limit = _limit(bound, type(node), node.this, node.expression, folder)
        if limit is not None:
            yield limit


def _limit(
    bound: BoundJoin, kind: Any, one: Any, other: Any, folder: Folder
) -> tuple[int | None, int | None] | None:
    first, second = _linear(bound, one, folder), _linear(bound, other, folder)
    if first is None or second is None:
        return None
    left, right, ticks = first[0] - second[0], first[1] - second[1], first[2] - second[2]
    if (left, right) == (1, -1):
        kind, ticks = _TURNED[kind], -ticks
    elif (left, right) != (-1, 1):
        return None
    at = -Fraction(ticks)
    if kind is exp.EQ:
        return math.ceil(at), math.floor(at)
    if kind in (exp.GT, exp.GTE):
        return (math.floor(at) + 1 if kind is exp.GT else math.ceil(at)), None
    return None, (math.ceil(at) - 1 if kind is exp.LT else math.floor(at))


def _linear(bound: BoundJoin, node: Any, folder: Folder) -> _Linear | None:
    """An expression as a linear combination of the two times plus ticks."""
    if isinstance(node, exp.Paren):
        return _linear(bound, node.this, folder)
    if isinstance(node, exp.Column):
        for number, side in enumerate(bound.sides):
            if side.attribute(node) == side.schema.time:
                return 1 - number, number, Fraction(0)
        return None
    if isinstance(node, exp.Add | exp.Sub):
        one, other = _linear(bound, node.this, folder), _linear(bound, node.expression, folder)
        if one is None or other is None:
            return None
        sign = 1 if isinstance(node, exp.Add) else -1
        return one[0] + sign * other[0], one[1] + sign * other[1], one[2] + sign * other[2]
    if node.find(exp.Column) is not None:
        return None
    value = folder.fold(node)
    per_second = bound.left.schema.ticks_per_second
    if per_second is None:
        return (0, 0, Fraction(value.value)) if value.kind is Kind.EXACT else None
    if value.kind is not Kind.INTERVAL:
        return None
    return 0, 0, Fraction(int(value.value) * per_second, NS_PER_SECOND)


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
    columns = [(side.alias, [name for name, _ in side.columns.values()]) for side in sides]
    made.set("expressions", without_stars(made.expressions, columns, text, "a live join"))
    for join in joins:
        condition = join.args.get("on")
        if condition is not None:
            join.set("on", _over(condition, sides, text))
    made.set("expressions", [_over(node, sides, text, optional) for node in made.expressions])
    where = made.args.get("where")
    if where is not None:
        where.set("this", _over(where.this, sides, text, optional))
    for holder, side in zip(holders, sides, strict=True):
        derived = holder.this
        if not isinstance(derived, exp.Subquery):
            continue
        alias = exp.TableAlias(this=exp.to_identifier(side.alias, quoted=True))
        put_stream(made, holder, side.stream.copy(), alias, side.condition)
    return made


def put_stream(select: Any, holder: Any, stream: Any, alias: Any, condition: Any) -> None:
    """Replace the derived table of a FROM or JOIN by its stream; its condition goes to WHERE, that
    of the optional side of LEFT JOIN to ON.
    """
    table = exp.Table(this=stream, alias=alias)
    table.meta.update(holder.this.meta)
    holder.set("this", table)
    if condition is None:
        return
    if isinstance(holder, exp.Join) and holder.side:
        on = holder.args.get("on")
        holder.set("on", condition if on is None else exp.and_(on, condition, copy=False))
    else:
        select.where(condition, copy=False)


def _side(item: Any, text: str, schema_of: SchemaOf, names_of: NamesOf) -> _Side:
    if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
        _, schema = schema_of(item)
        alias = item.alias or item.name
        columns = {name.lower(): (name, column_node(name, alias)) for name in schema.names}
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
    clauses = {key for key, value in query.args.items() if value and key != "kind"}
    if not isinstance(query, exp.Select) or not clauses <= {"expressions", "from_", "where"}:
        raise _no_events(text, query)
    if aggregate_in(query) is not None or not is_plain(query):
        raise _no_events(text, query)
    source: Any = query.args["from_"].this
    if isinstance(source, exp.Subquery):
        below = _query(source.this, alias, text, schema_of, names_of)
    elif isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        _, schema = schema_of(source)
        columns = {name.lower(): (name, column_node(name, alias)) for name in schema.names}
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
        _, name = side.columns[parts[0].name.lower()]
        if isinstance(name, exp.Column):
            made = path_of([*(each.copy() for each in name.parts), *parts[1:]], column)
        elif len(parts) > 1:
            raise refused(text, column, "members of a computed column: take them out in the query")
        else:
            made = exp.paren(name.copy(), copy=False)
            if any(side is each for each in optional):
                there = exp.Is(
                    this=column_node(side.schema.time, side.alias), expression=exp.Null()
                )
                made = exp.paren(
                    exp.Case(ifs=[exp.If(this=exp.not_(there), true=made)]), copy=False
                )
            made.meta.update(column.meta)
        column.replace(made)
    name = holder.this
    name.pop()
    return name


def _of(column: Any, sides: Sequence[_Side]) -> tuple[_Side | None, list[Any]]:
    """The side of a column, and the column's name with the members behind it."""
    parts = list(column.parts)
    if len(parts) > 1:
        for side in sides:
            if side.alias.lower() == parts[0].name.lower():
                of_side = parts[1].name.lower() in side.columns
                return (side if of_side else None), parts[1:]
    for side in sides:
        if parts[0].name.lower() in side.columns:
            return side, parts
    return None, parts


def _hidden(side: _Side) -> set[str]:
    return {name.lower() for name in side.schema.names} - set(side.columns)


def _refuse_lambdas(tree: Any, text: str) -> None:
    function = tree.find(exp.Lambda)
    if function is not None:
        raise refused(text, function, "a live join of queries has no lambdas")


def _no_events(text: str, node: Any) -> SqlError:
    return refused(
        text, node, "a live join is of two streams, or of queries and views that filter one and "
        "compute columns of its events"
    )  # fmt: skip
