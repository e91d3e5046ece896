"""The relational executor: DuckDB, locked down, reading nothing but our relations.

Purpose
    :class:`Executor` is the relational executor in this process: one in-memory connection for a
    database, each query on a cursor of its own, its batches streamed.  What a worker does
    (:mod:`.sql_worker`) is the same; they share :mod:`.connection`.

Guarantee
    The connection reaches no file (but its own spill directory), no network, no extension and no
    Python variable, and its configuration is locked.  Sessions run in UTC.  Results are pulled
    batch by batch: a streaming query holds a few batches, a sort or a hash table spills at the
    memory limit.  An error of a scan is re-raised as it was; errors of DuckDB become
    :class:`SqlError` or :class:`ResourceLimit`; a time limit, a cancellation and Ctrl-C come out
    as such.

Limits
    DuckDB's memory limit is not a hard cap (see :mod:`.gate`).
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ..errors import StoreClosed
from ..ownership import leave_to_parent
from .cancellation import QueryControl, interruptibly
from .connection import connect, failure_of, hugeints_of, lock
from .relational import Answer, translated
from .scans import BATCH_ROWS, Failure, FailureBox, Scanned

__all__ = ["Executor"]


class Executor:
    """DuckDB for one database; safe to use from many threads.

    Parameters
    ----------
    memory_bytes : int
    threads : int
    """

    def __init__(self, memory_bytes: int, threads: int) -> None:
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._connection: Any = None
        self._directory: Path | None = None
        self._guard = threading.Lock()
        self._closed = False
        self._constants: dict[str, pa.Scalar | None] = {}
        leave_to_parent(self)

    def _cursor(self) -> Any:
        with self._guard:
            if self._closed:
                raise StoreClosed("the database was closed; open it again")
            if self._connection is None:
                self._connection = self._connect()
            return self._connection.cursor()

    def _connect(self) -> Any:
        self._directory = Path(tempfile.mkdtemp(prefix="chronicle-spill-"))
        connection = connect(temp_directory=str(self._directory))
        lock(connection, self._memory_bytes, self._threads, str(self._directory))
        return connection

    def warm(self, count: int) -> None:
        """Connect."""
        self._cursor().close()

    def close(self) -> None:
        """Close the connection and remove what was spilled."""
        with self._guard:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(duckdb.Error):
                connection.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def constant(self, sql: str, values: Mapping[str, Any] | None = None) -> pa.Scalar | None:
        """The value of an expression without columns; None when it has none.

        Expressions without parameters are remembered.
        """
        if not values and sql in self._constants:
            return self._constants[sql]
        cursor = self._cursor()
        try:
            table = cursor.sql(f"SELECT {sql}", params=values or None).to_arrow_table()
            found = table.column(0)[0]
        except duckdb.Error:
            found = None
        finally:
            cursor.close()
        if not values:
            if len(self._constants) > 1000:
                self._constants.clear()
            self._constants[sql] = found
        return found

    def columns(
        self, sql: str, relations: Mapping[str, Scanned], values: Mapping[str, Any], text: str
    ) -> list[tuple[str, str]]:
        """Names and DuckDB types of a query's columns, without running it."""
        cursor = self._cursor()
        try:
            for name, dataset in relations.items():
                cursor.register(name, dataset)
            relation = cursor.sql(sql, params=values or None)
            return list(zip(relation.columns, map(str, relation.types), strict=True))
        except duckdb.Error as error:
            raise self._meant(error, text, QueryControl(), FailureBox()) from None
        finally:
            cursor.close()

    def explain(
        self,
        sql: str,
        relations: Mapping[str, Scanned],
        values: Mapping[str, Any],
        text: str,
        control: QueryControl,
        failures: FailureBox,
        analyze: bool,
    ) -> str:
        """DuckDB's own plan of a query as JSON; with ``analyze`` the query runs."""
        cursor = self._cursor()
        options = "ANALYZE, FORMAT json" if analyze else "FORMAT json"
        try:
            for name, dataset in relations.items():
                cursor.register(name, dataset)

            def explain() -> str:
                rows = cursor.execute(f"EXPLAIN ({options}) {sql}", values or None).fetchall()
                return str(rows[0][-1])

            with control.interrupting(cursor.interrupt):
                return interruptibly(explain, cursor.interrupt)
        except BaseException as error:
            raise self._meant(error, text, control, failures) from None
        finally:
            cursor.close()

    def run(
        self,
        sql: str,
        relations: Mapping[str, Scanned],
        values: Mapping[str, Any],
        text: str,
        control: QueryControl,
        failures: FailureBox,
    ) -> Answer:
        """Start a query; see :class:`.relational.RelationalExecutor`."""
        cursor = self._cursor()
        try:
            for name, dataset in relations.items():
                cursor.register(name, dataset)
            with control.interrupting(cursor.interrupt):
                relation = cursor.sql(sql, params=values or None)
                hugeints = hugeints_of(relation)
                reader = interruptibly(
                    lambda: relation.to_arrow_reader(BATCH_ROWS), cursor.interrupt
                )
        except BaseException as error:
            with suppress(duckdb.Error):
                cursor.close()
            raise self._meant(error, text, control, failures) from None

        closed = threading.Event()

        def close() -> None:
            if not closed.is_set():
                closed.set()
                with suppress(Exception):
                    reader.close()
                with suppress(duckdb.Error):
                    cursor.close()

        def take() -> pa.RecordBatch | None:
            try:
                return reader.read_next_batch()
            except StopIteration:
                return None

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                while True:
                    control.check()
                    with control.interrupting(cursor.interrupt):
                        try:
                            batch = interruptibly(take, cursor.interrupt)
                        except BaseException as error:
                            raise self._meant(error, text, control, failures) from None
                    if failures.error is not None:
                        raise failures.error
                    if batch is None:
                        break
                    yield batch
            finally:
                close()

        return Answer(reader.schema, hugeints, batches(), close)

    def _meant(
        self, error: BaseException, text: str, control: QueryControl, failures: FailureBox
    ) -> BaseException:
        """What an error that came out of a call into DuckDB means to the user."""
        failure = failure_of(error)
        if failure is not None and failure.kind == "broken":
            with self._guard:  # DuckDB refuses everything from here on: the next query connects
                self._connection = None
        if failures.error is not None:
            return failures.error
        if isinstance(error, KeyboardInterrupt) or (
            isinstance(error, RuntimeError) and "interrupted" in str(error).lower()
        ):
            return KeyboardInterrupt()
        if failure is None and not control.stopped:
            return error
        return translated(failure or Failure("interrupted", ""), text, control, failures)
