"""Batch writes to a path: one commit, once, checked before, and gone when given up."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronicle.errors import (
    ChronicleError,
    InvalidArgument,
    InvalidData,
    SchemaMismatch,
    StoreLocked,
)
from chronicle.schema import StreamSchema
from chronicle.spark_connector.options import Options
from chronicle.spark_connector.writer import EventWriter
from chronicle.store.store import Store

from .conftest import load

SCHEMA = "t timestamp, name string, x double"
START = dt.datetime(2024, 1, 1)


def events(spark: Any, first: int, end: int, parts: int = 2) -> Any:
    return spark.range(first, end, 1, parts).selectExpr(
        "timestamp_seconds(1704067200 + id) AS t", "concat('n', id % 5) AS name", "id * 0.5D AS x"
    )


def save(df: Any, path: Path, mode: str = "append", **options: object) -> None:
    writer = df.write.format("chronicle").mode(mode).option("path", str(path)).option("stream", "s")
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def stored(path: Path) -> pa.Table:
    with Store.open(path, mode="r") as store:
        snapshot = store.stream("s").snapshot()
        return pa.Table.from_batches(snapshot.scan(), snapshot.schema.arrow)


def staging_of(path: Path) -> list[str]:
    place = path / "streams" / "s" / "staging"
    return sorted(p.name for p in place.iterdir()) if place.exists() else []


def test_a_write_creates_the_stream_and_reads_back(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    df = events(spark, 0, 10_000)
    save(df, path, time="t", codec="zstd")
    table = stored(path)
    assert table.num_rows == 10_000
    assert table.schema.field("t").type == pa.timestamp("us", "UTC")
    assert not table.schema.field("t").nullable
    assert table["x"].to_pylist() == [n * 0.5 for n in range(10_000)]
    back = load(spark, path, "s")
    assert back.exceptAll(df).count() == 0
    assert staging_of(path) == []
    with Store.open(path, mode="r") as store:
        assert store.stream("s").options.codec == "zstd"
        assert len(store.stream("s").snapshot().state.segments) == 2
        assert store.stream("s").snapshot().version == 1


def test_appends_overlap_in_time_and_stay_in_order(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    save(events(spark, 0, 1000), path, time="t")
    save(events(spark, 500, 1500).orderBy("x", ascending=False).coalesce(1), path)
    save(events(spark, 3000, 3010), path)
    times = stored(path)["t"].cast(pa.int64()).to_pylist()
    seconds = [t // 1_000_000 - 1_704_067_200 for t in times]
    assert seconds == sorted([*range(1000), *range(500, 1500), *range(3000, 3010)])


def test_the_same_version_of_an_application_is_stored_once(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    for version, rows in ((1, 100), (1, 100), (0, 100), (2, 50)):
        save(events(spark, 0, rows), path, time="t", txnAppId="nightly", txnVersion=version)
    assert stored(path).num_rows == 150
    assert staging_of(path) == []


def test_overwrite_needs_truncate_and_replaces_everything(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    save(events(spark, 0, 100), path, time="t")
    with pytest.raises(Exception, match=r"option\('truncate', 'true'\)"):
        save(events(spark, 0, 10), path, mode="overwrite")
    with pytest.raises(Exception, match="needs mode"):
        save(events(spark, 0, 10), path, truncate="true")
    assert stored(path).num_rows == 100
    save(events(spark, 7, 17), path, mode="overwrite", truncate="true")
    assert stored(path)["x"].to_pylist() == [n * 0.5 for n in range(7, 17)]


def test_overwrite_replaces_a_range_of_times(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    save(events(spark, 0, 1000), path, time="t")
    day = {"startTime": "2024-01-01T00:01:40Z", "endTime": "2024-01-01T00:03:20Z"}
    save(events(spark, 120, 180), path, mode="overwrite", **day)
    expected = [n * 0.5 for n in range(1000) if not 100 <= n < 120 and not 180 <= n < 200]
    assert stored(path)["x"].to_pylist() == expected
    assert staging_of(path) == []
    where = "t >= TIMESTAMP '2024-01-01 00:16:00' AND t < TIMESTAMP '2024-01-02'"
    with pytest.raises(Exception, match="2024-01-01 00:15:59Z is not in the range"):
        save(events(spark, 959, 970), path, mode="overwrite", replaceWhere=where)
    assert stored(path).num_rows == 960
    save(events(spark, 990, 1010), path, mode="overwrite", replaceWhere=where)
    assert stored(path)["x"].to_pylist()[-21:] == [479.5, *(n * 0.5 for n in range(990, 1010))]


def test_a_failing_task_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    save(events(spark, 0, 10), path, time="t")
    broken = events(spark, 0, 1000, 4).selectExpr(
        "CASE WHEN x = 499.5 THEN NULL ELSE t END AS t", "name", "x"
    )
    with pytest.raises(Exception, match="column 't' must not be null"):
        save(broken, path)
    assert stored(path).num_rows == 10
    assert staging_of(path) == []


def test_a_commit_that_fails_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    save(events(spark, 0, 10), path, time="t")
    with Store.open(path), pytest.raises(Exception, match="StoreLocked"):  # a writer in the way
        save(events(spark, 10, 500), path, timeout=0.2)
    assert stored(path).num_rows == 10
    assert staging_of(path) == []
    save(events(spark, 10, 500), path)
    assert stored(path).num_rows == 500


def test_what_does_not_fit_is_refused_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pytest.raises(Exception, match="give the option 'time'"):
        save(events(spark, 0, 10), path)
    save(events(spark, 0, 10), path, time="t")
    df = events(spark, 0, 10)
    for wrong, message in (
        (df.withColumnRenamed("x", "y"), "no column y"),
        (df.drop("t"), "requires a column 't'"),
        (df.withColumn("x", df.name), "cast it in Spark"),
    ):
        with pytest.raises(Exception, match=message):
            save(wrong, path)
    with pytest.raises(Exception, match="time attribute is 't'"):
        save(df.withColumn("n", df.x.cast("long")), path, time="n")
    assert stored(path).num_rows == 10


def test_a_column_that_is_missing_is_null(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    save(events(spark, 0, 10), path, time="t")
    save(events(spark, 10, 20).select("T", "x"), path)
    assert stored(path)["name"].null_count == 10


def test_times_without_a_zone_and_other_types_survive(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    df = spark.sql(
        "SELECT timestamp_ntz'2024-03-31 02:30:00.123456' AS t, cast(1.25 AS decimal(10,2)) AS d,"
        " date'1969-12-31' AS day, X'00FF' AS b, true AS f, cast(-1 AS tinyint) AS i,"
        " cast('NaN' AS double) AS n, cast(NULL AS string) AS s"
    )
    save(df, path, time="t")
    back = load(spark, path, "s")
    assert back.schema["t"].dataType.typeName() == "timestamp_ntz"
    assert repr(back.collect()) == repr(df.collect())


# ------------------------------------------------------ faults, without a session


def batch_of(first: int, end: int) -> pa.RecordBatch:
    times = [(1_704_067_200 + n) * 1_000_000 for n in range(first, end)]
    return pa.record_batch(
        {
            "t": pa.array(times, pa.timestamp("us", "Europe/Zurich")),
            "name": pa.array([f"n{n % 5}" for n in range(first, end)]),
            "x": pa.array([n * 0.5 for n in range(first, end)]),
        }
    )


def writer_of(path: Path, overwrite: bool = False, **options: str) -> EventWriter:
    from pyspark.sql.types import StructType

    schema = StructType().add("t", "timestamp").add("name", "string").add("x", "double")
    raw = {"path": str(path), "stream": "s", "time": "t", **options}
    return EventWriter(Options.parse(raw, "w"), schema, overwrite)


def test_an_attempt_that_is_not_committed_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "store"
    writer = writer_of(path)
    lost = writer.write(iter([batch_of(0, 10)]))  # a speculative twin, or an executor that died
    kept = writer.write(iter([batch_of(0, 10)]))
    assert lost != kept
    assert stored(path).num_rows == 0
    writer.commit([kept])
    writer.commit([kept])  # Spark lost our answer and asks again
    assert stored(path).num_rows == 10
    assert staging_of(path) == []


TIMES = "t BETWEEN TIMESTAMP '2024-01-01 00:00:02' AND TIMESTAMP '2024-01-01 00:00:04'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "name a range of times with startTime and endTime"),
        ({"truncate": "true", "endTime": "2024-01-01"}, "both say what is replaced"),
        ({"replaceWhere": TIMES, "startTime": "2024-01-01"}, "both say what is replaced"),
        ({"startTime": "2024-01-02", "endTime": "2024-01-01"}, "endTime after startTime"),
        ({"replaceWhere": "x > 3"}, "expected a range of times"),
        ({"replaceWhere": f"{TIMES} AND x > 3"}, "expected a range of times"),
        ({"replaceWhere": f"{TIMES} OR t > TIMESTAMP '2025-01-01'"}, "expected a range of times"),
        ({"replaceWhere": "t > TIMESTAMP '2025-01-01' AND t < TIMESTAMP '2024-01-01'"}, "a range"),
        ({"replaceWhere": "t >"}, "ends too early"),
        ({"replaceWhere": "nothing > 3"}, "nothing"),
    ],
)
def test_what_an_overwrite_replaces_is_said_exactly(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ChronicleError, match=message):
        writer_of(tmp_path / "store", overwrite=True, **options)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"replaceWhere": TIMES}, [0, 1, 5, 6, 7, 8, 9]),
        ({"startTime": "2024-01-01T00:00:07Z"}, [0, 1, 2, 3, 4, 5, 6]),
        ({"endTime": "1704067203000000"}, [3, 4, 5, 6, 7, 8, 9]),
        ({"truncate": "true"}, []),
    ],
)
def test_an_overwrite_without_rows_deletes(
    tmp_path: Path, options: dict[str, str], kept: list[int]
) -> None:
    path = tmp_path / "store"
    writer = writer_of(path)
    writer.commit([writer.write(iter([batch_of(0, 10)]))])
    writer_of(path, overwrite=True, **options).commit([])
    assert stored(path)["x"].to_pylist() == [n * 0.5 for n in kept]


def test_a_range_without_overwrite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="'endTime' needs mode"):
        writer_of(tmp_path / "store", endTime="2024-01-01")


def test_a_driver_that_dies_before_the_commit_leaves_only_staged_files(tmp_path: Path) -> None:
    path = tmp_path / "store"
    writer = writer_of(path)
    writer.write(iter([batch_of(0, 10)]))
    assert stored(path).num_rows == 0
    assert len(staging_of(path)) == 1
    again = writer_of(path)
    again.commit([again.write(iter([batch_of(0, 10)]))])
    assert stored(path).num_rows == 10


def test_a_commit_waits_for_the_writer_and_then_gives_up(tmp_path: Path) -> None:
    path = tmp_path / "store"
    writer = writer_of(path, timeout="0.5")
    message = writer.write(iter([batch_of(0, 10)]))
    with Store.open(path), pytest.raises(StoreLocked):
        writer.commit([message])
    writer.commit([message])
    assert stored(path).num_rows == 10


def test_a_task_of_an_aborted_job_cannot_go_on(tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "store")
    writer.abort([None])
    with pytest.raises(Exception, match="the job was aborted"):
        writer.write(iter([batch_of(0, 10)]))


def test_errors_of_tasks_name_the_column(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        narrow = pa.schema(
            [("t", pa.timestamp("s", "UTC")), ("name", pa.string()), ("x", pa.float64())]
        )
        store.create_stream("s", StreamSchema(narrow, "t"))
    writer = writer_of(tmp_path / "store")
    fine = batch_of(0, 3)
    fine = fine.set_column(0, "t", pa.array([1, 2, 3], pa.timestamp("us", "UTC")))
    with pytest.raises(InvalidData, match="'t' does not fit"):
        writer.write(iter([fine]))
    with pytest.raises(SchemaMismatch, match="the DataFrame has t, name, x"):
        writer_of(tmp_path / "other", time="when")


def test_json_lists_and_structs_are_written_and_read_back(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    columns = pa.schema([
        ("t", pa.timestamp("us", "UTC")), ("j", pa.json_()), ("x", pa.list_(pa.float64())),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
    ])  # fmt: skip
    with Store.open(path) as store:
        store.create_stream("s", StreamSchema(columns, "t"))
    df = spark.range(0, 500, 1, 2).selectExpr(
        "timestamp_seconds(1704067200 + id) AS t",
        "to_json(named_struct('n', id, 'of', array(id))) AS j",
        "IF(id % 7 = 0, NULL, array(id * 0.5D, NULL)) AS x",
        "named_struct('a', id, 'b', array('p', concat('q', id))) AS s",
    )
    save(df, path)
    rows = stored(path).to_pylist()
    assert len(rows) == 500
    assert rows[3]["j"] == '{"n":3,"of":[3]}'
    assert (rows[7]["x"], rows[8]["x"]) == (None, [4.0, None])
    assert rows[9]["s"] == {"a": 9, "b": ["p", "q9"]}
    back = load(spark, path, "s")
    assert back.schema["s"].dataType.simpleString() == "struct<a:bigint,b:array<string>>"
    found = back.selectExpr(
        "count(*) AS n", "sum(get_json_object(j, '$.of[0]')) AS j", "sum(x[0]) AS x",
        "count(DISTINCT s.b[1]) AS b",
    ).collect()[0]  # fmt: skip
    ids = range(500)
    assert found.asDict() == {
        "n": 500, "j": sum(ids), "x": sum(0.5 * n for n in ids if n % 7), "b": 500,
    }  # fmt: skip
