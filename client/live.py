"""Live queries of a server (``db.live(name)``), and its jobs.

A feed gives every row once and in order, across lost connections and server restarts.  After
``PATIENCE_S`` seconds of failed attempts it raises ``ConnectionFailed``.

Jobs: ``db.start_job(kind)`` and ``db.job(job_id)``; any process may use a job by its id.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ..core.closing import Closing
from ..errors import ConnectionFailed, JobFailed, QueryTimeout
from ..schema import StreamSchema
from . import calls
from .calls import Call, path_of
from .conversion import schema_of, status_of
from .transport import Feed, Refusal, Transport

CATCH_UP_S = 10.0
PATIENCE_S = 60.0
PAUSE_S = 0.2
PAUSE_S_MAX = 5.0


class RemoteFeed(Closing):
    """An iterator of non-empty record batches that waits for more, or stops at the end.

    Closing it also ends it for a thread that waits in it.  The transport's timeout must exceed the
    server's heartbeat, 15 seconds.
    """

    def __init__(self, transport: Transport, call: Call) -> None:
        self._transport = transport
        self._follow = bool(call.query["follow"])
        self._query = {**call.query, "format": "arrow", "follow": str(self._follow).lower()}
        self._call = call
        self._ended = False
        self._pause, self._since = PAUSE_S, time.monotonic()
        self.position = str(call.query["after"])
        """Pass it as ``after`` to resume behind the last batch."""
        self._feed: Feed | None = self._connected()
        self.schema: pa.Schema = self._feed.schema

    def _connected(self) -> Feed:
        query = {**self._query, "after": self.position}
        feed = self._transport.feed(replace(self._call, query=query))
        self._marked = iter(feed)
        return feed

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        while not self._ended:
            try:
                if self._feed is None:
                    self._feed = self._connected()
                for batch, marks in self._marked:
                    self._take(marks)
                    if batch.num_rows:
                        return batch
                broken = ConnectionFailed(f"{self._transport.where} ended the feed")
            except ConnectionFailed as error:
                broken = error
            feed, self._feed = self._feed, None
            if feed is not None:
                feed.close()
            if not self._ended:
                self._wait(broken)
        raise StopIteration

    def _take(self, marks: Mapping[bytes, bytes]) -> None:
        """Advance by what a batch says besides its events."""
        self._pause, self._since = PAUSE_S, time.monotonic()
        if b"chronicle.error" in marks:
            document = json.loads(marks[b"chronicle.error"])
            where = self._transport.where
            raise Refusal(document["status"], document["code"], document, where).error()
        if b"chronicle.place" in marks:
            self.position = marks[b"chronicle.place"].decode()
        self._ended = self._ended or (b"chronicle.bye" in marks and not self._follow)

    def _wait(self, broken: ConnectionFailed) -> None:
        """Wait until the next attempt; raises ``broken`` after too long."""
        if not self._follow or time.monotonic() - self._since > PATIENCE_S:
            raise broken
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSE_S_MAX)

    def close(self) -> None:
        """Stop following; idempotent."""
        self._ended = True
        feed = self._feed
        if feed is not None:
            feed.close()


def caught_up(transport: Transport, timeout: float | None = None) -> None:
    """Wait until every live query has processed all present commits (``QueryTimeout``)."""
    ends = None if timeout is None else time.monotonic() + timeout
    while True:
        left = CATCH_UP_S if ends is None else min(CATCH_UP_S, ends - time.monotonic())
        try:
            query = {"timeout_ms": max(1, int(left * 1000))}
            transport.ask("POST", "live", "catch-up", query=query, repeatable=True)
            return
        except QueryTimeout:
            if ends is not None and time.monotonic() >= ends:
                raise


class RemoteLive:
    """A live query, made by ``RemoteDatabase.live``."""

    def __init__(self, transport: Transport, name: str, described: Any) -> None:
        self._transport = transport
        self._times: StreamSchema | None = None
        self.name = name
        self.sql: str = described["sql"]
        self.sink: str = described["sink"]

    def _schema(self) -> StreamSchema:
        if self._times is None:
            described = self._transport.ask("GET", "streams", self.sink)
            self._times = schema_of(described, self._transport.where)
        return self._times

    def _ask(self, method: str, *what: str, **query: object | None) -> Any:
        path = "live", self.name, *what
        return self._transport.ask(method, *path, query=query, repeatable=True)

    def __repr__(self) -> str:
        return f"<chronicle.LiveQuery {self.name!r} of {self._transport.where}>"

    def status(self) -> dict[str, Any]:
        """As ``LiveHandle.status``."""
        return status_of(self._ask("GET"), self._schema())

    def rows(self, after: int = 0, follow: bool = False) -> RemoteFeed:
        """Results and retractions after the ``_seq`` ``after``, in order; with ``follow``, wait for
        more.
        """
        path, query = path_of("live", self.name, "rows"), {"after": after, "follow": follow}
        return RemoteFeed(self._transport, Call("GET", path, query))

    def net(self, start: object = None, end: object = None) -> pa.Table:
        """The current results, as ``NET(name)``; with times in ``[start, end)``."""
        ranged = (start, end) != (None, None)
        schema = self._schema() if ranged else None
        return self._transport.batches(calls.net(self.name, schema, start, end)).read_all()

    def pause(self) -> None:
        """Stop until ``resume``, also across restarts."""
        self._ask("POST", "pause")

    def resume(self) -> None:
        """Continue where it stopped, also after a failure."""
        self._ask("POST", "resume")

    def refresh(self, start: object = None, end: object = None) -> None:
        """Compare results with times in ``[start, end)`` with the query, and correct them."""
        bounds = calls.bounds(self._schema(), start, end)
        self._ask("POST", "refresh", **bounds)

    def verify(self) -> int:
        """Number of missing or wrong results after all commits so far."""
        caught_up(self._transport)
        return int(self._ask("POST", "verify")["differences"])

    def drop(self, keep_results: bool = False) -> None:
        """Remove it, and its results unless they are kept."""
        self._ask("DELETE", keep_results=str(keep_results).lower())


FIRST_LOOK_S, LOOK_S_MAX = 0.05, 1.0
Tell = Callable[[dict[str, Any]], None]


class RemoteJob:
    """A job, made by ``RemoteDatabase.start_job`` and ``job``."""

    def __init__(self, transport: Transport, described: Any) -> None:
        self._transport = transport
        self.id: str = described["job_id"]
        self.kind: str = described["kind"]

    def _status(self) -> Any:
        return self._transport.ask("GET", "jobs", self.id)

    def __repr__(self) -> str:
        return f"<chronicle.Job {self.id!r} ({self.kind}) of {self._transport.where}>"

    def status(self) -> dict[str, Any]:
        """Request, ``state``, ``progress`` from 0 to 1, times, ``result`` or ``error``."""
        return dict(self._status())

    def wait(self, timeout: float | None = None, tell: Tell | None = None) -> dict[str, Any]:
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
                status = self._status()
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
            time.sleep(min(pause, left))
            pause = min(2 * pause, LOOK_S_MAX)

    def cancel(self) -> None:
        """End it before its next step; an ended job is unchanged."""
        self._transport.ask("DELETE", "jobs", self.id)


def _result(status: dict[str, Any]) -> dict[str, Any]:
    """Result of a job that is done; raises ``JobFailed`` if it ended otherwise."""
    state = status["state"]
    if state != "done":
        why = status["error"] or f"it was {state}"
        raise JobFailed(f"the job {status['job_id']} ({status['kind']}) {state}: {why}")
    return dict(status["result"] or {})
