"""Batch reads of a query: Spark gets result rows, all nullable, instead of the stream."""

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
    def __init__(self, options: Options, wanted: StructType) -> None:
        assert options.query is not None
        self.options = options
        self.text = options.query
        self.conversion = ReadConversion(open_backend(options).query_schema(self.text), wanted)

    def partitions(self) -> list[InputPartition]:
        return open_backend(self.options).plan_query(self.text, self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys(self.conversion.columns))
        rows = open_backend(self.options).run_query(self.text, partition)
        for batch in rebatch(rows, self.options.batch_size, names):
            yield self.conversion(batch)
