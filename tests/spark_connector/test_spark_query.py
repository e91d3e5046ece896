"""The option ``query``: parts run on executors, and together they are the embedded answer."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import catalog_of, open_database
from chronicle.errors import SqlError
from chronicle.query.plan import match_plan, planner
from chronicle.query.split.parts import SpanPart
from chronicle.query.sql import dialect
from chronicle.spark_connector.backend import LocalBackend
from chronicle.spark_connector.options import Options
from chronicle.store.store import Store

from .conftest import load

MATCH = """
SELECT * FROM flights MATCH_RECOGNIZE (
  PARTITION BY icao24 ORDER BY timestamp
  MEASURES A.altitude AS start_altitude, LAST(B.altitude) AS end_altitude, count(B.squawk) AS n
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B+) WITHIN INTERVAL '10' MINUTE
  DEFINE A AS altitude > 9000, B AS altitude < PREV(altitude)
) AS m
"""
SITUATIONS = """
SELECT * FROM flights MATCH_SITUATIONS (
  PARTITION BY icao24
  MEASURES STARTED(A) AS high, ENDED(B) AS rare, count(A.*) AS n, RELATION(A, B) AS how
  PATTERN (A INTERSECTS | MEETS B) WITHIN INTERVAL '20' MINUTE EMIT ON DETECTION
  DEFINE A AS altitude > 9000, B AS squawk < 4000
) AS m
"""
REPLAY = "SELECT /*+ strategy(replay) */ *"
HOURS = "HOP(flights, timestamp, INTERVAL '10' MINUTE, INTERVAL '1' HOUR)"
QUERIES = {
    "rows": "SELECT icao24, altitude * 2 AS twice FROM flights WHERE altitude > 6000",
    "windows": f"SELECT window_start, count(*) AS n, max(altitude) AS top FROM {HOURS} "
    "GROUP BY window_start",
    "grouped": "SELECT window_end, icao24, avg(squawk) AS s "
    "FROM TUMBLE(flights, timestamp, INTERVAL '30' MINUTE) GROUP BY window_end, icao24 "
    "HAVING count(*) > 40",
    "ranges": MATCH,
    "situations": SITUATIONS,
    "each": MATCH.replace("SKIP PAST LAST ROW", "SKIP TO NEXT ROW").replace("SELECT *", REPLAY),
    "keys": MATCH.replace("WITHIN INTERVAL '10' MINUTE", "").replace(
        "altitude > 9000", "squawk < 9"
    ),
    "gaps": "SELECT * FROM flights MATCH_RECOGNIZE (ORDER BY timestamp "
    "MEASURES A.altitude AS first, FIRST(B.timestamp) AS then, B.icao24 AS plane "
    "PATTERN (A X* B) WITHIN INTERVAL '5' MINUTE DEFINE A AS squawk < 30, B AS squawk > 7900)",
    "numbered": "SELECT n FROM flights MATCH_RECOGNIZE (ORDER BY timestamp "
    "MEASURES MATCH_NUMBER() AS n PATTERN (A B) DEFINE A AS squawk < 300)",
    "nothing": "SELECT n FROM flights MATCH_RECOGNIZE (ORDER BY timestamp "
    "MEASURES A.squawk AS n PATTERN (A B) WITHIN INTERVAL '1' MINUTE DEFINE A AS squawk > 90000)",
    "whole": "SELECT icao24, count(*) AS n FROM flights GROUP BY icao24",
    "limited": "SELECT timestamp, altitude FROM flights ORDER BY altitude DESC, timestamp LIMIT 5",
    "aggregated": f"SELECT count(*) AS n, max(end_altitude) AS top FROM ({MATCH.strip()}) AS x",
}
PARTS = dict.fromkeys(
    ("rows", "windows", "grouped", "ranges", "situations", "each", "keys", "gaps"), 4
)
PARTS["nothing"] = 4  # a replay of so few events is not planned


def embedded(path: Path, text: str) -> pa.Table:
    with open_database(path, "r") as database:
        table: pa.Table = database.sql(text).arrow()
        return table


def same(found: pa.Table, expected: pa.Table) -> bool:
    keys = [(name, "ascending") for name in expected.column_names]
    return bool(found.sort_by(keys).equals(expected.sort_by(keys)))


@pytest.mark.parametrize("name", QUERIES)
def test_parts_are_the_embedded_answer(
    flights: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = QUERIES[name]
    backend = LocalBackend(Options(path=str(flights), query=text))
    expected = embedded(flights, text)
    schema = backend.query_schema(text)
    assert schema.equals(pa.schema([f.with_nullable(True) for f in expected.schema]))
    parts = backend.plan_query(text, 4)
    assert len(parts) == PARTS.get(name, 1)
    parts = pickle.loads(pickle.dumps(parts))
    for module in (dialect, planner, match_plan):  # executors neither parse nor plan
        for called in ("parse_statement", "plan_query", "plan_match"):
            monkeypatch.delattr(module, called, raising=False)
    batches = [batch for part in parts for batch in backend.run_query(text, part)]
    found = pa.Table.from_batches(batches, schema) if batches else schema.empty_table()
    assert same(found.cast(expected.schema), expected)
    assert expected.num_rows > 0 or name == "nothing"


@pytest.mark.parametrize("partition", ["", "PARTITION BY icao24"])
def test_executors_get_the_intervals_that_the_driver_found(
    flights: Path, tmp_path: Path, partition: str
) -> None:
    path = tmp_path / "store"
    shutil.copytree(flights, path)
    text = (
        f"SELECT /*+ strategy(all) */ * FROM flights MATCH_RECOGNIZE ({partition} ORDER BY "
        "timestamp MEASURES A.altitude AS first, FIRST(B.timestamp) AS then PATTERN (A X* B) "
        "WITHIN INTERVAL '5' MINUTE DEFINE A AS squawk < 5, B AS squawk > 4000)"
    )
    with open_database(path) as database:
        if partition:  # neighbours in a partition have no place while there are late events
            database.stream("flights").compact()
        catalog_of(database).create_index("flights", "squawk")
    expected = embedded(path, text)
    backend = LocalBackend(Options(path=str(path), query=text))
    for wanted in (1, 3):
        parts = backend.plan_query(text, wanted)
        assert {type(part.part.plan.root.input.part) for part in parts} == {SpanPart}
        assert (wanted > 1) == (len(parts) > 1)
        sizes = [len(pickle.dumps(part)) for part in parts]
        assert max(sizes) < 200_000, "what travels is small"
        found = pa.Table.from_batches(
            [batch for part in parts for batch in backend.run_query(text, part)], expected.schema
        )
        assert same(found, expected)
    assert expected.num_rows > 5


def test_the_log_says_how_a_query_is_cut(flights: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "chronicle.spark")
    for text, said in (
        (QUERIES["ranges"], "4 parts (match): 4 ranges of time"),
        (QUERIES["each"], "the whole stream is replayed: asked for"),
        (QUERIES["keys"], "4 groups of partitions, because the pattern has no WITHIN"),
        (QUERIES["numbered"], "MATCH_NUMBER counts over the whole stream"),
        (QUERIES["whole"], "1 parts (whole): its rows depend on each other"),
        (QUERIES["windows"], "4 parts (windows): time ranges at leaf borders"),
        (QUERIES["rows"] + " AND timestamp < now()", "1 parts (whole): it asks for the time"),
    ):
        LocalBackend(Options(path=str(flights), query=text)).plan_query(text, 4)
        assert said in caplog.messages[-1]


def test_errors_are_said_while_planning(flights: Path) -> None:
    backend = LocalBackend(Options(path=str(flights), query="x"))
    with pytest.raises(SqlError, match="speed"):
        backend.query_schema("SELECT speed FROM flights")
    with pytest.raises(SqlError, match="takes a SELECT"):
        backend.query_schema("DROP STREAM flights")


def test_a_pattern_as_a_dataframe(read: Any, flights: Path) -> None:
    df = read(query=MATCH, numPartitions=2)
    assert df.rdd.getNumPartitions() == 2
    expected = embedded(flights, MATCH)
    assert same(df.toArrow().cast(expected.schema), expected)
    best = df.where("n > 2").agg({"start_altitude": "max"}).first()[0]
    assert best == max(row["start_altitude"] for row in expected.to_pylist() if row["n"] > 2)


def test_situations_as_a_dataframe(read: Any, flights: Path) -> None:
    df = read(query=SITUATIONS, numPartitions=3)
    assert df.rdd.getNumPartitions() == 3
    expected = embedded(flights, SITUATIONS)
    assert expected.num_rows > 0
    assert same(df.toArrow().cast(expected.schema), expected)
    assert df.where("how IS NULL").count() == expected["how"].null_count


def test_a_part_uses_the_processors_that_spark_gives_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import TaskContext

    from chronicle.spark_connector import queries

    taken: list[int] = []

    class Noted(queries.QueryEngine):
        def __init__(self, catalog: Any, *, memory_bytes: int, threads: int) -> None:
            taken.append(threads)
            super().__init__(catalog, memory_bytes=memory_bytes, threads=threads)

    monkeypatch.setattr(queries, "QueryEngine", Noted)
    with Store.open(tmp_path / "store") as store:
        for cpus in (None, 1, 3):
            context = None if cpus is None else SimpleNamespace(cpus=lambda cpus=cpus: cpus)
            monkeypatch.setattr(TaskContext, "_taskContext", context)
            with queries.query_engine(queries.PinnedCatalog(store, empty=True)):
                pass
    assert taken == [1, 1, 3]


@pytest.fixture
def viewed(flights: Path, tmp_path: Path) -> Path:
    """The store with views."""
    path = tmp_path / "viewed"
    shutil.copytree(flights, path)
    with open_database(path) as database:
        database.sql('CREATE VIEW "High planes" AS SELECT * FROM flights WHERE altitude > 9000')
        database.sql(
            "CREATE VIEW hours AS SELECT window_start, count(*) AS n FROM TUMBLE(flights, "
            "timestamp, INTERVAL '1' HOUR) GROUP BY window_start"
        )
    return path


def test_a_view_is_read_as_a_stream(spark: Any, viewed: Path) -> None:
    with open_database(viewed, mode="r") as database:
        high = database.sql('SELECT count(*), sum(squawk) FROM "High planes"').fetchone()
        few = database.sql('SELECT count(*) FROM "High planes" WHERE squawk < 100').fetchone()
        hours = database.sql("SELECT sum(n), count(*) FROM hours").fetchone()
    assert None not in (high, few, hours)
    assert few is not None
    df = load(spark, viewed, "high PLANES", numPartitions=3)
    assert df.columns == ["timestamp", "icao24", "altitude", "squawk"]
    assert (df.count(), df.agg({"squawk": "sum"}).first()[0]) == high
    low = load(spark, viewed, "High planes", filter="squawk < 100 OR false", columns="icao24")
    assert low.count() == few[0]
    assert load(spark, viewed, "High planes", limit=7).count() == 7
    found = load(spark, viewed, "hours").agg({"n": "sum", "*": "count"}).first()
    assert (found["sum(n)"], found["count(1)"]) == hours
    for refused in ({"startTime": "2018-08-01"}, {"asOf": 1}, {"pushFilters": "true"}):
        with pytest.raises(Exception, match="is a view, which has no time"):
            load(spark, viewed, "hours", **refused).count()
    with pytest.raises(Exception, match="no stream 'nothing'"):
        load(spark, viewed, "nothing")
