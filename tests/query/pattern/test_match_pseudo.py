"""Anchors anywhere, the empty pattern, and aggregates over CLASSIFIER() and MATCH_NUMBER()."""

from __future__ import annotations

import random

import pytest

import chronicle


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with chronicle.open(tmp_path_factory.mktemp("store")) as database:
        for name in ("s", "r"):
            database.sql(f"CREATE STREAM {name} (t BIGINT, x BIGINT, k VARCHAR) TIMESTAMP BY t")
        database.sql(
            "INSERT INTO s VALUES (1, 1, 'a'), (2, 5, 'b'), (3, 2, 'a'), (4, 6, 'b'), (5, 3, 'c'), "
            "(6, 1, 'a')"
        )
        rng = random.Random(2)
        rows = ", ".join(
            f"({t}, {rng.choice(['NULL', *map(str, range(9))])}, '{rng.choice('abc')}')"
            for t in range(400)
        )
        database.sql(f"INSERT INTO r VALUES {rows}")
        yield database


def match(
    database, pattern, define="", measures="FIRST(t) AS f, LAST(t) AS l", stream="s", rows=""
):
    define = f"DEFINE {define}" if define else ""
    return database.sql(
        f"SELECT * FROM {stream} MATCH_RECOGNIZE (ORDER BY t MEASURES {measures} {rows} "
        f"PATTERN ({pattern}) {define})"
    ).fetchall()


LOW = "A AS x < 6"
BOTH = "A AS x < 6, B AS x > 4"


@pytest.mark.parametrize(
    ("pattern", "define", "spans"),
    [
        ("A$", LOW, [(6, 6)]),
        ("A+$", LOW, [(5, 6)]),
        ("A$|B", BOTH, [(2, 2), (4, 4), (6, 6)]),
        ("^*A", LOW, [(1, 1), (2, 2), (3, 3), (5, 5), (6, 6)]),
        ("^+ A", LOW, [(1, 1)]),
        ("^{2} A", LOW, [(1, 1)]),
        ("$? A", LOW, [(1, 1), (2, 2), (3, 3), (5, 5), (6, 6)]),
        ("(^A)+", LOW, [(1, 1)]),
        ("(A$)+", LOW, [(6, 6)]),
        ("(^A|B)+", BOTH, [(1, 2), (4, 4)]),
        ("(^ A)* B", BOTH, [(1, 2), (4, 4)]),
        ("(A $)* B", BOTH, [(2, 2), (4, 4)]),
        ("(A|^)+ B", BOTH, [(1, 4)]),
        ("A^", LOW, []),
        ("(A B$)+", BOTH, []),
        ("($)", "", []),
        ("(^)*", "", [(None, None)] * 6),
        ("", "", [(None, None)] * 6),
        (" ", "", [(None, None)] * 6),
        ("()", "", [(None, None)] * 6),
    ],
)
def test_anchors_and_the_empty_pattern(database, pattern, define, spans):
    assert match(database, pattern, define) == spans


def test_a_dollar_belongs_to_a_name_only_within_quotes(database):
    assert match(database, '"A$"+', '"A$" AS x < 6') == [(1, 3), (5, 6)]


def test_measures_over_the_number_of_the_match(database):
    measures = (
        "max(MATCH_NUMBER()) AS a, sum(x * MATCH_NUMBER()) AS b, count(MATCH_NUMBER()) AS c, "
        "max(B.x + MATCH_NUMBER()) AS d, array_agg(MATCH_NUMBER()) AS e, "
        "sum(x) FILTER (WHERE MATCH_NUMBER() > 1) AS f"
    )
    assert match(database, "A B?", BOTH, measures) == [
        (1, 6, 2, 6, [1, 1], None),
        (2, 16, 2, 8, [2, 2], 8),
        (3, 9, 1, None, [3], 3),
        (4, 4, 1, None, [4], 1),
    ]
    running = match(database, "A B", BOTH, "sum(MATCH_NUMBER()) AS r", rows="ALL ROWS PER MATCH")
    assert [row[1] for row in running] == [1, 2, 2, 4]


@pytest.mark.parametrize(
    "measure",
    [
        "sum(CASE WHEN CLASSIFIER() = 'A' THEN x END)",
        "avg(CASE CLASSIFIER() WHEN 'A' THEN x END)",
        "min(CASE WHEN CLASSIFIER() <> 'B' THEN x END)",
        "max(CASE WHEN CLASSIFIER(A) = 'A' THEN A.x END)",
    ],
)  # fmt: skip
def test_measures_may_choose_by_classifier(database, measure):
    assert match(database, "A B", BOTH, f"CAST({measure} AS BIGINT) AS v") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("over", "plain"),
    [
        ("sum(CASE CLASSIFIER() WHEN 'A' THEN 10 ELSE x END) < 25",
         "10 * count(A.*) + coalesce(sum(B.x), 0) + coalesce(sum(C.x), 0) < 25"),
        ("avg(CASE WHEN CLASSIFIER() = 'A' THEN 0 ELSE x END) < 4",
         "(coalesce(sum(B.x), 0) + coalesce(sum(C.x), 0)) "
         "/ (count(A.*) + count(B.x) + count(C.x)) < 4"),
        ("count(CASE WHEN CLASSIFIER() LIKE 'B%' THEN x END) <= 2", "count(B.x) <= 2"),
        ("count(*) FILTER (WHERE CLASSIFIER() = 'C') < 3", "count(C.*) < 3"),
        ("max(CASE WHEN CLASSIFIER() <> 'A' THEN x END) < 7", "greatest(max(B.x), max(C.x)) < 7"),
        ("min(U.x + length(CLASSIFIER(U))) > 2", "least(min(B.x), min(C.x)) + 1 > 2"),
        ("NOT bool_or(CLASSIFIER() LIKE 'C%' AND x > 5)", "coalesce(max(C.x), 0) <= 5"),
        ("bool_and(CLASSIFIER() = 'A' OR x > 1)", "coalesce(least(min(B.x), min(C.x)), 9) > 1"),
        ("max(CLASSIFIER()) = 'B'", "count(C.*) = 0"),
        ("sum(MATCH_NUMBER()) < 40", "MATCH_NUMBER() * count(*) < 40"),
        ("max(MATCH_NUMBER()) < 9 AND x > 2", "MATCH_NUMBER() < 9 AND x > 2"),
        ("count(B.x) + count(MATCH_NUMBER()) < 5", "count(B.x) + count(*) < 5"),
    ],
)  # fmt: skip
def test_conditions_over_classifier_are_those_spelled_out(database, over, plain):
    found = []
    for condition in (over, plain):
        define = (
            f"SUBSET U = (B, C) DEFINE A AS k = 'a', B AS k = 'b' AND ({condition}), "
            f"C AS k <> 'b' AND ({condition})"
        )
        found.append(
            database.sql(
                "SELECT * FROM r MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l, "
                f"string_agg(CLASSIFIER(), '') AS c PATTERN (A (B | C)+) {define})"
            ).fetchall()
        )
    assert found[0] == found[1]
    assert len(found[0]) > 3
