"""The relational executor in a worker, serving ``isolated``.

Entry of ``chronicle.isolation.fork_server``.  DuckDB's scans of inputs, with columns and filter,
become requests to the owner of the store::

    owner                                                     worker
    {"job": "run", sql, values, inputs, tables}        ->     DuckDB plans
                      {"scan": id, relation, columns,
                 <-    needed, filter text}
    {"scanned": id, applied} + batch, ..., "last" too  ->     DuckDB
                 <-   {"next": id}
                 <-   {"schema", "hugeints", "jsons"}, {"batch"} ..., "end" too

A batch follows its message.  To save a round trip the last batch is marked.  A pushed filter is
applied exactly, by the owner if it understood all of it (``applied``), else here.  No more batches
are in flight than requested, so a LIMIT stops the producers.  The owner trusts nothing sent from
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.acero
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ...core.expression_text import expression_text
from ...isolation.batches import describe, pack, unpack
from ...isolation.channel import Channel, ChannelClosed, Inbox
from .admission import (
    admit,
    check_types,
    check_wide,
    failure_of,
    hugeints_of,
    jsons_of,
    lock,
    open_unlocked,
    wide_of,
)
from .scans import BATCH_ROWS, Scanner

if TYPE_CHECKING:
    from ...isolation.confinement import Confinement


AHEAD_MAX = 6
"""Most batches of one scan in flight."""

_instance: Any = None


def prepare() -> None:
    """Open the instance before the fork, with one thread, so that it survives."""
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
    lock(
        _instance,
        directory=spec["directory"],
        memory_bytes=spec["query_memory_bytes"],
        threads=spec["threads"],
    )
    _Worker(channel).run(asdict(confined))


_Answer = tuple[dict[str, Any], Sequence[Any]]


class _Worker:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._inbox = Inbox(channel)
        self._ids = count(1)
        self._scan_error: BaseException | None = None
        self._kinds: dict[str, Callable[[Any, dict[str, Any]], _Answer]] = {
            "run": self._run,
            "columns": self._columns,
            "explain": self._explain,
        }

    def run(self, confined: dict[str, Any]) -> None:
        with suppress(ChannelClosed):
            self._channel.send({"ready": confined})
            while True:
                job, data = self._inbox.take()
                self._inbox.send(*self._answer(job, data))

    def _answer(self, job: dict[str, Any], data: pa.Buffer | None) -> _Answer:
        cursor = _instance.cursor()
        try:
            return self._done(cursor, job, data)
        except ChannelClosed:
            raise
        except BaseException as error:
            cause, self._scan_error = self._scan_error or error, None
            failure = failure_of(cause) or ("sql", f"{type(cause).__name__}: {cause}")
            return {"error": [failure[0], failure[1][:4000]]}, ()
        finally:
            with suppress(duckdb.Error):
                cursor.close()
            self._inbox.forget()

    def _done(self, cursor: Any, job: dict[str, Any], data: pa.Buffer | None) -> _Answer:
        admit(cursor, job["sql"], job["inputs"])
        for name, schema in job["inputs"].items():
            rows = partial(self._scan, name, schema)
            if name in job["tables"]:
                rows = partial(_rows_of, schema, job["tables"][name], data)
            cursor.register(name, _Input(schema, rows))
        message, pieces = self._kinds[job["job"]](cursor, job)
        return {**message, "end": True}, pieces

    # ------------------------------------------------------------------------------------- jobs

    def _run(self, cursor: Any, job: dict[str, Any]) -> _Answer:
        relation = cursor.sql(job["sql"], params=job["values"] or None)
        check_types(relation)
        reader = relation.to_arrow_reader(BATCH_ROWS)
        hugeints, wide = hugeints_of(relation), wide_of(relation)
        message = {
            "schema": describe(reader.schema),
            "hugeints": hugeints,
            "jsons": jsons_of(relation),
        }
        pieces: Sequence[Any] = ()
        for batch in reader:
            check_wide(relation, wide, batch)
            if "batch" in message:
                self._inbox.send(message, pieces)
                message = {}
            message["batch"], pieces = pack(batch)
            if batch.num_rows >= BATCH_ROWS:  # else it is the last one
                self._inbox.send(message, pieces)
                message, pieces = {}, ()
        return message, pieces

    def _columns(self, cursor: Any, job: dict[str, Any]) -> _Answer:
        relation = cursor.sql(job["sql"], params=job["values"] or None)
        types = map(str, relation.types)
        return {"columns": list(zip(relation.columns, types, strict=True))}, ()

    def _explain(self, cursor: Any, job: dict[str, Any]) -> _Answer:
        options = "ANALYZE, FORMAT json" if job["analyze"] else "FORMAT json"
        rows = cursor.execute(f"EXPLAIN ({options}) {job['sql']}", job["values"] or None).fetchall()
        return {"plan": str(rows[0][-1])}, ()

    # ------------------------------------------------------------------------------------ scans

    def _scan(
        self, name: str, schema: pa.Schema, columns: list[str], filter: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of an input; an error is stored as it was, not as DuckDB reports it."""
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
        text = None if filter is None else expression_text(filter)
        needed = columns
        if text is not None:
            needed = columns + [n for n in schema.names if n not in columns and n in text]
        whole = pa.schema([schema.field(n) for n in needed])
        wanted = pa.schema([schema.field(n) for n in columns])
        requested = 1
        for taken, (message, data) in enumerate(self._scanned(name, columns, needed, text), 1):
            ahead = min(AHEAD_MAX, taken + 1)
            if "last" not in message and (more := taken + ahead - requested) > 0:
                requested += more
                self._inbox.send({"next": message["scanned"], "count": more})
            if message["applied"]:
                yield unpack(wanted, message["batch"], data, trusted=True)
            else:
                batch = unpack(whole, message["batch"], data, trusted=True).filter(filter)
                if batch.num_rows:
                    yield batch.select(columns)
            del data  # DuckDB decides how long it is held

    def _scanned(
        self, name: str, columns: list[str], needed: list[str], text: str | None
    ) -> Iterator[tuple[dict[str, Any], pa.Buffer | None]]:
        request = {"columns": columns, "needed": needed, "filter": text}
        scan = next(self._ids)
        self._inbox.expect(scan)
        self._inbox.send({"scan": scan, "relation": name, **request})
        message: dict[str, Any] = {}
        while "last" not in message:
            message, data = self._inbox.take(scan)
            if "batch" not in message:
                return
            yield message, data
            del data


def _rows_of(
    schema: pa.Schema,
    node: Any,
    data: pa.Buffer | None,
    columns: list[str],
    filter: pc.Expression | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of an input that came with the text, in one batch, so that one thread reads it."""
    if node is not None:
        batch = unpack(schema, node, data, trusted=True)
        yield (batch if filter is None else batch.filter(filter)).select(columns)


class _Input(ds.InMemoryDataset):  # type: ignore[misc]
    """A dataset that requests its rows by ``rows(columns, filter)`` when scanned (``scans``)."""

    def __init__(self, schema: pa.Schema, rows: Callable[..., Iterator[pa.RecordBatch]]) -> None:
        super().__init__(schema.empty_table())
        self._rows = rows

    def scanner(
        self, columns: list[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> Scanner:
        names = list(self.schema.names if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return Scanner(schema, lambda: self._rows(names, filter))
