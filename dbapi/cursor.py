"""Cursors.  A new statement, ``close``, or dropping the cursor ends the previous query.
``rowcount`` is -1 for queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..query.contract.result import changed_events
from ..query.sql.first_word import as_columns, only_reads
from .exceptions import InterfaceError, ProgrammingError, translated

if TYPE_CHECKING:
    from ..query.contract.result import Result
    from .connection import Connection


Parameters = Sequence[Any] | Mapping[str, Any] | None
Row = tuple[Any, ...]


class Cursor:
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

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
