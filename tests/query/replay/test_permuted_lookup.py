"""PERMUTE through indexes: one part that an index finds is enough."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of

ROWS = 60_000


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    rng = random.Random(1)
    table = pa.table(
        {
            "t": pa.array(range(ROWS), pa.int64()),
            "a": pa.array([rng.randrange(6_000) for _ in range(ROWS)]),
            "b": pa.array([rng.randrange(4) for _ in range(ROWS)]),
        }
    )
    with chronicle.open(tmp_path_factory.mktemp("store")) as database:
        stream = database.create_stream("s", table.schema, "t")
        stream.append(table)
        stream.flush()
        catalog_of(database).create_index("s", "a")
        yield database


@pytest.mark.parametrize(
    ("pattern", "define"),
    [
        ("PERMUTE(A, B)", "A AS a = 7, B AS b = 1"),
        ("PERMUTE(A, B, C)", "A AS a < 3, B AS b = 1"),
        ("PERMUTE(A, C, D)", "A AS a = 9, D AS a = 7 OR b = 1"),
        ("C PERMUTE(A, B) B?", "A AS a = 7, B AS b = 1"),
        ("PERMUTE(A, B+) WITHIN 6", "A AS a = 7, B AS b = 1"),
        ("PERMUTE(A, B) WITHIN 9 EVENT SELECTION SKIP TILL NEXT MATCH", "A AS a = 7, B AS b = 1"),
    ],
)
def test_one_part_that_an_index_finds_locates_permutations(database, pattern, define):
    inner, _, rest = pattern.partition(" WITHIN")
    clause = (
        f"MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l "
        f"PATTERN ({inner}) {'WITHIN' + rest if rest else ''} DEFINE {define})"
    )
    replayed = database.sql(f"SELECT /*+ strategy(replay) */ f, l FROM s {clause}").fetchall()
    looked_up = f"SELECT /*+ strategy(all) */ f, l FROM s {clause}"
    assert database.sql(looked_up).fetchall() == replayed
    assert replayed
    plan = database.explain(looked_up, analyze=True)
    (replay,) = [operator for operator in plan.operators() if operator.name == "Replay"]
    assert dict(replay.figures)["events_replayed"] < ROWS // 3
