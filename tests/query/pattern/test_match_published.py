"""Examples that others publish, as data: the queries' essence and the rows they are known to give."""

# ruff: noqa: E501

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

ACME = [12, 17, 19, 21, 25, 12, 15, 20, 24, 25, 19, 15, 25, 25, 14, 12, 14, 24, 23, 22]
V_SHAPE = """
    ORDER BY t {measures} ALL ROWS PER MATCH AFTER MATCH SKIP TO LAST UP PATTERN (STRT DOWN+ UP+)
    DEFINE DOWN AS DOWN.price < PREV(DOWN.price), UP AS UP.price > PREV(UP.price)
"""


@pytest.fixture
def acme() -> pa.Table:
    """The prices of ACME in April, by day: the first example of Oracle's documentation."""
    return pa.table({"t": range(1, 21), "price": ACME})


def test_oracle_all_rows_per_v_shape(match: Any, acme: pa.Table) -> None:
    measures = """MEASURES STRT.t AS start_day, FINAL LAST(DOWN.t) AS bottom_day,
        FINAL LAST(UP.t) AS end_day, MATCH_NUMBER() AS n, CLASSIFIER() AS label"""
    rows = match(V_SHAPE.format(measures=measures), acme)
    found = [
        (r["t"], r["start_day"], r["bottom_day"], r["end_day"], r["n"], r["label"]) for r in rows
    ]
    assert found == [
        *[(d, 5, 6, 10, 1, label) for d, label in zip(range(5, 11), ["STRT", "DOWN"] + ["UP"] * 4, strict=True)],
        *[(d, 10, 12, 13, 2, label) for d, label in zip(range(10, 14), ["STRT", "DOWN", "DOWN", "UP"], strict=True)],
        *[(d, 14, 16, 18, 3, label) for d, label in zip(range(14, 19), ["STRT", "DOWN", "DOWN", "UP", "UP"], strict=True)],
    ]  # fmt: skip


def test_oracle_running_and_final_counts(match: Any, acme: pa.Table) -> None:
    measures = """MEASURES FINAL COUNT(UP.t) AS up_days, FINAL COUNT(t) AS total_days,
        RUNNING COUNT(t) AS cnt_days, price - STRT.price AS price_dif"""
    rows = match(V_SHAPE.format(measures=measures), acme)
    found = [(r["t"], r["up_days"], r["total_days"], r["cnt_days"], r["price_dif"]) for r in rows]
    assert found == [
        (5, 4, 6, 1, 0), (6, 4, 6, 2, -13), (7, 4, 6, 3, -10), (8, 4, 6, 4, -5), (9, 4, 6, 5, -1),
        (10, 4, 6, 6, 0), (10, 1, 4, 1, 0), (11, 1, 4, 2, -6), (12, 1, 4, 3, -10), (13, 1, 4, 4, 0),
        (14, 2, 5, 1, 0), (15, 2, 5, 2, -11), (16, 2, 5, 3, -13), (17, 2, 5, 4, -11), (18, 2, 5, 5, -1),
    ]  # fmt: skip


def test_oracle_w_shape(match: Any, acme: pa.Table) -> None:
    rows = match(
        """ORDER BY t MEASURES STRT.t AS start_day, UP.t AS end_day, MATCH_NUMBER() AS n
        ONE ROW PER MATCH AFTER MATCH SKIP TO LAST UP PATTERN (STRT DOWN+ UP+ DOWN+ UP+)
        DEFINE DOWN AS DOWN.price < PREV(DOWN.price), UP AS UP.price > PREV(UP.price)""",
        acme,
    )
    assert [tuple(row.values()) for row in rows] == [(5, 13, 1)]


TRINO = {"id": range(1, 9), "value": [90, 80, 70, 80, 90, 50, 40, 60]}


@pytest.fixture
def values() -> pa.Table:
    """The values of Trino's tests of the clause."""
    return pa.table({key: pa.array(data, pa.int64()) for key, data in TRINO.items()})


TRINO_BODY = "DEFINE B AS B.value < PREV(B.value), C AS C.value > PREV(C.value)"


def test_trino_empty_and_unmatched_rows(match: Any) -> None:
    table = pa.table({"id": [1, 2, 3, 4], "value": [90, 80, 70, 100]})
    body = "PATTERN (B*) DEFINE B AS B.value < PREV(B.value)"
    measures = "ORDER BY id MEASURES MATCH_NUMBER() AS m, CLASSIFIER() AS c"
    rows = match(f"{measures} ALL ROWS PER MATCH SHOW EMPTY MATCHES {body}", table, time="id")
    assert [(r["id"], r["m"], r["c"]) for r in rows] == [
        (1, 1, None), (2, 2, "B"), (3, 2, "B"), (4, 3, None),
    ]  # fmt: skip
    rows = match(f"{measures} ALL ROWS PER MATCH OMIT EMPTY MATCHES {body}", table, time="id")
    assert [(r["id"], r["m"], r["c"]) for r in rows] == [(2, 2, "B"), (3, 2, "B")]
    rows = match(
        f"{measures} ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (B+) "
        "DEFINE B AS B.value < PREV(B.value)",
        table,
        time="id",
    )
    assert [(r["id"], r["m"], r["c"]) for r in rows] == [
        (1, None, None), (2, 1, "B"), (3, 1, "B"), (4, None, None),
    ]  # fmt: skip


def test_trino_exclusion_hides_rows_but_counts_them(match: Any, values: pa.Table) -> None:
    rows = match(
        f"""ORDER BY id MEASURES CLASSIFIER() AS c, count(*) AS n ALL ROWS PER MATCH
        PATTERN (A {{- B+ -}} C+) {TRINO_BODY}""",
        values,
        time="id",
    )
    assert [(r["id"], r["c"], r["n"]) for r in rows] == [
        (1, "A", 1), (4, "C", 4), (5, "C", 5), (6, "A", 1), (8, "C", 3),
    ]  # fmt: skip


def test_trino_subset_and_classifier_navigation(match: Any, values: pa.Table) -> None:
    rows = match(
        f"""ORDER BY id MEASURES CLASSIFIER(U) AS cu, LAST(CLASSIFIER(U), 1) AS before,
        PREV(CLASSIFIER()) AS prev, FIRST(U.value) AS first, sum(U.value) AS total
        ALL ROWS PER MATCH PATTERN (A B+ C+) SUBSET U = (B, C) {TRINO_BODY}""",
        values.slice(0, 5),
        time="id",
    )
    assert [(r["cu"], r["before"], r["prev"], r["first"], r["total"]) for r in rows] == [
        (None, None, None, None, None), ("B", None, "A", 80, 80), ("B", "B", "B", 80, 150),
        ("C", "B", "B", 80, 230), ("C", "C", "C", 80, 320),
    ]  # fmt: skip


def test_trino_preference_in_permute_and_alternation(match: Any) -> None:
    table = pa.table({"id": [1, 2, 3], "value": [100, 200, 300]})
    rows = match(
        "ORDER BY id MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH PATTERN (PERMUTE(A, B, C)) "
        "DEFINE A AS value > 0, B AS value > 100",
        table,
        time="id",
    )
    assert [r["c"] for r in rows] == ["A", "B", "C"]
    rows = match(
        "ORDER BY id MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH PATTERN (() | A | B C)",
        table,
        time="id",
    )
    assert [r["c"] for r in rows] == [None, None, None]


FIGURE = pa.table({"t": range(1, 7), "e": ["a1", "b1", "a2", "c1", "b2", "c2"]})


@pytest.mark.parametrize(
    ("strategy", "matches"),
    [
        ("CONTIGUOUS", ["a2 c1"]),
        ("SKIP TILL NEXT MATCH", ["a1 b1 c1", "a2 c1"]),
        (
            "SKIP TILL ANY MATCH",
            ["a1 b1 c1", "a1 b1 b2 c2", "a1 b1 c2", "a1 c1", "a1 b2 c2", "a1 c2", "a2 c1", "a2 b2 c2", "a2 c2"],
        ),
    ],
)  # fmt: skip
def test_figure_2_6_of_the_thesis(match: Any, strategy: str, matches: list[str]) -> None:
    rows = match(
        f"""ORDER BY t MEASURES string_agg(e, ' ') AS events PATTERN (A B* C)
        EVENT SELECTION {strategy} DEFINE A AS e LIKE 'a%', B AS e LIKE 'b%', C AS e LIKE 'c%'""",
        FIGURE,
    )
    assert [r["events"] for r in rows] == matches
