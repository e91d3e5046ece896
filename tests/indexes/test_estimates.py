"""How many events a lookup is expected to find, from the fences of runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.indexes.lookup import RunFences, estimate_runs
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.schema import StreamSchema
from chronicle.store import Store
from chronicle.store.prune import Range


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
    fences = RunFences(runs)
    found = [
        float(estimate_runs(indexes, fences, [one], schema.attribute("x")).sum()) for one in ranges
    ]
    indexes.close()
    store.close()
    return found


@pytest.mark.parametrize("count", [100, 8_192, 60_000])
@pytest.mark.parametrize("kind", [np.int64, np.float64, str])
def test_a_column_of_two_values(tmp_path: Path, count: int, kind: Any) -> None:
    r = np.random.default_rng(2)
    values = (r.random(count) < 0.5).astype(np.int64).astype(kind)
    low, high = (kind(x) if kind is str else float(x) for x in (0, 1))
    ranges = [Range("x", low, low), Range("x", high, high), Range("x", low, high)]
    zero, one, both = estimate(tmp_path, values, *ranges)
    assert both == pytest.approx(count, rel=0.01)
    for found in (zero, one):
        if kind is np.float64 and count <= 8_192:  # nothing tells whether it is rare
            assert found == pytest.approx(count**0.5)
        else:
            assert 0.4 * count < found < 0.75 * count


def test_a_rare_flag(tmp_path: Path) -> None:
    flag = np.zeros(20_000)
    flag[::500] = 1.0
    (found,) = estimate(tmp_path, flag, Range("x", 1.0, 1.0))
    assert 10 < found < 200


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
