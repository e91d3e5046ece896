"""Idempotency keys: a client that lost the answer may ask again without appending twice.

Purpose
    A request with ``Idempotency-Key: k`` is remembered with a fingerprint of what it asked for and
    with its answer.  The same key again gives: the same request, the first answer
    (``Idempotency-Replayed: true``); another request, 422; while the first still runs, 409.

Layout
    ``<store>/server/idempotency.log``, one JSON object a line, fsynced in groups::

        {"op": "begin", "key": "flights\\n4f1c", "at": 1795000000.1, "print": "<sha256>",
        "version": 17} {"op": "end",   "key": "flights\\n4f1c", "answer": {"appended": 3, "late":
        0, "count": 12}} {"op": "forget", "key": "flights\\n4f1c"}

Guarantee
    ``begin`` is on disk before the append starts, ``end`` before the answer leaves.  So after a
    crash a key is one of: never seen (the append did not happen), ended (replayed), or begun.  A
    begun key whose stream still has the version it began with did not happen and is forgotten; any
    other is *in doubt* and answers 409 until it is too old, for the server cannot know and does
    not guess.  A failed append changes nothing and its key is free again.

Limits
    Keys are kept in memory for their lifetime (``CHRONICLE_IDEMPOTENCY_HOURS``), about 300 bytes
    each. They belong to a stream: dropping it through the API forgets them.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ..errors import ChronicleError, InvalidArgument, StorageFull
from .places import replace_file, server_directory, sync_directory
from .problems import Problem

__all__ = ["IdempotencyKeys", "KeyedRequest"]

logger = logging.getLogger("chronicle.server")
FILE_NAME = "idempotency.log"
KEY_CHARACTERS_MAX = 255
REWRITE_LINES_MIN = 4096

Answer = dict[str, Any]


@dataclass
class _Entry:
    at: float
    fingerprint: str
    version: int
    answer: Answer | None = None
    running: bool = False


class KeyedRequest:
    """One request under its key; the caller sets :attr:`answer` when it has done the work.

    Attributes
    ----------
    replayed : bool
        Whether :attr:`answer` is the first request's and nothing is to be done.
    """

    def __init__(self, answer: Answer | None) -> None:
        self.replayed = answer is not None
        self.answer = answer


class IdempotencyKeys:
    """The keys of one store; all methods block on the disk, so call them in a thread.

    Parameters
    ----------
    store : path
    keep_s : float
        How long a key is remembered, in seconds.
    version_of : callable
        The present version of a stream by its name; None when there is none.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        keep_s: float,
        version_of: Callable[[str], int | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = server_directory(store, create=True) / FILE_NAME
        self._keep_s = keep_s
        self._version_of = version_of
        self._clock = clock
        self._guard = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        existed = self._path.exists()
        self._load()
        self._log = _Log(self._path)
        if existed:
            self._rewrite()  # also drops a line that a crash cut short

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def request(self, stream: str, key: str, fingerprint: str) -> Iterator[KeyedRequest]:
        """Do the block's work at most once per key.

        Raises
        ------
        Problem
            409 while the first request runs or when its outcome is unknown, 422 when it was
            another one.
        InvalidArgument
            When the key is no key.
        """
        if not 0 < len(key) <= KEY_CHARACTERS_MAX or not key.isprintable():
            raise InvalidArgument(
                f"an Idempotency-Key has 1 to {KEY_CHARACTERS_MAX} printable characters"
            )
        name = f"{stream}\n{key}"
        found = self._claim(name, stream, fingerprint)
        if found is not None:
            yield KeyedRequest(found)
            return
        work = KeyedRequest(None)
        try:
            yield work
        except ChronicleError:
            self._forget(name)  # an append that fails leaves nothing behind
            raise
        except BaseException as error:
            if isinstance(error, Problem):
                self._forget(name)
            else:
                self._entries[name].running = False  # in doubt
            raise
        assert work.answer is not None, "the work was not done"
        entry = self._entries[name]
        entry.answer = work.answer  # before it is logged: a rewrite in between must not lose it
        self._log.append({"op": "end", "key": name, "answer": work.answer})
        entry.running = False

    def forget_stream(self, stream: str) -> None:
        """Forget the keys of a stream that is no more."""
        for name in [name for name in self._entries if name.partition("\n")[0] == stream]:
            self._forget(name)

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _claim(self, name: str, stream: str, fingerprint: str) -> Answer | None:
        version = self._version_of(stream)
        with self._guard:
            now = self._clock()
            known = self._entries.get(name)
            if known is not None and known.at + self._keep_s > now:
                return self._known(known, name, fingerprint)
            entry = _Entry(now, fingerprint, -1 if version is None else version, running=True)
            self._entries[name] = entry
        try:
            self._log.append(
                {
                    "op": "begin",
                    "key": name,
                    "at": now,
                    "print": fingerprint,
                    "version": entry.version,
                }
            )
        except BaseException:
            del self._entries[name]
            raise
        if self._log.lines >= max(REWRITE_LINES_MIN, 4 * len(self._entries)):
            self._rewrite()
        return None

    def _known(self, entry: _Entry, name: str, fingerprint: str) -> Answer:
        key = name.partition("\n")[2]
        if entry.fingerprint != fingerprint:
            raise Problem(
                "idempotency-mismatch",
                422,
                f"the Idempotency-Key {key!r} was used for another request (other body, format or "
                "parameters); use a new key for new data",
            )
        if entry.running:
            raise Problem(
                "idempotency-in-flight",
                409,
                f"the first request with the Idempotency-Key {key!r} is still running; try again",
                {"Retry-After": "1"},
            )
        if entry.answer is None:
            raise Problem(
                "idempotency-in-doubt",
                409,
                f"the server stopped while it worked on the Idempotency-Key {key!r} and the stream "
                "has "
                "changed since; look whether the events are there, and send them under a new key "
                "if not",
            )
        return entry.answer

    def _forget(self, name: str) -> None:
        self._entries.pop(name, None)
        self._log.append({"op": "forget", "key": name})

    def _load(self) -> None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        for line in content.splitlines():
            try:
                record = orjson.loads(line)
                self._replay(record)
            except (ValueError, KeyError, TypeError):
                logger.warning("%s: a line that is not whole was left out", self._path)
        oldest = self._clock() - self._keep_s
        for name, entry in list(self._entries.items()):
            begun = entry.answer is None
            if entry.at <= oldest:
                del self._entries[name]
            elif begun and self._version_of(name.partition("\n")[0]) in (None, entry.version):
                del self._entries[name]  # nothing was appended since: it did not happen

    def _replay(self, record: dict[str, Any]) -> None:
        name = record["key"]
        if record["op"] == "begin":
            self._entries[name] = _Entry(record["at"], record["print"], record["version"])
        elif record["op"] == "end":
            self._entries[name].answer = record["answer"]
        else:
            self._entries.pop(name, None)

    def _rewrite(self) -> None:
        """Write the log anew with what is still remembered."""
        with self._guard:
            oldest = self._clock() - self._keep_s
            for name, entry in list(self._entries.items()):
                if entry.at <= oldest and not entry.running:
                    del self._entries[name]
            self._log.rewrite(self._lines)

    def _lines(self) -> Iterator[dict[str, Any]]:
        for name, entry in self._entries.items():
            yield {
                "op": "begin",
                "key": name,
                "at": entry.at,
                "print": entry.fingerprint,
                "version": entry.version,
            }
            if entry.answer is not None:
                yield {"op": "end", "key": name, "answer": entry.answer}


class _Log:
    """An append-only file of lines whose fsyncs are shared by the threads that wait for one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._write_guard = threading.Lock()
        self._sync_guard = threading.Lock()
        self._written = 0
        self._synced = 0
        self.lines = 0
        self._descriptor = self._open()

    def _open(self) -> int:
        existed = self._path.exists()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if not existed:
            sync_directory(self._path.parent)
        return descriptor

    def append(self, record: dict[str, Any]) -> None:
        """Add a line; it is on disk when this returns."""
        line = orjson.dumps(record) + b"\n"
        try:
            with self._write_guard:
                self._write(line)
                self.lines += 1
                self._written += 1
                mine = self._written
            with self._sync_guard:
                if self._synced >= mine:
                    return  # another thread's fsync covered it
                covered = self._written
                os.fdatasync(self._descriptor)
                self._synced = covered
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull(
                    "no space is left to remember the Idempotency-Key; the append was refused, "
                    "free "
                    "some space and send it again"
                ) from None
            raise

    def _write(self, line: bytes) -> None:
        before = os.fstat(self._descriptor).st_size
        if os.write(self._descriptor, line) < len(line):  # half a line would swallow the next one
            os.ftruncate(self._descriptor, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def rewrite(self, lines: Callable[[], Iterator[dict[str, Any]]]) -> None:
        """Replace the file's content."""
        with self._sync_guard, self._write_guard:
            records = [orjson.dumps(record) + b"\n" for record in lines()]
            replace_file(self._path, b"".join(records))
            os.close(self._descriptor)
            self._descriptor = self._open()
            self.lines = len(records)
            self._synced = self._written

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
