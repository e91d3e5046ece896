"""The exceptions of PEP 249, and which of them each error of Chronicle is.

Guarantee
    Every :class:`~chronicle.errors.ChronicleError` leaves this package as one of these, with its
    own message, and with the error itself as ``__cause__``.
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
    """Something to know of; never raised."""


class Error(Exception):
    """Root of the others."""


class InterfaceError(Error):
    """The module was used in a way it cannot be."""


class DatabaseError(Error):
    """The database refuses or fails."""


class DataError(DatabaseError):
    """A value does not fit."""


class OperationalError(DatabaseError):
    """The database cannot be reached, is busy, ran out of something, or took too long."""


class IntegrityError(DatabaseError):
    """A constraint is broken; there are none here."""


class InternalError(DatabaseError):
    """What is stored is damaged."""


class ProgrammingError(DatabaseError):
    """A statement is wrong, or names what there is not, or may not be run by this token."""


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
    """What an error is here: by its class, or by its nearest listed ancestor."""
    return next(_BY_CLASS[kind] for kind in type(error).__mro__ if kind in _BY_CLASS)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Have errors of Chronicle leave as those of PEP 249."""
    try:
        yield
    except errors.ChronicleError as error:
        raise class_of(error)(str(error)) from error
