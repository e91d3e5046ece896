"""The history map: what of a stream each kind of operator is drawn as having read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.query.contract.explanation import Plan, Regions

COUNT = 40_000


@pytest.fixture(scope="module")
def db(tmp_path_factory: Any) -> Iterator[Database]:
    """Values rise with time, so minima and maxima of leaves tell where one lies."""
    place: Path = tmp_path_factory.mktemp("store")
    with chronicle.open(place) as database:
        schema = pa.schema([("t", pa.int64()), ("x", pa.int64()), ("k", pa.string())])
        stream = database.create_stream("s", schema, time="t", options={"leaf_bytes": 8192})
        n = np.arange(COUNT)
        stream.append(pa.table([n * 10, n, [f"k{i % 3}" for i in n]], schema))
        stream.seal()  # what lies in memory is read in any case
        yield database


def regions(db: Database, sql: str) -> Regions:
    plan = db.explain(sql)
    assert Plan.from_dict(plan.to_dict()) == plan
    found = [step.regions for step in plan.operators() if step.regions is not None]
    assert len(found) == 1
    drawn = found[0]
    assert sum(one[3] for one in drawn.found) == COUNT
    assert drawn.found[0][0] == 0
    assert drawn.found[-1][1] == (COUNT - 1) * 10
    assert all(a[1] <= b[0] + 10 for a, b in zip(drawn.found, drawn.found[1:], strict=False))
    return drawn


@pytest.mark.parametrize(
    ("sql", "kind", "low", "high"),
    [
        ("SELECT k FROM s WHERE t >= 100000 AND t < 200000", "read", 100_000, 199_990),
        ("SELECT sum(x) FROM s WHERE t >= 100000 AND t < 200000", "aggregated", 100_000, 199_990),
        (
            "SELECT window_start, count(*) FROM TUMBLE(s, t, 1000) WHERE t < 50000 GROUP BY 1",
            "aggregated",
            0,
            49_990,
        ),
        ("SELECT k FROM s", "read", 0, (COUNT - 1) * 10),
    ],
)
def test_a_range_of_time_is_told_exactly(
    db: Database, sql: str, kind: str, low: int, high: int
) -> None:
    done = [one for one in regions(db, sql).found if one[2] != "skipped"]
    assert [(one[0], one[1], one[2]) for one in done] == [(low, high, kind)]
    assert done[0][3] == (high - low) // 10 + 1


def test_leaves_that_minima_rule_out_are_skipped(db: Database) -> None:
    found = regions(db, "SELECT k FROM s WHERE x BETWEEN 20000 AND 20100").found
    read = [one for one in found if one[2] == "read"]
    assert len(read) == 1
    assert read[0][0] <= 200_000
    assert read[0][1] >= 201_000
    assert read[0][3] < COUNT / 10
    nothing = regions(db, "SELECT k FROM s WHERE x > 1000000").found
    assert [one[2] for one in nothing] == ["skipped"]
    assert "regions" not in db.explain("SELECT k FROM s LIMIT 3").to_dict()["plan"]


def test_the_text_has_a_strip_on_demand(db: Database) -> None:
    plan = db.explain("SELECT k FROM s WHERE t >= 100000 AND t < 200000")
    assert "history" not in str(plan)
    line = next(line for line in plan.text(strips=True).split("\n") if "history" in line)
    strip = line.partition("history: ")[2].split("  ")[0]
    assert (len(strip), strip.count("█"), strip[:15]) == (60, 15, "·" * 15)
    assert "read 25.00%" in line


def test_partitions_that_are_replayed_have_lanes(tmp_path: Path) -> None:
    """Keys as they are, and stretches in which every match of the partition lies."""
    with chronicle.open(tmp_path / "store") as database:
        schema = pa.schema(
            [("t", pa.timestamp("s")), ("k", pa.float64()), ("d", pa.date32()), ("x", pa.int64())]
        )
        stream = database.create_stream("s", schema, time="t", options={"leaf_bytes": 8192})
        n = np.arange(60_000)
        keys = [None if i % 200 == 7 else float(i % 200) for i in n]
        days = pa.array(n % 200, pa.int32()).cast(pa.date32())
        hits = np.where(n % 4999 == 7, 1, 0)
        stream.append(pa.table([pa.array(n, pa.timestamp("s")), keys, days, hits], schema))
        stream.seal()
        stream.create_index("x")
        clause = (
            "PARTITION BY k, d ORDER BY t MEASURES FIRST(A.t) AS a, LAST(B.t) AS b "
            "PATTERN (A B) WITHIN INTERVAL '10' MINUTE DEFINE A AS x = 1"
        )
        sql = f"SELECT /*+ strategy(all) */ * FROM s MATCH_RECOGNIZE ({clause})"
        plan = database.explain(sql)
        (found,) = [step.regions for step in plan.operators() if step.regions is not None]
        assert Plan.from_dict(plan.to_dict()) == plan
        matches = database.sql(sql).fetchall()
        assert found.partitions == len(found.lanes) == hits.sum()  # the last one has no next event
        assert len(matches) == hits.sum() - 1
        lanes = dict(found.lanes)
        for key, day, first, last in matches:
            label = f"{'NULL' if key is None else key}, {day}"
            a, b = (int((at - dt.datetime(1970, 1, 1)).total_seconds()) for at in (first, last))
            assert any(low <= a and b <= high for low, high in lanes[label]), label
        assert "NULL, 1970-01-08" in lanes
