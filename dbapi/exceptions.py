"""The exceptions of PEP 249, which replace every ``ChronicleError``, their ``__cause__``, in this
package.

Type objects and constructors are those of PEP 249; ``description[0][1] == NUMBER`` compares a SQL
type's text, such as ``"DECIMAL(10,2)"``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator

from .. import errors


class Warning(Exception):
    """Required by PEP 249; never raised."""


class Error(Exception):
    """Root of the others."""


class InterfaceError(Error):
    """Wrong use of the module."""


class DatabaseError(Error):
    """The database refuses or fails."""


class DataError(DatabaseError):
    """A value does not fit."""


class OperationalError(DatabaseError):
    """The database cannot be reached, is busy, ran out of something, or took too long."""


class IntegrityError(DatabaseError):
    """Required by PEP 249; there are no such constraints here."""


class InternalError(DatabaseError):
    """Stored data is damaged."""


class ProgrammingError(DatabaseError):
    """A statement is wrong, names something that does not exist, or is forbidden."""


class NotSupportedError(DatabaseError):
    """Transactions and the like."""


_BY_CLASS: dict[type[errors.ChronicleError], type[Error]] = {
    errors.ChronicleError: DatabaseError,
    errors.InvalidArgument: ProgrammingError,
    errors.SqlError: ProgrammingError,
    errors.StreamNotFound: ProgrammingError,
    errors.StreamExists: ProgrammingError,
    errors.StreamOwned: ProgrammingError,
    errors.AttributeNotFound: ProgrammingError,
    errors.IndexNotFound: ProgrammingError,
    errors.IndexExists: ProgrammingError,
    errors.Forbidden: ProgrammingError,
    errors.SchemaMismatch: DataError,
    errors.InvalidData: DataError,
    errors.IngestError: DataError,
    errors.UnsupportedType: NotSupportedError,
    errors.NotAStore: OperationalError,
    errors.UnsupportedFormat: OperationalError,
    errors.StoreLocked: OperationalError,
    errors.ReadOnlyStore: OperationalError,
    errors.SnapshotExpired: OperationalError,
    errors.StorageFull: OperationalError,
    errors.StorageFailed: OperationalError,
    errors.QueryTimeout: OperationalError,
    errors.QueryCancelled: OperationalError,
    errors.ResourceLimit: OperationalError,
    errors.WorkerLost: OperationalError,
    errors.JobFailed: OperationalError,
    errors.Unauthorized: OperationalError,
    errors.ConnectionFailed: OperationalError,
    errors.StoreClosed: InterfaceError,
    errors.MissingDependency: InterfaceError,
    errors.CorruptStore: InternalError,
    errors.CorruptBlock: InternalError,
}


def class_of(error: errors.ChronicleError) -> type[Error]:
    """The PEP 249 class of an error, by its nearest listed ancestor."""
    return next(_BY_CLASS[kind] for kind in type(error).__mro__ if kind in _BY_CLASS)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except errors.ChronicleError as error:
        raise class_of(error)(str(error)) from error


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
