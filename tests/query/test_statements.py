"""DDL, SHOW, DESCRIBE, INSERT and EXPLAIN against a database."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import (
    ChronicleError,
    InvalidData,
    SqlError,
)

UTC = dt.timezone.utc


@pytest.fixture
def db(tmp_path):
    with chronicle.open(tmp_path / "store") as database:
        yield database


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A stream ``b`` with one event."""
    with chronicle.open(tmp_path_factory.mktemp("one")) as database:
        database.sql("CREATE STREAM b (t BIGINT, x DOUBLE) TIMESTAMP BY t")
        database.sql("INSERT INTO b VALUES (7, 0.5)")
        yield database


def test_create_stream_maps_types_and_options(db):
    db.sql(
        "CREATE STREAM everything (at TIMESTAMP, a BOOLEAN, b TINYINT, c SMALLINT, d INTEGER, "
        "e BIGINT NOT NULL, f UTINYINT, g USMALLINT, h UINTEGER, i UBIGINT, j FLOAT, k DOUBLE, "
        "l VARCHAR, m BLOB, n DATE, o TIMESTAMP_S, p TIMESTAMP_MS, q TIMESTAMP_NS, r TIMESTAMPTZ, "
        "s DECIMAL(10, 2), t TEXT, u DECIMAL) TIMESTAMP BY at "
        "WITH (codec = 'zstd', retention = '30 days', leaf_bytes = 65536)"
    )
    stream = db.stream("everything")
    assert stream.time == "at"
    assert [str(f.type) for f in stream.schema] == [
        "timestamp[us]", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
        "uint64", "float", "double", "string", "binary", "date32[day]", "timestamp[s]",
        "timestamp[ms]", "timestamp[ns]", "timestamp[us, tz=UTC]", "decimal128(10, 2)", "string",
        "decimal128(18, 3)",
    ]  # fmt: skip
    assert [f.name for f in stream.schema if not f.nullable] == ["at", "e"]
    options = catalog_of(db).stream_options("everything")
    assert (options["codec"], options["retention"], options["leaf_bytes"]) == (
        "zstd",
        "30 days",
        65536,
    )


def test_wrong_options_leave_nothing_behind(db):
    for options in ("codec = 'gzip'", "retention = 'soon'", "durability = 'maybe'"):
        with pytest.raises(ChronicleError):
            db.sql(f"CREATE STREAM s (t BIGINT) TIMESTAMP BY t WITH ({options})")
    assert db.streams() == []


def test_show_and_describe(db):
    assert db.sql("SHOW STREAMS").fetchall() == []
    db.sql("CREATE STREAM b (t BIGINT, x DOUBLE NOT NULL) TIMESTAMP BY t")
    db.sql("CREATE STREAM a (at TIMESTAMPTZ, v DECIMAL(9, 3)) TIMESTAMP BY at")
    db.sql("INSERT INTO b VALUES (7, 1), (9, 2)")
    assert db.sql("SHOW STREAMS").fetchall() == [
        ("a", "at", 0, None, None, None),
        ("b", "t", 2, "7", "9", None),
    ]
    assert db.sql("DESC a").fetchall() == [
        ("at", "TIMESTAMPTZ", "NO", "TIME"),
        ("v", "DECIMAL(9,3)", "YES", ""),
    ]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT t + 1 AS n, sum(x) AS s FROM b GROUP BY t", [("n", "BIGINT"), ("s", "DOUBLE")]),
        ("(SELECT t, x FROM b)", [("t", "BIGINT"), ("x", "DOUBLE")]),
        ("((SELECT t FROM b))", [("t", "BIGINT")]),
        ("(WITH a AS (SELECT t FROM b) SELECT * FROM a)", [("t", "BIGINT")]),
        ("(SELECT t FROM b) UNION SELECT 1", [("t", "BIGINT")]),
        ("(SELECT t FROM b ORDER BY t) LIMIT 1", [("t", "BIGINT")]),
        ("VALUES (1, 'a')", [("col0", "INTEGER"), ("col1", "VARCHAR")]),
        ("(VALUES (1))", [("col0", "INTEGER")]),
    ],
)
def test_a_query_is_described(one, text, columns):
    assert one.sql(f"DESCRIBE {text}").fetchall() == columns


def test_parentheses_around_a_query_change_nothing(db):
    db.sql("CREATE STREAM b (t BIGINT, x DOUBLE) TIMESTAMP BY t")
    db.sql("INSERT INTO b ((SELECT 1, 0.5))")
    clause = "MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A) DEFINE A AS t > 0)"
    for item in ("(SELECT t FROM b)", "((SELECT t FROM b))", "((SELECT t FROM b) AS a)"):
        assert db.sql(f"SELECT * FROM {item} {clause}").fetchall() == [(1,)]
    assert db.sql("EXPLAIN ((SELECT t FROM b))").fetchall()[0] == ("Scan",)


MATCH = "MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS t PATTERN (A) DEFINE A AS t > 0)"


@pytest.mark.parametrize(
    "item",
    [
        *("(b) AS q", "((b)) AS q", "(b AS a) AS q", "((b AS q))", "(b AS a(n, m)) AS q(t)"),
        *(
            "((SELECT t FROM b)) AS q",
            "((SELECT t FROM b) AS a) AS q",
            "(((SELECT t FROM b) AS q))",
        ),
        *("((SELECT 7) AS a(n)) AS q(t)", "(((SELECT t FROM b)) ORDER BY t LIMIT 1) AS q"),
        *("(VALUES (7)) AS q(t)", "((VALUES (7)) AS a) AS q(t)", "(((VALUES (7)) AS q(t)))"),
        *("(range(7, 8)) AS q(t)", "(range(7, 8) AS a) AS q(t)", "(unnest([7])) AS q(t)"),
        *("(LATERAL (SELECT t FROM b) AS q)", "(TUMBLE(b, t, 7)) AS q(t)"),
        *("(b AS a TABLESAMPLE 100%) AS q TABLESAMPLE 100%", "(b AS a) AS q TABLESAMPLE 100%"),
        *(f"(b {MATCH}) AS q", f"((b) {MATCH} AS a) AS q", f"((b {MATCH} AS q))"),
        *("(b AS q), (b AS r)", "b AS q CROSS JOIN (b AS r)", "((b AS q) JOIN (b AS r) USING (t))"),
        "(b AS q JOIN b AS r ON q.x = r.x)",
        "(b AS a JOIN b AS c USING (t)) AS q",
        "((b AS a JOIN b AS c USING (t))) AS q",
        "((b AS q JOIN b AS r ON q.t = r.t)) JOIN b AS z ON z.t = q.t",
        "(((SELECT t FROM b) AS q JOIN b ON q.t = b.t) JOIN b AS c ON q.t = c.t)",
        "((VALUES (7)) AS q(t) JOIN (b) ON b.t = q.t)",
        "(b AS q JOIN b AS r ON q.t IN (SELECT t FROM b WHERE b.t = r.t))",
        "b AS z JOIN (b AS q JOIN b AS r ON q.t IN (SELECT t FROM b)) ON z.t = q.t",
        *("(b AS q RECENT LEFT JOIN b AS c)", "(((b AS q) RECENT LEFT JOIN (b AS c)))"),
        "((b AS z) JOIN ((b AS q RECENT LEFT JOIN b AS c)) ON z.t = q.t)",
        "((b) AS q RECENT LEFT JOIN (b) AS r) JOIN b AS z ON z.x = q.x",
    ],
)
def test_parentheses_in_from_change_nothing(one, item):
    assert one.sql(f"SELECT q.t FROM {item}").fetchall() == [(7,)]


def test_a_name_behind_parentheses_hides_those_inside(one):
    for item in (
        "(b AS a) AS q",
        "((SELECT t FROM b) AS a) AS q",
        "(b AS a JOIN b USING (t)) AS q",
    ):
        with pytest.raises(SqlError, match="nothing in FROM is called 'a'"):
            one.sql(f"SELECT a.t FROM {item}")
    with pytest.raises(SqlError, match="a recency join has no name of its own"):
        one.sql("SELECT * FROM (b AS a RECENT JOIN b AS c) AS q")


def test_insert_values(db):
    db.sql("CREATE STREAM s (t TIMESTAMP, x DOUBLE, s VARCHAR, d DECIMAL(6, 2)) TIMESTAMP BY t")
    for text, params in (
        ("INSERT INTO s VALUES ('2020-01-02', 1, 'a', 1.5)", None),
        ("INSERT INTO s (s, T) VALUES ('b', TIMESTAMP '2020-01-03')", None),
        ("INSERT INTO s (t, x) VALUES ($t, $x)", {"t": "2020-01-04", "x": 9}),
    ):
        assert db.sql(text, params).fetchall() == [(1,)]
    assert db.sql("SELECT * FROM s").fetchall() == [
        (dt.datetime(2020, 1, 2), 1.0, "a", Decimal("1.50")),
        (dt.datetime(2020, 1, 3), None, "b", None),
        (dt.datetime(2020, 1, 4), 9.0, None, None),
    ]


def test_insert_select_between_streams(db):
    db.sql("CREATE STREAM a (t BIGINT, x DOUBLE) TIMESTAMP BY t")
    db.sql("CREATE STREAM b (t BIGINT, y FLOAT, n BIGINT) TIMESTAMP BY t")
    db.stream("a").append(pa.table({"t": list(range(100)), "x": [i / 2 for i in range(100)]}))
    db.sql("INSERT INTO b (t, y) SELECT t * 10, x FROM a WHERE x > 40")
    db.sql("INSERT INTO b WITH q AS (SELECT max(t) AS m FROM a) SELECT m, 0, 1 FROM q")
    assert db.sql("SELECT count(*), min(t), max(y), sum(n) FROM b").fetchall() == [
        (20, 99, 49.5, 1)
    ]


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("INSERT INTO s VALUES (1, 1), (2, NULL)", InvalidData, "row 2"),
        ("INSERT INTO s (t, T) VALUES (1, 2)", SqlError, "named twice"),
        ("INSERT INTO q VALUES (1, 2)", SqlError, "no stream 'q'"),
        ("INSERT INTO s VALUES (1, 2) ON CONFLICT DO NOTHING", SqlError, "CONFLICT"),
        ("INSERT INTO s VALUES (1, 2) RETURNING t", SqlError, "RETURNING"),
    ],
)
def test_wrong_inserts_store_nothing(one, sql, error, words):
    one.sql("CREATE STREAM IF NOT EXISTS s (t BIGINT, x DOUBLE NOT NULL) TIMESTAMP BY t")
    with pytest.raises(error) as caught:
        one.sql(sql)
    assert words in str(caught.value)
    assert one.stream("s").count == 0


# ------------------------------------------------------------------------------- EXPLAIN


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    schema = pa.schema([("t", pa.timestamp("us")), ("x", pa.float64()), ("k", pa.string())])
    start, rows = dt.datetime(2020, 1, 1), range(20_000)
    times = [start + dt.timedelta(seconds=i) for i in rows]
    table = pa.table([times, [float(i) for i in rows], [f"k{i % 5}" for i in rows]], schema=schema)
    with chronicle.open(tmp_path_factory.mktemp("filled")) as database:
        stream = database.create_stream("s", schema, "t", options={"leaf_bytes": 4096})
        stream.append(table)
        yield database


def scans(plan):
    return [operator for operator in plan.operators() if operator.name == "Scan"]


def test_explain_says_what_is_pushed_into_a_scan(filled):
    plan = filled.explain(
        "SELECT k, count(*) FROM s a JOIN s b USING (k) WHERE a.t >= '2020-01-01 01:00:00' "
        "AND a.t < '2020-01-01 02:00:00' AND a.x > 4000 AND b.t < '2020-01-01' GROUP BY k"
    )
    said = {scan.to_dict()["range"]: scan.to_dict() for scan in scans(plan)}
    first = said.pop("[2020-01-01 01:00:00, 2020-01-01 02:00:00)")
    assert list(said) == ["[, 2020-01-01 00:00:00)"]
    assert (first["stream"], first["prune"]) == ("s", "x > 4000.0")
    assert sorted(first["columns"]) == ["k", "x"]
    assert not plan.analyzed
    assert "figures" not in first
    text = str(plan)
    assert "HashGroupBy" in text
    assert "└─ " in text


def test_explain_analyze_says_what_was_read(filled):
    plan = filled.explain("SELECT avg(x) FROM s WHERE x BETWEEN 100 AND 200", analyze=True)
    (scan,) = scans(plan)
    figures = dict(scan.figures)
    assert figures["blocks_read"] > 0
    assert figures["blocks_skipped"] > figures["blocks_read"]
    assert figures["bytes_read"] > 0
    assert 101 <= figures["rows"] <= 4000
    assert figures["events_read"] > 0
    assert figures["time_ms"] >= 0
    assert plan.analyzed
    assert {"planning_ms", "total_ms"} <= dict(plan.figures).keys()
    json.dumps(plan.to_dict())


def test_explain_as_a_statement(filled):
    analyzed = filled.sql("EXPLAIN ANALYZE SELECT k FROM s WHERE x > 5")
    assert any("actual: rows" in line for (line,) in analyzed.fetchall())
    assert analyzed.plan is not None
    assert analyzed.plan.analyzed
    assert filled.explain("EXPLAIN ANALYZE SELECT 1 FROM s").analyzed
    with pytest.raises(SqlError):
        filled.explain("SHOW STREAMS")


def test_a_result_knows_its_plan(filled):
    result = filled.sql("SELECT k FROM s WHERE x < 3")
    assert scans(result.plan)[0].to_dict()["stream"] == "s"
    assert result.fetchall() == [("k0",), ("k1",), ("k2",)]
    plan = filled.sql("SELECT max(x) FROM s").plan
    assert plan.root.to_dict()["aggregates"] == ["max(x)"]
    assert filled.sql("SHOW STREAMS").plan is None


def test_order_by_time_and_limits_reach_the_scan(filled):
    (scan,) = scans(filled.explain("SELECT x FROM s ORDER BY t LIMIT 5 OFFSET 2"))
    assert scan.to_dict()["limit"] == 7
    plan = filled.explain("SELECT x FROM s ORDER BY t DESC LIMIT 3", analyze=True)
    (scan,) = scans(plan)
    assert scan.to_dict()["range"].startswith("[2020-01-01 05:33:17")
    assert dict(scan.figures)["rows"] == 3
    rows = filled.sql("SELECT x FROM s ORDER BY t DESC LIMIT 3").fetchall()
    assert rows == [(19_999.0,), (19_998.0,), (19_997.0,)]


def test_order_by_time_holds_beside_subqueries(db):
    """A correlated subquery is a join, whose rows come in the order of a hash table."""
    db.sql("CREATE STREAM s (t BIGINT, x BIGINT) TIMESTAMP BY t")
    db.sql("CREATE STREAM b (t BIGINT, y BIGINT) TIMESTAMP BY t")
    db.sql("INSERT INTO s SELECT i, (i * 7919) % 10007 FROM range(20000) r(i)")
    db.sql("INSERT INTO b SELECT i, (i * 31) % 20011 FROM range(50000) r(i)")
    count = "(SELECT count(*) FROM b WHERE b.y = s.x)"
    for select in (f"t, {count} AS n FROM s", f"t FROM s WHERE {count} >= 0"):
        times = [row[0] for row in db.sql(f"SELECT {select} ORDER BY t").fetchall()]
        assert times == sorted(times)
        assert len(times) == 20_000
        found = db.sql(f"SELECT {select} ORDER BY t LIMIT 5 OFFSET 2").fetchall()
        assert [row[0] for row in found] == [2, 3, 4, 5, 6]


def test_limits_reach_a_scan_only_where_they_may(db):
    """Twenty events in pairs of one time; x falls, y is 1 for every third."""
    db.sql("CREATE STREAM s (t BIGINT, x BIGINT, y BIGINT) TIMESTAMP BY t")
    db.sql(
        "INSERT INTO s SELECT i // 2, -i, CASE WHEN i % 3 = 0 THEN 1 ELSE 0 END FROM range(20) r(i)"
    )
    db.sql("CREATE STREAM u (t BIGINT) TIMESTAMP BY t")
    db.sql("INSERT INTO u SELECT i FROM range(20) r(i)")
    in_pairs = [i // 2 for i in range(20)]
    for query, expected in (
        ("SELECT x FROM s WHERE y = 1 LIMIT 3", [0, -3, -6]),
        ("SELECT x FROM s WHERE x % 5 = -4 LIMIT 2", [-4, -9]),
        ("SELECT x FROM s WHERE y = 1 ORDER BY t DESC LIMIT 3", [-18, -15, -12]),
        ("SELECT x FROM s WHERE y = 1 ORDER BY t LIMIT 3 OFFSET 1", [-3, -6, -9]),
        ("SELECT x FROM s WHERE y = 1 ORDER BY t DESC LIMIT 1", [-18]),
        ("SELECT DISTINCT y FROM s ORDER BY y LIMIT 2", [0, 1]),
        ("SELECT count(*) FROM (SELECT DISTINCT t FROM s LIMIT 10)", [10]),
        ("SELECT t FROM s ORDER BY t DESC LIMIT 3", [9, 9, 8]),
        ("SELECT t FROM s ORDER BY t DESC LIMIT 2 OFFSET 2", [8, 8]),
        ("SELECT t FROM u ORDER BY t DESC LIMIT 3", [19, 18, 17]),
        ("SELECT x AS t FROM s ORDER BY t LIMIT 2", [-19, -18]),
        ("SELECT x FROM s ORDER BY x LIMIT 2", [-19, -18]),
        ("SELECT sum(y) FROM s LIMIT 1", [7]),
        # each side in the reverse order of the other: one of them is not that of the join
        ("SELECT a.t FROM s a JOIN s b ON a.x = -19 - b.x ORDER BY a.t", in_pairs),
        ("SELECT b.t FROM s a JOIN s b ON a.x = -19 - b.x ORDER BY b.t", in_pairs),
    ):  # fmt: skip
        found = [row[0] for row in db.sql(query).fetchall()]
        assert found == expected, query


def test_the_tree_answers_only_what_it_knows(db):
    db.sql("CREATE STREAM s (t BIGINT, x BIGINT, k VARCHAR) TIMESTAMP BY t")
    db.sql("INSERT INTO s SELECT i, i % 7, 'k' || (i % 3) FROM range(100) r(i)")
    for query, expected in (
        ("SELECT count(*) FROM s WHERE t < 50", (50,)),
        ("SELECT sum(x) FROM s WHERE t < 50 AND x = 3", (21,)),
        ("SELECT sum(x) FILTER (WHERE x > 4), count(*) FROM s", (154, 100)),
        ("SELECT sum(x) FILTER (WHERE 1 > 2), count(*) FROM s", (None, 100)),
        ("SELECT sum((SELECT count(*) FROM s b WHERE b.t < 50 AND a.x = 3)) FROM s a", (700,)),
        (
            "SELECT max(x) FROM s WHERE t < 50 AND EXISTS (SELECT 1 FROM s b WHERE b.t > 1000)",
            (None,),
        ),
        ("SELECT count(*) FROM s WHERE t < 50 AND random() > 2", (0,)),
        ("SELECT count(*) FROM s WHERE t < 50 AND (t < 20 OR x = 3)", (24,)),
        ("SELECT count(DISTINCT x), max(k) FROM s", (7, "k2")),
        ("SELECT count(*) FROM s WHERE t < 50 OR x = 3", (57,)),
        ("SELECT min(t), max(t) FROM s WHERE t BETWEEN 10 AND 19", (10, 19)),
        ("SELECT min(t), max(t) FROM s WHERE t > 10 AND t < 19", (11, 18)),
    ):
        assert db.sql(query).fetchall() == [expected], query
