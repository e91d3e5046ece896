r"""Idempotency keys: a client that lost an answer may repeat its request without appending twice.

A request with ``Idempotency-Key: k`` is stored with a fingerprint and its answer.  The same key
again returns, for the same request, the first answer; for another one 422; while the first still
runs 409.  Records of the log, JSON objects::

    {"op": "begin", "key": "flights\n4f1c", "at": 61.5, "print": "<sha256>", "version": 17}
    {"op": "end", "key": "flights\n4f1c", "version": 18, "answer": {"appended": 3, ...}}
    {"op": "forget", "key": "flights\n4f1c"}
    {"op": "clock", "at": 3600.0}

``version`` is the stream's commit: at the beginning of the request (-1 where there was no stream;
an ingest may create it), and that of its own append.  States of a key::

    begin on disk -> events into the stream -> end on disk -> answer
                  |                         |
    the append    |   in doubt until the    |  stored: replayed
    did not happen|   stream is reopened    |

``begin`` is durable before the append starts.  An append that raises stored nothing and frees its
key, as long as the stream is *sound*; after a failed sync the key is in doubt, since the events may
survive a restart.  On reopening, the stream's version decides: if it equals the ``begin`` version
(or a stream created since has no commit), nothing was stored and the key is free; otherwise the
server answers 409 until the key expires.  An ``end`` whose version the stream does not have (it was
restored from a backup, or dropped and created again) is forgotten.  When ``end`` cannot be written
because the disk is full, the answer is sent anyway, the record follows as soon as there is space,
and a crash before that leaves the key in doubt.  So no append happens twice under one key.

A key's age counts seconds of a running server; a jump of the wall clock forgets nothing.  Keys stay
in memory for ``CHRONICLE_IDEMPOTENCY_HOURS``, about 300 bytes each, at most ``KEYS_MAX``.

The log is ``<store>/server/idempotency.wal``, framed as ``store.log``.  ``KeyLog.append`` returns
when the record survives a power cut.  A log that cannot be written any more (failed sync, full
disk), or has four times as many records as keys, is replaced by a new one, made from memory; that
blocks appends.  A damaged log is an error, because a lost key could append events twice.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import orjson

from ...errors import ChronicleError, CorruptStore, InvalidArgument, StorageFailed, StorageFull
from ...store.file_contract import Files
from ...store.log import LogWriter, read_log
from ..http.replies import Problem

logger = logging.getLogger("chronicle.server")
FILE_NAME = "idempotency.wal"
TEMPORARY = "idempotency.wal.new"

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
        if not self._files.exists(FILE_NAME):
            return []
        contents = read_log(self._files, FILE_NAME)
        self._sequence = contents.sequence
        if contents.torn:
            logger.warning("%s ends in an unfinished record, which is left out", FILE_NAME)
        return [orjson.loads(record.payload) for record in contents.records]

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


KEY_CHARACTERS_MAX = 255
KEYS_MAX = 1_000_000
CLOCK_EVERY_S = 600.0
"""How often the clock is recorded; a crash makes keys at most this much younger."""

Answer = dict[str, Any]


@dataclass
class _Entry:
    at: float
    fingerprint: str
    version: int
    answer: Answer | None = None
    stored: int = 0
    running: bool = False


class KeyedRequest:
    """The caller sets ``answer`` and ``version``, unless ``replayed``."""

    def __init__(self, answer: Answer | None) -> None:
        self.replayed = answer is not None
        self.answer = answer
        self.version = 0


class IdempotencyKeys:
    """The keys of one store; all methods block on the disk.  ``version_of`` gives a stream's
    version, or None; ``sound`` says whether an append that failed on disk stored nothing.
    """

    def __init__(
        self,
        files: Files,
        keep_s: float,
        version_of: Callable[[str], int | None],
        sound: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keep_s = keep_s
        self._version_of = version_of
        self._sound = sound
        self._clock = clock
        self._guard = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._served = 0.0
        self._damage: ChronicleError | None = None
        self._log = KeyLog(files, self._records)
        try:
            self._load(self._log.read())
        except ChronicleError as error:
            self._damage = error
            logger.error("Idempotency-Keys are refused: %s", error)
        self._begun = self._served - clock()
        self._clock_noted = self._served

    def __len__(self) -> int:
        return len(self._entries)

    def once(
        self,
        stream: str,
        key: str | None,
        request: tuple[Any, ...],
        store: Callable[[], tuple[Answer, int]],
    ) -> tuple[Answer, bool]:
        """The answer of ``store``, which also gives the version of its commit and runs at most once
        for the same key and request; and whether it is replayed.
        """
        if key is None:
            return store()[0], False
        fingerprint = hashlib.sha256(repr(request).encode()).hexdigest()
        with self.request(stream, key, fingerprint) as work:
            if work.answer is None:
                work.answer, work.version = store()
            return work.answer, work.replayed

    @contextmanager
    def request(self, stream: str, key: str, fingerprint: str) -> Iterator[KeyedRequest]:
        """Run the block's work at most once per key.  Raises ``Problem`` (409 while the first runs
        or if its outcome is unknown, 422 if it differed), ``InvalidArgument``, ``CorruptStore``.
        """
        if not 0 < len(key) <= KEY_CHARACTERS_MAX or not key.isprintable():
            raise InvalidArgument(
                f"an Idempotency-Key has 1 to {KEY_CHARACTERS_MAX} printable characters"
            )
        if self._damage is not None:
            raise CorruptStore(
                f"the remembered Idempotency-Keys are damaged ({self._damage}): whether this one "
                "was used is not known. Stop the server and delete server/idempotency.wal in the "
                "store to forget all keys; requests without a key are taken as ever"
            )
        name = f"{stream}\n{key}"
        earlier = self._claim(name, stream, fingerprint)
        if earlier is not None:
            yield KeyedRequest(earlier)
            return
        work = KeyedRequest(None)
        try:
            yield work
        except BaseException as error:
            if self._left_nothing(error, stream):
                self._forget(name)
            else:
                self._entries[name].running = False  # in doubt
            raise
        assert work.answer is not None, "the work was not done"
        entry = self._entries[name]
        entry.stored = work.version
        entry.answer = work.answer  # before logging: a replacement of the log must include it
        try:
            self._log.append(self._end(name, entry))
        except (StorageFull, StorageFailed, OSError) as error:
            logger.warning("the outcome of an Idempotency-Key could not be written yet: %s", error)
        entry.running = False

    def forget_stream(self, stream: str) -> None:
        for name in [name for name in self._names() if name.partition("\n")[0] == stream]:
            self._forget(name)

    def tidy(self) -> None:
        if self._damage is not None:
            return
        with self._guard:
            self._forget_old()
        now = self._now()
        if now - self._clock_noted >= CLOCK_EVERY_S:
            self._clock_noted = now
            self._log.append({"op": "clock", "at": now})
        self._log.tidy(len(self._entries))

    def close(self) -> None:
        if self._entries:
            with suppress(StorageFull, StorageFailed, OSError):
                self._log.append({"op": "clock", "at": self._now()})
        self._log.close()

    def _now(self) -> float:
        return self._begun + self._clock()

    def _left_nothing(self, error: BaseException, stream: str) -> bool:
        if isinstance(error, (StorageFull, StorageFailed)):
            return self._sound(stream)
        return isinstance(error, (ChronicleError, Problem))

    def _claim(self, name: str, stream: str, fingerprint: str) -> Answer | None:
        version = self._version_of(stream)
        with self._guard:
            now = self._now()
            earlier = self._entries.get(name)
            if earlier is not None and (earlier.running or earlier.at + self._keep_s > now):
                return self._answer_of(earlier, name, fingerprint)
            if len(self._entries) >= KEYS_MAX:
                self._forget_old()
            if len(self._entries) >= KEYS_MAX:
                raise Problem(
                    "overloaded",
                    f"{KEYS_MAX:,} Idempotency-Keys are remembered, which is the limit; send the "
                    "events without one, or in fewer and larger requests",
                    {"Retry-After": "60"},
                )
            entry = _Entry(now, fingerprint, -1 if version is None else version, running=True)
            self._entries[name] = entry
        try:
            self._log.append(self._begin(name, entry))
        except BaseException as error:
            with self._guard:
                del self._entries[name]
            if isinstance(error, StorageFull):
                raise StorageFull(
                    "no space is left to remember the Idempotency-Key; nothing was appended, free "
                    "some space and send it again"
                ) from None
            raise
        with suppress(StorageFull, StorageFailed, OSError):
            self._log.tidy(len(self._entries))
        return None

    def _answer_of(self, entry: _Entry, name: str, fingerprint: str) -> Answer:
        key = name.partition("\n")[2]
        if entry.fingerprint != fingerprint:
            raise Problem(
                "idempotency-mismatch",
                f"the Idempotency-Key {key!r} was used for another request (other body, format or "
                "parameters); use a new key for new data",
            )
        if entry.running:
            raise Problem(
                "idempotency-in-flight",
                f"the first request with the Idempotency-Key {key!r} is still running; try again",
                {"Retry-After": "1"},
            )
        if entry.answer is None:
            raise Problem(
                "idempotency-in-doubt",
                f"whether the first request with the Idempotency-Key {key!r} was stored is not "
                "known: the server or the disk failed in the middle of it; look whether the "
                "events are there, and send them under a new key if not",
            )
        return entry.answer

    def _forget(self, name: str) -> None:
        with self._guard:
            self._entries.pop(name, None)
        with suppress(StorageFull, StorageFailed, OSError):  # else freed on reopening
            self._log.append({"op": "forget", "key": name})

    def _forget_old(self) -> None:
        oldest = self._now() - self._keep_s
        for name, entry in list(self._entries.items()):
            if entry.at <= oldest and not entry.running:
                del self._entries[name]

    def _names(self) -> list[str]:
        with self._guard:
            return list(self._entries)

    # --- on disk

    def _load(self, records: list[Record]) -> None:
        try:
            for record in records:
                self._replay(record)
        except (KeyError, TypeError) as error:
            raise CorruptStore(f"a record of the Idempotency-Keys has no {error}") from None
        oldest = self._served - self._keep_s
        for name, entry in list(self._entries.items()):
            try:
                version = self._version_of(name.partition("\n")[0])
            except ChronicleError as error:
                logger.warning("Idempotency-Keys of a stream are kept as they are: %s", error)
                continue
            if entry.at <= oldest or version is None:
                del self._entries[name]
            elif entry.answer is None and version == max(entry.version, 0):
                del self._entries[name]  # no commit since: nothing was stored
            elif entry.answer is not None and version < entry.stored:
                del self._entries[name]  # the stream was restored to an older version

    def _replay(self, record: Record) -> None:
        at = record.get("at", 0.0)
        self._served = max(self._served, at)
        if record["op"] == "clock":
            return
        name = record["key"]
        if record["op"] == "begin":
            self._entries[name] = _Entry(at, record["print"], record["version"])
        elif record["op"] == "forget":
            self._entries.pop(name, None)
        elif name in self._entries:
            self._entries[name].answer = record["answer"]
            self._entries[name].stored = record.get("version", 0)

    def _records(self) -> Iterator[Record]:
        with self._guard:
            entries = list(self._entries.items())
        yield {"op": "clock", "at": self._now()}
        for name, entry in entries:
            yield self._begin(name, entry)
            if entry.answer is not None:
                yield self._end(name, entry)

    @staticmethod
    def _begin(name: str, entry: _Entry) -> Record:
        return {
            "op": "begin",
            "key": name,
            "at": entry.at,
            "print": entry.fingerprint,
            "version": entry.version,
        }

    @staticmethod
    def _end(name: str, entry: _Entry) -> Record:
        return {"op": "end", "key": name, "version": entry.stored, "answer": entry.answer}
