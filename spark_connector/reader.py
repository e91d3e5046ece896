"""Batch reads: one scan of a stream, cut into Spark partitions.

Batches have exactly the Arrow schema that Spark derives from the DataFrame's schema.
``FilteringScanReader`` (``pushFilters=true``) skips blocks by Spark's filters.  PySpark 4.3 shares
one plan between all scans of a DataFrame, so filters of one scan leak into the others: give each
such DataFrame one filter, or a ``load()`` of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ..errors import AttributeNotFound, SchemaMismatch
from ..schema import StreamSchema
from .backend import Backend, EventPartition, ScanRequest, rebatch, time_bounds
from .opening import open_backend
from .options import Options
from .types import ReadConversion

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["FilteringScanReader", "ScanReader"]

logger = logging.getLogger("chronicle.spark")


class ScanReader(DataSourceReader):
    """Reads events of one stream; pickled to executors, where it opens the store."""

    def __init__(self, options: Options, wanted: StructType) -> None:
        self.options = options
        stream = open_backend(options).describe()
        self._prepare(stream, wanted)

    def _prepare(self, stream: StreamSchema, wanted: StructType) -> None:
        options = self.options
        if options.columns is not None:
            chosen = {name.lower() for name in stream.select(options.columns)}
            for name in wanted.fieldNames():
                if name.lower() not in chosen:
                    raise SchemaMismatch(
                        f"the schema given asks for {name!r}, which the option 'columns' leaves "
                        "out; one of the two is enough"
                    )
        self.stream = stream
        self.conversion = ReadConversion(stream.arrow, wanted)
        start, end = time_bounds(options, stream)
        self.scan = ScanRequest(
            columns=tuple(self.conversion.columns),
            start=start,
            end=end,
            filter=options.filter,
            limit=options.limit,
            batch_size=options.batch_size,
            as_of=options.as_of,
            parts=1 if options.limit is not None else options.num_partitions,
        )

    def partitions(self) -> list[InputPartition]:
        if self.scan.limit == 0:
            return []
        return list(open_backend(self.options).plan(self.scan))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, EventPartition):  # Spark's placeholder for an empty plan
            return iter(())
        return self._batches(open_backend(self.options), partition)

    def _batches(self, backend: Backend, partition: EventPartition) -> Iterator[pa.RecordBatch]:
        names = _distinct(self.conversion.columns)
        left = self.scan.limit
        for batch in rebatch(backend.read(self.scan, partition), self.scan.batch_size, names):
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield self.conversion(batch)
            if left == 0:
                return


class FilteringScanReader(ScanReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow the scan by the filters; return all of them for Spark to apply again."""
        from .pushdown import narrow

        scan = self.scan
        for item in filters:
            try:
                scan = narrow(scan, item, self.stream)
            except AttributeNotFound:
                continue
        self.scan = replace(scan)
        return filters


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
