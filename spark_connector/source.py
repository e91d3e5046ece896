"""The data source itself: what Spark asks first, and who answers.

Purpose
    :class:`DefaultSource` is the class behind ``format("chronicle")``.  It checks the options of
    the use at hand and hands over to one reader or writer each for batch and streaming.

Guarantee
    Importing this module loads neither the store nor the query engine: Spark imports it in every
    Python process that looks for formats.  A reader that takes filters from Spark is made only for
    ``pushFilters=true``, because Spark refuses any other plan when such a reader is not asked for.

Limits
    Modes ``errorifexists`` and ``ignore``, ``partitionBy`` and ``writeTo`` are refused by Spark
    itself before this class is asked.
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

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The Spark data source ``chronicle``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "chronicle"

    def schema(self) -> StructType:
        """Schema of the stream, of the columns chosen, or of the query's result."""
        from .opening import open_backend
        from .types import spark_schema
        from .view_reading import of_view

        options = of_view(Options.parse(self.options, "a"))
        backend = open_backend(options)
        if options.query is not None:
            return spark_schema(backend.query_schema(options.query))
        stream = backend.describe()
        return spark_schema(stream.arrow, stream.select(options.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from .view_reading import of_view

        options = of_view(Options.parse(self.options, "r"))
        if options.query is not None:
            from .query_reader import QueryReader

            return QueryReader(options, schema)
        from .reader import FilteringScanReader, ScanReader

        return (FilteringScanReader if options.push_filters else ScanReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read."""
        from .stream_reader import EventStreamReader

        return EventStreamReader(Options.parse(self.options, "s"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from .writer import EventWriter

        return EventWriter(Options.parse(self.options, "w"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A streaming write."""
        from .stream_writer import EventStreamWriter

        return EventStreamWriter(Options.parse(self.options, "x"), schema, overwrite)
