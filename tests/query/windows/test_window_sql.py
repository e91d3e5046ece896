"""Windows through SQL, against DuckDB over the same events written out by hand."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import QueryTimeout, SqlError
from chronicle.query.windows.expand import expand_counts
from chronicle.query.windows.spec import CountWindows

FLIGHTS = Path(__file__).resolve().parents[4] / "shared" / "data" / "opensky-switzerland.json.gz"
EVENTS = 4000
HOP = "HOP(s, t, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)"
DUCK_HOP = """(SELECT s.*, w AS window_start, w + INTERVAL 1 HOUR AS window_end
    FROM s, LATERAL (SELECT time_bucket(INTERVAL 5 MINUTE, t) - i * INTERVAL 5 MINUTE AS w
                     FROM range(12) r(i)) )"""


@pytest.fixture(scope="module")
def events() -> pa.Table:
    rng = np.random.default_rng(11)
    ticks = np.sort(rng.integers(0, 6 * 3_600_000, EVENTS)) * 1000
    values = rng.normal(size=EVENTS)
    return pa.table(
        {
            "t": pa.array(ticks).cast(pa.timestamp("us")),
            "x": pa.array(values, mask=rng.random(EVENTS) < 0.1),
            "k": pa.array(rng.choice(["a", "b", "c"], EVENTS)),
            "i": pa.array(rng.integers(-9, 9, EVENTS), pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, events: pa.Table) -> Iterator[Any]:
    with chronicle.open(tmp_path_factory.mktemp("w") / "store") as database:
        stream = database.create_stream("s", events.schema, time="t")
        order = np.argsort(np.arange(EVENTS) // 50 * 50 + np.arange(EVENTS) % 50 // 25 * -40)
        for start in range(0, EVENTS, 500):  # some batches overlap: late events
            stream.append(events.take(pa.array(order[start : start + 500])))
        yield database


@pytest.fixture(scope="module")
def duck(events: pa.Table) -> Iterator[Any]:
    with duckdb.connect() as connection:
        connection.register("s", events)
        yield connection


def close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


def same_rows(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    assert len(found) == len(expected)
    assert found
    for one, other in zip(found, expected, strict=True):
        assert all(close(a, b) for a, b in zip(one, other, strict=True)), (one, other)


@pytest.mark.parametrize("strategy", ["replay", "index"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT window_start, window_end, avg(x), count(*), count(x), sum(i), min(t), max(x) "
        "FROM {} GROUP BY window_start, window_end ORDER BY window_start",
        "SELECT window_start, avg(x) / 2 AS half, sum(i) FROM {} "
        "WHERE t >= TIMESTAMP '1970-01-01 01:00:00' AND t < TIMESTAMP '1970-01-01 04:00:00' "
        "AND window_end <= TIMESTAMP '1970-01-01 03:30:00' "
        "GROUP BY 1, window_end HAVING count(*) > 100 ORDER BY max(x) DESC, 1 LIMIT 9",
        "SELECT window_start, avg(x * 2 + i), count(*) FILTER (WHERE k = 'a') FROM {} "
        "WHERE k LIKE 'a%' OR i > 3 GROUP BY ALL ORDER BY 1",
        "SELECT window_start, sum(COLUMNS('^[xi]$')) FROM {} GROUP BY 1, window_end ORDER BY 1",
        "SELECT window_start, k, median(x), count(DISTINCT i), stddev(x) FROM {} "
        "GROUP BY window_start, k ORDER BY 1, 2",
        "SELECT window_start, sum(sum(i)) OVER (ORDER BY window_start) FROM {} "
        "GROUP BY window_start ORDER BY 1",
        "SELECT k, max(n) FROM (SELECT window_start, k, count(*) AS n FROM {} "
        "GROUP BY 1, 2) GROUP BY k ORDER BY k",
    ],
)
def test_hop_equals_duckdb(db: Any, duck: Any, query: str, strategy: str) -> None:
    """Aggregates, conditions, HAVING, other keys, expressions, window functions, derived tables."""
    hinted = query.replace("SELECT", f"SELECT /*+ strategy({strategy}) */", 1)
    found = db.sql(hinted.format(HOP)).fetchall()
    same_rows(found, duck.sql(query.format(DUCK_HOP)).fetchall())


def test_names_and_types_are_those_of_the_executor(db: Any, duck: Any) -> None:
    """Unaliased columns keep their names; minima keep their types; an alias of FROM works."""
    text = (
        "SELECT w.window_start, avg(x), count(*), min(i), max(t), avg(x) + 1 FROM {} w GROUP BY ALL"
    )
    found = db.sql(text.format(HOP)).arrow()
    expected = duck.sql(text.format(DUCK_HOP)).to_arrow_table()
    assert found.schema.names == expected.schema.names
    assert found.schema.types == expected.schema.types


def test_aliases_that_look_like_ours(db: Any, duck: Any) -> None:
    """An alias means the user's column in HAVING, whatever the operators call theirs."""
    for text in (
        "SELECT avg(x) AS a1, count(*) AS a0 FROM {} HAVING a0 > 5",
        "SELECT max(i) AS a1, count(*) AS a0, window_start AS k0 FROM {} GROUP BY window_start "
        "HAVING a0 > 20 ORDER BY a0, k0",
    ):
        source = ("s", "s") if "GROUP" not in text else (HOP, DUCK_HOP)
        same_rows(
            db.sql(text.format(source[0])).fetchall(), duck.sql(text.format(source[1])).fetchall()
        )


def test_join_of_windows(db: Any) -> None:
    """The result of one window query joined with another."""
    one = f"(SELECT window_start, count(*) AS n FROM {HOP} GROUP BY window_start)"
    two = f"(SELECT window_start, sum(i) AS s FROM {HOP} WHERE k = 'a' GROUP BY window_start)"
    rows = db.sql(
        f"SELECT a.window_start, n, s FROM {one} a JOIN {two} b USING (window_start)"
    ).fetchall()
    assert len(rows) == len(db.sql(one[1:-1]).fetchall())


def test_count_windows(db: Any, events: pa.Table) -> None:
    """HOP_ROWS and TUMBLE_ROWS number complete windows, and WHERE applies before counting."""
    rows = db.sql(
        "SELECT window_id, window_start, window_end, sum(i), count(*) FROM HOP_ROWS(s, $1, $2) "
        "GROUP BY window_id, window_start, window_end ORDER BY window_id",
        [10, 100],
    ).fetchall()
    i = events["i"].to_pylist()
    t = events["t"].to_pylist()
    assert rows == [
        (n, t[10 * n], t[10 * n + 99], sum(i[10 * n : 10 * n + 100]), 100)
        for n in range((EVENTS - 100) // 10 + 1)
    ]
    kept = [v for v, k in zip(i, events["k"].to_pylist(), strict=True) if k == "a"]
    rows = db.sql(
        "SELECT window_id, sum(i) FROM TUMBLE_ROWS(s, 7) WHERE k = 'a' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert rows == [(n, sum(kept[7 * n : 7 * n + 7])) for n in range(len(kept) // 7)]
    by_key = db.sql(
        "SELECT window_id, k, count(*) FROM TUMBLE_ROWS(s, 300) GROUP BY 1, 2 ORDER BY 1, 2"
    ).fetchall()
    assert sum(n for _, _, n in by_key) == EVENTS // 300 * 300


@pytest.mark.parametrize(("slide", "size"), [(5, 1), (7, 3), (2, 3)])
@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_count_windows_across_batches(rows: int, slide: int, size: int) -> None:
    """Also where a batch begins between two windows."""
    made = pa.table({"t": range(0, 60, 2)}).to_batches(rows)
    windows, names = CountWindows(size, slide), ("t", "window_id", "window_start", "window_end")
    found = expand_counts(iter(made), iter(made), windows, "t", names, lambda: None)
    assert [row for batch in found for row in zip(*batch.to_pydict().values(), strict=True)] == [
        (2 * at, first // slide, 2 * first, 2 * (first + size - 1))
        for at in range(30)
        for first in range(0, 30 - size + 1, slide)
        if first <= at < first + size
    ]


def test_first_and_last_of_windows_that_duckdb_aggregates(db: Any) -> None:
    """They are by time, as those that windows compute themselves."""
    text = f"SELECT window_start, first(i), last(i){{}} FROM {HOP} GROUP BY 1 ORDER BY 1"
    rows = db.sql(text.format(", median(i)")).fetchall()
    assert [row[:3] for row in rows] == db.sql(text.format("")).fetchall()


def test_sessions(db: Any, events: pa.Table) -> None:
    """A session ends its gap after its last event; grouped by session alone and with a key."""
    text = (
        "SELECT window_start, window_end, count(*){} FROM SESSION(s, t, INTERVAL '20' SECOND) "
        "GROUP BY {}"
    )
    rows = db.sql(text.format("", "1, 2") + " ORDER BY 1").fetchall()
    ticks = events["t"].cast(pa.int64()).to_pylist()
    starts = [0] + [n for n in range(1, EVENTS) if ticks[n] - ticks[n - 1] > 20_000_000] + [EVENTS]
    assert [row[2] for row in rows] == [b - a for a, b in pairwise(starts)]
    gap = rows[0][1] - events["t"][starts[1] - 1].as_py()
    assert gap.total_seconds() == 20
    keyed = db.sql(text.format(", k", "1, 2, k")).fetchall()
    assert sum(row[2] for row in keyed) == EVENTS  # sessions of each key: test_keyed_sessions


def test_origin(db: Any, events: pa.Table) -> None:
    """An origin shifts windows; 'first' aligns them to the first event that is windowed."""
    text = (
        "SELECT min(window_start) FROM (SELECT window_start "
        "FROM TUMBLE(s, t, INTERVAL '1' HOUR, {}) {} GROUP BY 1)"
    )
    (shifted,) = db.sql(text.format("TIMESTAMP '2000-01-01 00:07:00'", "")).fetchall()
    assert shifted[0].minute == 7
    (first,) = db.sql(text.format("'first'", "")).fetchall()
    assert first[0] == events["t"][0].as_py()
    (kept,) = db.sql(text.format("'first'", "WHERE k = 'b'")).fetchall()
    place = events["k"].to_pylist().index("b")
    assert kept[0] == events["t"][place].as_py()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HOP(s, t, INTERVAL '5' MINUTE)", "takes 4 or 5 arguments"),
        ("HOP(q, t, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)", "no stream 'q'"),
        ("TUMBLE(s, x, INTERVAL '5' MINUTE)", "second argument is the time attribute"),
        ("TUMBLE(s, t, 5)", "expected an interval"),
        ("TUMBLE(s, t, INTERVAL '1.5' HOUR)", "in whole units"),
        ("TUMBLE(s, t, INTERVAL '0' SECOND)", "above 0"),
        ("TUMBLE_ROWS(s, -3)", "above 0"),
        ("TUMBLE(s, t, INTERVAL '1' HOUR, 'last')", "origin"),
    ],
)
def test_mistakes_are_explained(db: Any, text: str, message: str) -> None:
    """Errors say what is wrong, show the form and carry a position."""
    with pytest.raises(SqlError, match=message) as caught:
        db.sql(f"SELECT count(*) FROM {text} GROUP BY window_start").fetchall()
    assert caught.value.line == 1


def test_explain_shows_both_costs(db: Any) -> None:
    """EXPLAIN names the choice and both estimates, ANALYZE what was touched."""
    text = f"SELECT window_start, sum(x) FROM {HOP} GROUP BY window_start"
    plan = db.explain(text)
    (operator,) = [o for o in plan.operators() if o.name == "WindowAggregate"]
    details = dict(operator.details)
    assert details["strategy"] in ("index", "replay")
    assert details["cost_replay_ms"] > 0
    assert details["cost_index_ms"] > 0
    hinted = text.replace("SELECT", "SELECT /*+ strategy(replay) */")
    (operator,) = [
        o for o in db.explain(hinted, analyze=True).operators() if o.name == "WindowAggregate"
    ]
    assert dict(operator.details)["strategy"] == "replay"
    assert dict(operator.figures)["events"] == EVENTS


def test_time_limit(db: Any) -> None:
    """A window query of very many windows ends when its time is over."""
    with pytest.raises(QueryTimeout):
        db.sql(
            "SELECT max(m) FROM (SELECT window_start, avg(x) AS m "
            "FROM HOP(s, t, INTERVAL '1' MILLISECOND, INTERVAL '5' HOUR) GROUP BY window_start)",
            timeout=0.3,
        ).fetchall()


@pytest.mark.skipif(not FLIGHTS.exists(), reason=f"needs {FLIGHTS}")
def test_flights_equal_duckdb_over_the_file(tmp_path: Path) -> None:
    """The query of the issue, on real events, against DuckDB reading the file."""
    plain = tmp_path / "flights.json"
    plain.write_bytes(gzip.decompress(FLIGHTS.read_bytes()))
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE raw AS SELECT make_timestamp_ms(timestamp::BIGINT) AS t, * "
            f"FROM '{plain}'"
        )
        table = connection.sql(
            "SELECT t::TIMESTAMP AS timestamp, icao24, altitude::DOUBLE AS altitude FROM raw"
        ).to_arrow_table()
        expected = connection.sql(
            """SELECT w AS window_start, avg(altitude), count(*)
            FROM raw, LATERAL (SELECT time_bucket(INTERVAL 5 MINUTE, t::TIMESTAMP)
                - i * INTERVAL 5 MINUTE AS w FROM range(12) r(i)) GROUP BY w ORDER BY w"""
        ).fetchall()
    with chronicle.open(tmp_path / "store") as database:
        database.create_stream("flights", table.schema, "timestamp").append(table)
        for strategy in ("replay", "index", "auto"):
            found = database.sql(
                f"SELECT /*+ strategy({strategy}) */ window_start, avg(altitude), count(*) "
                "FROM HOP(flights, timestamp, INTERVAL '5' MINUTE, INTERVAL '1' HOUR) "
                "GROUP BY window_start, window_end ORDER BY window_start"
            ).fetchall()
            same_rows(found, expected)
