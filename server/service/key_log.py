"""The write-ahead log of idempotency keys: ``<store>/server/idempotency.wal``, as ``store.log``.
Payloads are JSON objects.  ``KeyLog.append`` returns when the record survives a power cut.  A log
that cannot be written any more (failed sync, full disk), or has four times as many records as keys,
is replaced by a new one, made from memory; that blocks appends.  A damaged log is an error, because
a lost key could append events twice.
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

KIND = 1
RECORDS_MIN = 4096

Record = dict[str, Any]


class KeyLog:
    """Thread-safe.  ``remembered`` gives the records of a new log, including the one being
    appended.
    """

    def __init__(self, files: Files, remembered: Callable[[], Iterable[Record]]) -> None:
        self._files = files
        self._remembered = remembered
        self._guard = threading.Lock()
        self._writer: LogWriter | None = None
        self._sequence = 0

    def read(self) -> list[Record]:
        """The records on disk; call it once, before any append.  Raises ``CorruptBlock``."""
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
        """Make a record durable that ``remembered`` has; on an error it may be on disk or not."""
        with self._guard:
            writer = self._writer
            if writer is None or writer.failed:
                self._replace()  # memory includes the record
                return
            position = writer.append(KIND, [orjson.dumps(record)])
        try:
            writer.sync(position)
        except (StorageFull, StorageFailed):
            if writer is self._writer:
                raise
            # Replaced meanwhile by a durable log that includes the record.

    def tidy(self, keys: int) -> None:
        with self._guard:
            writer = self._writer
            if (
                writer is None
                or writer.failed
                or writer.records >= max(RECORDS_MIN, 4 * (keys + 1))
            ):
                self._replace()

    def close(self) -> None:
        with self._guard:
            if self._writer is not None:
                self._writer.close()

    def _replace(self) -> None:
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
                    before.sync()  # so that waiting threads are done before it is closed
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
