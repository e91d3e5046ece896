"""Scalar expressions over Arrow columns, evaluated by DuckDB.

Purpose
    Conditions and measures are SQL: CASE, LIKE, casts, string and time functions, three-valued
    logic, overflow errors.  DuckDB evaluates all of that over whole Arrow batches; nothing here
    loops over rows.

Guarantee
    Only what :mod:`..sql.gate` lets through passes :func:`check_functions`; what is evaluated goes
    through :mod:`..relational.evaluation`.  Row order is kept.

Limits
    :func:`evaluate` raises an error in an expression (overflow, a failed cast) for any row of the
    input; :func:`evaluate_all` says in which rows there is one.  Integer division by zero with
    ``//`` and ``%`` is such an error; ``/`` is floating-point division, as in DuckDB.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ...errors import SqlError
from ..relational.evaluation import evaluate
from ..sql.gate import AGGREGATES, check_query
from ..sql.pattern_parser import position_error
from ..sql.rendering import identifier as quote
from .columns import flat

__all__ = [
    "AGGREGATES",
    "check_functions",
    "column_types",
    "evaluate",
    "evaluate_all",
    "function_name",
    "quote",
]

_FORBIDDEN = (exp.Query, exp.Window, exp.Placeholder, exp.Parameter)


def function_name(node: exp.Expression) -> str:
    """Lower-case name of a function node."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    names = node.sql_names() if isinstance(node, exp.Func) else []
    return str(names[0]).lower() if names else type(node).__name__.lower()


def check_functions(node: exp.Expression, sql: str, at: int) -> None:
    """Refuse what a condition or measure must not hold: subqueries, windows, unknown functions.

    Raises
    ------
    SqlError
        Naming the function, with its position where the parser kept it.
    """
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
    """Values of expressions in every row, nulls where one cannot be computed.

    Returns
    -------
    list of pyarrow.Array
    list of bool[rows] or None
        Per expression, the rows in which it cannot be computed; None: it can in all of them.
    str
        The first error; empty when there is none.
    """
    listed = ", ".join(f"({sql}) AS c{i}" for i, sql in enumerate(expressions))
    try:
        found = evaluate(f"SELECT {listed} FROM rows", rows=rows)
        return [flat(column) for column in found.columns], [None] * len(expressions), ""
    except SqlError as error:
        why = error.reason
    # row by row where it must; a struct tells a value that is NULL from one that is not there
    listed = ", ".join(f"TRY(struct_pack(v := ({s}))) AS c{i}" for i, s in enumerate(expressions))
    found = evaluate(f"SELECT {listed} FROM rows", rows=rows)
    arrays: list[pa.Array] = []
    failed: list[npt.NDArray[np.bool_] | None] = []
    for column in found.columns:
        array = flat(column)
        missing = np.array(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
        arrays.append(pc.struct_field(array, [0]))
        failed.append(missing if missing.any() else None)
    return arrays, failed, why


def column_types(expressions: Sequence[str], schema: pa.Schema) -> list[pa.DataType]:
    """Types of expressions over a schema, found by running them over no rows."""
    if not expressions:
        return []
    listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(expressions))
    table = evaluate(f"SELECT {listed} FROM rows", rows=schema.empty_table())
    return [field.type for field in table.schema]
