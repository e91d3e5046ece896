"""Batches in, results out: order, early output, bounded memory, many partitions."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from chronicle.query.pattern import match_stream
from chronicle.query.pattern.match_stream import MatchLimits, MatchStream

from .conftest import over
from .test_match_advancing import ticks


@pytest.mark.parametrize(
    "clause",
    [
        "PARTITION BY k ORDER BY t MEASURES A.t AS a, LAST(C.x) AS c PATTERN (A B{0,3} C) WITHIN 400 "
        "DEFINE A AS x > 0.7, C AS x < PREV(x) AND x < 0.4",
        "PARTITION BY k ORDER BY t MEASURES A.t AS a, C.t AS c, sum(x) AS s PATTERN (A B* C) "
        "DEFINE B AS x > PREV(x), C AS x > A.x + 0.4",
        "ORDER BY t MEASURES A.t AS a, C.t AS c PATTERN (A B C) WITHIN 20 EVENT SELECTION SKIP TILL ANY "
        "MATCH DEFINE A AS x > 0.9, B AS x < 0.1, C AS x BETWEEN 0.5 AND 0.6",
        "PARTITION BY k ORDER BY t MEASURES A.t AS a, C.t AS c PATTERN (A B* C) "
        "DEFINE A AS x > 0.7, B AS x > PREV(x), C AS x > A.x AND NEXT(x) < x",
        "PARTITION BY k ORDER BY t MEASURES A.t AS a, B.t AS b PATTERN (^ A | A B) "
        "DEFINE A AS x > 0.5, B AS x > A.x",
    ],
)
def test_the_cut_into_batches_does_not_matter(clause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ticks(20_000, keys=50)
    compiled = over(clause, table)
    whole = pa.Table.from_batches(list(compiled.run(table.to_batches())))
    assert whole.num_rows > 100
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 64)
    monkeypatch.setattr(match_stream, "ROWS_USUAL", 1024)
    monkeypatch.setattr(match_stream, "ROWS_MAX", 1024)
    for size in (61, 5000):
        pieces = pa.Table.from_batches(list(compiled.run(table.to_batches(max_chunksize=size))))
        assert pieces.combine_chunks().equals(whole.combine_chunks())


def test_memory_is_bounded_by_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 256)
    monkeypatch.setattr(match_stream, "ROWS_USUAL", 256)
    monkeypatch.setattr(match_stream, "ROWS_MAX", 256)
    table = ticks(40_000)
    compiled = over(
        "ORDER BY t MEASURES A.t AS a PATTERN (A B* C) WITHIN 50 DEFINE A AS x > 0.5, C AS x < 0.001",
        table,
    )
    stream = MatchStream(compiled, MatchLimits())
    kept = 0
    rows = 0
    for batch in table.to_batches(max_chunksize=256):
        rows += sum(b.num_rows for b in stream.feed(batch))
        kept = max(kept, len(stream.codes))
    rows += sum(b.num_rows for b in stream.finish())
    assert rows > 10
    assert kept <= 60


def test_results_come_before_the_input_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 16)
    table = ticks(1_000)
    compiled = over(
        "ORDER BY t MEASURES A.t AS a PATTERN (A B) DEFINE A AS x > 0.5, B AS x < 0.5", table
    )
    given = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal given
        for batch in table.to_batches(max_chunksize=16):
            given += batch.num_rows
            yield batch

    first = next(iter(compiled.run(batches())))
    assert first.num_rows > 0
    assert given <= 48


def test_a_hundred_thousand_partitions() -> None:
    n = 400_000
    table = ticks(n, keys=100_000)
    compiled = over(
        "PARTITION BY k ORDER BY t MEASURES A.x AS a, B.x AS b PATTERN (A B) DEFINE B AS x < PREV(x)",
        table,
    )
    found = pa.Table.from_batches(list(compiled.run(table.to_batches(max_chunksize=65536))))
    order = np.argsort(table["k"].to_numpy(), kind="stable")
    keys, x = table["k"].to_numpy()[order], table["x"].to_numpy()[order]
    falls = (keys[1:] == keys[:-1]) & (x[1:] < x[:-1])
    # matches do not overlap: in each run of falls every second one counts
    expected, previous = 0, False
    for fall in falls:
        previous = bool(fall) and not previous
        expected += previous
    assert found.num_rows == expected


def test_empty_input_has_the_schema() -> None:
    table = ticks(0)
    compiled = over(
        "PARTITION BY k ORDER BY t MEASURES A.x AS a, count(*) AS n, CLASSIFIER() AS c PATTERN (A B)",
        table,
    )
    assert list(compiled.run([])) == []
    assert compiled.output_schema == pa.schema(
        [("k", pa.int64()), ("a", pa.float64()), ("n", pa.int64()), ("c", pa.string())]
    )
