"""Structured Streaming: the source gives each event once, the sink stores each batch once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronicle.errors import InvalidArgument, SnapshotExpired
from chronicle.schema import StreamSchema
from chronicle.spark_connector.options import Options
from chronicle.spark_connector.stream_reader import EventStreamReader, Offset
from chronicle.store import EventStream, Store, StreamOptions, staging

pytestmark = pytest.mark.spark
SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64())]), "t")


class Feed:
    """A store that is appended to between the steps of a test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with Store.open(path) as store:
            store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=4096, late_events_max=50))
        self.n = 0

    def append(self, times: range | list[int], *steps: str) -> list[tuple[int, int]]:
        rows = [(t, self.n + i) for i, t in enumerate(times)]
        self.n += len(rows)
        columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
        with Store.open(self.path) as store:
            stream = store.stream("s")
            assert isinstance(stream, EventStream)
            stream.append(pa.record_batch(columns, schema=SCHEMA.arrow))
            for step in steps:
                getattr(stream, step)()
        return rows


def reader_of(path: Path, **options: str) -> EventStreamReader:
    from pyspark.sql.types import StructType

    raw = {"path": str(path), "stream": "s", **options}
    wanted = StructType().add("t", "long", False).add("n", "long")
    return EventStreamReader(Options.parse(raw, "s"), wanted)


def take(reader: EventStreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows


def test_batches_follow_commits_and_give_each_event_once(tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    feed = Feed(tmp_path / "store")
    reader = reader_of(feed.path)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    steps: list[tuple[range | list[int], list[str]]] = [
        (range(0, 1000), []),
        (range(1000, 1100), ["seal"]),
        ([3, 500, 1099, 2], []),
        ([7] * 60, ["compact"]),
        (range(2000, 2010), ["compact", "seal"]),
    ]
    for times, after in steps:
        rows = feed.append(times, *after)
        end = reader.latestOffset(start, ReadAllAvailable())
        found = take(reader, start, end)
        assert found == sorted(rows, key=lambda row: row[0])
        assert take(reader_of(feed.path), start, end) == found  # another process, the same batch
        reader.commit(start)
        start = end
    assert len(list((feed.path / "streams" / "s" / "pins").iterdir())) <= 2


def test_a_limit_cuts_a_commit_into_batches(tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    feed = Feed(tmp_path / "store")
    rows = feed.append(range(0, 2500))
    reader = reader_of(feed.path, maxRowsPerTrigger="1000", numPartitions="3")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    start = reader.initialOffset()
    sizes, found = [], []
    while (end := reader.latestOffset(start, limit)) != start:
        batch = take(reader_of(feed.path), start, end)
        sizes.append(len(batch))
        found += batch
        start = end
    assert sizes == [1000, 1000, 500]
    assert found == rows


def test_positions_to_start_from(tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    feed = Feed(tmp_path / "store")
    feed.append(range(0, 10))
    second = feed.append(range(10, 20))
    latest = reader_of(feed.path, startingPosition="latest")
    first = reader_of(feed.path, startingPosition="1")
    start, one = latest.initialOffset(), first.initialOffset()
    assert latest.initialOffset() == start
    third = feed.append(range(20, 30))
    assert take(latest, start, latest.latestOffset(start, ReadAllAvailable())) == third
    assert take(first, one, first.latestOffset(one, ReadAllAvailable())) == second + third
    with pytest.raises(SnapshotExpired, match="as of the commits"):
        reader_of(feed.path, startingPosition="77").initialOffset()


def test_checkpoints_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    feed = Feed(tmp_path / "store")
    feed.append(range(0, 10))
    reader = reader_of(feed.path)
    with pytest.raises(SnapshotExpired, match="new checkpoint"):
        reader.latestOffset(Offset("1-ab", "1-ab").to_json(), ReadAllAvailable())
    with pytest.raises(InvalidArgument, match="version 2"):
        reader.latestOffset({"v": 2}, ReadAllAvailable())
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with Store.open(feed.path) as store:
        staging.commit_staged(store.stream("s"), staging.new_job(), [], truncate=True)  # type: ignore[arg-type]
    feed.append(range(5))
    with pytest.raises(SnapshotExpired, match="truncated"):
        reader.latestOffset(end, ReadAllAvailable())


class Copy:
    """A streaming query from one stream into another."""

    def __init__(self, spark: Any, feed: Feed, directory: Path) -> None:
        self.spark = spark
        self.feed = feed
        self.target = directory / "target"
        self.checkpoint = directory / "checkpoint"

    def run(self) -> Any:
        source = (
            self.spark.readStream.format("chronicle")
            .option("path", str(self.feed.path))
            .option("stream", "s")
            .option("maxRowsPerTrigger", 600)
            .load()
        )
        query = (
            source.writeStream.format("chronicle")
            .option("path", str(self.target))
            .option("stream", "copy")
            .option("time", "t")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        assert query.exception() is None
        return query

    def rows(self) -> list[tuple[int, int]]:
        with Store.open(self.target, mode="r") as store:
            batches = store.stream("copy").snapshot().scan()
            return [
                row
                for batch in batches
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            ]


def test_a_stream_is_copied_by_a_query(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "source")
    rows = feed.append(range(0, 1000))
    copy = Copy(spark, feed, tmp_path)
    query = copy.run()
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [600, 400]
    assert copy.rows() == rows


@pytest.mark.slow
def test_a_query_goes_on_after_a_restart_and_a_replay(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "source")
    rows = feed.append(range(0, 1000))
    copy = Copy(spark, feed, tmp_path)
    copy.run()
    rows += feed.append([5, 999, 1000, 1001], "compact")  # late ones among them
    copy.run()
    assert copy.rows() == sorted(rows, key=lambda row: row[0])
    # The last batch is run again, as after a crash between the sink's commit and Spark's own.
    commits = sorted((copy.checkpoint / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    copy.run()
    assert copy.rows() == sorted(rows, key=lambda row: row[0])
