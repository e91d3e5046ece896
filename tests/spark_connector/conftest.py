"""One Spark session for all tests of the connector, and streams to read."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

START = dt.datetime(2018, 8, 1, tzinfo=dt.timezone.utc)
START_US = int(START.timestamp()) * 1_000_000
EVENTS = 20_000

FLIGHTS = StreamSchema(
    pa.schema(
        [
            ("timestamp", pa.timestamp("us", "UTC")),
            ("icao24", pa.string()),
            ("altitude", pa.float64()),
            ("squawk", pa.int32()),
        ]
    ),
    "timestamp",
)


def flights_table(events: int = EVENTS, seed: int = 7) -> pa.Table:
    """One event a second, with nulls, sorted."""
    rng = np.random.default_rng(seed)
    altitude = np.round(rng.random(events) * 12_000, 2)
    return pa.table(
        [
            pa.array(START_US + np.arange(events) * 1_000_000).cast(pa.timestamp("us", "UTC")),
            pa.array([f"plane{n:02d}" for n in rng.integers(0, 40, events)]),
            pa.array(altitude, mask=rng.random(events) < 0.01),
            pa.array(rng.integers(0, 8000, events).astype(np.int32)),
        ],
        schema=FLIGHTS.arrow,
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java runtime")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("chronicle-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.python.filterPushdown.enabled", "true")
            .config("spark.log.level", "ERROR")
            # Tests run each plan once or twice: compiling it well takes longer than running it.
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.sql.codegen.wholeStage", "false")
            .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            .config("spark.sql.adaptive.enabled", "false")
            # as docs/spark.md says where segments lie in objects
            .config("spark.executorEnv.AWS_ACCESS_KEY_ID", "reader")
            .config("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "secret")
            .config("spark.executorEnv.AWS_EC2_METADATA_DISABLED", "true")
            .getOrCreate()
        )
        yield session
        session.stop()


@pytest.fixture(scope="session")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the stream ``flights``: small leaves, several segments, late events."""
    path = tmp_path_factory.mktemp("spark") / "store"
    table = flights_table()
    late = np.zeros(EVENTS, np.bool_)
    late[5000:5050] = True
    with Store.open(path) as store:
        options = StreamOptions(leaf_bytes=8192, segment_bytes=128 << 10, late_events_max=20)
        stream = store.create_stream("flights", FLIGHTS, options)
        stream.append(table.filter(pa.array(~late)))
        stream.append(table.filter(pa.array(late)))
    return path


def load(
    spark: Any, path: Path, stream: str = "flights", schema: str | None = None, **options: object
) -> Any:
    """A stream of a store, or a query over it, as a DataFrame."""
    reader = spark.read.format("chronicle").option("path", str(path))
    if "query" not in options:
        reader = reader.option("stream", stream)
    for name, value in options.items():
        reader = reader.option(name, value)
    return (reader.schema(schema) if schema else reader).load()


@pytest.fixture
def read(spark: Any, flights: Path) -> Any:
    """``read(option=value, ...)`` loads the stream ``flights``."""
    return partial(load, spark, flights)
