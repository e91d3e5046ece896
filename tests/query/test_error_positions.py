"""Errors of the executor point at what they are about in the text as it was written."""

from __future__ import annotations

import pytest

import chronicle
from chronicle.errors import SqlError
from chronicle.query.relational.interface import RelationalQuery, translated
from chronicle.query.relational.scans import Failure
from chronicle.query.sql.dialect import parse_statement

MATCH = "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES x AS m PATTERN"


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with chronicle.open(tmp_path_factory.mktemp("store")) as database:
        database.sql("CREATE STREAM s (t TIMESTAMP, x DOUBLE, k VARCHAR, n BIGINT) TIMESTAMP BY t")
        database.sql("INSERT INTO s VALUES ('2020-01-01', 1, 'a', 3)")
        yield database


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT x,\n k FROM s WHERE @CAST(k AS DATE) > DATE '2020-01-01'", "CAST(@k"),
        ("SELECT k,\n  CAST(@k AS INTEGER) FROM s", ""),
        ("SELECT k, @k::DOUBLE FROM s", ""),
        ("SELECT x @+ k FROM s", ""),
        ("SELECT k @- INTERVAL 1 DAY FROM s", ""),
        ("SELECT x, k || 1,\n k @* 2 FROM s", ""),
        ("SELECT t @+ t FROM s", ""),
        ("SELECT x FROM s WHERE t @> 5", ""),
        ("SELECT @sum(k) FROM s", ""),
        ("SELECT 1 // @'a'", ""),
        ("SELECT x@[1] FROM s", ""),
        ("SELECT @CASE WHEN x > 1 THEN k ELSE t END FROM s", ""),
        ("SELECT x FROM s @WHERE max(x) > 1", ""),
        ("SELECT x FROM s JOIN s AS @r WHERE true", ""),
        ("SELECT x FROM s LEFT JOIN @s", ""),
        ("SELECT x FROM s ORDER BY x ASC @DESC", ""),
        ("SELECT x FROM s ORDER BY x NULLS FIRST NULLS @LAST", ""),
        ("SELECT x FROM s WHERE '13:00+02'::@TIMETZ IS NULL", ""),
        ("SELECT x FROM s @UNION SELECT k, x FROM s", ""),
        ("SELECT 9223372036854775807 @+ n FROM s", ""),
        ("INSERT INTO s VALUES ('2020-01-02', @'abc', 'a', 3)", ""),
        ("SELECT date_trunc(@'foo', t) FROM s", ""),
        ("SELECT n @// 0 FROM s", ""),
        ('SELECT x, n::DECIMAL("10", @2) FROM s', ""),
        ("SELECT x, upper(n::DECIMAL(@99)) FROM s", ""),
        ("SELECT CAST(lower(@k) AS INTEGER) FROM s", ""),
        ("SELECT (k || 'x')@::DATE FROM s", ""),
        ("SELECT 1::UTINYINT - @300::UTINYINT FROM s", ""),
        ("SELECT CAST(@n * 1000 AS TINYINT) FROM s", ""),
        ("SELECT x FROM s\n WHERE n = @$low", ""),
        ("SELECT x FROM s @$1 AT (VERSION)", ""),
        ("SELECT x FROM s WHERE n = @? AND x > ?", ""),
        ("SELECT x FROM s WHERE n = ? AND x > @$low", ""),
        ("SELECT x FROM s WHERE n = ? AND x > @$1", ""),
        (f"{MATCH} (A) DEFINE A AS x > @$low)", ""),
        ("INSERT INTO s (t, x) VALUES ('2020-01-02', @$x)", ""),
        ("SELECT x FROM TUMBLE(@TABLE s, DESCRIPTOR(t), INTERVAL '1' HOUR)", ""),
    ],
)
def test_errors_have_a_position(database, sql, word):
    if word:
        sql = sql.replace("@", "").replace(word.replace("@", ""), word)
    at = sql.index("@")
    text = sql.replace("@", "")
    with pytest.raises(SqlError) as caught:
        database.sql(text).fetchall()
    line = sql.count("\n", 0, at) + 1
    assert (caught.value.line, caught.value.column) == (line, at - sql.rfind("\n", 0, at))


def test_a_position_that_is_not_certain_is_left_out(database):
    with pytest.raises(SqlError, match="Cannot compare") as caught:
        database.sql("SELECT x FROM s WHERE x < 1 AND t > 5").fetchall()
    assert caught.value.line is None


def test_columns_of_one_name_are_told_apart_before_they_are_matched(database):
    with pytest.raises(SqlError, match="the input has 2 columns 'c'") as caught:
        database.sql(
            "SELECT * FROM (SELECT t, x AS c, n AS c FROM s) MATCH_RECOGNIZE "
            "(ORDER BY t MEASURES c AS m PATTERN (A))"
        )
    assert caught.value.line == 1


def test_a_value_that_no_parameter_can_have_is_told_where_the_parameter_stands(database):
    with pytest.raises(SqlError, match=r"\$x has a value of type object") as caught:
        database.sql("SELECT x FROM s\n WHERE x = $x", params={"x": object()})
    assert (caught.value.line, caught.value.column) == (2, 12)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n // 0 FROM s",
        "SELECT (SELECT n FROM s UNION ALL SELECT 1)",
        f"{MATCH} (A) DEFINE A AS n // 0 = 1)",
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES n // 0 AS m PATTERN (A))",
        "SELECT window_start, sum(n) // 0 FROM TUMBLE(s, t, INTERVAL 1 DAY) GROUP BY window_start",
    ],
)
def test_no_error_recommends_what_the_dialect_refuses(database, sql):
    with pytest.raises(SqlError) as caught:
        database.sql(sql).fetchall()
    assert not any(word in str(caught.value) for word in ("SET ", "TRY(", ".;", "nullif; guard"))


def test_advice_is_left_out_and_values_are_not(database):
    for value in ("a. SET threads", "Stack Trace: a", "Candidate functions: a"):
        with pytest.raises(SqlError, match=f"Could not convert string '{value}'"):
            database.sql(f"SELECT CAST('{value}' AS INTEGER)").fetchall()


@pytest.mark.parametrize("call", ["f('' => 1)", "last('' => k)"])
def test_an_argument_without_a_name_is_refused_at_its_place(call):
    with pytest.raises(SqlError, match="expected a name before =>") as raised:
        parse_statement(f"SELECT {call} FROM s")
    assert raised.value.column == 8 + call.index("=>")


def test_a_stack_of_the_executor_is_told_to_nobody():
    raw = (
        'Invalid Input Error: Scalar function "__cast" threw an execution error, but the '
        "function is not marked as fallible - the function must call SetFallible(). Error: Could "
        "not convert Timestamp to higher precision.\n\nStack Trace:\n\n/lib/x.so [0x7fcbee71d3bb]"
    )
    told = str(translated(Failure("sql", raw), RelationalQuery("SELECT 1")))
    assert told == "Could not convert Timestamp to higher precision."


def test_a_call_without_its_arguments_is_refused_where_rows_come_by_time(database):
    for call in (
        "string_agg(DISTINCT right(), ',')",
        "list(DISTINCT k, list_filter([x], q -> q > 1))",
    ):
        with pytest.raises(SqlError):
            database.sql(f"SELECT {call} FROM s").fetchall()
