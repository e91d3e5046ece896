"""Evaluates scalar SQL expressions over Arrow columns with DuckDB, keeping the row order.
Integer division by zero with ``//`` and ``%`` is an error; ``/`` is floating-point division.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ...errors import SqlError
from ..relational.interface import evaluate
from ..sql.gate import check_query
from ..sql.pattern_tree import position_error
from .columns import flat

_FORBIDDEN = (exp.Query, exp.Window, exp.Placeholder, exp.Parameter)


def function_name(node: exp.Expression) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    names = node.sql_names() if isinstance(node, exp.Func) else []
    return str(names[0]).lower() if names else type(node).__name__.lower()


def check_functions(node: exp.Expression, sql: str, at: int) -> None:
    """Refuse subqueries, window functions and unknown functions; SqlError with position."""
    for part in node.walk():
        where = part.meta.get("start", at)
        if isinstance(part, _FORBIDDEN):
            kind = {"Subquery": "a subquery", "Select": "a subquery", "Window": "a window function"}
            what = kind.get(type(part).__name__, type(part).__name__.lower())
            raise position_error(f"{what} cannot be used in DEFINE or MEASURES", sql, where)
    check_query(node, sql)


def evaluate_all(
    expressions: Sequence[str], rows: pa.Table
) -> tuple[list[pa.Array], list[npt.NDArray[np.bool_] | None], str]:
    """Values in every row (null: failed), masks of failing rows or None, and the first error."""
    listed = ", ".join(f"({sql}) AS c{i}" for i, sql in enumerate(expressions))
    try:
        result = evaluate(f"SELECT {listed} FROM rows", rows=rows)
        return [flat(column) for column in result.columns], [None] * len(expressions), ""
    except SqlError as error:
        why = error.reason
    # row by row; a struct distinguishes a NULL value from a failure
    packed = [f"struct_pack(v := ({sql}))" for sql in expressions]
    try:
        listed = ", ".join(f"TRY({sql}) AS c{i}" for i, sql in enumerate(packed))
        columns = evaluate(f"SELECT {listed} FROM rows", rows=rows).columns
    except SqlError:  # TRY takes no volatile functions
        columns = [_tried(f"SELECT {sql} AS c FROM rows", rows) for sql in packed]
    arrays: list[pa.Array] = []
    failed: list[npt.NDArray[np.bool_] | None] = []
    for column in columns:
        array = flat(column)
        missing = np.array(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
        arrays.append(pc.struct_field(array, [0]))
        failed.append(missing if missing.any() else None)
    return arrays, failed, why


def _tried(query: str, rows: pa.Table) -> pa.ChunkedArray:
    """A column of a query over rows, null where it fails: the failing rows are found by halving."""
    type_ = evaluate(query, rows=rows.slice(0, 0)).schema.field(0).type

    def chunks(part: pa.Table) -> list[pa.Array]:
        try:
            return list(evaluate(query, rows=part).column(0).chunks)
        except SqlError:
            if part.num_rows == 1:
                return [pa.nulls(1, type_)]
        half = part.num_rows // 2
        return [*chunks(part.slice(0, half)), *chunks(part.slice(half))]

    return pa.chunked_array(chunks(rows), type_)


def column_types(expressions: Sequence[str], schema: pa.Schema) -> list[pa.DataType]:
    """Types of expressions over a schema, from a query over no rows."""
    if not expressions:
        return []
    listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(expressions))
    table = evaluate(f"SELECT {listed} FROM rows", rows=schema.empty_table())
    return [field.type for field in table.schema]
