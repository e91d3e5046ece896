"""Streams that have moved to objects, read by Spark's tasks from a service that really runs."""

from __future__ import annotations

import http.client
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import chronicle
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

from .conftest import EVENTS, FLIGHTS, START_US, flights_table, load

moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")

pytestmark = [pytest.mark.timeout(900)]

KEYS = {
    "AWS_ACCESS_KEY_ID": "reader",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a bucket."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    connection = http.client.HTTPConnection(host, port)
    for method, path in (("POST", "/moto-api/reset"), ("PUT", "/events")):
        connection.request(method, path, headers={"Host": f"{host}:{port}"})
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
    connection.close()
    yield f"s3://events/store?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    server.stop()


@pytest.fixture
def moved(tmp_path: Path, address: str) -> Path:
    """A store with the stream ``flights``, all of which has moved."""
    path = tmp_path / "store"
    with Store.open(path) as store:
        options = StreamOptions(leaf_bytes=8192, segment_bytes=32 << 10, compaction="manual")
        stream = store.create_stream("flights", FLIGHTS, options)
        for first in range(0, EVENTS, 1000):
            stream.append(flights_table().slice(first, 1000))
        stream.seal()
    with chronicle.open(path) as database:
        database.stream("flights").create_index("altitude")
        done = database.move(address)["flights"]
        assert done.segments > 4
    assert not list(path.rglob("*.seg"))
    return path


def test_tasks_read_a_stream_from_objects(spark: Any, moved: Path) -> None:
    """Several, each in a process of its own."""
    df = load(spark, moved, numPartitions=4)
    assert df.rdd.getNumPartitions() == 4
    found = df.toArrow()
    expected = flights_table()
    order = pc.sort_indices(found, sort_keys=[("timestamp", "ascending")])
    assert found.take(order).cast(expected.schema).equals(expected)


def test_executors_have_the_keys_that_spark_gives_them(spark: Any, moved: Path) -> None:
    df = load(spark, moved, numPartitions=4, columns="timestamp")

    def who(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = sum(batch.num_rows for batch in rows)
        told = [[os.getpid()], [count], [os.environ.get("AWS_ACCESS_KEY_ID", "")]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(each) for each in told], names=["pid", "events", "key"]
        )

    tasks = df.mapInArrow(who, "pid long, events long, key string").collect()
    assert sum(task.events for task in tasks) == EVENTS
    assert len({task.pid for task in tasks} - {os.getpid()}) > 1
    assert {task.key for task in tasks} == {"reader"}


def test_a_range_and_a_pattern_from_objects(spark: Any, moved: Path) -> None:
    low, high = START_US + 7_000_000_000, START_US + 9_000_000_000
    df = load(spark, moved, startTime=low, endTime=high, filter="altitude > 11000")
    ticks = flights_table()["timestamp"].cast(pa.int64()).to_numpy()
    altitude = flights_table()["altitude"].to_numpy()
    assert df.count() == int(((ticks >= low) & (ticks < high) & (altitude > 11_000)).sum())
    query = (
        "SELECT * FROM flights MATCH_RECOGNIZE (PARTITION BY icao24 ORDER BY timestamp MEASURES "
        "A.timestamp AS a, B.timestamp AS b PATTERN (A B) WITHIN INTERVAL '1' MINUTE DEFINE "
        "A AS altitude > 11500, B AS altitude < 500)"
    )
    with chronicle.open(moved, mode="r") as database:
        wanted = sorted(row[1:] for row in database.sql(query).fetchall())
    assert wanted
    rows = load(spark, moved, query=query, numPartitions=3).collect()
    assert sorted((row.a, row.b) for row in rows) == [
        tuple(each.replace(tzinfo=None) for each in row) for row in wanted
    ]
