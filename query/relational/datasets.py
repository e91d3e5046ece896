"""Relations as the executor sees them: Arrow sources that can be scanned again and narrowed.

Purpose
    DuckDB asks an Arrow dataset for a scanner with the columns it needs and with the filters that
    its optimizer could push down to it, through any derived table, CTE or join.
    :class:`ScanDataset` looks like such a dataset and answers from a stream or a stream operator.

Guarantee
    What DuckDB pushes it does not check again, so the filter is applied exactly.  What of it is a
    range of time narrows the scan and costs nothing; what of it min/max can decide prunes blocks;
    the rest is evaluated on columns.  Each scan starts anew, so a query may read a relation many
    times.  An error raised inside a scan is kept and re-raised as it was, not as DuckDB reports it.

Limits
    DuckDB recognises a dataset by its class: :class:`ScanDataset` derives from pyarrow's in-memory
    dataset, over no rows, and overrides ``scanner`` alone.  The tests of this module fail if
    another version of DuckDB stops calling it so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..contract.cancellation import QueryControl
from .scans import FailureBox, ReadFilter, Scannable, ScanRequest

__all__ = ["ScanDataset", "without_rows"]


class ScanDataset(ds.InMemoryDataset):  # type: ignore[misc]
    """A dataset over a :class:`Scannable`; see the module.

    Parameters
    ----------
    control : QueryControl
        Asked before every batch.
    """

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
        """Begin a scan; called by DuckDB once for each time the query reads the relation."""
        request = ScanRequest(columns, filter)
        self.requests.append(request)
        schema = self._relation.schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return _Scanner(schema, lambda: self._batches(request))

    def narrowed(
        self, columns: list[str], needed: list[str], text: str | None, read: ReadFilter
    ) -> tuple[bool, Iterator[pa.RecordBatch]]:
        """Begin a scan for an executor that can say its filter as text only.

        Parameters
        ----------
        needed : list of str
            Those, and what the filter reads.
        text : str, optional
            The filter, as Arrow prints it.
        read : callable
            Makes a filter of a text again.

        Returns
        -------
        applied : bool
            Whether the batches have ``columns`` of exactly the rows that pass; else they have
            ``needed`` of at least these rows.
        batches : iterator of RecordBatch
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
    """A relation of no rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def scan(self, columns: Sequence[str] | None, filter: pc.Expression | None) -> Iterator[Any]:
        """Nothing."""
        return iter(())


def without_rows(schema: pa.Schema) -> ScanDataset:
    """A dataset of some columns and no rows: for the names and types of a query over it."""
    return ScanDataset(_NoRows(schema), QueryControl(), FailureBox())
