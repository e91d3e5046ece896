"""Choosing terms: what pays is looked up, and intervals that were found are priced again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay import planning
from chronicle.query.replay.context import Costs
from chronicle.query.replay.planning import plan_match
from chronicle.query.replay.run_plan import run_match
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.schema import StreamSchema
from chronicle.store.store import Store
from chronicle.tests.patience import wait_for_indexes

FIELDS = [pa.field("t", pa.int64(), False), *((name, pa.float64()) for name in "xyz")]
SCHEMA = StreamSchema(pa.schema([*FIELDS, pa.field("k", pa.int64())]), "t")
EVENTS = 300_000
CLAUSE = (
    "SELECT * FROM s MATCH_RECOGNIZE ({} ORDER BY t MEASURES A.t AS a PATTERN (A B Z* C) "
    "WITHIN {} DEFINE A AS x < 0.01, B AS y < 0.01, C AS z < 0.01)"
)


def planned(
    path: Path, columns: dict[str, Any], within: int = 500, by: str = "", costs: Costs | None = None
) -> Any:
    """The plan of ``auto`` with an index on every attribute; its rows are those of a replay."""
    with Store.open(path / "store", "rw") as store:
        stream = store.create_stream("s", SCHEMA)
        table = pa.table({"t": np.arange(EVENTS), **columns, "k": np.arange(EVENTS) % 8})
        stream.append(table.cast(SCHEMA.arrow))
        stream.seal()
        indexes = StreamIndexes(path / "indexes", True)
        for name in "xyz":
            indexes.create(name, SCHEMA)
        snapshot = stream.snapshot()
        indexes.catch_up(snapshot.state)
        compiled = compile_match(clause_of_text(CLAUSE.format(by, within)), SCHEMA)
        plan = plan_match(snapshot, compiled, indexes, "auto", costs=costs, gap=0)
        full = plan_match(snapshot, compiled, indexes, "replay")
        told = [list(run_match(snapshot, compiled, some)) for some in (plan, full)]
        answers = [pa.Table.from_batches(b, schema=compiled.output_schema) for b in told]
        indexes.close()
    assert answers[0].equals(answers[1])
    return plan


def values(seed: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.random(EVENTS) for name in "xyz"}


@pytest.mark.parametrize("by", ["", "PARTITION BY k"])
def test_rare_terms_are_looked_up(tmp_path: Path, by: str) -> None:
    plan = planned(tmp_path, values(), 20, by, Costs(plan=1.0))
    assert plan.spans is not None
    assert {offer.name for offer in plan.picked} <= {"A", "B", "C"}
    assert plan.picked
    assert plan.replayed() < 0.2
    assert plan.choice.estimate.events < 0.5 * EVENTS


def test_a_short_replay_is_not_planned(tmp_path: Path) -> None:
    plan = planned(tmp_path, values(), 20, costs=Costs(event=1.0))
    assert plan.spans is None
    assert plan.reason == "a replay takes less time than planning"


def test_where_lookups_are_dear_nothing_is_looked_up(tmp_path: Path) -> None:
    plan = planned(tmp_path, values(), costs=Costs(seek=1e12, plan=1.0))
    assert plan.spans is None
    assert "a full replay" in plan.reason


def test_intervals_that_turn_out_wide_are_not_used(tmp_path: Path) -> None:
    columns = values()
    # B always follows A, so (A B) occurs a hundred times more often than by independent rates
    columns["y"] = np.roll(columns["x"], 1)
    plan = planned(tmp_path, columns, costs=Costs(event=10.0, seek=1_000.0, plan=1.0))
    assert plan.spans is None
    assert "intervals found would cost" in plan.reason


def test_where_intervals_turn_out_wide_the_coarse_map_remains(tmp_path: Path) -> None:
    columns = values()
    columns["x"][EVENTS * 5 // 8 :] += 1.0  # no A there, as the leaves know
    columns["y"] = np.roll(columns["x"], 1)
    plan = planned(tmp_path, columns, costs=Costs(event=10.0, seek=1_000.0, plan=1.0))
    assert plan.metrics.entries_read
    assert not plan.picked
    assert 0.6 < plan.replayed() < 0.75


def test_lookups_end_when_replaying_what_is_left_costs_less(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    x, y, z = 0.02 + rng.random((3, EVENTS))
    # A and B lie at even places only, so B hardly ever follows A; the rates cannot know that
    x[0::2][rng.random(EVENTS // 2) < 0.1] = 0.0
    y[0::2][rng.random(EVENTS // 2) < 0.1] = 0.0
    z[rng.random(EVENTS) < 0.01] = 0.0
    x[[1000, 250_000]], y[[1001, 250_001]], z[[1020, 250_020]] = 0.0, 0.0, 0.0
    costs = Costs(event=400.0, seek=1_000.0, entry=10.0, plan=1.0)
    plan = planned(tmp_path, {"x": x, "y": y, "z": z}, 50, costs=costs)
    assert {offer.block for offer in plan.picked} == {0}, plan.details()
    assert plan.replayed() < 0.05


def test_a_query_keeps_its_plan_until_a_commit(tmp_path: Path) -> None:
    """Or until an index is made; each strategy has its own."""
    text = (
        "SELECT /*+ strategy({}) */ * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t "
        "MEASURES A.t AS a PATTERN (A B) WITHIN 20 DEFINE A AS x = 452, B AS x < 9)"
    )
    made: list[str] = []
    own = planning.plan_match

    def counted(*args: Any, **options: Any) -> Any:
        made.append(args[3])
        return own(*args, **options)

    with chronicle.open(tmp_path / "s") as database, pytest.MonkeyPatch.context() as patch:
        database.sql("CREATE STREAM s (t BIGINT, k VARCHAR, x BIGINT) TIMESTAMP BY t")
        values = "i AS t, 'k' || i % 7 AS k, i * 7 % 500 AS x"
        database.sql(f"INSERT INTO s SELECT {values} FROM range(20000) r(i)")
        database.stream("s").seal()

        def answers(*planned: str) -> list[Any]:
            """Of all strategies, which agree, each asked twice, and planned so often."""
            made.clear()
            every = [
                database.sql(text.format(strategy)).fetchall()
                for strategy in ("auto", "all", "replay", "auto", "all", "replay")
            ]
            assert sorted(made) == sorted(planned)
            assert all(rows == every[0] for rows in every)
            return every[0]

        patch.setattr(planning, "plan_match", counted)
        each = "auto", "auto", "all", "replay"  # for a second run lookups may pay
        first = answers(*each)
        assert first
        assert answers() == first
        database.stream("s").create_index("x")
        wait_for_indexes(database)
        assert answers(*each) == first
        assert "indexes: A: x = 452" in str(database.explain(text.format("all")))
        database.sql("INSERT INTO s VALUES (20000, 'k0', 452), (20007, 'k0', 1)")
        assert len(answers(*each)) == len(first) + 1
