"""Rows beside intervals of partitions: those that counting finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay import partitions
from chronicle.query.replay.partitions import PartitionKeys, rows_beside
from chronicle.query.replay.spans import Spans
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.schema import StreamSchema

from .across_cases import answers
from .conftest import Opened


class Listed(PartitionKeys):
    """Codes of events in place of keys that are read."""

    def __init__(self, codes: list[int]) -> None:
        self.listed, self.count, self.read = np.array(codes, np.int64), max(codes) + 1, 0
        self.forget()

    def codes_at(self, positions: Any) -> Any:
        self.read += len(positions)
        return self.listed[positions]


@given(st.data(), st.sampled_from([1, 3, 50]))
def test_rows_are_those_that_counting_finds(data: st.DataObject, reach: int) -> None:
    codes = data.draw(
        st.lists(st.integers(-1, 4), min_size=1, max_size=60).filter(lambda c: max(c) >= 0)
    )
    before, after = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    total = len(codes)
    some = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, max(codes)), st.integers(0, total), st.integers(0, total)
            ).filter(lambda at: at[1] <= at[2]),
            max_size=8,
        )
    )
    code, low, high = (np.array([at[i] for at in some], np.int64) for i in range(3))
    kept = partitions.FIRST_REACH, partitions.READ_GAP, partitions.MUCH
    partitions.FIRST_REACH, partitions.READ_GAP = reach, 0
    partitions.MUCH = data.draw(st.sampled_from([0, kept[2]]))
    try:
        found = rows_beside(Listed(codes), total, (code, low, high), before, after)
    finally:
        partitions.FIRST_REACH, partitions.READ_GAP, partitions.MUCH = kept
    assert found is not None
    assert len(found) == before + after
    for number, (own, first, end) in enumerate(some):
        earlier = [i for i in range(first) if codes[i] == own][::-1]
        later = [i for i in range(end, total) if codes[i] == own]
        expected = [*(earlier + [-1] * before)[:before], *(later + [-1] * after)[:after]]
        assert [int(rows[number]) for rows in found] == expected


def test_rows_near_by_are_found_without_reading_all_keys() -> None:
    keys = Listed([i % 7 for i in range(300_000)])
    code = np.array([3, 5], np.int64)
    low, high = np.array([100_000, 100_010]), np.array([100_020, 100_040])
    found = rows_beside(keys, 300_000, (code, low, high), 1, 1)
    assert found is not None
    assert [rows.tolist() for rows in found] == [[99_998, 100_007], [100_026, 100_042]]
    assert keys.read < 10_000


SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())]), "t")


@pytest.mark.parametrize("steps", [3, 2000])
def test_rare_steps_of_partitions_are_worth_an_index(opened: Opened, steps: int) -> None:
    """What looks at the event before a match is planned with an index where steps are rare."""
    rng = np.random.default_rng(2)
    count = 400_000
    of = rng.integers(0, 300, count)
    x = of * 1000
    at = np.sort(rng.choice(np.arange(count // 10, count), steps, replace=False))
    x[at] += 500
    stream, indexes = opened(SCHEMA, "x - PREV(x) PARTITION BY k", leaf_bytes=1 << 18)
    names = pa.array([f"p{i}" for i in range(300)]).take(pa.array(of))
    stream.append(pa.table({"t": np.arange(count), "k": names, "x": x}).cast(SCHEMA.arrow))
    stream.seal()
    indexes.catch_up(stream.snapshot().state)
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.t AS a, B.t AS b, "
        "MATCH_NUMBER() AS n PATTERN (A B) WITHIN 3000 DEFINE A AS x > PREV(x) + 100, "
        "B AS x < PREV(x))"
    )
    clause = compile_match(clause_of_text(text), SCHEMA)
    expected, _ = answers(stream.snapshot(), clause, indexes, "replay")
    assert len(expected) > 0.9 * steps
    found, plan = answers(stream.snapshot(), clause, indexes, "auto")
    assert found == expected
    if steps < 100:
        assert plan.intervals is not None, plan.reason
        assert plan.intervals.partitions.inside.total < 0.05 * count
    found, _ = answers(stream.snapshot(), clause, indexes, "all")
    assert found == expected


MARKED = StreamSchema(
    pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64()), ("y", pa.int64())]), "t"
)
# A is the last row of one interval; the next one begins behind a row without x, with one that
# differs from A's; each with a late event that has the rows around it replayed, or none
APART = {
    "two intervals": ([(0, 0, 0), (10, 5, 1), (12, None, 0), (18, 1, 0), (45, 3, 0)], None),
    "late, then an interval": (
        [(0, 5, 0), (29, 5, 1), (33, None, 0), (37, 1, 0), (65, 3, 0)], (1, 5, 0)
    ),
    "an interval, then late": (
        [(0, 0, 0), (10, 5, 1), (12, None, 0), (18, 1, 0), (45, 1, 0), (80, 1, 0)], (46, 1, 0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", APART)
def test_rows_of_two_intervals_are_not_next_to_one_another(opened: Opened, which: str) -> None:
    rows, late = APART[which]
    rows = [*rows, (500, 1, 1), (505, 7, 0)]
    stream, indexes = opened(MARKED, "x - PREV(x) PARTITION BY k", compaction="manual")

    def told(some: list[Any]) -> pa.Table:
        t, x, y = zip(*some, strict=True)
        return pa.table({"t": t, "k": ["a"] * len(t), "x": x, "y": y}).cast(MARKED.arrow)

    stream.append(told(rows))
    stream.seal()
    indexes.catch_up(stream.snapshot().state)
    if late is not None:
        stream.append(told([late]))
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.t AS a, B.t AS b, "
        "MATCH_NUMBER() AS n PATTERN (A B) WITHIN 30 DEFINE A AS y = 1, B AS ABS(x - PREV(x)) > 0)"
    )
    clause = compile_match(clause_of_text(text), MARKED)
    expected, _ = answers(stream.snapshot(), clause, indexes, "replay")
    assert [(row["a"], row["b"]) for row in expected] == [(500, 505)]
    found, plan = answers(stream.snapshot(), clause, indexes, "all", gap=0)
    assert plan.chosen
    assert found == expected


@given(st.lists(st.integers(0, 3), max_size=80), st.integers(1, 9), st.integers(1, 9))
def test_positions_of_spans_come_in_pieces(flags: list[int], first: int, most: int) -> None:
    places = np.flatnonzero(np.array(flags, np.int64))
    pieces = list(Spans.of(places, places + 1).positions(first, most))
    assert np.array_equal(np.concatenate([np.zeros(0, np.int64), *pieces]), places)
    sizes = [len(piece) for piece in pieces]
    assert all(sizes)
    assert sizes[:1] == [min(first, len(places))][: len(places)]
    assert all(size == most for size in sizes[1:-1])
    assert sizes[-1:] == [] or sizes[-1] <= max(first, most)
