"""A stream that goes on says, step by step, what a search over the whole input finds.

The random patterns, traces and oracles are those of ``test_match_differential``; here each trace is
cut at random into steps with watermarks, with restarts in between.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import SqlError
from chronicle.query.pattern import match_stream
from chronicle.query.pattern.advancing import AdvancingMatch
from chronicle.query.pattern.decided import Decided

from . import test_match_differential as common

RESTARTS = 0.15


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


def restarted(r: random.Random, compiled: Any, stream: AdvancingMatch, past: pa.Table, time: str,
              watermark: int) -> AdvancingMatch:  # fmt: skip
    """Another stream in the state of the first."""
    again = AdvancingMatch(compiled)
    window = compiled.within
    if window is None or r.random() < 0.5:
        since = None
    else:
        since = watermark - window + 1
    again.restore(stream.export(since), watermark)
    replayed = None
    if since is not None and compiled.clause.rows != "all with unmatched":
        ticks = past.column(time).cast(pa.int64()).to_numpy()
        replayed = past.filter(pa.array(ticks >= since))
    again.replay(replayed, watermark)
    return again


def by_steps(r: random.Random, compiled: Any, table: pa.Table, time: str = "t") -> list[Decided]:
    stream = AdvancingMatch(compiled)
    found = []
    past = table.slice(0, 0)
    for piece, watermark in steps(r, table, time):
        found.append(stream.advance(piece, watermark))
        past = pa.concat_tables([past, piece])
        last = past.column(time).cast(pa.int64()).to_pylist()[-1:] or [0]
        if r.random() < RESTARTS and last[0] <= watermark:
            stream = restarted(r, compiled, stream, past, time, watermark)
    found.append(stream.finish())
    return found


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.fixture(autouse=True)
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of a differential case is made step by step, too."""
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1)
    whole = common.run

    def run(compiled: Any, rows: list[dict[str, Any]], batch: int) -> pa.Table:
        table = pa.Table.from_pylist(rows, schema=common.SCHEMA.arrow)
        seed = len(rows) * 1000 + batch
        try:
            wanted = whole(compiled, rows, batch)
        except SqlError:
            with pytest.raises(SqlError):
                by_steps(random.Random(seed), compiled, table)
            raise
        found = by_steps(random.Random(seed), compiled, table)
        said = pa.concat_tables([part.rows for part in found])
        assert rows_of(said) == rows_of(wanted)
        return wanted

    monkeypatch.setattr(common, "run", run)


@settings(max_examples=common.PATTERNS, **common.QUIET)
@given(st.integers(0, 2**40))
def test_row_local_conditions(seed: int) -> None:
    common.standard_case(seed, 0.0)


@settings(max_examples=common.PATTERNS, **common.QUIET)
@given(st.integers(0, 2**40))
def test_path_dependent_conditions(seed: int) -> None:
    common.standard_case(seed, 0.6)


@settings(max_examples=common.PATTERNS, **common.QUIET)
@given(st.integers(0, 2**40))
def test_errors_come_when_the_search_comes_to_them(seed: int) -> None:
    common.failing_case(seed)


@settings(max_examples=common.PATTERNS * 2, **common.QUIET)
@given(st.integers(0, 2**40))
def test_event_selection(seed: int) -> None:
    common.selection_case(seed, 0.3)
