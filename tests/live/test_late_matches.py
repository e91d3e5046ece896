"""What late events change in searches that are kept, against searches over all events."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.live.bank.corrections import Late, late_matches
from chronicle.query.pattern.advancing import AdvancingMatch
from chronicle.query.pattern.compiled import InputColumns, compile_match
from chronicle.query.sql.match_clause import clause_of_text

from ..rounds import rounds

SCHEMA = pa.schema(
    [pa.field("t", pa.int64(), False), ("k", pa.string()), ("x", pa.int64()), ("id", pa.int64())]
)
PATTERNS = (
    "A B+ C", "A B* C?", "A+ B", "A B C", "(A | B C) D*", "A B*? C", "(A B)+", "A D* C", "B+",
    "^ A B", "A (B | C)* D?",
)  # fmt: skip
CONDITIONS = (
    ("A AS x = 0", "B AS x >= 1", "C AS x = 2"),
    ("A AS x <= 1", "B AS x >= PREV(x)", "C AS x < PREV(x)"),
    ("A AS x <= 2", "B AS x >= A.x", "C AS x > FIRST(x)"),
    ("A AS x = 0", "B AS x <= PREV(x, 2)", "C AS x > 1"),
)


def compiled_case(r: random.Random, selection: bool) -> Any:
    pattern = r.choice(PATTERNS[:4] if selection else PATTERNS)
    names = sorted({c for c in pattern if c.isalpha()})
    defined = [c for c in r.choice(CONDITIONS) if c[0] in names]
    if "A" not in names:
        defined = [c for c in defined if "A." not in c]
    skip = r.choice(["PAST LAST ROW", "TO NEXT ROW", "PAST LAST ROW", f"TO LAST {names[-1]}"])
    if skip.startswith("TO LAST") and pattern not in ("A B+ C", "A+ B", "A B C"):
        skip = "PAST LAST ROW"
    how, chosen = f"AFTER MATCH SKIP {skip}", ""
    if selection:
        how, chosen = "", " EVENT SELECTION SKIP TILL NEXT MATCH"
    clause = (
        f"{r.choice(['PARTITION BY k ', ''])}ORDER BY t MEASURES FIRST(id) AS a, LAST(id) AS z, "
        f"LAST(x) AS v, count(*) AS n, PREV(x) AS p {how} PATTERN ({pattern}) "
        f"WITHIN {r.choice([3, 6])}{chosen}" + (f" DEFINE {', '.join(defined)}" if defined else "")
    )
    return clause, compile_match(
        clause_of_text(f"SELECT * FROM s MATCH_RECOGNIZE ({clause})"), InputColumns(SCHEMA, "t")
    )


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def events(r: random.Random, count: int, ids: int) -> list[dict[str, Any]]:
    t, made = 0, []
    for i in range(count):
        t += r.choice([0, 1, 1, 2])
        made.append({"t": t, "k": r.choice("abc"), "x": r.randint(0, 3), "id": ids + i})
    return made


def test_late_events_are_the_last_of_their_ticks() -> None:
    now = np.array([1, 1, 1, 3, 5, 5, 7])
    late = Late(np.array([1, 5]), np.array([1, 2]))
    found = late.among(now)
    assert found is not None
    assert found.tolist() == [False, False, True, False, True, True, False]
    assert late.among(now[:-2]) is None


@pytest.mark.parametrize("selection", [False, True])
@pytest.mark.parametrize("length", [40, 300])
def test_suspended_searches_see_late_events(selection: bool, length: int) -> None:
    """After each correction what holds is what a search over all events has decided."""
    r = random.Random(length + selection)
    changed = near = 0
    count = rounds(12, 400) if length < 100 else rounds(4, 80)
    for _ in range(count):
        clause, compiled = compiled_case(r, selection)
        rows = events(r, length, 0)
        watermark = rows[r.randrange(length // 2, length)]["t"]
        known = [row for row in rows if row["t"] <= watermark]
        coming = [row for row in rows if row["t"] > watermark]
        stream = AdvancingMatch(compiled, in_turn=True)
        holds = rows_of(stream.advance(table_of(known), watermark).rows)
        for step in range(3):
            more = [
                {**row, "k": r.choice("abcd"), "id": 1000 * (step + 1) + i}
                for i, row in enumerate(r.sample(known, r.choice([1, 1, 2, 6])))
            ]
            known = sorted([*known, *more], key=lambda row: row["t"])  # behind others of the tick
            table = table_of(known)
            ticks = np.array(table.column("t"), np.int64)
            late = Late(*np.unique([row["t"] for row in more], return_counts=True))
            read: list[int] = []

            def scan(low: int, high: int, t: pa.Table = table, n: list[int] = read) -> pa.Table:
                at = np.array(t.column("t"))
                found = t.filter(pa.array((at >= low) & (at <= high)))
                n.append(found.num_rows)
                return found

            found = late_matches(stream, scan, late, int(ticks[0]))
            assert found is not None
            gone, there = rows_of(found[0]), rows_of(found[1])
            assert all(row in holds for row in gone), clause
            before = holds
            holds = sorted([row for row in holds if row not in gone] + there, key=repr)
            anew = AdvancingMatch(compiled, in_turn=True)
            wanted = rows_of(anew.advance(table, watermark).rows)
            assert holds == wanted, clause
            changed += holds != before
            near += read[-1] < len(known)
        rest = table_of(coming)
        assert rows_of(stream.advance(rest, 10**6).rows) == rows_of(
            anew.advance(rest, 10**6).rows
        ), clause
    assert changed >= count
    assert near > 3 or length < 100


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)
