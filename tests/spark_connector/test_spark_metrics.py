"""Blocks read and skipped: told before a read, recorded by its tasks, and the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import InvalidArgument
from chronicle.schema import StreamSchema
from chronicle.spark_connector.measuring import plan_read, read_metrics
from chronicle.spark_connector.options import Options
from chronicle.spark_connector.reader import ScanReader
from chronicle.spark_connector.types import spark_schema
from chronicle.store import Store, StreamOptions

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64())]), "t")
EVENTS = 40_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events whose ``n`` grows with time, a few of them late."""
    path = tmp_path_factory.mktemp("metrics") / "store"
    with Store.open(path) as opened:
        options = StreamOptions(leaf_bytes=8192, segment_bytes=128 << 10, late_events_max=20)
        stream = opened.create_stream("s", SCHEMA, options)
        for numbers in (np.arange(0, EVENTS, 2), np.arange(1, 400, 2)):
            batch = pa.record_batch([pa.array(numbers), pa.array(numbers)], schema=SCHEMA.arrow)
            stream.append(batch)
    return path


def run(store: Path, records: Path, **options: str) -> list[int]:
    """Read without Spark; what it gives."""
    raw = {"path": str(store), "stream": "s", "metricsPath": str(records), **options}
    reader = ScanReader(Options.parse(raw, "r"), spark_schema(SCHEMA.arrow))
    return [
        n
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for n in batch.column("n").to_pylist()
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"filter": "n >= 39000"},
        {"filter": "n < 300", "numPartitions": "3"},
        {"filter": "n BETWEEN 9000 AND 9100", "startTime": "5000", "endTime": "30000"},
        {"startTime": "100", "endTime": "200", "columns": "n,t"},
        {"filter": "n < 0"},
    ],
)
def test_what_is_told_before_is_what_is_recorded_after(
    store: Path, tmp_path: Path, options: dict[str, str]
) -> None:
    plan = plan_read(path=store, stream="s", **options)
    found = run(store, tmp_path / "records", **options)
    table = read_metrics(tmp_path / "records")
    assert table.num_rows == len(plan.parts)
    for name in ("blocks_read", "blocks_skipped"):
        assert sum(table[name].to_pylist()) == getattr(plan, name), name
    assert sum(table["events_read"].to_pylist()) == plan.events
    assert plan.events >= len(found) - 40  # late ones that wait in the log are in no block
    whole = plan_read(path=store, stream="s")
    assert whole.blocks_skipped == 0
    assert EVENTS // 2 <= whole.events <= EVENTS // 2 + 200
    if "filter" in options:
        assert plan.blocks_skipped > 0
        assert plan.blocks_read < whole.blocks_read / 4
    assert str(plan.blocks_read) in str(plan)


def test_a_read_that_ends_early_is_recorded_too(store: Path, tmp_path: Path) -> None:
    assert run(store, tmp_path / "records", limit="10") == list(range(10))
    (events,) = read_metrics(tmp_path / "records")["events_read"].to_pylist()
    assert 10 <= events < EVENTS / 4


def test_measuring_is_for_paths(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="metricsPath"):
        Options.parse({"url": "http://x", "stream": "s", "metricsPath": str(tmp_path)}, "r")
    with pytest.raises(InvalidArgument, match="by its 'path'"):
        plan_read(path=store, query="SELECT * FROM s")


def test_tasks_of_spark_leave_their_records(spark: Any, store: Path, tmp_path: Path) -> None:
    df = (
        spark.read.format("chronicle")
        .options(path=str(store), stream="s", numPartitions=2, filter="n >= 39000")
        .option("metricsPath", str(tmp_path / "records"))
        .load()
    )
    assert df.count() == 500
    rows = read_metrics(tmp_path / "records").to_pylist()
    assert [row["partition"] for row in rows] == [0, 1]
    plan = plan_read(path=store, stream="s", numPartitions=2, filter="n >= 39000")
    assert [row["blocks_read"] for row in rows] == [part.blocks_read for part in plan.parts]
