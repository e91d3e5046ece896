"""Whole files past the system's cache of pages: what is written once, and hardly read again.

Purpose
    A segment that moves to a directory of objects is written there, and read back once.  Through
    the page cache each of its bytes would take a page of it, at the cost of those that queries read
    from; to find, clear and map these pages is most of what a move takes of a processor.
    :class:`DirectWriter` and :func:`contents` ask the disk itself (``O_DIRECT``).

    ::

        parts   |--|----|---|-----| ... |-|
        buffer  |  BUFFER_BYTES  |  BUFFER_BYTES  | rest |
        file    | past the cache | past the cache | through it (it ends anywhere)

Guarantee
    The bytes are the same where a file system knows nothing of it: then they go through the cache.
    What :func:`contents` gives is what the disk has, not what the cache remembers of a write.

Limits
    Linux.  Each buffer is a request to the disk that is waited for; nothing is read ahead.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

import numpy as np

from .file_contract import nbytes

__all__ = ["BUFFER_BYTES", "DirectWriter", "contents"]

BUFFER_BYTES = 1 << 20
"""A multiple of each block size of a disk, and so aligned in memory, since it is mapped."""

_DIRECT = getattr(os, "O_DIRECT", 0)


def _set_direct(descriptor: int, wanted: bool) -> bool:
    """Have a file go past the cache, or through it; whether it goes past it now."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    asked = flags | _DIRECT if wanted else flags & ~_DIRECT
    with suppress(OSError):  # a file system without it refuses
        fcntl.fcntl(descriptor, fcntl.F_SETFL, asked)
        return wanted and _DIRECT != 0
    return False


class DirectWriter:
    """A new file, in the place of one that is there.

    Parameters
    ----------
    path : str
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)
        self._bytes = np.frombuffer(self._buffer, np.uint8)
        self._used = 0
        self._direct = _set_direct(self._descriptor, True)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        if not nbytes(data):  # of which NumPy makes no array
            return
        left = np.frombuffer(data, np.uint8)
        while left.size:
            step = min(left.size, BUFFER_BYTES - self._used)
            # NumPy lets other threads compute meanwhile, a slice of the mapping would not
            np.copyto(self._bytes[self._used : self._used + step], left[:step])
            self._used, left = self._used + step, left[step:]
            if self._used == BUFFER_BYTES:
                self._put_out()

    def sync(self) -> None:
        """Write what is left, and have all of it be durable."""
        if self._direct:
            self._direct = _set_direct(self._descriptor, False)
        self._put_out()
        os.fsync(self._descriptor)

    def _put_out(self) -> None:
        view = memoryview(self._buffer)[: self._used]
        while view:
            try:
                written = os.write(self._descriptor, view)
            except OSError as error:
                if not self._direct or error.errno != errno.EINVAL:
                    raise
                written = 0  # blocks of this disk are larger, or it wants none of it after all
            if self._direct and (written % mmap.PAGESIZE or not written):
                self._direct = _set_direct(self._descriptor, False)
            view = view[written:]
        self._used = 0

    def close(self) -> None:
        """Close the file; what was not synced may be there or not."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def contents(path: str) -> Iterator[memoryview]:
    """All bytes of a file in order, some at a time; each view holds until the next is asked for."""
    buffer = mmap.mmap(-1, BUFFER_BYTES)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        direct, offset = _set_direct(descriptor, True), 0
        while True:
            try:
                found = os.preadv(descriptor, [buffer], offset)
            except OSError as error:
                if not direct or error.errno != errno.EINVAL:
                    raise
                direct = _set_direct(descriptor, False)
                continue
            if not found:
                return
            yield memoryview(buffer)[:found]
            offset += found
            if direct and found % mmap.PAGESIZE:  # the end; or the rest begins within a block
                direct = _set_direct(descriptor, False)
    finally:
        os.close(descriptor)
