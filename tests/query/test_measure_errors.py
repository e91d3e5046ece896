"""A measure that cannot be computed is an error at its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.errors import SqlError


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "s") as db:
        schema = pa.schema([("t", pa.int64()), ("x", pa.int64())])
        db.create_stream("s", schema, time="t").append([{"t": t, "x": 2**63 - 1} for t in range(3)])
        yield db


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        ("sum(A.x)", r"beyond 64 bits; .*DECIMAL\(38, 0\)"),
        ("sum(A.x) + 1", r"beyond 64 bits"),
        ("A.x + FIRST(A.x)", "(?i)overflow"),
        ("A.x // 0", r"\(... // 0\)"),
    ],
)
@pytest.mark.parametrize("rows", ["ONE ROW PER MATCH", "ALL ROWS PER MATCH"])
def test_of_a_pattern(db: Database, rows: str, measure: str, words: str) -> None:
    query = "SELECT * FROM s MATCH_RECOGNIZE (\n ORDER BY t MEASURES count(*) AS n, "
    with pytest.raises(SqlError, match=words) as caught:
        db.sql(f"{query}{measure} AS y {rows} PATTERN (A A A))").fetchall()
    assert (caught.value.line, caught.value.column) == (2, len(query.split("\n")[1]) + 1)


def test_of_a_situation(db: Database) -> None:
    query = "SELECT * FROM s MATCH_SITUATIONS (MEASURES "
    with pytest.raises(SqlError, match="beyond 64 bits") as caught:
        db.sql(f"{query}sum(A.x) AS y PATTERN (A) DEFINE A AS t < 2)").fetchall()
    assert caught.value.column == len(query) + 1


def test_a_wider_sum_is_the_way(db: Database) -> None:
    query = "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES {} AS y PATTERN (A A A))"
    wide = db.sql(query.format("sum(CAST(A.x AS DECIMAL(38, 0)))")).fetchall()
    assert wide == [(3 * (2**63 - 1),)]
