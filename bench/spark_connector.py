"""The Spark connector against the least that PySpark can do.

Reads: against a Python data source in memory, into ``noop``.  Writes: against uncompressed Parquet
without Spark's byte limit for Arrow batches, as ``docs/spark.md`` advises, and with it against a
sink that drops its input.  One machine, ``local[2]``, warm caches.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..schema import StreamSchema
from ..store.store import Store
from ..store.stream import EventStream
from .harness import Row, Section, paired
from .spark_patterns import PatternBench, scaling_row

EVENTS = 10_000_000
EVENTS_SHORT = 400_000
EVENTS_PATTERN = 50_000_000
BATCH = 1 << 20
ROUNDS = 5
BYTES_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
UNLIMITED = str(2**31 - 1)

SCHEMA = StreamSchema(
    pa.schema(
        [
            pa.field("t", pa.timestamp("us", "UTC"), False),
            ("id", pa.int64()),
            ("a", pa.float64()),
            ("b", pa.float64()),
            ("c", pa.float64()),
            ("k", pa.int32()),
        ]
    ),
    "t",
)


def _batches(events: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(11)
    for first in range(0, events, BATCH):
        count = min(BATCH, events - first)
        ticks = 1_700_000_000_000_000 + np.arange(first, first + count) * 1000
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(ticks).cast(SCHEMA.arrow.field("t").type),
                pa.array(np.arange(first, first + count)),
                *(pa.array(rng.random(count)) for _ in range(3)),
                pa.array(rng.integers(0, 1000, count).astype(np.int32)),
            ],
            schema=SCHEMA.arrow,
        )


def _peer(spark: Any, events: int, parts: int) -> Any:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from ..spark_connector.types import spark_schema

    whole = spark_schema(SCHEMA.arrow)

    class Reader(DataSourceReader):
        def partitions(self) -> list[Any]:
            return [InputPartition(events // parts) for _ in range(parts)]

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            rows = 65_536
            numbers = np.arange(rows)
            schema = pa.schema(
                [
                    pa.field("t", pa.timestamp("us", "UTC"), False),
                    ("id", pa.int64()),
                    ("a", pa.float64()),
                    ("b", pa.float64()),
                    ("c", pa.float64()),
                    ("k", pa.int32()),
                ]
            )
            batch = pa.RecordBatch.from_arrays(
                [
                    pa.array(numbers).cast(pa.timestamp("us", "UTC")),
                    pa.array(numbers),
                    *(pa.array(numbers * 0.5) for _ in range(3)),
                    pa.array(numbers.astype(np.int32)),
                ],
                schema=schema,
            )
            left = partition.value
            while left > 0:
                yield batch.slice(0, left)
                left -= rows

    class Memory(DataSource):
        @classmethod
        def name(cls) -> str:
            return "memory_peer"

        def schema(self) -> Any:
            return whole

        def reader(self, schema: Any) -> Any:
            return Reader()

    spark.dataSource.register(Memory)
    return spark.read.format("memory_peer").load()


def _dropping(spark: Any, given: Any) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Dropping(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dropping"

        def schema(self) -> Any:
            return given

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Writer()

    spark.dataSource.register(Dropping)


def _noop(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


def _timed(action: Callable[[], None]) -> Callable[[], float]:
    def run_once() -> float:
        started = time.perf_counter()
        action()
        return time.perf_counter() - started

    return run_once


def _session(cores: int) -> Any:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def run(short: bool = False) -> Section:
    events = EVENTS_SHORT if short else EVENTS
    matched = EVENTS_SHORT if short else EVENTS_PATTERN
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.simplefilter("ignore", FutureWarning)
    place = Path(tempfile.mkdtemp(prefix="chronicle-bench-"))
    section = Section(
        "Spark",
        f"{events / 1e6:g} M events of 44 bytes (time, int64, three doubles, int32), `local[2]`, "
        f"medians of {ROUNDS}; patterns: {matched / 1e6:g} M events, one attribute indexed.",
    )
    try:
        spark = _session(2)
        try:
            _measure(spark, place, events, section)
            for name in ("store", *(path.name for path in place.glob("[wp][0-9]*"))):
                shutil.rmtree(place / name, ignore_errors=True)
            patterns = PatternBench(place, SCHEMA, _batches(matched), matched)
            section.rows.extend(patterns.compare(spark))
            two = patterns.replay(spark)
        finally:
            spark.stop()
        spark = _session(1)
        try:
            section.rows.append(scaling_row(matched, patterns.replay(spark), two))
        finally:
            spark.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return section


def _measure(spark: Any, place: Path, events: int, section: Section) -> None:
    with Store.open(place / "store") as store:
        stream = store.create_stream("s", SCHEMA)
        assert isinstance(stream, EventStream)
        for batch in _batches(events):
            stream.append(batch, durability="none")
        stream.seal()

    def load(**options: object) -> Any:
        reader = spark.read.format("chronicle").option("path", str(place / "store"))
        for name, value in {"stream": "s", "numPartitions": 4, **options}.items():
            reader = reader.option(name, value)
        return reader.load()

    ours_df, peer_df = load(), _peer(spark, events, 4)
    peer = _timed(lambda: _noop(peer_df))
    found = paired(_timed(lambda: _noop(ours_df)), peer, ROUNDS)
    section.rows.append(_row("scan into a noop sink", events, found, 0.8))
    two = load(columns="a,b")
    found = paired(_timed(lambda: _noop(two)), peer, ROUNDS)
    section.rows.append(_row("scan of two columns, beside all of the peer's", events, found))

    source = ours_df.persist()
    _noop(source)
    number = iter(range(1000))

    def write_ours() -> None:
        source.write.format("chronicle").mode("append").option(
            "path", str(place / f"w{next(number)}")
        ).option("stream", "s").option("time", "t").option("codec", "none").save()

    def write_parquet() -> None:
        source.write.option("compression", "none").parquet(str(place / f"p{next(number)}"))

    def write_nowhere() -> None:
        source.write.format("dropping").mode("append").save()

    _dropping(spark, source.schema)
    spark.conf.set(BYTES_LIMIT, UNLIMITED)
    found = paired(_timed(write_ours), _timed(write_parquet), ROUNDS)
    section.rows.append(_row("bulk load, against uncompressed Parquet", events, found, 0.8))
    spark.conf.unset(BYTES_LIMIT)
    found = paired(_timed(write_ours), _timed(write_parquet), ROUNDS)
    section.rows.append(_row("the same with Spark's limit of bytes a batch", events, found))
    found = paired(_timed(write_nowhere), _timed(write_parquet), ROUNDS)
    section.rows.append(
        _row("a Python sink that drops every batch, with that limit", events, found)
    )
    section.notes.append(
        f"Bulk load: `{BYTES_LIMIT}={UNLIMITED}`, as docs/spark.md advises. Below that, Spark "
        "measures an Arrow batch after every row, which costs more than the rest of the way into "
        "Python: the sink that drops everything is what is left for a connector to reach then."
    )
    source.unpersist()


def _row(
    what: str, events: int, found: tuple[float, float, float], bar: float | None = None
) -> Row:
    ours, theirs, ratio = found
    return Row(
        what,
        f"{events / ours / 1e6:.1f} M/s",
        f"{events / theirs / 1e6:.1f} M/s",
        f"{ratio:.2f}",
        "" if bar is None else f"≥ {bar:g}",
        None if bar is None else ratio >= bar,
    )
