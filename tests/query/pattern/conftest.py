"""A clause over a small table, run whole and in pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from chronicle.query.pattern import match_stream, matcher
from chronicle.query.pattern import search as codes
from chronicle.query.pattern.compiled import (
    CompiledMatch,
    InputColumns,
    MatchLimits,
    compile_match,
)
from chronicle.query.sql.match_clause import clause_of_text

Run = Callable[..., list[dict[str, Any]]]


def over(clause: str, table: pa.Table, time: str | None = "t") -> CompiledMatch:
    """A clause over the columns of a table."""
    text = f"SELECT * FROM s MATCH_RECOGNIZE ({clause})"
    return compile_match(clause_of_text(text), InputColumns(table.schema, time))


def run_clause(
    clause: str, table: pa.Table, *, time: str | None = "t", batch: int = 1 << 20, **limits: int
) -> list[dict[str, Any]]:
    compiled = over(clause, table, time)
    results = compiled.run(table.to_batches(max_chunksize=batch), limits=MatchLimits(**limits))
    return pa.Table.from_batches(list(results), compiled.output_schema).to_pylist()


@pytest.fixture
def match(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a clause over rows in one piece and row by row; both must agree."""

    def both(clause: str, table: pa.Table, **options: Any) -> list[dict[str, Any]]:
        whole = run_clause(clause, table, **options)
        with monkeypatch.context() as patch:
            patch.setattr(match_stream, "ROWS_FIRST", 1)
            pieces = run_clause(clause, table, batch=1, **options)
        assert pieces == whole
        return whole

    return both


@pytest.fixture
def run() -> Run:
    """Run a clause over rows in one piece."""
    return run_clause


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps of each call of the machine: work that does not depend on the clock."""
    counted: list[int] = []

    def watched(search: Any) -> Any:
        def call(*arguments: Any) -> int:
            *_, state, _output = arguments
            before = int(state[codes.STEPS])
            status = int(search(*arguments))
            counted.append(int(state[codes.STEPS]) - before)
            return status

        return call

    for name in ("match_contiguous", "match_sequence"):
        monkeypatch.setattr(matcher, name, watched(getattr(matcher, name)))
    return counted


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search from the first row on, as far as it is decided."""
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1)
