"""Scan requests, failures and relations as DuckDB sees them: Arrow datasets with pushdown.

A dataset can be scanned repeatedly.  DuckDB does not recheck what it pushes down, so the filter is
applied exactly: a range of time narrows the scan, min/max prunes blocks, the rest is evaluated on
columns.  An error inside a scan is stored and re-raised as it was.  DuckDB recognises a dataset by
its class, so this derives from pyarrow's in-memory dataset, over no rows, and overrides ``scanner``
alone; tests detect a DuckDB version that calls it otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..contract.cancellation import QueryControl

ReadFilter = Callable[[str | None, pa.Schema], tuple[pc.Expression | None, bool]]
"""Parses a filter's text; returns the part it understands, and whether that is all of it."""

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

    def __init__(self, columns: list[str] | None, filter: pc.Expression | None) -> None:
        self.columns = columns
        self.filter = filter
        self.rows = 0
        self.seconds = 0.0


class Scannable(Protocol):
    @property
    def schema(self) -> pa.Schema:
        """All columns."""

    def scan(
        self, columns: Sequence[str] | None, filter: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the columns, in this order, of the rows for which the filter is true."""


class Scanned(Protocol):
    requests: list[ScanRequest]


class ScanDataset(ds.InMemoryDataset):  # type: ignore[misc]
    """A dataset over a ``Scannable``; ``control`` is checked before every batch."""

    def __init__(self, relation: Scannable, control: QueryControl, failures: FailureBox) -> None:
        super().__init__(relation.schema.empty_table())
        self._relation = relation
        self._control = control
        self._failures = failures
        self.requests: list[ScanRequest] = []

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: pc.Expression | None = None,
        **_: Any,
    ) -> _Scanner:
        """Start a scan; DuckDB calls it each time the query reads the relation."""
        request = ScanRequest(columns, filter)
        self.requests.append(request)
        schema = self._relation.schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return _Scanner(schema, lambda: self._batches(request))

    def narrowed(
        self, columns: list[str], needed: list[str], text: str | None, read: ReadFilter
    ) -> tuple[bool, Iterator[pa.RecordBatch]]:
        """Start a scan with a filter as text.  Returns whether it was applied, and batches: of
        ``columns`` of exactly the passing rows, else of ``needed`` columns and at least these rows.
        """
        filter, applied = read(text, self._relation.schema)
        request = ScanRequest(columns if applied else needed, filter)
        self.requests.append(request)
        return applied, self._batches(request)

    def _batches(self, request: ScanRequest) -> Iterator[pa.RecordBatch]:
        try:
            self._control.check()
            begin = time.perf_counter()
            for batch in self._relation.scan(request.columns, request.filter):
                request.rows += batch.num_rows
                request.seconds += time.perf_counter() - begin
                self._control.check()
                yield batch
                begin = time.perf_counter()
            request.seconds += time.perf_counter() - begin
        except GeneratorExit:
            raise
        except BaseException as error:
            self._failures.keep(error)
            raise


class _Scanner:
    """The one method of a dataset scanner that DuckDB calls."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())


class _NoRows:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def scan(self, columns: Sequence[str] | None, filter: pc.Expression | None) -> Iterator[Any]:
        return iter(())


def without_rows(schema: pa.Schema) -> ScanDataset:
    return ScanDataset(_NoRows(schema), QueryControl(), FailureBox())
