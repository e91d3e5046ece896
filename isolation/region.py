"""Shared memory that the owner writes and one worker reads: inputs cross with one copy.  The owner
never reads it, and the worker's descriptor is read-only.  If it is full, ``Region.put`` returns
None and the batch uses the socket.  It is a ring of places at multiples of 64, released in any
order and reclaimed in the order of allocation.  Each has a *ticket*, never reused: late releases of
earlier work free nothing.
"""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

SIZE = 32 << 20


class Region:
    size = SIZE

    def __init__(self) -> None:
        self._file = os.memfd_create("inputs", os.MFD_CLOEXEC)
        os.ftruncate(self._file, self.size)
        self._bytes = np.frombuffer(mmap.mmap(self._file, self.size), np.uint8)
        self._live: OrderedDict[int, int] = OrderedDict()  # ticket to offset
        self._tickets = count(1)
        self._head = 0

    def descriptor(self) -> int:
        return os.open(f"/proc/self/fd/{self._file}", os.O_RDONLY | os.O_CLOEXEC)

    def put(self, pieces: Sequence[Any]) -> tuple[int, int, int] | None:
        """Copy buffers, each padded to 64 bytes: ticket, place, size; None if full."""
        size = sum(-(-len(piece) // 64) * 64 for piece in pieces)
        begin = self._room(size)
        if begin is None:
            return None
        at = begin
        for piece in pieces:
            if len(piece):
                self._bytes[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += -(-len(piece) // 64) * 64
        ticket = next(self._tickets)
        self._live[ticket] = begin
        self._head = begin + size
        return ticket, begin, size

    def _room(self, size: int) -> int | None:
        if not size:
            return None
        if not self._live:
            self._head = 0
        oldest = next(iter(self._live.values()), self.size)
        if self._live and self._head <= oldest:  # wrapped around
            return self._head if self._head + size <= oldest else None
        if self._head + size <= self.size:
            return self._head
        return 0 if size <= oldest and self._live else None

    def release(self, tickets: Iterable[int]) -> None:
        """Release the places of tickets; unknown ones are ignored."""
        for ticket in tickets:
            self._live.pop(ticket, None)

    def reset(self) -> None:
        """Forget all places, when the worker has ended its work."""
        self._live.clear()

    def close(self) -> None:
        os.close(self._file)


class Mapped:
    """The worker's end; thread-safe.  ``file`` is from ``Region.descriptor``, and closed here."""

    def __init__(self, file: int, size: int) -> None:
        self._map = mmap.mmap(file, size, prot=mmap.PROT_READ)
        os.close(file)
        self._address = pa.py_buffer(self._map).address
        self._released: deque[int] = deque()

    def buffer(self, ticket: int, place: int, size: int) -> pa.Buffer:
        """The bytes of a place, released when nothing refers to them."""
        held = _Held(self._map, ticket, self._released)
        return pa.foreign_buffer(self._address + place, size, held)

    def take_released(self) -> list[int]:
        """Tickets released since the last call."""
        return [self._released.popleft() for _ in range(len(self._released))]


class _Held:
    def __init__(self, map_: mmap.mmap, ticket: int, released: deque[int]) -> None:
        self._map = map_
        self._ticket = ticket
        self._released = released

    def __del__(self) -> None:
        self._released.append(self._ticket)
