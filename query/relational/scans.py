"""Scan requests, failures and interfaces shared by engine, executor and datasets.

Apart from ``datasets``, which imports Arrow's dataset library: many queries never need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from ...store.prune import RowFilter

BATCH_ROWS = 65_536

SPILL_BYTES = 8 << 30
"""Most bytes that one executor spills to disk."""


class Failure(NamedTuple):
    """An error of DuckDB; ``kind``: sql, memory, interrupted, or broken (unusable instance)."""

    kind: str
    message: str


class FailureBox:
    """Keeps the first error that a scan of one execution raised."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error


class ScanRequest:
    """One scan as DuckDB requested it; ``rows`` delivered so far in ``seconds``."""

    __slots__ = ("columns", "filter", "rows", "seconds")

    def __init__(self, columns: list[str] | None, filter: RowFilter | None) -> None:
        self.columns = columns
        self.filter = filter
        self.rows = 0
        self.seconds = 0.0


class Scanner:
    """The one method of a dataset scanner that DuckDB calls."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())


class Scannable(Protocol):
    @property
    def schema(self) -> pa.Schema:
        """All columns."""

    def scan(
        self, columns: Sequence[str] | None, filter: RowFilter | None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the columns, in this order, of the rows that pass the filter."""


class Scanned(Protocol):
    requests: list[ScanRequest]
