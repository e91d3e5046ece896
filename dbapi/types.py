"""Types of columns as PEP 249 compares them, and what makes values.

Layout
    ``description`` has the SQL type of each column as a text, ``"BIGINT"`` or ``"DECIMAL(10,2)"``,
    which equals one of the type objects: ``description[0][1] == NUMBER``.
"""

from __future__ import annotations

import datetime as dt

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Date",
    "DateFromTicks",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
]


class TypeObject:
    """A family of SQL types; equal to the name of each."""

    def __init__(self, name: str, *members: str) -> None:
        self._name = name
        self._members = frozenset(members)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.partition("(")[0] in self._members
        return self is other

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"chronicle.dbapi.{self._name}"


STRING = TypeObject("STRING", "VARCHAR")
BINARY = TypeObject("BINARY", "BLOB")
NUMBER = TypeObject(
    "NUMBER", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT",
    "UINTEGER", "UBIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL",
)  # fmt: skip
DATETIME = TypeObject(
    "DATETIME", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS",
    "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE", "INTERVAL",
)  # fmt: skip
ROWID = TypeObject("ROWID")

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802 - PEP 249 names it
    """The date of a moment, in seconds since the epoch, in the local zone."""
    return dt.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802
    """The time of day of a moment."""
    return dt.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802
    """A moment."""
    return dt.datetime.fromtimestamp(ticks)
