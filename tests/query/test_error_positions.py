"""Errors of the executor point at what they are about in the text as it was written."""

from __future__ import annotations

import pytest

import chronicle
from chronicle.errors import SqlError


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
        ("SELECT x FROM s @UNION SELECT k, x FROM s", ""),
        ("SELECT 9223372036854775807 @+ n FROM s", ""),
        ("INSERT INTO s VALUES ('2020-01-02', @'abc', 'a', 3)", ""),
        ("SELECT date_trunc(@'foo', t) FROM s", ""),
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
