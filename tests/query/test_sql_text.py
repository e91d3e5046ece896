# ruff: noqa: E501  (one query a line)
"""What is written is what runs: a query written out reads in DuckDB as the original."""

from __future__ import annotations

import json

import duckdb
import pytest

from chronicle.errors import SqlError
from chronicle.query.sql.dialect import parse_statement, to_text

QUERIES = """
SELECT 1
SELECT a.x, s.y AS z FROM a JOIN s ON a.x = s.y LEFT JOIN r USING (k) WHERE a.x > 1 AND NOT s.y < 2 OR r.z
SELECT count(*), count(DISTINCT x), sum(x) FILTER (WHERE x > 1) FROM t GROUP BY ALL HAVING count(*) > 1
SELECT sum(x) OVER (PARTITION BY y ORDER BY z DESC NULLS FIRST ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t
SELECT first_value(x IGNORE NULLS) OVER w, lag(x, 2, 0) OVER (ORDER BY y) FROM t WINDOW w AS (ORDER BY x)
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x DESC) FROM t
SELECT array_agg(x ORDER BY y DESC), string_agg(x, ',' ORDER BY y), list(DISTINCT x) FROM t
SELECT arg_max(x, y), arg_min(x, y, 3), max(x, 2), min_by(x, y), quantile_cont(x, [0.1, 0.9]) FROM t
SELECT TIMESTAMP '2018-01-01 00:00:00', DATE '2018-01-01', TIMESTAMPTZ '2018-01-01 00:00:00+02', TIME '10:00:00'
SELECT CASE WHEN a THEN b ELSE c END, CASE x WHEN 1 THEN 'a' END, coalesce(a, b), nullif(a, b), ifnull(a, b) FROM t
SELECT x LIKE 'a%', x NOT LIKE '%b' ESCAPE '!', x ILIKE 'c_', x SIMILAR TO 'd.*', x GLOB 'e*' FROM t
SELECT list_transform(l, lambda e: e + 1), l[1], l[2:3], [1, 2, 3], {'a': 1, 'b': 'x'}, s.a.b FROM t
SELECT x IN (SELECT y FROM u), EXISTS (SELECT 1 FROM u WHERE u.a = t.a), (SELECT max(y) FROM u), x = ANY (SELECT 1) FROM t
SELECT DISTINCT ON (x) x, y FROM t ORDER BY x, y DESC LIMIT 10 OFFSET 5
SELECT * FROM t ORDER BY ALL LIMIT 3
SELECT x, "all" FROM t ORDER BY "all" DESC NULLS FIRST, t.all, t."ALL"
SELECT * EXCLUDE (a) REPLACE (b + 1 AS b), t.*, COLUMNS('x.*') FROM t
SELECT x, grouping(x), count(*) FROM t GROUP BY GROUPING SETS ((x), (x, y), ())
SELECT x, y, count(*) FROM t GROUP BY ROLLUP (x, y)
SELECT x, y, count(*) FROM t GROUP BY CUBE (x, y)
SELECT * FROM a ASOF JOIN b ON a.k = b.k AND a.t >= b.t
SELECT * FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t
SELECT * FROM a POSITIONAL JOIN b
SELECT * FROM a NATURAL JOIN b
SELECT * FROM a SEMI JOIN b ON a.x = b.x
SELECT * FROM a ANTI JOIN b USING (x)
SELECT * FROM a FULL OUTER JOIN b ON a.x = b.x CROSS JOIN c
SELECT * FROM a, b, LATERAL (SELECT a.x + b.x) AS q(z)
SELECT * FROM (a JOIN b ON a.x = b.x) JOIN c ON c.y = a.y
SELECT * FROM (SELECT 1 AS x) AS q(z), (VALUES (1, 'a'), (2, 'b')) AS v(i, s)
SELECT * FROM unnest([1, 2, 3]) AS u(x)
SELECT * FROM range(10) AS r(i)
SELECT unnest([1, 2]), x FROM t
WITH a AS (SELECT 1 AS x), b(y) AS MATERIALIZED (SELECT x FROM a) SELECT * FROM b
WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r WHERE x < 9) SELECT * FROM r
SELECT 1 UNION SELECT 2 UNION ALL SELECT 3 ORDER BY 1 LIMIT 2
SELECT 1 INTERSECT SELECT 2 EXCEPT SELECT 3
SELECT a FROM t UNION BY NAME SELECT b FROM u
(SELECT 1) UNION ALL (SELECT 2 ORDER BY 1 LIMIT 1)
SELECT x FROM t QUALIFY row_number() OVER (PARTITION BY y ORDER BY z) = 1
SELECT x FROM t USING SAMPLE 5 ROWS
SELECT x FROM t WHERE (x, y) = (1, 2)
SELECT "select", "from"."group", "A B" AS "C D" FROM "from"
SELECT struct_pack(a := 1, b := x), row(1, 2), map {'a': 1}, list_value(1, 2) FROM t
SELECT x AT TIME ZONE 'UTC', timezone('Europe/Zurich', x) FROM t
SELECT sum(x) / count(*), avg(x)::INTEGER, count(*) FILTER (x > 1), mode(x), median(x), stddev(x) FROM t
SELECT t.x AS "T.x", x y FROM t AS t WHERE t.x = $a OR x = $b
SELECT * FROM t WHERE x = ? AND y > ?
FROM t
FROM t SELECT x WHERE x > 1
VALUES (1, 'a'), (2, 'b')
TABLE t
SELECT x FROM t LIMIT 10 PERCENT
SELECT hash(x), md5(x), uuid(), random(), typeof(x), format('{:.2f}', x), printf('%d', x) FROM t
SELECT COUNT(*) c, Max(X) FROM T WHERE lower(S) = 'a' -- comment
SELECT /* one */ x /* two */ FROM t
SELECT x FROM t WHERE x > ALL (SELECT y FROM u)
SELECT CAST('2018-01-01' AS DATE) + 1, DATE '2018-01-01' - DATE '2017-01-01'
SELECT x COLLATE NOCASE FROM t ORDER BY x COLLATE NOCASE
SELECT [x, y][1], ([1, 2] || [3])[2:], 'abc'[1:2], {'a': {'b': 1}}.a.b FROM t
SELECT x FROM t ORDER BY x % 2, -x, lower(s) DESC
SELECT sum(x) OVER (ORDER BY t ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW) FROM t
SELECT count() FROM t
SELECT (x), ((y + 1)) * 2 FROM t
SELECT if(a, b, c), @x FROM t
""".strip().splitlines()

EXPRESSIONS = """
date_trunc('hour', t)
extract(dow FROM t)
extract(isodow FROM t)
extract(epoch FROM t)
time_bucket(INTERVAL '5 minutes', t)
t + INTERVAL '1' HOUR
t - INTERVAL 5 DAY
t + INTERVAL (x) MINUTE
t + INTERVAL '1 day 2 hours'
t + INTERVAL '1 day 02:00:00'
t - INTERVAL '1.5 hours ago'
t - INTERVAL '1e2' SECOND
t + INTERVAL (x + 1) MONTH
'3 days'::INTERVAL
x::INTEGER
x::VARCHAR
CAST(x AS DECIMAL(10, 2))
TRY_CAST(s AS DOUBLE)
t::TIMESTAMP_NS
x BETWEEN 1 AND 2
x NOT BETWEEN 1 AND 2
x NOT IN (1, 2)
x NOT IN (1, NULL)
x IS NOT NULL
x IS NOT DISTINCT FROM y
x IS TRUE
x // y
x % y
x / y
-x // 2
+x
~x
abs(x) << 2
x >> 1
x & y
x | y
xor(x, y)
x ** 2
-x ** 2
2 ** 3 ** 2
x ^ 2
-(1) - -1
2 - - 1
not x = 1
not (x = 1 and y = 2)
not x = 1 and y = 2
x = 1 or y = 2 and x = 3
(x = 1) = true
1 + 2 * 3 - 4 / 5
(1 + 2) * 3 % 4
x || y || 'a'
.5 + 5. + 1e2 + 1_000
'it''s' || 'a"b' || ' x '
e'a\\nb\\t\\''
trim(s)
trim(BOTH 'a' FROM s)
trim(LEADING 'a' FROM s)
trim(TRAILING FROM s)
substring(s FROM 2 FOR 3)
substring(s, 2)
position('l' IN s)
overlay(s PLACING 'ZZ' FROM 2 FOR 1)
s ^@ 'al'
s LIKE 'a%'
s NOT LIKE '%a'
s ILIKE 'AL%'
s LIKE 'a!%%' ESCAPE '!'
s SIMILAR TO 'al.*'
s ~ 'al.*'
s !~ 'al.*'
s GLOB 'a*'
regexp_replace(s, 'a', 'b', 'g')
regexp_extract(s, '(a)(l)', 2)
s[1:2]
s[-1]
[x, y, 3][2]
[x, y, 3][-1]
[1, 2, 3, 4][2:3]
list_transform([1, 2], lambda e: e + x)
list_filter([1, 2, 3], lambda e: e > 1)
{'a': x, 'b': s}.b
map {'k': x}['k']
j -> 'a'
j ->> 'a'
j ->> '$.b[0]'
json_extract(j, '$.b')
round(x / 3, 2)
ceil(x / 2)
floor(-x / 2)
@(x - 10)
if(x > 1, 'big', 'small')
CASE x WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END
coalesce(NULL, x)
nullif(x, 1)
greatest(x, y)
t AT TIME ZONE 'Europe/Zurich'
t::DATE + 1
t::DATE - DATE '2017-01-01'
TIMESTAMP '2018-01-01 00:00:00' < t
TIMESTAMPTZ '2018-01-01 00:00:00+02'
DATE '2018-01-01'
TIME '10:00:00'
strftime(t, '%Y-%m-%d %H')
epoch_ms(t)
t > '2018-01-01'
(x, y) = (1, 2)
(x, y) < (2, 1)
x IN (SELECT 1)
x = ANY ([1, 2])
x > ALL (SELECT 0)
EXISTS (SELECT 1 WHERE x = 1)
s COLLATE NOCASE = 'ALPHA'
count(*) OVER (ORDER BY t RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW)
sum(x) OVER (ORDER BY t ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)
row_number() OVER (ORDER BY y NULLS FIRST, x DESC NULLS LAST)
typeof(x + 1)
typeof(1.50)
typeof(5000000000)
typeof(x / 2)
typeof('a')
typeof(DATE '2018-01-01'::VARCHAR)
TIMESTAMP '2018-03-04 05:06:07'::DATE
typeof(TIMESTAMP '2018-03-04 05:06:07'::DATE)
typeof(JSON '{"a": 1}'::VARCHAR)
JSON '[5]' -> 0
JSON '{"a": {"b": 1}}' -> 'a' -> 'b'
(JSON '[5]'[1])::INTEGER
INTERVAL '1' DAY + t
INTERVAL 1 DAY + INTERVAL 2 HOUR
INTERVAL '1' DAY + '2 hours'::INTERVAL
x>>1
x IS NOT DISTINCT FROM y IS NULL
(1 < x) < (y < 3)
s !~* 'AL.*'
""".strip().splitlines()

DIFFERENT_BUT_EQUAL = {
    # the tree says the same in other words
    "SELECT if(a, b, c), @x FROM t": "SELECT CASE WHEN a THEN b ELSE c END, abs(x) FROM t",
}


def tree(connection: duckdb.DuckDBPyConnection, sql: str) -> object:
    """DuckDB's own syntax tree of a text, without positions."""
    escaped = sql.replace("'", "''")
    document = connection.execute(f"SELECT json_serialize_sql('{escaped}')").fetchall()[0][0]
    parsed = json.loads(document)
    assert not parsed["error"], (sql, parsed)
    return clean(parsed["statements"])


def clean(node: object) -> object:
    if isinstance(node, dict):
        return {key: clean(value) for key, value in node.items() if "query_location" not in key}
    if isinstance(node, list):
        return [clean(value) for value in node]
    return node.lower() if isinstance(node, str) else node


@pytest.fixture(scope="module")
def connection():
    opened = duckdb.connect()
    yield opened
    opened.close()


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_means_the_same_written_out(connection, sql):
    written = to_text(parse_statement(sql))
    original = DIFFERENT_BUT_EQUAL.get(sql, sql)
    assert tree(connection, written) == tree(connection, original), written


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_has_the_same_values_written_out(connection, expression):
    table = (
        "(VALUES (1, 2, 'alpha', TIMESTAMP '2018-03-04 05:06:07.89', '{\"a\": 1, \"b\": [2]}'), "
        "(3, NULL, 'a%b', TIMESTAMP '1969-12-31 23:00:00', '{\"a\": \"q\"}'), "
        "(-7, 2, NULL, NULL, NULL)) AS v(x, y, s, t, j)"
    )
    sql = f"SELECT {expression} AS value FROM {table}"
    written = to_text(parse_statement(sql))

    def values(text: str) -> object:
        answer = connection.sql(text)
        return [str(type_) for type_ in answer.types], repr(answer.fetchall())

    assert values(written) == values(sql), written


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 8 > @> 1",
        "SELECT 8 < @< 1",
        "SELECT 8 > /* x */\n @> 1",
        "SELECT 5 @! IN (120)",
        "SELECT @!true",
        "SELECT 'a' @! ~ 'b'",
        "SELECT 'a' @! LIKE 'b'",
        "SELECT 5 @<=> 5",
        "SELECT @1 < 2 < 3",
        "SELECT 1 WHERE @1 = 2 = 3",
        "SELECT 1 WHERE NOT @1 <> 2 >= 3",
    ],
)
def test_what_is_no_operator_of_duckdb_is_refused_where_it_stands(connection, sql):
    """As far as they run in DuckDB at all they mean something else there."""
    text, at = sql.replace("@", ""), sql.index("@")
    with pytest.raises(SqlError) as caught:
        parse_statement(text)
    line = sql.count("\n", 0, at) + 1
    assert (caught.value.line, caught.value.column) == (line, at - sql.rfind("\n", 0, at))


@pytest.mark.parametrize("sql", ["SELECT INTERVAL 1 DAY + 5", "SELECT INTERVAL '1' DAY '2' HOUR"])
def test_an_interval_has_one_unit(connection, sql):
    """``INTERVAL 1 DAY + 5`` was a day and five seconds."""
    with pytest.raises(duckdb.Error):
        connection.execute(sql)
    try:
        written = to_text(parse_statement(sql))
    except SqlError:
        return
    with pytest.raises(duckdb.Error):
        connection.execute(written)
