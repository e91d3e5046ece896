"""SQL over a store equals SQL over the same table in DuckDB.

Random conditions, in joins and derived tables too, are in :mod:`.test_predicate_differential`.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import chronicle

ROWS = 4_000
START = dt.datetime(1969, 12, 31, 23, 0)


def events(seed: int, rows: int) -> pa.Table:
    """Events with ties, nulls, NaN, infinities, extremes and times on both sides of the epoch."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.integers(0, rows // 2, rows))
    times = [START + dt.timedelta(seconds=int(v)) for v in seconds]
    x = rng.normal(size=rows) * 100
    x[rng.random(rows) < 0.01] = math.nan
    x[rng.random(rows) < 0.005] = math.inf
    x[rng.random(rows) < 0.005] = -math.inf
    # values drift with time, so that min/max of blocks can rule something out
    n = (np.arange(rows) // 3 - rows // 6 + rng.integers(-50, 50, rows)).astype(np.int64)

    def nulls(values: list, share: float = 0.05) -> list:
        return [None if rng.random() < share else value for value in values]

    words = ["alpha", "beta", "gamma", "delta", "Ärger", "", "al%ha", "z" * 12]
    return pa.table(
        {
            "t": pa.array(times, pa.timestamp("us")),
            "n": pa.array(nulls(n.tolist()), pa.int64()),
            "small": pa.array(rng.integers(-128, 128, rows), pa.int8()),
            "u": pa.array(
                nulls([int(v) * 2**50 for v in rng.integers(0, 2**13, rows)]), pa.uint64()
            ),
            "x": pa.array(nulls(x.tolist()), pa.float64()),
            "f": pa.array(rng.normal(size=rows).astype(np.float32)),
            "s": pa.array(
                nulls([words[i] + str(i % 3) for i in rng.integers(0, len(words), rows)])
            ),
            "b": pa.array(nulls((rng.random(rows) < 0.3).tolist())),
            "d": pa.array([(START + dt.timedelta(days=int(v) // 40)).date() for v in seconds]),
            "m": pa.array(times, pa.timestamp("us"))
            .cast(pa.timestamp("ms"))
            .cast(pa.timestamp("ms", "UTC")),
            "dec": pa.array(
                nulls([Decimal(int(v)).scaleb(-2) for v in rng.integers(-999, 999, rows)]),
                pa.decimal128(10, 2),
            ),
        }
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A store whose stream has many small leaves, late runs and a tail; DuckDB over the same."""
    table = events(7, ROWS)
    other = events(8, 300)
    database = chronicle.open(tmp_path_factory.mktemp("store"))
    for name, data in (("e", table), ("o", other)):
        stream = database.create_stream(
            name, data.schema, "t", options={"leaf_bytes": 4096, "segment_bytes": 1 << 16}
        )
        shuffled = data.slice(0, len(data) * 2 // 3)
        stream.append(shuffled)
        stream.append(data.slice(len(data) * 2 // 3))
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("e", table)
    connection.register("o", other)
    yield database, connection
    connection.close()
    database.close()


def same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, Decimal) and not isinstance(other, Decimal):
        return one == Decimal(other) if other is not None else False
    return one == other


def expected(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple]:
    table = connection.sql(sql).to_arrow_table()
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


def check(pair, sql: str) -> None:
    database, connection = pair
    want = expected(connection, sql)
    got = database.sql(sql).fetchall()
    assert len(got) == len(want), sql
    for one, other in zip(got, want, strict=True):
        assert all(same(a, b) for a, b in zip(one, other, strict=True)), (sql, one, other)


# ----------------------------------------------------------------------------- generators


class Texts:
    """Random spans of time from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def moment(self) -> str:
        pick = self.random
        value = START + dt.timedelta(
            seconds=pick.randrange(-100, ROWS // 2 + 100),
            microseconds=pick.choice([0, 0, 0, 1, 500_000]),
        )
        text = value.isoformat(sep=" ")
        return pick.choice(
            [
                f"TIMESTAMP '{text}'",
                f"'{text}'",
                f"CAST('{text}' AS TIMESTAMP)",
                f"TIMESTAMP '{text}' - INTERVAL '90' SECOND",
                f"(TIMESTAMP '{text}' + INTERVAL 1 HOUR)",
                f"TIMESTAMPTZ '{text}+00'",
                f"make_timestamp({(value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)})",  # noqa: E501
                "DATE '1970-01-01'",
                "NULL",
            ]
        )

    def span(self) -> str:
        pick = self.random
        parts = []
        if pick.random() < 0.8:
            parts.append(f"t {pick.choice(['>=', '>'])} {self.moment()}")
        if pick.random() < 0.8:
            parts.append(f"{self.moment()} {pick.choice(['>', '>='])} t")
        if pick.random() < 0.2:
            parts.append(f"t BETWEEN {self.moment()} AND {self.moment()}")
        return " AND ".join(parts) or "true"


@pytest.mark.parametrize("seed", range(30))
def test_random_aggregates_over_time_equal_those_of_a_scan(pair, seed):
    texts = Texts(1000 + seed)
    calls = [
        "count(*)", "count(n)", "sum(n)", "min(n)", "max(n)", "avg(n)", "sum(x)", "min(x)", "max(x)",  # noqa: E501
        "avg(x)", "min(t)", "max(t)", "count(t)", "sum(b)", "min(b)", "max(b)", "min(f)", "sum(f)",
        "sum(u)", "max(u)", "avg(u)", "min(d)", "max(m)", "sum(small)", "count(s)", "count(dec)",
        "min(small)", "avg(f)",
    ]  # fmt: skip
    chosen = texts.random.sample(calls, texts.random.randrange(1, 6))
    where = texts.span()
    check(pair, f"SELECT {', '.join(chosen)} FROM e WHERE {where}")
    check(
        pair,
        f"SELECT round(avg(x), 3) AS r, max(n) - min(n), sum(n) / 7, sum(n) // 7, count(*) + 1 "
        f"FROM e WHERE {where} HAVING count(*) >= 0",
    )


def test_the_tree_answers_aggregates_over_time_and_only_those(pair):
    database, _ = pair
    for sql, by_tree in [
        ("SELECT avg(x) FROM e", True),
        ("SELECT avg(x) FROM e WHERE t >= '1970-01-01'", True),
        ("SELECT avg(x) FROM e WHERE t >= '1970-01-01' AND n > 3", False),
        ("SELECT avg(x) FROM e WHERE t < '1970-01-01' OR t > '1970-01-02'", False),
        ("SELECT min(s) FROM e", False),
        ("SELECT sum(DISTINCT n) FROM e", False),
        ("SELECT sum(dec) FROM e", False),
    ]:
        names = [operator.name for operator in database.explain(sql).operators()]
        assert ("TreeAggregate" in names, "Scan" in names) == (by_tree, not by_tree), sql
    nested = database.explain("SELECT n FROM e WHERE x > (SELECT avg(x) FROM e)")
    assert "TreeAggregate" in [operator.name for operator in nested.operators()]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM e LIMIT 7",
        "SELECT t, n FROM e WHERE t >= '1970-01-01' LIMIT 5 OFFSET 3",
        "SELECT t, n FROM e WHERE n > 100 LIMIT 5",
        "SELECT t, n, s FROM e ORDER BY t LIMIT 9",
        "SELECT t FROM e ORDER BY t DESC LIMIT 9",
        "SELECT t FROM e WHERE t < '1970-01-01' ORDER BY t DESC LIMIT 5 OFFSET 2",
        "SELECT t FROM e WHERE n > 5 ORDER BY t DESC LIMIT 5",
        "SELECT n AS t, t AS y FROM e WHERE n IS NOT NULL ORDER BY t, y LIMIT 9",
        "SELECT DISTINCT d FROM e ORDER BY d",
        "SELECT d, count(*) FROM e GROUP BY d ORDER BY d",
        "SELECT x + 1 AS x FROM e WHERE x > 150 ORDER BY e.x",
        "SELECT t, row_number() OVER (ORDER BY t, n, small) AS r FROM e QUALIFY r < 5 ORDER BY r",
        "SELECT s, max(n) FROM e GROUP BY s HAVING max(n) > 10 ORDER BY s",
        "SELECT a.t, a.n, a.u, b.* FROM e a ASOF JOIN (SELECT small, t, max(x) AS x FROM o "
        "GROUP BY ALL) b ON a.small = b.small AND a.t >= b.t WHERE b.x > 5 ORDER BY ALL LIMIT 50",
        "SELECT count(*) FROM e WHERE 1 = 0",
        "SELECT count(*) FROM e WHERE NULL",
        "SELECT sum(n), count(*), min(t), avg(x) FROM e WHERE t > '2200-01-01'",
        "SELECT count(*) FROM e a LEFT JOIN o b ON a.n = b.n WHERE b.n IS NULL AND a.n > 100",
        "SELECT count(*) FROM e a LEFT JOIN o b ON a.n = b.n WHERE b.t IS NULL",
        "SELECT count(*) FROM e a LEFT JOIN o b ON a.n = b.n WHERE b.t IS NULL OR b.x > 5",
        "SELECT count(*) FROM e a LEFT JOIN o b ON a.n = b.n WHERE NOT b.t IS NOT NULL AND a.n > 5",
        "SELECT count(*) FROM e a LEFT JOIN o b ON a.n = b.n AND b.t IS NULL WHERE b.t IS NULL",
        "SELECT count(*) FROM e a FULL JOIN o b ON a.n = b.n WHERE a.t IS NULL AND b.x > 5",
        "SELECT count(*) FROM e a LEFT JOIN o b ON a.n = b.n WHERE (b.t IS NULL AND a.n > 9) OR "
        "b.n = 1",
        "SELECT t FROM e UNION ALL SELECT t FROM o ORDER BY t LIMIT 5",
        "FROM e SELECT count(*)",
        "SELECT COLUMNS('n|x') FROM e ORDER BY ALL LIMIT 3",
        "SELECT * EXCLUDE (x, f) REPLACE (n + 1 AS n) FROM o ORDER BY t, small, u",
        "SELECT (SELECT max(b.n) FROM o b WHERE b.small = a.small) FROM e a WHERE a.n BETWEEN 5 AND 9 "  # noqa: E501
        "ORDER BY a.t, a.n, 1",
        "SELECT d, s, sum(n) FROM e GROUP BY GROUPING SETS ((d), (s), ()) ORDER BY ALL",
        "SELECT date_trunc('hour', t) h, arg_max(n, x), quantile_cont(n, 0.5), stddev(n) FROM e "
        "WHERE x < 1000 GROUP BY h ORDER BY h",
        "SELECT u FROM e WHERE u >= 9223372036854775808 ORDER BY u, t",
    ],
)
def test_chosen_queries_equal_those_of_duckdb(pair, sql):
    check(pair, sql)


def test_columns_have_the_names_that_duckdb_gives(pair):
    database, connection = pair
    for sql in [
        "SELECT count(*), sum(n), avg(e.x), MAX(t), count(n) AS c FROM e",
        "SELECT max(n) - min(n), round(avg(x), 2), count(*) * 2 FROM e",
        "SELECT n + 1, lower(s), t::DATE FROM e LIMIT 1",
        "SELECT * FROM o LIMIT 1",
        "SELECT N, T AS when_ FROM e LIMIT 1",
    ]:
        assert database.sql(sql).columns == connection.sql(sql).columns, sql


def test_blocks_are_skipped_where_min_max_rules_them_out(pair):
    database, _ = pair
    for where in ("n > 600", "f > 1e6", "n = 123456", "d < DATE '1900-01-01'", "u < 0"):
        plan = database.explain(f"SELECT * FROM e WHERE {where}", analyze=True)
        scan = next(node for node in plan.operators() if node.name == "Scan")
        figures = dict(scan.figures)
        assert figures["blocks_skipped"] > 0, (where, figures)
        assert figures["events_read"] < 0.2 * database.stream("e").count, (where, figures)
