"""A stream that goes on says, step by step, what a search over the whole input finds, and with one
match at a time at the step at which a search over all that is known finds it.

The random patterns, traces and oracles are those of ``test_match_differential``; here each trace is
cut at random into steps with watermarks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.core.times import INT64_MAX
from chronicle.errors import SqlError
from chronicle.live.pattern_form import keeps_state
from chronicle.query.pattern import match_stream, matcher, retained
from chronicle.query.pattern import search as codes
from chronicle.query.pattern.advancing import AdvancingMatch, Decided
from chronicle.query.pattern.match_stream import MatchStream
from chronicle.query.pattern.matcher import MatchLimits
from chronicle.query.split.cuts import decided_at_once

from . import test_match_differential as common
from .conftest import over

CHECKED: list[int] = []
"""Rows that were known at watermarks at which both searches were compared."""


def steps(r: random.Random, table: pa.Table, time: str) -> Iterator[tuple[pa.Table, int]]:
    """A table in pieces, each with a watermark that is true of it."""
    ticks = [int(t) for t in table.column(time).cast(pa.int64()).to_pylist()]
    at = 0
    watermark = -(10**6)
    several = max(1, len(ticks) // 20)  # a step costs milliseconds, not the row
    while at < len(ticks):
        end = min(len(ticks), at + several * r.choice([0, 1, 1, 1, 2, 5, 50]))
        following = ticks[end] if end < len(ticks) else ticks[-1] + r.choice([1, 3, 100])
        given = ticks[end - 1] if end else ticks[0]
        lowest = max(watermark, min(given, following) - 1)
        watermark = max(lowest, r.choice([lowest, following - 1]))
        yield table.slice(at, end - at), watermark
        at = end


def advances(compiled: Any) -> bool:
    """Whether a live query would search a clause step by step."""
    return keeps_state(compiled) or decided_at_once(compiled)


def by_steps(r: random.Random, compiled: Any, table: pa.Table, time: str = "t") -> list[pa.Table]:
    stream = AdvancingMatch(compiled)
    found = [stream.advance(*step).rows for step in steps(r, table, time)]
    return [*found, finished(stream)]


def finished(stream: AdvancingMatch) -> pa.Table:
    return stream.advance(None, INT64_MAX).rows


def check_every_watermark(r: random.Random, compiled: Any, table: pa.Table) -> None:
    """A live query takes its rows from either."""
    stream = AdvancingMatch(compiled)
    ticks = table.column("t").cast(pa.int64()).to_numpy()
    said, before = [compiled.output_schema.empty_table()], -1
    for _, watermark in steps(r, table, "t"):  # a live query reads no events behind it
        past = table.filter(pa.array(ticks <= watermark))
        piece = table.filter(pa.array((ticks > before) & (ticks <= watermark)))
        before = watermark
        said.append(stream.advance(piece, watermark).rows)
        known = MatchStream(compiled, MatchLimits())
        found = [batch for batch in past.to_batches() for batch in known.feed(batch)]
        found += known.conclude(watermark + 1)
        wanted = pa.Table.from_batches(found, compiled.output_schema)
        assert rows_of(pa.concat_tables(said)) == rows_of(wanted)
        CHECKED.append(wanted.num_rows)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.fixture(autouse=True)
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of a differential case is made step by step, too, but for MATCH_NUMBER among sets
    of events, which a live query refuses.
    """
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1)
    monkeypatch.setattr(retained, "ROWS_MIN", 0)  # rows that nobody needs are really gone
    whole = common.run

    def run(compiled: Any, rows: list[dict[str, Any]], batch: int) -> pa.Table:
        table = pa.Table.from_pylist(rows, schema=common.SCHEMA.arrow)
        seed = len(rows) * 1000 + batch
        try:
            wanted = whole(compiled, rows, batch)
        except SqlError:
            if advances(compiled):
                with pytest.raises(SqlError):
                    by_steps(random.Random(seed), compiled, table)
            raise
        if not advances(compiled):
            return wanted
        found = by_steps(random.Random(seed), compiled, table)
        said = pa.concat_tables(found)
        unnumbered = [n for n in wanted.schema.names if n != "mn" or not compiled.clause.selection]
        assert rows_of(said.select(unnumbered)) == rows_of(wanted.select(unnumbered))
        if compiled.clause.selection is None:
            check_every_watermark(random.Random(seed), compiled, table)
        return wanted

    monkeypatch.setattr(common, "run", run)


def test_row_local_conditions() -> None:
    for seed in common.seeds(common.IN_STEPS):
        common.standard_case(seed, 0.0)


def test_path_dependent_conditions() -> None:
    CHECKED.clear()
    for seed in common.seeds(common.IN_STEPS):
        common.standard_case(seed, 0.6)
    assert sum(map(bool, CHECKED)) > common.IN_STEPS // 5


def test_errors_come_when_the_search_comes_to_them() -> None:
    for seed in common.seeds(common.IN_STEPS):
        common.failing_case(seed)


def test_event_selection() -> None:
    for seed in common.seeds(common.IN_STEPS * 2):
        common.selection_case(seed, 0.3)


# -- what the traces do not show -----------------------------------------------------------------


def ticks(n: int, keys: int = 1, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"t": np.arange(n), "k": rng.integers(0, keys, n), "x": rng.random(n)})


def in_steps(stream: AdvancingMatch, table: pa.Table, size: int) -> list[Decided]:
    last = table.num_rows
    return [
        stream.advance(table.slice(i, size), min(i + size, last) - 1) for i in range(0, last, size)
    ]


def test_a_match_is_said_whatever_is_open_elsewhere() -> None:
    table = pa.table({"t": [1, 2, 3, 4], "k": ["a", "b", "b", "a"], "x": [1.0, 1.0, 2.0, 1.0]})
    stream = AdvancingMatch(
        over("PARTITION BY k ORDER BY t MEASURES A.t AS a PATTERN (A B) DEFINE B AS x > 1.5", table)
    )
    stream.advance(table.slice(0, 1), 1)
    found = [stream.advance(table.slice(i, 1), i + 1) for i in (1, 2)]
    assert [part.rows.to_pylist() for part in found] == [[], [{"k": "b", "a": 2}]]
    assert found[1].first_tick.tolist() == [2]


def test_the_watermark_alone_decides() -> None:
    table = pa.table({"t": [1, 2], "k": ["a", "b"], "x": [1, 1]})
    clause = "PARTITION BY k ORDER BY t MEASURES count(*) AS n PATTERN (A+) WITHIN 10"
    stream = AdvancingMatch(over(clause, table))
    assert stream.advance(table, 2).rows.num_rows == 0
    assert stream.advance(None, 10).rows.num_rows == 0
    assert stream.advance(None, 11).rows.to_pylist() == [{"k": "a", "n": 1}]
    assert stream.advance(None, 12).rows.to_pylist() == [{"k": "b", "n": 1}]
    assert stream.oldest_tick is None


@pytest.mark.parametrize(
    ("pattern", "define"),
    [
        ("A Z* B", "A AS x > 0.999, B AS x < 0.0005"),
        ("A Z*? B", "A AS x > 0.999, B AS x < 0.0005"),
        ("A C+ B", "A AS x > 0.99, C AS x > 0.0005, B AS x < 0.0005"),
        ("A C+ B", "A AS x > 0.99, C AS x > A.x - 0.99, B AS x < 0.0005"),
    ],
)
@pytest.mark.parametrize("within", [" WITHIN 4000", ""])
def test_small_steps_cost_what_the_events_cost(
    pattern: str, define: str, within: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ticks(8_000)
    compiled = over(
        f"ORDER BY t MEASURES A.t AS a PATTERN ({pattern}){within} DEFINE {define}", table
    )
    counted: list[int] = []
    waited: list[int] = []
    resumed: list[int] = []
    search = matcher.match_contiguous

    def call(*arguments: Any) -> int:
        before = int(arguments[-2][codes.STEPS])
        attempts = arguments[-3]
        waited.append(int((attempts.start >= 0).sum()))
        resumed.append(int((attempts.where >= 0).sum()))
        status = int(search(*arguments))
        counted.append(int(arguments[-2][codes.STEPS]) - before)
        return status

    monkeypatch.setattr(matcher, "match_contiguous", call)
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1 << 16)
    whole = sum(batch.num_rows for batch in compiled.run(table.to_batches()))
    wanted = sum(counted)
    counted.clear()
    stream = AdvancingMatch(compiled)
    rows = sum(part.rows.num_rows for part in in_steps(stream, table, 10))
    assert rows + finished(stream).num_rows == whole > 0
    assert sum(counted) <= 4 * wanted + 4 * table.num_rows
    assert sum(waited) == sum(resumed) > 100  # none was begun again


def test_what_is_kept_is_bounded_by_the_window() -> None:
    table = ticks(40_000, keys=5_000)
    clause = (
        "PARTITION BY k ORDER BY t MEASURES A.t AS a PATTERN (A B) WITHIN 500 "
        "DEFINE A AS x > 0.5, B AS x < 0.5"
    )
    stream = AdvancingMatch(over(clause, table))
    kept = 0
    for part in in_steps(stream, table, 1000):
        assert len(part.first_tick) == part.rows.num_rows
        kept = max(kept, stream.input.rows.rows)
    assert kept <= 1000
    assert stream.nbytes < 3_000_000


def test_partitions_are_forgotten() -> None:
    n = 60_000
    table = pa.table({"t": np.arange(n), "k": np.arange(n) // 3, "x": np.arange(n) % 3})
    clause = (
        "PARTITION BY k ORDER BY t MEASURES A.t AS a PATTERN (A B) WITHIN 5 "
        "DEFINE A AS x = 0, B AS x = 1"
    )
    stream = AdvancingMatch(over(clause, table))
    found = in_steps(stream, table, 500)
    assert sum(part.rows.num_rows for part in found) == n // 3
    assert stream.input.rows.partitions < 10_000


def test_the_last_step_may_bring_partitions_that_satisfy_nothing() -> None:
    """Rows of the others are stored, and are searched; of these none is."""
    table = pa.table({"t": [1, 2, 2, 3], "k": [1, 2, 3, 1], "x": [0.9, 0.5, 0.5, 0.1]})
    clause = (
        "PARTITION BY k ORDER BY t MEASURES A.t AS a PATTERN (A B) WITHIN 5 "
        "EVENT SELECTION SKIP TILL NEXT MATCH DEFINE A AS x > 0.8, B AS x < 0.2"
    )
    rows = AdvancingMatch(over(clause, table)).advance(table, INT64_MAX).rows
    assert rows.column("a").to_pylist() == [1]


@pytest.mark.parametrize("skip", ["AFTER MATCH SKIP TO NEXT ROW", ""])
def test_attempts_that_are_open_keep_their_rows(skip: str) -> None:
    table = ticks(5_000, keys=3)
    compiled = over(
        f"PARTITION BY k ORDER BY t MEASURES A.t AS a, B.t AS b, sum(Z.x) AS s {skip} "
        "PATTERN (A Z* B) WITHIN 300 DEFINE A AS x > 0.97, B AS x < 0.01",
        table,
    )
    whole = pa.Table.from_batches(list(compiled.run(table.to_batches())))
    stream = AdvancingMatch(compiled)
    found = [*(part.rows for part in in_steps(stream, table, 50)), finished(stream)]
    assert rows_of(pa.concat_tables(found)) == rows_of(whole)
    assert whole.num_rows > 20


@pytest.mark.parametrize("rows", ["ONE ROW", "ALL ROWS"])
def test_matches_have_the_names_that_a_search_over_everything_gives(rows: str) -> None:
    table = ticks(2_000, keys=5)
    table = table.set_column(0, "t", pa.array(np.arange(2_000) // 3))
    clause = (
        "PARTITION BY k ORDER BY t MEASURES MATCH_ID() AS id, A.t AS a "
        f"{rows} PER MATCH PATTERN (A B+) WITHIN 50 DEFINE A AS x > 0.5, B AS x > PREV(x)"
    )
    compiled = over(clause, table)
    whole = pa.Table.from_batches(list(compiled.run(table.to_batches())))
    stream = AdvancingMatch(compiled)
    found = [
        stream.advance(table.filter(pa.array(table["t"].to_numpy() // 7 == i)), 7 * i + 6).rows
        for i in range(96)
    ]
    found.append(finished(stream))
    assert rows_of(pa.concat_tables(found)) == rows_of(whole)
