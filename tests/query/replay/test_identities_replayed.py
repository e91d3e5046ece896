"""Identities count the events of a time, so intervals begin and end between two times."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
STRATEGIES = ("auto", "all")
CLAUSES = [
    "{by} ORDER BY t MEASURES MATCH_EVENT() AS e, MATCH_ID() AS id, LAST(x) AS x "
    "PATTERN (A B+) WITHIN 12 DEFINE A AS x > 97, B AS x < PREV(x)",
    "{by} ORDER BY t MEASURES MATCH_EVENT() AS e, MATCH_ID() AS id ALL ROWS PER MATCH "
    "PATTERN (A B) WITHIN 5 DEFINE A AS x > 96, B AS x < 5",
    "{by} ORDER BY t MEASURES MATCH_EVENT() AS e, MATCH_ID() AS id PATTERN (A B) WITHIN 2 "
    "EVENT SELECTION SKIP TILL ANY MATCH DEFINE A AS x > 96, B AS x < 4",
]


@pytest.fixture(params=range(4))
def tied(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Many events of each time, over segments, the tail, and what a delete has rewritten."""
    rng = random.Random(request.param)
    database = chronicle.open(tmp_path / "store")
    options = {"leaf_bytes": 512, "late_events_max": 1000, "compaction": "manual"}
    stream = database.create_stream("s", SCHEMA, time="t", options=options)
    if request.param % 2:
        stream.create_index("x")
        stream.create_index("k")
    at = 0
    for _ in range(6):
        made = []
        for _ in range(300):
            at += rng.random() < 0.1
            made.append({"t": at, "k": rng.choice("abcd"), "x": rng.randrange(100)})
        stream.append(made)
        if request.param < 2:
            stream.flush()
        stream.delete("x BETWEEN 40 AND 45", at - 20, at - 2)
    stream.append([{"t": at, "k": "a", "x": x} for x in (3, 99, 98, 2, 1)])
    return database


@pytest.mark.parametrize("by", ["", "PARTITION BY k"])
@pytest.mark.parametrize("clause", CLAUSES)
def test_identities_are_those_of_a_full_replay(tied: Database, clause: str, by: str) -> None:
    text = f"SELECT /*+ strategy(%s) */ * FROM s MATCH_RECOGNIZE ({clause.format(by=by)})"
    wanted = tied.sql(text % "replay").arrow()
    assert wanted.num_rows > 3
    for strategy in STRATEGIES:
        assert tied.sql(text % strategy).arrow().equals(wanted), strategy
