"""Structured Streaming: the source gives each event once, the sink stores each batch once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import Database, open_database
from chronicle.catalog.streams import handle_of
from chronicle.errors import InvalidArgument, ResourceLimit, SnapshotExpired
from chronicle.schema import StreamSchema
from chronicle.spark_connector.options import Options
from chronicle.spark_connector.stream_reader import EventStreamReader, Offset
from chronicle.store import staging
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.patience import PATIENCE_S, wait_until

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64())]), "t")


class Feed:
    """A store that is appended to between the steps of a test, followed by its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with Store.open(path) as store:
            store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=4096, late_events_max=50))
        self.n = 0

    def where(self, path: Path) -> dict[str, str]:
        """Options that lead to a stream of this store, or of another one in the same manner."""
        return {"path": str(path)}

    def append(self, times: range | list[int], *steps: str) -> list[tuple[int, int]]:
        rows = [(t, self.n + i) for i, t in enumerate(times)]
        self.n += len(rows)
        columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
        self.change(lambda stream: stream.append(pa.record_batch(columns, schema=SCHEMA.arrow)))
        for step in steps:
            self.change(lambda stream, step=step: getattr(stream, step)())  # type: ignore[misc]
        return rows

    def truncate(self) -> None:
        self.change(
            lambda stream: staging.commit_staged(stream, staging.new_job(), [], truncate=True)
        )

    def change(self, how: Callable[[EventStream], object]) -> None:
        with Store.open(self.path) as store:
            stream = store.stream("s")
            assert isinstance(stream, EventStream)
            how(stream)


class Served:
    """A real server, in a thread, around a database."""

    def __init__(self, database: Database, **settings: Any) -> None:
        import uvicorn

        from chronicle.server.access.settings import Settings
        from chronicle.server.app import create_app

        app = create_app(database, Settings(store=database.path, **settings))
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        wait_until(lambda: self.server.started)
        address = self.server.servers[0].sockets[0].getsockname()
        self.url = f"http://127.0.0.1:{address[1]}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE_S)


class ServedFeed(Feed):
    """The same store behind a server, followed by its url."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.start()

    def start(self, **settings: Any) -> None:
        self.database = open_database(self.path)
        self.served = Served(self.database, **settings)

    def stop(self) -> None:
        self.served.stop()
        self.database.close()

    def where(self, path: Path) -> dict[str, str]:
        return {"url": self.served.url} if path == self.path else super().where(path)

    def change(self, how: Callable[[EventStream], object]) -> None:
        stream = handle_of(self.database.stream("s"))
        assert isinstance(stream, EventStream)
        how(stream)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedFeed]:
    pytest.importorskip("uvicorn", reason="the server extra is not installed")
    feed = ServedFeed(tmp_path / "store")
    yield feed
    feed.stop()


@pytest.fixture(params=["path", "url"])
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "url":
        return request.getfixturevalue("served")
    return Feed(tmp_path / "store")


def reader_of(feed: Feed, **options: str) -> EventStreamReader:
    from pyspark.sql.types import StructType

    raw = {**feed.where(feed.path), "stream": "s", **options}
    wanted = StructType().add("t", "long", False).add("n", "long")
    return EventStreamReader(Options.parse(raw, "s"), wanted)


def take(reader: EventStreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows


def test_batches_follow_commits_and_give_each_event_once(feed: Feed) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    reader = reader_of(feed)
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
        assert take(reader_of(feed), start, end) == found  # another process, the same batch
        reader.commit(start)
        start = end
    assert len(list((feed.path / "streams" / "s" / "pins").iterdir())) <= 2


def test_a_limit_cuts_a_commit_into_batches(feed: Feed) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    rows = feed.append(range(0, 2500))
    reader = reader_of(feed, maxRowsPerTrigger="1000", numPartitions="3")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    start = reader.initialOffset()
    sizes, found = [], []
    while (end := reader.latestOffset(start, limit)) != start:
        batch = take(reader_of(feed), start, end)
        sizes.append(len(batch))
        found += batch
        start = end
    assert sizes == [1000, 1000, 500]
    assert found == rows


def test_many_short_runs_leave_few_positions(feed: Feed) -> None:
    offset = reader_of(feed).initialOffset()
    found, rows = [], []
    for run in range(6):
        if run % 3:  # two runs of three find something
            rows += feed.append(range(10 * run, 10 * run + 5))
        reader = reader_of(feed, maxRowsPerTrigger="3")
        reader.prepareForTriggerAvailableNow()
        while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
            reader.commit(offset)  # of the batch before, as Spark does
            found += take(reader, offset, end)
            offset = end
    assert found == rows
    assert len(list((feed.path / "streams" / "s" / "pins").glob("*.pin"))) <= 2


def test_positions_to_start_from(feed: Feed) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    feed.append(range(0, 10))
    second = feed.append(range(10, 20))
    latest = reader_of(feed, startingPosition="latest")
    first = reader_of(feed, startingPosition="1")
    start, one = latest.initialOffset(), first.initialOffset()
    assert latest.initialOffset() == start
    third = feed.append(range(20, 30))
    assert take(latest, start, latest.latestOffset(start, ReadAllAvailable())) == third
    assert take(first, one, first.latestOffset(one, ReadAllAvailable())) == second + third
    with pytest.raises(SnapshotExpired, match="as of the commits"):
        reader_of(feed, startingPosition="77").initialOffset()


def test_checkpoints_that_lead_nowhere_are_named(feed: Feed) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    feed.append(range(0, 10))
    reader = reader_of(feed)
    unknown = "1-0123456789abcdef"
    with pytest.raises(SnapshotExpired, match="new checkpoint"):
        reader.latestOffset(Offset(unknown, unknown).to_json(), ReadAllAvailable())
    with pytest.raises(InvalidArgument, match="version 2"):
        reader.latestOffset({"v": 2}, ReadAllAvailable())
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    feed.truncate()
    feed.append(range(5))
    with pytest.raises(SnapshotExpired, match="truncated"):
        reader.latestOffset(end, ReadAllAvailable())


def test_positions_of_a_server_survive_its_restart(served: ServedFeed) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    served.append(range(10))
    reader = reader_of(served)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    rows = served.append([3, 11, 12])
    second = reader.latestOffset(first, ReadAllAvailable())
    served.stop()
    served.start()
    served.append([4], "compact")
    assert take(reader_of(served), first, second) == sorted(rows)


def test_an_answer_that_a_server_cut_short_is_an_error(served: ServedFeed) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    served.stop()
    served.start(max_rows=100)
    rows = served.append(range(250))
    reader = reader_of(served)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with pytest.raises(ResourceLimit, match="100 events of 250"):
        take(reader, reader.initialOffset(), end)
    assert len(rows) == 250


class Copy:
    """A streaming query from one stream into another, on the same path or server or not."""

    def __init__(self, spark: Any, feed: Feed, directory: Path) -> None:
        self.spark = spark
        self.feed = feed
        self.target = directory / "target"
        self.checkpoint = directory / "checkpoint"

    def run(self, fails: bool = False) -> Any:
        source = (
            self.spark.readStream.format("chronicle")
            .options(**self.feed.where(self.feed.path))
            .option("stream", "s")
            .option("maxRowsPerTrigger", 600)
            .load()
        )
        query = (
            source.writeStream.format("chronicle")
            .options(**self.feed.where(self.target))
            .option("stream", "copy")
            .option("time", "t")
            .option("checkpointLocation", str(self.checkpoint))
            .option("timeout", 0.2 if fails else PATIENCE_S)
            .trigger(availableNow=True)
            .start()
        )
        if fails:
            with pytest.raises(Exception, match="StoreLocked"):
                query.awaitTermination(PATIENCE_S)
            return query
        assert query.awaitTermination(PATIENCE_S)
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


def test_a_stream_is_copied_by_a_query(spark: Any, feed: Feed, tmp_path: Path) -> None:
    rows = feed.append(range(0, 1000))
    copy = Copy(spark, feed, tmp_path)
    query = copy.run()
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [600, 400]
    assert copy.rows() == rows


def test_a_query_goes_on_after_a_restart_and_a_replay(
    spark: Any, feed: Feed, tmp_path: Path
) -> None:
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


def test_a_commit_that_fails_is_made_up_for_once(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "store")
    copy = Copy(spark, feed, tmp_path)
    rows = feed.append(range(0, 500))
    copy.run()
    rows += feed.append([3, *range(500, 900)])
    with Store.open(copy.target):  # a writer in the way
        copy.run(fails=True)
    assert len(copy.rows()) == 500
    copy.run()
    copy.run()
    assert copy.rows() == sorted(rows, key=lambda row: row[0])
