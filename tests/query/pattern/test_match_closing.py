"""When a match is decided: a stream that goes on says it at the step at which a search over all
that is known says it.

A live query takes its rows from either, so with one match at a time both must have the same at
every watermark.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import SqlError
from chronicle.live.pattern_form import keeps_state
from chronicle.query.pattern import match_stream
from chronicle.query.pattern.advancing import AdvancingMatch
from chronicle.query.pattern.match_stream import MatchStream
from chronicle.query.pattern.matcher import MatchLimits

from . import test_match_differential as common
from .test_match_advancing import restarted, rows_of, steps

CHECKED: list[int] = []


def known_at(compiled: Any, past: pa.Table, watermark: int) -> pa.Table:
    """What a search over what is known says."""
    stream = MatchStream(compiled, MatchLimits())
    found = [batch for batch in past.to_batches() for batch in stream.feed(batch)]
    found += stream.conclude(watermark + 1)
    return pa.Table.from_batches(found, compiled.output_schema)


@pytest.fixture(autouse=True)
def at_every_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of a differential case is made in steps."""
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1)
    whole = common.run

    def run(compiled: Any, rows: list[dict[str, Any]], batch: int) -> pa.Table:
        if not keeps_state(compiled):
            return whole(compiled, rows, batch)
        stream = AdvancingMatch(compiled)
        table = pa.Table.from_pylist(rows, schema=common.SCHEMA.arrow)
        ticks = table.column("t").cast(pa.int64()).to_numpy()
        r = random.Random(len(rows) * 1000 + batch)
        said, before = [compiled.output_schema.empty_table()], -1
        try:
            for _, watermark in steps(r, table, "t"):  # a live query reads no events behind it
                past = table.filter(pa.array(ticks <= watermark))
                piece = table.filter(pa.array((ticks > before) & (ticks <= watermark)))
                before = watermark
                said.append(stream.advance(piece, watermark).rows)
                wanted = known_at(compiled, past, watermark)
                assert rows_of(pa.concat_tables(said)) == rows_of(wanted)
                CHECKED.append(wanted.num_rows)
                if r.random() < 0.15:
                    stream = restarted(r, compiled, stream, past, "t", watermark)
        except SqlError:
            pass
        return whole(compiled, rows, batch)

    monkeypatch.setattr(common, "run", run)


@settings(max_examples=common.IN_STEPS, **common.QUIET)
@given(st.integers(0, 2**40))
def row_local_conditions(seed: int) -> None:
    common.standard_case(seed, 0.0)


@settings(max_examples=common.IN_STEPS, **common.QUIET)
@given(st.integers(0, 2**40))
def path_dependent_conditions(seed: int) -> None:
    common.standard_case(seed, 0.6)


def test_rows_are_said_when_they_are_known() -> None:
    CHECKED.clear()
    row_local_conditions()
    path_dependent_conditions()
    assert sum(map(bool, CHECKED)) > common.IN_STEPS // 5
