"""Demultiplexes one channel to several threads of a worker: the first one waiting receives for all,
as a receiver thread would add a context switch per message.  A send also receives while the peer
does not read, so that two senders do not deadlock.  Messages that nobody expects are dropped.
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
    """Messages by number (key ``"scanned"``, else 0); ``"announced"`` numbers are expected from
    then on.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._changed = threading.Condition()
        self._receiving = False
        self._held: dict[int, deque[Message]] = {0: deque()}

    def expect(self, number: int) -> None:
        self._held[number] = deque()

    def forget(self) -> None:
        """Expect only messages without a number."""
        self._held = {0: self._held[0]}

    def take(self, number: int = 0) -> Message:
        """The next message of a number; raises ``ChannelClosed``."""
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
        """Send, receiving meanwhile if the peer does not read; raises ``ChannelClosed``."""
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
