"""Messages between the two sides of an isolated piece of work.

Purpose
    A :class:`Channel` sends a small message and some buffers over a socket, and receives the same.

Layout
    ::

        [magic 4][message bytes u32][data bytes u64][message][data]

    What the owner of the store sends is pickled, what it receives is JSON: the one who may have
    been taken over never chooses what the other one's unpickler does.

Guarantee
    No length that comes in is believed: beyond :data:`MESSAGE_MAX` or the channel's own limit the
    other side counts as broken (:class:`Garbage`) before a byte is allocated.  Data arrive in
    memory of the receiver's own, aligned to 64 bytes, which nobody else can change afterwards.
    That is why what a worker sends crosses by a socket and not by shared memory; large inputs,
    which only the worker has to believe, go by :mod:`.region`.

Limits
    One thread sends at a time (a lock sees to it), one receives.
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
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ..errors import ChronicleError

__all__ = ["Channel", "ChannelClosed", "Garbage"]

MESSAGE_MAX = 16 << 20
DATA_MAX = 4 << 30
SOCKET_BYTES = 4 << 20
"""Of one batch, so that the two sides need not take turns within it."""
GATHERED_BYTES = 1 << 16
_HEADER = struct.Struct("=4sIQ")
_MAGIC = b"CHR1"
_PAD = bytes(64)
_SO_SNDBUFFORCE = 32


class ChannelClosed(ChronicleError):
    """The other side is gone."""


class Garbage(ChronicleError):
    """The other side sends what it never would in its right mind."""


class Channel:
    """One end of the socket between the owner of a store and a worker.

    Parameters
    ----------
    trusted : bool
        Whether what comes in is from the owner of the store: pickled, perhaps with a file.
    data_max : int
        Most bytes of data that one message may bring.
    """

    def __init__(self, end: socket.socket, *, trusted: bool, data_max: int = DATA_MAX) -> None:
        self._socket = end
        self._trusted = trusted
        self._data_max = data_max
        self._sending = threading.Lock()
        for option in (
            socket.SO_SNDBUF,
            _SO_SNDBUFFORCE,
        ):  # beyond the system's limit for root only
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
        """Send a message, buffers (each padded to 64 bytes) and from the owner also a file.

        ``meanwhile`` is called, again and again, while the other side takes nothing.
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
        """Wait until the other side takes something; whether, instead, something has come in."""
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT | (select.POLLIN if or_readable else 0))
        return any(events & select.POLLIN for _, events in poll.poll(seconds * 1000))

    def waiting(self, seconds: float = 0.0) -> bool:
        """Whether something has come in, or the other side is gone."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def receive(self) -> tuple[Any, pa.Buffer | None]:
        """The next message and its data.

        Raises
        ------
        ChannelClosed, Garbage
        """
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
        """Let go of a copy that a fork made; the connection stays."""
        self._socket.close()

    def close(self) -> None:
        """Hang up; the other side notices."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self.file is not None:
            os.close(self.file)
            self.file = None
