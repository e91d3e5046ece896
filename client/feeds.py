"""Feeds of a server, followed: what a stream takes in, or a live query puts out.

Purpose
    :class:`RemoteFeed` reads a feed as an Arrow stream and connects again where it broke off.

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
from typing import Any

import pyarrow as pa

from ..errors import ConnectionFailed
from .transport import Transport, error_of

__all__ = ["RemoteFeed"]

PATIENCE_S = 60.0
PAUSE_S = 0.2
PAUSE_S_MAX = 5.0


class RemoteFeed:
    """An iterator of record batches (never empty) that waits for more, or ends at the end.

    Parameters
    ----------
    transport : Transport
        Its timeout must be longer than the server's heartbeat, 15 seconds.
    path : str
    query : dict
        ``after`` and ``follow`` among it.

    Attributes
    ----------
    schema : pyarrow.Schema
    place : str
        Where it stands.
    """

    def __init__(self, transport: Transport, path: str, query: dict[str, Any]) -> None:
        self._transport = transport
        self._path = path
        self._query = {**query, "format": "arrow", "follow": str(bool(query["follow"])).lower()}
        self._follow = bool(query["follow"])
        self.place = str(query["after"])
        self._batches = self._connected()
        self.schema: pa.Schema = self._batches.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        pause, since = PAUSE_S, time.monotonic()
        while True:
            try:
                for batch, marks in self._batches:
                    pause, since = PAUSE_S, time.monotonic()
                    if b"chronicle.error" in marks:
                        raise self._told(marks[b"chronicle.error"])
                    place = marks.get(b"chronicle.place")
                    if batch.num_rows:
                        yield batch
                    if place is not None:
                        self.place = place.decode()
                    if b"chronicle.bye" in marks and not self._follow:
                        return
                broken = ConnectionFailed(f"{self._transport.where} ended the feed")
            except ConnectionFailed as error:
                broken = error
            while True:
                if not self._follow or time.monotonic() - since > PATIENCE_S:
                    raise broken
                time.sleep(pause)
                pause = min(2 * pause, PAUSE_S_MAX)
                try:
                    self._batches = self._connected()
                    break
                except ConnectionFailed as error:
                    broken = error

    def _connected(self) -> Any:
        return self._transport.feed(self._path, {**self._query, "after": self.place})

    def _told(self, text: bytes) -> Exception:
        told = json.loads(text)
        document = {"type": told["code"], "detail": told["detail"]}
        return error_of(told["status"], json.dumps(document).encode(), self._transport.where)
