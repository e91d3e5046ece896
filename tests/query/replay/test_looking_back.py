"""What derived values look back at: found, not there, or out of sight."""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.indexes import index_key as keys_of
from chronicle.indexes import stream_indexes
from chronicle.indexes.derived_values import last_events
from chronicle.indexes.index_key import index_key
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay import candidates
from chronicle.query.replay.candidates import LookupRange
from chronicle.query.replay.context import Costs
from chronicle.query.replay.lookups import Lookups
from chronicle.query.replay.planning import plan_match
from chronicle.query.replay.run_plan import run_match
from chronicle.query.replay.terms import Term
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

from ...new_stores import timed
from ...rounds import rounds
from .across_cases import answers
from .conftest import Opened

SCHEMA = timed(k=pa.string(), g=pa.int32(), x=pa.int64(), f=pa.float64())
TREES: dict[str, tuple[str, str | None]] = {
    "x - PREV(x)": ("x", None),
    "x - PREV(x, 3)": ("x", None),
    "f - PREV(f)": ("f", None),
    "x - PREV(x) + g": ("x", "g"),
    "x - PREV(x) + (g - g)": ("x", "g"),
}


def read_of(table: pa.Table) -> Any:
    def read(name: str, first: int, end: int) -> pa.ChunkedArray:
        assert 0 <= first <= end <= table.num_rows
        return table.column(name).slice(first, end - first)

    return read


def row(r: random.Random, t: int, partitions: int) -> dict[str, Any]:
    return {
        "t": t, "k": r.choice([None, *map(str, range(partitions))]), "g": r.choice([None, 0, 1]),
        "x": r.choice([None, 2**62, 0, 1, 5, r.randint(0, 40)]),
        "f": r.choice([None, math.nan, math.inf, 0.5, r.random()]),
    }  # fmt: skip


def said(rows: list[dict[str, Any]], at: int, key: str, partition: list[str], lowest: int) -> str:
    """Known, absent, null or unknown, from the definition."""
    column, other = TREES[key]
    back = 3 if "3" in key else 1
    group = [rows[at][name] for name in partition]
    before = [i for i in range(lowest, at) if [rows[i][name] for name in partition] == group]
    operands = [rows[at][column]] + ([rows[at][other]] if other else [])
    absent = len(before) < back
    if not absent:
        operands.append(rows[before[-back]][column])
    beyond = any(v is not None and not abs(v) < 2.0**62 for v in operands)
    if beyond and (column == "x" or not (absent or None in operands)):
        return "unknown"
    if None in operands:
        return "unknown" if "(g - g)" in key else "null"
    return ("unknown" if "(g - g)" in key else "absent") if absent else "known"


@given(st.integers(0, 2**32), st.sampled_from(sorted(TREES)), st.sampled_from(["", "k", "g, k"]))
def test_what_is_said_of_values_is_so(seed: int, key: str, partition: str) -> None:
    r = random.Random(seed)
    rows = [row(r, t, r.choice([1, 3, 9])) for t in range(r.randint(1, 60))]
    table = pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
    first = r.randint(0, len(rows) - 1)
    end = r.randint(first + 1, len(rows))
    lowest = r.randint(0, first)
    text = f"{key} PARTITION BY {partition}" if partition else key
    values = index_key(text, SCHEMA).values(read_of(table), first, end, lowest)
    assert values.column is not None
    assert values.gaps is not None
    names = [name for name in partition.split(", ") if name]
    expected = [said(rows, at, key, names, lowest if names else 0) for at in range(first, end)]
    valid = values.column.is_valid().to_pylist()
    assert [at for at, word in enumerate(expected) if word == "known"] == [
        at for at, there in enumerate(valid) if there
    ]
    assert values.gaps.unknown.tolist() == [i for i, w in enumerate(expected) if w == "unknown"]
    assert values.gaps.absent.tolist() == [i for i, w in enumerate(expected) if w == "absent"]


def test_a_part_may_have_fewer_events_than_it_looks_back() -> None:
    table = pa.table({"t": [0], "k": ["a"], "g": [0], "x": [1], "f": [0.5]}).cast(SCHEMA.arrow)
    values = index_key("x - PREV(x, 3)", SCHEMA).values(read_of(table), 0, 1)
    assert values.gaps is not None
    assert values.gaps.absent.tolist() == [0]


@pytest.mark.parametrize("piece", [2, 64])
def test_last_events_are_those_before(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronicle.indexes.derived_values.PIECE_FIRST", piece)
    for seed in range(60):
        r = random.Random(seed)
        rows = [row(r, t, r.choice([1, 4])) for t in range(80)]
        table = pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
        lowest, first, count = r.randint(0, 40), r.randint(40, 79), r.choice([1, 2, 5])
        partition = r.choice([["k"], ["k", "g"]])
        keys = [table.column(name).slice(first).combine_chunks() for name in partition]
        found = last_events(
            read_of(table), ["t", *partition], partition, keys, count, lowest, first
        )
        groups = {tuple(row[name] for name in partition) for row in rows[first:]}
        expected = sorted(
            t
            for group in groups
            for t in [
                t for t in range(lowest, first) if tuple(rows[t][n] for n in partition) == group
            ][-count:]
        )
        assert found["t"].to_pylist() == expected, seed


def clause(pattern: str, defined: str, partition: str, within: int, more: str = "") -> Any:
    text = (
        f"SELECT * FROM s MATCH_RECOGNIZE ({partition} ORDER BY t MEASURES MATCH_NUMBER() AS n, "
        f"FIRST(t) AS a, LAST(t) AS b, A.k AS ak {pattern} WITHIN {within}{more} DEFINE {defined})"
    )
    return compile_match(clause_of_text(text), SCHEMA)


CONDITIONS = [
    "x - PREV(x) > {}", "x < PREV(x)", "x <= PREV(x) - {}", "NOT (x - PREV(x) < {})",
    "x - PREV(x, 3) > {}", "f > PREV(f)", "x - PREV(x) > {} OR g = 1", "x > PREV(x) + {}",
    "x - PREV(x) + (g - g) > {}", "x - PREV(x) + g > {}", "x - PREV(x) <> {}",
    "x - PREV(x) > {} OR PREV(x) IS NULL", "NOT (x < PREV(x) OR g = 0)",
]  # fmt: skip


@pytest.mark.parametrize("partition", ["", "k", "g, k"])
def test_rows_are_those_of_a_replay_however_far_is_seen(
    tmp_path: Path, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of a few events, of which looking back sees more or fewer; windows across them."""
    used = 0
    for seed in range(rounds(2, 60, 3000)):
        r = random.Random(f"{partition} {seed}")
        monkeypatch.setattr(stream_indexes, "RUN_EVENTS", r.choice([64, 256]))
        monkeypatch.setattr(keys_of, "LOOK_BACK", r.choice([0, 7, 64, 10_000]))
        monkeypatch.setattr(candidates, "LOOKED_BACK", r.choice([0, 7, 10_000]))
        behind = f" PARTITION BY {partition}" if partition else ""
        partitions, spread = r.choice([2, 9, 40]), r.choice([1, 2, 6])
        store = Store.open(tmp_path / str(seed), "rw")
        options = StreamOptions(leaf_bytes=1 << 12, segment_bytes=1 << 14)
        stream = store.create_stream("s", SCHEMA, options)
        rows = [row(r, t * spread // 2, partitions) for t in range(900)]
        stream.append(pa.Table.from_pylist(rows[:600], schema=SCHEMA.arrow))
        indexes = StreamIndexes(tmp_path / str(seed) / "idx", True)
        for key in r.sample(sorted(TREES), 3):
            indexes.create(key + behind, SCHEMA)
        if r.random() < 0.8:
            indexes.catch_up(stream.snapshot().state)
        stream.append(pa.Table.from_pylist(rows[600:], schema=SCHEMA.arrow))
        if r.random() < 0.5:
            indexes.catch_up(stream.snapshot().state)
        if r.random() < 0.3:
            late = row(r, r.randint(-5, 600), partitions)
            stream.append(pa.Table.from_pylist([late], schema=SCHEMA.arrow))
        snapshot = stream.snapshot()
        assert indexes.verify(snapshot.state) == []
        for _ in range(6):
            pattern = r.choice(["(A)", "(A B)", "(A B C)", "(A B+)", "(A C* B)", "((A | B) C)"])
            more = r.choice(["", "", " EVENT SELECTION SKIP TILL NEXT MATCH"])
            names = [name for name in "ABC" if name in pattern]
            defined = ", ".join(
                f"{name} AS {r.choice(CONDITIONS).format(r.choice([0, 5, 20]))}" for name in names
            )
            asked = clause(
                f"PATTERN {pattern}", defined, f"PARTITION BY {partition}" if partition else "",
                r.choice([2, 10, 60]), more,
            )  # fmt: skip
            expected, _ = answers(snapshot, asked, indexes, "replay")
            for strategy in ("all", "auto"):
                found, plan = answers(snapshot, asked, indexes, strategy, gap=0)
                assert found == expected, (seed, strategy, pattern, defined, plan.chosen)
                used += any("PREV" in text for text in plan.chosen)
        indexes.close()
        store.close()
    assert used


def filled(opened: Opened, partitions: int) -> tuple[Any, StreamIndexes]:
    """Partitions that begin all along the stream, whose values never change; one jump."""
    stream, indexes = opened(SCHEMA, "x - PREV(x) PARTITION BY k", leaf_bytes=1 << 12)
    count = 3000
    at = np.arange(count)
    r = np.random.default_rng(3)
    of = np.minimum(r.integers(0, partitions, count), at * partitions // count)
    x, own = np.zeros(count, np.int64), np.flatnonzero(of == 5)
    x[own[len(own) // 2 :]] = 100
    columns = {
        "t": at, "k": [f"k{v}" for v in of], "g": np.zeros(count, np.int32), "x": x,
        "f": [None] * count,
    }  # fmt: skip
    stream.append(pa.table(columns, schema=SCHEMA.arrow))
    stream.seal()
    return stream, indexes


@pytest.mark.parametrize("built", [True, False])
def test_first_events_of_partitions_are_no_hits(
    opened: Opened, built: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 3,000 events of 200 partitions one has a step, however runs cut the stream."""
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 512)
    stream, indexes = filled(opened, 200)
    if built:
        indexes.catch_up(stream.snapshot().state)
    snapshot = stream.snapshot()
    asked = clause("PATTERN (A)", "A AS x - PREV(x) > 50", "PARTITION BY k", 5)
    expected, _ = answers(snapshot, asked, indexes, "replay")
    plan = plan_match(snapshot, asked, indexes, costs=Costs(keyed=1e6, plan=1.0), gap=0)
    found = [row for some in run_match(snapshot, asked, plan) for row in some.to_pylist()]
    assert found == expected
    assert len(found) == 1
    assert plan.intervals is not None
    assert plan.intervals.partitions.inside.total == 1
    if built:
        assert plan.metrics.entries_read == 1


def test_an_event_whose_previous_one_is_not_read_is_a_hit(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last event has a step, and is the only one that is not indexed."""
    monkeypatch.setattr(candidates, "LOOKED_BACK", 0)
    stream, indexes = filled(opened, 200)
    indexes.catch_up(stream.snapshot().state)
    last = {"t": 3000, "k": "k5", "g": 0, "x": 200, "f": None}
    stream.append(pa.Table.from_pylist([last], schema=SCHEMA.arrow))
    snapshot = stream.snapshot()
    asked = clause("PATTERN (A)", "A AS x - PREV(x) > 50", "PARTITION BY k", 5)
    expected, _ = answers(snapshot, asked, indexes, "replay")
    found, plan = answers(snapshot, asked, indexes, "all", gap=0)
    assert found == expected
    assert len(found) == 2
    assert plan.metrics.events_evaluated == 2  # its own value and the one before it


@pytest.mark.parametrize(("lookback", "most"), [(0, 5), (10_000, 1)])
def test_behind_a_segment_only_what_its_window_reaches_counts(
    opened: Opened, lookback: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B looks back at an event of its match: what lies before the window is no matter."""
    monkeypatch.setattr(keys_of, "LOOK_BACK", lookback)
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 1024)
    stream, indexes = filled(opened, 700)
    indexes.catch_up(stream.snapshot().state)
    snapshot = stream.snapshot()
    asked = clause("PATTERN (A B)", "B AS x - PREV(x) > 50", "PARTITION BY k", 400)
    expected, _ = answers(snapshot, asked, indexes, "replay")
    found, plan = answers(snapshot, asked, indexes, "all", gap=0)
    assert found == expected
    read = plan.metrics.entries_read
    assert read == 1 if lookback else read > 1
    near = clause("PATTERN (A B)", "B AS x - PREV(x) > 50", "PARTITION BY k", most)
    found, plan = answers(snapshot, near, indexes, "all", gap=0)
    assert found == answers(snapshot, near, indexes, "replay")[0]


def test_runs_of_before_nulls_were_told_apart_are_still_right(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, indexes = filled(opened, 50)
    plain = stream_indexes.build_run
    with monkeypatch.context() as patch:
        patch.setattr(stream_indexes, "RUN_EVENTS", 512)
        patch.setattr(keys_of, "LOOK_BACK", 0)
        patch.setattr(stream_indexes, "build_run", lambda *given: plain(*given[:7]))
        indexes.catch_up(stream.snapshot().state)
    indexes.close()
    indexes = StreamIndexes(tmp_path / "idx", True)
    snapshot = stream.snapshot()
    assert indexes.verify(snapshot.state) == []
    asked = clause("PATTERN (A)", "A AS x - PREV(x) > 50", "PARTITION BY k", 5)
    expected, _ = answers(snapshot, asked, indexes, "replay")
    found, plan = answers(snapshot, asked, indexes, "all", gap=0)
    assert found == expected
    assert plan.metrics.entries_read > 1  # every first event of a run counts
    indexes.close()


class _Times:
    """An event every ten ticks."""

    def ticks_at(self, positions: Any) -> Any:
        return positions * 10

    def upper(self, ticks: Any) -> Any:
        return ticks // 10 + 1


def test_from_where_on_a_run_knows_what_is_absent() -> None:
    """A run of positions from 1,100 on, in a segment that begins at 1,000."""

    def until(seen: int, inside: int | None, absent: int = 3, begin: int = 1000) -> int | None:
        run = cast(Any, SimpleNamespace(first=100, seen=seen, absent=absent))
        chunk = LookupRange(begin + 100, begin + 900, {})
        lookups = SimpleNamespace(context=SimpleNamespace(timeline=_Times()))
        return Lookups._absent_until(cast(Any, lookups), run, chunk, Term((), inside=inside))

    # it has seen 1,040 and what follows; the event at 1,140 is as far from that as the window
    assert until(40, 1000) == 41
    assert until(40, 999) == 40
    assert until(40, 500) == 0
    assert until(40, None) is None
    # a segment is not the beginning of the stream, the first event is
    assert until(0, 1500) == 51
    assert until(0, None) is None
    assert until(0, None, begin=0) == 0
    assert until(40, None, absent=0) == 0
