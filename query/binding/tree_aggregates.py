"""Ad-hoc aggregates that the TAB+-tree answers without reading events (thesis, section 3.3).

``SELECT avg(x), max(y) FROM s WHERE t >= ... AND t < ...`` needs one descent: whole children by
their aggregates, boundary leaves by their events.  Values equal those of a scan; float sums up to
rounding.  Strings, decimals, DISTINCT, FILTER and other functions are no candidates.  Calls become
columns ``$a0, $a1, ...`` of a one-row relation in the executor's types; a SELECT of nothing but
calls bypasses the executor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from ...schema import Storage, StreamSchema
from ...store.aggregates import LightweightAggregates
from ..sql.forms import AGGREGATES
from .binder import OrderSensitive, add_order
from .scope import Names, Site

TREE_FUNCTIONS = {
    "count": "count",
    "count_star": "count",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "avg": "avg",
    "mean": "avg",
}
_NAMED = ("count", "count_star", "sum", "min", "max", "avg")
_WIDE = Context(prec=38)
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def _column(position: int) -> str:
    return f"$a{position}"


@dataclass(frozen=True)
class Call:
    """An aggregate call; ``attribute`` is None for ``count(*)``, HUGEINT is decimal128(38, 0)."""

    function: str
    attribute: str | None
    type: pa.DataType

    @property
    def hugeint(self) -> bool:
        return self.function == "sum" and pa.types.is_decimal(self.type)


@dataclass(frozen=True)
class Candidate:
    """A SELECT that the tree may answer; ``bare``: its columns, if it is nothing but calls."""

    select: Any
    calls: tuple[Call, ...]
    places: tuple[tuple[Any, int], ...]
    bare: tuple[tuple[str, int], ...] | None


def find_candidate(site: Site, names: Names) -> Candidate | None:
    """The candidate for a site's SELECT; None without one."""
    select, schema = site.select, site.schema
    if select is None or schema is None or not isinstance(select, exp.Select):
        return None
    for key in ("group", "distinct", "qualify", "sample", "windows", "joins", "laterals", "with_"):
        if select.args.get(key):
            return None
    item = select.args["from_"].this
    if item.args.get("sample") is not None or item.args.get("joins"):
        return None
    if any(node is not select and isinstance(node, exp.Query) for node in select.walk()):
        return None
    calls_of_tree = _Calls(site, schema, names)
    for key in ("expressions", "having", "order"):
        part = select.args.get(key)
        for node in part if isinstance(part, list) else [part]:
            if node is not None and not calls_of_tree.collect(node):
                return None
    if not calls_of_tree.calls:
        return None
    calls, places = tuple(calls_of_tree.calls), tuple(calls_of_tree.places)
    return Candidate(select, calls, places, _bare(select, places))


class _Calls:
    def __init__(self, site: Site, schema: StreamSchema, names: Names) -> None:
        self.calls: list[Call] = []
        self.places: list[tuple[Any, int]] = []
        self._site = site
        self._schema = schema
        self._names = names

    def collect(self, node: Any) -> bool:
        """Collect the calls below a node; False if something else needs events."""
        if isinstance(node, (exp.Window, exp.Filter, exp.WithinGroup, exp.Column, exp.Star)):
            return False
        if isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if name in AGGREGATES:
                call = _call(node, name, self._site, self._schema, self._names)
                if call is None:
                    return False
                if call not in self.calls:
                    self.calls.append(call)
                self.places.append((node, self.calls.index(call)))
                return True
            if name in ("unnest", "columns", "grouping", "grouping_id"):
                return False
        return all(self.collect(child) for child in node.iter_expressions())


def _call(node: Any, name: str, site: Site, schema: StreamSchema, names: Names) -> Call | None:
    function = TREE_FUNCTIONS.get(name)
    arguments = node.expressions
    if function is None:
        return None
    if function == "count" and (
        not arguments or (len(arguments) == 1 and isinstance(arguments[0], exp.Star))
    ):
        star = arguments[0] if arguments else None
        if star is not None and any(star.args.values()):
            return None
        return Call("count", None, pa.int64())
    if name == "count_star" or len(arguments) != 1 or not isinstance(arguments[0], exp.Column):
        return None
    use = names.use(arguments[0])
    if use is None or use.site != site.index:
        return None
    attribute = schema.attribute(use.attribute)
    if function == "count":
        return Call("count", attribute.name, pa.int64())
    unordered = (Storage.STRING, Storage.BINARY, Storage.DECIMAL, Storage.JSON, Storage.NESTED)
    if attribute.storage in unordered:
        return None
    if function in ("min", "max"):
        return Call(function, attribute.name, attribute.type)
    if not attribute.summable or attribute.name == schema.time:
        return None
    if function == "avg":
        if attribute.storage is Storage.BOOL:
            return None
        return Call("avg", attribute.name, pa.float64())
    floating = attribute.storage is Storage.FLOAT
    return Call("sum", attribute.name, pa.float64() if floating else pa.decimal128(38, 0))


def _bare(select: Any, places: Sequence[tuple[Any, int]]) -> tuple[tuple[str, int], ...] | None:
    if any(select.args.get(key) for key in ("having", "order", "limit", "offset")):
        return None
    if select.parent is not None and not isinstance(select.parent, exp.Paren):
        return None
    if len(places) != len(select.expressions):
        return None
    call_of = {id(node): position for node, position in places}
    columns = []
    for projection in select.expressions:
        node = projection.this if isinstance(projection, exp.Alias) else projection
        position = call_of.get(id(node))
        name = projection.alias or (position is not None and natural_name(node))
        if position is None or not name:
            return None
        columns.append((name, position))
    return tuple(columns)


def natural_name(call: Any) -> str | None:
    """The executor's name of a column that is just an aggregate of a column with a plain name."""
    if not isinstance(call, exp.Anonymous) or call.name.lower() not in _NAMED:
        return None
    if not call.expressions or isinstance(call.expressions[0], exp.Star):
        return "count_star()"
    if len(call.expressions) > 1 or not isinstance(call.expressions[0], exp.Column):
        return None
    parts = [part.name for part in call.expressions[0].parts]
    if not all(_PLAIN_NAME.fullmatch(part) for part in parts):
        return None
    return f"{call.name.lower()}({'.'.join(parts)})"


def rewritten(
    root: Any,
    candidates: Sequence[Candidate],
    unordered: Sequence[OrderSensitive],
    names: Callable[[], Sequence[str]],
) -> Any:
    """A copy in which candidates read one-row relations, and ``unordered`` parts are ordered."""
    holder, written = exp.Paren(this=root.copy()), {}
    for old, new in zip(root.walk(), holder.this.walk(), strict=True):
        written[id(old)] = new
    add_order(unordered, written, root, names)
    for candidate in candidates:
        whole = candidate.select is root
        select = written[id(candidate.select)]
        places = [(written[id(node)], position) for node, position in candidate.places]
        _rewrite(select, candidate.calls, places, names() if whole else None)
    return holder.this


def _rewrite(
    select: Any,
    calls: Sequence[Call],
    places: Sequence[tuple[Any, int]],
    names: Sequence[str] | None,
) -> None:
    projections = list(select.expressions)
    for position, projection in enumerate(projections):
        if not isinstance(projection, exp.Alias):
            name = projection.sql("duckdb", normalize_functions="lower")
            if names is not None and len(names) == len(projections):
                name = names[position]
            alias = exp.Alias(alias=exp.to_identifier(name, quoted=True))
            projection.replace(alias)
            alias.set("this", projection)
    for node, position in places:
        column: Any = exp.column(exp.to_identifier(_column(position), quoted=True))
        if calls[position].hugeint:
            column = exp.cast(column, "HUGEINT", dialect="duckdb")
        node.replace(column)
    where = select.args.get("where")
    having = select.args.get("having")
    if where is not None:
        select.set("where", None)
    if having is not None:
        select.set("having", None)
        select.set("where", exp.Where(this=having.this))
    select.set("order", None)


def call_values(calls: Sequence[Call], answer: LightweightAggregates, time: str) -> list[Any]:
    values: list[Any] = []
    cache: dict[str, Any] = {}
    for call in calls:
        name = call.attribute
        if name is None or (call.function == "count" and name == time):
            values.append(answer.count)
        elif name == time:
            values.append(answer.first if call.function == "min" else answer.last)
        else:
            element = cache.get(name)
            if element is None:
                element = cache[name] = answer[name]
            values.append(getattr(element, call.function))
    return values


def _array(value: Any, type_: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(1, type_)
    if pa.types.is_float64(type_) or pa.types.is_integer(type_):
        # pa.array would import pandas if installed
        raw = np.array([value], type_.to_pandas_dtype())
        return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(raw)])
    if pa.types.is_decimal(type_):
        return pa.array([_WIDE.create_decimal(Decimal(value))], type_)
    if pa.types.is_timestamp(type_) or pa.types.is_date64(type_):
        return pa.array([value], pa.int64()).cast(type_)
    if pa.types.is_date32(type_):
        return pa.array([value], pa.int32()).cast(type_)
    if pa.types.is_boolean(type_):
        return pa.array([bool(value)], type_)
    return pa.array([value], type_)


def one_row(calls: Sequence[Call], answer: LightweightAggregates, time: str) -> pa.RecordBatch:
    values = call_values(calls, answer, time)
    arrays = [_array(value, call.type) for call, value in zip(calls, values, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[_column(i) for i in range(len(arrays))])


def one_row_schema(calls: Sequence[Call]) -> pa.Schema:
    return pa.schema([pa.field(_column(i), call.type) for i, call in enumerate(calls)])


def result_table(
    calls: Sequence[Call],
    columns: Sequence[tuple[str, int]],
    answer: LightweightAggregates,
    time: str,
) -> pa.Table:
    """The result of a SELECT that is nothing but calls."""
    values = call_values(calls, answer, time)
    arrays, fields = [], []
    for name, position in columns:
        call, value = calls[position], values[position]
        type_ = call.type
        if call.hugeint and (value is None or -(2**63) <= value < 2**63):
            type_ = pa.int64()
        arrays.append(_array(value, type_))
        fields.append(pa.field(name, type_))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
