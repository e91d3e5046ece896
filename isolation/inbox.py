"""What comes in for several threads over one channel: whoever waits for something receives.

Purpose
    A worker's jobs and the inputs of its scans come by one :class:`~.channel.Channel`.  Each of
    its threads waits for messages of its own (:meth:`Inbox.take`); the one that finds nobody
    receiving does so, and gives the others what is theirs.  A thread of its own for that would be
    one more turn of the scheduler for every message, which is most of what a small query costs.

Guarantee
    While this side sends and the other takes nothing, what comes in is received, so that two sides
    that both send do not wait for each other (:meth:`Inbox.send`).  What nobody waits for any more
    is dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from .channel import Channel

__all__ = ["Inbox"]

Message = tuple[dict[str, Any], pa.Buffer | None]
LOOK_S = 0.02


class Inbox:
    """Messages by number: that of the key ``"scanned"``, 0 without one.

    A message may say which numbers come behind it, ``"announced"``: they are expected before the
    next message is received, by whichever thread that is.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._changed = threading.Condition()
        self._receiving = False
        self._held: dict[int, deque[Message]] = {0: deque()}

    def expect(self, number: int) -> None:
        """Keep messages of a number from now on."""
        self._held[number] = deque()

    def forget(self) -> None:
        """Expect nothing but what has no number."""
        self._held = {0: self._held[0]}

    def take(self, number: int = 0) -> Message:
        """The next message of a number.

        Raises
        ------
        ChannelClosed
        """
        waiting = self._held[number]
        with self._changed:
            while not waiting and self._receiving:
                self._changed.wait()
            if waiting:
                return waiting.popleft()
            self._receiving = True
        try:
            while not waiting:
                self._receive()
            return waiting.popleft()
        finally:
            self._end()

    def _receive(self) -> None:
        message, data = self._channel.receive()
        for number in message.get("announced", ()):
            self.expect(number)
        held = self._held.get(message.get("scanned", 0))
        if held is not None:
            with self._changed:
                held.append((message, data))
                self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._receiving = False
            self._changed.notify_all()

    def send(self, message: Any, data: Sequence[Any] = ()) -> None:
        """Send, and receive meanwhile where the other side does not take it.

        Raises
        ------
        ChannelClosed
        """
        self._channel.send(message, data, meanwhile=self._receive_meanwhile)

    def _receive_meanwhile(self) -> None:
        with self._changed:
            mine, self._receiving = not self._receiving, True
        if not mine:
            self._channel.writable(LOOK_S)
            return
        try:
            if self._channel.writable(LOOK_S, or_readable=True):
                self._receive()
        finally:
            self._end()
