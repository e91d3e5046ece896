"""Connections to a store or a server.  Every statement is committed when it returns.

A store has one writer, which the connections of a process share.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import exceptions
from .cursor import Cursor, Parameters
from .exceptions import InterfaceError, NotSupportedError, translated

if TYPE_CHECKING:
    from ..api.database import Database
    from ..client import RemoteDatabase

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
        found = _open.get(key)
        if found is not None:
            found.users += 1
            return found
        found = _open[key] = Shared(key, chronicle.open(path, mode))
        return found


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


class Connection:
    """Made by ``connect``; a context manager.

    ``changed`` says whether a statement has changed something since the last ``commit``.
    """

    Warning = exceptions.Warning
    Error = exceptions.Error
    InterfaceError = exceptions.InterfaceError
    DatabaseError = exceptions.DatabaseError
    DataError = exceptions.DataError
    OperationalError = exceptions.OperationalError
    IntegrityError = exceptions.IntegrityError
    InternalError = exceptions.InternalError
    ProgrammingError = exceptions.ProgrammingError
    NotSupportedError = exceptions.NotSupportedError
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

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
