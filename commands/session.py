"""Runs statements one after another against one store or server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SqlError
from ..query.sql.first_word import only_reads
from .connection import Connection
from .files import read_file
from .sql_script import pointed_at

if TYPE_CHECKING:
    import pyarrow as pa

    from ..api.database import Database
    from ..client import RemoteDatabase

__all__ = ["Session"]


class Session:
    """``timeout`` is in seconds per statement; ``files`` are those that statements on a store may
    name.
    """

    def __init__(
        self,
        connection: Connection,
        timeout: float | None = None,
        files: Mapping[str, Path] | None = None,
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._database: Database | None = None
        self._remote: RemoteDatabase | None = None
        self._mode = ""
        self._frames = {name: read_file(path) for name, path in (files or {}).items()}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._remote is not None:
            self._remote.close()

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def database(self, mode: str) -> Database:
        """The store, reopened for writing when a statement writes."""
        if self._database is None or (mode == "rw" and self._mode == "r"):
            self._close()
            self._database = self._connection.database(mode)
            self._mode = mode
            for name, frame in self._frames.items():
                self._database.register(name, frame)
        return self._database

    def release(self) -> None:
        if self._mode == "rw":
            self._close()

    @contextlib.contextmanager
    def run(
        self, statement: str, params: dict[str, Any] | None = None
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """Run a statement: schema and batches.  ``SqlError`` notes show the place."""
        try:
            with self._answer(statement, params) as answer:
                yield answer
        except SqlError as error:
            for note in pointed_at(statement, error.line, error.column):
                error.add_note(note)
            raise

    @contextlib.contextmanager
    def _answer(
        self, statement: str, params: dict[str, Any] | None
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        database: Database | RemoteDatabase
        if self._connection.url is not None:
            database = self._remote = self._remote or self._connection.remote()
        else:
            database = self.database("r" if only_reads(statement) else "rw")
        result = database.sql(statement, params or None, self._timeout)
        try:
            yield result.schema, iter(result.batches())
        finally:
            result.close()
