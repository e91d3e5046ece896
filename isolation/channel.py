"""Messages with buffers over a socket, between the owner of a store and a worker. ::

    [magic 4][message bytes u32][data bytes u64][message][data]

The owner sends pickles and receives JSON, so a compromised worker never controls an unpickler.
Lengths beyond ``MESSAGE_MAX`` or the channel's limit raise ``Garbage`` before allocation.  Data is
received into private memory, aligned to 64 bytes, that nobody else can change; so data uses the
socket, not shared memory.  A lock serialises senders.

Several threads of a worker share a channel: the first one that waits receives for all, as a
receiver thread would add a context switch per message.  A send also receives while the peer does
not read, so that two senders do not deadlock.  Messages that nobody expects are dropped.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import pickle
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ..core.ownership import Condition
from ..errors import ChronicleError

MESSAGE_MAX = 16 << 20
DATA_MAX = 4 << 30
SOCKET_BYTES = 4 << 20
"""Fits one batch, so that the two sides need not alternate within it."""
GATHERED_BYTES = 1 << 16
_HEADER = struct.Struct("=4sIQ")
_MAGIC = b"CHR1"
_PAD = bytes(64)
_SO_SNDBUFFORCE = 32


class ChannelClosed(ChronicleError):
    """The other side is gone."""


class Garbage(ChronicleError):
    """The other side sent a malformed message."""


class Channel:
    """One end; with ``trusted`` the peer is the owner (pickles, perhaps with a file descriptor)."""

    def __init__(self, end: socket.socket, *, trusted: bool, data_max: int = DATA_MAX) -> None:
        self._socket = end
        self._trusted = trusted
        self._data_max = data_max
        self._sending = threading.Lock()
        for option in (socket.SO_SNDBUF, _SO_SNDBUFFORCE):  # above the system's limit only as root
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        self.file: int | None = None

    def send(
        self,
        message: Any,
        data: Sequence[Any] = (),
        file: int | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Send a message and buffers, each padded to 64 bytes, and from the owner a file
        descriptor; ``meanwhile`` is called repeatedly while the other side does not read.
        """
        body = json.dumps(message).encode() if self._trusted else pickle.dumps(message)
        size = sum(-(-len(piece) // 64) * 64 for piece in data)
        gathered = bytearray(_HEADER.pack(_MAGIC, len(body), size))
        gathered += body
        with self._sending:
            try:
                if file is not None:
                    rights = array.array("i", [file])
                    control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
                    sent = self._socket.sendmsg([gathered], control)
                    del gathered[:sent]
                for piece in data:
                    if len(piece) + len(gathered) > GATHERED_BYTES:
                        self._write(gathered, meanwhile)
                        gathered = bytearray()
                    if len(piece) > GATHERED_BYTES:
                        self._write(piece, meanwhile)
                    else:
                        gathered += piece
                    gathered += _PAD[: -len(piece) % 64]
                self._write(gathered, meanwhile)
            except OSError as error:
                raise ChannelClosed(f"the other side is gone ({error})") from None

    def _write(self, data: Any, meanwhile: Callable[[], None] | None) -> None:
        if meanwhile is None:
            self._socket.sendall(data)
            return
        view = memoryview(data)
        while len(view):
            try:
                view = view[self._socket.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                meanwhile()

    def writable(self, seconds: float, *, or_readable: bool = False) -> bool:
        """Wait until the socket is writable; returns whether it became readable instead."""
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT | (select.POLLIN if or_readable else 0))
        return any(events & select.POLLIN for _, events in poll.poll(seconds * 1000))

    def waiting(self, seconds: float = 0.0) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def receive(self) -> tuple[Any, pa.Buffer | None]:
        """The next message and its data; raises ``ChannelClosed`` or ``Garbage``."""
        magic, message_bytes, data_bytes = _HEADER.unpack(self._header())
        if magic != _MAGIC or message_bytes > MESSAGE_MAX or data_bytes > self._data_max:
            raise Garbage("the worker's answer is no message")
        body = bytearray(message_bytes)
        self._fill(memoryview(body))
        data = None
        if data_bytes:
            data = pa.allocate_buffer(data_bytes)
            self._fill(memoryview(data).cast("B"))
        try:
            return (pickle.loads(body) if self._trusted else json.loads(body)), data
        except (ValueError, RecursionError) as error:
            raise Garbage(f"the worker's answer cannot be read ({error})") from None

    def _header(self) -> bytearray:
        header = bytearray(_HEADER.size)
        if not self._trusted:
            self._fill(memoryview(header))
            return header
        rights = socket.CMSG_SPACE(struct.calcsize("i"))
        try:
            count, control, _, _ = self._socket.recvmsg_into([header], rights)
        except OSError:
            count = 0
        if not count:
            raise ChannelClosed("the owner is gone")
        for _, _, brought in control:
            self.file = struct.unpack("i", brought[: struct.calcsize("i")])[0]
        self._fill(memoryview(header)[count:])
        return header

    def _fill(self, view: memoryview) -> None:
        while len(view):
            try:
                count = self._socket.recv_into(view)
            except OSError:
                count = 0
            if not count:
                raise ChannelClosed("the other side is gone")
            view = view[count:]

    def forget(self) -> None:
        """Close a forked copy without ending the connection."""
        self._socket.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self.file is not None:
            os.close(self.file)
            self.file = None


Message = tuple[dict[str, Any], pa.Buffer | None]
LOOK_S = 0.02


class Inbox:
    """Messages by number (key ``"scanned"``, else 0)."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._changed = Condition()
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
