"""Intervals for subqueries over a stream: the rows of the whole subquery, from fewer events."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import parse_one

import chronicle
from chronicle.query.replay.filtering import local_stream

EVENTS = 60_000
SCHEMA = pa.schema(
    [("t", pa.timestamp("ms")), ("k", pa.string()), ("x", pa.int64()), ("y", pa.int64())]
)


def table(seed: int, count: int, first: int, last: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.integers(10, 100, count)
    x[rng.random(count) < 0.0005] = 1
    return pa.table(
        {
            "t": np.sort(rng.integers(first, last, count)),
            "k": rng.choice(["a", "b", "c"], count),
            "x": x,
            "y": rng.integers(0, 10, count),
        }
    ).cast(SCHEMA)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chronicle.open(tmp_path_factory.mktemp("subqueries")) as opened:
        stream = opened.create_stream("s", SCHEMA, time="t")
        stream.append(table(1, EVENTS, 0, 600_000))
        stream.create_index("x")
        stream.append(table(2, 40, 100_000, 101_000))
        yield opened


FROM = [
    "(SELECT * FROM s)",
    "(SELECT t, k, x, y FROM s WHERE y < 7)",
    "(SELECT x, t, k, y FROM s WHERE y <> 3 OR x = 1)",
    "(SELECT t, k, x, y FROM s AS q WHERE q.y < 7 AND q.x < 90)",
]
AFTER = ["", "AFTER MATCH SKIP TO NEXT ROW", "AFTER MATCH SKIP TO LAST B"]


def explained(db: Any, text: str) -> str:
    return "\n".join(db.sql("EXPLAIN ANALYZE " + text).arrow()[0].to_pylist())


@pytest.mark.parametrize("seed", range(6))
def test_a_subquery_over_a_stream_gives_the_rows_of_its_full_replay(db: Any, seed: int) -> None:
    rng = random.Random(seed)
    part = rng.choice(["", "PARTITION BY k"])
    order = rng.choice(["t", "t, y DESC"])
    pattern = rng.choice(["A B", "A B+ C", "(A | C) B* A"])
    c = ", C AS x = 1" if "C" in pattern else ""
    text = (
        f"SELECT {{}} * FROM {rng.choice(FROM)} MATCH_RECOGNIZE ({part} ORDER BY {order} "
        "MEASURES MATCH_NUMBER() AS n, FIRST(t) AS f, LAST(t) AS l, sum(x) AS total "
        f"{rng.choice(['', 'ALL ROWS PER MATCH'])} {rng.choice(AFTER)} PATTERN ({pattern}) "
        f"WITHIN INTERVAL '{rng.choice([1, 3])}' SECOND DEFINE A AS x = 1, B AS y >= 2{c})"
    )
    full = db.sql(text.format("/*+ strategy(replay) */")).arrow()
    assert full.num_rows or seed
    for hint in ("", "/*+ strategy(all) */"):
        assert db.sql(text.format(hint)).arrow().equals(full), text
    told = explained(db, text.format("/*+ strategy(all) */"))
    replayed = float(told.split("share replayed ")[1].split(",")[0])
    assert replayed < 0.9


@pytest.mark.parametrize(
    ("source", "clause", "reason"),
    [
        ("(SELECT t, x FROM s)", "PATTERN (A B)", "no WITHIN"),
        (
            "(SELECT t, x FROM s)",
            "PATTERN (^ A B) WITHIN INTERVAL '1' SECOND",
            "outside of a match",
        ),
        ("(SELECT t, x AS z FROM s)", "PATTERN (A B) WITHIN INTERVAL '1' SECOND", None),
        ("(SELECT t, x FROM s LIMIT 9000)", "PATTERN (A B) WITHIN INTERVAL '1' SECOND", None),
    ],
)
def test_what_a_subquery_does_not_allow_runs_it_whole(
    db: Any, source: str, clause: str, reason: str | None
) -> None:
    name = "z" if " z " in source else "x"
    text = (
        f"SELECT * FROM {source} MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f {clause} "
        f"DEFINE A AS {name} = 1)"
    )
    told = explained(db, text)
    if reason is None:
        assert "Replay" not in told
    else:
        assert reason in told


def test_only_plain_columns_filtered_row_by_row_are_local() -> None:
    def local(text: str) -> str | None:
        return local_stream(parse_one(text, dialect="duckdb"), ["s", "Other"])

    assert local("SELECT * FROM s") == "s"
    assert local("SELECT a, b FROM other WHERE a > 3 AND b IS NULL") == "Other"
    for text in (
        "SELECT a + 1 FROM s", "SELECT a AS b FROM s", "SELECT DISTINCT a FROM s",
        "SELECT a FROM s ORDER BY a", "SELECT a FROM s LIMIT 3", "SELECT a FROM s JOIN Other ON a",
        "SELECT a FROM s GROUP BY a", "SELECT a FROM s WHERE a IN (SELECT b FROM Other)",
        "WITH s AS (SELECT 1 AS a) SELECT a FROM s", "SELECT a FROM (SELECT a FROM s)",
        "SELECT a FROM s, Other", "SELECT a FROM nowhere", "SELECT * EXCLUDE (a) FROM s",
        "SELECT a FROM s TABLESAMPLE 10 PERCENT", "SELECT a FROM s UNION ALL SELECT a FROM s",
        "SELECT a FROM s QUALIFY row_number() OVER () = 1", "SELECT s.* FROM s",
    ):  # fmt: skip
        assert local(text) is None, text


def test_times_that_no_text_gives_do_not_bound_the_subquery(tmp_path: Path) -> None:
    ticks = [*range(0, 3000, 3), *range(10**12, 10**12 + 3000, 3)]
    schema = pa.schema([("t", pa.timestamp("s")), ("x", pa.int64())])
    with chronicle.open(tmp_path) as opened:
        stream = opened.create_stream("s", schema, time="t")
        x = [int(i % 500 in (7, 8)) for i in range(len(ticks))]
        stream.append(pa.table({"t": ticks, "x": x}).cast(schema))
        stream.create_index("x")
        text = (
            "SELECT {} * FROM (SELECT * FROM s) MATCH_RECOGNIZE (ORDER BY t MEASURES "
            "FIRST(t) AS f PATTERN (A B) WITHIN INTERVAL '5' SECOND DEFINE A AS x = 1, B AS x = 1)"
        )
        full = opened.sql(text.format("/*+ strategy(replay) */")).arrow()
        assert full.num_rows == 4
        assert opened.sql(text.format("/*+ strategy(all) */")).arrow().equals(full)
