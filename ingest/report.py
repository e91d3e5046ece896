"""Counters of an ingest: ``rows == stored + duplicates + bad``, or ``good + bad`` in a dry run.

Policies for bad rows: ``fail`` at the first, ``skip`` and count, or ``quarantine``.  A quarantine
file is NDJSON, by default ``<store>-quarantine/<stream>-<UTC time>.ndjson``::

    {"source": "f.csv", "row": 16, "line": 17, "column": "speed", "value": "abc",
     "reason": "expected a number (double), found 'abc'", "record": "2018-08-01,abc,7"}

It is created with the first bad row, and removed if the ingest stores nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa

from ..errors import IngestError
from ..formats.chunks import BadRow, fail


@dataclass
class IngestReport:
    """Counters of an ingest, updated while it runs.

    Attributes
    ----------
    files, broken_files : int, list of str
        Sources read to their end; errors of abandoned sources, unless ``on_error`` is ``fail``.
    bytes, rows, bad : int
        Raw bytes and rows read, and the bad rows among them.
    stored, late, duplicates : int
        Events stored, those of them older than the newest event, and events skipped by ``unique``.
    count, version : int or None
        Events and commit position of the stream afterwards, if known.
    examples, bad_columns : list of str, Counter
        The first bad rows; how often each column was at fault.
    """

    stream: str
    engine: str = "arrow"
    files: int = 0
    broken_files: list[str] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0
    bad: int = 0
    stored: int = 0
    late: int = 0
    duplicates: int = 0
    count: int | None = None
    version: int | None = None
    seconds: float = 0.0
    created: bool = False
    schema: pa.Schema | None = None
    quarantine: Path | None = None
    examples: list[str] = field(default_factory=list)
    bad_columns: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    dry_run: bool = False

    @property
    def good(self) -> int:
        return self.rows - self.bad

    def statement(self) -> str:
        """What is in the store, as a note to an error."""
        if self.stored == 0:
            return f"nothing was stored in {self.stream!r}"
        return (
            f"{self.stored:,} events are stored in {self.stream!r}, each batch of them whole; the "
            "rest is not"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "engine": self.engine,
            "files": self.files,
            "broken_files": self.broken_files,
            "bytes": self.bytes,
            "rows": self.rows,
            "bad": self.bad,
            "stored": self.stored,
            "late": self.late,
            "duplicates": self.duplicates,
            "count": self.count,
            "seconds": self.seconds,
            "created": self.created,
            "bad_columns": dict(self.bad_columns),
            "quarantine": None if self.quarantine is None else str(self.quarantine),
            "notes": self.notes,
            "dry_run": self.dry_run,
        }


class Progress(Protocol):
    """Callbacks for progress."""

    def phase(self, name: str, total: int | None) -> None:
        """A phase begins; ``total`` is in bytes (reading) or events (storing), if known."""
        ...

    def at(self, done: int) -> None:
        """Progress of the phase, in the unit of its total."""
        ...


class Silent:
    def phase(self, name: str, total: int | None) -> None:
        """Nothing."""

    def at(self, done: int) -> None:
        """Nothing."""


EXAMPLES = 5


def quarantine_path(store: str | os.PathLike[str], stream: str) -> Path:
    """Default path for an ingest that begins now."""
    place = Path(os.path.abspath(store))
    now = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    name = re.sub(r"[^\w.-]", "_", stream)
    return place.with_name(f"{place.name}-quarantine") / f"{name}-{now}.ndjson"


class BadRows:
    """A policy for bad rows; call it with each."""

    def __init__(self, on_error: str, path: Path | None = None) -> None:
        self.count = 0
        self.examples: list[str] = []
        self.columns: Counter[str] = Counter()
        self.path = path if on_error == "quarantine" else None
        self._strict = on_error == "fail"
        self._file: IO[str] | None = None

    def __call__(self, bad: BadRow) -> None:
        if self._strict:
            fail(bad)
        self.count += 1
        self.columns[bad.column or "(the row as a whole)"] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(str(bad))
        if self.path is not None:
            self._keep(self.path, bad)

    def _keep(self, path: Path, bad: BadRow) -> None:
        try:
            if self._file is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(path, "x", encoding="utf-8")  # noqa: SIM115 - closed by close()
            self._file.write(bad.to_json() + "\n")
        except FileExistsError:
            raise IngestError(
                f"the quarantine file {path} exists already; name another one"
            ) from None
        except OSError as error:
            raise IngestError(
                f"cannot write the quarantine file {path}: {error.strerror}"
            ) from None

    @property
    def kept(self) -> Path | None:
        """The quarantine file, if one was written."""
        return self.path if self._file is not None else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def discard(self) -> None:
        """Remove the file after an ingest that stored nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if self.path is not None:
                with contextlib.suppress(OSError):
                    self.path.unlink()
                    self.path.parent.rmdir()
