"""A connection to DuckDB that reaches nothing but what is registered with it.

Purpose
    What the executor of this process and that of a worker have in common: how a connection is made
    and locked, and what its errors are.

Guarantee
    After :func:`lock` it reads no file but in its own spill directory, no network, no extension, no
    Python variable, and no statement changes that.  Sessions run in UTC.
"""

from __future__ import annotations

from typing import Any

import duckdb

from .scans import SPILL_BYTES, Failure

__all__ = ["connect", "failure_of", "hugeints_of", "lock", "only_select"]


def connect(**settings: Any) -> Any:
    """A connection without extensions and Python variables; :func:`lock` it before use."""
    connection = duckdb.connect(
        config={
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "max_temp_directory_size": f"{SPILL_BYTES}B",
            **settings,
        }
    )
    connection.execute("SET TimeZone = 'UTC'")
    # relations have no known size, so that an ASOF join would always be taken for a tiny one
    connection.execute("SET asof_loop_join_threshold = 0")
    return connection


def lock(connection: Any, memory_bytes: int, threads: int, directory: str) -> None:
    """Give a connection its limits and its only directory, for good."""
    connection.execute(f"SET threads = {threads}")
    connection.execute(f"SET memory_limit = '{memory_bytes}B'")
    quoted = directory.replace("'", "''")
    connection.execute(f"SET temp_directory = '{quoted}'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def hugeints_of(relation: Any) -> tuple[int, ...]:
    """Positions of the columns of a type that Arrow does not know."""
    return tuple(
        position
        for position, type_ in enumerate(relation.types)
        if str(type_) in ("HUGEINT", "UHUGEINT")
    )


def failure_of(error: BaseException) -> Failure | None:
    """An error as DuckDB meant it; None when it is none of DuckDB's."""
    message = str(error)
    if isinstance(error, duckdb.InterruptException) or "INTERRUPT Error" in message:
        return Failure("interrupted", message)
    if isinstance(error, (duckdb.OutOfMemoryException, MemoryError)) or message.startswith(
        ("Out of Memory Error", "std::bad_alloc")
    ):
        return Failure("memory", message)
    if isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
        return Failure("broken", message)
    if isinstance(error, (duckdb.Error, OSError)):
        return Failure("sql", message)
    return None


def only_select(connection: Any, sql: str) -> None:
    """Refuse a text that DuckDB reads as anything but one query.

    The planner writes one SELECT; should a text ever come out of it that DuckDB's own parser reads
    as more, it ends here.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise duckdb.ParserException("expected one query and nothing else")
