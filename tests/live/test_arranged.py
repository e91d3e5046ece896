"""Events kept by partition, late ones put between: as if all of them were sorted again."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from chronicle.live.bank.arranged import Arranged

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("id", pa.int64())])
Event = tuple[int, str, int]


def table_of(events: list[Event]) -> pa.Table:
    rows = [{"t": t, "k": k, "id": i} for t, k, i in events]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def check(kept: Arranged, events: list[Event], partitioned: bool) -> None:
    """``events``: in the order of arrival."""
    wanted: dict[str, list[Event]] = {}
    for event in sorted((e for e in events if e[0] >= kept.first), key=lambda e: e[0]):
        wanted.setdefault(event[1] if partitioned else "", []).append(event)
    assert kept.rows == sum(map(len, wanted.values()))
    keys = kept.partitions.keys.column("k").to_pylist() if partitioned else [""]
    assert {key: len(rows) for key, rows in wanted.items()} == {
        key: size for key, size in zip(keys, kept.size.tolist(), strict=True) if size
    }
    for number, key in enumerate(keys):
        mine = wanted.get(key, [])
        for begin in {0, len(mine) // 2}:
            if begin == len(mine):
                continue
            one = np.array([number])
            rows = kept.read(one, np.array([begin]), np.array([len(mine)]))
            assert rows.tick.tolist() == [t for t, _, _ in mine[begin:]]
            among = [[u for u, _, _ in mine[:at]].count(mine[at][0]) for at in range(len(mine))]
            assert rows.among.tolist() == among[begin:]
            found = kept.table(["id", "k"], rows).to_pylist()
            assert [(row["id"], row["k"]) for row in found] == [(i, k) for _, k, i in mine[begin:]]
        for tick in {0, *(t for t, _, _ in mine[:20])}:
            before = sum(t < tick for t, _, _ in mine)
            assert kept.places(np.array([number]), np.array([tick])).tolist() == [before]


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_events_stand_where_a_sort_would_put_them(seed: int, partitioned: bool) -> None:
    r = random.Random(seed)
    keys = [f"k{i}" for i in range(r.choice([1, 3, 40]))]
    kept = Arranged(SCHEMA, "t", ["k"] if partitioned else [], 0)
    events: list[Event] = []
    number = 0
    for step in range(30):
        count = r.choice([0, 1, 5, 60, 300])
        if r.random() < 0.5 or kept.last < kept.first:
            first = kept.last + 1
            made = sorted(first + r.randrange(1 + count // 2) for _ in range(count))
            new = [(t, r.choice(keys), number + i) for i, t in enumerate(made)]
            kept.append(table_of(new), first + count // 2)
        else:
            made = sorted(r.randint(kept.first, kept.last) for _ in range(count))
            new = [(t, r.choice(keys), number + i) for i, t in enumerate(made)]
            partition, place = kept.insert(table_of(new))
            stand = list(zip(partition.tolist(), place.tolist(), strict=True))
            assert stand == sorted(stand)
            if count:
                assert sorted(kept.ticks(partition, place).tolist()) == made
        events += new
        number += count
        if step % 10 == 9 and kept.rows:
            before = kept.rows
            kept.forget()
            assert kept.rows < before
        check(kept, events, partitioned)
        events = [event for event in events if event[0] >= kept.first]
