"""Feeds of a server, followed: what a stream takes in, or a live query puts out.

Purpose
    :class:`RemoteFeed` reads a feed as an Arrow stream and connects again where it broke off.
    :class:`Following` is what the asynchronous one has in common with it: where it stands, and what
    the marks of a batch mean.

Guarantee
    Every row once and in order, over lost connections and restarts of the server: it goes on
    behind the last batch that it has given.  What the server says cannot be gone on with is raised.

Limits
    A connection that keeps failing is tried again for :data:`PATIENCE_S` without a word from the
    server, then :class:`.ConnectionFailed` is raised.
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
    """Where a feed stands; see the module.

    Parameters
    ----------
    call : Call
        ``after`` and ``follow`` are in its query.
    """

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
        """The request that goes on from here."""
        return replace(self._call, query={**self._call.query, "after": self.place})

    def take(self, told: Told) -> pa.RecordBatch | None:
        """The events of a batch, if it has any; from now on the feed stands behind them."""
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
        """Whether the server has said that this is all."""
        return self._ended

    def pause(self, broken: ConnectionFailed) -> float:
        """Seconds to wait before the next try; raises when it is enough."""
        if not self.follow or time.monotonic() - self._since > PATIENCE_S:
            raise broken
        pause, self._pause = self._pause, min(2 * self._pause, PAUSE_S_MAX)
        return pause


class RemoteFeed:
    """An iterator of record batches (never empty) that waits for more, or ends at the end.

    Also a context manager; closing it ends it, for a thread that waits in it as well.

    Parameters
    ----------
    transport : Transport
        Its timeout must be longer than the server's heartbeat, 15 seconds.
    call : Call
        ``after`` and ``follow`` among its query.

    Attributes
    ----------
    schema : pyarrow.Schema
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
        """Where it stands: another one with ``after`` this goes on behind what this one gave."""
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
        """Follow no more; doing so again does nothing."""
        self._closed = True
        feed = self._feed
        if feed is not None:
            feed.close()

    def __enter__(self) -> RemoteFeed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
