"""Strings of leaves are matched as dictionary codes: the rows are those of plain strings."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.query.pattern import buffers, match_stream
from chronicle.query.pattern.results import Results

ROWS = 60_000
CLAUSES = [
    "MEASURES A.e AS a, LAST(B.v) AS b PATTERN (A B+) DEFINE A AS e = 'x', B AS v > 50",
    "MEASURES FIRST(e) AS a, count(*) AS n PATTERN (A Z*? B) WITHIN INTERVAL '30' SECOND "
    "DEFINE A AS v > 98 AND e = 'y', B AS e IS NULL OR v < 2",
    "MEASURES B.t AS b PATTERN (A B) DEFINE B AS e = PREV(e) AND v < PREV(v)",
    "MEASURES C.e AS c PATTERN (A B* C) DEFINE B AS e <> A.e, C AS e = A.e AND v > A.v",
    "MEASURES B.k AS c PATTERN (A B) DEFINE A AS k < 'k2', B AS k IS NOT NULL AND v > 80",
    "MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH PATTERN (A B+) DEFINE A AS v > 97, B AS e = 'x'",
    "MEASURES NEXT(e) AS c PATTERN (A) DEFINE A AS v > 99",
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> chronicle.Database:
    random = np.random.default_rng(5)
    keys = [None if k == 9 else f"k{k}" for k in random.integers(0, 10, ROWS)]
    events = [(None, "x", "y", "z")[e] for e in random.integers(0, 4, ROWS)]
    table = pa.table(
        {
            "t": pa.array(np.arange(ROWS) * 100_000, pa.timestamp("us")),
            "k": pa.array(keys, pa.string()),
            "e": pa.array(events, pa.string()),
            "v": random.integers(0, 101, ROWS),
        }
    )
    path: Path = tmp_path_factory.mktemp("encoded") / "db"
    database = chronicle.open(path)
    stream = database.create_stream("s", table.schema, time="t")
    for low in range(0, ROWS, 7_000):
        stream.append(table.slice(low, 7_000))
    return database


@pytest.mark.parametrize("keys", ["", "PARTITION BY k", "PARTITION BY k, e"])
@pytest.mark.parametrize("clause", CLAUSES)
def test_encoded_strings_match_as_plain_ones(
    database: chronicle.Database, keys: str, clause: str
) -> None:
    def rows(source: str, chosen: str) -> pa.Table:
        match = f"MATCH_RECOGNIZE ({keys} ORDER BY t {clause})"
        return database.sql(
            f"SELECT /*+ strategy(replay) */ {chosen} FROM {source} {match}"
        ).arrow()

    plain = rows("(SELECT * FROM s)", "*")
    assert plain.num_rows
    assert rows("s", "*").to_pylist() == plain.to_pylist()
    assert rows("s", "count(*)").to_pylist() == [{"count_star()": plain.num_rows}]
    name = plain.schema.names[-1]
    assert rows("s", name).column(0).to_pylist() == plain.column(name).to_pylist()


@pytest.mark.parametrize(("condition", "times"), [("e = 'x'", 1), ("e = 'x' OR random() < 0", 0)])
def test_a_condition_is_asked_once_per_value_unless_it_is_volatile(
    database: chronicle.Database, monkeypatch: pytest.MonkeyPatch, condition: str, times: int
) -> None:
    evaluate = Mock(wraps=buffers.evaluate_all)
    monkeypatch.setattr(buffers, "evaluate_all", evaluate)
    for name in ("ROWS_FIRST", "ROWS_USUAL"):
        monkeypatch.setattr(match_stream, name, 1 << 12)
    monkeypatch.setattr(Results, "of", None)  # nothing that count(*) does not need is computed
    clause = f"(ORDER BY t PATTERN (A) DEFINE A AS {condition})"
    text = f"SELECT count(*) FROM s MATCH_RECOGNIZE {clause}"
    (one,) = database.sql("SELECT count(*) FROM s WHERE e = 'x'").fetchone()
    assert database.sql(text).fetchone() == (one,)
    asked = [call.args[1].num_rows for call in evaluate.call_args_list]
    assert asked.count(4) == times, asked  # the values and NULL
    assert sum(asked) >= (ROWS if times == 0 else 4), asked
