"""Rows that no match of their partition can contain are not arranged: the search finds the same.

A failure names its seed: ``live_case(seed)`` repeats it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from chronicle.errors import SqlError
from chronicle.query.pattern import match_stream
from chronicle.query.pattern.columns import live_rows

from . import test_match_differential as common

SEEN: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1)
    SEEN.clear()
    yield
    print(SEEN)


def counted(words: Any, *others: Any) -> Any:
    """``live_rows`` that counts the rows of searches and those that are arranged."""
    rows = live_rows(words, *others)
    SEEN["rows"] += len(words)
    SEEN["arranged"] += len(words) if rows is None else len(rows)
    return rows


def found(compiled: Any, rows: list[dict[str, Any]], size: int, pruned: bool) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_stream, "live_rows", counted if pruned else lambda *arguments: None)
        try:
            return common.run(compiled, rows, size).to_pylist()
        except SqlError as error:
            return str(error)


def live_case(seed: int) -> None:
    """A random pattern over random rows of some partitions."""
    r = random.Random(seed)
    pattern = common.random_pattern(r, ["A", "B", "C"], 3, extras=r.random() < 0.3)
    names = sorted(common.used(pattern))
    texts = [f"{name} AS {r.choice(['x', 'y'])} = {r.randint(0, 5)}" for name in names]
    text = f"{r.choice(['', '', '^'])} ({common.text_of(pattern)})"
    skip = r.choice(["PAST LAST ROW", "TO NEXT ROW"])
    window = r.choice(["", "WITHIN 0", "WITHIN 2", "WITHIN 6"])
    counted = r.choice(["", ", count(*) AS n"])
    compiled = common.compiled_clause(
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES MATCH_NUMBER() AS mn, FIRST(id) AS f, "
        f"LAST(id) AS l{counted} AFTER MATCH SKIP {skip} "
        f"PATTERN ({text}) {window} DEFINE {', '.join(texts)})"
    )
    for _ in range(common.TRACES):
        rows = common.random_rows(r, r.randint(0, 60), "pqrstu")
        size = r.choice([1, 3, 10, 100])
        expected = found(compiled, rows, size, False)
        assert found(compiled, rows, size, True) == expected, f"seed {seed}\n{compiled.clause}"
        SEEN["matches"] += len(expected)


def test_a_first_row_that_is_left_out_is_still_the_first() -> None:
    rows = [{"t": t, "id": t, "k": "kl"[t % 2], "x": 0.0, "y": 0, "s": "a"} for t in range(8)]
    for t, x in ((2, 1.0), (4, 2.0), (1, 1.0), (3, 2.0)):
        rows[t]["x"] = x
    compiled = common.compiled_clause(
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.id AS a PATTERN (^ A B) "
        "DEFINE A AS x = 1, B AS x = 2)"
    )
    for size in (1, 8):
        assert [row["a"] for row in found(compiled, rows, size, True)] == [1]


def test_rows_that_are_left_out_change_nothing() -> None:
    for seed in common.seeds(common.PATTERNS * 2):
        live_case(seed)
    assert SEEN["matches"] > 50, SEEN
    assert SEEN["arranged"] < 0.8 * SEEN["rows"], SEEN


@pytest.mark.parametrize(
    ("pattern", "within", "most"),
    [("A B", "", 3), ("A Z*? B", " WITHIN 200", 3), ("A Z* B", "", 3)],
)
def test_only_partitions_with_a_first_event_are_arranged(
    monkeypatch: pytest.MonkeyPatch, pattern: str, within: str, most: int
) -> None:
    """Of 100 partitions of 20 rows each, one has a first event: a match can contain ``most`` rows
    at most, or ends before the last of them.
    """
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1 << 16)
    rows = [{"t": t, "id": t, "k": f"k{t % 100}", "x": 0.0, "y": 0, "s": "a"} for t in range(2000)]
    for t, x in ((207, 1.0), (307, 2.0), (807, 2.0)):
        rows[t]["x"] = x
    compiled = common.compiled_clause(
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.id AS a, B.id AS b "
        f"PATTERN ({pattern}){within} DEFINE A AS x = 1, B AS x = 2)"
    )
    answer = found(compiled, rows, len(rows), True)
    assert answer == found(compiled, rows, len(rows), False)
    assert [row["a"] for row in answer] == [207]
    assert SEEN["rows"] == len(rows)
    assert 2 <= SEEN["arranged"] <= most, SEEN
