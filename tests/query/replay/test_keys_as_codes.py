"""Partitions known by codes of leaves: the rows are those of keys that are numbers.

The streams have several segments, whose dictionaries differ, null keys in some of them, a tail,
and late events; batches are so small that many cross from one dictionary to another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.query.pattern import columns, match_stream
from chronicle.query.pattern.columns import KeyCodes
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay import reading
from chronicle.query.replay.replay_plan import ReplayIntervals
from chronicle.query.replay.run_plan import run_intervals
from chronicle.query.replay.spans import Spans
from chronicle.query.replay.timeline import Timeline
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.snapshot import Snapshot
from chronicle.store.store import Store

from ...rounds import rounds

FIELDS = [("k", pa.string()), ("n", pa.int64()), ("x", pa.int64()), ("y", pa.int64())]
SCHEMA = StreamSchema(pa.schema([pa.field("t", pa.int64(), False), *FIELDS]), "t")
SEEN: Counter[str] = Counter()
CLAUSES = [
    "MEASURES A.t AS a, B.t AS b AFTER MATCH SKIP TO NEXT ROW PATTERN (A Z*? B) "
    "WITHIN 40 DEFINE A AS x > 900, B AS x < 100",
    "MEASURES A.t AS a, count(*) AS c PATTERN (A B) DEFINE A AS x > 800, B AS x < 500",
    "MEASURES x AS v ALL ROWS PER MATCH PATTERN (A B+) DEFINE A AS x > 900, B AS y < 5",
    "MEASURES MATCH_ID() AS id, MATCH_TIME() AS b PATTERN (A B) DEFINE A AS x > 800",
]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reading, "ALONE_EVENTS", 256)
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1)
    encode, joined = columns._Codes.encode, reading._joined_codes

    def seen(codes: Any, column: Any) -> Any:
        SEEN["codes" if pa.types.is_dictionary(column.type) else "values"] += 1
        return encode(codes, column)

    def join(parts: Any, rows: int) -> Any:
        array = joined(parts, rows)
        SEEN["joined" if pa.types.is_dictionary(array.type) else "decoded"] += 1
        return array

    monkeypatch.setattr(columns._Codes, "encode", seen)
    monkeypatch.setattr(reading, "_joined_codes", join)
    SEEN.clear()
    yield
    print(SEEN)


def events(random: np.random.Generator, first: int, count: int, keys: int, nulls: bool) -> pa.Table:
    """Keys as texts ``k`` and as numbers ``n``; those of later events differ."""
    number = random.integers(0, keys, count) + first // 4
    absent = random.random(count) < (0.1 if nulls else 0)
    columns = [
        pa.array(np.sort(random.integers(first, first + count, count))),
        pa.array([f"key {n}" for n in number], mask=absent),
        pa.array(number, mask=absent),
        *(pa.array(random.integers(0, 1001, count)) for _ in "xy"),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA.arrow)


def filled(store: Store, random: np.random.Generator, keys: int) -> Snapshot:
    sizes = StreamOptions(leaf_bytes=4096, segment_bytes=20_000)
    stream = store.create_stream("s", SCHEMA, sizes)
    for first in range(0, 3_000, 500):
        stream.append(events(random, first, 500, keys, bool(random.random() < 0.4)))
    stream.append(events(random, int(random.integers(0, 2_900)), 40, keys, True))  # late
    stream.append(events(random, 3_000, 150, keys, bool(random.random() < 0.5)))
    return stream.snapshot()


def intervals(random: np.random.Generator, timeline: Timeline) -> ReplayIntervals:
    """Spans of all lengths, of which one is read by time."""
    count = 2 * int(random.choice([1, 5, 40]))
    places = np.sort(random.choice(timeline.total, count, replace=False))
    starts, ends = timeline.lower(timeline.ticks_at(places)).reshape(-1, 2).T
    spans = Spans.of(starts, ends)
    number = int(random.integers(0, len(spans)))
    start, end = int(spans.starts[number]), int(spans.ends[number])
    by_time = {number: (timeline.tick(start), timeline.tick(end - 1))}
    return ReplayIntervals(spans, by_time, None, *random.integers(0, 3, 2).tolist())


def answer(snapshot: Snapshot, timeline: Timeline, key: str, clause: str, where: Any) -> list[Any]:
    text = f"SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY {key} ORDER BY t {clause})"
    compiled = compile_match(clause_of_text(text), SCHEMA)
    rows = [r for b in run_intervals(snapshot, compiled, where, timeline) for r in b.to_pylist()]
    for row in rows:
        number, value = row.pop("n", None), row.pop("k", None)
        row["key"] = value if key == "k" or number is None else f"key {number}"
        row.pop("id", None)  # is made of the key
    return rows


def test_rows_are_those_of_keys_that_are_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(40)
    for number in range(rounds(3, 30, 300)):
        with Store.open(tmp_path / str(number), "rw") as store:
            snapshot = filled(store, random, (2, 12, 200)[number % 3])
            timeline = Timeline(snapshot)
            for clause in CLAUSES:
                first = int(random.choice([8, 300]))
                monkeypatch.setattr(reading, "GATHERED_FIRST", first)
                monkeypatch.setattr(reading, "GATHERED_MAX", 4 * first)
                where = intervals(random, timeline)
                expected = answer(snapshot, timeline, "n", clause, where)
                found = answer(snapshot, timeline, "k", clause, where)
                assert found == expected, (number, clause)
                SEEN["rows"] += len(expected)
    assert SEEN["rows"] > 200, SEEN
    assert SEEN["codes"] > SEEN["values"] / 3, SEEN
    assert min(SEEN["joined"], SEEN["decoded"]) > 3, SEEN


def test_a_batch_costs_its_rows_not_its_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    values = pa.array([f"key {n}" for n in range(100_000)])
    numbered: list[int] = []
    take = columns.TextNumbers.take

    def counted(numbers: Any, texts: pa.Array) -> Any:
        numbered.append(len(texts))
        return take(numbers, texts)

    monkeypatch.setattr(columns.TextNumbers, "take", counted)
    keys = KeyCodes(1)
    places = [[5, None, 99_999, 5], [99_999, 7, None], [5, 7]]
    batches = [
        pa.DictionaryArray.from_arrays(pa.array(some, pa.int32()), values) for some in places
    ]
    codes = [keys.encode([batch]).tolist() for batch in [*batches, pa.chunked_array(batches)]]
    # codes are given in the order of first rows, so the chunks get the same ones again
    assert codes == [[0, 1, 2, 0], [2, 3, 1], [0, 3], [0, 1, 2, 0, 2, 3, 1, 0, 3]]
    assert keys.texts.to_pylist() == ["key 5", None, "key 99999", "key 7"]
    assert (keys.count, sum(numbered)) == (4, 4)
