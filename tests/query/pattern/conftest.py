"""A clause over a small table, run whole and in pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from chronicle.query.pattern import match_stream
from chronicle.query.pattern.compiled import InputColumns, MatchLimits, compile_match
from chronicle.query.sql.match_clause import clause_of_text

Run = Callable[..., list[dict[str, Any]]]


def run_clause(
    clause: str, table: pa.Table, *, time: str | None = "t", batch: int = 1 << 20, **limits: int
) -> list[dict[str, Any]]:
    columns = InputColumns(table.schema, time)
    compiled = compile_match(clause_of_text(f"SELECT * FROM s MATCH_RECOGNIZE ({clause})"), columns)
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
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search from the first row on, as far as it is decided."""
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1)
