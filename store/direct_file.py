"""Direct I/O (``O_DIRECT``) for files that are written once and hardly read again.

The page cache would evict pages that queries need, and managing its pages is most of the processor
time of a segment's move.  Without support for it the same bytes go through the cache, as does the
unaligned rest of a file.  ``contents`` gives what the disk has, not what the cache remembers of a
write.  Linux; each buffer is one synchronous request, without read-ahead.
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
"""A multiple of all disk block sizes; the buffer is mapped, so aligned in memory."""

_DIRECT = getattr(os, "O_DIRECT", 0)


def _set_direct(descriptor: int, wanted: bool) -> bool:
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    asked = flags | _DIRECT if wanted else flags & ~_DIRECT
    with suppress(OSError):  # not supported by the file system
        fcntl.fcntl(descriptor, fcntl.F_SETFL, asked)
        return wanted and _DIRECT != 0
    return False


class DirectWriter:
    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)
        self._bytes = np.frombuffer(self._buffer, np.uint8)
        self._used = 0
        self._direct = _set_direct(self._descriptor, True)

    def write(self, data: bytes | memoryview) -> None:
        if not nbytes(data):  # NumPy rejects empty buffers
            return
        left = np.frombuffer(data, np.uint8)
        while left.size:
            step = min(left.size, BUFFER_BYTES - self._used)
            # NumPy releases the interpreter lock, a slice of the mapping would not
            np.copyto(self._bytes[self._used : self._used + step], left[:step])
            self._used, left = self._used + step, left[step:]
            if self._used == BUFFER_BYTES:
                self._put_out()

    def sync(self) -> None:
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
                written = 0  # larger disk blocks, or no direct I/O after all
            if self._direct and (written % mmap.PAGESIZE or not written):
                self._direct = _set_direct(self._descriptor, False)
            view = view[written:]
        self._used = 0

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def contents(path: str) -> Iterator[memoryview]:
    """The bytes of a file in order; each view is valid until the next one is requested."""
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
            if direct and found % mmap.PAGESIZE:  # the end of the file, or an unaligned rest
                direct = _set_direct(descriptor, False)
    finally:
        os.close(descriptor)
