"""Batch reads: one scan of a stream, cut into Spark partitions.

Purpose
    :class:`ScanReader` is what Spark pickles to its executors.  It holds the checked options, the
    columns asked for and the scan in the store's terms; the store itself is opened where it is
    read.

Guarantee
    The plan is pinned when it is made (see :mod:`chronicle.spark_connector.backend`).  Batches have
    exactly the Arrow schema that Spark derives from the DataFrame's schema.

Filters of Spark
    :class:`FilteringScanReader` also takes the filters that Spark pushes, and only skips blocks by
    them: Spark applies every one of them again.  It is used for ``pushFilters=true`` alone, because
    PySpark 4.3 keeps one plan for all scans of a DataFrame: filters of one scan leak into the
    others.  With the option on, give every DataFrame a single filter, or a ``load()`` of its own.
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
    """Reads events of one stream.

    Parameters
    ----------
    wanted : StructType
        Schema of the DataFrame: the stream's, or the user's.

    Raises
    ------
    SchemaMismatch
        When the user's schema does not fit the stream.
    """

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
        """Cut the scan at leaf borders; runs once, on the driver."""
        if self.scan.limit == 0:
            return []
        return list(open_backend(self.options).plan(self.scan))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; runs on an executor."""
        if not isinstance(partition, EventPartition):  # Spark's stand-in for an empty plan
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
    """A :class:`ScanReader` that skips blocks by the filters that Spark pushes."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Remember what the filters exclude; hand every one of them back to Spark."""
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
