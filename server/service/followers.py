"""Wakes the followers of a stream on each commit; they wait without threads and polling. ::

    thread that commits            event loop                       a few threads
    listener: schedules one  ->    wakes every follower of   ->     take: the next
    call, if none is pending       the stream                       bytes of its feed

A woken follower sees that commit or a later one.  Recent commits stay in memory for ``LINGER_S``
seconds after the last follower has left, so that a client that lost its connection can resume.
Lives on the event loop.  A server whose store another process writes has no followers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import ChronicleError
from ...store import EventStream

__all__ = ["Follower", "Followers"]

LINGER_S = 60.0


class Follower:
    def __init__(self) -> None:
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    def clear(self) -> None:
        self._news.clear()

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


class Followers:
    def __init__(self) -> None:
        self._streams: dict[EventStream, _Listener] = {}
        self._all: set[Follower] = set()
        self.ending = False

    def __len__(self) -> int:
        return len(self._all)

    @contextmanager
    def follow(self, *streams: EventStream) -> Iterator[Follower]:
        """A follower that commits to any of ``streams`` wake, for the length of the block."""
        follower = Follower()
        self._all.add(follower)
        listeners = [self._listener(stream) for stream in streams]
        for listener in listeners:
            listener.join(follower)
        try:
            yield follower
        finally:
            self._all.discard(follower)
            for listener in listeners:
                listener.leave(follower)

    def _listener(self, stream: EventStream) -> _Listener:
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = _Listener(stream, self._drop)
        return found

    def _drop(self, listener: _Listener) -> None:
        if self._streams.get(listener.stream) is listener:
            del self._streams[listener.stream]

    def wake_all(self) -> None:
        for follower in self._all:
            follower.wake()

    def end(self) -> None:
        self.ending = True
        self.wake_all()
        for listener in list(self._streams.values()):
            listener.close()
        self._streams.clear()


class _Listener:
    def __init__(self, stream: EventStream, drop: Callable[[_Listener], None]) -> None:
        self.stream = stream
        self._drop = drop
        self._loop = asyncio.get_running_loop()
        self._followers: set[Follower] = set()
        self._on_its_way = False
        self._closing: asyncio.TimerHandle | None = None
        self._open = True
        stream.follow()
        stream.subscribe(self._committed)

    def join(self, follower: Follower) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self._followers.add(follower)

    def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)
        if not self._followers and self._open:
            self._closing = self._loop.call_later(LINGER_S, self.close)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._drop(self)
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
            follower.wake()
