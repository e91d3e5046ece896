"""Type objects and constructors of PEP 249; ``description[0][1] == NUMBER`` compares a SQL type's
text, such as ``"DECIMAL(10,2)"``.
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
    """The local date of a time in seconds since the epoch."""
    return dt.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802
    return dt.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802
    return dt.datetime.fromtimestamp(ticks)
