"""The pipeline on Spark: what the other engine reads, in parallel, in one commit, adding up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import catalog_of, open_database
from chronicle.errors import (
    ConnectionFailed,
    InvalidArgument,
    InvalidData,
    MissingDependency,
    SchemaMismatch,
    StreamExists,
    StreamNotFound,
)
from chronicle.ingest import IngestRequest, Target, ingest
from chronicle.ingest.sinks import StoreSink
from chronicle.spark_connector.inputs import read_slice
from chronicle.spark_connector.pipeline import PipelineReport, Steps, run_pipeline
from chronicle.tests.patience import wait_until

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def csv_file(path: Path, rows: int, first: int = 0, bad: dict[int, str] | None = None) -> Path:
    lines = ["when,sensor,value"]
    for n in range(first, first + rows):
        good = f"2024-01-01T{n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d}Z,s{n % 7},{n * 0.5}"
        lines.append((bad or {}).get(n, good))
    path.write_text("\n".join(lines) + "\n")
    return path


def run(
    spark: Any, tmp_path: Path, inputs: list[Path], steps: Steps | None = None, **how: Any
) -> PipelineReport:
    asked: dict[str, Any] = {"stream": "s", "time": "when", "create": True, **how}
    request = IngestRequest([str(path) for path in inputs], engine="spark", **asked)
    report = run_pipeline(request, Target(path=tmp_path / "store"), steps, spark=spark)
    assert report.rows == report.stored + report.bad + report.duplicates + report.filtered or (
        request.dry_run
    )
    return report


def stored(path: Path) -> pa.Table:
    with open_database(path, "r") as database:
        return database.stream("s").scan().read_all()


def test_both_engines_store_the_same(spark: Any, tmp_path: Path) -> None:
    files = [
        csv_file(tmp_path / "a.csv", 300, bad={7: "yesterday,s1,1", 9: "2024-01-01T00Z,s2,many"}),
        csv_file(tmp_path / "b.csv", 300, first=200, bad={210: "2024-01-01,s2", 220: ",s2,3"}),
    ]
    (tmp_path / "c.ndjson").write_text(
        "\n".join(
            json.dumps({"when": f"2024-01-02 00:00:{n:02d}Z", "sensor": "ü", "value": n})
            for n in range(60)
        )
        + '\n{"when": "2024-01-03", "sen\n'
    )
    files.append(tmp_path / "c.ndjson")
    report = run(spark, tmp_path, files, on_error="quarantine", quarantine=tmp_path / "bad.ndjson")
    request = IngestRequest(
        [str(path) for path in files], stream="s", time="when", create=True,
        on_error="quarantine", quarantine=tmp_path / "other.ndjson",
    )  # fmt: skip
    other = ingest(request, Target(path=tmp_path / "other"))
    assert (report.rows, report.bad, report.stored) == (other.rows, other.bad, other.stored)
    assert (report.bad, report.stored) == (5, 656)
    assert stored(tmp_path / "store").equals(stored(tmp_path / "other"))
    bad = [json.loads(line) for line in (tmp_path / "bad.ndjson").read_text().splitlines()]
    expected = [json.loads(line) for line in (tmp_path / "other.ndjson").read_text().splitlines()]
    assert bad == expected
    assert report.bad_columns == {"when": 2, "value": 1, "(the row as a whole)": 2}


def test_times_of_two_columns_and_a_zone_are_read_alike(spark: Any, tmp_path: Path) -> None:
    rows = [f"2026-07-{n % 28 + 1:02d};{n % 24:02d}:05;{n}" for n in range(600)]
    rows[5], rows[6] = "05.07.2026;12:00;5", "25.10.2026;02:30;6"
    (tmp_path / "a.csv").write_text("day;clock;x\n" + "\n".join(rows) + "\n")
    chosen: dict[str, Any] = {
        "time": "day", "time_of_day": "clock", "time_zone": "Europe/Berlin", "on_error": "skip",
        "time_format": ["%d.%m.%Y %H:%M", "iso"],
    }  # fmt: skip
    report = run(spark, tmp_path, [tmp_path / "a.csv"], Steps(split_bytes=4000), **chosen)
    request = IngestRequest([str(tmp_path / "a.csv")], stream="s", create=True, **chosen)
    ingest(request, Target(path=tmp_path / "other"))
    assert (report.bad, report.stored) == (1, 599)
    found = stored(tmp_path / "store")
    assert found.equals(stored(tmp_path / "other"))
    assert found.column_names == ["day", "x"]


def test_the_first_bad_row_ends_a_strict_run(spark: Any, tmp_path: Path) -> None:
    file = csv_file(tmp_path / "a.csv", 50, bad={30: "2024-01-01T00:00:00Z,s1,x", 40: "never,s1,1"})
    with pytest.raises(InvalidData, match=r"a\.csv, line 32.*column 'value'.*found 'x'"):
        run(spark, tmp_path, [file])
    assert not (tmp_path / "store").exists()  # nor an empty stream


def test_derive_filter_and_deduplicate(spark: Any, tmp_path: Path) -> None:
    one = csv_file(tmp_path / "a.csv", 100)
    two = csv_file(tmp_path / "b.csv", 100, first=50)
    steps = Steps(
        derive={"double": "value * 2", "sensor": "upper(sensor)"},
        where="value < 60",
        unique=["when", "sensor"],
    )
    report = run(spark, tmp_path, [one, two], steps)
    assert (report.rows, report.duplicates, report.filtered, report.stored) == (200, 50, 30, 120)
    table = stored(tmp_path / "store")
    assert table["double"].to_pylist() == [float(n) for n in range(120)]
    assert table["sensor"].to_pylist() == [f"S{n % 7}" for n in range(120)]
    more = csv_file(tmp_path / "c.csv", 40, first=100)
    with pytest.raises(StreamExists, match="if-exists append"):  # another job's stream
        run(spark, tmp_path, [more], steps)
    again = run(spark, tmp_path, [more], steps, if_exists="append")
    assert (again.rows, again.duplicates, again.filtered, again.stored) == (40, 20, 20, 0)


def test_large_files_are_read_by_several_tasks(spark: Any, tmp_path: Path) -> None:
    file = csv_file(tmp_path / "a.csv", 3000)
    report = run(spark, tmp_path, [file], Steps(split_bytes=10_000, partitions=3))
    assert (report.rows, report.stored, report.files) == (3000, 3000, 1)
    assert stored(tmp_path / "store")["value"].to_pylist() == [n * 0.5 for n in range(3000)]


def test_every_line_belongs_to_one_slice(tmp_path: Path) -> None:
    file = csv_file(tmp_path / "a.csv", 200)
    data = file.read_bytes()
    for count in (1, 2, 3, 17, 200, 500):
        borders = [len(data) * i // count for i in range(count + 1)]
        slices = [
            b"".join(read_slice(str(file), start, end, 64)) for start, end in pairwise(borders)
        ]
        assert b"".join(slices) == data
        assert all(not piece or piece.endswith(b"\n") for piece in slices)


def test_a_job_is_done_once_and_goes_on_where_it_ended(spark: Any, tmp_path: Path) -> None:
    files = [csv_file(tmp_path / f"{n}.csv", 100, first=100 * n) for n in range(3)]
    steps = Steps(chunk_bytes=1)
    csv_file(files[2], 100, first=200, bad={250: "never,s1,1"})
    with pytest.raises(InvalidData):
        run(spark, tmp_path, files, steps)
    assert stored(tmp_path / "store").num_rows == 200  # whole chunks
    with pytest.raises(InvalidData):
        run(spark, tmp_path, files, steps, create=False)
    assert stored(tmp_path / "store").num_rows == 200  # the first two were not stored again
    done = run(spark, tmp_path, files[:2], if_exists="append")  # in other chunks: another job
    again = run(spark, tmp_path, files[:2])  # the same job: it goes on
    assert (done.stored, again.stored, again.skipped) == (200, 0, 1)
    assert "skipped" in again.notes[-1]


def test_rows_of_equal_time_keep_the_order_of_the_files(spark: Any, tmp_path: Path) -> None:
    for name in "ab":
        rows = [f"2024-01-01,{name}{n}" for n in range(500)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["when,id", *rows]) + "\n")
    run(spark, tmp_path, [tmp_path / "a.csv", tmp_path / "b.csv"], Steps(split_bytes=1500))
    ids = stored(tmp_path / "store")["id"].to_pylist()
    assert ids == [f"{name}{n}" for name in "ab" for n in range(500)]


def test_orc_is_read_by_spark(spark: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "orc")
    df = spark.range(0, 1000, 1, 3).selectExpr(
        "timestamp_seconds(1704067200 + id) AS seen", "id", "CAST(id AS string) AS name"
    )
    df.write.orc(place)
    report = run(
        spark, tmp_path, [Path(place)], time="when", rename={"seen": "when"}, select=["when", "id"]
    )
    assert (report.rows, report.stored) == (1000, 1000)
    table = stored(tmp_path / "store")
    assert table["id"].to_pylist() == list(range(1000))
    assert table.column_names == ["when", "id"]


def test_files_behind_uris_are_read_through_spark(spark: Any, tmp_path: Path) -> None:
    """A file system of Hadoop's own, mounted on a directory, stands for s3a and hdfs."""
    (tmp_path / "box" / "deep").mkdir(parents=True)
    files = [
        csv_file(tmp_path / "box" / "a.csv", 100, bad={7: "yesterday,s1,1"}),
        csv_file(tmp_path / "box" / "deep" / "b.csv", 100, first=50),
    ]
    (tmp_path / "box" / "note.txt").write_text("not for us")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.box.link./data", f"file://{tmp_path}/box")
    local = run(spark, tmp_path / "1", files, on_error="skip")
    for number, inputs in enumerate(
        (
            ["viewfs://box/data/*.csv", "viewfs://box/data/deep/b.csv"],
            [f"file://{tmp_path}/box/*.csv", f"file:{tmp_path}/box/deep/b.csv"],
        )
    ):
        one = tmp_path / f"uri{number}"
        request = IngestRequest(
            inputs, stream="s", time="when", create=True, on_error="skip", engine="spark"
        )
        report = run_pipeline(request, Target(path=one / "store"), spark=spark)
        assert (report.rows, report.stored, report.bad) == (local.rows, local.stored, 1)
        assert stored(one / "store") == stored(tmp_path / "1" / "store")


def test_what_spark_lacks_is_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "events.avro").write_bytes(b"Obj\x01")
    for place, error, message in (
        (str(tmp_path / "events.avro"), MissingDependency, "spark-avro"),
        ("s3a://bucket/events/*.csv", MissingDependency, "hadoop-aws"),
        ("elsewhere://host/events.csv", MissingDependency, "the one for elsewhere://"),
        ("hdfs://127.0.0.1:1/events.csv", ConnectionFailed, "Connection refused"),
    ):
        request = IngestRequest([place], stream="s", time="when", create=True, engine="spark")
        with pytest.raises(error, match=message):
            run_pipeline(request, Target(path=tmp_path / "store"), spark=spark)
    assert not (tmp_path / "store" / "streams").exists()


def test_a_dry_run_stores_nothing(spark: Any, tmp_path: Path) -> None:
    file = csv_file(tmp_path / "a.csv", 50, bad={3: "never,s1,1"})
    report = run(spark, tmp_path, [file], dry_run=True, on_error="skip")
    assert (report.rows, report.bad, report.stored) == (50, 1, 0)
    assert not (tmp_path / "store").exists()


def test_an_open_database_is_loaded_through_its_handle(spark: Any, tmp_path: Path) -> None:
    file = csv_file(tmp_path / "a.csv", 50)
    with open_database(tmp_path / "store") as database:
        request = IngestRequest([str(file)], stream="s", time="when", create=True)
        report = run_pipeline(request, Target(catalog=catalog_of(database)), spark=spark)
        assert report.stored == 50
        assert database.stream("s").count == 50


def test_requests_that_cannot_work_are_refused(spark: Any, tmp_path: Path) -> None:
    file = csv_file(tmp_path / "a.csv", 5)
    with pytest.raises(InvalidArgument, match="for stdin"):
        run(spark, tmp_path, [Path("-")])
    with pytest.raises(StreamNotFound, match="--create"):
        run(spark, tmp_path, [file], create=False)
    with pytest.raises(InvalidData, match="no time column 'then'"):
        run(spark, tmp_path, [file], time="then")
    with pytest.raises(InvalidArgument, match="no file matches"):
        run(spark, tmp_path, [tmp_path / "*.none"])
    run(spark, tmp_path, [file])
    (tmp_path / "b.csv").write_text("when,other\n2024-01-01,1\n")
    with pytest.raises(SchemaMismatch, match="no attribute 'other'"):
        run(spark, tmp_path, [tmp_path / "b.csv"])


@pytest.mark.parametrize("interrupted", ["staged", "committed"])
def test_after_a_failure_a_note_says_what_is_stored(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    """The second of two chunks is interrupted, just before or just after its commit."""
    files = [csv_file(tmp_path / f"{n}.csv", 10, first=10 * n) for n in range(2)]
    commit, commits = StoreSink.commit, 0

    def struck(*given: Any, **how: Any) -> Any:
        nonlocal commits
        commits += 1
        outcome = commit(*given, **how) if commits != 2 or interrupted == "committed" else None
        if commits == 2:
            raise KeyboardInterrupt
        return outcome

    monkeypatch.setattr(StoreSink, "commit", struck)
    with pytest.raises(KeyboardInterrupt) as raised:
        run(spark, tmp_path, files, Steps(chunk_bytes=1, partitions=1))
    events = stored(tmp_path / "store").num_rows
    assert events == (10 if interrupted == "staged" else 20)
    (note,) = raised.value.__notes__
    assert note.startswith(f"{events} events are stored in 's', each chunk of them whole; the same")
    done = run(spark, tmp_path, files, Steps(chunk_bytes=1, partitions=1))
    assert (done.stored, done.skipped) == (20 - events, events // 10)  # as the note says
    assert stored(tmp_path / "store").num_rows == 20


# --------------------------------------------------------------------- the command


# Who starts tests in the background hands down that interrupts are ignored.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from chronicle.cli import main
main()
"""


def command(place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "ingest", *arguments, "--stream", "s", "--time", "when",
         "--create", "--engine", "spark", "--store", str(place / "store"), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )  # fmt: skip


def test_the_command_says_what_it_did_and_nothing_else(tmp_path: Path) -> None:
    csv_file(tmp_path / "a.csv", 400, bad={7: "yesterday,s1,1"})
    csv_file(tmp_path / "b.csv", 100, first=400)
    done = command(tmp_path, str(tmp_path / "*.csv"), "--on-error", "quarantine")
    out, said = done.communicate()
    report = json.loads(out)
    assert done.returncode == 0, said
    assert (report["rows"], report["stored"], report["bad"]) == (500, 499, 1)
    lines = said.splitlines()  # how many rows were bad, which, and where; nothing of Spark's own
    assert all(line.startswith(("note: ", "  ")) for line in lines), said
    assert "line 9 (row 8)" in said
    assert Path(report["quarantine"]).read_text().count("\n") == 1
    again = command(tmp_path, str(tmp_path / "*.csv"), "--on-error", "quarantine")
    report = json.loads(again.communicate()[0])
    assert (report["stored"], report["skipped"], report["count"]) == (0, 1, 499)


def test_the_command_fails_for_people(tmp_path: Path) -> None:
    strict = command(tmp_path, str(csv_file(tmp_path / "a.csv", 9, bad={7: "never,s1,1"})))
    missing = command(tmp_path, "nothing.csv")
    for process, code, message in (
        (strict, 1, "(row 8), column 'when'"),
        (missing, 2, "there is no file 'nothing.csv'"),
    ):  # an error, what is stored, and of a bad row what else one could do
        out, said = process.communicate()
        assert (process.returncode, out) == (code, "")
        assert message in said
        lines = said.strip().splitlines()
        assert lines[1] == "  nothing was stored in 's'"
        assert len(lines) == (3 if process is strict else 2), said
    assert not (tmp_path / "store" / "streams" / "s").exists()


@pytest.mark.parametrize("after", [0, 2.5])
def test_an_interrupt_ends_the_command_and_stores_nothing(tmp_path: Path, after: float) -> None:
    process = command(tmp_path, str(csv_file(tmp_path / "a.csv", 60_000)))
    wait_until(lambda: any(log.stat().st_size for log in tmp_path.glob("chronicle-spark-*.log")))
    time.sleep(after)  # the JVM is being launched, or works
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()  # until the last process has closed its stdout
    assert process.returncode == 130, said
    assert said.splitlines() == ["interrupted", "  nothing was stored in 's'"]
    assert not list(tmp_path.glob("chronicle-spark-*.log"))
    if (tmp_path / "store" / "streams" / "s").exists():
        assert stored(tmp_path / "store").num_rows == 0
