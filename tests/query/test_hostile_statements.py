"""What must not pass the SQL gate: found by attacks on a running server."""

from __future__ import annotations

import sys
import threading
from datetime import datetime
from unittest.mock import Mock

import duckdb
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import ChronicleError, SqlError, StreamNotFound
from chronicle.query import engine
from chronicle.query.pattern.binding import substitute
from chronicle.query.relational import admission
from chronicle.query.relational.executor import Executor
from chronicle.query.sql import gate, nesting
from chronicle.query.sql.dialect import parse_statement, to_text
from chronicle.query.sql.forms import COLLATIONS, DATE_PARTS, UNITS

from .calls import calls_of

RESOLUTIONS = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
MACRO = "create or replace macro main.upper(x) as ''P''"
RAW = f"""
SELECT 'a' COLLATE 'nocase; {MACRO}; select 1'
SELECT 'a' COLLATE "nocase; select 1"
SELECT 'a' COLLATE nocase."x; y"
SELECT 'a' COLLATE de
SELECT EXTRACT("year FROM now()), current_setting('memory_limit'), EXTRACT(year" FROM t) FROM s
SELECT EXTRACT('year FROM t), version()' FROM t) FROM s
SELECT EXTRACT(nonsense FROM now())
SELECT 1::DECIMAL("10, 2)), version(), CAST(2 AS DECIMAL(10", 2)
SELECT 1::DECIMAL(version(), 2)
SELECT 1::DECIMAL(99, 2)
SELECT 1::"INTEGER), version()"
SELECT 1::FLOAT("3")
SELECT NULL::STRUCT(a "INT), version()")
SELECT NULL::INT["3"]
SELECT INTERVAL '1' YEAR TO "MONTH, version()"
SELECT INTERVAL (x) nonsense FROM s
SELECT NULL::INTERVAL YEAR TO "MONTH), version()"
SELECT * FROM s JOIN BY (TYPE "LEFT JOIN s b ON true; {MACRO}; SELECT 1 FROM s a INNER") s b ON true
SELECT * FROM s JOIN BY (TYPE "semi; select 1") s b ON true
SELECT * FROM s TABLESAMPLE "reservoir; x" (10 ROWS)
SELECT * FROM s TABLESAMPLE reservoir("10; x" ROWS)
SELECT * FROM s USING SAMPLE 10% ("system; x", 3)
SELECT sum(x) OVER (ROWS BETWEEN "1; x" PRECEDING AND CURRENT ROW EXCLUDE "TIES; x") FROM s
SELECT * FROM s ORDER BY x LIMIT "ALL; x"
SELECT * FROM s LIMIT 1 BY x
SELECT * FROM s CLUSTER BY x
SELECT * FROM s CONNECT BY x
SELECT * FROM s FOR UPDATE
SELECT CAST(x AS INT FORMAT 'x; y') FROM s
SELECT x -> "$.a; y" FROM s
SELECT f("a; b" => 1)
SELECT struct_pack(a := version())
SELECT "version"()
SELECT "upper"") ; create macro x() as 1"('a')
SELECT main.upper('a')
SELECT system.main.version()
SELECT x.version() FROM s
SELECT 'a'.getenv()
SELECT list_aggregate(['memory_limit'], 'current_setting')
SELECT list_transform([1], "x -> version()")
SELECT * FROM s AS "q"" ; select 1"("a"" ; b", "c", "d", "e")
SELECT COLUMNS(version()) FROM s
SELECT x ? 'a' FROM s
SELECT x #> 'a' FROM s
SELECT N'a'
SELECT x OVERLAPS x FROM s
SELECT x IS JSON FROM s
SELECT e'\\\\x27; select 1'
COPY (SELECT 1) TO ':memory:'
COPY s TO ':memory:' (FORMAT "csv; x")
EXPLAIN SELECT 'a' COLLATE 'nocase; select 1'
EXPLAIN ANALYZE SELECT 'a' COLLATE 'nocase; select 1'
DESCRIBE SELECT 'a' COLLATE 'nocase; select 1'
INSERT INTO s (t, x) SELECT 1, 'a' COLLATE 'nocase; select 1'
INSERT INTO s (t, x) VALUES (1, EXTRACT("year FROM now()), version(), EXTRACT(year" FROM now()))
SELECT window_start, count(*) FROM TUMBLE(s, t, 5::DECIMAL("10)); {MACRO}; select (1")) GROUP BY ALL
SELECT window_start, sum(x::DECIMAL("10, 2)), version(), CAST(2 AS DECIMAL(10")) FROM TUMBLE(s, t, 5) GROUP BY window_start
SELECT window_start, 'a' COLLATE "c; select 1", count(*) FROM TUMBLE(s, t, 5) GROUP BY 1, 2
SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES 'a' COLLATE "c; select 1" AS m PATTERN (A) DEFINE A AS x > 1)
SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS m PATTERN (A) DEFINE A AS EXTRACT("year FROM now()), version(), EXTRACT(year" FROM now()) > 1)
SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS m PATTERN (A) WITHIN INTERVAL '1' "DAY, version()" DEFINE A AS x > 1)
""".strip().splitlines()  # noqa: E501


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with chronicle.open(tmp_path_factory.mktemp("store")) as opened:
        stream = opened.create_stream("s", pa.schema([("t", pa.int64()), ("x", pa.float64())]), "t")
        stream.append(pa.table({"t": [1, 2, 3], "x": [1.0, 2.0, 3.0]}))
        opened.create_stream("other", pa.schema([("t", pa.int64()), ("secret", pa.int64())]), "t")
        yield opened


@pytest.mark.parametrize("sql", RAW)
def test_no_token_reaches_the_executor_as_it_is(shared, sql):
    with pytest.raises(SqlError):
        shared.sql(sql).fetchall()
    assert shared.sql("SELECT upper('a')").fetchall() == [("A",)]
    assert shared.stream("s").count == 3


@pytest.mark.parametrize("where", [RAW[0].removeprefix("SELECT "), 'x::DECIMAL("1)), (1") > 1'])
def test_a_predicate_is_no_way_in(shared, where):
    snapshot = catalog_of(shared).snapshot("s")
    with pytest.raises(SqlError):
        list(
            catalog_of(shared).engine.scan(
                "s", snapshot, f"({where}) IS NULL", None, None, ["x"], None
            )
        )


def test_texts_in_conditions_of_patterns_are_no_places_for_columns(shared):
    assert substitute('"@0" = \'"@0"\'', {0: "('a'; b)"}) == "('a'; b) = '\"@0\"'"
    assert substitute('"@0""@1"', {0: "x", 1: "y"}) == '"@0""@1"'
    sql = """SELECT m FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x || '"@0"' AS m
             PATTERN (A) DEFINE A AS CAST(x AS VARCHAR) || '"@0"' <> '"@0"')"""
    assert shared.sql(sql).fetchall()[0] == ('1.0"@0"',)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'it''s' || chr(39) || $$a'b$$ AS v",
        'SELECT \'a\' AS "x""; select 1"',
        'SELECT "a""b\'c" FROM (SELECT 1 AS "a""b\'c")',
        "SELECT {'a''b': 1}",
        "SELECT 'a' COLLATE nocase.noaccent = 'A'",
        "SELECT x.abs(), t.range().len() FROM s".replace("t.range()", "[1, 2]"),
        "SELECT string_agg(DISTINCT x::VARCHAR, ';') FROM s",
        "SELECT INTERVAL '1' DAY + INTERVAL (2) HOURS, EXTRACT('year' FROM DATE '2020-01-01')",
        "SELECT MAP {'k': 1}['k'], [1, 2, 3][1:-:2], {'a': 1}.a",
        "SELECT a->>'$.k' FROM (SELECT '{\"k\": \"v;\"}'::JSON AS a)",
        "SELECT * FROM s LEFT JOIN s AS b USING (t) ORDER BY ALL LIMIT 50 PERCENT",
        "SELECT sum(x) OVER (ORDER BY t ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) "
        "FROM s",
    ],
)
def test_what_is_legal_still_runs(shared, sql):
    assert shared.sql(sql).arrow().num_rows > 0


def test_what_is_written_is_read_as_the_same_again():
    for sql in ("SELECT a - (b - c) - d, NOT (a = b) = c, (a AND b) OR c, -(-a), a || b || 'c'",):
        once = to_text(parse_statement(sql))
        assert to_text(parse_statement(once)) == once


# ---------------------------------------------------------------------------- the gate


class Everything(frozenset):  # type: ignore[type-arg]
    """A set of all there is."""

    def __contains__(self, _: object) -> bool:
        return True


BEHIND_THE_DOOR = [
    "SELECT 1; SELECT 2",
    "CREATE TEMP MACRO m() AS 1",
    "SET threads = 1",
    "COPY (SELECT 1) TO 'x'",
    "EXPLAIN SELECT 1",
    "DESCRIBE SELECT 1",
    "PIVOT t ON a",
    "SELECT * FROM u",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM 'x.csv'",
    "SELECT current_setting('threads')",
    "SELECT system.main.upper('a')",
    "SELECT 'a' COLLATE de",
    "SELECT (SELECT getenv('HOME'))",
    "WITH q AS (SELECT version()) SELECT * FROM q",
]


@pytest.mark.parametrize("lexed", [True, False], ids=["lexed", "only parsed"])
def test_the_door_does_not_trust_the_renderer(lexed, monkeypatch):
    if not lexed:  # each of its two locks holds alone
        monkeypatch.setattr(
            admission, "_written", lambda _: admission._Written(Everything(), Everything())
        )
    with admission.open_empty() as connection:
        cursor = connection.cursor()
        cursor.register("t", pa.table({"a": [1]}))
        admitted = 'WITH "q" AS (SELECT "a" FROM "t") SELECT max("a") FROM "q"'
        admission.admit(cursor, admitted, ["t"])
        let_in = []
        for sql in BEHIND_THE_DOOR:
            try:
                admission.admit(cursor, sql, ["t"])
                let_in.append(sql)
            except (SqlError, duckdb.Error):
                continue
        assert not let_in


def test_nothing_of_one_execution_is_left_for_another(shared):
    shared.sql("SELECT x + 1 FROM s").fetchall()
    connection = catalog_of(shared).engine.executor._connection
    for statement in (
        "CREATE MACRO main.upper(x) AS 'P'",
        "CREATE TABLE q (a INT)",
        "CREATE VIEW q AS SELECT 1",
        "ATTACH ':memory:' AS m",
        "COPY (SELECT 1) TO ':memory:'",
        "SET threads = 1",
        "SET enable_external_access = true",
        "SET memory_limit = '1TB'",
    ):
        with connection.cursor() as cursor, pytest.raises(duckdb.Error):
            cursor.execute(statement)
    with connection.cursor() as one, connection.cursor() as other:
        one.execute("CREATE TEMP MACRO upper(x) AS 'P'")
        assert other.execute("SELECT upper('a')").fetchall() == [("A",)]


def test_closed_lists_are_known_to_duckdb():
    with duckdb.connect() as connection:
        for unit in UNITS:
            connection.execute(f"SELECT INTERVAL '1' {unit}")
        for collation in COLLATIONS - {"NFC"}:
            connection.execute(f"SELECT 'a' COLLATE {collation}")
        unknown = []
        for part in DATE_PARTS:
            try:
                connection.execute(f"SELECT EXTRACT('{part}' FROM TIMESTAMPTZ '2020-01-01')")
            except duckdb.Error:
                unknown.append(part)
        assert not unknown


# ------------------------------------------------------------------- an executor that ends


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT reservoir_quantile(x::HUGEINT, 0.5, 2147483647) FROM s",
        "SELECT list_aggr([1::HUGEINT], 'reservoir_quantile', 0.5, 2147483647)",
        "SELECT [1::HUGEINT].list_aggregate('reservoir_quantile', 0.5, 2147483647)",
    ],
)
def test_no_size_ends_the_executor(shared, sql):
    with pytest.raises(SqlError, match="literal up to"):
        shared.sql(sql).fetchall()


def test_an_executor_that_ended_is_replaced_and_says_nothing_of_itself(shared, monkeypatch):
    monkeypatch.setattr(gate, "_check_arguments", lambda *_: None)
    with pytest.raises(ChronicleError) as caught:
        shared.sql("SELECT reservoir_quantile(x::HUGEINT, 0.5, 2147483647) FROM s").fetchall()
    assert "started anew" in str(caught.value)
    assert not any(word in str(caught.value) for word in ("Stack", "/", "duckdb", "invalidated"))
    assert shared.sql("SELECT x + 1 FROM s").fetchall() == [(2.0,), (3.0,), (4.0,)]


def test_a_sound_instance_is_kept_by_a_query_that_met_the_end_of_the_one_before():
    """It was taken away to be looked at: a query that came meanwhile started one more."""
    executor = Executor(1 << 30, 1)
    executor.warm(1)
    sound = executor._connection
    waiting: list[threading.Thread] = []

    class Watched:
        def cursor(self):
            if not waiting:
                waiting.append(threading.Thread(target=executor._cursor))
                waiting[0].start()
                waiting[0].join(0.3)
            return sound.cursor()

    executor._connection = kept = Watched()
    executor._replace()
    waiting[0].join()
    assert executor._connection is kept
    executor._connection = sound
    executor.close()


# ---------------------------------------------------------------------- costs of planning


def nested(form: str, levels: int, inner: str = "x") -> str:
    for _ in range(levels):
        inner = form.format(inner)
    return inner


def refusing(action):
    """How many functions are called until an action is refused."""

    def refused():
        with pytest.raises(SqlError):
            action()

    return calls_of(refused)


COSTLY = [
    "SELECT " + nested("list_transform([1], e -> {})", 20, "1") + " FROM s",
    "SELECT " + nested("(({}) BETWEEN 0 AND 1)::INT", 20) + " FROM s",
    "EXPLAIN SELECT " + nested("(({}) BETWEEN 0 AND 1)::INT", 20) + " FROM s",
    "SELECT " + nested("(({}) BETWEEN SYMMETRIC 0 AND 1)::INT", 8) + " FROM s",
    "SELECT " + nested("nullif({}, 1)", 20) + " FROM s",
    "SELECT " + nested("(CASE {} WHEN 1 THEN 2 WHEN 2 THEN 3 ELSE 4 END)", 12) + " FROM s",
    "SELECT " + nested("(({}) IN (1, 2, 3))::INT", 18) + " FROM s",
    "SELECT x + 1 AS a0" + "".join(f", a{i} + a{i} AS a{i + 1}" for i in range(40)) + " FROM s",
    "SELECT count(*) FROM s GROUP BY CUBE(" + ", ".join(f"x + {i}" for i in range(12)) + ")",
    "SELECT x" + " + x" * 900 + " FROM s",
    " UNION ALL ".join(["SELECT x FROM s"] * 900),
    "SELECT (-100000000).range(1)",
    "SELECT [1].list_resize(1000000000)",
    "SELECT 'x'.lpad(1000000000, 'y')",
    "SELECT list_resize(l := [1], n := 1000000000)",
    "SELECT list_transform(range(1000), e -> range(1000000))",
    "SELECT printf('" + "%9999d" * 100 + "', 1)",
    "SELECT format('{:>99999999999999999999}', 'x')",
    "SELECT bitstring('1', 2000000000)",
    "SELECT quantile_cont(x, range(1000000)) FROM s",
    f"SELECT quantile_cont(x, [{', '.join(['0.5'] * 1000)}]) FROM s",
    "SELECT list_aggr([1.0], 'quantile_cont', range(100000))",
    "SELECT max(x, 1000000000) FROM s",
    "SELECT NULL::INT" + "[]" * 100,
    "SELECT " + "(" * 101 + "1" + ")" * 101,
    "SELECT " + "NOT " * 5000 + "true",
    "SELECT " + "- " * 5000 + "1",
    "SELECT '\ud800'",
    'SELECT 1 AS "\udfff"',
    "SELECT 'a\0b'",
    "SELECT $\udfff",
]


@pytest.mark.parametrize("sql", COSTLY, ids=range(len(COSTLY)))
def test_what_would_cost_too_much_is_refused_at_once(shared, sql, monkeypatch):
    monkeypatch.setattr(Executor, "run", Mock(side_effect=AssertionError("it was run")))
    assert refusing(lambda: shared.sql(sql).fetchall()) < 1_500_000


@pytest.mark.parametrize("call", ["damerau_levenshtein({}, {})", "{}.levenshtein({})"])
def test_long_texts_are_not_compared(shared, call):
    with pytest.raises(SqlError, match="compares texts of up to 2000 bytes"):
        shared.sql("SELECT " + call.format(*["lpad('x', 3000, 'y')"] * 2)).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1" + "+1" * (2 << 20),
        "SELECT " + "(" * (4 << 20),
        "SELECT 1" + "+1" * 400_000,
        "SELECT " + "(" * 900_000,
        "SELECT " + "[" * 900_000,
        "SELECT 1 " + ";" * 900_000,
        "SELECT " + "a." * 400_000,
    ],
    ids=range(7),
)
def test_long_texts_are_refused_before_they_are_parsed(shared, sql):
    assert refusing(lambda: shared.sql(sql).fetchall()) < 2 * nesting.TOKENS_MAX


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 95 + "x" + ")" * 95 + " FROM s WHERE " + "(" * 95 + "x = 1" + ")" * 95,
        "SELECT x FROM s WHERE " + " AND ".join(f"x <> {i + 10}" for i in range(700)),
        f"SELECT x FROM s WHERE x IN ({', '.join(map(str, range(1000)))})",
        "SELECT " + ", ".join(f"x + {i}" for i in range(2000)) + " FROM s",
        "SELECT " + nested("coalesce({}, 1)", 60) + " FROM s",
        "SELECT x BETWEEN 1 AND 2, nullif(nullif(x, 1), 2), x + x + x + x FROM s",
    ],
    ids=range(6),
)
def test_involved_statements_within_the_limits_run(shared, sql):
    assert shared.sql(sql).arrow().num_rows > 0


def test_brackets_need_no_stack_of_the_caller_and_leave_none_behind(shared):
    before = sys.getrecursionlimit()
    answers = []

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        else:
            answers.append(shared.sql("SELECT " + "(" * 90 + "1" + ")" * 90).fetchall())

    thread = threading.Thread(target=deep, args=(before - 200,))
    thread.start()
    thread.join()
    assert answers == [[(1,)]]
    assert sys.getrecursionlimit() == before


def test_prepared_statements_are_bound_by_their_size(shared, monkeypatch):
    limit = engine.BYTES_MAX // 20
    monkeypatch.setattr(engine, "BYTES_MAX", limit)
    cache = engine.StatementCache()
    monkeypatch.setattr(catalog_of(shared).engine, "_prepared", cache)
    for i in range(20):
        members = ", ".join(str(i * 250 + j) for j in range(250))
        shared.sql(f"SELECT x FROM s WHERE x IN ({members})").fetchall()
        assert cache.weight <= limit
    assert len(cache) < 20


def test_a_text_as_long_as_the_limit_is_measured_no_further_than_is_read():
    text = "1 " * (nesting.TEXT_LENGTH_MAX // 2)
    assert refusing(lambda: nesting.measure(text)) < 2 * nesting.TOKENS_MAX


# ---------------------------------------------------------------------------- who reads what


@pytest.mark.parametrize(
    ("sql", "scope", "target", "reads"),
    [
        ("SELECT 1", "read", None, set()),
        ("SELECT * FROM S", "read", None, {"s"}),
        ("SELECT (SELECT max(secret) FROM other) FROM s", "read", None, {"s", "other"}),
        ("WITH q AS (SELECT * FROM other) SELECT * FROM s, q", "read", None, {"s", "other"}),
        ("EXPLAIN SELECT * FROM other", "read", None, {"other"}),
        ("DESCRIBE SELECT * FROM other", "read", None, {"other"}),
        ("DESCRIBE other", "read", None, {"other"}),
        ("SHOW STREAMS", "read", None, set()),
        ("INSERT INTO s VALUES (4, 5)", "write", "s", set()),
        ("INSERT INTO s VALUES (4, (SELECT max(secret) FROM other))", "write", "s", {"other"}),
        ("INSERT INTO s SELECT t, secret FROM other", "write", "s", {"other"}),
        ("SELECT count(*) FROM TUMBLE(other, t, 5) GROUP BY window_start", "read", None, {"other"}),
        (
            "SELECT * FROM other MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS m PATTERN (A) "
            "DEFINE A AS secret > 1)",
            "read", None, {"other"},
        ),
        (
            "SELECT * FROM (SELECT t, secret FROM other) MATCH_RECOGNIZE (ORDER BY t "
            "MEASURES A.t AS m PATTERN (A) DEFINE A AS secret > 1)",
            "read", None, {"other"},
        ),
        ("VALUES ((SELECT max(t) FROM other))", "read", None, {"other"}),
        ("CREATE STREAM q (t BIGINT) TIMESTAMP BY t", "write", "q", set()),
        ("DROP STREAM s", "admin", "s", set()),
    ],
)  # fmt: skip
def test_what_a_statement_reads_is_that_of_the_bound_tree(shared, sql, scope, target, reads):
    for _ in range(2):  # the second time from what is prepared
        access = catalog_of(shared).engine.access(sql)
        assert (access.scope, access.target, access.reads) == (scope, target, reads)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM {}",
        "SELECT (SELECT max(secret) FROM {})",
        "SELECT * FROM (SELECT * FROM {})",
        "WITH q AS (SELECT * FROM {}) SELECT 1",
        "DESCRIBE {}",
        "SHOW INDEXES ON {}",
        "EXPLAIN SELECT * FROM {}",
        "INSERT INTO s SELECT t, secret FROM {}",
        "INSERT INTO s VALUES (4, (SELECT max(secret) FROM {}))",
        "SELECT count(*) FROM TUMBLE({}, t, 5) GROUP BY window_start",
        "SELECT * FROM {} MATCH_RECOGNIZE (ORDER BY t PATTERN (A) DEFINE A AS secret > 1)",
        "DROP STREAM {}",
        "CREATE INDEX ON {} (secret)",
        "ALTER STREAM {} ADD COLUMN z BIGINT",
    ],
)
def test_streams_out_of_reach_are_as_those_that_do_not_exist(shared, sql):
    seen = catalog_of(shared).engine.seen_by(lambda stream: stream == "s")

    def answer(name: str) -> str:
        with pytest.raises((SqlError, StreamNotFound)) as caught:
            seen.run(sql.format(name)).fetchall()
        return str(caught.value).replace(name, "?")

    hidden = answer("other")
    assert hidden == answer("nosuch").replace("nosuch", "?")
    assert "other" not in answer("othr")
    shared.sql("SELECT * FROM other").fetchall()  # prepared by one who may
    assert answer("other") == hidden
    assert [row[0] for row in seen.run("SHOW STREAMS").fetchall()] == ["s"]


def test_an_instance_opens_without_a_place_for_files(monkeypatch):
    def nowhere(*_, **__):
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", nowhere)
    with admission.open_empty() as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        for statement in ("SET threads = 2", "ATTACH 'x' AS x", "COPY (SELECT 1) TO 'x'"):
            with pytest.raises(duckdb.Error):
                connection.execute(statement)


@pytest.mark.parametrize("files", [True, False])
def test_times_of_every_resolution_have_milliseconds(files, monkeypatch):
    if not files:
        monkeypatch.setattr("tempfile.mkdtemp", Mock(side_effect=FileNotFoundError))
    times = [f"{kind} '1970-01-01 00:00:07'" for kind in ("TIMESTAMP", *RESOLUTIONS, "TIMESTAMPTZ")]
    others = ("DATE '1970-01-02'", "TIME '00:00:07'", "INTERVAL 7 SECONDS")
    with admission.open_empty() as connection:
        for value in (*times, *others):
            asked = f"SELECT epoch_ms({value}), epoch_us({value}) // 1000"
            ((found, expected),) = connection.execute(asked).fetchall()
            assert found == expected, value
        made = connection.execute("SELECT epoch_ms(7), epoch_ms(CAST(NULL AS TIMESTAMP_NS))")
        assert made.fetchall() == [(datetime(1970, 1, 1, 0, 0, 0, 7000), None)]


@pytest.mark.parametrize(
    "hint",
    [
        "strategy(replay",
        "strategy(replay[k, NULL][1:2]",
        "strategy(replay()",
        "strategy(replay)10",
        "strategy('../x' ",
        "((((( x ",
        "strategy(replay) [1]",
    ],
)
def test_a_hint_that_cannot_be_read_is_an_error_with_a_position(shared, hint):
    with pytest.raises(SqlError, match=r"the plan hint is strategy\(x\).*line 1, column 8"):
        shared.sql(f"SELECT /*+ {hint} */ x FROM s")
