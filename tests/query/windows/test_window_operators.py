"""Replay and index against plain Python, on every shape a stream can have."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronicle.errors import QueryTimeout
from chronicle.query.windows import kernels
from chronicle.query.windows.aggregation import (
    IndexAggregation,
    ReplayAggregation,
    SelectedRange,
    WindowAggregation,
)
from chronicle.query.windows.fields import Aggregate, FieldPlan
from chronicle.query.windows.keyed import SessionAggregation
from chronicle.query.windows.slices import Slider
from chronicle.query.windows.spec import CountWindows, SessionWindows, TimeWindows
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

from . import oracles_windows as oracle

LOW, HIGH = -(2**63), 2**63 - 1
WHOLE = SelectedRange()
FUNCTIONS = ("count", "sum", "min", "max", "avg")
TYPES = {
    "double": pa.float64(),
    "float": pa.float32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "wide": pa.uint64(),
    "unsigned": pa.uint32(),
    "tiny": pa.uint8(),
    "flag": pa.bool_(),
}


def replayed(
    snapshot: Any, windows: Any, aggregates: Any, check: Any = lambda: None, **selected: int
) -> WindowAggregation:
    chosen = SelectedRange(**selected)

    def scan(columns: list[str]) -> Any:
        return snapshot.scan(chosen.start, chosen.end, columns, check=check)

    if isinstance(windows, SessionWindows):
        return SessionAggregation(snapshot.schema, windows, aggregates, (), scan, check)
    return ReplayAggregation(snapshot.schema, windows, aggregates, scan, check)


def value_of(rng: random.Random, kind: str, special: bool) -> Any:
    if rng.random() < 0.1:
        return None
    if kind == "double":
        if special and rng.random() < 0.02:
            return rng.choice([math.nan, math.inf, -math.inf])
        return rng.choice([rng.uniform(-1e3, 1e3), rng.uniform(-1, 1) * 1e15, 0.0])
    if kind == "float":
        return float(np.float32(rng.uniform(-100, 100)))
    if kind == "flag":
        return rng.random() < 0.5
    type_ = TYPES[kind]
    info = np.iinfo(type_.to_pandas_dtype())
    extreme = rng.random() < 0.05
    return rng.choice([info.min, info.max]) if extreme else rng.randint(max(info.min, -99), 99)


@pytest.fixture(scope="module")
def stores() -> Iterator[Any]:
    """Makes streams in memory: name, schema, batches -> snapshot."""
    opened = []

    def make(
        kind: str, batches: list[list[tuple[int, Any]]], codec: str, leaf_bytes: int, seal_at: int
    ) -> Any:
        store = Store.open("s", "rw", files=MemoryFiles())
        opened.append(store)
        schema = StreamSchema(pa.schema([("t", pa.int64()), ("x", TYPES[kind])]), "t")
        options = StreamOptions(
            codec=codec, leaf_bytes=leaf_bytes, compaction="manual", late_events_max=10
        )
        stream = store.create_stream("e", schema, options)
        for i, batch in enumerate(batches):
            if batch:
                ticks = pa.array([tick for tick, _ in batch], pa.int64())
                values = pa.array([value for _, value in batch], TYPES[kind])
                stream.append(pa.record_batch([ticks, values], schema=schema.arrow))
            if i == seal_at:
                stream.seal()
        return stream.snapshot()

    yield make
    for store in opened:
        store.close()


def rows_of(aggregation: Any) -> list[tuple[Any, ...]]:
    table = pa.Table.from_batches(list(aggregation.batches()), schema=aggregation.schema)
    columns = [
        [int(v) if v is not None else None for v in column.to_pylist()]
        if pa.types.is_decimal(column.type)
        else column.to_pylist()
        for column in table.columns
    ]
    return list(zip(*columns, strict=True))


def same(found: Any, expected: Any, scale: float) -> bool:
    if isinstance(expected, bool) or isinstance(found, bool):
        return bool(found) == bool(expected) and found is not None
    if isinstance(expected, float) and isinstance(found, (int, float)):
        if math.isnan(expected) or math.isinf(expected):
            return found == expected or (math.isnan(expected) and math.isnan(found))
        return abs(found - expected) <= 1e-15 * scale + 2 * math.ulp(expected)
    return bool(found == expected)


AGGREGATES = [Aggregate("count"), *(Aggregate(f, "x") for f in FUNCTIONS)]


def check(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]], kind: str) -> None:
    """Compare rows of (bounds..., aggregates) with rows of (bounds..., values)."""
    assert [row[: -len(AGGREGATES)] for row in found] == [row[:-1] for row in expected]
    for row, (*_, values) in zip(found, expected, strict=True):
        whole = oracle.aggregates(
            [int(v) if kind == "flag" and v is not None else v for v in values]
        )
        finite = [abs(v) for v in values if v is not None and v == v and abs(v) != math.inf]
        scale = float(sum(finite)) if finite else 0.0
        for name, got, want in zip(
            ("rows", "count", "sum", "min", "max", "avg"),
            row[-len(AGGREGATES) :],
            whole,
            strict=True,
        ):
            assert same(got, want, scale), (name, got, want, row, values[:9])


def both(snapshot: Any, windows: Any, selected: SelectedRange = WHOLE) -> list[tuple[Any, ...]]:
    """Rows of replay and index, which must be the same."""
    replay = rows_of(
        replayed(snapshot, windows, AGGREGATES, start=selected.start, last=selected.last)
    )
    if isinstance(windows, SessionWindows):
        return replay
    index = rows_of(IndexAggregation(snapshot, windows, AGGREGATES, selected))
    assert len(replay) == len(index)
    for one, other in zip(replay, index, strict=True):
        exact = [v for v in one if not isinstance(v, float)]
        assert exact == [v for v in other if not isinstance(v, float)]
        for a, b in zip(one, other, strict=True):
            if isinstance(a, float):
                assert same(b, a, abs(a)), (one, other)
    return index


def random_stream(
    rng: random.Random, kind: str, events: int, special: bool
) -> list[list[tuple[int, Any]]]:
    """Batches with ties, gaps, negative times and late events."""
    batches: list[list[tuple[int, Any]]] = []
    tick = rng.choice([-5000, 0, 10**12])
    batch: list[tuple[int, Any]] = []
    for _ in range(events):
        if rng.random() < 0.4:
            tick += rng.randint(1, 6)
        if rng.random() < 0.01:
            tick += rng.randint(100, 700)
        late = rng.random() < 0.03 and rng.random() < 0.5
        batch.append((tick - rng.randint(1, 900) if late else tick, value_of(rng, kind, special)))
        if rng.random() < 0.01:
            batches.append(batch)
            batch = []
    return [*batches, batch]


@pytest.mark.parametrize("seed", range(14))
def test_random_streams(stores: Any, seed: int) -> None:
    """Time windows, count windows and sessions of random streams, whole and in part."""
    rng = random.Random(seed)
    kind = list(TYPES)[seed % len(TYPES)]
    codec = ("none", "lz4", "zstd")[seed % 3]
    batches = random_stream(rng, kind, rng.choice([300, 6000, 9000]), seed % 4 == 0)
    snapshot = stores(kind, batches, codec, 4096 << (seed % 3) * 2, len(batches) // 2)
    events = oracle.arrival_order([event for batch in batches for event in batch])
    assert len(events) < 1000 or snapshot.state.runs  # late runs, late buffer and tail take part
    for size, slide in ((7, 7), (40, 10), (50, 7), (3, 11), (900, 300), (10**6, 10**6), (9, 1)):
        origin = rng.choice([0, 3, -10])
        found = both(snapshot, TimeWindows(size, slide, origin))
        check(found, oracle.time_windows(events, size, slide, origin), kind)
    for size, slide in ((1, 1), (10, 10), (100, 30), (5, 13), (1500, 500), (20000, 1)):
        found = both(snapshot, CountWindows(size, slide))
        check(found, oracle.count_windows(events, size, slide), kind)
    for gap in (1, 5, 150):
        check(both(snapshot, SessionWindows(gap)), oracle.sessions(events, gap), kind)
    low = events[len(events) // 4][0]
    high = events[3 * len(events) // 4][0]
    part = [event for event in events if low <= event[0] <= high]
    found = both(snapshot, TimeWindows(40, 15), SelectedRange(low, high))
    check(found, oracle.time_windows(part, 40, 15, 0), kind)
    found = both(snapshot, CountWindows(64, 20), SelectedRange(low, high))
    check(found, oracle.count_windows(part, 64, 20), kind)


@given(st.data())
@settings(max_examples=rounds(6, 60), deadline=None, suppress_health_check=list(HealthCheck))
def test_extremes(stores: Any, data: st.DataObject) -> None:
    """Few events anywhere in 64 bits, any size, slide and origin that stays listable."""
    edges = st.one_of(
        st.integers(LOW, LOW + 40), st.integers(HIGH - 40, HIGH), st.integers(-40, 40)
    )
    ticks = data.draw(st.lists(edges, max_size=12))
    slide = data.draw(st.integers(1, 30))
    size = data.draw(st.integers(1, 90))
    if data.draw(st.booleans()):
        slide *= 2**57
        size = min(size * 2**56, HIGH)
    origin = data.draw(st.one_of(st.integers(-50, 50), st.sampled_from([LOW, HIGH])))
    events = [(tick, i) for i, tick in enumerate(ticks)]
    cut = len(events) // 2
    snapshot = stores("long", [events[:cut], events[cut:]], "none", 4096, -1)
    ordered = oracle.arrival_order(events)
    shift = origin % slide
    found = both(snapshot, TimeWindows(size, slide, origin))
    check(found, oracle.time_windows(ordered, size, slide, shift), "long")
    gap = data.draw(st.integers(1, HIGH))
    check(both(snapshot, SessionWindows(gap)), oracle.sessions(ordered, gap), "long")
    check(both(snapshot, CountWindows(3, 2)), oracle.count_windows(ordered, 3, 2), "long")


def test_empty_and_single(stores: Any) -> None:
    """Streams of no event and of one."""
    empty = stores("double", [[]], "none", 4096, -1)
    for windows in (TimeWindows(10, 5), CountWindows(1, 1), SessionWindows(3)):
        assert both(empty, windows) == []
    one = stores("double", [[(7, 1.5)]], "none", 4096, -1)
    assert both(one, TimeWindows(10, 5)) == [
        (0, 10, 1, 1, 1.5, 1.5, 1.5, 1.5),
        (5, 15, 1, 1, 1.5, 1.5, 1.5, 1.5),
    ]
    assert both(one, CountWindows(1, 1))[0][:3] == (0, 7, 7)
    assert both(one, CountWindows(2, 1)) == []
    assert both(one, SessionWindows(3))[0][:2] == (7, 10)


def test_float_sums_are_those_of_fsum(stores: Any) -> None:
    """Sums that cancel keep all their digits, in both operators."""
    rng = random.Random(5)
    values = [rng.choice([1e16, -1e16, 1.0, 1e-3]) for _ in range(5000)]
    snapshot = stores("double", [list(enumerate(values))], "none", 4096, 0)
    for row in both(snapshot, TimeWindows(1000, 100)):
        inside = values[max(0, row[0]) : row[1]]
        exact = math.fsum(inside)
        assert abs(row[4] - exact) <= 1e-14 * max(1.0, abs(exact)), row


def test_attribute_added_later(tmp_path: Path) -> None:
    """Events from before an attribute existed count, but have no value."""
    with Store.open(tmp_path / "s", "rw") as store:
        schema = StreamSchema(pa.schema([("t", pa.int64()), ("x", pa.int64())]), "t")
        stream = store.create_stream("e", schema, StreamOptions(leaf_bytes=4096))
        ticks = np.arange(5000)
        stream.append(pa.record_batch([pa.array(ticks), pa.array(ticks)], schema=schema.arrow))
        stream.seal()
        stream.add_attribute("y", pa.float64())
        more = pa.record_batch(
            [pa.array(ticks + 5000), pa.array(ticks), pa.array(ticks / 2)],
            schema=stream.schema.arrow,
        )
        stream.append(more)
        wanted = [
            Aggregate("count"),
            Aggregate("count", "y"),
            Aggregate("sum", "y"),
            Aggregate("max", "y"),
        ]
        windows = TimeWindows(2000, 500)
        snapshot = stream.snapshot()
        index = rows_of(IndexAggregation(snapshot, windows, wanted, SelectedRange()))
        replay = rows_of(replayed(snapshot, windows, wanted))
        assert index == replay
        assert index[0] == (-1500, 500, 500, 0, None, None)
        assert index[-1] == (9500, 11500, 500, 500, sum(range(4500, 5000)) / 2, 2499.5)


def test_cost_follows_slices_not_events(stores: Any) -> None:
    """The sweep reads zones at boundaries only, and shares its paths."""
    batches = [
        [(i, float(i)) for i in range(start, start + 20_000)] for start in (0, 20_000, 40_000)
    ]
    snapshot = stores("double", batches, "none", 16384, 2)
    few = IndexAggregation(snapshot, TimeWindows(60_000, 10_000), AGGREGATES, SelectedRange())
    rows = rows_of(few)
    assert len(rows) == 11
    assert few.metrics.events <= 512 * 6
    assert few.metrics.zones <= 6
    whole = IndexAggregation(snapshot, TimeWindows(10**6, 10**6), AGGREGATES, SelectedRange())
    assert len(rows_of(whole)) == 1
    assert whole.metrics.events == 0


def test_check_ends_every_operator(stores: Any) -> None:
    """A time limit is noticed between kernels, in replay, sweep and slide."""
    snapshot = stores("double", [[(i, 1.0) for i in range(5000)]], "none", 4096, 0)

    def expired() -> None:
        raise QueryTimeout("over")

    for windows in (TimeWindows(100, 10), CountWindows(100, 10), SessionWindows(5)):
        with pytest.raises(QueryTimeout):
            rows_of(replayed(snapshot, windows, AGGREGATES, expired))
    for windows in (TimeWindows(100, 10), CountWindows(100, 10)):
        with pytest.raises(QueryTimeout):
            rows_of(IndexAggregation(snapshot, windows, AGGREGATES, SelectedRange(), expired))


def test_slider_holds_one_window_of_slices() -> None:
    """The buffer grows with the slices of a window, not with the stream."""
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("x", pa.int64())]), "t")
    plan = FieldPlan(schema, [Aggregate("max", "x")])
    slider = Slider(TimeWindows(5000, 1), plan, lambda: None)
    total = 0

    def chunks() -> Iterator[tuple[Any, Any]]:
        for start in range(0, 200_000, 10_000):
            ids = np.arange(start, start + 10_000)
            words = np.stack([np.ones(10_000, np.int64), ids], axis=1)
            yield ids, words[:, : plan.width].copy()

    for numbers, words in slider.windows(chunks()):
        total += len(numbers)
        expected = np.minimum(numbers + 4999, 199_999)
        assert (words[:, plan._at["max", "x"]] == expected).all()
    assert total == 204_999
    assert len(slider._nodes) <= 16384


def test_merging_partials_is_independent_of_order() -> None:
    """merge_equal gives the same for every order of equal numbers, but for rounding."""
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("x", pa.float64())]), "t")
    plan = FieldPlan(schema, [Aggregate("sum", "x"), Aggregate("min", "x"), Aggregate("max", "x")])
    rng = np.random.default_rng(3)
    words = np.empty((50, plan.width), np.int64)
    kernels.fill_identity(words, 0, 50, plan.own.fields)
    values = rng.normal(size=50)
    words[:, plan._at["n", "x"]] = 1
    for quantity in ("sum", "min", "max"):
        words[:, plan._at[quantity, "x"]] = values.view(np.int64)
    ids = np.zeros(50, np.int64)
    for order in (np.arange(50), np.arange(50)[::-1].copy(), rng.permutation(50)):
        out = np.empty_like(words)
        assert (
            kernels.merge_equal(ids, words, order, plan.own.fields, np.empty(50, np.int64), out)
            == 1
        )
        arrays = plan.columns(out[:1])
        assert arrays[0][0].as_py() == math.fsum(values)
        assert arrays[1][0].as_py() == values.min()
        assert arrays[2][0].as_py() == values.max()
