"""The relational executor: DuckDB, locked down, reading nothing but our relations.

Purpose
    Joins, grouping, sorting and expressions are DuckDB's work.  :class:`Executor` owns one
    in-memory connection for a database, runs each query on a cursor of its own and streams its
    batches.

Guarantee
    The connection reaches no file (but its own spill directory), no network, no extension and no
    Python variable; its catalogue cannot be changed and its configuration is locked; every text
    passes :mod:`.door` first.  An instance that DuckDB gives up is replaced at once, and its error
    says nothing of the inside.  Sessions run in UTC.  Results are pulled
    batch by batch: a streaming query holds a few batches, a sort or a hash table spills at the
    memory limit.  An error of a scan is re-raised as it was; errors of DuckDB become
    :class:`SqlError` or :class:`ResourceLimit`; a time limit, a cancellation and Ctrl-C come out
    as such.

Limits
    DuckDB's memory limit is not a hard cap (see :mod:`..sql.gate`).
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ...errors import QueryCancelled, ResourceLimit, SqlError, StoreClosed
from ...ownership import Owner, leave_to_parent
from ..contract.cancellation import QueryControl, interruptibly
from ..sql.dialect import error_at
from .door import admit, is_broken, open_empty
from .error_position import error_offset
from .scans import FailureBox, Scanned

__all__ = ["Answer", "Executor"]

BATCH_ROWS = 65_536
TEMPORARY_BYTES_MAX = "8GB"
CONSTANTS_MAX = 1000
CONSTANT_LENGTH_MAX = 1000


@dataclass
class Answer:
    """A running query.

    Attributes
    ----------
    schema : pyarrow.Schema
        As DuckDB names and types the columns.
    hugeints : tuple of int
        Positions of the columns whose type in DuckDB is HUGEINT or UHUGEINT.
    batches : iterator of RecordBatch
    close : callable
        Ends the query; may be called more than once.
    """

    schema: pa.Schema
    hugeints: tuple[int, ...]
    batches: Iterator[pa.RecordBatch]
    close: Callable[[], None]


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
        # a read-only system may have no place for temporary files: nothing is spilled then
        with suppress(OSError):
            self._directory = Path(tempfile.mkdtemp(prefix="chronicle-spill-"))
        return open_empty(
            self._directory,
            memory_limit=f"{self._memory_bytes}B",
            max_temp_directory_size=TEMPORARY_BYTES_MAX,
            threads=self._threads,
        )

    def _replace(self, error: BaseException) -> None:
        """Forget an instance that DuckDB has given up; the next query starts another one."""
        if not is_broken(error):
            return
        with self._guard:
            broken, self._connection = self._connection, None
            directory, self._directory = self._directory, None
        if broken is not None:
            try:  # a query that met the end of the instance before this one may have replaced it
                broken.cursor().execute("SELECT 1")
            except duckdb.Error:
                if directory is not None:
                    shutil.rmtree(directory, ignore_errors=True)
                return
            with self._guard:
                if self._connection is None and not self._closed:
                    self._connection, self._directory = broken, directory

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
            admit(cursor, f"SELECT {sql}")
            table = cursor.sql(f"SELECT {sql}", params=values or None).to_arrow_table()
            found = table.column(0)[0]
        except SqlError:
            found = None
        except duckdb.Error as error:
            self._replace(error)
            found = None
        finally:
            cursor.close()
        if not values:
            if len(self._constants) > CONSTANTS_MAX:
                self._constants.clear()
            if len(sql) <= CONSTANT_LENGTH_MAX:
                self._constants[sql] = found
        return found

    def columns(
        self, sql: str, relations: Mapping[str, Scanned], values: Mapping[str, Any], text: str
    ) -> list[tuple[str, str]]:
        """Names and DuckDB types of a query's columns, without running it."""
        cursor = self._cursor()
        try:
            admit(cursor, sql, relations)
            for name, dataset in relations.items():
                cursor.register(name, dataset)
            relation = cursor.sql(sql, params=values or None)
            return list(zip(relation.columns, map(str, relation.types), strict=True))
        except duckdb.Error as error:
            self._replace(error)
            raise _sql_error(error, text) from None
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
            admit(cursor, sql, relations)
            for name, dataset in relations.items():
                cursor.register(name, dataset)

            def explain() -> str:
                rows = cursor.execute(f"EXPLAIN ({options}) {sql}", values or None).fetchall()
                return str(rows[0][-1])

            with control.interrupting(cursor.interrupt):
                return interruptibly(explain, cursor.interrupt)
        except BaseException as error:
            self._replace(error)
            raise _translated(error, text, control, failures) from None
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
        """Start a query.

        Parameters
        ----------
        sql : str
            Written by :func:`..sql.dialect.to_text` from a tree that passed the gate.
        relations : mapping of str to ScanDataset
        values : mapping
            Parameters that occur in ``sql``.
        text : str
            What the user wrote, for positions in messages.
        control : QueryControl
        failures : FailureBox
            Shared with the datasets.

        Returns
        -------
        Answer
        """
        cursor = self._cursor()
        try:
            admit(cursor, sql, relations)
            for name, dataset in relations.items():
                cursor.register(name, dataset)
            with control.interrupting(cursor.interrupt):
                relation = cursor.sql(sql, params=values or None)
                hugeints = tuple(
                    position
                    for position, type_ in enumerate(relation.types)
                    if str(type_) in ("HUGEINT", "UHUGEINT")
                )
                reader = interruptibly(
                    lambda: relation.to_arrow_reader(BATCH_ROWS), cursor.interrupt
                )
        except BaseException as error:
            with suppress(duckdb.Error):
                cursor.close()
            self._replace(error)
            raise _translated(error, text, control, failures) from None

        running = _Running(cursor, relation, reader)

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
                            self._replace(error)
                            raise _translated(error, text, control, failures) from None
                    if failures.error is not None:
                        raise failures.error
                    if batch is None:
                        break
                    yield batch
            finally:
                running.close()

        return Answer(reader.schema, hugeints, batches(), running.close)


class _Running(Owner):
    """What DuckDB holds for a query that has begun; a forked child does not touch it."""

    def __init__(self, cursor: Any, relation: Any, reader: Any) -> None:
        super().__init__("this query")
        self._held = [cursor, relation, reader]
        leave_to_parent(self)

    def close(self) -> None:
        """End the query; doing so again does nothing."""
        if not self.here:
            return
        held, self._held = self._held, []
        if held:
            cursor, _, reader = held
            with suppress(Exception):
                reader.close()
            with suppress(duckdb.Error):
                cursor.close()


def _translated(
    error: BaseException, text: str, control: QueryControl, failures: FailureBox
) -> BaseException:
    """What an error that came out of DuckDB means to the user."""
    if failures.error is not None:
        return failures.error
    message = str(error)
    if isinstance(error, KeyboardInterrupt) or (
        isinstance(error, RuntimeError) and "interrupted" in message.lower()
    ):
        return KeyboardInterrupt()
    interrupted = isinstance(error, duckdb.InterruptException) or "INTERRUPT Error" in message
    if interrupted or control.stopped:
        try:
            control.check()
        except (QueryCancelled, Exception) as ended:  # the reason, as the caller knows it
            return ended
        if interrupted:
            return QueryCancelled("the query was interrupted")
    if isinstance(error, duckdb.OutOfMemoryException) or message.startswith("Out of Memory Error"):
        return ResourceLimit(
            "the query needs more memory than it may take; narrow its time range, aggregate "
            f"earlier, or raise query_memory_bytes ({_first_line(message)})"
        )
    if is_broken(error):
        return SqlError(
            "this query made the relational executor fail, or ran beside one that did; the "
            "executor was started anew: run it again, and write it another way if it fails again"
        )
    if isinstance(error, (duckdb.Error, OSError)):
        return _sql_error(error, text)
    return error


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0] if message.strip() else ""


def _sql_error(error: BaseException, text: str) -> SqlError:
    message = str(error).split("\nLINE ")[0].strip()
    message = re.sub(r"^[A-Z][A-Za-z ]*(?:Error|Exception): ?", "", message)
    message = re.sub(r"\bchronicle_+\d+\b", "the stream", message)
    message = re.split(r"\s*Candidate functions:", " ".join(message.split()))[0]
    return error_at(text, error_offset(str(error), text), message or "the query cannot be run")
