"""Rows of a statement: opened in a thread, encoded, and carried to the event loop. ::

    worker thread                                                     event loop
    rows -> cut -> encode -> blocks of >= 64 KiB -> [queue, <= 4 MiB] -> await next_block()

A statement is authorized by the objects that it binds to, before it runs.  A drop or rename forgets
what the server holds for the stream, and requests that fail meanwhile say why.  The slot is
released, and the query leaves the list of running ones, when the thread has really ended, even if
the client has gone.

A slow client blocks the thread; after a disconnect the thread's next write raises.  An exception of
the thread arrives after the bytes written before it.  A pipe has one writer and one reader.

JSON has an envelope::

    {"query_id": "...", "columns": ["a"], "types": ["bigint"], "rows": [{"a": 1}],
     "row_count": 1, "truncated": false, "elapsed_ms": 1.2}

A truncated answer never looks complete: when ``CHRONICLE_MAX_ROWS`` cuts an answer, formats with a
place for ``truncated`` say so; the others fail with ``ResourceLimit``.

``time_format`` writes UTC timestamps as ISO text, RFC 3339 or epoch integers.  RFC 3339 has as many
digits as the column's unit.  A coarser epoch is rounded down, also before 1970; a finer one is
exact, or an error where 64 bits overflow.  Dates and integer times stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from gzip import GzipFile
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ...core.ownership import Condition
from ...core.times import TICKS_PER_SECOND
from ...errors import ChronicleError, InvalidArgument, QueryCancelled, ResourceLimit
from ...formats import writers
from ...formats.kinds import name_of_type
from ..access.auth import Principal, authorize
from ..access.limits import Slot
from ..http.replies import Problem
from .query_log import RunningQuery, outcome_of

if TYPE_CHECKING:
    from ...query.contract.access import Access
    from ...query.contract.result import Result
    from .state import Server

logger = logging.getLogger("chronicle.server")
BLOCK_BYTES = 64 * 1024
QUEUE_BYTES = 4 * 1024 * 1024


class BodyPipe(io.RawIOBase):
    """A bounded queue of bytes; create it on the event loop that reads it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._space = Condition()
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._abandoned = False
        self.written = 0

    # --- the thread's side: a write-only binary file

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.written

    def close(self) -> None:
        """Does nothing: encoders close their file, and ``end`` ends the answer."""

    def flush(self) -> None:
        if self._block:
            block, self._block, self._block_bytes = b"".join(self._block), [], 0
            self._put(block)

    def write(self, data: Any) -> int:
        """Add bytes; blocks while the queue is full, raises when the reader has given up."""
        piece = bytes(data)
        self._block.append(piece)
        self._block_bytes += len(piece)
        self.written += len(piece)
        if self._block_bytes >= BLOCK_BYTES:
            self.flush()
        return len(piece)

    def end(
        self, error: BaseException | None = None, then: Callable[[], None] = lambda: None
    ) -> None:
        """End the answer; the event loop calls ``then`` before it reads the end."""
        with self._space:  # the last block and the end become visible together
            if error is None and self._block:
                self._queue.append(b"".join(self._block))
            self._block = []
            self._ended = True
            self._error = error
        self._wake(then)

    def _put(self, block: bytes) -> None:
        with self._space:
            while self._queued >= QUEUE_BYTES and not self._abandoned:
                self._space.wait()
            if self._abandoned:
                raise QueryCancelled("the client went away")
            self._queue.append(block)
            self._queued += len(block)
        self._wake()

    def _wake(self, then: Callable[[], None] = lambda: None) -> None:
        def arrived() -> None:
            then()
            self._arrived.set()

        try:
            self._loop.call_soon_threadsafe(arrived)
        except RuntimeError:  # the event loop has ended
            self._abandoned = True

    # --- the event loop's side

    @property
    def complete(self) -> bool:
        with self._space:
            return self._ended and self._error is None and not self._queue

    async def next_block(self) -> bytes | None:
        """The next block; None at the end; raises the thread's exception."""
        while True:
            with self._space:
                if self._queue:
                    block = self._queue.popleft()
                    self._queued -= len(block)
                    self._space.notify()
                    return block
                if self._ended:
                    if self._error is not None:
                        raise self._error
                    return None
                self._arrived.clear()
            await self._arrived.wait()

    def abandon(self) -> None:
        """Stop reading: pending and later writes raise ``QueryCancelled``."""
        with self._space:
            self._abandoned = True
            self._queue.clear()
            self._queued = 0
            self._space.notify_all()


_UNITS = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def with_times(rows: pa.RecordBatch, form: str) -> pa.RecordBatch:
    for position, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            texts = _formatted(rows.column(position), field, form)
            rows = rows.set_column(position, field.with_type(texts.type), texts)
    return rows


def _formatted(column: pa.Array, field: pa.Field, form: str) -> pa.Array:
    unit = field.type.unit
    times = column.cast(pa.int64()).cast(pa.timestamp(unit))
    if form == "rfc3339":
        texts = pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ").cast(pa.large_string())
        return writers.with_far_years(texts, times.cast(pa.timestamp(unit, "UTC")), "T")
    wanted = form.removeprefix("epoch_")
    if TICKS_PER_SECOND[wanted] < TICKS_PER_SECOND[unit]:
        times = pc.floor_temporal(times, unit=_UNITS[wanted])
    try:
        return times.cast(pa.timestamp(wanted)).cast(pa.int64())
    except pa.ArrowInvalid:
        raise InvalidArgument(
            f"time_format={form}: a time of {field.name!r} does not fit 64 bits in that unit; take "
            "a coarser one"
        ) from None


@dataclass(frozen=True)
class RowEncoding:
    """How to write rows: ``envelope`` (JSON: an object around them), ``end_marker`` (NDJSON: a last
    line ``{"$end": {...}}``), ``compression`` (Arrow buffers: "lz4", "zstd"), and others.
    """

    format: str
    envelope: bool = False
    end_marker: bool = False
    int64_as_string: bool = False
    time_format: str = "iso"
    compression: str | None = None
    gzip: bool = False

    @property
    def says_truncated(self) -> bool:
        return (
            (self.format == "json" and self.envelope)
            or (self.format == "ndjson" and self.end_marker)
            or self.format == "arrow"
        )


class Tally:
    """Counts the rows of an answer, and cuts them at the client's ``limit`` or the server's
    ``cap``.
    """

    def __init__(self, limit: int | None, cap: int, *, looks_ahead: bool = True) -> None:
        self.rows = 0
        self.cut_off = False
        self._looks_ahead = looks_ahead
        self._limit = cap if limit is None else min(limit, cap)
        self._by_server = limit is None or limit > cap
        self._cap = cap

    @property
    def truncated(self) -> bool | None:
        """Whether there were more rows; None where that was not looked up."""
        if self.rows == self._limit and not self._looks_ahead and not self.cut_off:
            return None
        return self.cut_off

    def cut(
        self, batches: Iterator[pa.RecordBatch], query: RunningQuery, may_truncate: bool
    ) -> Iterator[pa.RecordBatch]:
        """The batches up to the limit; looks one batch further."""
        for batch in batches:
            if query.cancellation.cancelled:
                raise QueryCancelled("the query was cancelled")
            rows_left = self._limit - self.rows
            if batch.num_rows > rows_left:
                self.cut_off = True
                if self._by_server and not may_truncate:
                    raise ResourceLimit(
                        f"the answer has more than {self._cap:,} rows (CHRONICLE_MAX_ROWS) and its "
                        "format "
                        "cannot say so; narrow the query, give a limit, or ask for json or arrow"
                    )
                if rows_left:
                    self.rows += rows_left
                    yield batch.slice(0, rows_left)
                return
            self.rows += batch.num_rows
            if batch.num_rows:
                yield batch


def encode(
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    encoding: RowEncoding,
    tally: Tally,
    pipe: BodyPipe | io.BytesIO,
    query: RunningQuery,
) -> None:
    out: Any = GzipFile("", "wb", 1, pipe, mtime=0) if encoding.gzip else pipe
    cut = tally.cut(batches, query, encoding.says_truncated)
    names = _unique_names(schema.names)
    if names != schema.names:
        schema = pa.schema([f.with_name(name) for f, name in zip(schema, names, strict=True)])
        cut = (batch.rename_columns(names) for batch in cut)
    forms: list[Callable[[pa.RecordBatch], pa.RecordBatch]] = []
    if encoding.time_format != "iso":
        forms.append(partial(with_times, form=encoding.time_format))
    if encoding.int64_as_string and encoding.format in ("json", "ndjson"):
        forms.append(as_text)
    for form in forms:
        schema, cut = form(pa.RecordBatch.from_pylist([], schema)).schema, map(form, cut)
    if encoding.format == "arrow":
        _encode_arrow(schema, cut, encoding, tally, out)
    elif encoding.format == "json" and encoding.envelope:
        head = {
            "query_id": query.id,
            "columns": schema.names,
            "types": [name_of_type(f.type) for f in schema],
        }
        out.write(orjson.dumps(head)[:-1] + b',"rows":')
        _write(cut, schema, encoding.format, out)
        tail = {
            "row_count": tally.rows,
            "truncated": tally.truncated,
            "elapsed_ms": round((time.monotonic() - query.started) * 1000, 2),
        }
        out.write(b"," + orjson.dumps(tail)[1:] + b"\n")
    else:
        _write(cut, schema, encoding.format, out)
        if encoding.end_marker:
            end = {"$end": {"rows": tally.rows, "truncated": tally.truncated}}
            out.write(orjson.dumps(end) + b"\n")
    if encoding.gzip:
        out.close()


def _encode_arrow(
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    encoding: RowEncoding,
    tally: Tally,
    out: Any,
) -> None:
    options = pa.ipc.IpcWriteOptions(compression=encoding.compression)
    writer = pa.ipc.new_stream(out, schema, options=options)
    for batch in batches:
        writer.write_batch(batch)
    if tally.cut_off:
        empty = pa.RecordBatch.from_pylist([], schema)
        writer.write_batch(empty, custom_metadata={"chronicle.truncated": "true"})
    writer.close()  # only now: an answer that broke off must not have the end-of-stream marker


def _write(batches: Iterator[pa.RecordBatch], schema: pa.Schema, format: str, out: Any) -> None:
    for chunk in writers.encode(batches, schema, format):
        out.write(chunk)


def as_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        pc.cast(column, pa.string())
        if pa.types.is_int64(column.type) or pa.types.is_uint64(column.type)
        else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _unique_names(names: list[str]) -> list[str]:
    """Rename duplicate columns: a second ``x`` becomes ``x_1``."""
    taken = set(names)
    seen: set[str] = set()
    numbers: dict[str, int] = {}
    unique = []
    for name in names:
        chosen = name
        while chosen in seen or (chosen != name and chosen in taken):
            numbers[name] = numbers.get(name, 0) + 1
            chosen = f"{name}_{numbers[name]}"
        seen.add(chosen)
        unique.append(chosen)
    return unique


def open_statement(
    server: Server,
    principal: Principal,
    query: RunningQuery,
    text: str,
    params: dict[str, Any] | list[Any] | None,
    timeout: float,
    *,
    read_only: bool = False,
) -> Result:
    dropped: list[str] = []
    with contextlib.ExitStack() as dropping:

        def allowed(access: Access) -> None:
            authorize(principal, access)
            gone = access.kind == "DropStream" or access.renamed is not None
            if gone and access.target is not None:
                dropping.enter_context(server.drops.dropping(access.target))
                dropped.append(access.target)

        result = server.engine_for(principal).run(
            text,
            params,
            timeout,
            read_only=read_only,
            cancellation=query.cancellation,
            allowed=allowed,
        )
    for name in dropped:
        server.forget_stream(name)
    return result


def account_for(
    server: Server,
    kind: str,
    format: str,
    tally: Tally,
    error: BaseException | None,
    seconds: float,
) -> None:
    server.metrics.query_seconds.labels(kind).observe(seconds)
    server.metrics.result_rows.labels(format).inc(tally.rows)
    server.metrics.queries.labels(kind, outcome_of(error)).inc()


def compute(
    server: Server,
    slot: Slot,
    query: RunningQuery,
    pipe: BodyPipe,
    tally: Tally,
    format: str,
    write: Callable[[], None],
) -> None:
    """Have a thread run ``write``, which fills ``pipe``; on the event loop.  Raises ``Problem``
    (503).
    """
    started = time.perf_counter()

    def ended(error: BaseException | None) -> None:
        slot.release()
        server.running.remove(query)
        account_for(server, query.kind, format, tally, error, time.perf_counter() - started)

    def run() -> None:
        error: BaseException | None = None
        try:
            with server.running.logged(query, tally):
                write()
        except BaseException as raised:
            error = raised
            if not isinstance(error, (ChronicleError, Problem)):
                logger.exception("an answer failed")
        pipe.end(error, partial(ended, error))

    try:
        server.submit(run)
    except Problem:
        server.running.remove(query)
        slot.release()
        raise
