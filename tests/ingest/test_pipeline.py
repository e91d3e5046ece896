"""Files into a store: what arrives, in which order, and what remains when something goes wrong."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import (
    IngestError,
    InvalidArgument,
    InvalidData,
    NotAStore,
    SchemaMismatch,
    StorageFull,
    StoreLocked,
    StreamNotFound,
)
from chronicle.formats.writers import write
from chronicle.ingest import Ingest, IngestReport, IngestRequest, Target, ingest
from chronicle.ingest.sinks import StoreSink

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="../shared/data is not beside the project"
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "st"


def load(store: Path, *inputs: Any, **options: Any) -> IngestReport:
    chosen = {"stream": "s", "time": "t", "create": True, **options}
    if chosen["create"]:
        chosen.setdefault("if_exists", "append")
    request = IngestRequest([str(item) for item in inputs], **chosen)
    return ingest(request, Target(path=store))


def events(store: Path, stream: str = "s") -> pa.Table:
    with chronicle.open(store, mode="r") as db:
        snapshot = catalog_of(db).snapshot(stream)
        return pa.Table.from_batches(list(snapshot.scan()), snapshot.schema.arrow)


def count(store: Path, stream: str = "s") -> int:
    with chronicle.open(store, mode="r") as db:
        if stream not in db.streams():
            return -1
        return catalog_of(db).snapshot(stream).count


def csv(path: Path, times: list[Any], *, first: int = 0) -> Path:
    lines = [f"{time},{first + at}" for at, time in enumerate(times)]
    text = "\n".join(["t,n", *lines]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def day(number: int) -> str:
    return str(np.datetime64("2020-01-01") + number)


# ------------------------------------------------------------------------------------- arriving


def test_several_formats_in_time_order(tmp_path: Path, store: Path) -> None:
    csv(tmp_path / "1.csv.gz", [day(5), day(1), day(3)])
    (tmp_path / "2.json").write_text(json.dumps([{"n": 10, "t": day(2)}, {"n": 11, "t": day(5)}]))
    (tmp_path / "3.ndjson").write_text(json.dumps({"t": day(0), "n": 12.5}))
    times = pa.array([np.datetime64(day(4), "ms")])
    pq.write_table(pa.table({"t": times, "n": [13]}), tmp_path / "4.parquet")
    report = load(store, tmp_path / "?.*")
    assert (report.files, report.rows, report.stored, report.bad) == (4, 7, 7, 0)
    assert report.created
    table = events(store)
    assert table["n"].to_pylist() == [12.5, 1.0, 10.0, 2.0, 13.0, 0.0, 11.0]
    assert table.schema.field("n").type == pa.float64()  # widened by the third file
    again = load(store, tmp_path / "4.parquet", create=False, time=None)
    assert (again.stored, again.late, again.count, again.created) == (1, 1, 8, False)


def test_large_loads_bulk_load_segments(tmp_path: Path, store: Path) -> None:
    rows = 3 * StoreSink.append_rows
    random = np.random.default_rng(2)
    for part in range(3):
        times = random.permutation(rows)[: rows // 3] * 1000 + part
        table = pa.table(
            {"t": times, "part": np.full(len(times), part), "at": np.arange(len(times))}
        )
        pq.write_table(table, tmp_path / f"{part}.parquet")
    report = load(store, tmp_path / "*.parquet", time_format="ticks")
    assert (report.stored, report.late, report.count) == (rows, 0, rows)
    table = events(store)
    ticks = table["t"].to_numpy()
    assert bool(np.all(ticks[1:] >= ticks[:-1]))
    with chronicle.open(store) as db:
        assert db.check().ok
    # once more, half of it newer than what is there
    later = tmp_path / "later.parquet"
    times = random.permutation(2 * rows) * 1000
    pq.write_table(pa.table({"t": times, "part": times, "at": times}), later)
    report = load(store, later)
    assert report.stored == 2 * rows
    assert report.count == 3 * rows
    assert 0 < report.late < report.stored
    ticks = events(store)["t"].to_numpy()
    assert len(ticks) == 3 * rows
    assert bool(np.all(ticks[1:] >= ticks[:-1]))


def test_equal_times_keep_their_order_of_arrival(tmp_path: Path, store: Path) -> None:
    files = [csv(tmp_path / f"{at}.csv", [day(1)] * 50, first=at * 50) for at in range(3)]
    load(store, *files)
    assert events(store)["n"].to_pylist() == list(range(150))


def test_stdin(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(csv(tmp_path / "f.csv.gz", [day(1)]), "rb") as file:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": file})())
        assert load(store, "-").stored == 1


def test_a_pipe_that_does_not_end(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been written is stored before the writer closes its end."""
    reading, writing = os.pipe()
    seen: list[int] = []
    original = StoreSink.append

    def append(self: Any, batch: Any) -> Any:
        done = original(self, batch)
        seen.append(batch.num_rows)
        if len(seen) == 1:
            os.write(writing, b'{"t": "2020-01-02", "n": 2}\n{"t": "2020-01-03", "n": 3}\n')
        else:
            os.close(writing)
        return done

    monkeypatch.setattr(StoreSink, "append", append)
    os.write(writing, b'{"t": "2020-01-01", "n": 1}\n')
    with open(reading, "rb") as file:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": file})())
        report = load(store, "-", commit="batch", format="ndjson")
    assert seen == [1, 2]
    assert report.stored == 3


def test_dry_run_stores_nothing(tmp_path: Path, store: Path) -> None:
    file = csv(tmp_path / "f.csv", [day(1), "x", day(2)])
    report = load(store, file, dry_run=True, on_error="skip")
    assert (report.rows, report.good, report.bad, report.stored) == (3, 2, 1, 0)
    assert report.schema is not None
    assert report.schema.names == ["t", "n"]
    assert not store.exists()
    load(store, file, on_error="skip")
    assert load(store, file, dry_run=True, on_error="skip").good == 2
    assert count(store) == 2


# ----------------------------------------------------------------------------- going wrong


def test_an_error_in_the_third_of_five_files_leaves_nothing(tmp_path: Path, store: Path) -> None:
    for at in range(5):
        csv(tmp_path / f"{at}.csv", [day(at), "never" if at == 2 else day(at)])
    with pytest.raises(InvalidData, match=r"2\.csv, line 3") as caught:
        load(store, tmp_path / "*.csv")
    assert caught.value.__notes__ == ["nothing was stored in 's'"]
    assert count(store) == -1
    load(store, tmp_path / "0.csv")
    with pytest.raises(InvalidData):
        load(store, tmp_path / "*.csv")
    assert count(store) == 2


@pytest.mark.parametrize("rows", [100, 2 * StoreSink.append_rows])
def test_a_failure_while_storing_leaves_the_stream_as_it_was(
    tmp_path: Path, store: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"t": np.arange(rows), "n": np.arange(rows)}), path)
    failing: list[BaseException] = [
        StorageFull("the disk is full"),
        OSError(errno.ENOSPC, "No space left"),
        KeyboardInterrupt(),
    ]

    def breaking(_: Ingest, batches: Iterator[Any]) -> Iterator[Any]:
        yield from list(batches)[:1]
        raise failing[0]

    with monkeypatch.context() as patch:
        patch.setattr(Ingest, "_counted", breaking)
        while failing:
            with pytest.raises(type(failing[0])) as caught:
                load(store, path, time_format="ticks")
            assert caught.value.__notes__ == ["nothing was stored in 's'"]
            assert count(store) == -1
            failing.pop(0)
    load(store, path, time_format="ticks")
    with chronicle.open(store) as db:
        assert db.check().ok
    assert count(store) == rows


def test_commit_batch_keeps_what_was_whole(tmp_path: Path, store: Path) -> None:
    csv(tmp_path / "1.csv", [day(1), day(2)])
    csv(tmp_path / "2.csv", [day(3), "never"])
    with pytest.raises(InvalidData) as caught:
        load(store, tmp_path / "*.csv", commit="batch")
    assert "2 events are stored in 's'" in caught.value.__notes__[0]
    assert count(store) == 2


@pytest.mark.parametrize(
    ("commit", "rows"), [("batch", 2), ("end", 2), ("end", 2 * StoreSink.append_rows)]
)
@pytest.mark.parametrize("there", [0, 3])
def test_an_interrupt_right_behind_a_commit_does_not_hide_it(
    tmp_path: Path, store: Path, commit: str, rows: int, there: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.parquet"
    if there:
        pq.write_table(pa.table({"t": np.arange(there)}), path)
        load(store, path, time_format="ticks")
    pq.write_table(pa.table({"t": np.arange(rows)}), path)

    def interrupted(_: Ingest, done: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Ingest, "_add", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        load(store, path, commit=commit, time_format="ticks")
    assert f"{rows:,} events are stored in 's'" in caught.value.__notes__[0]
    assert count(store) == there + rows


def test_commit_batch_cannot_widen(tmp_path: Path, store: Path) -> None:
    csv(tmp_path / "1.csv", [day(1)])
    (tmp_path / "2.csv").write_text("t,n\n2020-01-02,1.5\n")
    with pytest.raises(InvalidData, match="expected a whole number"):
        load(store, tmp_path / "*.csv", commit="batch")
    (tmp_path / "2.csv").write_text("t,n,more\n2020-01-02,1,2\n")
    with pytest.raises(SchemaMismatch, match="columns that its beginning did not"):
        load(store, tmp_path / "*.csv", commit="batch", stream="other")


def test_bad_rows_are_counted_and_kept(tmp_path: Path, store: Path) -> None:
    csv(tmp_path / "1.csv", [day(1), "never", day(2)])
    (tmp_path / "2.json").write_text('[{"t": "2020-01-09", "n": 5}, {"n": 6}]')
    report = load(store, tmp_path / "1.csv", tmp_path / "2.json", on_error="quarantine")
    assert (report.rows, report.bad, report.stored) == (5, 2, 3)
    assert report.bad_columns == {"t": 2}
    assert report.quarantine is not None
    assert report.quarantine.parent == tmp_path / "st-quarantine"
    kept = [json.loads(line) for line in report.quarantine.read_text().splitlines()]
    assert [(k["source"], k["row"], k["line"], k["column"], k["value"]) for k in kept] == [
        (str(tmp_path / "1.csv"), 2, 3, "t", "never"),
        (str(tmp_path / "2.json"), 2, None, "t", None),
    ]
    assert kept[0]["record"] == "never,1"
    assert "expected a time such as" in kept[0]["reason"]
    skipped = load(store, tmp_path / "1.csv", on_error="skip")
    assert (skipped.bad, skipped.stored, skipped.quarantine) == (1, 2, None)
    assert len(report.examples) == 2


def test_a_failed_ingest_leaves_no_quarantine_file(tmp_path: Path, store: Path) -> None:
    csv(tmp_path / "1.csv", [day(1)])
    load(store, tmp_path / "1.csv")
    (tmp_path / "2.csv").write_text("t,other\nnever,1\n")
    with pytest.raises(SchemaMismatch):
        load(store, tmp_path / "1.csv", tmp_path / "2.csv", on_error="quarantine")
    assert not (tmp_path / "st-quarantine").exists()
    taken = tmp_path / "bad.ndjson"
    taken.write_text("mine")
    csv(tmp_path / "3.csv", ["never", day(1)])
    with pytest.raises(IngestError, match="exists already"):
        load(store, tmp_path / "3.csv", on_error="quarantine", quarantine=taken)
    assert taken.read_text() == "mine"
    assert count(store) == 1


def test_broken_files_are_left_out_when_asked(tmp_path: Path, store: Path) -> None:
    csv(tmp_path / "1.csv", [day(1)])
    whole = gzip.compress(b"t,n\n" + b"2020-01-02,1\n" * 100_000)
    (tmp_path / "2.csv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "3.csv").write_bytes(b"")
    (tmp_path / "4.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidData, match="damaged or cut off"):
        load(store, tmp_path / "*.csv*")
    report = load(store, tmp_path / "*.csv*", on_error="skip")
    assert report.files == 1
    assert len(report.broken_files) == 3
    assert "there is no time column" in report.broken_files[2]


def test_nothing_readable_makes_no_stream(tmp_path: Path, store: Path) -> None:
    (tmp_path / "1.csv").write_text("t,n\nx,1\n2020-13-45,2\n")
    with pytest.raises(InvalidData, match=r"nothing could be read: .* not hold times"):
        load(store, tmp_path / "1.csv", on_error="skip")
    (tmp_path / "2.csv").write_text("t,n\n")
    with pytest.raises(InvalidData, match="there are no rows"):
        load(store, tmp_path / "2.csv")
    assert count(store) == -1


def test_streams_that_are_not_there_or_differ(tmp_path: Path, store: Path) -> None:
    file = csv(tmp_path / "1.csv", [day(1)])
    with pytest.raises(StreamNotFound, match=r"--create and --time"):
        load(store, file, create=False)
    with pytest.raises(InvalidArgument, match="--time"):
        load(store, file, time=None)
    load(store, file)
    with pytest.raises(InvalidArgument, match="time attribute is 't', not 'n'"):
        load(store, file, time="n")
    other = tmp_path / "2.csv"
    other.write_text("t,n,speed\n2020-01-01,1,2\n")
    with pytest.raises(SchemaMismatch, match="no attribute 'speed'"):
        load(store, other)
    assert load(store, other, select=["n"]).stored == 1
    assert load(store, other, rename={"speed": "n", "n": "x"}, select=["n"]).stored == 1


def test_places_that_are_no_stores(tmp_path: Path, store: Path) -> None:
    file = csv(tmp_path / "1.csv", [day(1)])
    with pytest.raises(NotAStore):
        load(tmp_path, file)  # a directory with other things in it
    with pytest.raises(NotAStore):
        load(file, file)
    with chronicle.open(store), pytest.raises(StoreLocked):
        load(store, file)


def test_absurd_times(tmp_path: Path, store: Path) -> None:
    file = tmp_path / "1.json"
    good = [{"t": 1_533_101_250_000 + at, "n": at} for at in range(8)]
    file.write_text(json.dumps([*good, {"t": 99_999_999_999_999_999, "n": 9}]))
    with pytest.raises(InvalidData, match=r"row 9, column 't'.*not between 1980 and 2100"):
        load(store, file)
    assert load(store, file, on_error="skip").stored == 8


@pytest.mark.slow
@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_memory_does_not_grow_with_the_files(tmp_path: Path, store: Path, format: str) -> None:
    """Unsorted events of 250 MB, as text twice as many: Arrow and Python hold less at a time."""
    random = np.random.default_rng(5)
    path = tmp_path / f"events.{format}"

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(45):
            times = random.integers(1_500_000_000_000_000, 1_600_000_000_000_000, 100_000)
            columns = {"t": pa.array(times, pa.timestamp("us")), "s": (times % 500).astype(str)}
            columns |= {name: random.normal(size=len(times)).round(4) for name in "abcde"}
            yield pa.record_batch(columns)

    with open(path, "wb") as file:
        write(batches(), next(batches()).schema, format, file)
    script = (
        "import sys, tracemalloc, pyarrow as pa; from chronicle import cli\n"
        "tracemalloc.start(); code = cli.run(sys.argv[1:])\n"
        "print(pa.default_memory_pool().max_memory(), tracemalloc.get_traced_memory()[1])\n"
        "sys.exit(code)"
    )
    arguments = ["ingest", str(path), "--stream", "s", "--time", "t", "--create", "-s", str(store)]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    assert max(map(int, done.stdout.split()[-2:])) < 200 << 20
    assert count(store) == 4_500_000


# ------------------------------------------------------------------------------- real data


@needs_data
def test_the_flights_over_switzerland(store: Path) -> None:
    report = load(store, DATA / "opensky-switzerland.json.gz", stream="flights", time="timestamp")
    assert (report.rows, report.stored, report.late, report.bad) == (139_098, 139_098, 0, 0)
    assert any("milliseconds" in note for note in report.notes)
    table = events(store, "flights")
    assert len(set(table["icao24"].to_pylist())) == 842
    first, last = (table["timestamp"][at].as_py() for at in (0, -1))
    assert str(first) == "2018-08-01 05:00:00"
    assert str(last) == "2018-08-01 21:59:50"


@needs_data
def test_the_nab_folder(store: Path) -> None:
    report = load(store, DATA / "nab" / "*" / "*.csv", time="timestamp", file_column="sensor")
    assert (report.files, report.bad) == (24, 0)
    table = events(store)
    assert table.schema.names == ["timestamp", "value", "sensor"]
    assert len(set(table["sensor"].to_pylist())) == 24
    assert "Twitter_volume_AAPL" in table["sensor"].to_pylist()
    lines = sum(len(file.read_bytes().splitlines()) - 1 for file in DATA.glob("nab/*/*.csv"))
    assert table.num_rows == report.rows == lines


def test_nested_json_becomes_columns(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('[{"t": 1, "pump": {"id": 7, "at": {"x": 0.5}}}, {"t": 2, "pump": {}}]')
    load(store, file, flatten="_")
    assert events(store).to_pylist() == [
        {"t": 1, "pump_id": 7, "pump_at_x": 0.5},
        {"t": 2, "pump_id": None, "pump_at_x": None},
    ]
    with pytest.raises(InvalidArgument, match="--engine arrow"):
        IngestRequest([str(file)], "s", flatten="_", engine="spark")
