"""Batch reads: one scan of a stream, cut into Spark partitions.

Batches have exactly the Arrow schema that Spark derives from the DataFrame's schema.
``FilteringScanReader`` (``pushFilters=true``) skips blocks by Spark's filters.  PySpark 4.3 shares
one plan between all scans of a DataFrame, so filters of one scan leak into the others: give each
such DataFrame one filter, or a ``load()`` of its own.

Pushdown of Spark's filters to time ranges and minima and maxima of blocks loses no matching event;
Spark filters again.  NaN equals itself and is greater than other floats, in Spark as in the store.
``Not``, ``StringEndsWith`` and ``StringContains`` exclude nothing.  A scan with ``limit``, which
applies before Spark's filter, is unchanged.

Reads of a query give Spark its result rows, all nullable.  A view by the option ``stream`` is
rewritten into the option ``query``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ..core.sql_text import quoted_name
from ..core.times import half_open
from ..errors import AttributeNotFound, InvalidArgument, SchemaMismatch, StreamNotFound
from ..formats.chunks import regroup
from ..query.conditions.constants import constant_of_python
from ..query.conditions.predicates import NOTHING, Compiled, any_of, column_bounds, prefix_range
from ..query.conditions.predicates import time_bounds as ticks_of
from ..schema import Attribute, Storage, StreamSchema
from ..store.prune import AllOf, IsNull, NotNull, Prune
from .backend import Backend, EventPartition, ScanRequest, open_backend, time_bounds
from .options import Options
from .types import ReadConversion

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
        left = self.scan.limit
        for batch in regroup(backend.read(self.scan, partition), self.scan.batch_size):
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield self.conversion(batch)
            if left == 0:
                return


class FilteringScanReader(ScanReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow the scan by the filters; return all of them for Spark to apply again."""
        scan = self.scan
        for item in filters:
            try:
                scan = narrow(scan, item, self.stream)
            except AttributeNotFound:
                continue
        self.scan = replace(scan)
        return filters


class QueryReader(DataSourceReader):
    def __init__(self, options: Options, wanted: StructType) -> None:
        assert options.query is not None
        self.options = options
        self.text = options.query
        self.conversion = ReadConversion(open_backend(options).query_schema(self.text), wanted)

    def partitions(self) -> list[InputPartition]:
        return open_backend(self.options).plan_query(self.text, self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = open_backend(self.options).run_query(self.text, partition)
        for batch in regroup(rows, self.options.batch_size):
            yield self.conversion(batch)


def of_view(options: Options) -> Options:
    """The options of the query for a view, which has no time and no commits; others unchanged."""
    if options.query is not None or options.stream is None:
        return options
    backend = open_backend(options)
    try:
        backend.describe()
        return options
    except StreamNotFound:
        if not backend.has_view(options.stream):
            raise
    present = options.given("start_time", "end_time", "as_of", "push_filters")
    if present:
        raise InvalidArgument(
            f"{options.stream!r} is a view, which has no time and no commits of its own: leave out "
            f"{', '.join(present)}; a range of time goes into the option 'filter'"
        )
    columns = "*" if options.columns is None else ", ".join(map(quoted_name, options.columns))
    text = f"SELECT {columns} FROM {quoted_name(options.stream)}"
    if options.filter is not None:
        text += f" WHERE ({options.filter})"
    if options.limit is not None:
        text += f" LIMIT {options.limit}"
    return replace(options, stream=None, columns=None, filter=None, limit=None, query=text)


_OPERATORS: dict[type, str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}


def narrow(scan: ScanRequest, item: spark.Filter, stream: StreamSchema) -> ScanRequest:
    """The scan without what a filter excludes; AttributeNotFound for an unknown column."""
    path: tuple[str, ...] = getattr(item, "attribute", ())
    if len(path) != 1 or scan.limit is not None:
        return scan
    attribute = stream.attribute(path[0])
    prune = _implied(item, attribute)
    if attribute.name == stream.time:
        start, end = half_open(*ticks_of(prune, stream.time))
        starts = [tick for tick in (scan.start, start) if tick is not None]
        ends = [tick for tick in (scan.end, end) if tick is not None]
        return replace(scan, start=max(starts, default=None), end=min(ends, default=None))
    if prune is None:
        return scan
    return replace(scan, prune=prune if scan.prune is None else AllOf((scan.prune, prune)))


def _implied(item: spark.Filter, attribute: Attribute) -> Prune | None:
    name = attribute.name
    if isinstance(item, spark.IsNull):
        return IsNull(name)
    if isinstance(item, spark.IsNotNull):
        return NotNull(name)
    if isinstance(item, spark.StringStartsWith):
        return prefix_range(name, item.value) if attribute.storage is Storage.STRING else None
    if isinstance(item, spark.In):
        values = [value for value in item.value if value is not None]
        return any_of([_compared(attribute, "=", value) for value in values]).prune
    operator = _OPERATORS.get(type(item))
    if operator is None:
        return None
    return _compared(attribute, operator, getattr(item, "value", None)).prune


def _compared(attribute: Attribute, operator: str, value: object) -> Compiled:
    if value is None:  # EqualNullSafe may ask for nulls
        return NOTHING
    return column_bounds(attribute, operator, constant_of_python(value))
