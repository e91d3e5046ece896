"""Live queries of a server (``db.live(name)``), and its jobs.

A feed gives every row once and in order, across lost connections and server restarts.  After
``PATIENCE_S`` seconds of failed attempts it raises ``ConnectionFailed``.

Jobs: ``db.start_job(kind)`` and ``db.job(job_id)``; any process may use a job by its id.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ..errors import ConnectionFailed, JobFailed, QueryTimeout
from ..schema import StreamSchema
from . import calls
from .calls import Call, StreamCalls
from .conversion import schema_of, status_of
from .steps import Download, Pause, Steps, blocking
from .transport import Feed, Refusal, Told, Transport

CATCH_UP_S = 10.0
PATIENCE_S = 60.0
PAUSE_S = 0.2
PAUSE_S_MAX = 5.0


class Following:
    """Position and reconnection state of a feed, shared with ``AsyncTail``."""

    def __init__(self, call: Call, where: str) -> None:
        self.follow = bool(call.query["follow"])
        self.place = str(call.query["after"])
        self._call = replace(
            call, query={**call.query, "format": "arrow", "follow": str(self.follow).lower()}
        )
        self._where = where
        self._ended = False
        self._pause, self._since = PAUSE_S, time.monotonic()

    def call(self) -> Call:
        return replace(self._call, query={**self._call.query, "after": self.place})

    def take(self, marked: Told) -> pa.RecordBatch | None:
        """The events of a batch, if any; advances the position."""
        batch, marks = marked
        self._pause, self._since = PAUSE_S, time.monotonic()
        if b"chronicle.error" in marks:
            document = json.loads(marks[b"chronicle.error"])
            raise Refusal(document["status"], document["code"], document, self._where).error()
        if b"chronicle.place" in marks:
            self.place = marks[b"chronicle.place"].decode()
        self._ended = self._ended or (b"chronicle.bye" in marks and not self.follow)
        return batch if batch.num_rows else None

    @property
    def ended(self) -> bool:
        return self._ended

    def pause(self, broken: ConnectionFailed) -> float:
        """Seconds until the next attempt; raises ``broken`` after too long."""
        if not self.follow or time.monotonic() - self._since > PATIENCE_S:
            raise broken
        pause, self._pause = self._pause, min(2 * self._pause, PAUSE_S_MAX)
        return pause


class RemoteFeed:
    """An iterator of non-empty record batches that waits for more, or stops at the end.

    Closing it also ends it for a thread that waits in it.  The transport's timeout must exceed the
    server's heartbeat, 15 seconds.
    """

    def __init__(self, transport: Transport, call: Call) -> None:
        self._transport = transport
        self._following = Following(call, transport.where)
        self._closed = False
        self._feed: Feed | None = transport.feed(self._following.call())
        self.schema: pa.Schema = self._feed.schema
        self._marked = iter(self._feed)

    @property
    def position(self) -> str:
        """Pass it as ``after`` to resume behind the last batch."""
        return self._following.place

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        following = self._following
        while not (self._closed or following.ended):
            try:
                if self._feed is None:
                    self._feed = self._transport.feed(following.call())
                    self._marked = iter(self._feed)
                for marked in self._marked:
                    batch = following.take(marked)
                    if batch is not None:
                        return batch
                broken = ConnectionFailed(f"{self._transport.where} ended the feed")
            except ConnectionFailed as error:
                broken = error
            self._drop()
            if not (self._closed or following.ended):
                time.sleep(following.pause(broken))
        raise StopIteration

    def _drop(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def close(self) -> None:
        """Stop following; idempotent."""
        self._closed = True
        feed = self._feed
        if feed is not None:
            feed.close()

    def __enter__(self) -> RemoteFeed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def caught_up(timeout: float | None = None) -> Steps[None]:
    """Wait until every live query has processed all present commits (``QueryTimeout``)."""
    ends = None if timeout is None else time.monotonic() + timeout
    while True:
        left = CATCH_UP_S if ends is None else min(CATCH_UP_S, ends - time.monotonic())
        try:
            query = {"timeout_ms": max(1, int(left * 1000))}
            yield Call("POST", "/v1/live/catch-up", query, repeatable=True)
            return
        except QueryTimeout:
            if ends is not None and time.monotonic() >= ends:
                raise


class LiveQueryBase:
    """Base of the blocking and the asynchronous live query."""

    def __init__(self, name: str, described: Any, where: str) -> None:
        self._where = where
        self._times: StreamSchema | None = None
        self.name = name
        self.sql: str = described["sql"]
        self.sink: str = described["sink"]

    def _schema(self) -> Steps[StreamSchema]:
        if self._times is None:
            self._times = schema_of((yield StreamCalls(self.sink).describe()), self._where)
        return self._times

    def __repr__(self) -> str:
        return f"<chronicle.LiveQuery {self.name!r} of {self._where}>"


class RemoteLive(LiveQueryBase):
    """A live query, made by ``RemoteDatabase.live``."""

    def __init__(self, transport: Transport, name: str, described: Any) -> None:
        super().__init__(name, described, transport.where)
        self._transport = transport

    @blocking
    def status(self) -> Steps[dict[str, Any]]:
        """As ``LiveHandle.status``."""
        return status_of((yield calls.live(self.name)), (yield from self._schema()))

    def rows(self, after: int = 0, follow: bool = False) -> RemoteFeed:
        """Results and retractions after the ``_seq`` ``after``, in order; with ``follow``, wait for
        more.
        """
        return RemoteFeed(self._transport, calls.live_rows(self.name, after, follow))

    @blocking
    def net(self, start: object = None, end: object = None) -> Steps[pa.Table]:
        """The current results, as ``NET(name)``; with times in ``[start, end)``."""
        ranged = (start, end) != (None, None)
        schema = (yield from self._schema()) if ranged else None
        rows: pa.Table = yield Download(calls.net(self.name, schema, start, end))
        return rows

    @blocking
    def pause(self) -> Steps[None]:
        """Stop until ``resume``, also across restarts."""
        yield calls.live(self.name, "pause", "POST")

    @blocking
    def resume(self) -> Steps[None]:
        """Continue where it stopped, also after a failure."""
        yield calls.live(self.name, "resume", "POST")

    @blocking
    def refresh(self, start: object = None, end: object = None) -> Steps[None]:
        """Compare results with times in ``[start, end)`` with the query, and correct them."""
        bounds = calls.bounds((yield from self._schema()), start, end)
        yield calls.live(self.name, "refresh", "POST", **bounds)

    @blocking
    def verify(self) -> Steps[int]:
        """Number of missing or wrong results after all commits so far."""
        yield from caught_up()
        return int((yield calls.live(self.name, "verify", "POST"))["differences"])

    @blocking
    def drop(self, keep_results: bool = False) -> Steps[None]:
        """Remove it, and its results unless they are kept."""
        yield calls.live(self.name, "", "DELETE", keep_results=str(keep_results).lower())


FIRST_LOOK_S, LOOK_S_MAX = 0.05, 1.0
Tell = Callable[[dict[str, Any]], None]


class JobBase:
    """Base of the blocking and the asynchronous job."""

    def __init__(self, described: Any, where: str) -> None:
        self._where = where
        self.id: str = described["job_id"]
        self.kind: str = described["kind"]

    def __repr__(self) -> str:
        return f"<chronicle.Job {self.id!r} ({self.kind}) of {self._where}>"


class RemoteJob(JobBase):
    """A job, made by ``RemoteDatabase.start_job`` and ``job``."""

    def __init__(self, transport: Transport, described: Any) -> None:
        super().__init__(described, transport.where)
        self._transport = transport

    @blocking
    def status(self) -> Steps[dict[str, Any]]:
        """Request, ``state``, ``progress`` from 0 to 1, times, ``result`` or ``error``."""
        return dict((yield calls.job(self.id)))

    @blocking
    def wait(self, timeout: float | None = None, tell: Tell | None = None) -> Steps[dict[str, Any]]:
        """Wait for the job and return its result; the server may restart meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait (``QueryTimeout``); the job goes on.
        tell : callable, optional
            Called with each status.

        Raises
        ------
        JobFailed
            It failed, was cancelled, or was lost with its server.
        """
        pause, began = FIRST_LOOK_S, time.monotonic()
        answered = began
        while True:
            try:
                status = yield calls.job(self.id)
            except ConnectionFailed:
                if time.monotonic() - answered > PATIENCE_S:
                    raise
            else:
                answered = time.monotonic()
                if tell is not None:
                    tell(status)
                if status["ended_at"] is not None:
                    return _result(status)
            left = LOOK_S_MAX if timeout is None else began + timeout - time.monotonic()
            if left <= 0:
                raise QueryTimeout(
                    f"the job {self.id} goes on after {timeout:g} s; wait for it again, or cancel "
                    "it"
                )
            yield Pause(min(pause, left))
            pause = min(2 * pause, LOOK_S_MAX)

    @blocking
    def cancel(self) -> Steps[None]:
        """End it before its next step; an ended job is unchanged."""
        yield calls.job(self.id, "DELETE")


def _result(status: dict[str, Any]) -> dict[str, Any]:
    """Result of a job that is done; raises ``JobFailed`` if it ended otherwise."""
    state = status["state"]
    if state != "done":
        why = status["error"] or f"it was {state}"
        raise JobFailed(f"the job {status['job_id']} ({status['kind']}) {state}: {why}")
    return dict(status["result"] or {})
