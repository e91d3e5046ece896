"""Short ranges read together: what a scan gives, wherever they lie."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.query.replay.reading import read_ranges, read_stretches
from chronicle.query.replay.timeline import Timeline, TimelinePart, leaf_rows
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

SCHEMA = StreamSchema(
    pa.schema([pa.field("t", pa.int64(), False), ("x", pa.float64()), ("s", pa.string())]), "t"
)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_ranges_over_many_segments_are_those_of_a_scan(tmp_path: Path, codec: str) -> None:
    random = np.random.default_rng(5)
    count = 6000
    data = pa.table(
        {
            "t": np.sort(random.integers(0, 3000, count)),
            "x": pa.array(random.random(count), mask=random.random(count) < 0.1),
            "s": [None if n % 11 == 0 else f"s{n % 13}" for n in range(count)],
        },
        schema=SCHEMA.arrow,
    )
    with Store.open(tmp_path, "rw") as store:
        options = StreamOptions(leaf_bytes=1024, segment_bytes=4096, codec=codec)
        stream = store.create_stream("s", SCHEMA, options)
        for first in range(0, count, 500):
            stream.append(data.slice(first, 500))
        timeline = Timeline(stream.snapshot())
        parts = timeline.parts
        assert len(parts) > 10
        assert parts[-1].tail is not None
        borders = [part.end for part in parts]
        for width in (1, 7, 200, 2500):
            for _ in range(20):
                picked = random.choice(np.arange(0, count, width), max(1, 60 // width), False)
                ranges = [
                    (first, min(count, first + int(random.integers(1, width + 1))))
                    for first in np.sort(picked).tolist()
                ]
                found = read_ranges(timeline, SCHEMA.arrow, np.array(ranges))
                rows = np.concatenate([np.arange(first, end) for first, end in ranges])
                assert pa.Table.from_batches([found]).equals(data.take(pa.array(rows)))
        for border in borders[:-1]:  # from the last event of a part to the first of the next
            found = read_ranges(timeline, SCHEMA.arrow, np.array([(border - 1, border + 1)]))
            assert pa.Table.from_batches([found]).equals(data.slice(border - 1, 2))
        whole = read_ranges(timeline, SCHEMA.arrow, np.array([(0, count)]))
        assert pa.Table.from_batches([whole]).equals(data)
        assert read_ranges(timeline, SCHEMA.arrow, np.zeros((0, 2), np.int64)).num_rows == 0


def test_rows_around_an_interval_do_not_belong_to_it(tmp_path: Path) -> None:
    ticks = np.arange(100)
    data = pa.table({"t": ticks, "x": ticks / 8, "s": ["a"] * 100}, schema=SCHEMA.arrow)
    with Store.open(tmp_path, "rw") as store:
        stream = store.create_stream("s", SCHEMA)
        stream.append(data)
        stretches = np.array([(2, 5, 9, 12), (12, 12, 20, 21), (30, 40, 40, 45), (60, 60, 61, 61)])
        pieces = read_stretches(Timeline(stream.snapshot()), SCHEMA.arrow, stretches)
        rows, inside = zip(
            *((batch["t"].to_numpy(), flags) for batch, flags in pieces), strict=True
        )
    found = np.concatenate(rows), np.concatenate(inside)
    assert found[0].tolist() == [*range(2, 21), *range(30, 45), 60]
    assert found[0][found[1]].tolist() == [*range(5, 9), *range(12, 20), 60]


def test_parts_that_nothing_is_wanted_of_are_not_looked_at() -> None:
    class Watched(list):  # type: ignore[type-arg]
        looked = 0

        def __getitem__(self, index):  # type: ignore[no-untyped-def]
            self.looked += 1
            return super().__getitem__(index)

    parts = Watched(TimelinePart(10 * n, 10 * n + 10, None, None, None) for n in range(100_000))
    timeline: Any = SimpleNamespace(parts=parts, part_starts=10 * np.arange(100_000))
    positions = np.concatenate([7 * n + np.arange(2) for n in range(70_000, 71_000)])
    found = [part.start + row for part, _, _, ((_, rows),) in leaf_rows(timeline, positions)
             for row in rows.tolist()]  # fmt: skip
    assert found == positions.tolist()
    assert parts.looked <= 1000
