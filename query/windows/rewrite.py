"""Which SELECTs over windows are answered by the window operator, and what is left of them.

Purpose
    :func:`fuse` recognises a SELECT that groups by its windows alone and whose aggregates can be
    put together from slices.  It replaces the aggregates by columns that the operator delivers and
    removes the grouping; what remains (HAVING, ORDER BY, expressions over aggregates) is the
    executor's.

    ::

        SELECT window_start, avg(x) / 2 FROM HOP(s, t, ...) WHERE t >= $1 GROUP BY window_start,
        window_end HAVING count(*) > 3 ORDER BY avg(x)
                                        becomes
        SELECT window_start, "a0" / 2   FROM <operator>     WHERE "a1" > 3   ORDER BY "a0"

Guarantee
    The tree is changed only when all of it can be answered so.  Conditions on attributes apply to
    events before windowing, conditions on window columns to windows.

Limits
    Joins, subqueries, DISTINCT, other group keys, and aggregates other than count, sum, min, max
    and avg of one argument are answered from expanded events instead (:mod:`.expand`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...schema import StreamSchema
from ..binder import conjuncts
from ..dialect import to_text
from ..gate import AGGREGATES
from .clause import WindowCall
from .fields import FUNCTIONS, Aggregate, supports

__all__ = ["Fused", "Place", "fuse", "move_conditions"]

WINDOW_COLUMNS = ("window_start", "window_end", "window_id")

_FUNCTIONS = {
    "count": "count",
    "count_star": "count",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "avg": "avg",
    "mean": "avg",
}


@dataclass
class Fused:
    """What the operator has to deliver.

    Attributes
    ----------
    aggregates : list of Aggregate
        Column ``a{i}`` each; of attributes of the stream or of derived columns.
    derived : dict of str to sqlglot tree
        Expressions over attributes that aggregates are of, by the name of their column.
    schema : StreamSchema
        Time, attributes and derived columns.
    conditions : list of sqlglot trees
        What must hold of an event.
    """

    aggregates: list[Aggregate]
    derived: dict[str, Any]
    schema: StreamSchema
    conditions: list[Any]


@dataclass
class Place:
    """A SELECT around a window function.

    Attributes
    ----------
    call : WindowCall
    select : sqlglot tree
    alias : str
        Of the window function, in lower case.
    """

    call: WindowCall
    select: Any
    alias: str
    _attributes: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._attributes = {name.lower(): name for name in self.call.schema.names}

    def attribute(self, column: Any) -> str | None:
        """The stream's attribute that a column names; None for others."""
        name = self._own(column)
        return None if name is None else self._attributes.get(name)

    def is_window(self, column: Any) -> bool:
        """Whether a column is one of the window's."""
        name = self._own(column)
        return name in WINDOW_COLUMNS and (name != "window_id" or self.call.counts)

    def _own(self, column: Any) -> str | None:
        parts = column.parts
        if isinstance(column.this, exp.Star) or len(parts) > 2:
            return None
        if len(parts) == 2 and parts[0].name.lower() != self.alias:
            return None
        return str(parts[-1].name.lower())

    @property
    def alone(self) -> bool:
        """Whether nothing else stands in FROM."""
        args = self.select.args
        item = args["from_"].this if args.get("from_") is not None else None
        return (
            isinstance(self.select, exp.Select)
            and not any(args.get(key) for key in ("joins", "laterals", "sample"))
            and item is not None
            and not item.args.get("joins")
            and item.args.get("sample") is None
            and not (item.args.get("alias") and item.args["alias"].args.get("columns"))
        )

    def split_where(self) -> tuple[list[Any], list[Any]] | None:
        """Conditions on events and conditions on windows; None when one is on both or neither."""
        where = self.select.args.get("where")
        events: list[Any] = []
        windows: list[Any] = []
        for part in conjuncts(where.this) if where is not None else ():
            if part.find(exp.Query) is not None:
                return None
            columns = list(part.find_all(exp.Column))
            if columns and all(self.attribute(column) for column in columns):
                events.append(part)
            elif all(self.is_window(column) for column in columns):
                windows.append(part)
            else:
                return None
        return events, windows


def unqualified(node: Any) -> Any:
    """A copy of an expression whose columns have no qualifier."""
    copy = node.copy()
    for column in [copy] if isinstance(copy, exp.Column) else list(copy.find_all(exp.Column)):
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    return copy


def move_conditions(place: Place) -> list[Any]:
    """Take the conditions on events out of the SELECT; gives them without qualifiers."""
    split = place.split_where() if place.alone else None
    if split is None or not split[0]:
        return []
    events, windows = split
    _set_where(place.select, windows)
    return [unqualified(part) for part in events]


def _set_where(select: Any, conditions: list[Any]) -> None:
    if not conditions:
        select.set("where", None)
        return
    joined = conditions[0].copy()
    for condition in conditions[1:]:
        joined = exp.And(this=joined, expression=condition.copy())
    select.set("where", exp.Where(this=joined))


# ------------------------------------------------------------------------------- fusing


def fuse(place: Place) -> Fused | None:
    """Answer a SELECT by the operator when that can be done; changes the SELECT only then."""
    select = place.select
    if not place.alone or not _grouped_by_window(place):
        return None
    if any(select.args.get(key) for key in ("distinct", "windows")):
        return None
    split = place.split_where()
    if split is None:
        return None
    aliases = {projection.alias.lower() for projection in select.expressions if projection.alias}
    calls: list[Any] = []
    for key in ("expressions", "having", "qualify", "order"):
        part = select.args.get(key)
        for node in part if isinstance(part, list) else [part]:
            if node is not None and not _collect(node, place, aliases, calls):
                return None
    derived: dict[str, Any] = {}
    planned: list[tuple[str, str | None]] = []
    for call in calls:
        aggregate = _planned(call, place, derived)
        if aggregate is None:
            return None
        planned.append(aggregate)
    described = _described(place, derived)
    if described is None:
        return None
    schema, names = described
    aggregates: list[Aggregate] = []
    places: list[int] = []
    for function, name in planned:
        one = Aggregate(function, name)
        if not supports(schema, one):
            return None
        if one not in aggregates:
            aggregates.append(one)
        places.append(aggregates.index(one))
    _rewrite(place, calls, [(i, aggregates[i]) for i in places], schema, names, split[1])
    return Fused(aggregates, derived, schema, [unqualified(part) for part in split[0]])


def _grouped_by_window(place: Place) -> bool:
    """Whether GROUP BY lists window columns only, and enough of them to tell windows apart."""
    group = place.select.args.get("group")
    if group is None or any(
        group.args.get(k) for k in ("grouping_sets", "cube", "rollup", "totals")
    ):
        return False
    keys: list[Any] = []
    projections = place.select.expressions
    if group.args.get("all"):
        keys = [p.unalias() for p in projections if not _has_aggregate(p)]
    for node in group.expressions:
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
            position = int(node.this)
            if not 1 <= position <= len(projections):
                return False
            node = projections[position - 1].unalias()
        elif isinstance(node, exp.Column) and not place.is_window(node) and len(node.parts) == 1:
            named = [p for p in projections if p.alias.lower() == node.name.lower()]
            if len(named) == 1 and place.attribute(node) is None:
                node = named[0].unalias()
        keys.append(node)
    if not keys or not all(isinstance(key, exp.Column) and place.is_window(key) for key in keys):
        return False
    names = {key.name.lower() for key in keys}
    if place.call.counts:
        return "window_id" in names
    return bool(names & {"window_start", "window_end"})


def _has_aggregate(node: Any) -> bool:
    return any(isinstance(n, exp.Anonymous) and n.name.lower() in AGGREGATES for n in node.walk())


def _collect(node: Any, place: Place, aliases: set[str], calls: list[Any]) -> bool:
    """Gather aggregate calls below a node; False when something needs the events themselves."""
    if isinstance(node, (exp.Query, exp.WithinGroup, exp.Star, exp.Lambda)):
        return False
    if isinstance(node, exp.Column):
        if place.is_window(node):
            return True
        return len(node.parts) == 1 and node.name.lower() in aliases
    if isinstance(node, exp.Window):
        inner = node.this
        while isinstance(inner, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
            inner = inner.this
        parts = [*inner.expressions] if isinstance(inner, exp.Anonymous) else [inner]
        parts = [part for part in parts if not isinstance(part, exp.Star)]
        parts += [child for child in node.iter_expressions() if child is not node.this]
        if isinstance(node.this, exp.Filter):
            parts.append(node.this.expression)
        return all(_collect(part, place, aliases, calls) for part in parts)
    call = node.this if isinstance(node, exp.Filter) else node
    if isinstance(call, exp.Anonymous) and call.name.lower() in AGGREGATES:
        if call.name.lower() not in _FUNCTIONS:
            return False
        calls.append(node)
        return True
    if isinstance(node, exp.Filter):
        return False
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("unnest", "columns", "grouping"):
        return False
    return all(_collect(child, place, aliases, calls) for child in node.iter_expressions())


def _planned(node: Any, place: Place, derived: dict[str, Any]) -> tuple[str, str | None] | None:
    """Function and column of one aggregate call; expressions become derived columns."""
    condition = None
    if isinstance(node, exp.Filter):
        condition = node.expression.this
        node = node.this
    function = _FUNCTIONS[node.name.lower()]
    arguments = node.expressions
    star = function == "count" and (
        not arguments or (len(arguments) == 1 and isinstance(arguments[0], exp.Star))
    )
    if star and (not arguments or not any(arguments[0].args.values())):
        if condition is None:
            return "count", None
        value: Any = exp.Literal.number(1)
    elif len(arguments) != 1 or star or node.name.lower() == "count_star":
        return None
    else:
        value = arguments[0]
        if isinstance(value, exp.Column) and condition is None:
            name = place.attribute(value)
            return None if name is None else (function, name)
    parts = [value] if condition is None else [value, condition]
    for part in parts:
        if any(isinstance(n, (exp.Query, exp.Distinct, exp.Star, exp.Window)) for n in part.walk()):
            return None
        if _has_aggregate(part):
            return None
        if not all(place.attribute(column) for column in part.find_all(exp.Column)):
            return None
    if value.find(exp.Placeholder) is not None:
        return None  # its type, and that of the aggregate, is not known before it has a value
    value = unqualified(value)
    if condition is not None:
        value = exp.Case(ifs=[exp.If(this=unqualified(condition), true=value)])
    text = to_text(value)
    for name, known in derived.items():
        if to_text(known) == text:
            return function, name
    name = f"chronicle_e{len(derived)}"
    derived[name] = value
    return function, name


def _rewrite(
    place: Place,
    calls: list[Any],
    columns: list[tuple[int, Aggregate]],
    schema: StreamSchema,
    names: list[str],
    windows: list[Any],
) -> None:
    select = place.select
    named = [
        bool(projection.alias) or isinstance(projection, exp.Column)
        for projection in select.expressions
    ]
    for node, (position, aggregate) in zip(calls, columns, strict=True):
        column: Any = exp.column(exp.to_identifier(f"a{position}", quoted=True))
        if aggregate.function == "sum":
            attribute = schema.attribute(aggregate.attribute or "")
            if not pa.types.is_floating(attribute.type):
                column = exp.cast(column, "HUGEINT", dialect="duckdb")
        node.replace(column)
    projections = [
        projection
        if keeps
        else exp.Alias(this=projection, alias=exp.to_identifier(name, quoted=True))
        for projection, keeps, name in zip(select.expressions, named, names, strict=True)
    ]
    select.set("expressions", projections)
    having = select.args.get("having")
    select.set("having", None)
    select.set("group", None)
    _set_where(select, [*windows, *([having.this] if having is not None else [])])


_connection: list[Any] = []
_guard = threading.Lock()


def _described(place: Place, derived: dict[str, Any]) -> tuple[StreamSchema, list[str]] | None:
    """Types of derived columns and names of unaliased projections, as the executor has them."""
    arrow = place.call.schema.arrow
    unnamed = [
        (i, projection)
        for i, projection in enumerate(place.select.expressions)
        if not projection.alias and not isinstance(projection, exp.Column)
    ]
    names = [projection.alias_or_name for projection in place.select.expressions]
    for i, projection in list(unnamed):
        natural = _natural_name(projection)
        if natural is not None:
            names[i] = natural
            unnamed.remove((i, projection))
    if not derived and not unnamed:
        return place.call.schema, names
    import duckdb

    columns = [pa.field(name, place.call.schema.time_type) for name in WINDOW_COLUMNS[:2]]
    table = pa.schema([*arrow, *columns, pa.field("window_id", pa.int64())]).empty_table()
    with _guard:
        if not _connection:
            _connection.append(duckdb.connect(config={"threads": 1}))
        cursor = _connection[0].cursor()
    try:
        cursor.register("events", table)
        if derived:
            listed = ", ".join(
                f'{to_text(_nulled(node))} AS "{name}"' for name, node in derived.items()
            )
            found = cursor.sql(f"SELECT {listed} FROM events").to_arrow_table().schema
            arrow = pa.schema([*arrow, *found])
        if unnamed:
            listed = ", ".join(to_text(_nulled(unqualified(node))) for _, node in unnamed)
            keys = "window_start, window_end, window_id"
            for (i, _), name in zip(
                unnamed,
                cursor.sql(f"SELECT {listed} FROM events GROUP BY {keys}").columns,
                strict=True,
            ):
                names[i] = name
        return StreamSchema(arrow, place.call.schema.time), names
    except Exception:  # the executor will say what is wrong, in the user's own terms
        return None
    finally:
        cursor.close()


def _nulled(node: Any) -> Any:
    """A copy with parameters replaced by NULL."""
    return node.copy().transform(lambda n: exp.Null() if isinstance(n, exp.Placeholder) else n)


def _natural_name(node: Any) -> str | None:
    """The name that the executor gives to a plain call; None where it must be asked."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() not in FUNCTIONS:
        return None
    arguments = node.expressions
    if not arguments or isinstance(arguments[0], exp.Star):
        return "count_star()"
    if len(arguments) == 1 and isinstance(arguments[0], exp.Column):
        parts = [part.name for part in arguments[0].parts]
        if all(part.isidentifier() and part == part.lower() for part in parts):
            return f"{node.name.lower()}({'.'.join(parts)})"
    return None


def columns_of(nodes: list[Any], place: Place) -> Iterator[str]:
    """Attributes that expressions mention."""
    for node in nodes:
        for column in node.find_all(exp.Column):
            name = place.attribute(column)
            if name is not None:
                yield name
