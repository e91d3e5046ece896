"""The file of Idempotency-Keys: a write-ahead log of the store's own kind.

Purpose
    :class:`KeyLog` makes the records of :mod:`.idempotency` durable.  It is a
    :class:`chronicle.store.log.LogWriter`: checksums that tie a record to its place, one sync for
    all threads that wait, half-written records cut off, torn tails distinguished from damage.

Layout
    ``<store>/server/idempotency.wal``, laid out as in :mod:`chronicle.store.log`; the payload of
    each record is one JSON object.

Guarantee
    :meth:`KeyLog.append` returns when the record survives a power cut.  A log that cannot be
    written any more (a failed sync, a full disk in the middle of a replacement) is replaced by a
    new one, made of what is remembered, before anything is appended again: nothing has to be
    restarted.  A damaged log is reported, never passed over: a key that was lost in silence would
    let events in twice.

Limits
    Replacing holds up those who append; it happens when the log has four times as many records as
    there are keys.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import orjson

from ...errors import StorageFailed, StorageFull
from ...store.files import Files
from ...store.log import LogWriter, read_log

__all__ = ["KeyLog", "Record"]

logger = logging.getLogger("chronicle.server")
FILE_NAME = "idempotency.wal"
TEMPORARY = "idempotency.wal.new"
LINES_NAME = "idempotency.log"
"""What earlier releases kept: a JSON object a line."""

KIND = 1
RECORDS_MIN = 4096
"""A log that is shorter than this is not worth replacing."""

Record = dict[str, Any]


class KeyLog:
    """The log of one store's keys; may be used by any number of threads.

    Parameters
    ----------
    files : Files
        The directory that the log lies in.
    remembered : callable
        Gives the records that a new log begins with.  What is appended is remembered before.
    """

    def __init__(self, files: Files, remembered: Callable[[], Iterable[Record]]) -> None:
        self._files = files
        self._remembered = remembered
        self._guard = threading.Lock()
        self._writer: LogWriter | None = None
        self._sequence = 0

    def read(self) -> list[Record]:
        """The records as they are on disk; asked once, before anything is appended.

        Raises
        ------
        CorruptBlock
            A record that was durable is damaged.
        """
        if self._files.exists(FILE_NAME):
            contents = read_log(self._files, FILE_NAME)
            self._sequence = contents.sequence
            if contents.torn:
                logger.warning("%s ends in an unfinished record, which is left out", FILE_NAME)
            return [orjson.loads(record.payload) for record in contents.records]
        if not self._files.exists(LINES_NAME):
            return []
        found = []
        for line in self._files.read(LINES_NAME).splitlines():
            with suppress(orjson.JSONDecodeError):
                found.append(orjson.loads(line))
        return found

    def append(self, record: Record) -> None:
        """Add a record that is remembered already; it is on disk when this returns.

        Raises
        ------
        StorageFull, StorageFailed
            It may be on disk or not.
        """
        with self._guard:
            writer = self._writer
            if writer is None or writer.failed:
                self._replace()  # what is remembered has the record
                return
            position = writer.append(KIND, [orjson.dumps(record)])
        try:
            writer.sync(position)
        except (StorageFull, StorageFailed):
            if writer is self._writer:
                raise
            # Replaced meanwhile, by what is remembered and durable.

    def tidy(self, keys: int) -> None:
        """Replace the log when it has failed, or has many more records than there are keys."""
        with self._guard:
            writer = self._writer
            if (
                writer is None
                or writer.failed
                or writer.records >= max(RECORDS_MIN, 4 * (keys + 1))
            ):
                self._replace()

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            if self._writer is not None:
                self._writer.close()

    def _replace(self) -> None:
        """Write what is remembered into a new log; the guard is held."""
        with suppress(FileNotFoundError):
            self._files.remove(TEMPORARY)
        fresh = LogWriter.create(self._files, TEMPORARY, self._sequence + 1, durable=False)
        try:
            for record in self._remembered():
                fresh.append(KIND, [orjson.dumps(record)])
            fresh.sync()
            before, self._writer = self._writer, None  # from here on the old one is not written to
            if before is not None:
                with suppress(StorageFull, StorageFailed):
                    before.sync()  # whoever waits for it is done with its file when it is closed
                before.close()
            self._files.replace(TEMPORARY, FILE_NAME)
            self._files.sync_directory("")
        except BaseException:
            fresh.close()
            with suppress(OSError):
                self._files.remove(TEMPORARY)
            raise
        self._sequence += 1
        self._writer = fresh
        with suppress(OSError):
            self._files.remove(LINES_NAME)
