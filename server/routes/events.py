"""Routes of events: append a body atomically, read a time range, plan a parallel read.  An append
answers when it is as durable as asked; concurrent appends share syncs.

The scan behind ``GET .../events`` reads a time range of a snapshot under a SQL predicate on single
events.  A read without progress for the query time limit ends with ``QueryTimeout``; others may
take any time.

``POST .../events?ack=each`` is an endless NDJSON body with an acknowledgement for each commit. ::

    client   {"t": 1} {"t": 2} ... ->            ... {"t": 900}
    server           -> {"lines": 100, "appended": 100, ...} {"lines": 200, ...} ...

    socket -> [<= 1 MiB] -> whole lines, cut into commits -> a thread: parse, append, one sync
                                                              -> an answer for each commit

Lines are acknowledged in order, once, with the durability asked for; those that arrive during a
sync become commits of the next one.  A commit holds up to ``commit_events`` lines, all or none.
Acknowledged events stay, however the connection ends.  An invalid line ends it with the problem as
the last line.  A line has at most ``PENDING_MAX`` bytes.  An endless body has no digest and so no
Idempotency-Key; after a lost connection the client counts the stored events before it goes on.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import orjson
import pyarrow as pa
from fastapi import Depends, Query, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from ...catalog.streams import Stream, append_each, handle_of
from ...core.append_result import AppendResult
from ...core.times import INT64_MAX
from ...errors import ChronicleError, InvalidArgument, QueryTimeout
from ...formats.dialect import TextOptions
from ...query.contract.cancellation import QueryControl
from ...query.contract.result import Result
from ...schema import StreamSchema
from ..access.auth import ask_again, check_predicate
from ..http.replies import Problem, as_problem, problem_document, reply
from ..http.requests import BinaryEvent, binary_event, body_format
from ..http.streamed import Pace, Streamed, too_slow
from ..service.bodies import Body, appended_json, bad_row_json, read_events
from ..service.gathering import BYTES_MAX, SmallReader
from ..service.middleware import note_time, timed
from ..service.query_log import RunningQuery
from . import answers
from .answers import EVENT_FILE, EVENTS, NDJSON, Json
from .parameters import (
    Columns,
    EventEncoding,
    FormatName,
    IdempotencyKey,
    Limit,
    OnError,
    Precision,
    Text,
    TimeRange,
    Where,
    column_names,
)
from .route import Call, Called, Routes
from .row_responses import send_rows


def distinct_columns(schema: StreamSchema, names: list[str] | None) -> list[str]:
    columns = schema.select(names)
    if len(set(columns)) != len(columns):
        raise InvalidArgument(f"each column can be read once, found {', '.join(columns)}")
    return columns


class Patience(QueryControl):
    """Ends a read that was cancelled, or that finds nothing for ``limit_s`` seconds."""

    def __init__(self, query: RunningQuery, limit_s: float) -> None:
        super().__init__(cancellation=query.cancellation)
        self._limit_s = limit_s
        self._progress = time.monotonic()

    @property
    def stopped(self) -> bool:
        return super().stopped or time.monotonic() - self._progress > self._limit_s

    def check(self) -> None:
        super().check()
        if self.stopped:
            raise QueryTimeout(
                f"no event was found for {self._limit_s:g} s (CHRONICLE_QUERY_TIMEOUT_MS); give a "
                "time range or a wider predicate"
            )

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; time that the client takes for them does not count."""
        for batch in batches:
            yield batch
            self._progress = time.monotonic()


PENDING_MAX = 1 << 20

TOGETHER_MAX = 64

LOOK_S = 1.0


def check_continuous(
    call: Called, format: str, on_error: str, idempotency_key: str | None, text: TextOptions
) -> None:
    packed = call.request.headers.get("content-encoding", "identity").strip().lower()
    wrong = {
        f"the format {format}, which has no lines; send ndjson": format != "ndjson",
        f"Content-Encoding {packed}; send it as it is": packed not in ("", "identity"),
        "on_error=skip; a line that is no event ends it": on_error != "fail",
        "flatten; send flat lines": text.flatten is not None,
        "options of text files; send UTF-8": text != TextOptions(),
        "an Idempotency-Key; an answer that goes on cannot be replayed": idempotency_key
        is not None,
    }
    for what, applies in wrong.items():
        if applies:
            raise InvalidArgument(f"ack=each does not go with {what}")


@dataclass(frozen=True)
class Append:
    """How a body is stored; ``head`` is the CloudEvent in the headers, if there is one."""

    stream: str
    format: str
    precision: str | None
    durability: str | None
    on_error: str
    text: TextOptions
    head: BinaryEvent | None


@dataclass
class _Committed:
    answers: list[bytes]
    lines: int
    problem: Exception | None = None


class Acknowledged(Streamed):
    """A response written while the body arrives; ``commit_events`` bounds the lines of a commit."""

    def __init__(
        self,
        call: Called,
        stream: Stream,
        reader: SmallReader,
        append: Append,
        commit_events: int,
        held: contextlib.AsyncExitStack,
    ) -> None:
        server = self._server = call.server
        self._call = call
        self._stream = stream
        self._append = append
        self._commit_events = commit_events
        self._held = held
        self._line_max = min(PENDING_MAX, server.settings.max_body_bytes)
        self._reader = reader
        self._come = bytearray()
        self._ended = False
        self._silent_s = 0.0
        self._lines = 0
        self._appended = 0
        headers = {
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "Connection": "close",  # the answer may end before the body
        }
        super().__init__(headers, "application/x-ndjson", Pace.of(server.settings))

    async def blocks(self, receive: Receive) -> AsyncGenerator[bytes, None]:
        server = self._server
        try:
            while True:
                pieces = self._pieces()
                if not pieces and self._ended:
                    summary = {"lines": self._lines, "appended": self._appended}
                    yield orjson.dumps({"$end": summary}) + b"\n"
                    return
                if not pieces:
                    await self._receive(receive)
                    continue
                async with server.appends.held(self._call.client):
                    done = await server.call(self._commit, pieces)
                yield b"".join(done.answers)
                if done.problem is not None:
                    raise done.problem
        except (ChronicleError, Problem) as error:
            problem = as_problem(error)
            if problem.status in (413, 429, 503):
                server.metrics.rejected.labels(problem.code).inc()
            document = problem_document(error, self._call.id)
            yield orjson.dumps({"$error": {**document, "lines": self._lines}}) + b"\n"

    async def end(self) -> None:
        await self._held.aclose()

    # --- the lines

    async def _receive(self, receive: Receive) -> None:
        """Take what has come meanwhile; looks every ``LOOK_S`` whether the server stops."""
        if self._server.stopping:
            raise Problem("not-ready", "the server is stopping; go on with another connection")
        if len(self._come) >= self._line_max:
            raise Problem(
                "body-too-large",
                f"line {self._lines + 1} does not end within {self._line_max:,} bytes",
            )
        try:
            async with asyncio.timeout(LOOK_S):
                message = await receive()
        except TimeoutError:
            self._silent_s += LOOK_S
            if self._silent_s >= self._pace.silence_s:
                raise too_slow(self._pace, self._lines) from None
            return
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self._silent_s = 0.0
        self._come += message.get("body", b"")
        self._ended = not message.get("more_body", False)

    def _pieces(self) -> list[bytes]:
        come = self._come
        end = len(come) if self._ended else come.rfind(b"\n") + 1
        if not end:
            return []
        data = bytes(come[:end])
        breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1
        cuts = breaks[self._commit_events - 1 :: self._commit_events].tolist()[:TOGETHER_MAX]
        if len(cuts) < TOGETHER_MAX and (not cuts or cuts[-1] < end):
            cuts.append(end)
        del come[: cuts[-1]]
        return [data[start:stop] for start, stop in zip([0, *cuts], cuts, strict=False)]

    # --- their commits, in a thread

    def _commit(self, pieces: list[bytes]) -> _Committed:
        ask_again(self._call.request).require("ingest", self._stream.name)
        done = _Committed([], 0)
        waiting: list[tuple[int, pa.RecordBatch | pa.Table]] = []
        lines = 0
        for piece in pieces:
            lines += piece.count(b"\n") + (not piece.endswith(b"\n"))
            try:
                events = self._events(piece)
            except (ChronicleError, Problem) as error:
                done.problem = error
                break
            if events.num_rows:
                waiting.append((lines, events))
        try:
            while waiting:
                results = append_each(
                    self._stream, [each for _, each in waiting], self._append.durability
                )
                self._note(done, waiting, results)
                del waiting[: len(results)]
        except ChronicleError as error:
            done.problem = error
        if done.problem is None:
            done.lines = lines
        self._lines += done.lines
        return done

    def _events(self, piece: bytes) -> pa.RecordBatch | pa.Table:
        columns = self._reader.columns(piece, lines=True)
        if columns is not None:
            with contextlib.suppress(ValueError, OverflowError):
                batch, bad = self._reader.batch([columns])
                if not bad.any():
                    return batch
        settings, server = self._server.settings, self._server
        with contextlib.closing(Body(None, None, None)) as body:
            body.write(piece)
            return read_events(
                body,
                "ndjson",
                self._stream.event_schema,
                self._append.precision,
                settings.max_decoded_bytes,
                server.reader,
                columns_max=settings.max_columns,
            )[0]

    def _note(
        self, done: _Committed, waiting: list[tuple[int, Any]], results: list[AppendResult]
    ) -> None:
        for (lines, _), result in zip(waiting, results, strict=False):
            done.lines = lines
            self._appended += result.appended
            answer = {"lines": self._lines + lines, **appended_json(self._stream, result)}
            done.answers.append(orjson.dumps(answer) + b"\n")
            self._server.metrics.note_append("ndjson", result.appended, result.late)


routes = Routes("events", "/v1/streams/{stream}")
PARTITION_BYTES = 64 << 20
PARTITIONS_MAX = 20_000

COMMIT_EVENTS = 1000
_USUAL = TextOptions()
VALUE_BYTES = 16
"""Least memory of a value of a small body, counted besides the text."""

Version = Annotated[
    int | None,
    Query(ge=0, le=INT64_MAX, description="Read this pinned version; default: the present one."),
]


def _commit_events(
    ack: Annotated[
        Literal["whole", "each"],
        Query(description="One answer for the body, or a line for each commit while it comes."),
    ] = "whole",
    commit_events: Annotated[
        int, Query(ge=1, le=10_000, description="Most lines of a commit, with ack=each.")
    ] = COMMIT_EVENTS,
) -> int | None:
    return commit_events if ack == "each" else None


CommitEvents = Annotated[int | None, Depends(_commit_events)]


@routes.post(
    "/events",
    "Append events",
    answers.Appended,
    responses=NDJSON,
    openapi_extra=EVENTS,
    needs="ingest",
)
async def append_events(
    call: Call,
    stream: str,
    text: Text,
    on_error: OnError,
    commit_events: CommitEvents,
    format: FormatName = None,
    precision: Precision = None,
    durability: Annotated[
        Literal["commit", "interval", "none"] | None,
        Query(description="What the answer promises; default: the store's setting."),
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Append the events of the body, all or none: JSON, NDJSON, CSV, Arrow stream or Parquet.

    CloudEvents come in all three modes; in the binary one the headers `ce-...` are attributes.
    With `ack=each`: an endless NDJSON body, and one line of the answer for each commit.
    """
    server = call.server
    keys = server.keys
    head = binary_event(call.request) if format is None else None
    name = "cloudevents"
    if head is None:
        name = body_format(format, call.request.headers.get("content-type", ""))
    append = Append(stream, name, precision, durability, on_error, text, head)
    if commit_events is not None:
        check_continuous(call, name, on_error, idempotency_key, text)
        return await _continuous(call, append, commit_events)
    plain = name in ("json", "ndjson") and text == _USUAL
    plain &= head is None and idempotency_key is None and on_error == "fail"
    keyed = idempotency_key is not None
    body_max = server.settings.max_body_bytes
    async with server.receiving(call.request, call.client, body_max, hashed=keyed) as body:
        if plain and body.encoding is None and body.size <= BYTES_MAX:
            stored = await _gathered(call, append, body)
            if stored is not None:
                return reply(stored)
        waited = time.perf_counter()
        async with server.appends.held(call.client):
            note_time(call.request, "queue", time.perf_counter() - waited)
            store = partial(_append, call, append, body)
            same: tuple[Any, ...] = ()
            if keyed:
                same = (stream, name, precision, on_error, body.encoding, body.digest)
                if text.flatten is not None or head is not None:
                    same = (*same, text.flatten, head)
                if text != _USUAL:
                    same = (*same, text)
            answer, replayed = await server.call(keys.once, stream, idempotency_key, same, store)
    return reply(answer, 200, {"Idempotency-Replayed": "true"} if replayed else None)


async def _continuous(call: Called, append: Append, commit_events: int) -> Response:
    server = call.server
    stream = await server.call(server.database.stream, append.stream)
    reader = server.gathering.reader(stream, append.precision)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(server.bodies.held(call.client))
        stack.enter_context(server.uploads.account(call.client)).hold(2 * PENDING_MAX)
        held = stack.pop_all()
    return Acknowledged(call, stream, reader, append, commit_events, held)


async def _gathered(call: Called, append: Append, body: Body) -> Json | None:
    """Append a small body with others that wait; None where ``_append`` has to read it."""
    server = call.server
    stream = server.database.stream(append.stream)
    schema, options = stream.event_schema, handle_of(stream).options
    if options.unique is not None or len(schema.names) > server.settings.max_columns:
        return None  # duplicates are counted per body
    begun = time.perf_counter()
    reader = server.gathering.reader(stream, append.precision)
    events = reader.columns(body.content(), lines=append.format == "ndjson")
    if events is None:
        return None
    note_time(call.request, "parse", time.perf_counter() - begun)
    body.hold(VALUE_BYTES * events.rows * len(events.columns))
    durability = append.durability
    stored = await server.gathering.append(stream, reader, events, durability, call.client)
    if stored is None:
        return None
    note_time(call.request, "queue", stored.waited_s)
    note_time(call.request, "append", stored.stored_s)
    server.metrics.append_seconds.observe(time.perf_counter() - begun - stored.waited_s)
    server.metrics.note_append(append.format, events.rows, stored.late)
    result = AppendResult(events.rows, stored.late, stored.count, stored.version)
    return _answer(stream, append, result)


def _answer(stream: Stream, append: Append, done: AppendResult) -> Json:
    durability = append.durability or handle_of(stream).options.durability
    place = {"position": str(done.version), "durable": durability == "commit"}
    return {**appended_json(stream, done), **place}


def _append(call: Called, append: Append, body: Body) -> tuple[Json, int]:
    """Store a body: the answer, and the version of the commit.  Blocks."""
    server = call.server
    target = server.database.stream(append.stream)
    decoded_max = server.settings.max_decoded_bytes
    started = time.perf_counter()
    with timed(call.request, "parse"), _whole(body, append.head, decoded_max) as whole:
        events, bad, rejected = read_events(
            whole,
            append.format,
            target.event_schema,
            append.precision,
            decoded_max,
            server.reader,
            columns_max=server.settings.max_columns,
            skip=append.on_error == "skip",
            text=append.text,
        )
    with timed(call.request, "append"):
        done = target.append(events, durability=append.durability)
    server.metrics.append_seconds.observe(time.perf_counter() - started)
    server.metrics.note_append(append.format, done.appended, done.late)
    answer = _answer(target, append, done)
    if append.on_error == "skip":
        answer |= {"rejected": rejected, "errors": [bad_row_json(row) for row in bad]}
    return answer, done.version


@contextlib.contextmanager
def _whole(body: Body, head: BinaryEvent | None, decoded_max: int) -> Iterator[Body]:
    """The body, to which the attributes of a CloudEvent in its headers are added."""
    if head is None:
        yield body
        return
    event = head.structured(body.open(decoded_max).read())
    body.hold(len(event))
    with contextlib.closing(Body(None, None, None)) as whole:
        whole.write(event)
        yield whole


@routes.get("/events", "Read events", head=True, responses=EVENT_FILE, needs="read")
async def read_stream(
    call: Call,
    encoding: EventEncoding,
    stream: str,
    times: TimeRange,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    version: Version = None,
) -> Response:
    """Events of `[start, end)` in time order, ties in order of arrival; streamed.

    HEAD, `Range`, `If-Match`, `If-None-Match` and `If-Range` make the answer a file.
    """
    server, names = call.server, column_names(columns)
    # Without a predicate, looking for more rows costs one event; with one, perhaps a full scan.
    most = limit + 1 if limit is not None and where is None else limit

    def open_rows(query: RunningQuery) -> Result:
        target = server.database.stream(stream)
        with contextlib.ExitStack() as stack:
            if version is None:
                snapshot = target.snapshot()
            else:
                snapshot = stack.enter_context(server.snapshots.pin(target.name, version))
            schema: StreamSchema = snapshot.schema
            span, chosen = times.bounds(schema), distinct_columns(schema, names)
            patience = Patience(query, server.settings.query_timeout)
            if where is None:
                batches = snapshot.scan(*span, chosen, limit=most, check=patience.check)
            else:
                check_predicate(where)
                batches = server.catalog.engine.scan(
                    target.name, snapshot, where, *span, chosen, most, patience
                )
            arrow = pa.schema([schema.arrow.field(name) for name in chosen])
            return Result(arrow, patience.watch(batches), close=stack.pop_all().close)
        raise AssertionError("unreachable")

    text = f"events of {stream}" + (f" where {where}" if where else "")
    looks_ahead = where is None
    return await send_rows(
        call,
        server.reads,
        "events",
        text,
        open_rows,
        encoding,
        limit=limit,
        looks_ahead=looks_ahead,
    )


@routes.get("/partitions", "Plan a parallel read", answers.Partitions, needs="read", runs="read")
def partitions(
    call: Call,
    stream: str,
    times: TimeRange,
    parts: Annotated[
        int | None, Query(ge=1, le=PARTITIONS_MAX, description="Parts wanted; default: by size.")
    ] = None,
    version: Version = None,
) -> Json:
    """Pin a version of the stream and cut a time range of it into parts of about equal size."""
    server = call.server
    schema: StreamSchema = server.database.stream(stream).event_schema
    first, last = times.bounds(schema)
    with server.snapshots.pin(stream, version) as snapshot:
        size = stored_bytes(server.database.stream(stream).stats())
        wanted = parts or min(PARTITIONS_MAX, max(1, -(-size // PARTITION_BYTES)))
        return {
            "stream": stream,
            "time": schema.time,
            "version": snapshot.version,
            "count": snapshot.count,
            "bytes": size,
            "arrow_schema": base64.b64encode(schema.arrow.serialize()).decode(),
            **schema.defaults_json(),
            "partitions": [
                {"start": low, "end": high}
                for low, high in clip(snapshot.ranges(wanted), first, last)
            ],
        }


def stored_bytes(stats: dict[str, Any]) -> int:
    return int(stats.get("bytes", 0))


def clip(
    ranges: list[tuple[int | None, int | None]], first: int | None, last: int | None
) -> Iterator[tuple[int | None, int | None]]:
    """Intersect half-open ranges with ``[first, last)``; empty ones are left out."""
    if first is not None and last is not None and last <= first:
        return
    for low, high in ranges:
        if first is not None and (low is None or low < first):
            low = first
        if last is not None and (high is None or high > last):
            high = last
        if low is None or high is None or low < high:
            yield low, high
