"""What an ingest did, in figures that add up.

Guarantee
    ``rows == stored + duplicates + bad`` for an ingest that ended well; with ``dry_run``, ``rows ==
    good + bad``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

__all__ = ["IngestReport", "Progress", "Silent"]


@dataclass
class IngestReport:
    """Figures of an ingest; filled while it runs.

    Attributes
    ----------
    engine : str
        ``arrow`` or ``spark``.
    files : int
        Sources read to their end.
    broken_files : list of str
        Why sources were given up, with ``on_error`` other than ``fail``.
    bytes : int
        Raw bytes read.
    rows : int
        Rows read, good and bad.
    bad : int
        Rows left out.
    stored : int
        Events that are in the stream now because of this ingest.
    late : int
        Those of them that were older than what the stream had.
    duplicates : int
        Events that were left out because their keys were there before.
    count : int or None
        Events in the stream afterwards.
    version : int or None
        Commit position of the stream afterwards, where that is known.
    created : bool
        The stream was made.
    schema : pyarrow.Schema or None
        Of the events.
    quarantine : Path or None
        File with the bad rows.
    examples : list of str
        The first bad rows.
    bad_columns : Counter
        How often which column was at fault.
    notes : list of str
        What was assumed.
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
        """Rows that are events."""
        return self.rows - self.bad

    def statement(self) -> str:
        """What is in the store, for one who was interrupted."""
        if self.stored == 0:
            return f"nothing was stored in {self.stream!r}"
        return (
            f"{self.stored:,} events are stored in {self.stream!r}, each batch of them whole; the "
            "rest is not"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for programs."""
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
    """Who is told how far an ingest is."""

    def phase(self, name: str, total: int | None) -> None:
        """A new phase begins; ``total`` in bytes (reading) or events (storing), where known."""
        ...

    def at(self, done: int) -> None:
        """How far the phase is, in the unit of its total."""
        ...


class Silent:
    """Tells nobody."""

    def phase(self, name: str, total: int | None) -> None:
        """Nothing."""

    def at(self, done: int) -> None:
        """Nothing."""
