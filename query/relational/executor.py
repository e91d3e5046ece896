"""The in-process executor: DuckDB, locked down (``admission``), over our relations alone.

Batches are pulled, so a streaming query holds a few, and sorts and hash tables spill at the memory
limit, which is not a hard cap (``sql.gate``).  A broken instance is replaced at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

from ...core.ownership import Owner, leave_to_parent
from ...core.scratch import ScratchDirectory
from ...errors import StoreClosed
from ..contract.cancellation import QueryControl, interruptibly
from .admission import (
    admit,
    check_types,
    check_wide,
    failure_of,
    hugeints_of,
    is_ctrl_c,
    jsons_of,
    open_empty,
    wide_of,
)
from .interface import Answer, RelationalExecutor, RelationalQuery, evaluate_here, translated
from .scans import BATCH_ROWS, Failure


class Executor(RelationalExecutor):
    """DuckDB for one database; thread-safe."""

    def __init__(self, memory_bytes: int, threads: int) -> None:
        super().__init__()
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._connection: Any = None
        self._spill: ScratchDirectory | None = None
        self._guard = threading.Lock()
        self._closed = False
        leave_to_parent(self)

    def _cursor(self) -> Any:
        with self._guard:
            if self._closed:
                raise StoreClosed("the database was closed; open it again")
            if self._connection is None:
                self._connection = self._connect()
            return self._connection.cursor()

    def _connect(self) -> Any:
        # a read-only system may have no temporary directory: nothing is spilled then
        with suppress(OSError):
            self._spill = ScratchDirectory("spill")
        return open_empty(
            None if self._spill is None else self._spill.path,
            memory_bytes=self._memory_bytes,
            threads=self._threads,
        )

    def _replace(self) -> None:
        with self._guard:
            if self._connection is None:
                return
            try:  # another query may have replaced the instance already
                self._connection.cursor().execute("SELECT 1")
            except duckdb.Error:
                self._connection = None
                if self._spill is not None:
                    self._spill.close()
                self._spill = None

    def warm(self, count: int) -> None:
        self._cursor().close()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(duckdb.Error):
                connection.close()
        if self._spill is not None:
            self._spill.close()

    def evaluate(self, sql: str, tables: Mapping[str, pa.Table], control: QueryControl) -> pa.Table:
        return evaluate_here(sql, tables, control)

    def columns(self, query: RelationalQuery) -> list[tuple[str, str]]:
        with self._admitted(query) as cursor, closing(cursor):
            relation = cursor.sql(query.sql, params=query.values or None)
            return list(zip(relation.columns, map(str, relation.types), strict=True))

    def explain(self, query: RelationalQuery, analyze: bool) -> str:
        options = "ANALYZE, FORMAT json" if analyze else "FORMAT json"
        sql = f"EXPLAIN ({options}) {query.sql}"

        def explain() -> str:
            return str(cursor.execute(sql, query.values or None).fetchall()[0][-1])

        with (
            self._admitted(query) as cursor,
            closing(cursor),
            query.control.interrupting(cursor.interrupt),
        ):
            return interruptibly(explain, cursor.interrupt)

    @contextmanager
    def _admitted(self, query: RelationalQuery) -> Iterator[Any]:
        cursor = self._cursor()
        try:
            admit(cursor, query.sql, query.relations)
            for name, dataset in query.relations.items():
                cursor.register(name, dataset)
            yield cursor
        except BaseException as error:
            with suppress(duckdb.Error):
                cursor.close()
            raise self._translated(error, query) from None

    def run(self, query: RelationalQuery) -> Answer:
        control, failures = query.control, query.failures
        with self._admitted(query) as cursor, control.interrupting(cursor.interrupt):
            relation = cursor.sql(query.sql, params=query.values or None)
            check_types(relation)
            hugeints, jsons = hugeints_of(relation), jsons_of(relation)
            wide = wide_of(relation)
            reader = interruptibly(lambda: relation.to_arrow_reader(BATCH_ROWS), cursor.interrupt)
        running = _Running(cursor, relation, reader)

        def take() -> pa.RecordBatch | None:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return None
            check_wide(relation, wide, batch)
            return batch

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                while True:
                    control.check()
                    with control.interrupting(cursor.interrupt):
                        try:
                            batch = interruptibly(take, cursor.interrupt)
                        except BaseException as error:
                            raise self._translated(error, query) from None
                    if failures.error is not None:
                        raise failures.error
                    if batch is None:
                        break
                    yield batch
            finally:
                running.close()

        return Answer(reader.schema, hugeints, batches(), running.close, jsons)

    def _translated(self, error: BaseException, query: RelationalQuery) -> BaseException:
        failure = failure_of(error)
        if failure is not None and failure.kind == "broken":
            self._replace()
        if query.failures.error is not None:
            return query.failures.error
        if is_ctrl_c(error):
            return KeyboardInterrupt()
        if failure is None:
            stopped = isinstance(error, (pa.ArrowException, RuntimeError)) and query.control.stopped
            return translated(Failure("interrupted", ""), query) if stopped else error
        return translated(failure, query)


class _Running(Owner):
    """What DuckDB holds for a running query; a forked child must not touch it."""

    def __init__(self, cursor: Any, relation: Any, reader: Any) -> None:
        super().__init__("this query")
        self._held = [cursor, relation, reader]
        leave_to_parent(self)

    def close(self) -> None:
        if not self.here:
            return
        held, self._held = self._held, []
        if held:
            cursor, _, reader = held
            with suppress(Exception):
                reader.close()
            with suppress(duckdb.Error):
                cursor.close()
