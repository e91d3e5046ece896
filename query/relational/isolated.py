"""The relational executor in worker processes (``sql_worker``), so foreign SQL never runs here.

The owner serves the workers' requests for input from the store's operators, in the thread that
takes the rows.  Rows, types, errors and positions are those of the in-process executor.  A worker
sees only events of the relations that its query names.  Its messages are validated
(``chronicle.isolation.batches``); invalid ones, its death, a time limit and a cancellation end the
worker and the query.  Backpressure: nothing is produced unless the caller takes rows and DuckDB
wants input.  A query within another's operator has its own worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from typing import Any, cast

import pyarrow as pa

from ...isolation.batches import pack, schema_of, unpack
from ...isolation.channel import ChannelClosed, Garbage
from ...isolation.pool import Pool, PoolSpec, WorkerLease, open_pool
from ..contract.cancellation import QueryControl
from .datasets import ScanDataset
from .interface import Answer, RelationalExecutor, RelationalQuery, translated
from .scans import SPILL_BYTES, Failure

CREDIT_MAX = 64
SMALL_ROWS = 4096
PIECE_BYTES = 3 << 20
"""Larger batches are sent in pieces of this size, which fit the processor's cache."""

FAILURE_KINDS = ("sql", "memory", "interrupted", "broken")


def pool_of_queries(memory_bytes: int, threads: int, leases_max: int = 500) -> Pool:
    """Workers that share ``memory_bytes``; one spills beyond half of it, is killed beyond it."""
    return open_pool(
        PoolSpec(
            entry="chronicle.query.relational.sql_worker",
            memory_bytes=memory_bytes,
            shared_bytes=memory_bytes * 3 // 2,
            spill_bytes=SPILL_BYTES,
            options=(("query_memory_bytes", memory_bytes // 2), ("threads", threads)),
            leases_max=leases_max,
        )
    )


class IsolatedExecutor(RelationalExecutor):
    """DuckDB for one database, in workers of ``pool``, which is closed with it."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool
        self._closed = threading.Event()

    def warm(self, count: int) -> None:
        self.pool.warm(count)

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self.pool.close()

    def evaluate(self, sql: str, tables: Mapping[str, pa.Table], control: QueryControl) -> pa.Table:
        whole = {name: table.combine_chunks() for name, table in tables.items()}
        answer = self._run(RelationalQuery(sql, control=control), whole)
        return pa.Table.from_batches(answer.batches, answer.schema)

    def columns(self, query: RelationalQuery) -> list[tuple[str, str]]:
        with closing(self._job("columns", query, {})) as job:
            message, _ = job.answer()
            columns = job.believed(lambda: [(str(n), str(t)) for n, t in message["columns"]])
        return cast("list[tuple[str, str]]", columns)

    def explain(self, query: RelationalQuery, analyze: bool) -> str:
        with closing(self._job("explain", query, {}, analyze=analyze)) as job:
            message, _ = job.answer()
            plan = job.believed(lambda: str(message["plan"]))
        return cast("str", plan)

    def run(self, query: RelationalQuery) -> Answer:
        return self._run(query, {})

    def _run(self, query: RelationalQuery, tables: Mapping[str, pa.Table]) -> Answer:
        """Start a query; ``tables`` are sent with it, in one chunk each."""
        job = self._job("run", query, tables)
        try:
            head, data = job.answer()
            schema = job.believed(lambda: schema_of(head["schema"]))
            hugeints = job.believed(lambda: _positions(head["hugeints"], schema, _is_decimal))
            jsons = job.believed(lambda: _positions(head["jsons"], schema, pa.types.is_string))
        except BaseException:
            job.close()
            raise
        control = query.control

        def batches() -> Iterator[pa.RecordBatch]:
            with closing(job):
                message, buffer = head, data
                while True:
                    ended = "end" in message
                    if "batch" in message:
                        node = message["batch"]
                        batch = job.believed(lambda: unpack(schema, node, buffer))  # noqa: B023
                        if ended:
                            job.close()
                        control.check()
                        yield batch
                    if ended:
                        return
                    control.check()
                    message, buffer = job.answer()

        return Answer(schema, hugeints, batches(), job.close, jsons)

    def _job(
        self, kind: str, query: RelationalQuery, tables: Mapping[str, pa.Table], **more: Any
    ) -> _WorkerQuery:
        job = _WorkerQuery(self.pool, query)
        try:
            job.begin(kind, tables, **more)
        except BaseException:
            job.close()
            raise
        return job


def _is_decimal(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_))


def _positions(
    listed: Any, schema: pa.Schema, fits: Callable[[pa.DataType], bool]
) -> tuple[int, ...]:
    positions = tuple(listed)
    for at in positions:
        if type(at) is not int or not 0 <= at < len(schema):
            raise ValueError
        if not fits(schema.field(at).type):
            raise ValueError
    return positions


class _Scan:
    def __init__(self, batches: Iterator[pa.RecordBatch], applied: bool) -> None:
        self.batches = _in_pieces(batches)
        self.applied = applied
        self.credit = 1
        self.ahead: pa.RecordBatch | None = None


def _in_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with closing(cast("Any", batches)):
        for batch in batches:
            size = batch.nbytes
            rows = batch.num_rows * PIECE_BYTES // max(size, 1) // 64 * 64
            if size <= PIECE_BYTES * 3 // 2 or not rows:
                yield batch
                continue
            for begin in range(0, batch.num_rows, rows):
                yield batch.slice(begin, rows)


class _WorkerQuery:
    def __init__(self, pool: Pool, query: RelationalQuery) -> None:
        self._query = query
        self._relations = cast("Mapping[str, ScanDataset]", query.relations)
        self._scans: dict[int, _Scan] = {}
        self._closing = threading.Lock()
        self._done = False
        self._lease: WorkerLease = pool.lease(query.control.left)
        self._limits = ExitStack()
        self._limits.enter_context(query.control.interrupting(self._lease.kill, timed=False))

    def begin(self, kind: str, tables: Mapping[str, pa.Table], **more: Any) -> None:
        inputs = {name: dataset.schema for name, dataset in self._relations.items()}
        pieces: list[memoryview] = []
        nodes: dict[str, Any] = {}
        for name, table in tables.items():
            inputs[name] = table.schema
            nodes[name] = None
            if table.num_rows:
                (batch,) = table.to_batches()
                begin = sum(-(-len(piece) // 64) * 64 for piece in pieces)
                nodes[name], more_pieces = pack(batch, begin)
                pieces += more_pieces
        job = {
            "job": kind, "sql": self._query.sql, "values": dict(self._query.values),
            "inputs": inputs, "tables": nodes, **more,
        }  # fmt: skip
        try:
            self._lease.channel.send(job, pieces)
        except ChannelClosed as error:
            lost = self._lease.lost(error)
            self._query.control.check()
            raise lost from None

    def answer(self) -> tuple[dict[str, Any], pa.Buffer | None]:
        """The worker's next message (the last has "end"); serves requests for input meanwhile."""
        try:
            message, data = self._attend()
        except (ChannelClosed, Garbage) as error:
            lost = self._lease.lost(error)
            if self._query.failures.error is not None:
                raise self._query.failures.error from None
            self._query.control.check()
            raise lost from None
        if "end" in message:
            self._done = True
        elif "error" in message:
            kind, reason = self.believed(lambda: _failure(message["error"]))
            self._done = kind in ("sql", "interrupted")
            self.close()
            raise translated(Failure(kind, reason), self._query) from None
        return message, data

    def believed(self, read: Any) -> Any:
        """Parse a message; an invalid one ends the worker."""
        try:
            return read()
        except (Garbage, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            lost = self._lease.lost(Garbage(f"the worker's answer is none ({error})"))
            raise lost from None

    def _attend(self) -> tuple[dict[str, Any], pa.Buffer | None]:
        channel = self._lease.channel
        while True:
            if not channel.waiting():
                ready = next((item for item in self._scans.items() if item[1].credit > 0), None)
                if ready is not None:
                    self._produce(*ready)
                    continue
            message, data = channel.receive()
            if not isinstance(message, dict):
                raise Garbage("the worker's answer is no message")
            if "scan" in message:
                self._open(message)
            elif "next" in message:
                scan = self._scans.get(_whole(message["next"]))
                if scan is not None:
                    scan.credit = min(CREDIT_MAX, scan.credit + _whole(message.get("count")))
            else:
                return message, data

    def _open(self, message: dict[str, Any]) -> None:
        dataset = self._relations.get(str(message.get("relation")))
        number, text = _whole(message.get("scan")), message.get("filter")
        present = () if dataset is None else dataset.schema.names
        if dataset is None or number in self._scans or not isinstance(text, str | None):
            raise Garbage("the worker asks for what it was not given")
        columns, needed = message.get("columns"), message.get("needed")
        if not isinstance(columns, list) or not isinstance(needed, list):
            raise Garbage("the worker asks for no columns")
        if any(name not in present for name in (*columns, *needed)):
            raise Garbage("the worker asks for columns that are not there")
        applied, batches = dataset.narrowed(columns, needed, text)
        self._scans[number] = _Scan(batches, applied)

    def _produce(self, number: int, scan: _Scan) -> None:
        batch, scan.ahead = scan.ahead, None
        if batch is None:
            batch = next(scan.batches, None)
        channel = self._lease.channel
        if batch is None:
            del self._scans[number]
            channel.send({"scanned": number})
            return
        node, pieces = pack(batch)
        message = {"scanned": number, "applied": scan.applied, "batch": node}
        if batch.num_rows < SMALL_ROWS:  # probably the last batch: marking it saves a message
            scan.ahead = next(scan.batches, None)
            if scan.ahead is None:
                del self._scans[number]
                message["last"] = True
        scan.credit -= 1
        channel.send(message, pieces)

    def close(self) -> None:
        with self._closing:
            scans, self._scans = self._scans, {}
            self._limits.close()
        for scan in scans.values():
            with suppress(ValueError):  # running in another thread, which ends with the worker
                cast("Any", scan.batches).close()
        if self._done:
            self._lease.give_back()
        else:
            self._lease.discard()


def _failure(error: Any) -> tuple[str, str]:
    kind, message = error
    if kind not in FAILURE_KINDS or not isinstance(message, str):
        raise ValueError
    return kind, message


def _whole(value: Any) -> int:
    if _integer(value) < 0:
        raise Garbage("the worker's answer has a number below zero")
    return cast("int", value)


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise Garbage("the worker's answer has no number where one belongs")
    return value
