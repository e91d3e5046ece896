"""Statements run one after another against one store or server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .connection import Connection
from .sql_script import only_reads

if TYPE_CHECKING:
    import pyarrow as pa

    from ..database import Database

__all__ = ["Session"]


class Session:
    """Runs statements one after another against one store or server; a context manager.

    Parameters
    ----------
    timeout : float, optional
        Seconds for each statement.
    """

    def __init__(self, connection: Connection, timeout: float | None = None) -> None:
        self._connection = connection
        self._timeout = timeout
        self._database: Database | None = None
        self._mode = ""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def database(self, mode: str) -> Database:
        """The store, opened for reading unless a statement writes."""
        if self._database is None or (mode == "rw" and self._mode == "r"):
            self._close()
            self._database = self._connection.database(mode)
            self._mode = mode
        return self._database

    def release(self) -> None:
        """Give up the writer's lock between statements of a prompt."""
        if self._mode == "rw":
            self._close()

    @contextlib.contextmanager
    def run(
        self, statement: str, params: dict[str, Any] | None = None
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """Run a statement; gives the schema and the batches of its answer."""
        if self._connection.url is not None:
            body: dict[str, Any] = {"sql": statement}
            if params:
                body["params"] = params
            if self._timeout is not None:
                body["timeout_ms"] = max(1, int(self._timeout * 1000))
            reader = self._connection.transport().batches("POST", "/v1/query", body=body)
            yield reader.schema, iter(reader)
            return
        database = self.database("r" if only_reads(statement) else "rw")
        result = database.sql(statement, params or None, self._timeout)
        try:
            yield result.schema, iter(result.batches())
        finally:
            result.close()
