"""Lists that first events share: the rows are those of lists for each, and of the search."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import ResourceLimit, SqlError
from chronicle.query.pattern import any_diagram, any_drawing

from ...rounds import rounds
from .any_cases import BETWEEN, SCHEMA, compiled, random_table, rows_of

CASES = rounds(12, 200, int(os.environ.get("CHRONICLE_PATTERNS", "20000")))


def clause_of(r: random.Random) -> str:
    """Every variable may be compared with the first event, and with those in between."""
    names = "ABCDE"[: r.randint(3, 5)]
    parts = [*names]
    for i in range(1, len(parts)):
        kind = r.random()
        if kind < 0.1:
            parts[i] = "[^X] " + parts[i]
        elif kind < 0.15:
            parts[i] += r.choice(["?", "+"])
    if r.random() < 0.1:
        parts.append("[^X]")
    defined = [f"A AS {r.choice(('y > 0', 'y <> 2', 'x > 0'))}"]
    for i, name in enumerate(names[1:], 1):
        conjuncts = [r.choice(("y >= 1", "x IS NOT NULL", "true", "k = 'p'"))]
        others = sorted({"A" if r.random() < 0.6 else name, r.choice(names[:i])} - {name})
        conjuncts += [f"({r.choice(BETWEEN).format(v=name, o=other)})" for other in others]
        if i > 1 and r.random() < 0.2:
            conjuncts.append(f"{name}.y <= A.y + {names[i - 1]}.y")
        defined.append(f"{name} AS " + " AND ".join(conjuncts))
    if any("X" in part for part in parts):
        defined.append("X AS y = 3")
    return (
        ("PARTITION BY k " if r.random() < 0.3 else "")
        + "ORDER BY t MEASURES MATCH_NUMBER() AS mn, FIRST(t) AS b, CLASSIFIER() AS c "
        + f"ALL ROWS PER MATCH PATTERN ({' '.join(parts)}) WITHIN {r.choice([6, 9, 14])} "
        + f"EVENT SELECTION SKIP TILL ANY MATCH DEFINE {', '.join(defined)}"
    )


@pytest.mark.usefixtures("small_buffers")
def test_sharing_lists_changes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever sharing is given up, begun, or short of room."""
    drawn = {True: 0, False: 0}
    restrict = any_drawing.restrict

    def noted(turns: Any, block: Any, own: bool, *rest: Any) -> Any:
        drawn[own] += len(turns)
        return restrict(turns, block, own, *rest)

    monkeypatch.setattr(any_drawing, "restrict", noted)
    for seed in range(CASES):
        r = random.Random(seed)
        clause, table = clause_of(r), random_table(r, r.randint(20, 60))
        shown = (seed, clause, table.to_pylist())
        expected = repr(rows_of(compiled(clause, wanted="search"), table))
        for dearer in (0, 1, 10**6):
            monkeypatch.setattr(any_drawing, "DEARER", dearer)
            monkeypatch.setattr(any_drawing, "SPARE_STEPS", r.choice([1, 10**6]))
            monkeypatch.setattr(any_drawing, "BLOCK_FIRST", r.choice([1, 2]))
            monkeypatch.setattr(any_drawing, "BLOCK_LEAST", r.choice([2, 5, 64]))
            monkeypatch.setattr(any_drawing, "SIZE_FIRST", r.choice([4, 64, 1 << 13]))
            monkeypatch.setattr(any_drawing, "SLICE_STEPS", r.choice([20, 1 << 22]))
            monkeypatch.setattr(any_drawing, "ENTRIES_MAX", r.choice([16, 1 << 17]))
            try:
                found = repr(rows_of(compiled(clause, wanted="tree"), table, r.choice([7, 100])))
            except (SqlError, ResourceLimit) as error:
                assert "cannot be obeyed" in str(error), shown  # noqa: PT017
                break
            assert found == expected, (dearer, *shown)
    assert min(drawn.values()) > CASES, drawn


def falling(count: int) -> pa.Table:
    values = [(i * 37) % 101 for i in range(count)]
    columns = {"t": range(count), "k": ["p"] * count, "x": [1.0] * count, "y": values}
    return pa.table(columns, schema=SCHEMA)


def test_sharing_draws_less_where_windows_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    clause = (
        "ORDER BY t MEASURES MATCH_NUMBER() AS n PATTERN (A B C D E) WITHIN 40 "
        "EVENT SELECTION SKIP TILL ANY MATCH DEFINE C AS y > B.y, D AS y > A.y, E AS y < C.y"
    )
    taken = {}
    for first in (8, 1 << 20):  # a first block of all events: none shares
        monkeypatch.setattr(any_drawing, "BLOCK_FIRST", first)
        match = compiled(clause, wanted="tree", weighted=True)
        counted = sum(row["n"] for row in rows_of(match, falling(300)))
        taken[first] = counted, dict(match.selecting.figures())["tree_candidates"]
    assert taken[8][0] == taken[1 << 20][0] > 10**6
    assert taken[8][1] * 2 < taken[1 << 20][1], taken


def test_a_condition_that_fails_for_no_first_event_is_no_error() -> None:
    """B and C whose sum overflows have no A: shared lists ask about them, the search never does."""
    big = 2**62
    values = [5, 1, big, 2, big, 7, 5, 5, 7, 7, 9]
    columns = {"t": range(11), "k": ["p"] * 11, "x": [1.0] * 11, "y": values}
    table = pa.table(columns, schema=SCHEMA)
    clause = (
        "ORDER BY t MEASURES A.t AS a, B.t AS b, C.t AS c, D.t AS d PATTERN (A B C D) WITHIN 20 "
        "EVENT SELECTION SKIP TILL ANY MATCH DEFINE A AS y < 100, B AS x > A.x - 1 AND y <= A.y, "
        "D AS y + B.y + C.y > 12 AND y < 100"
    )
    found = rows_of(compiled(clause, wanted="tree"), table)
    assert found == rows_of(compiled(clause, wanted="search"), table)
    assert len(found) > 10


@pytest.mark.parametrize("size", [3, 200])
def test_candidates_are_found_behind_a_row(size: int) -> None:
    made = np.zeros((size, 8), np.int32)
    made[:, any_diagram.ROW] = np.arange(size) * 2
    for row in range(-1, 2 * size):
        found = any_diagram.candidate_behind(made, 0, size, row)
        assert found == sum(other <= row for other in range(0, 2 * size, 2))
