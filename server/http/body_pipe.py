"""From a worker thread to the event loop: an answer's bytes, in order, with back-pressure.

Purpose
    Answers are computed and encoded in a thread, written to a socket on the event loop.
    :class:`BodyPipe` is a file to the one and an iterator to the other.  When the client takes its
    bytes slowly the thread waits; when the client goes away the thread's next write raises.

Layout
    ::

        worker thread                                event loop
        write(bytes) -> blocks of >= 64 KiB  ->  [queue, <= 4 MiB]  ->  await next_block()

Guarantee
    Bytes arrive in order.  An exception of the thread arrives after the bytes written before it.
    Memory is bounded by the queue and one block.

Limits
    One writer, one reader.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections import deque
from typing import Any

from ...errors import QueryCancelled

__all__ = ["BodyPipe"]

BLOCK_BYTES = 64 * 1024
QUEUE_BYTES = 4 * 1024 * 1024


class BodyPipe(io.RawIOBase):
    """A bounded queue of bytes; make it on the event loop that reads it."""

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

    # --- the thread's side: a binary file that is only written to

    def writable(self) -> bool:
        """A file says so."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self.written

    def close(self) -> None:
        """Do nothing: encoders close their file, and :meth:`end` ends the answer."""

    def flush(self) -> None:
        """Hand on what has been gathered."""
        if self._block:
            block, self._block, self._block_bytes = b"".join(self._block), [], 0
            self._put(block)

    def write(self, data: Any) -> int:
        """Take bytes; waits while the queue is full, raises when the reader has given up."""
        piece = bytes(data)
        self._block.append(piece)
        self._block_bytes += len(piece)
        self.written += len(piece)
        if self._block_bytes >= BLOCK_BYTES:
            self.flush()
        return len(piece)

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing follows, or what went wrong instead."""
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
        except RuntimeError:  # the loop is gone: the server was stopped hard
            self._abandoned = True

    # --- the event loop's side

    @property
    def complete(self) -> bool:
        """Whether everything was written and read, without an error."""
        with self._space:
            return self._ended and self._error is None and not self._queue

    async def next_block(self) -> bytes | None:
        """The next block; None at the end; raises what the thread raised."""
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
        """Read no more: a write that waits or comes raises :class:`QueryCancelled`."""
        with self._space:
            self._abandoned = True
            self._queue.clear()
            self._queued = 0
            self._space.notify_all()
