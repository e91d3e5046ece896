"""The relational executor in a worker: reads its inputs from the owner of the store.

Purpose
    The entry module of a worker (:mod:`chronicle.isolation.nursery`).  It gets jobs from
    :mod:`.isolated`: a text, its parameters, the schemas of its inputs.  DuckDB asks an input for a
    scan with the columns and the filter that it could push down; that becomes a request to the
    owner, which runs the store's own operators and answers with batches.

Layout
    ::

        owner                                                     worker
        {"job": "run", sql, values, inputs}                ->     DuckDB plans, scans begin
                          {"scan": id, relation, columns,
                     <-    needed, filter text}
        {"scanned": id, applied} + batch, batch, ... end   ->     [queue] -> DuckDB
                     <-   {"next": id}, for every batch taken
                     <-   {"schema", "hugeints"}, {"batch"} ..., {"end"}

Guarantee
    A filter that was pushed is applied exactly: by the owner where it understood all of its text
    (``applied``), else here, on what the owner has narrowed as far as it could.  No more batches
    are on their way than were asked for, so a LIMIT stops the producers.

Limits
    Nothing here is believed by the owner.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.acero
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ...isolation.batches import describe, pack, unpack
from ...isolation.channel import Channel, ChannelClosed
from .door import admit, failure_of, hugeints_of, lock, open_unlocked
from .scans import BATCH_ROWS

if TYPE_CHECKING:
    from ...isolation.confinement import Confinement

__all__ = ["prepare", "serve"]

AHEAD_MAX = 4
"""Batches of one scan that may be on their way."""

_instance: Any = None


def prepare() -> None:
    """Open the instance, in the nursery: with one thread, which a fork survives."""
    global _instance
    _instance = open_unlocked(threads=1, async_threads=0)
    events = pa.table({"t": pa.array([1, 2], pa.timestamp("us")), "x": [1.5, 2.5], "s": ["a", "b"]})
    sql = 'SELECT "s", count(*), avg("x") FROM "warm" WHERE "x" > $x GROUP BY "s" ORDER BY "s"'
    cursor = _instance.cursor()
    admit(cursor, sql, ("warm",))
    cursor.register("warm", events)
    for batch in cursor.sql(sql, params={"x": 1}).to_arrow_reader(BATCH_ROWS):
        pack(batch)
    cursor.close()


def serve(channel: Channel, spec: Mapping[str, Any], confined: Confinement) -> None:
    """Do jobs until the owner hangs up."""
    lock(
        _instance,
        directory=spec["directory"],
        memory_bytes=spec["query_memory_bytes"],
        threads=spec["threads"],
    )
    _Worker(channel).run(asdict(confined))


_Message = tuple[dict[str, Any], pa.Buffer | None]


class _Worker:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._jobs: queue.SimpleQueue[tuple[dict[str, Any], pa.Buffer | None] | None] = (
            queue.SimpleQueue()
        )
        self._scans: dict[int, queue.SimpleQueue[Any]] = {}
        self._ids = count(1)
        self._scan_error: BaseException | None = None
        self._kinds: dict[str, Callable[[Any, dict[str, Any]], None]] = {
            "run": self._run,
            "columns": self._columns,
            "explain": self._explain,
        }

    def run(self, confined: dict[str, Any]) -> None:
        self._channel.send({"ready": confined})
        threading.Thread(target=self._listen, daemon=True).start()
        while (arrived := self._jobs.get()) is not None:
            job, data = arrived
            try:
                cursor = _instance.cursor()
                try:
                    admit(cursor, job["sql"], job["inputs"])
                    for name, schema in job["inputs"].items():
                        rows = partial(self._scan, name, schema)
                        if name in job["given"]:
                            rows = partial(_rows_of, schema, job["given"][name], data)
                        cursor.register(name, _Input(schema, rows))
                    self._kinds[job["job"]](cursor, job)
                finally:
                    cursor.close()
                self._scans.clear()
                self._channel.send({"end": True})
            except ChannelClosed:
                return
            except BaseException as error:
                cause, self._scan_error = self._scan_error or error, None
                failure = failure_of(cause) or ("sql", f"{type(cause).__name__}: {cause}")
                self._scans.clear()
                self._channel.send({"error": [failure[0], failure[1][:4000]]})

    def _listen(self) -> None:
        """Take what comes in, always, so that the owner never waits to send what was asked for."""
        try:
            while True:
                message, data = self._channel.receive()
                if "job" in message:
                    self._jobs.put((message, data))
                else:
                    scan = self._scans.get(message["scanned"])
                    if scan is not None:
                        scan.put((message, data))
        except ChannelClosed:
            for scan in list(self._scans.values()):
                scan.put(None)
            self._jobs.put(None)

    # ------------------------------------------------------------------------------------- jobs

    def _run(self, cursor: Any, job: dict[str, Any]) -> None:
        relation = cursor.sql(job["sql"], params=job["values"] or None)
        reader = relation.to_arrow_reader(BATCH_ROWS)
        head = {"schema": describe(reader.schema), "hugeints": hugeints_of(relation)}
        for batch in reader:
            node, pieces = pack(batch)
            self._channel.send({**head, "batch": node}, pieces)
            head = {}
        if head:
            self._channel.send(head)

    def _columns(self, cursor: Any, job: dict[str, Any]) -> None:
        relation = cursor.sql(job["sql"], params=job["values"] or None)
        types = map(str, relation.types)
        self._channel.send({"columns": list(zip(relation.columns, types, strict=True))})

    def _explain(self, cursor: Any, job: dict[str, Any]) -> None:
        options = "ANALYZE, FORMAT json" if job["analyze"] else "FORMAT json"
        rows = cursor.execute(f"EXPLAIN ({options}) {job['sql']}", job["values"] or None).fetchall()
        self._channel.send({"plan": str(rows[0][-1])})

    # ------------------------------------------------------------------------------------ scans

    def _scan(
        self, name: str, schema: pa.Schema, columns: list[str], filter: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of an input; an error here is kept as it was, not as DuckDB tells it."""
        try:
            yield from self._rows(name, schema, columns, filter)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._scan_error = error
            raise

    def _rows(
        self, name: str, schema: pa.Schema, columns: list[str], filter: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        scan = next(self._ids)
        incoming = self._scans[scan] = queue.SimpleQueue()
        text = None if filter is None else str(filter)
        needed = columns
        if text is not None:
            needed = columns + [n for n in schema.names if n not in columns and n in text]
        request = {"scan": scan, "relation": name, "columns": columns, "needed": needed}
        self._channel.send({**request, "filter": text})
        whole = pa.schema([schema.field(n) for n in needed])
        wanted = pa.schema([schema.field(n) for n in columns])
        asked, taken = 1, 0
        while (arrived := incoming.get()) is not None:
            message, data = arrived
            if "batch" not in message:
                return
            taken += 1
            ahead = min(AHEAD_MAX, taken + 1)
            if (more := taken + ahead - asked) > 0:
                asked += more
                self._channel.send({"next": scan, "count": more})
            if message["applied"]:
                yield unpack(wanted, message["batch"], data, trusted=True)
                continue
            batch = unpack(whole, message["batch"], data, trusted=True).filter(filter)
            if batch.num_rows:
                yield batch.select(columns)


def _rows_of(
    schema: pa.Schema,
    node: Any,
    data: pa.Buffer | None,
    columns: list[str],
    filter: pc.Expression | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of an input that came with the text: in one batch, so that one thread reads it."""
    if node is not None:
        batch = unpack(schema, node, data, trusted=True)
        yield (batch if filter is None else batch.filter(filter)).select(columns)


class _Input(ds.InMemoryDataset):  # type: ignore[misc]
    """A dataset that asks for its rows when it is scanned; see :mod:`.datasets` for why it is one.

    ``rows`` is called with the columns and the filter.
    """

    def __init__(self, schema: pa.Schema, rows: Callable[..., Iterator[pa.RecordBatch]]) -> None:
        super().__init__(schema.empty_table())
        self._rows = rows

    def scanner(
        self, columns: list[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> _Scanner:
        """Begin a scan; called by DuckDB once for each time the query reads the input."""
        names = list(self.schema.names if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return _Scanner(schema, lambda: self._rows(names, filter))


class _Scanner:
    """The one method of a dataset scanner that DuckDB calls."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())
