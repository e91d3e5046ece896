"""Write-behind: encoding goes on while what is encoded is being written and synced.

Purpose
    A bulk load is bound by the disk.  :class:`WriteBehind` gathers encoded blocks, hands them to
    the file in pieces of some megabytes from another thread, and starts write-back early, so that
    the sync at the end has little left to do.

Guarantee
    Bytes reach the file in the order of :meth:`WriteBehind.put`.  After :meth:`WriteBehind.flush`
    all of them have been handed to the system, after :meth:`WriteBehind.sync` they are durable; a
    failure on the way is raised by the next call of either.  At most two pieces are in memory.

Limits
    Small loads never leave the caller's thread: threads are used only above :data:`PIECE_BYTES`.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from .file_contract import AppendFile

__all__ = ["WriteBehind"]

PIECE_BYTES = 4 << 20
SYNC_BYTES = 32 << 20

_WRITING: ThreadPoolExecutor
_SYNCING: ThreadPoolExecutor


def _begin_pools() -> None:
    """Make the pools, without threads until one is needed; a forked child has to do so anew.

    The child inherits pools that believe in threads which did not come along: what it submitted to
    them would wait for ever.
    """
    global _WRITING, _SYNCING
    _WRITING = ThreadPoolExecutor(max_workers=2, thread_name_prefix="chronicle-write")
    _SYNCING = ThreadPoolExecutor(max_workers=2, thread_name_prefix="chronicle-sync")


_begin_pools()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_pools)


class WriteBehind:
    """The end of a file that is being written.

    Parameters
    ----------
    file : AppendFile
        Closed by :meth:`close`.
    unsynced : int
        Bytes of it that are not durable yet.
    """

    def __init__(self, file: AppendFile, unsynced: int = 0) -> None:
        self._file = file
        self._parts: list[Any] = []
        self._gathered = 0
        self._unsynced = unsynced
        self._writing: Future[None] | None = None
        self._syncing: Future[None] | None = None
        self.length = file.size
        """Bytes of the file once everything put so far is in it."""

    def put(self, parts: list[Any], length: int) -> None:
        """Append buffers, ``length`` bytes in all; they must not change any more."""
        self._parts.extend(parts)
        self._gathered += length
        self.length += length
        if self._gathered >= PIECE_BYTES:
            self._join(writing=True)
            if self._unsynced >= SYNC_BYTES and (self._syncing is None or self._syncing.done()):
                self._join(syncing=True)
                self._unsynced = 0
                self._syncing = _SYNCING.submit(self._file.sync)
            parts, self._parts = self._parts, []
            self._unsynced += self._gathered
            self._gathered = 0
            self._writing = _WRITING.submit(self._file.writev, parts)

    def _join(self, *, writing: bool = False, syncing: bool = False) -> None:
        """Wait for what is under way; its failure is raised here."""
        if writing and self._writing is not None:
            pending, self._writing = self._writing, None
            pending.result()
        if syncing and self._syncing is not None:
            pending, self._syncing = self._syncing, None
            pending.result()

    def flush(self) -> None:
        """Hand everything to the file."""
        self._join(writing=True)
        if self._parts:
            parts, self._parts = self._parts, []
            self._unsynced += self._gathered
            self._gathered = 0
            self._file.writev(parts)

    def sync(self) -> None:
        """Make everything durable."""
        self.flush()
        self._join(syncing=True)
        if self._unsynced:
            self._file.sync()
            self._unsynced = 0

    def truncate(self, size: int) -> None:
        """Forget what was put after ``size`` bytes, whatever has become of it."""
        self._abandon()
        if self._file.size > size:
            self._file.truncate(size)
        self.length = size

    def _abandon(self) -> None:
        self._parts, self._gathered = [], 0
        for pending in (self._writing, self._syncing):
            if pending is not None:
                with suppress(Exception):  # who gives up reports a failure of its own
                    pending.result()
        self._writing = self._syncing = None

    def close(self) -> None:
        """Close the file without writing what is gathered."""
        self._abandon()
        self._file.close()
