"""Batch reads: one scan of a stream, cut into Spark partitions.

Batches have exactly the Arrow schema that Spark derives from the DataFrame's schema.
``FilteringScanReader`` (``pushFilters=true``) skips blocks by Spark's filters.  PySpark 4.3 shares
one plan between all scans of a DataFrame, so filters of one scan leak into the others: give each
such DataFrame one filter, or a ``load()`` of its own.

Pushdown of Spark's filters to time ranges and minima and maxima of blocks loses no matching event;
Spark filters again.  Bounds are rounded outwards: a microsecond between two coarser ticks keeps
both.  NaN equals itself and is greater than other floats, in Spark as in the store.  ``Not``,
``StringEndsWith``, ``StringContains`` and decimals exclude nothing.  A scan with ``limit``, which
applies before Spark's filter, is unchanged.

Reads of a query give Spark its result rows, all nullable.  A view by the option ``stream`` is
rewritten into the option ``query``.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ..core.times import INT64_MAX, INT64_MIN, TICKS_PER_SECOND
from ..errors import AttributeNotFound, InvalidArgument, SchemaMismatch, StreamNotFound
from ..schema import Attribute, StreamSchema
from ..store.prune import AllOf, AnyOf, IsNull, NotNull, Prune, Range
from .backend import EventPartition, ScanRequest, rebatch, time_bounds
from .opening import Backend, open_backend
from .options import Options
from .types import ReadConversion

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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
    refused = {
        "startTime": options.start_time,
        "endTime": options.end_time,
        "asOf": options.as_of,
        "pushFilters": options.push_filters or None,
        "metricsPath": options.metrics_path,
    }
    said = [name for name, value in refused.items() if value is not None]
    if said:
        raise InvalidArgument(
            f"{options.stream!r} is a view, which has no time and no commits of its own: leave out "
            f"{', '.join(said)}; a range of time goes into the option 'filter'"
        )
    columns = "*" if options.columns is None else ", ".join(map(_quoted, options.columns))
    text = f"SELECT {columns} FROM {_quoted(options.stream)}"
    if options.filter is not None:
        text += f" WHERE ({options.filter})"
    if options.limit is not None:
        text += f" LIMIT {options.limit}"
    return replace(options, stream=None, columns=None, filter=None, limit=None, query=text)


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_EPOCH_DATE = dt.date(1970, 1, 1)
_MICROS = 1_000_000


def narrow(scan: ScanRequest, item: spark.Filter, stream: StreamSchema) -> ScanRequest:
    """The scan without what a filter excludes; AttributeNotFound for an unknown column."""
    path: tuple[str, ...] = getattr(item, "attribute", ())
    if len(path) != 1 or scan.limit is not None:
        return scan
    attribute = stream.attribute(path[0])
    if attribute.name == stream.time:
        return _narrow_time(scan, item, attribute)
    prune = _prune(item, attribute)
    if prune is None:
        return scan
    return replace(scan, prune=prune if scan.prune is None else AllOf((scan.prune, prune)))


def _narrow_time(scan: ScanRequest, item: spark.Filter, attribute: Attribute) -> ScanRequest:
    low, high = _interval(item, attribute)
    start, end = scan.start, scan.end
    if low is not None:
        start = low if start is None else max(start, low)
    if high is not None and high < INT64_MAX:
        end = high + 1 if end is None else min(end, high + 1)
    if start is not None and not INT64_MIN <= start <= INT64_MAX:
        return scan
    if end is not None and end < INT64_MIN:
        return scan
    return replace(scan, start=start, end=end)


def _interval(item: spark.Filter, attribute: Attribute) -> tuple[Any, Any]:
    """Least and greatest matching value, both inclusive; None if unbounded."""
    if isinstance(item, spark.EqualTo | spark.EqualNullSafe):
        return _bounds(item.value, attribute) or (None, None)
    if isinstance(item, spark.GreaterThan | spark.GreaterThanOrEqual):
        bounds = _bounds(item.value, attribute)
        return (bounds[0], None) if bounds else (None, None)
    if isinstance(item, spark.LessThan | spark.LessThanOrEqual):
        bounds = _bounds(item.value, attribute)
        return (None, bounds[1]) if bounds else (None, None)
    if isinstance(item, spark.In):
        every = [_bounds(value, attribute) for value in item.value if value is not None]
        known = [bounds for bounds in every if bounds is not None]
        if known and len(known) == len(every):
            return min(low for low, _ in known), max(high for _, high in known)
    return None, None


def _prune(item: spark.Filter, attribute: Attribute) -> Prune | None:
    name = attribute.name
    if isinstance(item, spark.IsNull):
        return IsNull(name)
    if isinstance(item, spark.IsNotNull):
        return NotNull(name)
    if isinstance(item, spark.In):
        every = [_bounds(value, attribute) for value in item.value if value is not None]
        known = [bounds for bounds in every if bounds is not None]
        if not known or len(known) < len(every):
            return None
        return AnyOf(tuple(Range(name, low, high) for low, high in known))
    if isinstance(item, spark.StringStartsWith):
        if not item.value or not _is_text(attribute.type):
            return None
        return Range(name, item.value, _after(item.value), high_open=True)
    low, high = _interval(item, attribute)
    return None if low is None and high is None else Range(name, low, high)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _after(prefix: str) -> str | None:
    for length in range(len(prefix), 0, -1):
        point = ord(prefix[length - 1]) + 1
        if 0xD800 <= point <= 0xDFFF:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[: length - 1] + chr(point)
    return None


def _bounds(value: Any, attribute: Attribute) -> tuple[Any, Any] | None:
    """The stored values nearest to a literal, below and above; None if not comparable."""
    type_ = attribute.type
    if pa.types.is_timestamp(type_):
        if not isinstance(value, dt.datetime):
            return None
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
        micros = (aware - _EPOCH) // dt.timedelta(microseconds=1)
        scaled = micros * TICKS_PER_SECOND[type_.unit]
        return scaled // _MICROS, -(-scaled // _MICROS)
    if pa.types.is_date(type_):
        if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
            return None
        days = (value - _EPOCH_DATE).days
        ticks = days * 86_400_000 if pa.types.is_date64(type_) else days
        return ticks, ticks
    if pa.types.is_boolean(type_):
        return (value, value) if isinstance(value, bool) else None
    if pa.types.is_integer(type_):
        if isinstance(value, Decimal) and value.is_finite():  # how Spark sees a uint64
            return math.floor(value), math.ceil(value)
        return (value, value) if isinstance(value, int) else None
    if pa.types.is_floating(type_):
        if isinstance(value, int | float) and not math.isnan(value):
            return float(value), float(value)
        return None
    if _is_text(type_):
        return (value, value) if isinstance(value, str) else None
    return None
