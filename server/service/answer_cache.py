"""Answers stored in files for a while, so that clients can read byte ranges of one result.

A file does not change, and its entity tag is a digest of its bytes, so that pieces with one tag fit
together.  It is found only by the same client with the same rights.  Files are unnamed and on the
store's disk: a killed server leaves none behind.

Limits: ``CHRONICLE_MAX_RESULT_BYTES`` for all clients, half of it for one, ``FILES_MAX`` files; the
least recently used go first.  A drop of any stream removes all, as their sources are not recorded.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ...errors import ResourceLimit

if TYPE_CHECKING:
    from hashlib import _Hash


FILES_MAX = 256


def tag_of(digest: _Hash) -> str:
    return f'"{digest.hexdigest()[:32]}"'


@dataclass(frozen=True)
class OpenAnswer:
    """A stored answer opened for a reader, who closes ``file``; ``tag`` is in quotes."""

    file: IO[bytes]
    size: int
    tag: str
    headers: Mapping[str, str]

    def piece(self, first: int, size: int) -> bytes:
        return os.pread(self.file.fileno(), size, first)


@dataclass(eq=False)
class _CachedAnswer:
    client: str
    what: Hashable
    file: IO[bytes]
    size: int
    tag: str
    headers: Mapping[str, str]
    made: int
    used: float = 0.0


class AnswerCache:
    """Thread-safe; ``bytes_max`` bounds all files, an unused one lives for ``keep_s`` seconds."""

    def __init__(
        self,
        directory: Path | None,
        bytes_max: int,
        keep_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._keep_s = keep_s
        self._clock = clock
        self._guard = threading.Lock()
        self.numbers = itertools.count()
        self._stored: list[_CachedAnswer] = []  # least recently used first
        self._writing: dict[AnswerFile, int] = {}

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def used(self) -> int:
        with self._guard:
            return self._held(None)

    def begin(self, client: str) -> AnswerFile:
        file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - kept
        return AnswerFile(self, client, file)

    def find(self, client: str, what: Hashable, tags: frozenset[str]) -> OpenAnswer | None:
        """The answer to a request (``what``, with its rights): with one of ``tags``, or else the
        latest.
        """
        self.sweep()
        with self._guard:
            answers = [each for each in self._stored if (each.client, each.what) == (client, what)]
            if not answers:
                return None
            named = [each for each in answers if each.tag in tags]
            return self._opened(max(named or answers, key=lambda each: each.made))

    def sweep(self) -> None:
        oldest = self._clock() - self._keep_s
        with self._guard:
            while self._stored and self._stored[0].used < oldest:
                self._stored.pop(0).file.close()

    def clear(self) -> None:
        with self._guard:
            for each in self._stored:
                each.file.close()
            self._stored.clear()

    def _opened(self, answer: _CachedAnswer) -> OpenAnswer:
        answer.used = self._clock()
        self._stored.remove(answer)
        self._stored.append(answer)
        copy = os.fdopen(os.dup(answer.file.fileno()), "rb", buffering=0)
        return OpenAnswer(copy, answer.size, answer.tag, answer.headers)

    def _held(self, client: str | None) -> int:
        stored = sum(each.size for each in self._stored if client in (None, each.client))
        begun = (size for file, size in self._writing.items() if client in (None, file.client))
        return stored + sum(begun)

    def _grow(self, file: AnswerFile, size: int) -> None:
        with self._guard:
            self._writing[file] = size
            share = self._bytes_max - self._bytes_max // 2
            for client, most in ((file.client, share), (None, self._bytes_max)):
                while self._held(client) > most:
                    idle = [each for each in self._stored if client in (None, each.client)]
                    if not idle:
                        raise ResourceLimit(
                            f"the answer, written to a file, takes more than the {share:,} bytes "
                            "that a client may have kept (half of CHRONICLE_MAX_RESULT_BYTES), or "
                            "than others leave; ask for less, or with a plain GET, which streams"
                        )
                    self._stored.remove(idle[0])
                    idle[0].file.close()

    def _end(self, file: AnswerFile) -> None:
        with self._guard:
            self._writing.pop(file, None)

    def _keep(self, file: AnswerFile, answer: _CachedAnswer) -> OpenAnswer:
        with self._guard:
            self._writing.pop(file, None)
            same = (answer.client, answer.what, answer.tag)
            for other in self._stored:
                if (other.client, other.what, other.tag) == same:
                    answer.file.close()
                    other.made = answer.made
                    return self._opened(other)
            self._stored.append(answer)
            if len(self._stored) > FILES_MAX:
                self._stored.pop(0).file.close()
            return self._opened(answer)


class AnswerFile:
    def __init__(self, answers: AnswerCache, client: str, file: IO[bytes]) -> None:
        self.client = client
        self._answers = answers
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, block: bytes) -> None:
        self._answers._grow(self, self._size + len(block))
        self._file.write(block)
        self._digest.update(block)
        self._size += len(block)

    def keep(self, what: Hashable, headers: Mapping[str, str]) -> OpenAnswer:
        self._file.flush()
        tag = tag_of(self._digest)
        made = next(self._answers.numbers)
        answer = _CachedAnswer(self.client, what, self._file, self._size, tag, dict(headers), made)
        return self._answers._keep(self, answer)

    def abandon(self) -> None:
        self._answers._end(self)
        self._file.close()
