"""Batch reads of a query: what ``option("query", ...)`` gives.

Purpose
    :class:`QueryReader` runs a SQL text where the events are, and hands Spark its rows: a pattern
    or a windowed aggregation moves matches and windows, not the stream.

Guarantee
    By path, all parts run on the pins that the driver took, and their rows are the query's (see
    :mod:`chronicle.spark_connector.queries`).  By url, the server runs the query once, in one part.

Limits
    Every column of a result may be null, as far as Spark is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from .backend import rebatch
from .opening import open_backend
from .options import Options
from .types import ReadConversion

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["QueryReader"]


class QueryReader(DataSourceReader):
    """Reads the result of a query.

    Parameters
    ----------
    options : Options
        With ``query``.
    wanted : StructType
        Schema of the DataFrame: the result's, or the user's.
    """

    def __init__(self, options: Options, wanted: StructType) -> None:
        assert options.query is not None
        self.options = options
        self.text = options.query
        self.conversion = ReadConversion(open_backend(options).query_schema(self.text), wanted)

    def partitions(self) -> list[InputPartition]:
        """Plan the query and cut it; runs once, on the driver."""
        return open_backend(self.options).plan_query(self.text, self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run one part of the query; runs on an executor."""
        names = list(dict.fromkeys(self.conversion.columns))
        rows = open_backend(self.options).run_query(self.text, partition)
        for batch in rebatch(rows, self.options.batch_size, names):
            yield self.conversion(batch)
