"""Streams and clauses of the tests of conditions between the events of a match."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay.planning import plan_match
from chronicle.query.replay.run_plan import ReplayRun, run_match
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

from ...new_stores import timed

SCHEMA = timed(k=pa.string(), g=pa.int32(), f=pa.float64(), x=pa.int64())
CLAUSE = (
    "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES MATCH_NUMBER() AS n, FIRST(t) AS f, "
    "LAST(t) AS l, A.k AS k {} DEFINE {})"
)


def compiled(pattern: str, defined: str) -> Any:
    return compile_match(clause_of_text(CLAUSE.format(pattern, defined)), SCHEMA)


def stream_of(path: Path, table: pa.Table, late: pa.Table | None = None) -> Any:
    store = Store.open(path, "rw")
    stream = store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=1 << 14))
    stream.append(table)
    indexes = StreamIndexes(path / "idx", True)
    indexes.create("x", SCHEMA)
    indexes.catch_up(stream.snapshot().state)
    if late is not None:
        stream.append(late)
    return store, stream.snapshot(), indexes


def events(r: random.Random, count: int, keys: int, spread: int) -> pa.Table:
    rows = []
    for i in range(count):
        key = r.choice([None, *map(str, range(keys))])
        rows.append(
            {
                "t": i * spread // 2 if r.random() < 0.9 else i * spread // 2 + 1, "k": key,
                "g": r.choice([None, 0, 1]), "f": 0.0, "x": r.randint(0, 40),
            }
        )  # fmt: skip
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["t"]), schema=SCHEMA.arrow)


def answers(
    snapshot: Any, clause: Any, indexes: Any, strategy: str, gap: int | None = None
) -> tuple[list[Any], Any]:
    plan = plan_match(snapshot, clause, indexes, strategy, gap=gap)
    run = ReplayRun()
    rows = [r for batch in run_match(snapshot, clause, plan, run=run) for r in batch.to_pylist()]
    return rows, plan


def gaps(rng: random.Random) -> str:
    """Rare events with any others between them, which nothing reads."""
    body = rng.choice(["A Z* B", "A Z*? B", "A Z* B Z*? C", "A Z*? B Z* A", "(A Z*? B Z*)+ C"])
    low = rng.randrange(8)
    what = [f"x BETWEEN {low} AND {low + 1}", f"y = {low}", f"y IN ({low}, 9)", f"x > {low + 2}"]
    defines = ", ".join(f"{name} AS {rng.choice(what)}" for name in "ABC" if name in body)
    skip = rng.choice(["TO NEXT ROW", "PAST LAST ROW", "TO LAST B"])
    keys = rng.choice(["", "", *(f"PARTITION BY {k} " for k in ("k", "k", "y", "k, y"))])
    return (
        f"SELECT * FROM s MATCH_RECOGNIZE ({keys}ORDER BY t MEASURES "
        f"FIRST(t) AS f, LAST(x) AS l, B.y AS b AFTER MATCH SKIP {skip} PATTERN ({body}) "
        f"WITHIN {rng.choice([0, 3, 10, 40, 200])} DEFINE {defines})"
    )
