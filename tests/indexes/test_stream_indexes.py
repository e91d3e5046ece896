"""Secondary indexes: keys sort as values do, runs tell the truth, and what survives a crash."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import IndexExists, IndexNotFound, UnsupportedType
from chronicle.indexes import stream_indexes
from chronicle.indexes.keys import encode, key_range
from chronicle.indexes.lookup import IndexMetrics, KeyRanges, mark_run
from chronicle.indexes.opened import RunsChanged
from chronicle.indexes.runs import _sorted, build_run
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.prune import IsNull, NotNull, Range
from chronicle.store.store import Store
from chronicle.tests.patience import PATIENCE_S, wait_for_indexes
from chronicle.tests.rounds import rounds

ARROW = pa.schema(
    [
        pa.field("t", pa.int64(), False), pa.field("f", pa.float64()), pa.field("g", pa.float32()),
        pa.field("i", pa.int64()), pa.field("u", pa.uint64()), pa.field("b", pa.bool_()),
        pa.field("s", pa.string()), pa.field("w", pa.timestamp("us")),
        pa.field("d", pa.decimal128(9, 2)),
    ]
)  # fmt: skip
SCHEMA = StreamSchema(ARROW, "t")
VALUES: dict[str, Any] = {
    "f": st.floats(allow_nan=True) | st.integers(-3, 3).map(float),
    "g": st.floats(width=32) | st.integers(-3, 3).map(float),
    "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "u": st.integers(0, 2**64 - 1) | st.integers(0, 3),
    "b": st.booleans(),
    "s": st.text(max_size=12) | st.sampled_from(["", "a", "ab", "prefixed-1", "prefixed-2"]),
    "w": st.integers(-(2**62), 2**62),
}


def order(value: Any) -> Any:
    """NaN counts as the greatest."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def satisfies(value: Any, atom: Range) -> bool:
    if value is None:
        return False
    mine = order(value)
    if atom.low is not None:
        low = order(atom.low)
        if mine < low or (atom.low_open and mine == low):
            return False
    if atom.high is not None:
        high = order(atom.high)
        if mine > high or (atom.high_open and mine == high):
            return False
    return True


class InMemory(StreamIndexes):
    """Blocks of one built run."""

    def __init__(self, built: Any) -> None:
        self.built = built

    def block(self, kind: bytes, run: Any, number: int = 0, *, stored: bool = False) -> bytes:
        found = {
            b"k": self.built.keys, b"p": self.built.positions, b"n": [self.built.nulls],
            b"s": [self.built.dictionary],
        }  # fmt: skip
        return found[kind][number]

    def dictionary(self, run: Any) -> bytes:
        return self.block(b"s", run)


@settings(max_examples=rounds(15, 150), deadline=None)
@given(st.data())
def test_a_lookup_finds_the_events_of_a_range(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(VALUES)))
    values = data.draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=80))
    attribute = SCHEMA.attribute(name)
    array = (
        pa.array(values, pa.int64()).cast(attribute.type)
        if name == "w"
        else pa.array(values, attribute.type)
    )
    plain = array.cast(pa.int64()).to_pylist() if name == "w" else array.to_pylist()
    built = build_run(1, 1, 0, 0, len(values), pa.chunked_array([array]), attribute)
    bound = (
        st.none() | VALUES[name] | st.sampled_from([v for v in plain if v is not None] or [None])
    )
    low, high = data.draw(bound), data.draw(bound)
    atom = Range(name, low, high, data.draw(st.booleans()), data.draw(st.booleans()))
    for wanted, expected in (
        (atom, [satisfies(v, atom) for v in plain]),
        (IsNull(name), [v is None for v in plain]),
        (NotNull(name), [v is not None for v in plain]),
    ):
        bits = np.zeros(4, np.uint64)
        keys = KeyRanges(InMemory(built), [wanted], attribute)
        mark_run(built.run, keys, 7, bits, 200, IndexMetrics())
        found = np.unpackbits(bits.view(np.uint8), bitorder="little")[7 : 7 + len(values)]
        assert found.astype(bool).tolist() == expected, (wanted, plain)


@settings(max_examples=rounds(6, 60), deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), min_size=1, max_size=300))
def test_sorting_is_stable_and_complete(values: list[int]) -> None:
    keys = np.array(values, np.uint64)
    ordered, positions = _sorted(keys, None)
    expected = np.argsort(keys, kind="stable")
    assert np.array_equal(positions, expected)
    assert np.array_equal(ordered, keys[expected])


def test_keys_that_share_a_long_prefix_are_sorted_too() -> None:
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 1 << 12, 50_000).astype(np.uint64)
    keys[0] = 2**64 - 1  # one outlier: the sorted prefix distinguishes nothing else
    ordered, positions = _sorted(keys, None)
    assert np.array_equal(positions, np.argsort(keys, kind="stable"))
    assert np.array_equal(ordered, np.sort(keys))


def test_strings_without_a_dictionary_are_found_by_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronicle.indexes.keys.DICTIONARY_VALUES", 3)
    values = [f"value-{i:06d}" for i in range(500)] + ["a", "", "zz"]
    attribute = SCHEMA.attribute("s")
    array = pa.array(values)
    keys, dictionary = encode(array, attribute)
    assert dictionary is None
    atom = Range("s", "value-000100", "value-000200")
    span = key_range(atom, attribute, None)
    assert span is not None
    inside = {v for v, k in zip(values, keys.tolist(), strict=True) if span[0] <= k <= span[1]}
    assert inside >= {v for v in values if satisfies(v, atom)}
    assert "a" not in inside
    assert "zz" not in inside


def events(count: int, start: int = 0, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "t": start + np.arange(count), "f": rng.random(count),
            "g": rng.random(count).astype(np.float32),
            "i": rng.integers(-5, 5, count), "u": rng.integers(0, 9, count).astype(np.uint64),
            "b": rng.random(count) < 0.5,
            "s": np.array(["x", "yy", "zzz"])[rng.integers(0, 3, count)],
            "w": pa.array(rng.integers(0, 99, count), pa.timestamp("us")),
            "d": pa.nulls(count, pa.decimal128(9, 2)),
        },
        schema=ARROW,
    )  # fmt: skip


def test_life_of_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 4096)
    store = Store.open(tmp_path, "rw")
    stream = store.create_stream(
        "s", SCHEMA, StreamOptions(leaf_bytes=1 << 14, segment_bytes=1 << 19)
    )
    indexes = StreamIndexes(tmp_path / "idx", True)
    for name in VALUES:
        indexes.create(name, SCHEMA)
    with pytest.raises(IndexExists):
        indexes.create("f", SCHEMA)
    with pytest.raises(UnsupportedType, match="decimal"):
        indexes.create("d", SCHEMA)
    for step in range(4):
        stream.append(events(9_000, step * 9_000, step))
        indexes.catch_up(stream.snapshot().state)
        assert indexes.verify(stream.snapshot().state) == []
        assert indexes.lag(stream.snapshot().state) == 0
    stream.append(events(50, 10_000, 9))  # late
    stream.compact()
    state = stream.snapshot().state
    assert indexes.verify(state) != []  # runs of segments that are gone
    indexes.forget(state)
    indexes.catch_up(state)
    assert indexes.verify(state) == []
    figures = indexes.figures("f", state)
    assert figures["covered_events"] == sum(view.events for view in state.segments)
    assert figures["bytes"] / figures["entries"] < 0.6 * 24
    indexes.drop("g")
    with pytest.raises(IndexNotFound):
        indexes.drop("g")
    kept = dict(indexes.catalogue().runs)
    indexes.close()
    again = StreamIndexes(tmp_path / "idx", True)
    assert again.catalogue().runs == kept
    assert "g" not in again.attributes
    assert again.verify(state) == []
    again.close()
    store.close()


def test_a_damaged_run_is_found_and_rebuilt(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", ARROW, "t")
        stream.append(events(50_000))
        stream.seal()
        stream.create_index("i")
        manager = catalog_of(database).indexes
        assert manager is not None
        assert list(manager.check()) == []
        indexes = manager.of("s")
        run = next(iter(indexes.catalogue().runs.values()))[0]
        from chronicle.indexes.storage import TIMES, block_key

        at = (run.index, run.segment, run.first, run.generation)
        storage = indexes._storage
        indexes.words(b"p", run)  # what is in memory does not hide what is on disk
        other = storage.get(block_key(b"p", *at, 1))
        storage.write([(block_key(b"p", *at, 0), other)])
        report = database.check()
        assert not report.ok
        assert "differs from what the events give" in str(report.problems[0])
        assert database.check(repair=True).ok
        (times,) = indexes.catalogue().times[run.segment]
        key = block_key(b"t", TIMES, times.segment, times.first, times.generation)
        kept = indexes.words(b"t", times).copy()
        kept[0] += 1
        indexes._storage.write([(key, kept.tobytes())])
        assert "times of segment" in str(database.check().problems[0])
        assert database.check(repair=True).ok
        (again,) = indexes.catalogue().runs[run.index, run.segment]
        at = (run.index, run.segment, run.first, again.generation)
        indexes._storage.write([], [block_key(b"k", *at, 0)])
        with pytest.raises(RunsChanged):
            indexes.block(b"k", again)


def test_upkeep_in_the_background_and_readers_in_other_processes(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", ARROW, "t", options={"leaf_bytes": 1 << 16})
        stream.append(events(70_000))
        stream.create_index("f", wait=False)
        for step in range(1, 5):
            stream.append(events(70_000, step * 70_000, step))
        wait_for_indexes(database)
        (told,) = stream.indexes()
        assert told["state"] == "ready"
        assert told["covered"] > 0.5
        script = (
            "import chronicle, sys\n"
            "db = chronicle.open(sys.argv[1], 'r')\n"
            "print(db.stream('s').indexes()[0]['covered_events'])\n"
            "print(str(db.explain('SELECT /*+ strategy(all) */ * FROM s MATCH_RECOGNIZE ("
            "ORDER BY t MEASURES A.t AS a PATTERN (A B) "
            "DEFINE A AS f > 0.9999, B AS f < 0.001)', analyze=True)))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "s")], capture_output=True, text=True,
            check=True,
            timeout=PATIENCE_S, env=dict(os.environ),
        )  # fmt: skip
        assert int(done.stdout.split()[0]) == told["covered_events"]
        assert "indexes: A: f > 0.9999" in done.stdout
    with chronicle.open(tmp_path / "s") as database:
        assert database.stream("s").indexes()[0]["covered_events"] >= told["covered_events"]


def test_what_a_killed_process_built_is_whole(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib, numpy as np, pyarrow as pa\n"
        "from chronicle.store.store import Store\n"
        "from chronicle.store.options import StreamOptions\n"
        "from chronicle.schema import StreamSchema\n"
        "from chronicle.indexes import stream_indexes\n"
        "stream_indexes.RUN_EVENTS = 8192\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "arrow = pa.schema([pa.field('t', pa.int64(), False), ('f', pa.float64())])\n"
        "schema = StreamSchema(arrow, 't')\n"
        "store = Store.open(path, 'rw')\n"
        "stream = store.create_stream('s', schema, StreamOptions(leaf_bytes=1 << 14))\n"
        "n = 80_000\n"
        "data = {'t': np.arange(n), 'f': np.random.default_rng(1).random(n)}\n"
        "stream.append(pa.table(data, schema=arrow))\n"
        "stream.seal()\n"
        "indexes = stream_indexes.StreamIndexes(path / 'idx', True)\n"
        "indexes.create('f', schema)\n"
        "state = stream.snapshot().state\n"
        "for i in range(int(sys.argv[2])):\n"
        "    indexes.build_next(state)\n"
        "    if i == 3: indexes.flush()\n"
        "os._exit(9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), "7"], timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 9
    stream_indexes_events = stream_indexes.RUN_EVENTS
    stream_indexes.RUN_EVENTS = 8192
    try:
        store = Store.open(tmp_path, "rw")
        state = store.stream("s").snapshot().state
        indexes = StreamIndexes(tmp_path / "idx", True)
        assert indexes.verify(state) == []
        assert 4 <= sum(map(len, indexes.catalogue().runs.values())) <= 7
        indexes.catch_up(state)
        assert indexes.lag(state) == 0
        assert indexes.verify(state) == []
        indexes.close()
        store.close()
    finally:
        stream_indexes.RUN_EVENTS = stream_indexes_events
