"""Times in text by strptime patterns, by DuckDB's parser, as Arrow's lacks fractions and zones."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core.ownership import LOADING, ModuleLock, leave_to_parent
from ..errors import InvalidArgument

__all__ = ["likely", "open_patterns", "strptime"]

LOOKED_AT = 200
YEAR_MIN = 1000
"""%Y reads "24" as the year 24."""
_DATES = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y.%m.%d"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%Y-%m-%d", "%Y/%m/%d"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_PATTERNS = (
    *(f"{date}{clock}" for date in _DATES for clock in _CLOCKS),
    "%d/%b/%Y:%H:%M:%S %z",  # web servers
)
_DATE_LIKE = (
    r"^\s*(\d{4}[./-]\d{1,2}[./-]\d{1,2}"
    r"|\d{1,2}[./-](\d{1,2}|[A-Za-z]{3})[./-](\d{4}|\d{2}))($|[\sT:])"
)

_connection: Any = None
_connecting = ModuleLock()


def open_patterns(**settings: Any) -> Any:
    """The process's DuckDB instance; ``settings`` apply when it is first opened."""
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


def likely(values: pa.Array) -> list[str]:
    """The common patterns that read most of a sample, and more than half of it."""
    sample = values.drop_null().slice(0, LOOKED_AT)
    dates = pc.sum(pc.match_substring_regex(sample, _DATE_LIKE), min_count=0).as_py()
    if 2 * dates <= len(sample):
        return []
    read = {pattern: _count(strptime(sample, pattern)) for pattern in _PATTERNS}
    most = max(read.values())
    return [pattern for pattern in _PATTERNS if read[pattern] == most and 2 * most > len(sample)]


def _count(times: pa.Array) -> int:
    return int(pc.sum(pc.greater_equal(pc.year(times), YEAR_MIN), min_count=0).as_py())
