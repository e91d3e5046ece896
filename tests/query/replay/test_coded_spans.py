"""Keys that are read from indexes on two attributes: the rows of a replay, from fewer events."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.indexes import stream_indexes
from chronicle.query.replay import coded_spans, locating
from chronicle.query.replay.spans import Spans

from ...rounds import rounds
from .across_cases import answers
from .test_derived_indexes import built, compiled

PATTERNS = ["(A B)", "(A T* B)", "(A T*? B T*? C)", "(A B+ C)", "(A T* (B | C))", "(C? A T* B)"]


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are short, and entries are always read."""
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 256)
    monkeypatch.setattr(coded_spans, "WORTH_ENTRIES", 0)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many positions the entries have left, each time that they were asked."""
    found: list[int] = []
    real = coded_spans.coded_spans

    def watched(*args: object) -> Spans | None:
        spans = real(*args)  # type: ignore[arg-type]
        if spans is not None:
            found.append(spans.total)
        return spans

    monkeypatch.setattr(locating, "coded_spans", watched)
    return found


@pytest.mark.parametrize("partition", ["", "g", "g, x"])
def test_rows_are_those_of_a_replay(tmp_path: Path, partition: str, told: list[int]) -> None:
    for seed in range(rounds(8, 60, 3000)):
        r = random.Random(f"{partition} {seed}")
        keys = [r.choice(["k, g", "f, g"]), "k, x", r.choice(["k", "g, k", "f"])]
        store, snapshot, indexes = built(tmp_path / str(seed), r, keys)
        for _ in range(6):
            pattern = r.choice(PATTERNS)
            names = [name for name in "ABC" if name in pattern]
            shared = "" if partition else r.choice(["g", "x"])
            defined = {}
            for name in names:
                defined[name] = r.choice(["k = '0'", "k = '1'", "k IN ('0', '2')", "f = 2.5"])
                if shared and name == "B":
                    defined[name] += f" AND {shared} = A.{shared}"
                if r.random() < 0.2:
                    defined[name] += " AND x > 1"
            ties = r.random() < 0.2
            clause = compiled(
                f"PATTERN {pattern} WITHIN INTERVAL '{r.choice([2, 10])}' SECOND",
                ", ".join(f"{name} AS {defined[name]}" for name in names),
                f"PARTITION BY {partition}" if partition else "",
                ", x" if ties else "",
            )
            expected, _ = answers(snapshot, clause, indexes, "replay")
            found, plan = answers(snapshot, clause, indexes, "all", gap=0)
            assert found == expected, (seed, pattern, defined, keys, plan.chosen)
        indexes.close()
        store.close()
    assert told
    assert min(told) < 1000  # of 1,200


@pytest.mark.parametrize("partition", ["", "PARTITION BY beat "])
def test_the_column_of_the_key_is_hardly_read(tmp_path: Path, partition: str) -> None:
    r = np.random.default_rng(3)
    count = 60_000
    table = pa.table(
        {
            "t": np.arange(count), "beat": r.integers(0, 500, count),
            "kind": r.choice(["a", "b", "c", "d", "e", "f"], count),
        }
    )  # fmt: skip
    shared = "" if partition else " AND beat = A.beat"
    text = (
        f"SELECT /*+ strategy({{}}) */ * FROM s MATCH_RECOGNIZE ({partition}ORDER BY t MEASURES "
        "A.t AS a, C.t AS c AFTER MATCH SKIP TO NEXT ROW PATTERN (A T*? B T*? C) WITHIN 60 DEFINE "
        f"A AS kind = 'a', B AS kind = 'b'{shared}, C AS kind = 'c'{shared})"
    )
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", table.schema, "t")
        stream.append(table)
        stream.create_index("kind")
        expected = database.sql(text.format("replay")).fetchall()
        assert expected
        stream.create_index("kind, beat")
        shown = str(database.explain(text.format("all"), analyze=True))
        assert "keys told by indexes" in shown
        assert "whole stream" not in shown
        found = database.sql(text.format("all")).fetchall()
        assert found == expected
