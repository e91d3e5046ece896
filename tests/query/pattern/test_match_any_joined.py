"""SKIP TILL ANY MATCH with conditions between variables: diagrams give the rows of the search.

The search of :mod:`chronicle.query.pattern.selection` is the twin; a naive self-join is the oracle
of plain sequences.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import ResourceLimit, SqlError
from chronicle.query.pattern import any_diagram
from chronicle.query.pattern.matcher import MatchLimits

from ...rounds import rounds
from .any_cases import (
    SCHEMA,
    always_search,
    compiled,
    paired_clause,
    random_table,
    rows_of,
)

CASES = rounds(16, 300, int(os.environ.get("CHRONICLE_PATTERNS", "20000")))


@pytest.mark.usefixtures("small_buffers")
@pytest.mark.parametrize("part", range(5))
def test_diagrams_give_the_rows_of_the_search_in_its_order(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {"diagram": 0, "search": 0}
    for seed in range(part * CASES // 5, (part + 1) * CASES // 5):
        r = random.Random(seed)
        clause = paired_clause(r, r.random() < 0.3)
        table = random_table(r, r.randint(0, 16))
        shown = (seed, clause, table.to_pylist())
        expected = rows_of(compiled(clause, search=True), table)
        for batch in (1, 3, 100):
            monkeypatch.setattr(any_diagram, "ENTRIES_FIRST", r.choice([4, 64, 1 << 13]))
            monkeypatch.setattr(any_diagram, "ENTRIES_MAX", r.choice([4, 1 << 17]))
            monkeypatch.setattr(any_diagram, "SLICE_STEPS", r.choice([2, 1 << 22]))
            match = compiled(clause)
            assert repr(rows_of(match, table, batch)) == repr(expected), (batch, *shown)
        taken[dict(match.details())["selection"].split(":")[0]] += 1
        numbered = clause.replace("ALL ROWS", "ONE ROW").replace(", CLASSIFIER() AS c", "")
        counted = rows_of(compiled(numbered, weighted=True), table, r.choice([1, 4, 100]))
        matches = rows_of(compiled(numbered, search=True), table)
        assert sum(row["mn"] for row in counted) == len(matches), shown
        skipped = r.randint(0, len(matches) + 2)
        rest = rows_of(compiled(numbered, skip=skipped), table, r.choice([1, 100]))
        assert rest == matches[skipped:], (skipped, *shown)
    assert taken["diagram"] > CASES // 16


def self_join(
    rows: list[dict[str, Any]], window: int, fits: Any, size: int
) -> list[tuple[int, ...]]:
    """Every ordered choice of rows that fits, in lexicographic order."""
    chosen = itertools.combinations(range(len(rows)), size)
    near = (c for c in chosen if rows[c[-1]]["t"] - rows[c[0]]["t"] <= window)
    return [c for c in near if fits(*(rows[i] for i in c))]


def test_sequences_are_self_joins() -> None:
    clause = (
        "ORDER BY t MEASURES A.n AS a, B.n AS b, C.n AS c, D.n AS d PATTERN (A B C D) WITHIN 12 "
        "EVENT SELECTION SKIP TILL ANY MATCH "
        "DEFINE B AS y > 0, C AS y = A.y AND x >= B.x, D AS y BETWEEN B.y - 1 AND B.y + 1"
    )

    def fits(a: Any, b: Any, c: Any, d: Any) -> bool:
        known = all(v is not None for v in (b["y"], a["y"], c["y"], c["x"], b["x"], d["y"]))
        if not known or b["y"] <= 0 or c["y"] != a["y"] or abs(d["y"] - b["y"]) > 1:
            return False
        return math.isnan(c["x"]) or (not math.isnan(b["x"]) and c["x"] >= b["x"])

    for seed in range(12):
        table = random_table(random.Random(seed), 24)
        table = table.append_column("n", pa.array(range(24)))
        rows = table.to_pylist()
        match = compiled(clause, table.schema)
        found = [tuple(row.values()) for row in rows_of(match, table)]
        assert found == self_join(rows, 12, fits, 4)


def stream(values: list[int]) -> pa.Table:
    count = len(values)
    return pa.table(
        {"t": range(count), "k": ["p"] * count, "x": [1.0] * count, "y": values}, schema=SCHEMA
    )


def counted(pattern: str, defined: str, table: pa.Table, window: str = "", **asked: Any) -> int:
    clause = (
        f"ORDER BY t MEASURES MATCH_NUMBER() AS n PATTERN ({pattern}) {window} "
        f"EVENT SELECTION SKIP TILL ANY MATCH DEFINE {defined}"
    )
    match = compiled(clause, weighted=True, **asked)
    return sum(row["n"] for row in rows_of(match, table))


def test_constant_streams_are_counted_exactly() -> None:
    table = stream([1] * 60)
    names = "ABCDEFGHIJ"
    every = ", ".join(f"{b} AS y = {a}.y" for a, b in itertools.pairwise(names))
    assert counted(" ".join(names[:6]), every.split(", F AS")[0] + ", F AS y = A.y", table) == (
        math.comb(60, 6)
    )
    assert counted("A B C D E F G H I J", "J AS y = A.y", table) == math.comb(60, 10)
    assert counted("A B C D E F G H I J", "J AS y = A.y, F AS x < C.x", table) == 0


def test_cyclic_conditions_and_one_tick() -> None:
    table = stream([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4])
    y = table["y"].to_pylist()
    exact = sum(
        y[c] > y[a] and y[d] > y[b] and y[d] == y[a]
        for a, b, c, d in itertools.combinations(range(len(y)), 4)
    )
    cyclic = "C AS y > A.y, D AS y > B.y AND y = A.y"
    assert counted("A B C D", cyclic, table) == exact
    at_once = table.set_column(0, "t", pa.array([7] * len(y)))
    assert counted("A B C D", cyclic, at_once, "WITHIN 1") == exact


def test_a_count_beyond_64_bits_is_an_error_and_the_first_rows_are_there_at_once() -> None:
    table = stream([i % 2 for i in range(400)])
    names = " ".join("ABCDEFGHIJKLM")
    with pytest.raises(ResourceLimit, match=r"9223372036854775807 .* begin at t = 0"):
        counted(names, "M AS y = A.y", table)
    clause = (
        f"ORDER BY t MEASURES M.t AS m PATTERN ({names}) EVENT SELECTION SKIP TILL ANY MATCH "
        "DEFINE M AS y = A.y"
    )
    first = next(iter(compiled(clause).run(table.to_batches())))
    assert first["m"][:3].to_pylist() == [12, 14, 16]
    far = next(iter(compiled(clause, skip=10**17).run(table.to_batches())))
    assert far.num_rows


def test_a_pair_that_overflows_is_for_the_search_to_judge() -> None:
    big = 2**62
    table = stream([big, big, 1, 2, big])
    clause = (
        "ORDER BY t MEASURES MATCH_NUMBER() AS n PATTERN (A B C) {} "
        "EVENT SELECTION SKIP TILL ANY MATCH DEFINE {}"
    )
    for defined in ("B AS y + A.y > 0", "C AS y + A.y + B.y > 0"):
        whole = compiled(clause.format("", defined))
        with pytest.raises(SqlError, match="overflows its integers"):
            rows_of(whole, table)
    # no B is as large as that, which the pairs of B and C do not know
    table = stream([5, big, big, 5, 7, 7])
    guarded = clause.format("", "B AS y = A.y, C AS y + B.y > 5")
    assert len(rows_of(compiled(guarded), table)) == 5


def test_a_condition_that_fails_for_no_first_event_is_no_error() -> None:
    """B and C whose sum overflows have no A."""
    big = 2**62
    table = stream([5, 1, big, 2, big, 7, 5, 5, 7, 7, 9])
    clause = (
        "ORDER BY t MEASURES A.t AS a, B.t AS b, C.t AS c, D.t AS d PATTERN (A B C D) WITHIN 20 "
        "EVENT SELECTION SKIP TILL ANY MATCH DEFINE A AS y < 100, B AS x > A.x - 1 AND y <= A.y, "
        "D AS y + B.y + C.y > 12 AND y < 100"
    )
    found = rows_of(compiled(clause), table)
    assert found == rows_of(compiled(clause, search=True), table)
    assert len(found) > 10


def test_lists_that_do_not_fit_are_an_error() -> None:
    clause = (
        "ORDER BY t MEASURES A.t AS a PATTERN (A B C D) EVENT SELECTION SKIP TILL ANY MATCH "
        "DEFINE D AS y <= A.y + B.y + C.y"
    )
    run = compiled(clause).run(
        stream([1] * 300).to_batches(), limits=MatchLimits(memory_bytes=4 << 20)
    )
    with pytest.raises(ResourceLimit, match=r"begin at t = 0 need more than 4194304 bytes"):
        list(run)


def test_entries_are_on_the_way_to_a_match_and_memory_is_that_of_a_few_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No dead ends: an entry ends a match or has another behind it; room is given back."""
    table = stream([(i * 7) % 11 for i in range(200)])
    clause = (
        "ORDER BY t MEASURES A.t AS a PATTERN (A B C D) WITHIN 40 "
        "EVENT SELECTION SKIP TILL ANY MATCH DEFINE C AS y = A.y, D AS y > B.y"
    )
    seen: list[tuple[int, int]] = []
    pieces = any_diagram.Source.pieces

    def looked_at(self: Any, check: Any) -> Iterator[Any]:
        for lists in pieces(self, check):
            used = int(lists.starts.max(initial=0)) + 1
            entries = lists.entries
            alive = (entries.child[1:used] > 0) | (entries.final[1:used] >= 0)
            assert alive.all()
            seen.append((used, len(entries.row)))
            yield lists

    monkeypatch.setattr(any_diagram.Source, "pieces", looked_at)
    monkeypatch.setattr(any_diagram, "ENTRIES_FIRST", 64)
    monkeypatch.setattr(any_diagram, "ENTRIES_MAX", 4096)
    found = rows_of(compiled(clause), table)
    assert len(found) == len(rows_of(compiled(clause, search=True), table)) > 10_000
    assert len(seen) > 3
    assert max(room for _, room in seen) <= 4096 * 4 + 1


def test_a_query_is_asked_whether_to_go_on_within_one_first_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(any_diagram, "SLICE_STEPS", 100)
    clause = (
        "ORDER BY t MEASURES A.t AS a PATTERN (A B C D) EVENT SELECTION SKIP TILL ANY MATCH "
        "DEFINE A AS y = 1, D AS y > B.y + C.y"
    )
    table = stream([1, *(i % 7 for i in range(2, 60))])
    asked = []

    def check() -> None:
        asked.append(1)
        if len(asked) > 5:
            raise ResourceLimit("stopped")

    run = compiled(clause).run(table.to_batches(), check=check)
    with pytest.raises(ResourceLimit, match="stopped"):
        next(iter(run))


def test_a_condition_less_gives_more_and_a_wider_window_too() -> None:
    table = random_table(random.Random(11), 60)
    clause = (
        "ORDER BY t MEASURES A.t AS a, B.t AS b, C.t AS c, D.t AS d, MATCH_NUMBER() AS n "
        "PATTERN (A B C D) WITHIN {} EVENT SELECTION SKIP TILL ANY MATCH DEFINE {}"
    )
    joined = ("C AS y = A.y AND x >= B.x", "C AS y = A.y", "C AS y > 0 OR true")
    for window in (6, 14):
        before: list[Any] = []
        for defined in joined:
            rows = rows_of(compiled(clause.format(window, defined)), table)
            sets = [tuple(row.values())[:4] for row in rows]
            assert not [one for one in before if sets.count(one) < before.count(one)]
            before = sets
        wider = rows_of(compiled(clause.format(window + 9, joined[2])), table)
        assert len(wider) > len(before)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "db") as database:
        made = database.create_stream("s", SCHEMA, time="t")
        made.append(random_table(random.Random(3), 300))
        yield database


CLAUSE = """FROM s MATCH_RECOGNIZE ({} ORDER BY t MEASURES A.y AS y, C.t AS c PATTERN (A B C D)
    WITHIN 30 EVENT SELECTION SKIP TILL ANY MATCH
    DEFINE A AS y > 0, C AS y = A.y, D AS x > B.x) AS m"""


@pytest.mark.parametrize(
    ("shown", "rest"),
    [
        ("count(*)", ""),
        ("y, count(*)", "GROUP BY y ORDER BY y"),
        ("count(*), max(c)", ""),
        ("y, c", "LIMIT 4 OFFSET 1700"),
        ("y, c", "ORDER BY c, y LIMIT 4 OFFSET 17"),
    ],
)
@pytest.mark.parametrize("partition", ["", "PARTITION BY k"])
def test_statements_give_the_same_with_a_diagram_as_with_the_search(
    db: Any, shown: str, rest: str, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"SELECT {shown} {CLAUSE.format(partition)} {rest}"
    found = db.sql(text).arrow()
    always_search(monkeypatch)
    searched = db.sql(text).arrow()
    assert found.schema == searched.schema
    assert found.to_pylist() == searched.to_pylist()


def test_explain_says_what_is_joined_and_what_forces_the_search(db: Any) -> None:
    def explained(text: str) -> str:
        return str(db.sql("EXPLAIN ANALYZE " + text).arrow().to_pylist())

    found = explained(f"SELECT count(*) {CLAUSE.format('')}")
    assert "diagram: joined: C with A, D with B; counted, not listed" in found
    assert "buffers listed" in found
    opaque = CLAUSE.format("").replace("x > B.x", "x > B.x AND sum(y) > 3")
    text = explained(f"SELECT y {opaque}")
    assert "search: the condition of D asks for more of the match than single events" in text
    anchored = CLAUSE.format("").replace("(A B C D)", "(^ A B C D)")
    assert "diagram: joined: C with A, D with B" in explained(f"SELECT y {anchored}")
