"""Each part of the clause on small tables."""

# ruff: noqa: E501

from __future__ import annotations

import datetime as dt
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import ResourceLimit, SqlError

X = pa.table(
    {
        "t": range(1, 9),
        "k": list("aabbaabb"),
        "x": pa.array([1.0, 3.0, 2.0, None, 5.0, 4.0, 6.0, 2.0]),
        "s": ["p", "q", "p", "r", None, "q", "p", "q"],
    }
)


def column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


def test_navigation_offsets_and_nesting(match: Any) -> None:
    rows = match(
        """ORDER BY t MEASURES FIRST(A.t, 1) AS f1, LAST(A.t, 1) AS l1, PREV(FIRST(A.t, 1), 2) AS n,
        NEXT(LAST(A.t), 1) AS after, PREV(A.t, 9) AS none, FIRST(A.t, 5) AS far, LAST(B.t) AS b
        PATTERN (A{3} B) DEFINE A AS t <= 7""",
        X,
    )
    assert rows == [
        {"f1": 2, "l1": 2, "n": None, "after": 4, "none": None, "far": None, "b": 4},
        {"f1": 6, "l1": 6, "n": 4, "after": 8, "none": None, "far": None, "b": 8},
    ]


def test_prev_reads_rows_of_earlier_steps(match: Any) -> None:
    table = pa.table({"t": range(40)})
    rows = match("ORDER BY t MEASURES PREV(FIRST(A.t), 2) AS n PATTERN (A B)", table)
    assert column(rows, "n") == [None, *range(0, 38, 2)]


def test_running_and_final_in_all_rows(match: Any) -> None:
    rows = match(
        """ORDER BY t MEASURES FINAL LAST(x) AS fl, RUNNING LAST(x) AS rl, LAST(x) AS l,
        FINAL FIRST(x, 1) AS f1, FIRST(x, 1) AS r1, FINAL count(x) AS fc, count(x) AS rc,
        FINAL sum(B.x) - sum(B.x) AS rest ALL ROWS PER MATCH PATTERN (^ A B{3})""",
        X,
    )
    assert column(rows, "fl") == [None] * 4
    assert column(rows, "rl") == column(rows, "l") == [1.0, 3.0, 2.0, None]
    assert column(rows, "f1") == [3.0] * 4
    assert column(rows, "r1") == [None, 3.0, 3.0, 3.0]
    assert column(rows, "fc") == [3] * 4
    assert column(rows, "rc") == [1, 2, 3, 3]
    assert column(rows, "rest") == [None, 2.0, 0.0, 0.0]


def test_aggregates_of_all_kinds(match: Any) -> None:
    rows = match(
        """ORDER BY t MEASURES count(*) AS n, count(B.*) AS nb, count(B.x) AS cb, avg(x) AS a,
        min(B.x) AS lo, max(x) AS hi, array_agg(B.s) AS strings, string_agg(s, '/') AS joined,
        bool_and(B.x > 1) AS every, bool_or(x > 2) AS some, arbitrary(B.x) AS one,
        count(DISTINCT s) AS kinds, sum(x) FILTER (WHERE x > 2) AS big, max_by(s, x) AS top,
        array_agg(CLASSIFIER()) AS labels, sum(A.t * 2) AS twice, sum(C.x) AS none, count(C.x) AS zero
        PATTERN (^ A B+ C?? $)""",
        X,
    )
    assert rows == [
        {
            "n": 8, "nb": 7, "cb": 6, "a": pytest.approx(23 / 7), "lo": 2.0, "hi": 6.0,
            "strings": ["q", "p", "r", None, "q", "p", "q"], "joined": "p/q/p/r/q/p/q",
            "every": True, "some": True, "one": 3.0, "kinds": 3, "big": 18.0, "top": "p",
            "labels": ["A"] + ["B"] * 7, "twice": 2, "none": None, "zero": 0,
        }
    ]  # fmt: skip


def test_integer_sums_stay_integers_and_overflow(match: Any) -> None:
    table = pa.table({"t": [1, 2], "v": [2**62, 2**62]})
    row = match("ORDER BY t MEASURES sum(A.v) AS s, count_if(v > 0) AS n PATTERN (A)", table)[0]
    assert row == {"s": 2**62, "n": 1}
    assert isinstance(row["n"], int)
    with pytest.raises(SqlError, match=r"(?i)int64|out of range|cast"):
        match("ORDER BY t MEASURES sum(v) AS s PATTERN (A B)", table)
    with pytest.raises(SqlError, match="overflow"):
        match("ORDER BY t MEASURES A.t AS a PATTERN (A B) DEFINE B AS v + A.v > 0", table)
    with pytest.raises(SqlError, match=r"(?i)overflow"):
        match("ORDER BY t MEASURES A.t AS a PATTERN (A B) DEFINE B AS v + PREV(v) > 0", table)


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        ("PAST LAST ROW", [(1, 3), (4, 6)]),
        ("TO NEXT ROW", [(1, 3), (2, 4), (3, 5), (4, 6), (5, 7), (6, 8)]),
        ("TO FIRST B", [(1, 3), (2, 4), (3, 5), (4, 6), (5, 7), (6, 8)]),
        ("TO LAST B", [(1, 3), (3, 5), (5, 7)]),
        ("TO U", [(1, 3), (3, 5), (5, 7)]),
    ],
)
@pytest.mark.parametrize("define", ["", "DEFINE B AS B.t > A.t"], ids=["rows", "path"])
def test_skip_modes(match: Any, skip: str, define: str, expected: list[tuple[int, int]]) -> None:
    rows = match(
        f"ORDER BY t MEASURES FIRST(t) AS a, LAST(t) AS b AFTER MATCH SKIP {skip} "
        f"PATTERN (A B B) SUBSET U = (A, B) {define}",
        X,
    )
    assert [(r["a"], r["b"]) for r in rows] == expected


@pytest.mark.parametrize("define", ["", ", B AS B.t > A.t"], ids=["rows", "path"])
@pytest.mark.parametrize(("skip", "starts"), [("TO FIRST B", range(1, 7)), ("TO LAST B", [1])])
def test_skip_to_a_name_of_many_rows(match: Any, skip: str, define: str, starts: Any) -> None:
    rows = match(
        f"ORDER BY t MEASURES FIRST(t) AS a, LAST(t) AS b AFTER MATCH SKIP {skip} "
        f"PATTERN (A B+ C) DEFINE C AS t = 8{define}",
        X,
    )
    assert [(r["a"], r["b"]) for r in rows] == [(start, 8) for start in starts]


def test_skip_that_leads_nowhere_is_an_error_at_run_time(match: Any) -> None:
    with pytest.raises(SqlError, match=r"matched no event.*t = 1"):
        match("ORDER BY t MEASURES A.t AS a AFTER MATCH SKIP TO LAST B PATTERN (A B?? C)", X)
    with pytest.raises(SqlError, match=r"first event of the match.*t = 1"):
        match("ORDER BY t MEASURES A.t AS a AFTER MATCH SKIP TO FIRST A PATTERN (A+ C)", X)


def test_anchors(match: Any) -> None:
    text = "PARTITION BY k ORDER BY t MEASURES A.t AS a, LAST(t) AS b PATTERN ({})"
    assert [(r["a"], r["b"]) for r in match(text.format("^ A B"), X)] == [(1, 2), (3, 4)]
    assert [(r["a"], r["b"]) for r in match(text.format("A B $"), X)] == [(5, 6), (7, 8)]
    assert match(text.format("A ^ B"), X) == []


def test_within_is_inclusive(match: Any) -> None:
    table = pa.table({"t": [0, 5, 10, 16], "x": [1, 2, 3, 4]})
    text = "ORDER BY t MEASURES A.t AS a, C.t AS c PATTERN (A B C) WITHIN {}"
    assert match(text.format(10), table) == [{"a": 0, "c": 10}]
    assert match(text.format(9), table) == []
    assert match(text.format(11), table.slice(1)) == [{"a": 5, "c": 16}]
    stamps = [dt.datetime(2020, 1, 1, 0, 0, s) for s in (0, 5, 10, 16)]
    timed = table.set_column(0, "t", pa.array(stamps, pa.timestamp("ms")))
    assert len(match(text.format("INTERVAL '10' SECOND"), timed)) == 1
    assert match(text.format("INTERVAL '9999' MILLISECOND"), timed) == []


def test_greedy_stays_within_the_window(match: Any) -> None:
    text = "ORDER BY t MEASURES FIRST(t) AS a, LAST(t) AS b PATTERN (A B* C) WITHIN 3"
    assert [(r["a"], r["b"]) for r in match(text, X)] == [(1, 4), (5, 8)]
    reluctant = text.replace("B*", "B*?")
    assert [(r["a"], r["b"]) for r in match(reluctant, X)] == [(1, 2), (3, 4), (5, 6), (7, 8)]


def test_absence_between_two_events(match: Any) -> None:
    table = pa.table({"t": range(1, 8), "e": list("axabcbc")})
    text = """ORDER BY t MEASURES A.t AS a, C.t AS c PATTERN (A [^X] C) EVENT SELECTION {}
        DEFINE A AS e = 'a', C AS e = 'c', X AS e = 'x'"""
    assert match(text.format("SKIP TILL NEXT MATCH"), table) == [{"a": 3, "c": 5}]
    assert match(text.format("SKIP TILL ANY MATCH"), table) == [{"a": 3, "c": 5}, {"a": 3, "c": 7}]


@pytest.mark.parametrize(
    ("pattern", "within", "events", "expected"),
    [
        ("A [^X] (B C)", 9, "abcaxbc", [(1, 2, 3)]),
        ("A (B | C) [^X] (D E)+", 9, "acdeacxde", [(1, 2, 3, 4), (1, 2, 3, 4, 8, 9)]),
        ("A ([^X] B)+ C", 9, "abbcabxbc", [(1, 2, 3, 4)]),
        ("A B [^X]", 3, "abcabxabcc", [(1, 2), (7, 8)]),
        ("A ([^X] | B)", 2, "acabaxab", [(1,), (3,), (3, 4), (7,), (7, 8)]),
        ("A [^X Y]", 1, "abaxaya", [(1,), (7,)]),
        ("A [^X]", 0, "axa", [(1,), (3,)]),
    ],
)
def test_absence_before_groups_and_until_the_window_ends(
    match: Any, pattern: str, within: int, events: str, expected: Any
) -> None:
    table = pa.table({"t": range(1, len(events) + 1), "e": list(events)})
    names = sorted(set(pattern) & set("ABCDEXY"))
    define = ", ".join(f"{name} AS e = '{name.lower()}'" for name in names)
    rows = match(
        f"ORDER BY t MEASURES array_agg(t) AS ts PATTERN ({pattern}) WITHIN {within} "
        f"EVENT SELECTION SKIP TILL NEXT MATCH DEFINE {define}",
        table,
    )
    assert [tuple(row["ts"]) for row in rows] == expected


def test_distinct_and_filter_in_running_aggregates(match: Any) -> None:
    table = X.append_column("y", pa.array([1, 1, 2, 2, 1, 3, 3, 2]))
    rows = match(
        """ORDER BY t MEASURES count(DISTINCT B.y) AS kinds, sum(DISTINCT y) AS total,
        FINAL count(DISTINCT y) AS all_kinds, sum(B.x) FILTER (WHERE B.y > 1) AS big,
        count(*) FILTER (WHERE x > 2) AS n, count(B.*) FILTER (WHERE B.y = 1) AS nb,
        array_agg(t) FILTER (WHERE y > 1) AS ts, count(DISTINCT CLASSIFIER()) AS labels,
        count(*) FILTER (WHERE CLASSIFIER() = 'B') AS bs, avg(DISTINCT y) FILTER (WHERE t < 6) AS a
        ALL ROWS PER MATCH PATTERN (A B+)""",
        table,
    )
    y, x = table.column("y").to_pylist(), table.column("x").to_pylist()
    for i, row in enumerate(rows):
        so_far = range(i + 1)
        known = [x[j] for j in so_far if j and y[j] > 1 and x[j] is not None]
        early = {y[j] for j in so_far if j < 5}
        assert row["kinds"] == len({y[j] for j in so_far if j})
        assert row["total"] == sum({y[j] for j in so_far})
        assert row["all_kinds"] == 3
        assert row["big"] == (sum(known) if known else None)
        assert row["n"] == sum((x[j] or 0) > 2 for j in so_far)
        assert row["nb"] == sum(y[j] == 1 for j in so_far if j)
        assert row["ts"] == ([j + 1 for j in so_far if y[j] > 1] or None)
        assert (row["labels"], row["bs"]) == (min(i + 1, 2), i)
        assert row["a"] == sum(early) / len(early)


def test_filter_in_define(match: Any) -> None:
    rows = match(
        """ORDER BY t MEASURES array_agg(t) AS ts PATTERN (A+ B) DEFINE
        A AS count(*) FILTER (WHERE s = 'p') <= 1 AND coalesce(sum(x) FILTER (WHERE x > 2), 0) < 6,
        B AS max(A.x) FILTER (WHERE A.s <> 'p') = 3""",
        X,
    )
    assert [row["ts"] for row in rows] == [[1, 2, 3]]


def test_classifier_of_rows_around(match: Any) -> None:
    rows = match(
        """ORDER BY t MEASURES PREV(CLASSIFIER()) AS before, NEXT(CLASSIFIER()) AS after,
        PREV(CLASSIFIER(), 2) AS two, NEXT(FIRST(CLASSIFIER(B))) AS second,
        FIRST(lower(CLASSIFIER()) || s) AS head, FINAL LAST(CLASSIFIER(U) || U.s, 1) AS tail
        ALL ROWS PER MATCH PATTERN (^ A B C B) SUBSET U = (A, C)""",
        X,
    )
    assert column(rows, "before") == [None, "A", "B", "C"]
    assert column(rows, "after") == ["B", "C", "B", None]
    assert column(rows, "two") == [None, None, "A", "B"]
    assert column(rows, "second") == [None, "C", "C", "C"]
    assert column(rows, "head") == ["ap"] * 4
    assert column(rows, "tail") == ["Ap"] * 4
    rows = match(
        """ORDER BY t MEASURES array_agg(CLASSIFIER()) AS c PATTERN ((A | B | C | D)+) DEFINE
        A AS PREV(CLASSIFIER()) IS NULL, B AS PREV(CLASSIFIER()) = 'A',
        C AS PREV(CLASSIFIER(), 2) || PREV(CLASSIFIER()) = 'AB' AND NEXT(CLASSIFIER()) IS NULL""",
        X,
    )
    assert [row["c"] for row in rows] == [["A", "B", "C", "D", "D", "D", "D", "D"]]


def test_errors_wait_until_the_search_comes_to_them(match: Any) -> None:
    table = pa.table(
        {"t": range(1, 6), "y": [4, 0, 2, 0, 8], "s": ["1", "x", "3", "4", "y"], "e": list("abcde")}
    )
    text = "ORDER BY t MEASURES FIRST(t) AS a, LAST(t) AS b PATTERN ({}) DEFINE {}"

    def found(pattern: str, define: str) -> list[tuple[int, int]]:
        return [(row["a"], row["b"]) for row in match(text.format(pattern, define), table)]

    # one conjunct guards the other, whichever comes first
    assert found("A", "A AS y <> 0 AND 8 // y > 1") == [(1, 1), (3, 3)]
    assert found("A", "A AS 8 // y > 1 AND y <> 0") == [(1, 1), (3, 3)]
    # the row before is of no interest when this one is not
    assert found("A", "A AS e = 'd' AND PREV(8 // y) = 4") == [(4, 4)]
    assert found("A B", "A AS e = 'c', B AS CAST(s AS INTEGER) = 4") == [(3, 4)]
    assert found("A B", "A AS e = 'c', B AS CAST(A.s || s AS INTEGER) = 34") == [(3, 4)]
    assert found("A B", "A AS e = 'c', B AS CAST(s AS INTEGER) > CAST(A.s AS INTEGER)") == [(3, 4)]
    for pattern, define, where in [
        ("A", "A AS 8 // y > 1", "t = 2"),
        ("A B", "A AS e = 'a', B AS CAST(s AS INTEGER) > 1", "t = 2"),
        ("A B", "A AS e = 'a', B AS CAST(A.s || s AS INTEGER) > 1", "t = 2"),
        ("A B", "A AS e = 'b', B AS 8 // y > 8 // A.y", "t = 3"),
        ("A B", "A AS e = 'b', B AS sum(8 // A.y) > 1", "t = 2"),
    ]:
        with pytest.raises(SqlError, match=rf"(cannot be computed|divides by zero) at {where}"):
            match(text.format(pattern, define), table)
    with pytest.raises(SqlError, match=r"absence .* cannot be computed"):
        match(
            "ORDER BY t MEASURES A.t AS a PATTERN (A [^X] B) EVENT SELECTION SKIP TILL NEXT MATCH "
            "DEFINE X AS 8 // y > 1, A AS e = 'a', B AS e = 'b'",
            table,
        )


def test_partitions_nulls_and_several_keys(match: Any) -> None:
    table = pa.table(
        {
            "t": range(8),
            "a": [1, None, 1, None, 2, 2, 1, None],
            "b": ["x", "x", None, "x", "y", "y", "x", None],
        }
    )
    rows = match(
        "PARTITION BY a, b ORDER BY t MEASURES array_agg(t) AS ts, MATCH_NUMBER() AS n PATTERN (A+)",
        table,
    )
    assert [(r["a"], r["b"], r["ts"], r["n"]) for r in rows] == [
        (1, "x", [0, 6], 1), (None, "x", [1, 3], 1), (1, None, [2], 1), (2, "y", [4, 5], 1),
        (None, None, [7], 1),
    ]  # fmt: skip


def test_partitions_are_equal_where_group_by_says_so(run: Any) -> None:
    nan = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    keys = pa.array([0.0, -0.0, *nan, 1.0, 0.0, nan[0], -0.0])
    table = pa.table({"t": range(8), "a": keys, "b": keys.cast(pa.float32()), "c": [7] * 8})
    for by in ("a", "b", "a, b", "c, a"):
        clause = f"PARTITION BY {by} ORDER BY t MEASURES array_agg(t) AS ts PATTERN (A+)"
        rows = run(clause, table, batch=3)
        assert [row["ts"] for row in rows] == [[0, 1, 5, 7], [2, 3, 6], [4]], by


def test_ties_are_ordered_by_further_keys(match: Any) -> None:
    table = pa.table({"t": [1, 1, 1, 2, 2, 3], "x": [2.0, None, 1.0, 5.0, 4.0, 9.0]})
    text = "ORDER BY t, x {} MEASURES array_agg(x) AS xs PATTERN (A+)"
    assert match(text.format(""), table)[0]["xs"] == [1.0, 2.0, None, 4.0, 5.0, 9.0]
    assert match(text.format("DESC"), table)[0]["xs"] == [2.0, 1.0, None, 5.0, 4.0, 9.0]
    first = match(text.format("DESC NULLS FIRST"), table)[0]["xs"]
    assert first == [None, 2.0, 1.0, 5.0, 4.0, 9.0]


def test_order_by_something_else_sorts_everything(match: Any) -> None:
    rows = match("ORDER BY x DESC MEASURES array_agg(t) AS ts PATTERN (A{3}) DEFINE A AS x > 0", X)
    assert [r["ts"] for r in rows] == [[7, 5, 6], [2, 3, 8]]


def test_classifier_in_define_and_match_number(match: Any) -> None:
    rows = match(
        """ORDER BY t MEASURES array_agg(CLASSIFIER()) AS c, MATCH_NUMBER() AS n
        PATTERN ((A | B | C)+) DEFINE A AS x <= 2, B AS LAST(CLASSIFIER(), 1) = 'A',
        C AS MATCH_NUMBER() = 2 AND CLASSIFIER() = 'C'""",
        X,
    )
    assert [(r["c"], r["n"]) for r in rows] == [
        (["A", "B", "A", "B"], 1), (["C", "C", "C", "A"], 2),
    ]  # fmt: skip


def test_scalar_expressions_in_conditions(match: Any) -> None:
    conditions = {
        "s LIKE 'q%'": [2, 6, 8],
        "upper(s) || 'x' = 'Px'": [1, 3, 7],
        "s IN ('r', 'p') AND x IS NOT NULL": [1, 3, 7],
        "x NOT BETWEEN 2 AND 4": [1, 5, 7],
        "NOT (x > 2)": [1, 3, 8],
        "CASE WHEN k = 'a' THEN x > 3 ELSE s = 'q' END": [5, 6, 8],
        "CAST(x AS VARCHAR) = '6.0'": [7],
        "coalesce(s, 'z') = 'z'": [5],
        "x IS DISTINCT FROM 2 AND t > 3": [4, 5, 6, 7],
        "x % 2 = 0": [3, 6, 7, 8],
        "abs(x - 4) < 1.5": [2, 5, 6],
        "t >= 7.5": [8],
        "t < 1.5": [1],
        "3 < t AND t <= 5": [4, 5],
    }
    for condition, expected in conditions.items():
        rows = match(f"ORDER BY t MEASURES A.t AS a PATTERN (A) DEFINE A AS {condition}", X)
        assert column(rows, "a") == expected, condition


def test_aggregates_in_conditions(match: Any) -> None:
    def known(*values: Any) -> bool:
        return all(value is not None for value in values)

    conditions: dict[str, Any] = {
        "sum(B.x) + A.x > 8": lambda a, b: known(a.x, b.x) and a.x + b.x > 8,
        "avg(x) >= 4": lambda a, b: sum(v for v in (a.x, b.x) if v) >= 4 * sum(
            v is not None for v in (a.x, b.x)),
        "bool_or(x > 4)": lambda a, b: (a.x or 0) > 4 or (b.x or 0) > 4,
        "min(s) = 'p' AND max(s) = 'q'": lambda a, b: {a.s, b.s} == {"p", "q"},
    }  # fmt: skip
    rows_in = [SimpleNamespace(**row) for row in X.to_pylist()]
    for condition, expected in conditions.items():
        rows = match(
            f"ORDER BY t MEASURES B.t AS b AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) "
            f"DEFINE B AS {condition}",
            X,
        )
        wanted = [b.t for a, b in itertools.pairwise(rows_in) if expected(a, b)]
        assert column(rows, "b") == wanted, condition


def test_types_pass_through(match: Any) -> None:
    table = pa.table(
        {
            "t": pa.array([1, 2], pa.timestamp("ns", "Europe/Berlin")),
            "f": pa.array([1.5, None], pa.float32()),
            "d": pa.array(["1.25", "2.50"]).cast(pa.decimal128(9, 2)),
            "u": pa.array([1, 2], pa.uint8()),
            "b": pa.array([b"x", None], pa.binary()),
            "day": pa.array([10, 20], pa.date32()),
        }
    )
    rows = match(
        "ORDER BY t MEASURES f AS f1, d AS d1, u AS u1, b AS b1, day AS day1, t AS t1 "
        "ALL ROWS PER MATCH PATTERN (A+) DEFINE A AS d > 1 AND u >= 1",
        table,
    )
    for name in ("t", "f", "d", "u", "b", "day"):
        assert [r[name + "1"] for r in rows] == table.column(name).to_pylist()


def test_selection_without_bound_meets_its_budget(run: Any) -> None:
    table = pa.table({"t": range(40)})
    with pytest.raises(ResourceLimit, match="A B\\* C"):
        run(
            "ORDER BY t MEASURES A.t AS a PATTERN (A B* C) EVENT SELECTION SKIP TILL ANY MATCH "
            "DEFINE C AS t > A.t",
            table,
            memory_bytes=1 << 22,
        )
