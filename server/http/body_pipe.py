"""Carries an answer's bytes from a worker thread to the event loop, with backpressure. ::

    worker thread                                event loop
    write(bytes) -> blocks of >= 64 KiB  ->  [queue, <= 4 MiB]  ->  await next_block()

A slow client blocks the thread; after a disconnect the thread's next write raises.  An exception of
the thread arrives after the bytes written before it.  One writer, one reader.

Server-sent events are ``text/event-stream`` (WHATWG HTML, section 9.2.6)::

    event: row                  the kind; "message" without this line
    id: 79.3                    what the client sends back as Last-Event-ID
    data: {"t": 1}              one such line for each line of the text
                                an empty line dispatches the event
    : comment                   ignored by clients; keeps proxies from closing the connection
    retry: 2000                 milliseconds before a client reconnects

Names and ids with a line break, and ids with NUL, are refused.
"""

from __future__ import annotations

import asyncio
import io
import re
import threading
from collections import deque
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import QueryCancelled
from ...formats.writers import json_bytes

BLOCK_BYTES = 64 * 1024
QUEUE_BYTES = 4 * 1024 * 1024


class BodyPipe(io.RawIOBase):
    """A bounded queue of bytes; create it on the event loop that reads it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._space = threading.Condition()
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

    def end(self, error: BaseException | None = None) -> None:
        with self._space:  # the last block and the end become visible together
            if error is None and self._block:
                self._queue.append(b"".join(self._block))
            self._block = []
            self._ended = True
            self._error = error
        self._wake()

    def _put(self, block: bytes) -> None:
        with self._space:
            while self._queued >= QUEUE_BYTES and not self._abandoned:
                self._space.wait()
            if self._abandoned:
                raise QueryCancelled("the client went away")
            self._queue.append(block)
            self._queued += len(block)
        self._wake()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
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


MEDIA_TYPE = "text/event-stream"
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
