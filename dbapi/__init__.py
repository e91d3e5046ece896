"""``chronicle.dbapi``: the Python database API 2.0 (PEP 249) of stores and servers.

Purpose
    What speaks the DB-API speaks to Chronicle: pandas' ``read_sql``, SQLAlchemy (:mod:`.dialect`,
    ``chronicle://``), notebooks and reporting tools.  :func:`connect` takes the directory of a
    store or the address of a server.

Guarantee
    Parameters are ``?`` with a sequence; a mapping for ``$name`` is taken as well.  Threads may
    share the module and connections, not cursors.  Rows come as they are fetched.

Limits
    Every statement is a commit of its own: there are no transactions, and ``rollback`` raises
    :class:`NotSupportedError` once something was changed.

Reading order: ``exceptions``, ``types`` (of columns and values), ``sharing`` (a store that several
connections use), ``cursor``, ``connection``, ``dialect`` (for SQLAlchemy).
"""

from __future__ import annotations

from .connection import Connection, connect
from .cursor import Cursor
from .exceptions import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from .types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel = "2.0"
threadsafety = 2
paramstyle = "qmark"

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
