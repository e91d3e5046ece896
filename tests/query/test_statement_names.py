"""Names that this system makes up never meet those of a statement or of a stream."""

from __future__ import annotations

import pytest

import chronicle
from chronicle.errors import SqlError


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with chronicle.open(tmp_path_factory.mktemp("store")) as database:
        for name in ("s", '"chronicle_0"'):
            database.sql(f"CREATE STREAM {name} (t BIGINT, x DOUBLE) TIMESTAMP BY t")
        database.sql("INSERT INTO s VALUES (1, 1.5), (2, 2.5), (3, 0.5)")
        database.sql('INSERT INTO "chronicle_0" VALUES (77, 7)')
        odd = ["@match", "@order", "@classifier", "@s0", "@row", "$a0", "chronicle_e0", "@0"]
        columns = ", ".join(f'"{name}" DOUBLE' for name in odd)
        database.sql(f"CREATE STREAM odd (t BIGINT, {columns}) TIMESTAMP BY t")
        for t in (1, 2, 3):
            values = ", ".join(str(10 * t + i) for i in range(len(odd)))
            database.sql(f"INSERT INTO odd VALUES ({t}, {values})")
        yield database


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("WITH chronicle_0 AS (SELECT 99 AS t) SELECT t FROM s", [(1,), (2,), (3,)]),
        (
            'WITH "Chronicle_0" AS (SELECT 9 AS t), chronicle__1 AS (SELECT 8 AS t) '
            "SELECT s.t, c.t, d.t FROM s, chronicle_0 AS c, chronicle__1 AS d WHERE s.t = 1",
            [(1, 9, 8)],
        ),
        ("SELECT * FROM chronicle_0", [(77, 7.0)]),
        ("SELECT s.t FROM s AS chronicle_0, chronicle_0 AS s WHERE chronicle_0.t = 1", [(77,)]),
        ("WITH chronicle_0 AS (SELECT max(x) AS m FROM s) SELECT m FROM chronicle_0", [(2.5,)]),
        ('SELECT max("$a0") AS "$a1", min(t) + 1 FROM odd', [(35.0, 2)]),
        (
            'SELECT sum(t + 1), sum("chronicle_e0") FROM TUMBLE(odd, t, 10) GROUP BY window_start',
            [(9, 78.0)],
        ),
        (
            'SELECT * FROM odd MATCH_RECOGNIZE (ORDER BY t MEASURES sum("@0") AS a, '
            'LAST("$a0") AS b PATTERN (A+) DEFINE A AS "@0" > FIRST("@0", 3) OR count(*) <= 3)',
            [(81.0, 35.0)],
        ),
    ],
)
def test_made_up_names_do_not_meet_given_ones(database, sql, rows):
    assert database.sql(sql).fetchall() == rows


@pytest.mark.parametrize("name", ["@match", "@order", "@classifier", "@s0", "@row"])
def test_columns_that_patterns_have_themselves_are_refused(database, name):
    with pytest.raises(SqlError, match="of its own; rename yours") as caught:
        database.sql(
            f'SELECT * FROM odd MATCH_RECOGNIZE (ORDER BY t MEASURES array_agg("{name}") AS l '
            "PATTERN (A+) DEFINE A AS true)"
        )
    assert caught.value.line == 1
    renamed = database.sql(
        f'SELECT * FROM (SELECT t, "{name}" AS v FROM odd) MATCH_RECOGNIZE (ORDER BY t '
        "MEASURES count(v) AS n PATTERN (A+) DEFINE A AS true)"
    )
    assert renamed.fetchall() == [(3,)]


@pytest.mark.parametrize(
    ("sql", "params", "rows"),
    [
        (
            "SELECT (SELECT max(x) FROM s WHERE t < $low), x FROM s WHERE x > $lower ORDER BY x",
            {"low": 3, "lower": 1},
            [(2.5, 1.5), (2.5, 2.5)],
        ),
        (
            "SELECT max(x) + 1, count(*) FROM s WHERE t > $a",
            {"a": 1},
            [(3.5, 2)],
        ),
        (
            "SELECT max(x) + 1, x1 FROM s, (SELECT $a AS x1) GROUP BY x1",
            {"a": 1},
            [(3.5, 1)],
        ),
        (
            "SELECT (SELECT max(x) FROM s WHERE t < ?), ?, ?, ?, ?, ?, ?, ?, ?, ?",
            [3, *range(9)],
            [(2.5, *range(9))],
        ),
        (
            "SELECT (SELECT max(x) FROM s WHERE t < $1), $10, $2, $3, $4, $5, $6, $7, $8, $9",
            [3, *range(9)],
            [(2.5, 8, *range(8))],
        ),
    ],
)
def test_parameters_are_found_by_their_whole_name(database, sql, params, rows):
    assert database.sql(sql, params).fetchall() == rows
    assert database.explain(sql, params=params, analyze=True).analyzed


def test_parameters_differ_in_more_than_case(database):
    with pytest.raises(SqlError, match=r"\$a differs from \$A in case only") as caught:
        database.sql("SELECT $A, $a", {"A": 1, "a": 2})
    assert (caught.value.line, caught.value.column) == (1, 12)
    with pytest.raises(SqlError, match="is taken"):
        database.sql("SELECT $Chronicle_Now", {"Chronicle_Now": 1})
