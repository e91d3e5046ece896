"""Times in text by a strptime pattern, whole columns at once.

DuckDB's parser is used: it knows fractions, offsets and names of time zones, which Arrow's does
not.  One instance of it lives as long as the process; it opens no file and loads no extension.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidArgument
from ..ownership import LOADING, ModuleLock, leave_to_parent

__all__ = ["open_patterns", "strptime"]

_connection: Any = None
_connecting = ModuleLock()


def open_patterns(**settings: Any) -> Any:
    """The instance of DuckDB that reads times by patterns, with settings of its first opening."""
    global _connection
    with LOADING:
        import duckdb

    with _connecting:
        if _connection is None:
            own = {
                "python_enable_replacements": "false",
                "autoinstall_known_extensions": "false",
            }
            _connection = duckdb.connect(config={**own, **settings})
            leave_to_parent(_connection)
        return _connection


def strptime(values: pa.Array, pattern: str) -> pa.Array:
    """Text by a strptime pattern, as a timestamp array; null where it does not fit.

    The pattern travels as a literal, because a computed one is not type-checked.
    """
    cursor = open_patterns().cursor()
    import duckdb

    try:
        cursor.execute("SET TimeZone = 'UTC'")
        cursor.register("given", pa.table({"text": pc.utf8_trim_whitespace(values)}))
        literal = pattern.replace("'", "''")
        table = cursor.sql(
            f"SELECT try_strptime(text, '{literal}') AS t FROM given"
        ).to_arrow_table()
    except duckdb.Error as error:
        reason = re.sub(r"\s+", " ", str(error)).removeprefix("Invalid Input Error: ")
        raise InvalidArgument(f"the time format {pattern!r} cannot be used: {reason}") from None
    finally:
        cursor.close()
    column = table.column("t").combine_chunks()
    return column.cast(pa.timestamp(column.type.unit))
