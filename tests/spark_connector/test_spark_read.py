"""Batch reads from a path: found without registration, exact, pruned, cut and pinned."""

from __future__ import annotations

import datetime as dt
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import chronicle
from chronicle.errors import SnapshotExpired, SqlError
from chronicle.schema import StreamSchema
from chronicle.spark_connector.backend import LocalBackend, ScanRequest
from chronicle.spark_connector.options import Options
from chronicle.spark_connector.reader import ScanReader
from chronicle.spark_connector.types import spark_schema
from chronicle.store.store import Store
from chronicle.store.stream import EventStream

from .conftest import EVENTS, START, START_US, flights_table, load


def test_the_format_is_found_and_the_stream_is_whole(read: Any) -> None:
    df = read()
    assert df.schema.simpleString() == (
        "struct<timestamp:timestamp,icao24:string,altitude:double,squawk:int>"
    )
    assert not df.schema["timestamp"].nullable
    expected = flights_table()
    found = df.toArrow()
    assert found.num_rows == EVENTS
    order = pc.sort_indices(found, sort_keys=[("timestamp", "ascending")])
    assert found.take(order).cast(expected.schema).equals(expected)


def test_partitions_cover_everything_once_and_in_order(read: Any) -> None:
    df = read(numPartitions=5)
    assert df.rdd.getNumPartitions() == 5
    from pyspark.sql import functions as F  # noqa: N812

    rows = (
        df.groupBy(F.spark_partition_id().alias("part"))
        .agg(F.count("*").alias("n"), F.min("timestamp").alias("a"), F.max("timestamp").alias("z"))
        .orderBy("part")
        .collect()
    )
    assert sum(row.n for row in rows) == EVENTS
    assert len(rows) == 5
    assert min(row.n for row in rows) > EVENTS / 10
    assert all(one.z < two.a for one, two in pairwise(rows))


def test_columns_are_pruned_by_option_and_by_schema(read: Any) -> None:
    assert read(columns="squawk,timestamp").columns == ["squawk", "timestamp"]
    df = read(schema="altitude double, SQUAWK bigint")
    assert df.columns == ["altitude", "SQUAWK"]
    table = flights_table()
    assert df.agg({"SQUAWK": "sum"}).first()[0] == pc.sum(table["squawk"]).as_py()
    with pytest.raises(Exception, match="the stream has timestamp, icao24"):
        read(schema="speed double").count()
    with pytest.raises(Exception, match="no attribute 'speed'"):
        read(columns="speed")


def test_times_are_bounded_by_iso_text_and_microseconds(read: Any) -> None:
    day = START.strftime("%Y-%m-%d")
    assert read(startTime=f"{day}T01:00:00Z", endTime=f"{day}T02:00:00+00:00").count() == 3600
    assert read(endTime=START_US + 10_000_000).count() == 10
    assert read(startTime=f"{day}T02:00:00+01:00", endTime=f"{day}T01:00:01Z").count() == 1
    assert read(startTime="2030-01-01").count() == 0
    with pytest.raises(Exception, match="expected a time such as"):
        read(startTime="yesterday").count()


def test_filter_and_limit_are_applied_inside_the_store(read: Any) -> None:
    table = flights_table()
    high = table.filter(pc.greater(table["altitude"], 11_000))
    df = read(filter="altitude > 11000 AND icao24 LIKE 'plane0%'", numPartitions=3)
    expected = high.filter(pc.starts_with(high["icao24"], "plane0"))
    assert df.count() == expected.num_rows
    assert read(filter="altitude IS NULL").count() == table["altitude"].null_count
    limited = read(limit=7).orderBy("timestamp").collect()
    shown = [row.timestamp.astimezone(dt.timezone.utc) for row in limited]  # local times
    assert shown == [START + dt.timedelta(seconds=n) for n in range(7)]
    assert read(limit=0).count() == 0
    first = read(filter="altitude > 11000", limit=3, columns="timestamp").toArrow()
    assert first["timestamp"].to_pylist() == high["timestamp"].slice(0, 3).to_pylist()
    with pytest.raises(Exception, match="speed"):
        read(filter="speed > 1").count()


def test_a_view_in_sql_takes_the_options(spark: Any, flights: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW flights USING chronicle "
        f"OPTIONS (path '{flights}', stream 'flights', startTime '2018-08-01T00:01:00Z')"
    )
    assert spark.sql("SELECT count(*) FROM flights").first()[0] == EVENTS - 60


def test_one_dataframe_may_be_filtered_in_several_ways(read: Any) -> None:
    """The three lines that are wrong when filters leak between scans (platform limit)."""
    df = read(columns="timestamp,squawk", endTime=START_US + 1_000_000_000)
    one, two = df.where("squawk < 4000"), df.where("squawk >= 4000")
    assert one.count() + two.count() == df.count() == 1000
    assert one.union(two).count() == 1000
    assert df.where("squawk < 10").union(df.where("squawk > 7990")).distinct().count() == len(
        {(t, s) for t, s in df.collect() if s < 10 or s > 7990}
    )


def test_pushed_filters_skip_and_never_lose(read: Any) -> None:
    from chronicle.spark_connector.options import Options
    from chronicle.spark_connector.source import DefaultSource

    table = flights_table()
    conditions = {
        "squawk = 77": pc.equal(table["squawk"], 77),
        "altitude > 11990.5": pc.greater(table["altitude"], 11990.5),
        "altitude is null": pc.is_null(table["altitude"]),
        "icao24 in ('plane03', 'plane07')": pc.is_in(
            table["icao24"], pa.array(["plane03", "plane07"])
        ),
        "icao24 like 'plane1%' and squawk < 100": pc.and_(
            pc.starts_with(table["icao24"], "plane1"), pc.less(table["squawk"], 100)
        ),
        "timestamp >= '2018-08-01 01:00:00.5' and timestamp < '2018-08-01 01:10:00'": pc.and_(
            pc.greater_equal(
                table["timestamp"], pa.scalar(START + dt.timedelta(hours=1, microseconds=500_000))
            ),
            pc.less(table["timestamp"], pa.scalar(START + dt.timedelta(hours=1, minutes=10))),
        ),
    }
    for text, mask in conditions.items():
        assert read(pushFilters="true").where(text).count() == pc.sum(mask).as_py(), text
    assert Options.parse({"path": "/s", "stream": "s", "pushFilters": "1"}, "r").push_filters
    assert DefaultSource.name() == "chronicle"


def test_a_plan_is_pinned(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
    from chronicle.schema import StreamSchema

    path = tmp_path / "store"
    with Store.open(path) as store:
        stream = store.create_stream("s", StreamSchema(schema, "t"))
        stream.append(pa.record_batch([pa.array(range(100)), pa.array([1.0] * 100)], schema=schema))
        df = load(spark, path, "s")
        assert df.count() == 100  # beside the writer, which holds the lock
        stream.append(
            pa.record_batch([pa.array([50, 200]), pa.array([math.nan, 2.0])], schema=schema)
        )
        stream.seal()
        stream.compact()
        assert df.count() == 100
        assert load(spark, path, "s").count() == 102
        assert load(spark, path, "s", startTime=50, endTime=51).count() == 2


def test_errors_reach_the_user(spark: Any, flights: Path, tmp_path: Path) -> None:
    reader = spark.read.format("chronicle")
    with pytest.raises(Exception, match="did you mean 'stream'"):
        reader.option("path", str(flights)).option("streem", "flights").load()
    with pytest.raises(Exception, match="no stream 'fights'; there are flights"):
        load(spark, flights, "fights")
    with pytest.raises(Exception, match="there is no store at"):
        spark.read.format("chronicle").option("stream", "s").load(str(tmp_path / "none"))


def test_a_wrong_filter_is_told_when_the_read_is_planned(tmp_path: Path) -> None:
    arrow = pa.schema([("t", pa.int64()), ("x", pa.float64())])
    with chronicle.open(tmp_path / "s") as database:
        database.create_stream("s", arrow, "t").append([{"t": 1, "x": 1.5}])
    options = Options.parse({"path": str(tmp_path / "s"), "stream": "s"}, "r")
    backend = LocalBackend(options)
    assert len(backend.plan(ScanRequest(("t", "x"), filter="x > 1 AND t < 5"))) == 1
    with pytest.raises(SqlError, match="no column 'speed'"):
        backend.plan(ScanRequest(("t",), filter="speed > 1"))
    with pytest.raises(SqlError):
        backend.plan(ScanRequest(("t",), filter="x >"))


def test_an_earlier_commit_is_read_as_far_back_as_the_log_tells(tmp_path: Path) -> None:
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64())]), "t")
    commits = []
    with Store.open(tmp_path / "store") as store:
        stream = store.create_stream("s", schema)
        assert isinstance(stream, EventStream)
        for n in range(4):
            if n == 2:
                stream.seal()  # a new log begins, and tells of nothing before
            stream.append(pa.record_batch([pa.array([n]), pa.array([n])], schema=schema.arrow))
            commits.append(stream.snapshot().version)

    def read_as_of(position: int) -> list[int]:
        raw = {"path": str(tmp_path / "store"), "stream": "s", "asOf": str(position)}
        reader = ScanReader(Options.parse(raw, "r"), spark_schema(schema.arrow))
        return [
            n
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for n in batch.column("n").to_pylist()
        ]

    assert read_as_of(commits[2]) == [0, 1, 2]
    assert read_as_of(commits[3]) == [0, 1, 2, 3]
    for position in (commits[0], commits[3] + 1):
        with pytest.raises(SnapshotExpired, match=f"to {commits[3]}, found {position}"):
            read_as_of(position)
