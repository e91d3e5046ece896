"""SKIP TILL ANY MATCH in parts of about equal expected matches: every match once, none too many."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.query.contract.operator import MatchLimits, Part, PartRun, Split
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay.planning import plan_match
from chronicle.query.split import parts, planning
from chronicle.query.split.parts import RangePart
from chronicle.query.split.planning import IndexPart, split_match
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.schema import StreamSchema
from chronicle.store import Store, StreamOptions
from chronicle.store.pins import open_pinned, pin_stream
from chronicle.store.segment import ScanMetrics

from .test_split_matches import counted

SCHEMA = StreamSchema(
    pa.schema([pa.field("t", pa.int64(), False), pa.field("k", pa.string()), ("y", pa.int64())]),
    "t",
)
COUNT = 6000
LIMITS = MatchLimits()
HOT = range(2000, 2060)
"""Rows of a window in which every event is a candidate; elsewhere one of forty is."""


def table(late: bool = False) -> pa.Table:
    r = random.Random(4)
    y = [r.randrange(3) if i in HOT or i % 40 == 0 else 9 for i in range(COUNT)]
    y[HOT[0]] = 3
    return pa.table(
        {"t": [3 * i for i in range(COUNT)], "k": [r.choice("ppppppppq") for _ in y], "y": y},
        schema=SCHEMA.arrow,
    )


@pytest.fixture(params=[False, True], ids=["in order", "with late events"])
def stored(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    store = Store.open(tmp_path, "rw")
    stream = store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=4096, segment_bytes=20_000))
    stream.append(table())
    if request.param:
        late = [{"t": 3 * i + 1, "k": "p", "y": i % 3} for i in (7, 2010, 2011, 5990)]
        stream.append(pa.Table.from_pylist(late, SCHEMA.arrow))
    yield store, stream.snapshot(), pin_stream(store.files, store.directory_of("s"))
    store.close()


def clause(
    rows: str = "ONE ROW PER MATCH", partition: str = "", more: str = "", first: str = "y < 3"
) -> str:
    return (
        f"SELECT * FROM s MATCH_RECOGNIZE ({partition} ORDER BY t MEASURES A.t AS a, B.t AS b, "
        f"LAST(t) AS z {rows} PATTERN (A B C D) WITHIN 120 EVENT SELECTION SKIP TILL ANY MATCH "
        f"DEFINE A AS {first}, B AS y < 3, C AS y < 3{more}, D AS y < 3)"
    )


def divided(text: str, stored: Any, wanted: int) -> tuple[Split, list[Counter[str]], Any]:
    store, snapshot, pin = stored
    compiled = compile_match(clause_of_text(text), SCHEMA)
    split = split_match(
        snapshot, compiled, plan_match(snapshot, compiled, None, "replay"), lambda _: wanted
    )
    found = []
    for part in pickle.loads(pickle.dumps(split.parts)):
        assert isinstance(part, Part)
        alone = open_pinned(store.files, pin, *part.ticks)
        found.append(counted(part.run(PartRun(alone, compiled, ScanMetrics(), None, LIMITS))))
    return split, found, counted(compiled.run(snapshot.scan()))


@pytest.mark.parametrize("partition", ["", "PARTITION BY k"])
@pytest.mark.parametrize("more", ["", " AND y < A.y"])
def test_a_window_heavier_than_a_part_is_divided_by_the_number_of_the_match(
    stored: Any, partition: str, more: str
) -> None:
    text = clause(partition=partition, more=more, first="y = 3")  # one event begins them all
    split, found, whole = divided(text, stored, 8)
    assert sum(found, Counter()) == whole
    assert sum(whole.values()) > (2000 if partition else 8000)
    shares = [part for part in split.parts if isinstance(part, IndexPart)]
    assert shares, split.reason
    assert "1 of them in shares of their matches" in split.reason
    sizes = [sum(one.values()) for one in found]
    assert max(sizes) < 2.5 * (COUNT + sum(sizes)) / 8, sizes
    assert len(split.parts) <= 2 * 8


def test_ranges_have_about_the_same_matches(stored: Any) -> None:
    split, found, whole = divided(clause(), stored, 8)
    assert sum(found, Counter()) == whole
    sizes = [sum(one.values()) for one in found]
    assert sum(sizes) > 100_000
    assert max(sizes) < 2.5 * (COUNT + sum(sizes)) / 8, sizes
    assert len(split.parts) <= 2 * 8


def test_the_rows_of_a_match_stay_together(stored: Any) -> None:
    split, found, whole = divided(clause("ALL ROWS PER MATCH"), stored, 8)
    assert sum(found, Counter()) == whole
    assert {type(part) for part in split.parts} == {RangePart}
    assert max(sum(one.values()) for one in found) < 0.6 * sum(whole.values())


def test_a_large_stream_is_sampled(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PROBE_LEAST", 3000)
    looked: list[tuple[int, ...]] = []
    sampled = planning._sampled

    def noted(*arguments: Any) -> Any:
        work = sampled(*arguments)
        looked.append((len(work.edges), int(work.events.sum())))
        return work

    monkeypatch.setattr(planning, "_sampled", noted)
    _, found, whole = divided(clause(), stored, 6)
    assert sum(found, Counter()) == whole
    assert looked
    assert looked[0][1] == sum(1 for _ in range(COUNT)) + (4 if looked[0][1] > COUNT else 0)


@pytest.mark.parametrize(
    "text",
    [
        clause().replace("SKIP TILL ANY MATCH", "SKIP TILL NEXT MATCH"),
        clause(more=" AND sum(y) < 99"),  # the search cannot count
        clause().replace("A.t AS a", "MATCH_NUMBER() AS a"),
    ],
)
def test_what_cannot_be_counted_is_divided_by_events(stored: Any, text: str) -> None:
    split, found, whole = divided(text, stored, 4) if "NUMBER" not in text else (None, [], None)
    if split is None:
        _, snapshot, _ = stored
        compiled = compile_match(clause_of_text(text), SCHEMA)
        plan = plan_match(snapshot, compiled, None, "replay")
        split = split_match(snapshot, compiled, plan, lambda _: 4)
        assert split.parts == (None,)
        return
    assert sum(found, Counter()) == whole
    assert not [part for part in split.parts if isinstance(part, IndexPart)]
    assert "events and matches" not in split.reason


def test_ranges_cover_all_time_and_weigh_about_the_same() -> None:
    r = np.random.default_rng(3)
    for wanted in (2, 5, 16):
        for heavy in (0.0, 1e6):
            matches = r.integers(0, 50, 100).astype(np.float64)
            matches[30] += heavy
            edges, events = np.arange(101) * 10, np.full(100, 20)
            work = planning.Work(None, edges, events, matches)  # type: ignore[arg-type]
            found = work.ranges(wanted)
            assert found[0].low is None
            assert found[-1].high is None
            assert [one.high for one in found[:-1]] == [one.low for one in found[1:]]
            goal = (events + matches).sum() / wanted
            for one in found:
                low = 0 if one.low is None else one.low // 10
                high = 100 if one.high is None else one.high // 10
                own = (events + matches)[low:high].sum()
                assert own / one.shares <= 2.1 * goal, (wanted, heavy, one)
            assert wanted - 1 <= sum(one.shares for one in found) <= wanted + 4
