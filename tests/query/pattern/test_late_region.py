"""Regions of late events against two searches over random streams."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import InvalidArgument
from chronicle.query.pattern.compiled import InputColumns, compile_match
from chronicle.query.pattern.late_region import late_regions
from chronicle.query.sql.match_clause import clause_of_text

from ...rounds import rounds

SCHEMA = pa.schema(
    [pa.field("t", pa.int64(), False), ("k", pa.string()), ("x", pa.int64()), ("id", pa.int64())]
)
PATTERNS = (
    "A B+ C", "A B* C?", "A+ B", "A B C", "(A | B C) D*", "A B*? C", "(A B)+", "A D* C", "B+",
    "A B $", "^ A B", "A (B | C)* D?", "A*",
)  # fmt: skip
CONDITIONS = (
    ("A AS x = 0", "B AS x >= 1", "C AS x = 2"),
    ("A AS x <= 1", "B AS x >= PREV(x)", "C AS x < PREV(x)"),
    ("A AS x <= 1", "B AS x <= NEXT(x)", "C AS x > 1"),
    ("A AS x <= 2", "B AS x >= A.x", "C AS x > FIRST(x)"),
    ("A AS x = 0", "B AS x <= PREV(x, 2)", "C AS x > 1"),
)


def compiled_case(r: random.Random) -> Any:
    pattern = r.choice(PATTERNS)
    names = sorted({c for c in pattern if c.isalpha()})
    defined = [c for c in r.choice(CONDITIONS) if (c[0] in names and "A." not in c) or "A" in names]
    defined = [c for c in defined if c[0] in names]
    if "A" not in names:
        defined = [c for c in defined if "A." not in c]
    skip = r.choice(["PAST LAST ROW", "TO NEXT ROW", "PAST LAST ROW", f"TO LAST {names[-1]}"])
    if skip.startswith("TO LAST") and pattern not in ("A B+ C", "A+ B", "A B C"):
        skip = "PAST LAST ROW"
    window = r.choice([" WITHIN 3", " WITHIN 6", ""])
    clause = (
        f"PARTITION BY k ORDER BY t MEASURES FIRST(id) AS a, LAST(id) AS z, count(*) AS n "
        f"AFTER MATCH SKIP {skip} PATTERN ({pattern}){window}"
        + (f" DEFINE {', '.join(defined)}" if defined else "")
    )
    return clause, compile_match(
        clause_of_text(f"SELECT * FROM s MATCH_RECOGNIZE ({clause})"), InputColumns(SCHEMA, "t")
    )


def matches(compiled: Any, rows: pa.Table) -> list[tuple[Any, ...]]:
    found = pa.Table.from_batches(list(compiled.run(rows.to_batches())), compiled.output_schema)
    return [tuple(row.values()) for row in found.to_pylist() if row["n"]]


@pytest.mark.parametrize("seed", range(rounds(4, 12)))
def test_outside_of_the_region_nothing_changes(seed: int) -> None:
    r = random.Random(seed)
    changed = met = 0
    for _ in range(25):
        clause, compiled = compiled_case(r)
        for _ in range(8):
            count = r.randint(1, 40)
            t = 0
            listed = []
            for i in range(count):
                t += r.choice([0, 1, 1, 2, 4])
                listed.append((t, r.choice("ab"), r.randint(0, 3), i))
            rows = pa.Table.from_pylist(
                [dict(zip(SCHEMA.names, row, strict=True)) for row in listed], schema=SCHEMA
            )
            late = np.zeros(count, np.bool_)
            late[r.sample(range(count), r.randint(1, min(3, count)))] = True
            old, new = matches(compiled, rows.filter(pa.array(~late))), matches(compiled, rows)
            found = late_regions(compiled, rows, late)
            keys = rows.column("k").to_pylist()
            regions = {}
            for begin, end in zip(found.begin.tolist(), found.end.tolist(), strict=True):
                key = {keys[i] for i in np.flatnonzero(late)} if begin == count else {keys[begin]}
                for k in key:
                    regions.setdefault(k, (begin, end))
            shown = f"{clause}\n{listed}\n{np.flatnonzero(late)}\n{regions}"
            for k, first, _, _ in set(old) ^ set(new):
                changed += 1
                assert k in regions, shown
                assert regions[k][0] <= first < regions[k][1], shown
            for k, (begin, end) in regions.items():
                met += end < count
                # a search that begins there finds what the whole one finds from there on
                mine = [m for m in new if m[0] == k]
                assert (
                    not any(m[1] < begin <= m[2] for m in mine)
                    or "NEXT" in clause
                    or ("TO LAST" in clause)
                ), shown
                assert {m for m in old if m[0] == k and m[1] >= end} == {
                    m for m in mine if m[1] >= end
                }, shown
    assert changed > 50
    assert met > 50


def test_a_match_that_grows_moves_those_behind_it() -> None:
    _, compiled = (
        "",
        compile_match(
            clause_of_text(
                "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A B?) "
                "WITHIN 2 DEFINE A AS x = 0)"
            ),
            InputColumns(SCHEMA, "t"),
        ),
    )
    rows = pa.table(
        {"t": list(range(9)), "k": ["a"] * 9, "x": [0, 5, 5, 0, 0, 0, 0, 5, 5], "id": range(9)}
    ).cast(SCHEMA)
    late = np.arange(9) == 3
    found = late_regions(compiled, rows, late)
    # without it: (4 5) (6 7); with it: (3 4) (5 6); they meet behind
    assert (found.begin.tolist(), found.end.tolist()) == ([2], [8])


def test_event_selection_has_no_such_region() -> None:
    compiled = compile_match(
        clause_of_text(
            "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A B) WITHIN 2 "
            "EVENT SELECTION SKIP TILL ANY MATCH)"
        ),
        InputColumns(SCHEMA, "t"),
    )
    with pytest.raises(InvalidArgument, match="do not depend on each other"):
        late_regions(compiled, SCHEMA.empty_table(), np.zeros(0, np.bool_))
