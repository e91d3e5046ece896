"""Exceptions, connections and cursors of PEP 249, over a store or a server.

In this package its exceptions replace every ``ChronicleError``, their ``__cause__``.  Type objects
and constructors are those of PEP 249; ``description[0][1] == NUMBER`` compares a SQL type's text,
such as ``"DECIMAL(10,2)"``.  Every statement is committed when it returns.  A new statement,
``close``, or dropping the cursor ends the previous query.  ``rowcount`` is -1 for queries.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import errors
from ..core.closing import Closing
from ..query.contract.result import changed_events
from ..query.sql.first_word import as_columns, only_reads

if TYPE_CHECKING:
    from ..api.database import Database
    from ..client import RemoteDatabase
    from ..query.contract.result import Result

__all__ = [
    "BINARY", "DATETIME", "NUMBER", "ROWID", "STRING", "Binary", "Connection", "Cursor",
    "DataError", "DatabaseError", "Date", "DateFromTicks", "Error", "IntegrityError",
    "InterfaceError", "InternalError", "NotSupportedError", "OperationalError", "ProgrammingError",
    "Time", "TimeFromTicks", "Timestamp", "TimestampFromTicks", "Warning", "connect",
]  # fmt: skip


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


def class_of(error: errors.ChronicleError) -> type[Error]:
    kind: type[Error] = globals()[errors.outside(error).dbapi]
    return kind


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


Parameters = Sequence[Any] | Mapping[str, Any] | None
Row = tuple[Any, ...]


class Cursor(Closing):
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.rowcount = -1
        self.description: list[tuple[Any, ...]] | None = None
        self.lastrowid = None
        self._result: Result | None = None
        self._rows: Iterator[Row] | None = None
        self._closed = False

    # ------------------------------------------------------------------- statements

    def execute(self, operation: str, parameters: Parameters = None) -> Cursor:
        """Run a statement; a sequence is for ``?`` and ``$1``, a mapping for ``$name``."""
        self._reset()
        connection = self.connection
        with translated():
            result = connection.database.sql(
                operation, _values(parameters), connection.timeout, read_only=connection.read_only
            )
        self._take(result, only_reads(operation))
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Parameters]) -> Cursor:
        """Run a statement once for each set of parameters.

        ``INSERT INTO s (a, b) VALUES (?, ?)`` is one atomic append of all rows; other statements
        run one by one.
        """
        sets = list(seq_of_parameters)
        self._check()
        if only_reads(operation):
            raise ProgrammingError("executemany is for statements that change something")
        with translated():
            written = as_columns(operation, sets)
        if written is not None:
            return self.execute(*written)
        total = 0
        for parameters in sets:
            self.execute(operation, parameters)
            total = -1 if self.rowcount < 0 or total < 0 else total + self.rowcount
        self.rowcount = total
        return self

    def _take(self, result: Result, reads: bool) -> None:
        from ..query.sql.sql_types import sql_type

        if reads:
            self._result, self._rows = result, result.rows()
            self.description = [
                (field.name, sql_type(field.type), None, None, None, None, field.nullable)
                for field in result.schema
            ]
            return
        self.connection.changed = True
        with translated():
            self.rowcount = changed_events(result)

    # ------------------------------------------------------------------------- rows

    def fetchone(self) -> Row | None:
        """The next row; None at the end."""
        rows = self._fetching()
        with translated():
            return next(rows, None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next ``size`` rows, by default ``arraysize``."""
        rows = self._fetching()
        with translated():
            return list(islice(rows, self.arraysize if size is None else size))

    def fetchall(self) -> list[Row]:
        """All remaining rows."""
        rows = self._fetching()
        with translated():
            return list(rows)

    def __iter__(self) -> Cursor:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def _fetching(self) -> Iterator[Row]:
        self._check()
        if self._rows is None:
            raise ProgrammingError("there are no rows to fetch: execute a query first")
        return self._rows

    # -------------------------------------------------------------------- life cycle

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Does nothing: values carry their types."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing."""

    def close(self) -> None:
        """End the query; ``description`` and ``rowcount`` stay."""
        self._closed = True
        self._end()

    def _reset(self) -> None:
        self._check()
        self._end()
        self.description, self.rowcount = None, -1

    def _end(self) -> None:
        result, self._result, self._rows = self._result, None, None
        if result is not None:
            result.close()

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor was closed")
        self.connection.check_open()


def _values(parameters: Parameters) -> Any:
    if parameters is None or isinstance(parameters, (Mapping, str, bytes)):
        return parameters or None
    return list(parameters) or None


_guard = threading.Lock()
_open: dict[tuple[Path, str, int], Shared] = {}


@dataclass
class Shared:
    key: tuple[Path, str, int]
    database: Database
    users: int = 1

    def release(self) -> None:
        with _guard:
            self.users -= 1
            if self.users == 0:
                _open.pop(self.key, None)
                self.database.close()


def share(path: str | os.PathLike[str], mode: str) -> Shared:
    """The database of a directory; a forked child opens its own."""
    import chronicle

    key = (Path(path).resolve(), mode, os.getpid())
    with _guard:
        shared = _open.get(key)
        if shared is not None:
            shared.users += 1
            return shared
        shared = _open[key] = Shared(key, chronicle.open(path, mode, frames=False))
        return shared


def connect(
    database: str | os.PathLike[str],
    *,
    token: str | None = None,
    mode: str = "rw",
    timeout: float | None = None,
) -> Connection:
    """Connect to a store's directory or to a server, ``http://host:port``.

    Parameters
    ----------
    token : str, optional
        For a server.
    mode : {"rw", "r"}
        ``r`` refuses statements that change something; a store is then read beside its writer.
    timeout : float, optional
        Seconds after which a statement, its rows included, ends.

    Returns
    -------
    Connection
        Connections of one process to the same directory share its database.

    Raises
    ------
    OperationalError, ProgrammingError
    """
    import chronicle

    with translated():
        if mode not in ("rw", "r"):
            raise chronicle.InvalidArgument(f"mode is 'rw' or 'r', found {mode!r}")
        if str(database).lower().startswith(("http://", "https://")):
            remote = chronicle.connect(str(database), token)
            return Connection(remote, None, timeout, mode == "r")
        if token is not None:
            raise chronicle.InvalidArgument("a token is for a server: http://host:port")
        shared = share(database, mode)
        return Connection(shared.database, shared, timeout, mode == "r")


class Connection(Closing):
    """Made by ``connect``; a context manager.

    ``changed`` says whether a statement has changed something since the last ``commit``.
    """

    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError
    autocommit = True

    def __init__(
        self,
        database: Database | RemoteDatabase,
        shared: Shared | None,
        timeout: float | None,
        read_only: bool,
    ) -> None:
        self._database: Any = database
        self._shared = shared
        self.timeout = timeout
        self.read_only = read_only
        self.changed = False
        self._closed = False

    @property
    def database(self) -> Any:
        self.check_open()
        return self._database

    def cursor(self) -> Cursor:
        self.check_open()
        return Cursor(self)

    def execute(self, operation: str, parameters: Parameters = None) -> Cursor:
        """Run a statement with a new cursor."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Does nothing: changes are committed already."""
        self.check_open()
        self.changed = False

    def rollback(self) -> None:
        """Does nothing without changes; otherwise raises ``NotSupportedError``."""
        self.check_open()
        if self.changed:
            raise NotSupportedError(
                "every statement is a commit of its own and cannot be rolled back; call commit() "
                "after changes"
            )

    def close(self) -> None:
        """Release the store or the server's connections; may be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._shared is None:
            self._database.close()
        else:
            self._shared.release()

    def check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection was closed")
