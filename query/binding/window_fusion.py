"""Which SELECTs over windows are answered by the window operator, and what is left of them.

Purpose
    :func:`fuse` recognises a SELECT that groups by its windows, and by attributes or expressions
    beside them, and whose aggregates can be put together from slices.  It replaces keys and
    aggregates by columns that the operator delivers and removes the grouping; what remains
    (HAVING, ORDER BY, expressions over aggregates) is the executor's.

    ::

        SELECT window_start, k, avg(x) / 2 FROM HOP(s, t, ...) WHERE t >= $1
        GROUP BY window_start, k HAVING count(*) > 3 ORDER BY avg(x)
                                        becomes
        SELECT window_start, "$k0" AS k, "$a0" / 2 FROM <operator> WHERE "$a1" > 3 ORDER BY "$a0"

Guarantee
    The tree is changed only when all of it can be answered so.  Conditions on attributes apply to
    events before windowing, conditions on window columns to windows.

Limits
    Joins, subqueries, DISTINCT, sessions by other keys than those grouped by, and aggregates other
    than count, sum, min, max, avg, first, last, any_value, bool_and, bool_or and standard
    deviations and variances of one argument are answered from expanded events
    (:mod:`..windows.expand`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...errors import ChronicleError
from ...schema import StreamSchema
from ..relational.evaluation import evaluate
from ..sql.dialect import to_text
from ..sql.gate import AGGREGATES
from ..sql.nesting import all_true
from ..sql.rendering import identifier
from ..windows.fields import FUNCTIONS, Aggregate, aggregate_column, key_column, keyable, supports
from .window_keys import Keys, group_keys
from .window_select import WINDOW_COLUMNS, WindowSelect, has_aggregate, unqualified

__all__ = ["Fused", "fuse", "move_conditions"]

_FUNCTIONS = {
    "count": "count",
    "count_star": "count",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "avg": "avg",
    "mean": "avg",
    "first": "first",
    "last": "last",
    "any_value": "any_value",
    "bool_and": "min",
    "bool_or": "max",
    "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
}
_WITH_EVENTS = ("unnest", "columns", "grouping")
_OF_TIME = {"first": "min", "any_value": "min", "last": "max"}


@dataclass
class Fused:
    """What the operator has to deliver.

    Attributes
    ----------
    aggregates : list of Aggregate
        A column each; of attributes of the stream or of derived columns.
    keys : list of str
        Attributes and derived columns by which events are grouped beside their windows.
    derived : dict of str to sqlglot tree
        Expressions over attributes that keys and aggregates are of, by the name of their column.
    schema : StreamSchema
        Time, attributes and derived columns.
    conditions : list of sqlglot trees
        What must hold of an event.
    """

    aggregates: list[Aggregate]
    keys: list[str]
    derived: dict[str, Any]
    schema: StreamSchema
    conditions: list[Any]


def move_conditions(windowed: WindowSelect) -> list[Any]:
    """Take the conditions on events out of the SELECT; gives them without qualifiers."""
    split = windowed.split_where() if windowed.alone else None
    if split is None or not split[0]:
        return []
    events, windows = split
    _set_where(windowed.select, windows)
    return [unqualified(part) for part in events]


def _set_where(select: Any, conditions: list[Any]) -> None:
    if not conditions:
        select.set("where", None)
        return
    select.set("where", exp.Where(this=all_true(conditions)))


# ------------------------------------------------------------------------------- fusing


def fuse(windowed: WindowSelect) -> Fused | None:
    """Answer a SELECT by the operator when that can be done; changes the SELECT only then."""
    select = windowed.select
    keys = group_keys(windowed) if windowed.alone else None
    if keys is None or not _are_session_keys(keys, windowed):
        return None
    if any(select.args.get(key) for key in ("distinct", "windows")):
        return None
    split = windowed.split_where()
    if split is None:
        return None
    aliases = {projection.alias.lower() for projection in select.expressions if projection.alias}
    found = _Found(windowed, aliases, keys)
    for key in ("expressions", "having", "qualify", "order"):
        part = select.args.get(key)
        for node in part if isinstance(part, list) else [part]:
            if node is not None and not found.collect(node):
                return None
    calls = found.calls
    derived: dict[str, Any] = {}
    columns = [_key_name(node, derived) for node in keys.nodes]
    planned: list[tuple[str, str | None]] = []
    for call in calls:
        aggregate = _planned(call, windowed, derived)
        if aggregate is None:
            return None
        planned.append(aggregate)
    described = _described(windowed, derived, keys)
    if described is None:
        return None
    schema, names = described
    if not all(keyable(schema.attribute(name)) for name in columns):
        return None
    aggregates: list[Aggregate] = []
    places: list[int] = []
    for function, name in planned:
        one = Aggregate(_OF_TIME.get(function, function) if name == schema.time else function, name)
        if not supports(schema, one):
            return None
        if one not in aggregates:
            aggregates.append(one)
        places.append(aggregates.index(one))
    _rewrite(windowed, found, [(i, aggregates[i]) for i in places], schema, names, split[1])
    return Fused(aggregates, columns, derived, schema, [unqualified(part) for part in split[0]])


def _are_session_keys(keys: Keys, windowed: WindowSelect) -> bool:
    """Whether the keys of GROUP BY are those by which sessions are told apart."""
    named = windowed.call.keys
    if not named:
        return True  # then sessions are those of the keys, or the windows are no sessions
    return sorted(named) == sorted(
        str(node.name) if isinstance(node, exp.Column) else "" for node in keys.nodes
    )


class _Found:
    """Keys and aggregate calls in what is left of a SELECT without its grouping.

    Attributes
    ----------
    keys : list of (sqlglot tree, int)
        Where keys stand, and which.
    """

    def __init__(self, windowed: WindowSelect, aliases: set[str], keys: Keys) -> None:
        self.calls: list[Any] = []
        self.keys: list[tuple[Any, int]] = []
        self._windowed = windowed
        self._aliases = aliases
        self._known = keys

    def collect(self, node: Any) -> bool:
        """Gather what stands below a node; False when something needs the events themselves."""
        windowed = self._windowed
        if isinstance(node, (exp.Query, exp.WithinGroup, exp.Star, exp.Lambda)):
            return False
        if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)):
            return False
        if isinstance(node, exp.Ordered) and self._is_alias(node.this):
            return True  # to ORDER BY, an alias goes before an attribute
        key = self._known.find(node)
        if key is not None:
            self.keys.append((node, key))
            return True
        if isinstance(node, exp.Column):
            if windowed.is_window(node):
                return True
            return self._is_alias(node)
        if isinstance(node, exp.Window):
            return self._over(node)
        call = node.this if isinstance(node, exp.Filter) else node
        if isinstance(call, exp.Anonymous) and call.name.lower() in AGGREGATES:
            if call.name.lower() not in _FUNCTIONS:
                return False
            self.calls.append(node)
            return True
        if isinstance(node, exp.Filter):
            return False
        if isinstance(node, exp.Anonymous) and node.name.lower() in _WITH_EVENTS:
            return False
        return all(self.collect(child) for child in node.iter_expressions())

    def _is_alias(self, node: Any) -> bool:
        plain = isinstance(node, exp.Column) and len(node.parts) == 1
        return plain and node.name.lower() in self._aliases

    def _over(self, node: Any) -> bool:
        """What stands in a call with OVER, which is the executor's."""
        inner = node.this
        while isinstance(inner, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
            inner = inner.this
        parts = [*inner.expressions] if isinstance(inner, exp.Anonymous) else [inner]
        parts = [part for part in parts if not isinstance(part, exp.Star)]
        parts += [child for child in node.iter_expressions() if child is not node.this]
        if isinstance(node.this, exp.Filter):
            parts.append(node.this.expression)
        return all(self.collect(part) for part in parts)


def _key_name(node: Any, derived: dict[str, Any]) -> str:
    """The column of a key; expressions become derived columns."""
    return str(node.name) if isinstance(node, exp.Column) else _derived_name(node, derived)


def _derived_name(node: Any, derived: dict[str, Any]) -> str:
    text = to_text(node)
    for name, known in derived.items():
        if to_text(known) == text:
            return name
    name = f"chronicle_e{len(derived)}"
    derived[name] = node
    return name


def _planned(
    node: Any, windowed: WindowSelect, derived: dict[str, Any]
) -> tuple[str, str | None] | None:
    """Function and column of one aggregate call; expressions become derived columns."""
    condition = None
    if isinstance(node, exp.Filter):
        condition = node.expression.this
        node = node.this
    function = _FUNCTIONS[node.name.lower()]
    if condition is not None and function in ("first", "last"):
        return None  # a condition leaves nulls behind, which these two do not pass over
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
            name = windowed.attribute(value)
            if name is None:
                return None
            boolean = pa.types.is_boolean(windowed.call.schema.attribute(name).type)
            if node.name.lower().startswith("bool_") and not boolean:
                return None
            return function, name
    if node.name.lower().startswith("bool_"):
        return None
    parts = [value] if condition is None else [value, condition]
    for part in parts:
        if any(isinstance(n, (exp.Query, exp.Distinct, exp.Star, exp.Window)) for n in part.walk()):
            return None
        if has_aggregate(part):
            return None
        if not all(windowed.attribute(column) for column in part.find_all(exp.Column)):
            return None
    if value.find(exp.Placeholder) is not None:
        return None  # its type, and that of the aggregate, is not known before it has a value
    value = unqualified(value)
    if condition is not None:
        value = exp.Case(ifs=[exp.If(this=unqualified(condition), true=value)])
    return function, _derived_name(value, derived)


def _rewrite(
    windowed: WindowSelect,
    found: _Found,
    columns: list[tuple[int, Aggregate]],
    schema: StreamSchema,
    names: list[str],
    windows: list[Any],
) -> None:
    select = windowed.select
    named = [
        bool(projection.alias)
        or (isinstance(projection, exp.Column) and windowed.is_window(projection))
        for projection in select.expressions
    ]
    for node, key in found.keys:
        node.replace(exp.column(exp.to_identifier(key_column(key), quoted=True)))
    for node, (position, aggregate) in zip(found.calls, columns, strict=True):
        column: Any = exp.column(exp.to_identifier(aggregate_column(position), quoted=True))
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


def _described(
    windowed: WindowSelect, derived: dict[str, Any], grouped: Keys
) -> tuple[StreamSchema, list[str]] | None:
    """Types of derived columns and names of unaliased projections, as the executor has them."""
    arrow = windowed.call.schema.arrow
    unnamed = [
        (i, projection)
        for i, projection in enumerate(windowed.select.expressions)
        if not projection.alias and not isinstance(projection, exp.Column)
    ]
    names = [
        (isinstance(projection, exp.Column) and windowed.attribute(projection))
        or projection.alias_or_name
        for projection in windowed.select.expressions
    ]
    for i, projection in list(unnamed):
        natural = _natural_name(projection)
        if natural is not None:
            names[i] = natural
            unnamed.remove((i, projection))
    if not derived and not unnamed:
        return windowed.call.schema, names
    columns = [pa.field(name, windowed.call.schema.time_type) for name in WINDOW_COLUMNS[:2]]
    table = pa.schema([*arrow, *columns, pa.field("window_id", pa.int64())]).empty_table()
    try:
        if derived:
            listed = ", ".join(
                f"{to_text(_nulled(node))} AS {identifier(name)}" for name, node in derived.items()
            )
            found = evaluate(f"SELECT {listed} FROM events", events=table)
            arrow = pa.schema([*arrow, *found.schema])
        if unnamed:
            listed = ", ".join(to_text(_nulled(unqualified(node))) for _, node in unnamed)
            keys = ", ".join([*WINDOW_COLUMNS, *(to_text(node) for node in grouped.nodes)])
            found = evaluate(f"SELECT {listed} FROM events GROUP BY {keys}", events=table)
            for (i, _), name in zip(unnamed, found.schema.names, strict=True):
                names[i] = name
        return StreamSchema(arrow, windowed.call.schema.time), names
    except ChronicleError:  # the executor will say what is wrong, in the user's own terms
        return None


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
