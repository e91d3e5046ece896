"""Patterns that ruin backtracking matchers: linear time, or an error that names the pattern.

Exponential work would take longer than the age of the machine: these tests end.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import QueryTimeout, ResourceLimit
from chronicle.query.pattern import matcher

from .conftest import over, run_clause


def matches(clause: str, table: pa.Table, **limits: int) -> int:
    return len(run_clause(clause, table, batch=4096, **limits))


def constant(n: int) -> pa.Table:
    return pa.table({"t": range(n), "x": pa.array(np.ones(n))})


@pytest.mark.parametrize("within", ["", " WITHIN 60"])
@pytest.mark.parametrize(
    ("pattern", "longest"),
    [
        ("(A?){25} A{25}", 50),
        ("(A?){40} A{40}", 80),  # more positions than a word has bits
        ("(A?){40} A{40} B", 0), ("((A*)*)* B", 0), ("(A+)+ B", 0), ("((A | A)+)+ B", 0),
        ("(A | A A)+ B", 0), ("(A* A*)* B", 0), ("A* B", 0), ("A+ A+ A+ A+ B", 0),
        ("(A{1,9}){1,9} B", 0), ("B", 0),
    ],
)  # fmt: skip
def test_killers_take_steps_in_proportion_to_the_rows(
    steps: list[int], pattern: str, longest: int, within: str
) -> None:
    """``longest``: events of each match, 0 if there is none."""
    text = f"ORDER BY t MEASURES FIRST(t) AS a PATTERN ({pattern}){within} DEFINE A AS x = 1"
    text = text.replace("A AS x = 1", "B AS x = 2") if pattern == "B" else text
    text += ", B AS x = 2" if "A" in pattern and "B" in pattern else ""
    taken = []
    for rows in (2_000, 4_000):
        steps.clear()
        found = matches(text, constant(rows))
        assert bool(found) == bool(longest)
        if longest and not within:
            assert found == rows // longest
        taken.append(sum(steps))
        assert len(steps) > 0
    # quadratic work would add millions; the rows that are left over at the end, thousands
    assert taken[1] <= 2.1 * taken[0] + 100_000, taken


def test_greedy_star_from_every_row_is_linear_without_a_window() -> None:
    x = np.ones(50_000)
    x[-1] = 2
    table = pa.table({"t": range(50_000), "x": x})
    text = """ORDER BY t MEASURES FIRST(t) AS a AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A+ B C) DEFINE A AS x = 1, B AS x = 2"""
    assert matches(text, table) == 0


def test_path_dependent_killers_meet_their_budget() -> None:
    text = """ORDER BY t MEASURES FIRST(t) AS a PATTERN ((A | B)+ C)
        DEFINE A AS x = FIRST(A.x), B AS x = FIRST(x), C AS x > A.x"""
    with pytest.raises(
        ResourceLimit, match=r"pattern \(A \| B\)\+ C tried more than 100000 .* t = 0"
    ):
        matches(text, constant(100), steps_max=100_000)


def test_many_starts_with_many_ways_meet_the_budget_of_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of no start too much is asked, nor of a slice of the search, but of all of them."""
    monkeypatch.setattr(matcher, "STEPS_A_ROW", 10)
    monkeypatch.setattr(matcher, "SLICE_STEPS", 1000)
    text = """ORDER BY t MEASURES FIRST(t) AS a AFTER MATCH SKIP TO NEXT ROW PATTERN (A* B* C)
        DEFINE C AS x > FIRST(x)"""
    with pytest.raises(
        ResourceLimit, match=r"A\* B\* C tried more than 53,000 states for 300 rows.*WITHIN"
    ):
        matches(text, constant(300), query_steps_max=50_000)
    assert matches(text, constant(300), query_steps_max=50_000_000) == 0


def test_a_path_that_grows_without_end_meets_the_memory_budget(monkeypatch: Any) -> None:
    text = "ORDER BY t MEASURES FIRST(t) AS a PATTERN (A+ B) DEFINE A AS x >= A.x, B AS x > 2"
    with pytest.raises(ResourceLimit, match=r"pattern A\+ B"):
        matches(text, constant(300_000), memory_bytes=1 << 20)
    monkeypatch.setattr("chronicle.query.pattern.measures.VALUES_BYTES_MAX", 99)
    with pytest.raises(ResourceLimit, match="for every row of a match take"):
        matches("MEASURES FINAL array_agg(x) AS l ALL ROWS PER MATCH PATTERN (A+)", constant(9))


@pytest.mark.parametrize("selection", ["", " EVENT SELECTION SKIP TILL ANY MATCH"])
def test_time_limits_are_asked_for_during_the_search_of_one_start(selection: str) -> None:
    text = f"""ORDER BY t MEASURES FIRST(t) AS a PATTERN (A (B | C)+ D){selection}
        DEFINE A AS t = 0, B AS x = FIRST(x), C AS x = FIRST(x), D AS x > A.x"""
    check = Mock(side_effect=[None, None, QueryTimeout("over")])
    with pytest.raises(QueryTimeout):
        list(over(text, constant(1)).run(constant(100).to_batches(), check=check))


@pytest.mark.parametrize(
    "text",
    [
        "A B) DEFINE B AS x = 1", "A B+) DEFINE B AS x = 1",
        "A (B | C)+ A) DEFINE A AS x >= avg(x), B AS x > A.x, C AS x < LAST(A.x)",
        "A (B | C)+ A) WITHIN 5 EVENT SELECTION SKIP TILL ANY MATCH DEFINE A AS x >= avg(x)",
    ],
)  # fmt: skip
def test_a_search_in_slices_finds_the_same(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    table = pa.table({"t": range(99), "x": np.random.default_rng(1).integers(0, 3, 99)})
    clause = f"ORDER BY t MEASURES A.t AS a, sum(t) AS sum PATTERN ({text}"
    found = run_clause(clause, table)
    for name in ("SLICE_STEPS", "SLOW_SLICE_STEPS"):
        monkeypatch.setattr(matcher, name, 7)
    assert run_clause(clause, table) == found != []


@pytest.mark.parametrize("within", ["", " WITHIN 300"])
@pytest.mark.parametrize("pattern", ["A Z* B", "A Z*? B", "A A Z* B Z* B B"])
def test_work_at_stars_does_not_grow_with_the_window(
    steps: list[int], pattern: str, within: str
) -> None:
    rng = np.random.default_rng(7)
    for rows in (5_000, 20_000):
        table = pa.table({"t": range(rows), "x": rng.integers(0, 10, rows)})
        clause = (
            "ORDER BY t MEASURES FIRST(t) AS a, LAST(t) AS b, count(Z.*) AS n AFTER MATCH SKIP TO "
            f"NEXT ROW PATTERN ({pattern}){within} DEFINE A AS x < 4, B AS x >= 8"
        )
        steps.clear()
        assert matches(clause, table) > 0
        # event by event a match alone takes hundreds of steps, without a window thousands
        assert 0 < sum(steps) < 30 * rows


def test_conditions_on_the_first_row_try_each_state_once_per_start(steps: list[int]) -> None:
    random = np.random.default_rng(1)
    taken = []
    for rows in (1_000, 2_000):
        k = random.permutation(np.arange(rows) % 4)
        k[0] = 0
        table = pa.table({"t": range(rows), "k": k, "x": random.normal(size=rows)})
        steps.clear()
        text = """ORDER BY t MEASURES R.t AS r PATTERN (^ R Z* B Y* M) DEFINE R AS k = 0,
            B AS k = 1 AND abs(B.x - R.x) < 2, M AS k = 2 AND M.x > R.x + 100"""
        assert matches(text, table) == 0
        taken.append(sum(steps))
    assert taken[1] <= 2.2 * taken[0] + 10_000, taken


@pytest.mark.parametrize("seed", range(40))
def test_states_tried_once_per_start_leave_the_same_matches(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    rows = int(random.integers(5, 60))
    table = pa.table(
        {
            "t": np.sort(random.integers(0, 40, rows)),
            "k": random.integers(0, 4, rows),
            "x": random.integers(0, 4, rows),
        }
    )
    pattern = str(
        random.choice(
            ["R Z* B Y* M", "R Z*? B Y*? M", "R (B | M | Z)* M B", "R (B+ M?)+ Z M", "R (Z B*)* M"]
        )
    )
    within = str(random.choice(["", "WITHIN 9"]))
    skip = str(random.choice(["PAST LAST ROW", "TO NEXT ROW", "TO LAST B"]))
    define = "R AS k = 0, B AS k = 1 AND B.x >= R.x - 1, M AS M.x > R.x AND M.k <> PREV(M.k)"
    text = f"""ORDER BY t MEASURES match_number() AS n, classifier() AS c ALL ROWS PER MATCH
        AFTER MATCH SKIP {skip} PATTERN ({pattern}) {within} DEFINE {define}"""

    def results() -> Any:
        compiled = over(text, table)
        assert matcher.decided_by_start(compiled) == remembers
        try:
            return [b.to_pylist() for b in compiled.run(table.to_batches(max_chunksize=7))]
        except Exception as error:  # SKIP TO LAST B where no B matched
            return str(error)

    remembers = True
    expected = results()
    remembers = False
    monkeypatch.setattr(matcher, "decided_by_start", lambda compiled: False)
    assert results() == expected


@pytest.mark.parametrize(
    ("pattern", "define"),
    [
        ("R+ B M", "M AS M.x > R.x"),  # the last R is not the start
        ("(R | B) Z* M", "M AS M.x > R.x"),  # it may have been a B
        ("R B M R", "M AS M.x > R.x"),
        ("R B+ M", "M AS M.x > B.x"),
        ("R B* M", "M AS sum(B.x) > 2"),
        ("R B* M", "M AS PREV(CLASSIFIER()) = 'B'"),
        ("R B* M", "B AS B.x > LAST(B.x, 1)"),
    ],
)
def test_conditions_that_see_more_of_the_path(pattern: str, define: str) -> None:
    text = f"ORDER BY t MEASURES FIRST(t) AS a PATTERN ({pattern}) DEFINE {define}"
    assert not matcher.decided_by_start(over(text, constant(1)))
