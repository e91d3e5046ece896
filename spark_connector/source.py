"""The data source ``format("chronicle")``: checks options and makes readers and writers.

Spark imports this module in every Python process, so it loads neither store nor query engine.  A
reader that accepts filters is made only for ``pushFilters=true``, since Spark rejects plans without
any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from .options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The Spark data source ``chronicle``."""

    @classmethod
    def name(cls) -> str:
        return "chronicle"

    def schema(self) -> StructType:
        """Schema of the stream, the chosen columns, or the query's result."""
        from .backend import open_backend
        from .reader import of_view
        from .types import spark_schema

        options = of_view(Options.parse(self.options, "a"))
        backend = open_backend(options)
        if options.query is not None:
            return spark_schema(backend.query_schema(options.query))
        stream = backend.describe()
        return spark_schema(stream.arrow, stream.select(options.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        from .reader import of_view

        options = of_view(Options.parse(self.options, "r"))
        if options.query is not None:
            from .reader import QueryReader

            return QueryReader(options, schema)
        from .reader import FilteringScanReader, ScanReader

        return (FilteringScanReader if options.push_filters else ScanReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from .stream_reader import EventStreamReader

        return EventStreamReader(Options.parse(self.options, "s"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .writer import EventWriter

        return EventWriter(Options.parse(self.options, "w"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from .writer import EventStreamWriter

        return EventStreamWriter(Options.parse(self.options, "x"), schema, overwrite)
