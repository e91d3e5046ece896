"""Feeds: endless answers, made piece by piece in a thread; ``routes.following`` sends them. ::

    format   rows                           marks                            heartbeat
    sse      event: row, id, data           event: mark, id, data            a comment
    ndjson   a line each                    a line {"$mark": {...}}, if      a mark
                                            asked for
    arrow    a batch with its place in      an empty batch with metadata     a mark
             the metadata

A client that resumes at the id, or place, that it read last receives what follows it, exactly once.
A mark says that everything up to its place was sent.

Server-sent events are ``text/event-stream`` (WHATWG HTML, section 9.2.6)::

    event: row                  the kind; "message" without this line
    id: 79.3                    what the client sends back as Last-Event-ID
    data: {"t": 1}              one such line for each line of the text
                                an empty line dispatches the event
    : comment                   ignored by clients; keeps proxies from closing the connection
    retry: 2000                 milliseconds before a client reconnects

Names and ids with a line break, and ids with NUL, are refused.

A live query's feed has every ``_seq`` after the client's, once and in order, also after a restart,
since a result and its ``_seq`` are one commit.  It answers 410 where results after it fell to the
sink's retention, and for a ``_seq`` of another store or an earlier live query.

Followers of a stream wait without threads and polling, until a commit wakes them::

    thread that commits            event loop                       a few threads
    listener: schedules one  ->    wakes every follower of   ->     take: the next
    call, if none is pending       the stream                       bytes of its feed

A woken follower sees that commit or a later one.  Recent commits stay in memory for ``LINGER_S``
seconds after the last follower has left, so that a client that lost its connection can resume.
Followers live on the event loop.  A server whose store another process writes has no followers.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ...catalog.tailing import Piece, Tail, sliced
from ...errors import ChronicleError, SnapshotExpired, StoreClosed
from ...formats.kinds import media_type_of
from ...formats.writers import json_bytes
from ...live.query import LiveQuery
from ...live.sink import QUERY, SEQUENCE, Sink
from ...store.recent import Commit
from ...store.stream import EventStream
from ..http.replies import jsonable
from .row_stream import as_text

RETRY_MS = 2000

EVENT_STREAM = "text/event-stream"
_BREAK = re.compile(r"\r\n|\r|\n")


def event(kind: str, data: str, id: str | None = None) -> bytes:
    lines = [f"event: {_single(kind)}"]
    if id is not None:
        lines.append(f"id: {_single(id)}")
    lines += [f"data: {line}" for line in _BREAK.split(data)]
    return ("\n".join(lines) + "\n\n").encode()


def row_events(ids: pa.Array, rows: pa.RecordBatch) -> bytes:
    head, middle, between = (
        pa.scalar(text, pa.large_string()) for text in ("event: row\nid: ", "\ndata: ", "")
    )
    names = pc.cast(ids, pa.large_string())
    heads = pc.binary_join_element_wise(head, names, middle, between)
    return json_bytes(rows, last="}\n\n", heads=heads)


def comment(text: str = "") -> bytes:
    return "".join(f": {line}\n" for line in _BREAK.split(text)).encode() + b"\n"


def retry(milliseconds: int) -> bytes:
    return b"retry: %d\n\n" % milliseconds


def _single(text: str) -> str:
    if _BREAK.search(text) or "\0" in text:
        raise ValueError(f"a name or id in an event stream is one line, found {text!r}")
    return text


class Format(ABC):
    media_type: str

    def head(self) -> bytes:
        return b""

    @abstractmethod
    def rows(self, ids: Callable[[], pa.Array], place: str, rows: pa.RecordBatch) -> bytes:
        """At least one row; ``ids`` has the id after each row, ``place`` that after all."""

    @abstractmethod
    def mark(self, place: str, details: dict[str, Any]) -> bytes:
        """The feed's position."""

    def beat(self, place: str, details: dict[str, Any]) -> bytes:
        return self.mark(place, details)

    def end(self, kind: str, details: dict[str, Any]) -> bytes:
        """The last bytes; ``kind`` is ``bye`` or ``error``."""
        return b""


class _ServerSentEvents(Format):
    media_type = EVENT_STREAM

    def __init__(self, *, int64_as_string: bool) -> None:
        self._int64_as_string = int64_as_string

    def head(self) -> bytes:
        return retry(RETRY_MS)

    def rows(self, ids: Callable[[], pa.Array], place: str, rows: pa.RecordBatch) -> bytes:
        return row_events(ids(), as_text(rows) if self._int64_as_string else rows)

    def mark(self, place: str, details: dict[str, Any]) -> bytes:
        return event("mark", orjson.dumps(details).decode(), place)

    def beat(self, place: str, details: dict[str, Any]) -> bytes:
        return comment()

    def end(self, kind: str, details: dict[str, Any]) -> bytes:
        return event(kind, orjson.dumps(details).decode())


class _Lines(Format):
    media_type = media_type_of("ndjson")

    def __init__(self, *, marks: bool, int64_as_string: bool) -> None:
        self._marks = marks
        self._int64_as_string = int64_as_string

    def rows(self, ids: Callable[[], pa.Array], place: str, rows: pa.RecordBatch) -> bytes:
        return json_bytes(as_text(rows) if self._int64_as_string else rows)

    def mark(self, place: str, details: dict[str, Any]) -> bytes:
        return orjson.dumps({"$mark": details}) + b"\n" if self._marks else b""

    def end(self, kind: str, details: dict[str, Any]) -> bytes:
        return (
            orjson.dumps({f"${kind}": details}) + b"\n" if self._marks or kind == "error" else b""
        )


class _Arrow(Format):
    media_type = media_type_of("arrow")

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), schema)
        self._empty = pa.RecordBatch.from_pylist([], schema)

    def head(self) -> bytes:
        return self._taken()

    def rows(self, ids: Callable[[], pa.Array], place: str, rows: pa.RecordBatch) -> bytes:
        self._writer.write_batch(rows, custom_metadata={"chronicle.place": place})
        return self._taken()

    def mark(self, place: str, details: dict[str, Any]) -> bytes:
        marks = {"chronicle.place": place, "chronicle.mark": orjson.dumps(details).decode()}
        self._writer.write_batch(self._empty, custom_metadata=marks)
        return self._taken()

    def end(self, kind: str, details: dict[str, Any]) -> bytes:
        metadata = {f"chronicle.{kind}": orjson.dumps(details).decode()}
        self._writer.write_batch(self._empty, custom_metadata=metadata)
        if kind == "bye":  # only now: an answer that broke off has no end-of-stream marker
            self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        taken = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return taken


def format_of(
    name: str, schema: pa.Schema, *, marks: bool = False, int64_as_string: bool = False
) -> Format:
    if name == "sse":
        return _ServerSentEvents(int64_as_string=int64_as_string)
    if name == "ndjson":
        return _Lines(marks=marks, int64_as_string=int64_as_string)
    return _Arrow(schema)


class Feed(ABC):
    format: Format
    rows = 0
    sent_state: object = None
    """The state that the client knows, by a mark or by the rows themselves."""

    @abstractmethod
    def take(self) -> bytes | None:
        """The next bytes, perhaps empty; None when nothing is new."""

    @abstractmethod
    def state(self) -> object:
        """What a mark tells."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where a client resumes."""

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """The content of a mark."""

    @abstractmethod
    def close(self) -> None:
        """Release what the feed holds."""

    @property
    def unmarked(self) -> bool:
        """Whether the feed has moved since its last mark."""
        return self.sent_state != self.state()

    def mark(self) -> bytes:
        self.sent_state = self.state()
        return self.format.mark(self.place, self.details())

    def beat(self) -> bytes:
        return self.format.beat(self.place, self.details())


class TailFeed(Feed):
    def __init__(self, tail: Tail, format: Format) -> None:
        self._tail = tail
        self.format = format
        self._late = 0

    def take(self) -> bytes | None:
        piece: Piece | None = self._tail.take()
        if piece is None:
            return None
        self._late += piece.late
        if not piece.events.num_rows:
            return b""
        self.rows += piece.events.num_rows
        self.sent_state = piece.places()[-1].as_py()
        return self.format.rows(piece.places, str(piece.place), piece.events)

    def state(self) -> str:
        return self._tail.position

    @property
    def place(self) -> str:
        return self._tail.position

    def details(self) -> dict[str, Any]:
        return {"position": self._tail.position, "rows": self.rows, "late": self._late}

    def close(self) -> None:
        self._tail.close()


class LiveFeed(Feed):
    def __init__(self, query: LiveQuery, after: int, format: str, **written: bool) -> None:
        self._query = query
        self._sink: Sink = query.sink
        self.stream = query.sink.stream
        _check_available(self._sink, query.definition.name, after)
        self.format = format_of(format, self.stream.schema.arrow, **written)
        self._after = after
        self._position: int | None = None
        self._pieces: Iterator[pa.RecordBatch] | None = None
        self._recent = self.stream.follow()

    def take(self) -> bytes | None:
        while True:
            if self.stream.commits.closed:
                raise StoreClosed(
                    f"the live query {self._query.definition.name!r} was dropped, or the store was "
                    "closed: there is nothing to follow any more"
                )
            upto = self.stream.snapshot().version
            if self._pieces is None:
                if upto == self._position:
                    return None
                self._pieces = sliced(self._behind(upto))
                self._upto = upto
            rows = next(self._pieces, None)
            if rows is None:
                self._pieces, self._position = None, self._upto
                continue
            self._after = rows.column("_seq")[-1].as_py()
            self.rows += rows.num_rows
            ids = partial(pc.cast, rows.column("_seq"), pa.string())
            return self.format.rows(ids, self.place, rows)

    def _behind(self, upto: int) -> Iterator[pa.RecordBatch]:
        """The results after the last row sent; perhaps more than up to commit ``upto``."""
        commits = None if self._position is None else self._recent.commits(self._position, upto)
        if commits is None or not all(isinstance(commit, Commit) for commit in commits):
            yield from self._sink.rows(self._after)
            return
        batches = [batch for commit in commits for batch in commit.batches()]
        if not batches:
            return
        wanted = pc.field("_seq") > self._after
        if self._sink.shared:
            wanted &= pc.field(QUERY) == self._sink.query
        rows = pa.Table.from_batches(batches).filter(wanted).sort_by("_seq")
        yield from rows.combine_chunks().to_batches()

    @property
    def place(self) -> str:
        return str(self._after)

    def state(self) -> object:
        query = self._query
        return query.mark.watermark, query.error, query.definition.paused

    def details(self) -> dict[str, Any]:
        status = self._query.status()
        names = ("state", "watermark", "lag_events", "lag_ms", "error")
        return {"seq": self._after, **{name: jsonable(status[name]) for name in names}}

    def close(self) -> None:
        self.stream.unfollow()


def _check_available(sink: Sink, name: str, after: int) -> None:
    snapshot = sink.stream.snapshot()
    stored = snapshot.aggregate(["_seq"])["_seq"]
    newest = max(int(sink.stream.marks().get(SEQUENCE, 1)) - 1, int(stored.max or 0))
    if after > newest:
        raise SnapshotExpired(
            f"the live query {name!r} has emitted {newest} rows, and _seq {after} lies behind "
            "them: it was made anew, or this is another store; begin with after=0"
        )
    if after and snapshot.state.dropped and after + 1 < int(stored.min or newest + 1):
        raise SnapshotExpired(
            f"rows of the live query {name!r} behind _seq {after} were dropped by the retention of "
            "its sink; begin with after=0 for those that are kept"
        )


LINGER_S = 60.0


class Follower(asyncio.Event):
    """Set when there is news; a follower clears it before it looks."""

    async def wait_for(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()


class Followers:
    def __init__(self) -> None:
        self._streams: dict[EventStream, _Listener] = {}
        self._all: set[Follower] = set()
        self.ending = False

    def __len__(self) -> int:
        return len(self._all)

    @contextmanager
    def follow(self, stream: EventStream) -> Iterator[Follower]:
        """A follower that commits to a stream wake, for the length of the block."""
        follower = Follower()
        listener = self._streams.get(stream)
        if listener is None:
            listener = self._streams[stream] = _Listener(stream)
        self._all.add(follower)
        listener.join(follower)
        try:
            yield follower
        finally:
            self._all.discard(follower)
            listener.leave(follower, self._drop)

    def _drop(self, listener: _Listener) -> None:
        if self._streams.get(listener.stream) is listener:
            del self._streams[listener.stream]
            listener.close()

    def wake_all(self) -> None:
        for follower in self._all:
            follower.set()

    def end(self) -> None:
        self.ending = True
        self.wake_all()
        for listener in list(self._streams.values()):
            self._drop(listener)


class _Listener:
    """The followers of a stream; recent commits stay in memory until it is closed."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self._loop = asyncio.get_running_loop()
        self._followers: set[Follower] = set()
        self._on_its_way = False
        self._closing: asyncio.TimerHandle | None = None
        stream.follow()
        stream.subscribe(self._committed)

    def join(self, follower: Follower) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._followers.add(follower)

    def leave(self, follower: Follower, drop: Callable[[_Listener], None]) -> None:
        self._followers.discard(follower)
        if not self._followers:
            self._closing = self._loop.call_later(LINGER_S, drop, self)

    def close(self) -> None:
        with contextlib.suppress(ChronicleError):
            self.stream.unsubscribe(self._committed)
            self.stream.unfollow()

    def _committed(self, _: object) -> None:
        """Runs in the committing thread, under the stream's lock."""
        if not self._on_its_way:
            self._on_its_way = True
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._on_its_way = False
        for follower in self._followers:
            follower.set()
