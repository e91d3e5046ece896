"""Follows a feed of a server: every row once and in order, across lost connections and server
restarts.  After ``PATIENCE_S`` seconds of failed attempts it raises ``ConnectionFailed``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from ..errors import ConnectionFailed
from .arrow_stream import Told
from .calls import Call
from .problems import Refusal
from .transport import Feed, Transport

__all__ = ["Following", "RemoteFeed"]

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

    def take(self, told: Told) -> pa.RecordBatch | None:
        """The events of a batch, if any; advances the position."""
        batch, marks = told
        self._pause, self._since = PAUSE_S, time.monotonic()
        if b"chronicle.error" in marks:
            said = json.loads(marks[b"chronicle.error"])
            raise Refusal(said["status"], said["code"], said, self._where).error()
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
        self._told = iter(self._feed)

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
                    self._told = iter(self._feed)
                for told in self._told:
                    batch = following.take(told)
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
