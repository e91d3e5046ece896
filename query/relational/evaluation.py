"""Expressions over Arrow columns, evaluated by DuckDB beside any query.

Purpose
    Conditions and measures of patterns, the types of derived columns of windows and the columns of
    subqueries are asked of DuckDB while a statement is planned or a pattern runs.
    :func:`evaluate` is the way to do that.

Guarantee
    One private instance for the process, of one thread, as :mod:`.door` makes it, and the same
    check of every text.  Row order is kept.  An instance that DuckDB has given up is replaced.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...errors import SqlError
from ...ownership import LOADING, ModuleLock, leave_to_parent

__all__ = ["evaluate"]

_guard = ModuleLock()
_instance: Any = None


def _cursor() -> Any:
    global _instance
    with LOADING:
        from .door import open_empty

    with _guard:
        if _instance is None:
            _instance = open_empty(threads=1)
            leave_to_parent(_instance)
        return _instance.cursor()


def _replace() -> None:
    global _instance
    with _guard:
        _instance = None


def evaluate(query: str, **tables: pa.Table) -> pa.Table:
    """Run one query over Arrow tables.

    Parameters
    ----------
    query : str
        A SELECT over the given tables, made by this package from checked expressions.
    **tables : pyarrow.Table

    Raises
    ------
    SqlError
        When an expression has no types that fit, or fails on a value.
    """
    with LOADING:
        import duckdb

        from .door import admit, is_broken

    cursor = _cursor()
    try:
        admit(cursor, query, tables)
        for name, table in tables.items():
            cursor.register(name, table)
        return cursor.sql(query).to_arrow_table()
    except duckdb.Error as error:
        if is_broken(error):
            _replace()
            raise SqlError("an expression made the executor fail; it was started anew") from None
        text = str(error).split("\n\nLINE")[0].split("\nLINE")[0].strip()
        raise SqlError(text.replace("\n", " ")) from None
    finally:
        cursor.close()
