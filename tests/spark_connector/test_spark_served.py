"""Reading and writing through a server: pinned parts, transactions, errors that keep their name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import (
    InvalidArgument,
    SchemaMismatch,
    SqlError,
    StreamNotFound,
)
from chronicle.schema import StreamSchema
from chronicle.spark_connector.backend import ScanRequest, ServerBackend
from chronicle.spark_connector.options import Options
from chronicle.spark_connector.reader import of_view
from chronicle.spark_connector.types import spark_schema
from chronicle.spark_connector.writer import open_sink

from ..server.test_server_process import Process

SCHEMA = StreamSchema(pa.schema([("t", pa.timestamp("us", "UTC")), ("n", pa.int64())]), "t")
GIVEN = spark_schema(SCHEMA.arrow)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Process(tmp_path_factory.mktemp("served") / "store")
    assert server.url, server.log
    yield server.url
    assert server.stop() == 0, server.log


def options(url: str, stream: str, **more: Any) -> Options:
    return Options(url=url, stream=stream, **more)


def batches(first: int, end: int, step: int = 1000) -> Iterator[pa.RecordBatch]:
    for start in range(first, end, step):
        numbers = range(start, min(end, start + step))
        times = pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC"))
        yield pa.RecordBatch.from_arrays([times, pa.array(numbers)], schema=SCHEMA.arrow)


def write(url: str, stream: str, *parts: tuple[int, int], **how: Any) -> None:
    sink = open_sink(options(url, stream, time="t"), GIVEN)
    job = sink.new_job()
    sink.prepare(job)
    staged: list[Any] = []
    for number, (first, end) in enumerate(parts):
        staged += sink.stage(job, number, batches(first, end))
    sink.commit(job.name, staged, **how)


def numbers(backend: ServerBackend, **scan: Any) -> list[int]:
    asked = ScanRequest(("n", "t"), **scan)
    return [
        number
        for part in backend.plan(asked)
        for batch in backend.read(asked, part)
        for number in batch.column("n").to_pylist()
    ]


def test_parts_are_pinned_and_cover_the_stream(url: str) -> None:
    write(url, "pinned", (0, 5000), (5000, 9000))
    backend = ServerBackend(options(url, "pinned"))
    assert backend.describe() == SCHEMA
    scan = ScanRequest(("n",), parts=4)
    plan = backend.plan(scan)
    write(url, "pinned", (9000, 9500))
    found = [
        number
        for part in plan
        for batch in backend.read(scan, part)
        for number in batch.column("n").to_pylist()
    ]
    assert found == list(range(9000))
    assert backend.count() == 9500
    assert numbers(backend, start=100 * 10**6, end=103 * 10**6) == [100, 101, 102]
    assert numbers(backend, filter="n % 1000 = 1", limit=3) == [1, 1001, 2001]


def test_a_transaction_is_invisible_until_its_commit_and_happens_once(url: str) -> None:
    sink = open_sink(options(url, "staged", time="t"), GIVEN)
    job = sink.new_job()
    lost = sink.stage(job, 0, batches(0, 10))
    kept = sink.stage(job, 0, batches(0, 10))
    backend = ServerBackend(options(url, "staged"))
    assert lost != kept
    assert backend.count() == 0
    first = sink.commit(job.name, kept, application="app", version=1)
    again = sink.commit(job.name, kept, application="app", version=1)
    assert (first.appended, first.repeated, again.repeated) == (10, False, True)
    other = sink.new_job()
    assert sink.commit(other.name, [], application="app", version=1).repeated
    assert backend.count() == 10
    gone = sink.new_job()
    sink.stage(gone, 0, batches(0, 10))
    sink.abort(gone.name)
    assert backend.count() == 10


def test_a_range_is_replaced_through_a_server(url: str) -> None:
    write(url, "ranges", (0, 3000))
    write(url, "ranges", (1000, 1100), over=(1000 * 10**6, 2000 * 10**6))
    found = numbers(ServerBackend(options(url, "ranges")))
    assert found == [*range(1100), *range(2000, 3000)]
    with pytest.raises(InvalidArgument, match="only what lies in the range"):
        write(url, "ranges", (0, 100), over=(None, 50 * 10**6))
    assert numbers(ServerBackend(options(url, "ranges"))) == found


def test_errors_keep_their_class(url: str) -> None:
    with pytest.raises(StreamNotFound, match="nothing"):
        ServerBackend(options(url, "nothing")).describe()
    with pytest.raises(StreamNotFound, match="option 'time'"):
        open_sink(options(url, "nothing"), GIVEN)
    write(url, "errors", (0, 10))
    with pytest.raises(SqlError, match="speed"):
        numbers(ServerBackend(options(url, "errors")), filter="speed > 1")
    with pytest.raises(SqlError, match="speed"):  # before any part is read
        ServerBackend(options(url, "errors")).plan(ScanRequest(("n",), filter="speed > 1"))
    with pytest.raises(InvalidArgument, match="in one piece"):
        ServerBackend(options(url, "errors")).plan_query("SELECT 1", 2)
    with pytest.raises(SchemaMismatch, match="time attribute is 't'"):
        open_sink(options(url, "errors", time="n"), GIVEN)


def test_spark_reads_writes_and_asks_through_a_server(spark: Any, url: str) -> None:
    def where(io: Any, **more: object) -> Any:
        io = io.format("chronicle").option("url", url)
        for name, value in more.items():
            io = io.option(name, value)
        return io

    df = spark.range(0, 3000, 1, 3).selectExpr("timestamp_seconds(id) AS t", "id AS n")
    where(df.write, stream="spark", time="t").mode("append").save()
    back = where(spark.read, stream="spark", numPartitions=2).load()
    assert back.count() == 3000
    assert back.agg({"n": "sum"}).first()[0] == 2999 * 1500
    top = where(spark.read, query="SELECT max(n) AS top FROM spark").load().first()
    assert top.top == 2999


def test_a_view_is_read_through_a_server(url: str) -> None:
    with chronicle.connect(url) as database:
        database.sql("CREATE STREAM seen (t TIMESTAMP, n BIGINT) TIMESTAMP BY t").fetchall()
        database.sql(
            "INSERT INTO seen VALUES "
            + ", ".join(f"('2020-01-01 00:00:{n}', {n})" for n in (1, 2, 3))
        ).fetchall()
        database.sql("CREATE VIEW of_seen AS SELECT * FROM seen WHERE n > 1").fetchall()
    read = of_view(options(url, "of_seen", columns="n", filter="n < 3"))
    assert (read.stream, read.query) == (None, 'SELECT "n" FROM "of_seen" WHERE (n < 3)')
    backend = ServerBackend(read)
    assert read.query is not None
    found = [
        row
        for partition in backend.plan_query(read.query, None)
        for batch in backend.run_query(read.query, partition)
        for row in batch.column(0).to_pylist()
    ]
    assert found == [2]
    assert of_view(options(url, "seen")).query is None
    with pytest.raises(StreamNotFound):
        of_view(options(url, "neither"))
