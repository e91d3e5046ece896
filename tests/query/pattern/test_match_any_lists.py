"""SKIP TILL ANY MATCH by lists: the rows of the search, in its order, and their number without it.

The search of :mod:`chronicle.query.pattern.selection` is the twin; it is compared with the
brute-force oracle in :mod:`test_match_differential`.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import ResourceLimit, SqlError
from chronicle.query.pattern import any_states as states

from ...rounds import rounds
from .any_cases import (
    SCHEMA,
    always_search,
    compiled,
    random_table,
    row_clause,
    rows_of,
)

CASES = rounds(12, 150, int(os.environ.get("CHRONICLE_PATTERNS", "20000")))


@pytest.mark.usefixtures("small_buffers")
@pytest.mark.parametrize("part", range(5))
def test_lists_give_the_rows_of_the_search_in_its_order(part: int) -> None:
    for seed in range(part * CASES // 5, (part + 1) * CASES // 5):
        r = random.Random(seed)
        clause = row_clause(r, r.random() < 0.4)
        table = random_table(r, r.randint(0, 14))
        try:
            expected = rows_of(compiled(clause, search=True), table)
        except SqlError as error:
            assert "[^" in str(error), (seed, clause, error)  # noqa: PT017
            continue
        shown = (seed, clause, table.to_pylist())
        for batch in (1, 3, 100):
            listed = compiled(clause)
            # NaN is no equal of itself
            assert repr(rows_of(listed, table, batch)) == repr(expected), (batch, *shown)
        numbered = clause.replace("ALL ROWS", "ONE ROW").replace(", CLASSIFIER() AS c", "")
        counted = rows_of(compiled(numbered, weighted=True), table, r.choice([1, 4, 100]))
        matches = rows_of(compiled(numbered, search=True), table)
        assert sum(row["mn"] for row in counted) == len(matches), shown
        assert all(row["mn"] > 0 for row in counted), shown
        skipped = r.randint(0, len(matches) + 2)
        rest = rows_of(compiled(numbered, skip=skipped), table, r.choice([1, 100]))
        assert rest == matches[skipped:], (skipped, *shown)


def constant(count: int) -> pa.Table:
    return pa.table(
        {"t": range(count), "k": ["p"] * count, "x": [1.0] * count, "y": [1] * count},
        schema=SCHEMA,
    )


def total(pattern: str, count: int, window: str = "") -> int:
    clause = (
        f"ORDER BY t MEASURES MATCH_NUMBER() AS n PATTERN ({pattern}) {window} "
        "EVENT SELECTION SKIP TILL ANY MATCH DEFINE A AS x = 1"
    )
    return sum(row["n"] for row in rows_of(compiled(clause, weighted=True), constant(count)))


@pytest.mark.parametrize("count", [10, 100, 300])
def test_ten_variables_over_a_constant_stream_are_counted_exactly(count: int) -> None:
    names = " ".join("ABCDEFGHIJ")
    exact = math.comb(count, 10)
    if math.comb(count - 1, 9) < 2**63:
        assert total(names, count) == exact
    window = 40
    within = sum(math.comb(min(window, count - 1 - s), 9) for s in range(count))
    assert total(names, count, f"WITHIN {window}") == within


def test_loops_groups_and_choices_are_counted_as_sets_not_as_labelings() -> None:
    n = 40
    assert total("A+", n) == 2**n - 1
    assert total("A B* C*", n) == 2**n - 1
    assert total("(A | B) C", n) == math.comb(n, 2)
    assert total("PERMUTE(A, B, C)", n) == math.comb(n, 3)
    assert total("A{2,4}", n) == sum(math.comb(n, j) for j in (2, 3, 4))
    assert total("(A B)+", n) == sum(math.comb(n, j) for j in range(2, n + 1, 2))


def test_a_count_beyond_64_bits_is_an_error_with_its_event() -> None:
    assert total("A+", 63) == 2**63 - 1
    with pytest.raises(ResourceLimit, match=r"9223372036854775807 .* A\+ begin at t = 0"):
        total("A+", 64)


def test_the_nth_match_is_reached_without_those_before() -> None:
    clause = (
        "ORDER BY t MEASURES MATCH_NUMBER() AS n, A.t AS a, B.t AS b, C.t AS c PATTERN (A B C) {} "
        "EVENT SELECTION SKIP TILL ANY MATCH"
    )
    for window, reach in (("", 300), ("WITHIN 40", 40)):
        sets = (
            (a, b, c)
            for a, b in itertools.combinations(range(300), 2)
            for c in range(b + 1, min(299, a + reach) + 1)
        )
        listed = sorted(sets)
        for skip in (0, 1, len(listed) // 3, len(listed) - 2, len(listed)):
            stream = compiled(clause.format(window), skip=skip).run(constant(300).to_batches())
            batches: Iterator[pa.RecordBatch] = itertools.islice(stream, 1)
            rows = [row for batch in batches for row in batch.to_pylist()][:5]
            wanted = listed[skip : skip + 5]
            assert [(row["a"], row["b"], row["c"]) for row in rows] == wanted
            assert [row["n"] for row in rows] == [skip + i + 1 for i in range(len(wanted))]


def test_memory_does_not_grow_with_the_matches() -> None:
    """The first 300,000 of 4e6 and of 1e13 matches need the same memory."""
    peaks = []
    for names in ("ABCD", "ABCDEFGHIJ"):
        clause = (
            f"ORDER BY t MEASURES A.t AS a PATTERN ({' '.join(names)}) "
            "EVENT SELECTION SKIP TILL ANY MATCH"
        )
        match = compiled(clause)
        table = constant(100)
        next(match.run(table.to_batches()))  # compiled
        tracemalloc.start()
        rows = 0
        for batch in match.run(table.to_batches()):
            rows += batch.num_rows
            if rows > 300_000:
                break
        peaks.append(tracemalloc.get_traced_memory()[1] / (len(names) * 24 + 40))
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0], peaks


def test_wider_windows_only_add_matches_and_a_group_is_its_parts() -> None:
    r = random.Random(7)
    clause = (
        "ORDER BY t MEASURES A.t AS a, C.t AS c, FIRST(x) AS x PATTERN ({}) WITHIN {} "
        "EVENT SELECTION SKIP TILL ANY MATCH DEFINE A AS y = 1, C AS y = 2"
    )
    table = random_table(r, 60)
    before = 0
    for window in (2, 5, 11, 30):
        rows = rows_of(compiled(clause.format("A B C", window)), table)
        grouped = rows_of(compiled(clause.format("A (B C)", window)), table)
        assert repr(rows) == repr(grouped)
        assert len(rows) >= before
        before = len(rows)
    assert before


def test_too_many_states_are_left_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "STATES_MAX", 3)
    clause = (
        "ORDER BY t MEASURES A.t AS a PATTERN (A B C) WITHIN 3 EVENT SELECTION SKIP TILL ANY MATCH"
    )
    match = compiled(clause)
    assert len(rows_of(match, constant(6))) == 3 * math.comb(3, 2) + math.comb(2, 2)
    assert match.selecting.searched == 1
    assert "more than 3 states" in match.selecting.describe()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "db") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        stream.append(random_table(random.Random(3), 300))
        yield database


CLAUSE = """FROM s MATCH_RECOGNIZE ({} ORDER BY t MEASURES A.y AS y, FIRST(x) AS x, C.t AS c
    PATTERN (A B C) WITHIN 30 EVENT SELECTION SKIP TILL ANY MATCH
    DEFINE A AS y > 0, B AS y = 1) AS m"""


@pytest.mark.parametrize(
    ("shown", "rest"),
    [
        ("count(*)", ""),
        ("count(*) AS n, count(x), min(y), max(m.x), count(DISTINCT y)", ""),
        ("sum(y), sum(m.y) AS s, count(y), sum(y) + 1", ""),
        ("k, sum(y)", "GROUP BY k HAVING sum(y) > 3 ORDER BY sum(y) DESC, k"),
        ("sum(DISTINCT y), sum(x)", ""),
        ("sum(y)", "WHERE y > 100"),
        ("count(*)", "WHERE y > 1"),
        ("count(*)", "WHERE y > 100"),
        ("k, count(*), count(*) * 2 + 1", "GROUP BY k HAVING count(*) > 3 ORDER BY count(*), k"),
        ("y, count(*)", "GROUP BY y ORDER BY y LIMIT 2"),
        ("count(*), max(c)", ""),  # the last event decides: listed
        ("sum(y), avg(x), count(*) FILTER (WHERE y = 1)", ""),
        ("count(*) OVER () AS n", "LIMIT 3"),
        ("y, c", "LIMIT 4 OFFSET 17"),
        ("y, c", "WHERE y = 2 LIMIT 4 OFFSET 17"),
        ("y, c", "ORDER BY c, y LIMIT 4 OFFSET 17"),
        ("(SELECT count(*) FROM s) AS n, c", "LIMIT 1 OFFSET 5"),
    ],
)
@pytest.mark.parametrize("partition", ["", "PARTITION BY k"])
def test_statements_give_the_same_with_lists_as_with_the_search(
    db: Any, shown: str, rest: str, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not partition and "k" in shown.split(", "):
        return
    text = f"SELECT {shown} {CLAUSE.format(partition)} {rest}"
    listed = db.sql(text).arrow()
    always_search(monkeypatch)
    searched = db.sql(text).arrow()
    assert listed.schema == searched.schema
    assert repr(listed.to_pylist()) == repr(searched.to_pylist())


def test_the_hint_of_former_versions_is_ignored_with_a_note(db: Any) -> None:
    text = f"count(*) {CLAUSE.format('')}"
    for value in ("auto", "lists", "tree", "search"):
        found = db.sql(f"SELECT /*+ selection({value}) */ {text}")
        note = f"the plan hint selection({value}) no longer exists and is ignored"
        assert found.notes == (note,)
        assert found.arrow() == db.sql(f"SELECT {text}").arrow()
        assert note in str(db.sql(f"EXPLAIN SELECT /*+ selection({value}) */ {text}").arrow())
    assert not db.sql(f"SELECT {text}").notes
    for hint in ("selection(trees)", "selection", "selections(lists)"):
        with pytest.raises(SqlError, match="the plan hint is"):
            db.sql(f"SELECT /*+ {hint} */ {text}")


def test_hundreds_of_rows_without_a_window_answer(db: Any) -> None:
    clause = (
        "FROM s MATCH_RECOGNIZE (ORDER BY t {} PATTERN ({}) EVENT SELECTION SKIP TILL ANY MATCH)"
    )
    text = "SELECT count(*) " + clause.format("", "A B C D E F")
    assert db.sql(text).fetchall() == [(math.comb(300, 6),)]
    with pytest.raises((SqlError, ResourceLimit), match=r"range|9223372036854775807"):
        db.sql("SELECT count(*) " + clause.format("", "A B+ C")).fetchall()
    numbered = clause.format("MEASURES MATCH_NUMBER() AS n, FIRST(t) AS t", "A B+ C")
    rows = db.sql(f"SELECT n {numbered} LIMIT 2 OFFSET 1000000000000").fetchall()
    assert rows == [(10**12 + 1,), (10**12 + 2,)]


def test_explain_says_whether_a_diagram_answers_and_why(db: Any) -> None:
    def explained(text: str) -> str:
        return str(db.sql("EXPLAIN ANALYZE " + text).arrow().to_pylist())

    counted = explained(f"SELECT count(*) {CLAUSE.format('')}")
    assert "diagram: every condition is about one event; counted, not listed" in counted
    assert "list entries" in counted
    rows = explained(f"SELECT y {CLAUSE.format('')} LIMIT 3 OFFSET 9")
    assert "from match 10 on" in rows
    across = CLAUSE.format("").replace("B AS y = 1", "B AS y > A.y")
    assert "diagram: joined: B with A" in explained(f"SELECT y {across}")
    many = CLAUSE.format("").replace("(A B C)", "(A{70} B C)")
    assert "search: the pattern has 72 positions" in explained(f"SELECT y {many}")


def test_a_value_that_cannot_be_computed_is_left_to_the_search(db: Any) -> None:
    text = CLAUSE.format("").replace("B AS y = 1", "B AS y // (y - 3) < 0")
    with pytest.raises(SqlError, match=r"cannot be computed|divides by zero"):
        db.sql(f"SELECT count(*) {text}").fetchall()


def test_many_labelings_of_one_set_give_the_preferred_one() -> None:
    names = "ABCDEFGH"
    table = pa.table(
        {
            "t": range(24), "k": ["p"] * 24, "x": [float(i % 5) for i in range(24)],
            "y": [i % 7 for i in range(24)],
        },
        schema=SCHEMA,
    )  # fmt: skip
    defined = ", ".join(f"{name} AS y <> {i}" for i, name in enumerate(names[:6]))
    clause = (
        "ORDER BY t MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH "
        "PATTERN (PERMUTE(A, B, C) (D | E) F?) WITHIN 7 "
        f"EVENT SELECTION SKIP TILL ANY MATCH DEFINE {defined}"
    )
    expected = rows_of(compiled(clause, search=True), table)
    assert rows_of(compiled(clause), table) == expected
    assert expected
