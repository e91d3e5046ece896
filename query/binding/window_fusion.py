"""Fusion of a grouping SELECT with its window operator, which delivers keys and aggregates::

    SELECT window_start, k, avg(x) / 2 FROM HOP(s, t, ...) WHERE t >= $1
    GROUP BY window_start, k HAVING count(*) > 3 ORDER BY avg(x)
                                        becomes
    SELECT window_start, "$k0" AS k, "$a0" / 2 FROM <operator> WHERE "$a1" > 3 ORDER BY "$a0"

The tree is changed only if everything can be fused; other SELECTs use expanded events
(``windows.expand``).  Conditions on attributes apply to events before windowing, those on window
columns to windows.
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
from ..windows.fields import (
    FUNCTIONS,
    Aggregate,
    aggregate_column,
    key_column,
    keyable,
    supports,
)
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
    """Aggregates and keys, of attributes or ``derived`` columns, and conditions on events."""

    aggregates: list[Aggregate]
    keys: list[str]
    derived: dict[str, Any]
    schema: StreamSchema
    conditions: list[Any]


def move_conditions(windowed: WindowSelect) -> list[Any]:
    """Remove conditions on events from the SELECT, and return them unqualified."""
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
    """Fuse a SELECT, changing it, or return None."""
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
    named = windowed.call.keys
    if not named:
        return True  # sessions take the keys of GROUP BY, or there are none
    return sorted(named) == sorted(
        str(node.name) if isinstance(node, exp.Column) else "" for node in keys.nodes
    )


class _Found:
    def __init__(self, windowed: WindowSelect, aliases: set[str], keys: Keys) -> None:
        self.calls: list[Any] = []
        self.keys: list[tuple[Any, int]] = []
        self._windowed = windowed
        self._aliases = aliases
        self._known = keys

    def collect(self, node: Any) -> bool:
        """Collect below a node; False if something needs the events themselves."""
        windowed = self._windowed
        if isinstance(node, (exp.Query, exp.WithinGroup, exp.Star, exp.Lambda)):
            return False
        if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)):
            return False
        if isinstance(node, exp.Ordered) and self._is_alias(node.this):
            return True  # in ORDER BY an alias precedes an attribute
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
    condition = None
    if isinstance(node, exp.Filter):
        condition = node.expression.this
        node = node.this
    function = _FUNCTIONS[node.name.lower()]
    if condition is not None and function in ("first", "last"):
        return None  # these do not skip the nulls that FILTER leaves
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
        return None  # the type is unknown before there is a value
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
    """The executor's types of derived columns and names of unaliased projections."""
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
    except ChronicleError:  # the executor reports the error on the original text
        return None


def _nulled(node: Any) -> Any:
    return node.copy().transform(lambda n: exp.Null() if isinstance(n, exp.Placeholder) else n)


def _natural_name(node: Any) -> str | None:
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
