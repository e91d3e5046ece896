"""Windows grouped by more than the window, and aggregates that the tree does not keep."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.query.pattern.columns import StoredKeys
from chronicle.query.windows import keyed, slices
from chronicle.query.windows import slices as sliding
from chronicle.query.windows.aggregation import ReplayAggregation
from chronicle.query.windows.fields import Aggregate
from chronicle.query.windows.keyed import KeyedAggregation, SessionAggregation
from chronicle.query.windows.spec import CountWindows, SessionWindows, TimeWindows
from chronicle.schema import StreamSchema

from . import oracles_windows as oracle

EVENTS = 3000
OURS = ("WindowAggregate", "WindowEvents")
HOP = "HOP(s, t, INTERVAL '7' MINUTE, INTERVAL '1' HOUR)"
DUCK_HOP = """(SELECT s.*, w AS window_start, w + INTERVAL 1 HOUR AS window_end
    FROM s, LATERAL (SELECT time_bucket(INTERVAL 7 MINUTE, t, TIMESTAMP '1970-01-01')
                     - i * INTERVAL 7 MINUTE AS w FROM range(9) r(i)) WHERE w + INTERVAL 1 HOUR > t)
    """
SCHEMA = StreamSchema(
    pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.float64()), ("i", pa.int64())]), "t"
)
FUNCTIONS = ("first", "last", "any_value", "stddev_samp", "stddev_pop", "var_samp", "var_pop")
WANTED = [Aggregate("count"), *(Aggregate(f, c) for f in FUNCTIONS for c in ("x", "i"))]
WANTED += [Aggregate(f, "x") for f in ("count", "sum", "min", "max", "avg")]
WANTED += [Aggregate("min", "t")]


def batches_of(rows: list[tuple[Any, ...]], cuts: list[int]) -> list[pa.RecordBatch]:
    table = pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA.arrow
    )
    bounds = [0, *cuts, len(rows)]
    return [b for a, e in pairwise(bounds) for b in table[a:e].to_batches()]


def random_rows(rng: random.Random, count: int, keys: int) -> list[tuple[Any, ...]]:
    rows = []
    tick = rng.choice([-3000, 0])
    for _ in range(count):
        tick += rng.choice([0, 0, 1, 1, 3, 0, 0, 0, rng.choice([1, 400])])
        key = rng.choice([None, *(f"k{n}" for n in range(keys))])
        x = None if rng.random() < 0.3 else rng.choice([rng.uniform(-9, 9), rng.uniform(1e6, 2e6)])
        rows.append((tick, key, x, None if rng.random() < 0.3 else rng.randint(-99, 99)))
    return rows


def spreads(values: list[Any]) -> dict[str, float | None]:
    """Variances and deviations in exact arithmetic."""
    kept = [Fraction(value) for value in values if value is not None]
    count = len(kept)
    deviations = count * sum(value * value for value in kept) - sum(kept) ** 2
    found: dict[str, float | None] = {}
    for name, least in (("samp", 1), ("pop", 0)):
        variance = float(deviations / (count * (count - least))) if count > least else None
        found[f"var_{name}"] = variance
        found[f"stddev_{name}"] = variance if variance is None else math.sqrt(variance)
    return found


def expected_of(rows: list[tuple[Any, ...]]) -> list[Any]:
    made = []
    for column in (2, 3):
        values = [row[column] for row in rows]
        some = next((value for value in values if value is not None), None)
        made.append(spreads(values) | {"first": values[0], "last": values[-1], "any_value": some})
    asked = [of_column[function] for function in FUNCTIONS for of_column in made]
    return [len(rows), *asked, *oracle.aggregates(row[2] for row in rows)[1:], rows[0][0]]


def compare(found: tuple[Any, ...], wanted: list[Any], rows: list[tuple[Any, ...]]) -> None:
    values = [abs(row[2]) for row in rows if row[2] is not None]
    scale = sum(values, 0.0)
    for got, want in zip(found, wanted, strict=True):
        if isinstance(want, float):
            assert isinstance(got, float)
            assert abs(got - want) <= 1e-11 * abs(want) + 1e-15 * scale, (found, wanted)
        else:
            assert got == want, (found, wanted)


def rows_of(aggregation: Any) -> list[tuple[Any, ...]]:
    table = pa.Table.from_batches(list(aggregation.batches()), schema=aggregation.schema)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_keys_and_ordered_aggregates(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Time and count windows by key, in pieces of all sizes, against exact arithmetic."""
    rng = random.Random(seed)
    rows = random_rows(rng, rng.choice([40, 500]), rng.choice([1, 3, 20]))
    batches = batches_of(rows, sorted(rng.sample(range(1, len(rows)), 4)))
    if seed % 2:
        monkeypatch.setattr(sliding, "STEPS_AT_ONCE", 7)
        monkeypatch.setattr(sliding, "WINDOWS_AT_ONCE", 5)
        monkeypatch.setattr(keyed, "KEYS_IDLE_MAX", 0)
        monkeypatch.setattr(sliding, "_FIRST_ROOM", 2)
        monkeypatch.setattr(slices, "EVENTS_AT_ONCE", 13)

    def scan(names: list[str]) -> Iterator[pa.RecordBatch]:
        return iter([batch.select(names) for batch in batches])

    events = [(row[0], row) for row in rows]
    for size, slide in ((5, 5), (50, 7), (3, 11), (60, 4), (900, 300)):
        windows: Any = TimeWindows(size, slide, 3 % slide)
        wanted = oracle.time_windows(events, size, slide, 3 % slide)
        keyed_rows(windows, scan, [(row[:2], row[2]) for row in wanted])
        ordered_rows(windows, scan, [(row[:2], row[2]) for row in wanted])
    for size, slide in ((4, 4), (33, 5), (3, 7)):
        windows = CountWindows(size, slide)
        wanted = oracle.count_windows(events, size, slide)
        keyed_rows(windows, scan, [(row[:3], row[3]) for row in wanted])
        ordered_rows(windows, scan, [(row[:3], row[3]) for row in wanted])
    wanted = oracle.sessions(events, 2)
    ordered_rows(SessionWindows(2), scan, [(row[:2], row[2]) for row in wanted])


def keyed_rows(windows: Any, scan: Any, wanted: list[Any]) -> None:
    found = rows_of(KeyedAggregation(SCHEMA, windows, WANTED, ["k"], scan))
    width = 3 if isinstance(windows, CountWindows) else 2
    assert [row[:width] for row in found] == sorted(row[:width] for row in found)
    by_key = {row[: width + 1]: row[width + 1 :] for row in found}
    assert len(by_key) == len(found)
    groups: dict[Any, list[Any]] = {}
    for bounds, inside in wanted:
        for row in inside:
            groups.setdefault((*bounds, row[1]), []).append(row)
    assert set(by_key) == set(groups)
    for key, inside in groups.items():
        compare(by_key[key], expected_of(inside), inside)


def ordered_rows(windows: Any, scan: Any, wanted: list[Any]) -> None:
    if isinstance(windows, SessionWindows):
        found = rows_of(SessionAggregation(SCHEMA, windows, WANTED, (), scan))
    else:
        found = rows_of(ReplayAggregation(SCHEMA, windows, WANTED, scan))
    width = 3 if isinstance(windows, CountWindows) else 2
    assert [row[:width] for row in found] == [bounds for bounds, _ in wanted]
    for row, (_, inside) in zip(found, wanted, strict=True):
        compare(row[width:], expected_of(inside), inside)


def test_variances_keep_their_digits() -> None:
    """Values far from zero: no digits are lost to the difference of two large sums."""
    rng = random.Random(2)
    rows = [(n, None, 1e9 + rng.uniform(-1, 1), n) for n in range(4000)]
    (batch,) = batches_of(rows, [])
    windows = TimeWindows(1000, 1)
    wanted = [Aggregate("var_samp", "x")]
    made = ReplayAggregation(SCHEMA, windows, wanted, lambda names: iter([batch.select(names)]))
    for start, end, found in rows_of(made)[1500:2600:137]:
        exact = spreads([row[2] for row in rows[start:end]])["var_samp"]
        assert exact is not None
        assert abs(found - exact) <= 1000 * 2**-52 * 1e9 * exact
        assert abs(found - exact) <= 1e-6 * exact


def test_keys_are_equal_where_group_by_says_so() -> None:
    """Nulls, NaNs and zeros of both signs; more keys than fit one batch; forgotten ones."""
    nan = float("nan")
    floats = pa.array([0.0, -0.0, nan, -nan, None, None, 1.0], pa.float64())
    times = pa.array([1, 1, 2, 2, None, None, 3], pa.timestamp("ns"))
    rows = pa.table({"f": floats, "t": times})
    table = StoredKeys(rows.schema, ["f", "t"])
    codes = table.encode(rows)
    assert codes.tolist() == [0, 0, 1, 1, 2, 2, 3]
    first, second = table.arrays(np.array([3, 2, 1]))
    assert first.to_pylist()[:2] == [1.0, None]
    assert math.isnan(first[2].as_py())
    assert second.equals(times.take(pa.array([6, 4, 2])))
    table.keep(np.array([3, 1]))
    assert table.encode(rows).tolist() == [2, 2, 1, 1, 3, 3, 0]
    numbers = [np.random.default_rng(n).integers(0, 9000, 20_000) for n in range(3)]
    many = pa.table(numbers, names=["a", "b", "c"])
    wide = StoredKeys(many.schema, many.schema.names)
    made = wide.encode(many)
    back = [column.to_numpy() for column in wide.arrays(made)]
    assert all((a == b).all() for a, b in zip(back, numbers, strict=True))
    assert wide.count == len(set(zip(*(column.tolist() for column in numbers), strict=True)))


@pytest.fixture(scope="module")
def events() -> pa.Table:
    rng = np.random.default_rng(12)
    ticks = np.sort(rng.integers(0, 5 * 3_600_000, EVENTS)) * 1000
    # DuckDB does not promise an order of ties, so there are none
    ticks += np.arange(EVENTS)
    return pa.table(
        {
            "t": pa.array(ticks).cast(pa.timestamp("us")),
            "x": pa.array(rng.normal(size=EVENTS), mask=rng.random(EVENTS) < 0.1),
            "Key": pa.array(rng.choice(["a", "b", None], EVENTS)),
            "i": pa.array(rng.integers(-9, 9, EVENTS), pa.int16()),
            "f": pa.array(rng.choice([0.5, -0.0, 0.0, math.nan], EVENTS)),
            "flag": pa.array(rng.random(EVENTS) < 0.9),
        }
    )


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, events: pa.Table) -> Iterator[Any]:
    with chronicle.open(tmp_path_factory.mktemp("g") / "store") as database:
        stream = database.create_stream("s", events.schema, time="t")
        order = np.argsort(np.arange(EVENTS) + np.arange(EVENTS) % 97 // 96 * 150)
        for start in range(0, EVENTS, 500):  # late events
            stream.append(events.take(pa.array(order[start : start + 500])))
        yield database


@pytest.mark.parametrize(
    "query",
    [
        "SELECT window_start, key, avg(x), count(*), sum(i), min(t) FROM {} "
        "GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT window_end, Key AS k, f, max(x) + 1, bool_and(flag), bool_or(flag) FROM {} "
        "WHERE i > -5 GROUP BY ALL HAVING count(*) > 2 AND k IS NOT NULL ORDER BY 1, k DESC, f",
        "SELECT window_start, i % 3 AS i, stddev(x) AS a0, variance(i + 1) FROM {} "
        "GROUP BY window_start, i % 3 HAVING a0 > 0.5 ORDER BY 1, i",
        "SELECT window_start, i, upper(key) AS key, count(*) FROM {} GROUP BY 1, i, key "
        "ORDER BY 1, key, i",
        "SELECT window_start, lower(key) || '!', stddev_pop(x), var_pop(i), count(x) FROM {} w "
        "GROUP BY w.window_start, lower(w.key) ORDER BY 1, 2",
        "SELECT window_start, key FROM {} GROUP BY window_start, key ORDER BY ALL",
        "SELECT window_start, key, sum(count(*)) OVER (PARTITION BY key ORDER BY window_start) "
        "FROM {} GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT window_start, any_value(i), first(x), last(i) FROM {} GROUP BY 1 ORDER BY 1",
        "SELECT window_start, date_trunc('hour', t) AS h, count(*) FILTER (WHERE x > 0) FROM {} "
        "GROUP BY 1, h ORDER BY 1, h",
        "SELECT window_start, t, sum(i) FROM {} WHERE x > 0 OR i = 3 GROUP BY 1, t ORDER BY 1, t",
    ],
)  # fmt: skip
def test_groups_equal_duckdb(db: Any, events: pa.Table, query: str) -> None:
    """Keys of all kinds, aliases, expressions of keys, HAVING and ORDER BY on them."""
    text = query.format(HOP)
    with duckdb.connect(config={"threads": 1}) as duck:
        duck.register("s", events)
        answer = duck.sql(query.format(DUCK_HOP))
        names, expected = answer.columns, answer.fetchall()
    result = db.sql(text).arrow()
    assert result.schema.names == names
    found = list(zip(*(column.to_pylist() for column in result.columns), strict=True))
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            if isinstance(a, float) and isinstance(b, float):
                assert math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (a != a and b != b)
            else:
                assert a == b, (one, other)
    (operator,) = [o for o in db.explain(text, analyze=True).operators() if o.name in OURS]
    assert operator.name == "WindowAggregate"
    assert dict(operator.details)["strategy"] == "replay"
    assert dict(operator.figures)["events"] <= EVENTS


def test_count_windows_by_key(db: Any, events: pa.Table) -> None:
    """Every event is read once; the bounds are those of the window, not of the key."""
    text = (
        "SELECT window_id, window_start, window_end, key, sum(i), last(x) "
        "FROM HOP_ROWS(s, 70, 1000) GROUP BY ALL ORDER BY 1, 4 NULLS FIRST"
    )
    found = db.sql(text).fetchall()
    rows = events.to_pylist()
    expected = []
    for n in range((EVENTS - 1000) // 70 + 1):
        inside = rows[70 * n : 70 * n + 1000]
        for key in (None, "a", "b"):
            mine = [row for row in inside if row["Key"] == key]
            total = sum(row["i"] for row in mine)
            expected.append((n, inside[0]["t"], inside[-1]["t"], key, total, mine[-1]["x"]))
    assert found == expected
    (operator,) = [o for o in db.explain(text, analyze=True).operators() if o.name in OURS]
    assert dict(operator.figures)["events"] == EVENTS


EXTREMES = [2**63 - 1, -(2**63), -1, 0, 1, 2**62]


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64(), pa.int8(), pa.bool_()])
def test_integers_of_groups_are_exact(type_: pa.DataType) -> None:
    """Sums beyond 64 bits of both signs, the least and the greatest values, nulls between."""
    rng = random.Random(5)
    values: list[Any] = {pa.int64(): EXTREMES, pa.uint64(): [2**64 - 1, 0, 1, 2**63],
                         pa.int8(): [-128, 127, 0]}.get(type_, [True, False])  # fmt: skip
    rows = [(n // 3, rng.choice("abc"), rng.choice([None, *values])) for n in range(600)]
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", type_)]), "t")
    columns = zip(schema.arrow, zip(*rows, strict=True), strict=True)
    table = pa.table([pa.array(c, f.type) for f, c in columns], schema=schema.arrow)
    wanted = [Aggregate(name, "v") for name in ("count", "sum", "min", "max")]

    def scan(names: list[str]) -> Iterator[pa.RecordBatch]:
        return iter(table.select(names).to_batches(max_chunksize=70))

    found = rows_of(KeyedAggregation(schema, TimeWindows(50, 50, 0), wanted, ["k"], scan))
    assert len(found) == 12
    for start, end, key, *got in found:
        mine = [v for t, k, v in rows if start <= t < end and k == key and v is not None]
        assert got == [len(mine), sum(mine), min(mine), max(mine)]


def test_sums_of_integers_pass_by_the_executor(db: Any) -> None:
    """A sum, as it is and as a BIGINT, is what the executor gives; what does not fit is told."""
    asked = "window_start, key, sum(i) AS n, sum(i)::BIGINT AS b, count(*) AS c"
    grouped = f"FROM {HOP} GROUP BY window_start, window_end, key"
    fast = f"SELECT {asked} {grouped}"
    assert [o.name for o in db.explain(fast).operators()] == ["WindowAggregate"]
    slow = f"SELECT * FROM ({fast}) ORDER BY 1, 2"
    one, other = db.sql(fast).arrow().sort_by([("window_start", "ascending")]), db.sql(slow).arrow()
    assert one.schema == other.schema
    key = str
    assert sorted(one.to_pylist(), key=key) == sorted(other.to_pylist(), key=key)
    db.create_stream("huge", pa.schema([("t", pa.int64()), ("v", pa.int64())]), "t")
    db.stream("huge").append([{"t": 1, "v": 2**63 - 1}, {"t": 2, "v": 1}])
    of_huge = "SELECT {} AS n FROM TUMBLE(huge, t, 10) GROUP BY window_start, window_end"
    (row,) = db.sql(of_huge.format("sum(v)")).fetchall()
    assert row == (2**63,)
    with pytest.raises(chronicle.SqlError, match="column 'n' is out of range for BIGINT"):
        db.sql(of_huge.format("sum(v)::BIGINT")).fetchall()
