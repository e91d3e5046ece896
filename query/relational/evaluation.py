"""Expressions over Arrow columns, evaluated by DuckDB outside of any query.

The engine sets the executor for the thread (``evaluated_by``); an isolated one runs the text in a
worker, under the statement's limits.  Otherwise a private single-threaded instance runs it
(``admission``), which is replaced when broken; there the statement's time limit does not interrupt
it.  Row order is kept.  Answers without rows, that is types, are cached.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import pyarrow as pa

from ...core.ownership import LOADING, ModuleLock, leave_to_parent
from ..contract.cancellation import Held, QueryControl
from .interface import RelationalExecutor, RelationalQuery, translated

TYPES_MAX = 1000
TEXT_LENGTH_MAX = 4000


class _Evaluator(NamedTuple):
    executor: RelationalExecutor
    control: QueryControl


_evaluator: ContextVar[_Evaluator | None] = ContextVar("evaluator", default=None)
_guard = ModuleLock()
_instance: Any = None
_types: dict[Any, pa.Table] = {}


def evaluate(query: str, **tables: pa.Table) -> pa.Table:
    """Run one SELECT, made of checked expressions, over Arrow tables; raises SqlError."""
    typed = len(query) <= TEXT_LENGTH_MAX and not any(table.num_rows for table in tables.values())
    key = (query, *((name, table.schema) for name, table in tables.items())) if typed else None
    if key is not None and (known := _types.get(key)) is not None:
        return known
    evaluator = _evaluator.get()
    if evaluator is None:
        found = evaluate_here(query, tables)
    else:
        found = evaluator.executor.evaluate(query, tables, evaluator.control)
    if key is not None and not found.num_rows:
        if len(_types) >= TYPES_MAX:
            _types.clear()
        _types[key] = found
    return found


def evaluated_by(executor: RelationalExecutor, control: QueryControl) -> Held:
    """Make an executor answer ``evaluate`` in this thread and context."""
    return Held(_evaluator, _Evaluator(executor, control))


# ----------------------------------------------------------------------------- in this process


def evaluate_here(query: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    with LOADING:
        from .admission import admit, failure_of, is_ctrl_c

    cursor = _cursor()
    try:
        admit(cursor, query, tables)
        for name, table in tables.items():
            cursor.register(name, table)
        return cursor.sql(query).to_arrow_table()
    except Exception as error:
        if is_ctrl_c(error):
            raise KeyboardInterrupt from None
        failure = failure_of(error)
        if failure is None:
            raise
        if failure.kind == "broken":
            _replace()
        raise translated(failure, RelationalQuery("")) from None
    finally:
        cursor.close()


def _cursor() -> Any:
    global _instance
    with LOADING:
        from .admission import open_empty

    with _guard:
        if _instance is None:
            _instance = open_empty()
            leave_to_parent(_instance)
        return _instance.cursor()


@atexit.register  # kernels outlive the interpreter and would keep the instance alive
def _replace() -> None:
    global _instance
    with _guard:
        _instance = None
