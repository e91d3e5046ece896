"""What a scan by the executor is: where it comes from, what it asked for, how it failed.

Purpose
    The shapes that the engine, the executor and the datasets share.  They are kept apart from
    :mod:`.datasets` because that module loads Arrow's dataset library, which costs a cold process
    more than answering from the trees does: queries that need no executor never load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "BATCH_ROWS",
    "SPILL_BYTES",
    "Failure",
    "FailureBox",
    "ReadFilter",
    "ScanRequest",
    "Scannable",
    "Scanned",
]

ReadFilter = Callable[[str | None, pa.Schema], tuple[pc.Expression | None, bool]]
"""Gives what of a filter's text it understands, and whether that is all of it."""

BATCH_ROWS = 65_536
"""Rows of a batch that the executor gives."""

SPILL_BYTES = 8 << 30
"""Most bytes that one executor spills to disk."""


class Failure(NamedTuple):
    """An error that came out of DuckDB.

    Attributes
    ----------
    kind : {"sql", "memory", "interrupted", "broken"}
        ``broken``: the executor is of no use any more.
    """

    kind: str
    message: str


class FailureBox:
    """Keeps the first error that a scan of one execution raised."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        """Remember an error; the first one stays."""
        if self.error is None:
            self.error = error


class ScanRequest:
    """One scan as DuckDB asked for it, with what it cost.

    Attributes
    ----------
    rows : int
        Delivered so far.
    seconds : float
        Spent producing them.
    """

    __slots__ = ("columns", "filter", "rows", "seconds")

    def __init__(self, columns: list[str] | None, filter: pc.Expression | None) -> None:
        self.columns = columns
        self.filter = filter
        self.rows = 0
        self.seconds = 0.0


class Scannable(Protocol):
    """What stands behind a dataset."""

    @property
    def schema(self) -> pa.Schema:
        """All columns."""

    def scan(
        self, columns: Sequence[str] | None, filter: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the columns, in this order, of the rows for which the filter is true."""


class Scanned(Protocol):
    """A dataset that remembers how it was scanned."""

    requests: list[ScanRequest]
