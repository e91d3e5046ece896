"""Write-behind: encoding continues while encoded blocks are written and synced.

Blocks are written in order, in pieces of some megabytes in another thread (small files in the
caller's), and syncs start early, so that the final sync is short.  After ``flush`` all have been
written, after ``sync`` they are durable; errors are raised by the next call of either.
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
    """Create the pools, also in a forked child, which inherits them without their threads."""
    global _WRITING, _SYNCING
    _WRITING = ThreadPoolExecutor(max_workers=2, thread_name_prefix="chronicle-write")
    _SYNCING = ThreadPoolExecutor(max_workers=2, thread_name_prefix="chronicle-sync")


_begin_pools()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_pools)


class WriteBehind:
    """Appends to ``file``, which ``close`` closes; ``unsynced`` bytes are not durable yet."""

    def __init__(self, file: AppendFile, unsynced: int = 0) -> None:
        self._file = file
        self._parts: list[Any] = []
        self._gathered = 0
        self._unsynced = unsynced
        self._writing: Future[None] | None = None
        self._syncing: Future[None] | None = None
        self.length = file.size
        """Length of the file including buffered bytes."""

    def put(self, parts: list[Any], length: int) -> None:
        """Append ``length`` bytes of buffers, which must not change any more."""
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
        if writing and self._writing is not None:
            pending, self._writing = self._writing, None
            pending.result()
        if syncing and self._syncing is not None:
            pending, self._syncing = self._syncing, None
            pending.result()

    def flush(self) -> None:
        self._join(writing=True)
        if self._parts:
            parts, self._parts = self._parts, []
            self._unsynced += self._gathered
            self._gathered = 0
            self._file.writev(parts)

    def sync(self) -> None:
        self.flush()
        self._join(syncing=True)
        if self._unsynced:
            self._file.sync()
            self._unsynced = 0

    def truncate(self, size: int) -> None:
        self._abandon()
        if self._file.size > size:
            self._file.truncate(size)
        self.length = size

    def _abandon(self) -> None:
        self._parts, self._gathered = [], 0
        for pending in (self._writing, self._syncing):
            if pending is not None:
                with suppress(Exception):  # the caller has an error of its own
                    pending.result()
        self._writing = self._syncing = None

    def close(self) -> None:
        self._abandon()
        self._file.close()
