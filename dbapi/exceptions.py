"""The exceptions of PEP 249, which replace every ``ChronicleError``, their ``__cause__``, in this
package.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .. import errors

__all__ = [
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Warning",
    "translated",
]


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
