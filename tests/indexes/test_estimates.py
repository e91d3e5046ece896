"""How many events a lookup is expected to find, from the fences of runs alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import CorruptStore
from chronicle.indexes.index_key import PairKey, index_key
from chronicle.indexes.keys import encode
from chronicle.indexes.lookup import RunFences, estimate_runs
from chronicle.indexes.runs import Run, build_run
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.schema import Attribute, Storage, StreamSchema
from chronicle.store.prune import Range
from chronicle.store.store import Store

FLOAT = Attribute("x", pa.float64(), True, Storage.FLOAT)
WHOLE = Attribute("x", pa.int64(), True, Storage.SIGNED)


def estimate(path: Path, values: Any, *ranges: Range) -> list[float]:
    """Expected entries of each range over a column ``x`` of the values."""
    table = pa.table({"t": np.arange(len(values)), "x": values})
    schema = StreamSchema(
        pa.schema([pa.field("t", pa.int64(), False), table.schema.field("x")]), "t"
    )
    store = Store.open(path, "rw")
    stream = store.create_stream("s", schema)
    stream.append(table.cast(schema.arrow))
    stream.seal()
    indexes = StreamIndexes(path / "idx", True)
    indexes.create("x", schema)
    snapshot = stream.snapshot()
    indexes.catch_up(snapshot.state)
    catalogue = indexes.catalogue()
    runs = [run for some in catalogue.runs.values() for run in some]
    fences = RunFences(runs, schema.attribute("x"))
    found = [
        float(estimate_runs(indexes, fences, [one], schema.attribute("x")).sum()) for one in ranges
    ]
    indexes.close()
    store.close()
    return found


@pytest.mark.parametrize(
    ("count", "kind"),
    [(100, np.int64), (100, str), (8_192, np.float64), (60_000, np.int64), (60_000, str)],
)
def test_a_column_of_two_values(tmp_path: Path, count: int, kind: Any) -> None:
    r = np.random.default_rng(2)
    values = (r.random(count) < 0.5).astype(np.int64).astype(kind)
    low, high = (kind(x) if kind is str else float(x) for x in (0, 1))
    ranges = [Range("x", low, low), Range("x", high, high), Range("x", low, high)]
    zero, one, both = estimate(tmp_path, values, *ranges)
    assert both == pytest.approx(count, rel=0.01)
    for found in (zero, one):
        assert 0.4 * count < found < 0.75 * count


def test_a_rare_flag(tmp_path: Path) -> None:
    flag = np.zeros(20_000)
    flag[::500] = 1.0
    (found,) = estimate(tmp_path, flag, Range("x", 1.0, 1.0))
    assert found == 40


def test_rare_values_between_frequent_ones(tmp_path: Path) -> None:
    values = np.zeros(20_000)
    values[::2] = 2.0
    values[[1, 7, 77]] = 1.0
    values[[3, 5]] = 3.0
    asked = [0.0, 1.0, 2.0, 3.0]
    found = estimate(tmp_path, values, *(Range("x", v, v) for v in asked))
    assert found[1] == 3
    assert found[3] == 2
    assert found == pytest.approx([int((values == v).sum()) for v in asked], rel=0.2)


def test_single_values_are_as_frequent_as_those_beside_them(tmp_path: Path) -> None:
    r = np.random.default_rng(5)
    numbers = r.permutation(np.repeat(r.choice(10**12, 300, replace=False), 700))
    for kind in (np.int64, np.float64):
        values = numbers.astype(kind)
        chosen = [kind(one) for one in r.choice(numbers, 20)]
        found = estimate(tmp_path / kind.__name__, values, *(Range("x", v, v) for v in chosen))
        assert all(200 < one < 2_100 for one in found), found
    (alone,) = estimate(tmp_path / "alone", r.random(50_000), Range("x", 0.5, 0.5))
    assert alone < 2
    between = Range("x", 1e11 + 0.25, 1e11 + 0.75)  # narrow, but not one value
    assert estimate(tmp_path / "narrow", numbers.astype(float), between)[0] < 1


@pytest.mark.parametrize("sign", [1, -1])
def test_doubles_near_zero_are_as_rare_as_elsewhere(tmp_path: Path, sign: int) -> None:
    values = sign * np.random.default_rng(8).random(200_000)
    ends = [sorted((sign * low, sign * (low + 1e-3))) for low in (0.0, 0.3, 0.999)]
    found = estimate(tmp_path, values, *(Range("x", low, high) for low, high in ends))
    assert all(100 < one < 400 for one in found), found  # 200 on average


def test_one_pair_of_two_attributes(tmp_path: Path) -> None:
    r = np.random.default_rng(6)
    table = pa.table({"t": np.arange(200_000), "a": r.integers(0, 30, 200_000),
                      "b": r.integers(0, 200, 200_000)})  # fmt: skip
    schema = StreamSchema(table.schema.set(0, pa.field("t", pa.int64(), False)), "t")
    key = index_key("a, b", schema)
    assert isinstance(key, PairKey)
    pair = key.range(Range("a", 7, 7), Range("b", 50, 50))
    with Store.open(tmp_path, "rw") as store:
        stream = store.create_stream("s", schema)
        stream.append(table.cast(schema.arrow))
        stream.seal()
        indexes = StreamIndexes(tmp_path / "idx", True)
        indexes.create("a, b", schema)
        indexes.catch_up(stream.snapshot().state)
        (runs,) = indexes.catalogue().runs.values()
        fences = RunFences(runs, key.attribute)
        found = estimate_runs(indexes, fences, [pair], key.attribute).sum()
        indexes.close()
    assert 10 < found < 100  # 33 on average


def test_runs_that_do_not_tell_have_a_middle(tmp_path: Path) -> None:
    column = pa.chunked_array([pa.array(np.repeat(np.arange(0, 4e6, 1e4), 100))])
    run = build_run(1, 1, 0, 0, 40_000, column, FLOAT).run
    again = Run.from_bytes(1, 1, 0, run.to_bytes())
    assert again == run
    assert again.counts.tolist() == run.counts.tolist()
    assert run.counts[:2].tolist() == [[100, 92, 80], [8, 84, 81]]
    read = Run.from_bytes(1, 1, 0, replace(run, counts=run.counts[:0]).to_bytes())
    assert not len(read.counts)
    keys = encode(pa.array([0.0, 81e4, 1e6, 1.5e6, 399e4]), FLOAT)[0]
    for one, expected in ((run, 100), (read, 8192**0.5)):
        for value in keys.tolist():
            assert RunFences([one], FLOAT).between(value, value)[0] == pytest.approx(
                expected, rel=0.1
            )


@pytest.mark.parametrize("cut", [1, 2, 8, -3])
def test_a_descriptor_of_another_length_is_refused(cut: int) -> None:
    column = pa.chunked_array([pa.array(np.arange(20_000))])
    data = build_run(1, 1, 0, 0, 20_000, column, WHOLE).run.to_bytes()
    with pytest.raises(CorruptStore):
        Run.from_bytes(1, 1, 0, data[:-cut] if cut > 0 else data + b"x" * -cut)


def test_counts_that_are_wrong_are_found(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        database.sql("CREATE STREAM s (t BIGINT, x BIGINT) TIMESTAMP BY t")
        numbers = np.arange(20_000)
        database.stream("s").append(pa.table({"t": numbers, "x": numbers // 7}))
        database.stream("s").seal()
        database.sql("CREATE INDEX ON s (x)")
        assert database.check().ok
        assert catalog_of(database).indexes is not None
        indexes = catalog_of(database).indexes.of("s")
        at, run = max(indexes._runs.items())  # behind the times
        state = database.stream("s").snapshot().state
        for column in range(3):
            wrong = run.counts.copy()
            wrong[1, column] += 1
            indexes._runs[at], indexes._catalogue = replace(run, counts=wrong), None
            (told,) = indexes.verify(state)
            assert told.endswith("it differs from what the events give")
        indexes._runs[at], indexes._catalogue = replace(run, counts=run.counts[:0]), None
        assert indexes.verify(state) == []  # written before there were counts


def test_values_far_apart_and_evenly_spread_ones(tmp_path: Path) -> None:
    three = np.repeat([0, 5, 10**12], 20_000)
    ranges = [Range("x", v, v) for v in (0, 5, 10**12)]
    for found in estimate(tmp_path / "three", three, *ranges):
        assert 9_000 < found < 30_000
    spread = np.random.default_rng(1).permutation(50_000)
    ends = [Range("x", 0, 0), Range("x", 49_999, 49_999), Range("x", 100, 599)]
    least, most, some = estimate(tmp_path / "spread", spread, *ends)
    assert least < 3
    assert most < 3
    assert some == pytest.approx(500, rel=0.1)
    assert estimate(tmp_path / "none", spread, Range("x", 60_000, 70_000)) == [0.0]
