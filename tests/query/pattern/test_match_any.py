"""SKIP TILL ANY MATCH by diagrams: the rows of the search, in its order, and counts without it.

The search of :mod:`chronicle.query.pattern.selection` is the twin; it is compared with the
brute-force oracle in :mod:`test_match_differential`.  Sums over sets and a naive self-join are
oracles of plain streams.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import ResourceLimit, SqlError
from chronicle.query.pattern import any_diagram, any_output, any_states
from chronicle.query.pattern.matcher import MatchLimits

from ...rounds import rounds
from .any_cases import (
    SCHEMA,
    always_search,
    compiled,
    paired_clause,
    random_table,
    row_clause,
    rows_of,
)

CASES = rounds(10, 300, int(os.environ.get("CHRONICLE_PATTERNS", "20000")))


def cut_small(r: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Arrays as small as they go."""
    for module, name, values in (
        (any_output, "MATCHES_MAX", [1, 3, 1 << 14]),
        (any_output, "MATCHES_FIRST", [1, 3]),
        (any_diagram, "ENTRIES_FIRST", [4, 64, 1 << 13]),
        (any_diagram, "ENTRIES_MAX", [4, 1 << 17]),
        (any_diagram, "SLICE_STEPS", [2, 1 << 22]),
    ):
        patch.setattr(module, name, r.choice(values))


@pytest.mark.usefixtures("small_buffers")
@pytest.mark.parametrize("clause_of", [row_clause, paired_clause])
@pytest.mark.parametrize("part", range(2))
def test_diagrams_give_the_rows_of_the_search_in_its_order(
    part: int, clause_of: Callable[[random.Random, bool], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {"diagram": 0, "search": 0}
    for seed in range(part * CASES // 2, (part + 1) * CASES // 2):
        r = random.Random(seed)
        clause = clause_of(r, r.random() < 0.3)
        table = random_table(r, r.randint(0, 16))
        shown = (seed, clause, table.to_pylist())
        try:
            expected = rows_of(compiled(clause, search=True), table)
        except SqlError as error:
            assert "[^" in str(error), shown  # noqa: PT017
            continue
        numbered = clause.replace("ALL ROWS", "ONE ROW").replace(", CLASSIFIER() AS c", "")
        matches = rows_of(compiled(numbered, search=True), table)
        for batch in (1, 3, 100):
            cut_small(r, monkeypatch)
            match = compiled(clause)
            # NaN is no equal of itself
            assert repr(rows_of(match, table, batch)) == repr(expected), (batch, *shown)
            counted = rows_of(compiled(numbered, weighted=True), table, batch)
            assert sum(row["mn"] for row in counted) == len(matches), (batch, *shown)
            skipped = r.randint(0, len(matches) + 2)
            rest = rows_of(compiled(numbered, skip=skipped), table, batch)
            assert repr(rest) == repr(matches[skipped:]), (skipped, batch, *shown)
        taken[dict(match.details())["selection"].split(":")[0]] += 1
    assert taken["diagram"] > sum(taken.values()) // 4


def self_join(
    rows: list[dict[str, Any]], window: int, fits: Any, size: int
) -> list[tuple[int, ...]]:
    """Every ordered choice of rows that fits, in lexicographic order."""
    chosen = itertools.combinations(range(len(rows)), size)
    near = (c for c in chosen if rows[c[-1]]["t"] - rows[c[0]]["t"] <= window)
    return [c for c in near if fits(*(rows[i] for i in c))]


def test_sequences_are_self_joins() -> None:
    clause = (
        "ORDER BY t MEASURES A.n AS a, B.n AS b, C.n AS c, D.n AS d, LAST(n) AS l, "
        "CLASSIFIER() AS e PATTERN (A B C D) WITHIN 12 EVENT SELECTION SKIP TILL ANY MATCH "
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
        assert found == [(*at, at[-1], "D") for at in self_join(rows, 12, fits, 4)]


def stream(values: list[int]) -> pa.Table:
    count = len(values)
    return pa.table(
        {"t": range(count), "k": ["p"] * count, "x": [1.0] * count, "y": values}, schema=SCHEMA
    )


def counted(pattern: str, table: pa.Table, defined: str = "A AS x = 1", window: str = "") -> int:
    clause = (
        f"ORDER BY t MEASURES MATCH_NUMBER() AS n PATTERN ({pattern}) {window} "
        f"EVENT SELECTION SKIP TILL ANY MATCH DEFINE {defined}"
    )
    return sum(row["n"] for row in rows_of(compiled(clause, weighted=True), table))


def test_constant_streams_are_counted_exactly_by_sets_not_by_labelings() -> None:
    names = " ".join("ABCDEFGHIJ")
    for n in (10, 60):
        table = stream([1] * n)
        within = sum(math.comb(min(40, n - 1 - s), 9) for s in range(n))
        assert counted(names, table, window="WITHIN 40") == within
        for defined in ("A AS x = 1", "J AS y = A.y", "F AS y = A.y, J AS y = E.y"):
            assert counted(names, table, defined) == math.comb(n, 10)
    n, table = 40, stream([1] * 40)
    assert counted(names, table, "J AS y = A.y, F AS x < C.x") == 0
    assert counted("A+", table) == counted("A B* C*", table) == 2**n - 1
    assert counted("(A | B) C", table) == math.comb(n, 2)
    assert counted("PERMUTE(A, B, C)", table) == math.comb(n, 3)
    assert counted("A{2,4}", table) == sum(math.comb(n, j) for j in (2, 3, 4))
    assert counted("(A B)+", table) == sum(math.comb(n, j) for j in range(2, n + 1, 2))


def test_cyclic_conditions_and_one_tick() -> None:
    table = stream([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4])
    y = table["y"].to_pylist()
    exact = sum(
        y[c] > y[a] and y[d] > y[b] and y[d] == y[a]
        for a, b, c, d in itertools.combinations(range(len(y)), 4)
    )
    cyclic = "C AS y > A.y, D AS y > B.y AND y = A.y"
    assert counted("A B C D", table, cyclic) == exact
    at_once = table.set_column(0, "t", pa.array([7] * len(y)))
    assert counted("A B C D", at_once, cyclic, "WITHIN 1") == exact


def test_a_count_beyond_64_bits_is_an_error_with_its_event() -> None:
    assert counted("A+", stream([1] * 63)) == 2**63 - 1
    with pytest.raises(ResourceLimit, match=r"9223372036854775807 .* A\+ begin at t = 0"):
        counted("A+", stream([1] * 64))
    with pytest.raises(ResourceLimit, match=r"9223372036854775807 .* begin at t = 0"):
        counted(" ".join("ABCDEFGHIJKLM"), stream([1, 0] * 200), "M AS y = A.y")


def test_the_nth_match_is_reached_without_those_before() -> None:
    clause = (
        "ORDER BY t MEASURES MATCH_NUMBER() AS n, A.t AS a, B.t AS b, C.t AS c PATTERN (A B C) {} "
        "EVENT SELECTION SKIP TILL ANY MATCH"
    )
    for window, reach in (("", 100), ("WITHIN 40", 40)):
        sets = (
            (a, b, c)
            for a, b in itertools.combinations(range(100), 2)
            for c in range(b + 1, min(99, a + reach) + 1)
        )
        listed = sorted(sets)
        for skip in (0, len(listed) // 3, len(listed) - 2, len(listed)):
            found = compiled(clause.format(window), skip=skip).run(stream([1] * 100).to_batches())
            batches: Iterator[pa.RecordBatch] = itertools.islice(found, 1)
            rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()][:5]
            assert rows == [(skip + i + 1, *one) for i, one in enumerate(listed[skip : skip + 5])]


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
    asked = []

    def check() -> None:
        asked.append(1)
        if len(asked) > 5:
            raise ResourceLimit("stopped")

    table = stream([1, *(i % 7 for i in range(2, 60))])
    with pytest.raises(ResourceLimit, match="stopped"):
        next(iter(compiled(clause).run(table.to_batches(), check=check)))


def test_too_many_states_are_left_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_states, "STATES_MAX", 3)
    clause = (
        "ORDER BY t MEASURES A.t AS a PATTERN (A B C) WITHIN 3 EVENT SELECTION SKIP TILL ANY MATCH"
    )
    match = compiled(clause)
    assert len(rows_of(match, stream([1] * 6))) == 3 * math.comb(3, 2) + math.comb(2, 2)
    assert match.selecting.searched == 1
    assert "more than 3 states" in match.selecting.describe()


def test_many_labelings_of_one_set_give_the_preferred_one() -> None:
    names = "ABCDEFGH"
    table = stream([i % 7 for i in range(24)])
    defined = ", ".join(f"{name} AS y <> {i}" for i, name in enumerate(names[:6]))
    clause = (
        "ORDER BY t MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH "
        "PATTERN (PERMUTE(A, B, C) (D | E) F?) WITHIN 7 "
        f"EVENT SELECTION SKIP TILL ANY MATCH DEFINE {defined}"
    )
    expected = rows_of(compiled(clause, search=True), table)
    assert rows_of(compiled(clause), table) == expected
    assert expected


# -- batches --------------------------------------------------------------------------------------

CLAUSE = (
    "ORDER BY t MEASURES A.t AS a, B.t AS b, LAST(t) AS z, MATCH_NUMBER() AS n PATTERN ({}) {} "
    "EVENT SELECTION SKIP TILL ANY MATCH {}"
)


def test_a_query_that_is_to_end_ends() -> None:
    asked = threading.Event()

    def check() -> None:
        if asked.is_set():
            raise ResourceLimit("stopped")

    match = compiled(CLAUSE.format(" ".join("ABCDEFGH"), "", ""))
    running = match.run(stream([1] * 200).to_batches(), check=check)
    taken = 0
    while taken < 300_000:
        taken += next(running).num_rows
    asked.set()
    with pytest.raises(ResourceLimit, match="stopped"):
        list(itertools.islice(running, 100))


def first_matches(names: str) -> Iterator[pa.RecordBatch]:
    """Batches with the first 400,000 matches."""
    match = compiled(CLAUSE.format(" ".join(names), "", ""))
    rows = 0
    for batch in match.run(stream([1] * 100).to_batches()):
        yield batch
        rows += batch.num_rows
        if rows > 400_000:
            return


def test_memory_does_not_grow_with_the_matches() -> None:
    """Of 4e6 and of 1e13 matches two batches are there at a time: one made, one taken."""
    for _ in first_matches("ABCD"):  # compiled
        pass
    matches_max = 4 * any_output.MATCHES_MAX
    for names in ("ABCD", "ABCDEFGHIJ"):
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        results = max(pa.total_allocated_bytes() - before for _ in first_matches(names))
        arrays = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert results <= matches_max * 32  # four whole numbers each
        assert arrays <= matches_max * (len(names) * 24 + 60)


# -- statements -----------------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "db") as database:
        made = database.create_stream("s", SCHEMA, time="t")
        made.append(random_table(random.Random(3), 300))
        yield database


ALONE = """FROM s MATCH_RECOGNIZE ({} ORDER BY t MEASURES A.y AS y, FIRST(x) AS x, C.t AS c
    PATTERN (A B C) WITHIN 30 EVENT SELECTION SKIP TILL ANY MATCH
    DEFINE A AS y > 0, B AS y = 1) AS m"""
JOINED = """FROM s MATCH_RECOGNIZE ({} ORDER BY t MEASURES A.y AS y, FIRST(x) AS x, C.t AS c
    PATTERN (A B C D) WITHIN 30 EVENT SELECTION SKIP TILL ANY MATCH
    DEFINE A AS y > 0, C AS y = A.y, D AS x > B.x) AS m"""


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
@pytest.mark.parametrize("clause", [ALONE, JOINED])
def test_statements_give_the_same_with_a_diagram_as_with_the_search(
    db: Any, shown: str, rest: str, partition: str, clause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not partition and "k" in shown.split(", "):
        return
    text = f"SELECT {shown} {clause.format(partition)} {rest}"
    listed = db.sql(text).arrow()
    always_search(monkeypatch)
    searched = db.sql(text).arrow()
    assert listed.schema == searched.schema
    assert repr(listed.to_pylist()) == repr(searched.to_pylist())


def test_the_hint_of_former_versions_is_ignored_with_a_note(db: Any) -> None:
    text = f"count(*) {ALONE.format('')}"
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
    def explained(shown: str, clause: str, rest: str = "") -> str:
        text = f"EXPLAIN ANALYZE SELECT {shown} {clause.format('')} {rest}"
        return str(db.sql(text).arrow().to_pylist())

    text = explained("count(*)", ALONE)
    assert "diagram: every condition is about one event; counted, not listed" in text
    assert "list entries" in text
    assert "buffers listed" in text
    assert "from match 10 on" in explained("y", ALONE, "LIMIT 3 OFFSET 9")
    text = explained("count(*)", JOINED)
    assert "diagram: joined: C with A, D with B; counted, not listed" in text
    anchored = JOINED.replace("(A B C D)", "(^ A B C D)")
    assert "diagram: joined: C with A, D with B" in explained("y", anchored)
    many = ALONE.replace("(A B C)", "(A{{70}} B C)")
    assert "search: the pattern has 72 positions" in explained("y", many)
    opaque = JOINED.replace("x > B.x", "x > B.x AND sum(y) > 3")
    text = explained("y", opaque)
    assert "search: the condition of D asks for more of the match than single events" in text


def test_a_value_that_cannot_be_computed_is_left_to_the_search(db: Any) -> None:
    text = ALONE.format("").replace("B AS y = 1", "B AS y // (y - 3) < 0")
    with pytest.raises(SqlError, match=r"cannot be computed|divides by zero"):
        db.sql(f"SELECT count(*) {text}").fetchall()
