"""Answers stored in files for a while, so that clients can read byte ranges of one result.

A file does not change, and its entity tag is a digest of its bytes, so that pieces with one tag fit
together.  It is found only by the same client with the same rights.  Files are unnamed and on the
store's disk: a killed server leaves none behind.

Limits: ``CHRONICLE_MAX_RESULT_BYTES`` for all clients, half of it for one, ``FILES_MAX`` files; the
least recently used go first.  A drop of any stream removes all, as their sources are not recorded.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ...errors import ResourceLimit

if TYPE_CHECKING:
    from hashlib import _Hash


FILES_MAX = 256


def tag_of(digest: _Hash) -> str:
    return f'"{digest.hexdigest()[:32]}"'


@dataclass(eq=False)
class Answer:
    """An answer in a file.  ``tag``, in quotes, is empty while it is written."""

    client: str
    file: IO[bytes]
    what: Hashable = None
    tag: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    used: float = 0.0
    digest: _Hash = field(default_factory=hashlib.sha256)

    def piece(self, first: int, size: int) -> bytes:
        return os.pread(self.file.fileno(), size, first)


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
        self._share = bytes_max - bytes_max // 2
        self._keep_s = keep_s
        self._clock = clock
        self._guard = threading.Lock()
        self._answers: list[Answer] = []  # the latest last

    def __len__(self) -> int:
        return len(self._whole())

    @property
    def used(self) -> int:
        with self._guard:
            return self._size()

    def begin(self, client: str) -> Answer:
        answer = Answer(client, tempfile.TemporaryFile(dir=self._directory))  # noqa: SIM115 - kept
        with self._guard:
            self._answers.append(answer)
        return answer

    def write(self, answer: Answer, block: bytes) -> None:
        """Add to an answer; blocks.  Raises ``ResourceLimit``."""
        with self._guard:
            answer.size += len(block)
            for client, most in ((answer.client, self._share), (None, self._bytes_max)):
                while self._size(client) > most:
                    self._drop_unused(client)
        answer.file.write(block)
        answer.digest.update(block)

    def keep(self, answer: Answer, what: Hashable, headers: Mapping[str, str]) -> Answer:
        """Keep an answer that is written, in place of an equal one; it is opened for a reader."""
        answer.file.flush()
        tag = tag_of(answer.digest)
        with self._guard:
            for other in self._whole(answer.client):
                if (other.what, other.tag) == (what, tag):
                    self._drop(other)
            answer.what, answer.tag, answer.headers = what, tag, headers
            self._answers.remove(answer)
            self._answers.append(answer)
            if len(self) > FILES_MAX:
                self._drop_unused()
            return self._opened(answer)

    def abandon(self, answer: Answer) -> None:
        with self._guard:
            self._drop(answer)

    def find(self, client: str, what: Hashable, tags: frozenset[str]) -> Answer | None:
        """The answer to a request (``what``, with its rights), opened for a reader, who closes its
        file: with one of ``tags``, or else the latest.
        """
        self.sweep()
        with self._guard:
            answers = [each for each in self._whole(client) if each.what == what]
            named = [each for each in answers if each.tag in tags]
            return self._opened((named or answers)[-1]) if answers else None

    def sweep(self) -> None:
        oldest = self._clock() - self._keep_s
        with self._guard:
            for each in self._whole():
                if each.used < oldest:
                    self._drop(each)

    def clear(self) -> None:
        with self._guard:
            for each in self._whole():
                self._drop(each)

    def _whole(self, client: str | None = None) -> list[Answer]:
        return [each for each in self._answers if each.tag and client in (None, each.client)]

    def _size(self, client: str | None = None) -> int:
        return sum(each.size for each in self._answers if client in (None, each.client))

    def _opened(self, answer: Answer) -> Answer:
        answer.used = self._clock()
        return replace(answer, file=os.fdopen(os.dup(answer.file.fileno()), "rb", buffering=0))

    def _drop_unused(self, client: str | None = None) -> None:
        whole = self._whole(client)
        if not whole:
            raise ResourceLimit(
                f"the answer, written to a file, takes more than the {self._share:,} bytes that a "
                "client may have kept (half of CHRONICLE_MAX_RESULT_BYTES), or than others leave; "
                "ask for less, or with a plain GET, which streams"
            )
        self._drop(min(whole, key=lambda each: each.used))

    def _drop(self, answer: Answer) -> None:
        self._answers.remove(answer)
        answer.file.close()
