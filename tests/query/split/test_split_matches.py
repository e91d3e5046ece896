"""Parts of a pattern query: together the rows of the whole, each match once, however it is cut."""

from __future__ import annotations

import os
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from chronicle.errors import ResourceLimit, SqlError
from chronicle.indexes import stream_indexes
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.contract.operator import MatchLimits, PartRun
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay.planning import plan_match
from chronicle.query.split import planning
from chronicle.query.split.parts import RangePart, SharePart, SpanPart, shares_of
from chronicle.query.split.planning import split_match
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.store.options import StreamOptions
from chronicle.store.pins import Pin, open_pinned, pin_stream
from chronicle.store.segment import ScanMetrics
from chronicle.store.store import Store

from ...new_stores import timed
from ...rounds import rounds
from ..replay.across_cases import gaps

FIRST = int(os.environ.get("CHRONICLE_SEED", "0"))
SEEDS = int(os.environ.get("CHRONICLE_ROUNDS", "2"))
ROUNDS = rounds(SEEDS, SEEDS, 1000)
CLAUSES = rounds(8, 8, 30)
LIMITS = MatchLimits(steps_max=50_000, memory_bytes=64 << 20)

SCHEMA = timed(k=pa.string(), x=pa.float64(), y=pa.int64())


def stream_rows(rng: random.Random, count: int, start: int, spread: int) -> pa.Table:
    return pa.table(
        {
            "t": sorted(start + rng.randrange(spread) for _ in range(count)),
            "k": [rng.choice(["a", "b", "c", None]) for _ in range(count)],
            "x": [rng.choice([None, float("nan"), *map(float, range(10))]) for _ in range(count)],
            "y": [rng.choice([None, *range(12)]) for _ in range(count)],
        },
        schema=SCHEMA.arrow,
    )


def filled(rng: random.Random, path: Path, late: bool) -> tuple[Store, Any, StreamIndexes, Pin]:
    """A stream of many small segments, perhaps with late events, and indexes over part of it."""
    store = Store.open(path, "rw")
    options = StreamOptions(leaf_bytes=4096, segment_bytes=12_000)
    stream = store.create_stream("s", SCHEMA, options)
    indexes = StreamIndexes(path / "idx", True)
    for name in rng.sample(["k", "x", "y"], 2):
        indexes.create(name, SCHEMA)
    start = 0
    for _ in range(4):
        spread = rng.choice([400, 900, 4000])
        stream.append(stream_rows(rng, 900, start, spread))
        start += spread
        if rng.random() < 0.5:
            stream.seal()
        indexes.catch_up(stream.snapshot().state)
        if late and rng.random() < 0.6:
            stream.append(stream_rows(rng, rng.choice([1, 30]), rng.randrange(start), 30))
    return store, stream, indexes, pin_stream(store.files, store.directory_of("s"))


def random_condition(rng: random.Random, own: str, others: list[str]) -> str:
    low = rng.randrange(9)
    return rng.choice(
        [
            f"x BETWEEN {low} AND {low + 2}", f"{own}.y = {low}", f"y IN ({low}, {low + 2})",
            f"x > {low}", f"y < {low}", f"k = '{rng.choice('abc')}'", "y IS NULL", "y > PREV(y)",
            "NEXT(x) > x", f"y >= {rng.choice(others)}.y", f"t % 3 = {low % 3}",
            f"count({own}.*) < {low + 1}", "x IS NOT NULL",
        ]
    )  # fmt: skip


def random_clause(rng: random.Random) -> str:
    names = ["A", "B", "C"][: rng.randrange(1, 4)]
    body = " ".join(rng.choice(names) + rng.choice(["", "", "*", "+", "{1,3}"]) for _ in range(3))
    if rng.random() < 0.3:
        body = f"({body} | {' '.join(rng.sample(names, len(names)))}){rng.choice(['', '+'])}"
    if rng.random() < 0.06:
        body = rng.choice([f"^ {body}", f"{body} $"])
    used = [name for name in names if name in body]
    partition = "PARTITION BY k " if rng.random() < 0.45 else ""
    order = "ORDER BY t, y" if rng.random() < 0.15 else "ORDER BY t"
    rows = rng.choice(["ONE ROW PER MATCH", "ONE ROW PER MATCH", "ALL ROWS PER MATCH"])
    within = f"WITHIN {rng.choice([0, 1, 5, 20, 60])}" if rng.random() < 0.85 else ""
    after = selection = ""
    if within and rng.random() < 0.2:
        chosen = rng.choice(["SKIP TILL NEXT MATCH", "SKIP TILL ANY MATCH", "CONTIGUOUS"])
        selection = f"EVENT SELECTION {chosen}"
        if "ANY" in chosen:  # every subset of a loop's events is a match
            within = f"WITHIN {rng.choice([0, 1, 3])}"
    else:
        after = rng.choice(
            ["", "", "AFTER MATCH SKIP TO NEXT ROW", "AFTER MATCH SKIP PAST LAST ROW"]
        )
        if rng.random() < 0.1:
            after = f"AFTER MATCH SKIP TO LAST {used[-1]}"
    defines = ", ".join(
        f"{name} AS {random_condition(rng, name, used)}" for name in used if rng.random() < 0.9
    )
    measures = "FIRST(t) AS f, LAST(t) AS l, count(*) AS n, sum(y) AS s, CLASSIFIER() AS c"
    if rng.random() < 0.1:
        measures += ", MATCH_NUMBER() AS number"
    if rng.random() < 0.1:
        measures += ", PREV(FIRST(y)) AS before"
    return (
        f"SELECT * FROM s MATCH_RECOGNIZE ({partition}{order} MEASURES {measures} {rows} {after} "
        f"PATTERN ({body}) {within} {selection} DEFINE {defines or 'A AS x > 4'})"
    )


def counted(batches: Any) -> Counter[str]:
    return Counter(repr(row) for batch in batches for row in batch.to_pylist())


@pytest.fixture(scope="module")
def seen() -> dict[int, Counter[str]]:
    """What the comparisons of each seed were about."""
    return {}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_parts_have_every_match_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: dict[int, Counter[str]]
) -> None:
    seen[seed] = compared_parts(seed, tmp_path, monkeypatch)


def compared_parts(seed: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the comparisons of a seed were about; raises where parts and whole differ."""
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 512)
    monkeypatch.setattr(planning, "LEAST_EVENTS", 0)
    store, stream, indexes, pin = filled(random.Random(seed), path, late=seed % 2 == 1)
    snapshot = stream.snapshot()
    told: Counter[str] = Counter()

    @hypothesis_seed(seed)
    @settings(
        max_examples=CLAUSES,
        derandomize=False,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        rng=st.randoms(use_true_random=False),
        strategy=st.sampled_from(["replay", "all"]),
        wanted=st.sampled_from([2, 3, 7, 20]),
    )
    def compare(rng: random.Random, strategy: str, wanted: int) -> None:
        text = random_clause(rng)
        gap = rng.choice([0, 5, 200])
        told["clauses"] += 1
        try:
            compiled = compile_match(clause_of_text(text), SCHEMA)
            expected = counted(compiled.run(snapshot.scan(), limits=LIMITS))
        except (SqlError, ResourceLimit):
            return
        plan = plan_match(snapshot, compiled, indexes, strategy, gap=gap)
        split = split_match(snapshot, compiled, plan, lambda share: wanted)
        if split.parts == (None,):
            return
        told["compared"] += 1
        told["with rows"] += bool(expected)
        found: Counter[str] = Counter()
        for part in pickle.loads(pickle.dumps(split.parts)):
            told[type(part).__name__] += 1
            if isinstance(part, RangePart) and part.high is not None:
                told["carried"] += len(part.high.carried)
            alone = open_pinned(store.files, pin, *part.ticks)
            found += counted(part.run(PartRun(alone, compiled, ScanMetrics(), None, LIMITS)))
        assert found == expected, f"seed {seed}, {wanted} parts ({split.reason}): {text}"

    try:
        compare()
    finally:
        indexes.close()
        store.close()
    return told


def test_the_comparisons_show_something(
    seen: dict[int, Counter[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all seeds: half of the clauses are divided, and in every way."""
    for seed in set(range(FIRST, FIRST + ROUNDS)) - seen.keys():  # another process ran them
        seen[seed] = compared_parts(seed, tmp_path / str(seed), monkeypatch)
    total = sum(seen.values(), Counter[str]())
    assert total["compared"] > 0.5 * total["clauses"], total
    assert total["with rows"] > 0.4 * total["compared"], total
    for kind in (RangePart, SpanPart, SharePart):
        assert total[kind.__name__] > ROUNDS, total


def test_parts_see_what_lies_around_their_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clause = "PARTITION BY k ORDER BY t MEASURES A.t AS a PATTERN (A $) WITHIN 20 DEFINE A AS y = 3"
    last = f"SELECT * FROM s MATCH_RECOGNIZE ({clause})"
    monkeypatch.setitem(globals(), "random_clause", lambda rng: rng.choice([last, gaps(rng)]))
    for seed in (0, 5):  # x and y have indexes
        assert compared_parts(seed, tmp_path / str(seed), monkeypatch)["SpanPart"] > 3


def test_a_match_over_a_cut_is_carried_to_one_part(tmp_path: Path) -> None:
    """Long falls, one after the other: wherever time is cut, a match crosses."""
    store = Store.open(tmp_path, "rw")
    stream = store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=4096))
    count = 6000
    table = pa.table(
        {
            "t": np.arange(count),
            "k": np.array(["a", "b", "c"])[np.arange(count) % 3],
            "x": 100.0 - (np.arange(count) * 7) % 101,
            "y": np.zeros(count, np.int64),
        },
        schema=SCHEMA.arrow,
    )
    stream.append(table)
    snapshot = stream.snapshot()
    # those of four rows tile a fall from its beginning: until it ends, some begin behind the cut
    cases = [("A B+", ""), ("A B+", "PARTITION BY k"), ("A B{1,3}", "")]
    for pattern, partition in cases:
        body = (
            f"MEASURES FIRST(t) AS f, LAST(t) AS l PATTERN ({pattern}) WITHIN 60 "
            "DEFINE B AS x < PREV(x)"
        )
        text = f"SELECT * FROM s MATCH_RECOGNIZE ({partition} ORDER BY t {body})"
        compiled = compile_match(clause_of_text(text), SCHEMA)
        plan = plan_match(snapshot, compiled, None, "replay")
        split = split_match(snapshot, compiled, plan, lambda _: 6)
        ranges = [part for part in split.parts if isinstance(part, RangePart)]
        assert len(ranges) == len(split.parts) > 3, split.reason
        assert any(len(part.high.carried) for part in ranges if part.high is not None), partition
        found: Counter[str] = Counter()
        for part in ranges:
            found += counted(
                part.run(PartRun(snapshot, compiled, ScanMetrics(), None, MatchLimits()))
            )
        assert found == counted(compiled.run(snapshot.scan()))
        assert sum(found.values()) > 100
    store.close()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 6))
def test_a_long_interval_is_divided_inside(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of all candidates lie in one stretch without a gap, which no search may tear apart."""
    rng = random.Random(seed)
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 512)
    monkeypatch.setattr(planning, "LEAST_EVENTS", 0)
    store = Store.open(tmp_path, "rw")
    stream = store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=4096, segment_bytes=40_000))
    indexes = StreamIndexes(tmp_path / "idx", True)
    indexes.create("y", SCHEMA)
    rows = stream_rows(rng, 8000, 0, rng.choice([8000, 30_000, 60_000]))
    candidate = np.zeros(8000, np.int64)
    candidate[3000:5500] = 50
    for first in rng.sample(range(7990), 20):
        candidate[first : first + 3] = 50
    rows = rows.set_column(2, "x", pa.array([rng.random() for _ in range(8000)]))
    rows = rows.set_column(3, "y", pa.array(candidate))
    stream.append(rows.cast(SCHEMA.arrow))
    stream.seal()
    indexes.catch_up(stream.snapshot().state)
    if seed % 2:
        middle = rows["t"][4000].as_py()
        late = [{"t": middle + n, "k": "a", "x": 0.5, "y": rng.choice([0, 50])} for n in range(9)]
        stream.append(pa.Table.from_pylist(late, SCHEMA.arrow))
    pin = pin_stream(store.files, store.directory_of("s"))
    snapshot = stream.snapshot()
    try:
        for after in ("", "AFTER MATCH SKIP TO NEXT ROW"):
            text = (
                "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t "
                f"MEASURES FIRST(t) AS f, LAST(t) AS l, count(*) AS n, PREV(FIRST(x)) AS p {after} "
                "PATTERN (A B+) WITHIN 20 DEFINE A AS y = 50, B AS y = 50 AND x < PREV(x))"
            )
            compiled = compile_match(clause_of_text(text), SCHEMA)
            plan = plan_match(snapshot, compiled, indexes, "all", gap=5)
            split = split_match(snapshot, compiled, plan, lambda _: 6)
            kinds = Counter(type(part) for part in split.parts)
            assert kinds[RangePart] > 2, split.reason
            assert kinds[SpanPart], split.reason
            assert "ranges of time in 1 long replay intervals" in split.reason
            found: Counter[str] = Counter()
            for part in pickle.loads(pickle.dumps(split.parts)):
                alone = open_pinned(store.files, pin, *part.ticks)
                found += counted(
                    part.run(PartRun(alone, compiled, ScanMetrics(), None, MatchLimits()))
                )
            assert found == counted(compiled.run(snapshot.scan()))
            assert sum(found.values()) > 100
    finally:
        indexes.close()
        store.close()


def test_what_depends_on_all_matches_before_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matches of two rows where every row matches: even or odd is decided at the beginning."""
    store = Store.open(tmp_path, "rw")
    stream = store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=4096))
    stream.append(stream_rows(random.Random(1), 5000, 0, 5000))
    snapshot = stream.snapshot()

    def split_of(clause: str, keys: str = "", strategy: str = "replay") -> Any:
        text = f"SELECT * FROM s MATCH_RECOGNIZE ({keys} ORDER BY t {clause} DEFINE A AS t >= 0)"
        compiled = compile_match(clause_of_text(text), SCHEMA)
        plan = plan_match(snapshot, compiled, None, strategy)
        return split_match(snapshot, compiled, plan, lambda _: 4)

    chained = split_of("MEASURES FIRST(t) AS f PATTERN (A A) WITHIN 30")
    assert chained.parts == (None,)
    assert "no place was found" in chained.reason
    shared = split_of("MEASURES FIRST(t) AS f PATTERN (A A) WITHIN 30", "PARTITION BY k")
    assert [type(part) for part in shared.parts] == [SharePart] * 4
    numbered = split_of("MEASURES MATCH_NUMBER() AS n PATTERN (A B) WITHIN 30")
    assert numbered.parts == (None,)
    assert "MATCH_NUMBER" in numbered.reason
    monkeypatch.setattr(planning, "LEAST_EVENTS", 0)
    for measure, parts in (("MATCH_NUMBER()", 1), ("FIRST(t)", 4)):
        clause = f"MEASURES {measure} AS n AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN 30"
        assert len(split_of(clause, "PARTITION BY k", "all").parts) == parts, measure
    each = split_of("MEASURES FIRST(t) AS f AFTER MATCH SKIP TO NEXT ROW PATTERN (A A) WITHIN 30")
    assert [type(part) for part in each.parts] == [RangePart] * 4
    endless = split_of("MEASURES FIRST(t) AS f PATTERN (A B+)")
    assert endless.parts == (None,)
    assert "WITHIN" in endless.reason
    store.close()


def test_equal_keys_have_one_share() -> None:
    columns = {
        "text": pa.array(["a", "b", None, "a", "", "a long one"] * 3),
        "codes": pa.array(["a", "b", None, "a", "", "x"] * 3).dictionary_encode(),
        "floats": pa.array([0.0, -0.0, float("nan"), -float("nan"), None, 1.5] * 3),
        "numbers": pa.array([1, -1, None, 2**62, 5, 1] * 3),
        "dates": pa.array([1, 2, None, 4, 5, 1] * 3, pa.date32()),
        "decimals": pa.array([1, 2, None, 4, 5, 1] * 3).cast(pa.decimal128(20, 1)),
        "flags": pa.array([True, False, None, True, True, False] * 3),
    }
    for name, column in columns.items():
        shares = shares_of([column], 1 << 30).tolist()
        assert shares == shares_of([pa.concat_arrays([column, column])], 1 << 30).tolist()[:18]
        assert shares[:6] * 3 == shares, name
        assert shares_of([column.slice(3)], 1 << 30).tolist() == shares[3:], name
    floats = shares_of([columns["floats"]], 1 << 30).tolist()
    assert floats[0] == floats[1]
    assert floats[2] == floats[3]
    assert len(set(shares_of([columns["numbers"], columns["text"]], 1 << 30).tolist())) == 6
