"""Functions over the values of several events: the matcher against DuckDB on pairs of rows."""

from __future__ import annotations

import datetime as dt
import random
import re
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from chronicle.errors import ResourceLimit, SqlError
from chronicle.query.pattern import tabulated

CONDITIONS = """
p.s || c.s LIKE 'a%'
c.s LIKE p.s || '%'
c.s NOT LIKE p.s
concat(p.s, c.s) = 'ab'
concat(p.s, 'b') = 'ab' AND c.i > 0
concat(p.s, 'b') = 'b'
length(p.s || c.s) + p.i > 3
starts_with(c.s, p.s)
contains(p.s, c.s) OR c.s IS NULL
regexp_matches(c.s || p.s, '^[ab]+$')
levenshtein(p.s, c.s) <= 1
replace(c.s, p.s, 'z') = 'z'
upper(p.s) || lower(c.s) IN ('Ab', 'Bb', 'Ca')
upper(c.s) = upper(p.s)
c.s > p.s
CASE WHEN p.f > c.f THEN 'down' WHEN p.f < c.f THEN 'up' END = 'down'
c.f IS NOT DISTINCT FROM p.f
p.t < TIMESTAMP '1969-12-30 00:10:00' AND c.i > p.i
substring(p.s || c.s, 2, 1) = c.s
CASE WHEN p.s || c.s = 'ab' THEN p.i > c.i ELSE p.i < c.i END
concat(p.s, CASE p.s WHEN c.s THEN 'z' ELSE c.s END) = 'az'
MAP {coalesce(p.s, ''): 1}['a'] = 1
cardinality(MAP {p.r: 'x', c.r: p.s}) = 2
MAP {p.r % 2: 1, c.r % 2: random()}[p.r % 2] = 1
levenshtein(p.s, CASE p.i WHEN c.i THEN 'z' WHEN c.i - 1 THEN c.s END) = 1
coalesce(p.s || c.s, 'none') = 'none'
greatest(p.s, c.s) = 'b' AND least(p.s, c.s) = 'a'
greatest(p.i, c.i, 3) = 3
least(p.f, c.f, 1.5, p.i, c.i) < 0
greatest(p.f, c.f) IS NULL
abs(c.f - p.f) > 1.2
sign(c.f - p.f) = -1
sign(c.i - p.i) >= 0
floor(c.f - p.f) = ceil(c.f - p.f) - 1
ceiling(c.f / p.f) > 1
round(c.f / p.f, 1) > 0.7
round(c.f * p.i) = round(c.f) * p.i
round(c.f * 100 + p.i, -1) > 50
trunc(c.f * p.f) < 0
trunc(c.f * p.f, 1) = round(c.f * p.f, 1)
sqrt(abs(c.f * p.f)) > 1
ln(c.f + p.f) < 1
log(c.f + p.f) < 0.3
log10(c.f + p.f) < 0.3
log2(c.f + p.f) > 1
log(2, c.f + p.f) > 1
exp(c.f - p.f) > 2
power(c.f, p.i) > 2
c.f ** p.i > 2
degrees(atan2(c.f, p.f)) > 40
sin(radians(c.f - p.f)) > 0
cos(c.f * p.f) + tan(c.f * p.f) > 0
asin(c.f * p.f) > 0.1
acos(c.f * p.f) > 0.1
atan(c.f * p.f) > 0.1
cot(c.f + p.f) > 0
isnan(sqrt(c.f - p.f))
isfinite(c.f / p.f)
isinf(c.f / (p.f - p.f))
c.f BETWEEN p.f AND p.f + 1
c.f NOT BETWEEN p.f AND c.i
c.i % 3 = p.i % 3
mod(c.i + p.i, 3) = 1
(c.i + p.i) // 2 > 1
c.f % 2 > p.f % 2
gcd(c.i, p.i) = 1
xor(c.i, p.i) > 2
(c.i & p.i) <> 0
CAST(c.f + p.f AS BIGINT) % 2 = 0
CAST(c.f + p.f AS INTEGER) = p.i
CAST(c.i AS DOUBLE) / p.i > 1.5
CAST(c.f * p.f AS FLOAT) > 1.1
CAST(c.i - p.i AS BOOLEAN)
CAST(c.b AS INTEGER) + CAST(p.b AS INTEGER) = 1
CAST(c.i + p.i AS VARCHAR) LIKE '1%'
TRY_CAST(p.s || c.i AS INTEGER) IS NULL
c.b AND NOT p.b
c.b = p.b OR p.b IS NULL
(c.b AND p.b) IS NOT TRUE
nullif(c.i, p.i) IS NULL
ifnull(c.i, p.i) > 2
if(c.i > p.i, c.b, p.b)
c.i IN (p.i, p.i + 1, 4)
c.i IS DISTINCT FROM p.i
c.t - p.t > INTERVAL '90' MINUTE
c.t > p.t + to_minutes(p.i * 30)
c.t > date_add(p.t, INTERVAL '2' HOUR)
c.t > p.t + INTERVAL '1' HOUR * p.i
epoch(c.t - p.t) > 5000
epoch(c.t) - epoch(p.t) > 5000
epoch_ms(c.t) - epoch_ms(p.t) > 5000000
EXTRACT(epoch FROM c.t - p.t) < 4000
EXTRACT(hour FROM c.t - p.t) = 1
EXTRACT(minute FROM c.t - p.t) > 30
date_part('second', c.t - p.t) > 30
EXTRACT(year FROM c.t) = EXTRACT(year FROM p.t)
EXTRACT(hour FROM c.t) > EXTRACT(hour FROM p.t)
date_diff('hour', p.t, c.t) = 2
date_diff('week', p.t, c.t + to_days(p.i)) = 1
date_diff('month', p.t, c.t) = 1
date_sub('hour', p.t, c.t) = 1
date_trunc('hour', c.t) = date_trunc('hour', p.t)
date_trunc('week', c.t) > date_trunc('week', p.t)
date_trunc('day', greatest(c.t, p.t)) = date_trunc('day', p.t)
date_trunc('month', c.t) > p.t
CAST(c.t AS DATE) > CAST(p.t AS DATE)
CAST(greatest(c.t, p.t) AS DATE) = DATE '1969-12-31'
c.d - p.d > 3
c.d > p.d + 2
strftime(c.t, '%H') || p.s = '03a'
c.n * p.n > 2
c.n - p.n = 0.25
c.y = p.y
CAST(hash(c.y) AS VARCHAR) = CAST(hash(p.y) AS VARCHAR)
""".strip().splitlines()  # p: the event before, c: this one


def sample(seed: int, count: int = 60) -> pa.Table:
    r = random.Random(seed)

    def some(make: Any) -> list[Any]:
        return [None if r.random() < 0.12 else make() for _ in range(count)]

    begin = dt.datetime(1969, 12, 28, 22)
    times, now = [], begin
    for _ in range(count):
        now += dt.timedelta(seconds=r.choice([0, 1234, 3600, 5555, 9000, 200_000]))
        times.append(now)
    return pa.table(
        {
            "r": range(count),
            "i": pa.array(some(lambda: r.randint(-4, 5)), pa.int64()),
            "f": pa.array(some(lambda: r.choice([-2.5, -0.75, 0.5, 1.5, 2.25, 0.1])), pa.float64()),
            "s": pa.array(some(lambda: r.choice(["a", "b", "c", "", "ab"])), pa.string()),
            "b": pa.array(some(lambda: r.random() < 0.5), pa.bool_()),
            "t": pa.array(times, pa.timestamp("us")),
            "d": pa.array(some(lambda: begin.date() + dt.timedelta(r.randint(0, 9))), pa.date32()),
            "n": pa.array(some(lambda: Decimal(r.randint(0, 9)) / 4), pa.decimal128(9, 2)),
            "y": pa.array(some(lambda: r.choice([b"x", b"y"])), pa.binary()),
        }
    )


def for_rows(condition: str, before: str, now: str) -> str:
    text = re.sub(r"\bp\.", f"{before}.", condition)
    return re.sub(r"\bc\.", f"{now}.", text)


def wanted(condition: str, table: pa.Table) -> list[int]:
    with duckdb.connect() as connection:
        connection.register("rows", table)
        answer = connection.execute(
            "SELECT this.r FROM rows AS prior JOIN rows AS this ON prior.r + 1 = this.r "
            f"WHERE {for_rows(condition, 'prior', 'this')} ORDER BY 1"
        )
        return [row[0] for row in answer.fetchall()]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_functions_of_two_events_are_those_of_sql(run: Any, condition: str) -> None:
    table = sample(len(condition))
    found = run(
        "ORDER BY r MEASURES B.r AS r AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) "
        f"DEFINE B AS {for_rows(condition, 'A', 'B')}",
        table,
        time="r",
    )
    assert [row["r"] for row in found] == wanted(condition, table)


def test_a_table_over_values_has_a_limit(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clause = "ORDER BY r MEASURES B.r AS r PATTERN (A B) DEFINE {} B AS levenshtein(A.s, s) > 1"
    monkeypatch.setattr(tabulated, "CELLS_MAX", 30)
    with pytest.raises(ResourceLimit, match=r"condition of B needs function levenshtein .*6 x 6"):
        run(clause.format(""), sample(1), time="r")
    # only the values that A can have count
    run(clause.format("A AS s = 'ab',"), sample(1), time="r")


def test_integers_beyond_64_bits_are_refused_where_they_come(run: Any) -> None:
    table = pa.table({"r": [1, 2], "u": pa.array([2**63, 2**63 + 1], pa.uint64())})
    clause = "ORDER BY r MEASURES B.r AS r PATTERN (A B) DEFINE B AS u > A.u"
    with pytest.raises(SqlError, match=r"reads integers beyond 64 bits .* CAST"):
        run(clause, table, time="r")
    assert run(clause.replace("u > A.u", "u::VARCHAR > A.u::VARCHAR"), table, time="r")


def test_missing_rows_are_nulls_in_functions_too(match: Any) -> None:
    table = pa.table({"t": [1, 2], "s": ["x", "y"]})
    clause = "ORDER BY t MEASURES B.t AS b PATTERN (A? B) DEFINE A AS t < 0, B AS {}"
    assert len(match(clause.format("concat(A.s, s) = 'y'"), table)) == 1
    assert len(match(clause.format("concat(A.s, 'q') = 'q'"), table)) == 2
    assert len(match(clause.format("coalesce(PREV(A.s) || s, 'none') = 'none'"), table)) == 2
    assert len(match(clause.format("A.s || 'q' IS NULL"), table)) == 2
    assert match(clause.format("upper(A.s) || s = 'Xy'"), table) == []


@pytest.mark.parametrize(
    ("condition", "what"),
    [
        ("max(A.s) || s = 'ab'", r"\|\| on values from different rows"),
        ("substr(max(A.s), 1, 1) = s", "function substr"),
        ("count(DISTINCT A.s) > 1", r"count\(DISTINCT ...\) in DEFINE"),
        ("string_agg(A.s, '/') = 'a'", "string_agg of several arguments"),
        ("median(A.i) > 1", "aggregate median in DEFINE"),
        ("LAST(A.i, 65) > 1", "an offset above 64 in DEFINE"),
        ("s LIKE max(A.s)", "LIKE on values from different rows"),
        ("array_agg(CLASSIFIER()) = ['A']", "array_agg over CLASSIFIER"),
        ("sum(i * MATCH_NUMBER()) > 1", "sum over MATCH_NUMBER"),
    ],
)
def test_what_cannot_be_computed_is_named(run: Any, condition: str, what: str) -> None:
    with pytest.raises(SqlError, match=f"condition of B needs {what}.*while the match grows"):
        run(
            f"ORDER BY r MEASURES r AS x PATTERN (A B) DEFINE B AS {condition}", sample(1), time="r"
        )
