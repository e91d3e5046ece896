"""Ad-hoc aggregates: SELECTs that the TAB+-tree answers without reading events.

Purpose
    ``SELECT avg(x), max(y) FROM s WHERE t >= ... AND t < ...`` needs one walk down the tree (thesis
    section 3.3): whole children by their lightweight aggregates, boundary leaves by their events.
    :func:`find_candidate` recognises such a SELECT anywhere in a query; whether it is answered
    so is decided per execution, when the bounds of time are known.

Guarantee
    The values are those that a scan would give: counts exact, integer sums exact, minima and
    maxima of numbers, times, dates and booleans exact, float sums up to rounding.  What the tree
    does not hold exactly (strings, decimals, DISTINCT, FILTER, other functions) is not a candidate.

Layout
    A candidate's calls become columns ``$a0, $a1, ...`` of a one-row relation in the types that the
    executor would have given them; sums of integers are cast to HUGEINT in the rewritten SELECT.  A
    SELECT of nothing but such calls needs no executor: :func:`result_table` builds the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from ...schema import Storage, StreamSchema
from ...store.aggregates import LightweightAggregates
from ..sql.gate import AGGREGATES
from .scope import ColumnUse, Site, own_nodes

__all__ = ["Call", "Candidate", "find_candidate", "result_table", "rewrite"]

_FUNCTIONS = {
    "count": "count",
    "count_star": "count",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "avg": "avg",
    "mean": "avg",
}
_WIDE = Context(prec=38)
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def _column(position: int) -> str:
    """Name of a call's column, which no alias of a user is likely to have."""
    return f"$a{position}"


@dataclass(frozen=True)
class Call:
    """One aggregate call.

    Attributes
    ----------
    function : str
        count, sum, min, max or avg.
    attribute : str or None
        None for ``count(*)``.
    type : pyarrow.DataType
        Type of the answer before normalisation (HUGEINT as decimal128(38, 0)).
    """

    function: str
    attribute: str | None
    type: pa.DataType

    @property
    def hugeint(self) -> bool:
        """Whether the executor's type of the answer is HUGEINT."""
        return self.function == "sum" and pa.types.is_decimal(self.type)


@dataclass(frozen=True)
class Candidate:
    """A SELECT that the tree may answer.

    Attributes
    ----------
    site : int
    schema : StreamSchema
    calls : tuple of Call
    bare : tuple of (str, int) or None
        When the SELECT is nothing but calls: name and position in ``calls`` of each column.
    """

    site: int
    schema: StreamSchema
    calls: tuple[Call, ...]
    bare: tuple[tuple[str, int], ...] | None

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attributes whose aggregates are needed, time left out."""
        time = self.schema.time
        names = (c.attribute for c in self.calls if c.attribute is not None)
        return tuple(dict.fromkeys(name for name in names if name != time))


def find_candidate(site: Site) -> Candidate | None:
    """The candidate that a site's SELECT is, if it is one; tags its calls in ``meta["call"]``."""
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
    calls: list[Call] = []
    tagged: list[tuple[Any, int]] = []
    for key in ("expressions", "having", "order"):
        part = select.args.get(key)
        for node in part if isinstance(part, list) else [part]:
            if node is not None and not _collect(node, site, schema, calls, tagged):
                return None
    if not calls:
        return None
    for node, position in tagged:
        node.meta["call"] = position
        node.meta["hugeint"] = calls[position].hugeint
    select.meta["candidate"] = site.index
    return Candidate(site.index, schema, tuple(calls), _bare(select, len(tagged)))


def _collect(
    node: Any,
    site: Site,
    schema: StreamSchema,
    calls: list[Call],
    tagged: list[tuple[Any, int]],
) -> bool:
    """Gather the aggregate calls below a node; False when something else needs the events."""
    if isinstance(node, (exp.Window, exp.Filter, exp.WithinGroup, exp.Column, exp.Star)):
        return False
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        if name in AGGREGATES:
            call = _call(node, name, site, schema)
            if call is None:
                return False
            if call not in calls:
                calls.append(call)
            tagged.append((node, calls.index(call)))
            return True
        if name in ("unnest", "columns", "grouping", "grouping_id"):
            return False
    return all(_collect(child, site, schema, calls, tagged) for child in node.iter_expressions())


def _call(node: Any, name: str, site: Site, schema: StreamSchema) -> Call | None:
    function = _FUNCTIONS.get(name)
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
    use: ColumnUse | None = arguments[0].meta.get("use")
    if use is None or use.site != site.index:
        return None
    attribute = schema.attribute(use.attribute)
    if function == "count":
        return Call("count", attribute.name, pa.int64())
    if attribute.storage in (Storage.STRING, Storage.BINARY, Storage.DECIMAL):
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


def _bare(select: Any, tagged: int) -> tuple[tuple[str, int], ...] | None:
    """Result columns when the SELECT is a list of calls and nothing else."""
    if any(select.args.get(key) for key in ("having", "order", "limit", "offset")):
        return None
    if select.parent is not None and not isinstance(select.parent, exp.Paren):
        return None
    if tagged != len(select.expressions):
        return None
    columns = []
    for projection in select.expressions:
        node = projection.this if isinstance(projection, exp.Alias) else projection
        name = projection.alias or ("call" in node.meta and _natural_name(node))
        if "call" not in node.meta or not name:
            return None
        columns.append((name, node.meta["call"]))
    return tuple(columns)


def _natural_name(call: Any) -> str | None:
    """The name that the executor gives to an unaliased call; None where it would quote."""
    if not call.expressions or isinstance(call.expressions[0], exp.Star):
        return "count_star()"
    parts = [part.name for part in call.expressions[0].parts]
    if not all(_PLAIN_NAME.fullmatch(part) for part in parts):
        return None
    if call.name.lower() not in ("count", "sum", "min", "max", "avg"):
        return None
    return f"{call.name.lower()}({'.'.join(parts)})"


def rewrite(select: Any, names: Sequence[str] | None = None) -> None:
    """Make a tagged SELECT read its calls from the one-row relation, in place.

    Its columns keep their names: those given, else what the text of each would be called.
    """
    projections = list(select.expressions)
    for position, projection in enumerate(projections):
        if not isinstance(projection, exp.Alias):
            name = projection.sql("duckdb", normalize_functions="lower")
            if names is not None and len(names) == len(projections):
                name = names[position]
            alias = exp.Alias(alias=exp.to_identifier(name, quoted=True))
            projection.replace(alias)
            alias.set("this", projection)
    for node in list(own_nodes(select)):
        position = node.meta.get("call")
        if position is None:
            continue
        column: Any = exp.column(exp.to_identifier(_column(position), quoted=True))
        if node.meta.get("hugeint"):
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
    """The value of each call, in the types that Arrow builds them from."""
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


def _array(call: Call, value: Any, type_: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(1, type_)
    if pa.types.is_decimal(type_):
        return pa.array([_WIDE.create_decimal(Decimal(value))], type_)
    if pa.types.is_timestamp(type_) or pa.types.is_date64(type_):
        return pa.array([value], pa.int64()).cast(type_)
    if pa.types.is_date32(type_):
        return pa.array([value], pa.int32()).cast(type_)
    if pa.types.is_boolean(type_):
        return pa.array([bool(value)], type_)
    if pa.types.is_integer(type_) or pa.types.is_float64(type_):
        # not by pa.array: where pandas is installed, that loads it into a cold process
        raw = np.array([value], type_.to_pandas_dtype())
        return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(raw)])
    return pa.array([value], type_)


def one_row(candidate: Candidate, answer: LightweightAggregates) -> pa.RecordBatch:
    """The one-row relation ``$a0, $a1, ...`` that a rewritten SELECT reads."""
    values = call_values(candidate.calls, answer, candidate.schema.time)
    arrays = [
        _array(call, value, call.type) for call, value in zip(candidate.calls, values, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[_column(i) for i in range(len(arrays))])


def one_row_schema(candidate: Candidate) -> pa.Schema:
    """Schema of :func:`one_row`."""
    return pa.schema([pa.field(_column(i), call.type) for i, call in enumerate(candidate.calls)])


def result_table(candidate: Candidate, answer: LightweightAggregates) -> pa.Table:
    """The answer of a SELECT that is nothing but calls."""
    assert candidate.bare is not None
    values = call_values(candidate.calls, answer, candidate.schema.time)
    arrays, fields = [], []
    for name, position in candidate.bare:
        call, value = candidate.calls[position], values[position]
        type_ = call.type
        if call.hugeint and (value is None or -(2**63) <= value < 2**63):
            type_ = pa.int64()
        arrays.append(_array(call, value, type_))
        fields.append(pa.field(name, type_))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
