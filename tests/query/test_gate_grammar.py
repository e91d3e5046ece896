"""Random statements of the dialect and mutations of them: no traceback, no change, nothing ends."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import ChronicleError

_WORDS = """
SELECT FROM s AS x t * ( ) [ ] { } , . ; : := => -> ->> + - / // % ^ ~ @ | & << >> || = <> < > <= >=
AND OR NOT IS NULL TRUE BETWEEN SYMMETRIC IN LIKE ESCAPE ANY ALL EXISTS CASE WHEN THEN ELSE END CAST
:: INT DECIMAL(3,1) "INT" VARCHAR[] STRUCT(a INT) INTERVAL '1' DAY YEAR TO MONTH EXTRACT COLLATE
nocase 'nocase; x' "q; x" 'a' '' 1 2.5 1e3 .5 $a ? $1 #1 GROUP BY ORDER LIMIT 5 % OFFSET HAVING
QUALIFY WINDOW w OVER PARTITION ROWS RANGE UNBOUNDED PRECEDING FOLLOWING CURRENT ROW EXCLUDE TIES
JOIN LEFT ASOF SEMI TYPE USING ON LATERAL unnest range sum count max upper list_transform lambda
list_aggr 'sum' MATCH_RECOGNIZE MEASURES PATTERN DEFINE A TUMBLE WITH RECURSIVE UNION ALL VALUES
INSERT INTO EXPLAIN ANALYZE DESCRIBE SHOW STREAMS DROP INDEX TABLESAMPLE SAMPLE DISTINCT COLUMNS
/*+ strategy(all) */ -- /* */ $$ $t$ e' N' \\ " ' é \U0001f600 FILTER WITHIN IGNORE NULLS FIRST
"""
WORDS = _WORDS.split()

SEEDS = """
SELECT x, t + 1 AS y FROM s WHERE x BETWEEN 1 AND 2 OR t IN (1, 2) ORDER BY t DESC LIMIT 2
SELECT max(x) FILTER (WHERE t > 1), list_transform([1, 2], e -> e + 1) FROM s GROUP BY t HAVING count(*) > 0
SELECT sum(x) OVER (PARTITION BY t ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM s
WITH q AS (SELECT * FROM s) SELECT a.x FROM q a LEFT JOIN s b ON a.t = b.t
SELECT CASE x WHEN 1 THEN 'a' ELSE 'b' COLLATE nocase END, EXTRACT(year FROM DATE '2020-01-01') FROM s
SELECT window_start, avg(x) FROM TUMBLE(s, t, 2) GROUP BY window_start
SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS m PATTERN (A B+) DEFINE B AS x > PREV(x))
INSERT INTO s VALUES (1, (SELECT max(x) FROM s))
SELECT {'a': 1, 'b': x}.a, MAP {'k': 1}['k'], [1, 2][1:2], CAST(x AS DECIMAL(10, 2)), INTERVAL '1' DAY FROM s
""".strip().splitlines()  # noqa: E501


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with chronicle.open(tmp_path_factory.mktemp("store")) as writer:
        stream = writer.create_stream("s", pa.schema([("t", pa.int64()), ("x", pa.float64())]), "t")
        stream.append(pa.table({"t": [1, 2, 3], "x": [1.0, 2.0, 3.0]}))
        yield writer


def mutated(chance: random.Random) -> str:
    tokens = chance.choice(SEEDS).split(" ")
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        place = chance.randrange(len(tokens))
        how = chance.random()
        if how < 0.4:
            tokens[place] = chance.choice(WORDS)
        elif how < 0.7:
            tokens.insert(place, chance.choice(WORDS))
        elif how < 0.85 and len(tokens) > 1:
            del tokens[place]
        else:
            tokens[place] = tokens[place] + chance.choice("'\";()*\\")
    return " ".join(tokens)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_statements_end_in_answers_or_in_our_errors(database, seed):
    chance = random.Random(seed)
    said = []
    for _ in range(150):
        sql = mutated(chance) if chance.random() < 0.8 else " ".join(chance.choices(WORDS, k=12))
        try:
            catalog_of(database).engine.access(sql)
            database.sql(sql, timeout=10, read_only=True).fetchall()
        except ChronicleError as error:
            said.append((str(error), sql))
    assert not [pair for pair in said if "Stack Trace" in pair[0]]
    assert not [pair for pair in said if "the executor" in pair[0]], "the gate must refuse it"
    assert database.sql("SELECT upper('a') FROM s LIMIT 1").fetchall() == [("A",)]
    assert database.streams() == ["s"]
    assert database.stream("s").count == 3
