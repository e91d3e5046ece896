"""WHERE on the times of matches: less is read, and no run is cut by it."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import SqlError

from ...rounds import rounds
from .test_situations_differential import random_case
from .test_situations_replay import SCHEMA, stream


@pytest.mark.parametrize("seed", range(rounds(1, 3, 10)))
def test_the_rows_are_those_of_all_matches(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    narrowed = seen = 0
    table = stream(seed)
    last = table["t"][-1].as_py()
    with chronicle.open(tmp_path) as db:
        s = db.create_stream("s", SCHEMA, time="t", options={"leaf_bytes": 8192})
        s.append(table)
        if seed == 1:
            s.append(table.slice(6_000, 5))  # late
        count = rounds(16, 30)
        for number in range(3000 * seed, 3000 * seed + count):
            case = random_case(number)
            text = case.text.replace(f"WITHIN {case.pattern.within} ", "")
            gap = "" if case.pattern.gap is None else f"GAP {case.pattern.gap} "
            within = f" WITHIN {rng.choice((20, 60))} {gap}EMIT"
            text = text.replace(gap, "").replace(" EMIT", within)
            if rng.random() < 0.2:
                text = text.replace("a = 1", "a >= PREV(b)")
            names = [f'"{n}{end}"' for n in case.pattern.names for end in "se"]
            first, second = rng.choice(names), rng.choice([*names, "detected", "completed"])
            low = rng.randrange(last)
            where = rng.choice([
                f"{first} >= {low}", f"{second} < {low}",
                f"m.{first} BETWEEN {low} AND {low + 500}",
                f"{first} >= {low} AND {second} <= {low + 900} AND {first} <> 5",
                f"{low} < {second} AND ({first} < {low + 300} OR {first} IS NULL)",
            ])  # fmt: skip
            query = f"SELECT {{}} * FROM s MATCH_SITUATIONS ({text}) AS m WHERE {where}"
            try:
                wanted = db.sql(query.format("/*+ strategy(replay) */")).arrow()
            except SqlError as error:
                if "nothing can satisfy" in str(error):
                    continue
                raise
            result = db.sql(query.format(""))
            assert sorted(map(repr, result.arrow().to_pylist())) == sorted(
                map(repr, wanted.to_pylist())
            ), (number, query)
            narrowed += "RangeOfTime" in str(result.plan)
            seen += wanted.num_rows
    assert narrowed > count // 3
    assert seen > 5


def test_what_is_read_and_what_is_not_a_time(tmp_path: Path) -> None:
    start = dt.datetime(2020, 1, 1)
    count = 50_000
    times = pa.array([start + dt.timedelta(seconds=i) for i in range(count)], pa.timestamp("us"))
    x = pa.array([float(i % 100 < 30) for i in range(count)])
    with chronicle.open(tmp_path) as db:
        db.create_stream(
            "s", pa.schema([("t", pa.timestamp("us")), ("x", pa.float64())]), time="t",
            options={"leaf_bytes": 16384},
        ).append(pa.table({"t": times, "x": x}))  # fmt: skip
        clause = "MEASURES STARTED(A) AS s, ENDED(A) AS e, ENDED(A) + INTERVAL 1 DAY AS f "
        clause += "PATTERN (A) {} DEFINE A AS abs(x) > 0.5"

        def plan(where: str, within: str = "WITHIN INTERVAL '1' HOUR", hint: str = "") -> str:
            matched = f"MATCH_SITUATIONS ({clause.format(within)})"
            query = f"SELECT {hint} * FROM s {matched} WHERE {where}"
            params = {"low": start} if "$low" in where else None
            return str(db.explain(query, True, params=params))

        late = "TIMESTAMP '2020-01-01 12:00:00'"
        told = plan(f"s >= {late}")
        assert "matches known from" in told
        assert int(told.split("events read ")[1].split("\n")[0].replace(",", "")) < 16_000
        for where in (f"e > {late}", "s < $low + INTERVAL 1 HOUR", f"s = {late} OR s < {late}"):
            assert "RangeOfTime" in plan(where), where
        assert "RangeOfTime" in plan(f"e < {late}", "")
        for where in (f"f > {late}", "s >= '2019-01-01'", f"e > {late} OR s = f", "s <> e"):
            assert "RangeOfTime" not in plan(where), where
        assert "RangeOfTime" not in plan(f"s >= {late}", hint="/*+ strategy(replay) */")
        query = f"""SELECT {{}} * FROM s MATCH_SITUATIONS (
            {clause.format("WITHIN INTERVAL '1' HOUR EMIT ON DETECTION")})
            WHERE e < TIMESTAMP '2020-01-01 00:10:00' OR e IS NULL"""
        wanted = db.sql(query.format("/*+ strategy(replay) */")).fetchall()
        assert len(wanted) == count // 100  # each alarm comes before its end
        assert db.sql(query.format("")).fetchall() == wanted
