"""Memory that the owner of a store writes and one worker reads: inputs cross with one copy.

Purpose
    The owner has a :class:`Region` for a worker and puts the buffers of a batch there
    (:meth:`Region.put`); a message says where.  The worker maps it (:class:`Mapped`), builds its
    arrays on top, and says where it has let go (:meth:`Mapped.take_released`).

Guarantee
    What crosses this way is never read by the owner, so a worker that was taken over changes its
    own input at most: its descriptor does not even allow that.  What comes back goes by the socket
    (:mod:`.channel`), into memory that the worker cannot reach.  There is no waiting for room:
    where none is left, :meth:`Region.put` says so and the batch goes by the socket, too.

Layout
    A ring; places are multiples of 64.  Places are freed in any order, and become room again in the
    order in which they were taken.  A place is freed by a *ticket*, a number that is never used
    again: what a worker still says of an earlier piece of work frees nothing of the next.
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

__all__ = ["Mapped", "Region"]

SIZE = 32 << 20


class Region:
    """The owner's end.

    Attributes
    ----------
    size : int
    """

    size = SIZE

    def __init__(self) -> None:
        self._file = os.memfd_create("inputs", os.MFD_CLOEXEC)
        os.ftruncate(self._file, self.size)
        self._bytes = np.frombuffer(mmap.mmap(self._file, self.size), np.uint8)
        self._live: OrderedDict[int, int] = OrderedDict()  # ticket to beginning
        self._tickets = count(1)
        self._head = 0

    def descriptor(self) -> int:
        """A new descriptor that reads, for the worker."""
        return os.open(f"/proc/self/fd/{self._file}", os.O_RDONLY | os.O_CLOEXEC)

    def put(self, pieces: Sequence[Any]) -> tuple[int, int, int] | None:
        """Copy buffers into the region, each padded to 64 bytes: ticket, place, size; or None."""
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
        if self._live and self._head <= oldest:  # it has gone round
            return self._head if self._head + size <= oldest else None
        if self._head + size <= self.size:
            return self._head
        return 0 if size <= oldest and self._live else None

    def release(self, tickets: Iterable[int]) -> None:
        """Tickets of places that the worker has let go of; others are none of ours."""
        for ticket in tickets:
            self._live.pop(ticket, None)

    def reset(self) -> None:
        """Forget all places: the worker has ended what it used them for."""
        self._live.clear()

    def close(self) -> None:
        """Let go of it; the memory ends with the worker's mapping."""
        os.close(self._file)


class Mapped:
    """The worker's end; any thread may use it.

    Parameters
    ----------
    file : int
        As :meth:`Region.descriptor` gave it; closed here.
    """

    def __init__(self, file: int, size: int) -> None:
        self._map = mmap.mmap(file, size, prot=mmap.PROT_READ)
        os.close(file)
        self._address = pa.py_buffer(self._map).address
        self._released: deque[int] = deque()

    def buffer(self, ticket: int, place: int, size: int) -> pa.Buffer:
        """The bytes of a place; it is released when nothing refers to them any more."""
        held = _Held(self._map, ticket, self._released)
        return pa.foreign_buffer(self._address + place, size, held)

    def take_released(self) -> list[int]:
        """Tickets of the places that were released since this was asked."""
        return [self._released.popleft() for _ in range(len(self._released))]


class _Held:
    """Keeps the map, and notes the end of a place."""

    def __init__(self, map_: mmap.mmap, ticket: int, released: deque[int]) -> None:
        self._map = map_
        self._ticket = ticket
        self._released = released

    def __del__(self) -> None:
        self._released.append(self._ticket)
