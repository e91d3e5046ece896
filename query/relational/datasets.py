"""Relations as DuckDB sees them: Arrow datasets that can be scanned repeatedly, with pushdown.

DuckDB does not recheck what it pushes down, so the filter is applied exactly: a range of time
narrows the scan, min/max prunes blocks, the rest is evaluated on columns.  An error inside a scan
is stored and re-raised as it was.  DuckDB recognises a dataset by its class, so this derives from
pyarrow's in-memory dataset, over no rows, and overrides ``scanner`` alone; tests detect a DuckDB
version that calls it otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ...store.prune import RowFilter
from ..conditions.row_filters import ExpressionFilter, read_filter
from ..contract.cancellation import QueryControl
from .scans import FailureBox, Scannable, Scanner, ScanRequest


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
    ) -> Scanner:
        """Start a scan; DuckDB calls it each time the query reads the relation."""
        schema = self._relation.schema
        passing = None if filter is None else ExpressionFilter.of(filter, schema.names)
        request = ScanRequest(columns, passing)
        self.requests.append(request)
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return Scanner(schema, lambda: self._batches(request))

    def narrowed(
        self, columns: list[str], needed: list[str], text: str | None
    ) -> tuple[bool, Iterator[pa.RecordBatch]]:
        """Start a scan with a filter as text.  Returns whether it was applied, and batches: of
        ``columns`` of exactly the passing rows, else of ``needed`` columns and at least these rows.
        """
        filter, applied = read_filter(text, self._relation.schema)
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


class _NoRows:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def scan(self, columns: Sequence[str] | None, filter: RowFilter | None) -> Iterator[Any]:
        return iter(())


def without_rows(schema: pa.Schema) -> ScanDataset:
    return ScanDataset(_NoRows(schema), QueryControl(), FailureBox())
