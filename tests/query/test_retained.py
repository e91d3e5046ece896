"""Queries over a stream that retention has cut: as over one that never had what is hidden."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.catalog.streams import handle_of
from chronicle.indexes import stream_indexes

SCHEMA = pa.schema(
    [pa.field("t", pa.int64(), False), ("k", pa.string()), ("g", pa.int32()), ("x", pa.int64())]
)
AGE = 3000
OPTIONS = {
    "leaf_bytes": 4096, "segment_bytes": 1 << 20, "compaction": "manual", "durability": "none",
    "late_events_max": 1000,
}  # fmt: skip


def events(r: random.Random, first: int, count: int, step: int) -> pa.Table:
    rows = []
    for i in range(count):
        x = r.choice([None, *range(40)])
        rows.append({"t": first + i // step, "k": r.choice("abcd"), "g": r.randint(0, 9), "x": x})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@pytest.fixture(scope="module", params=["ties", "apart", "late", "tail"])
def streams(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[chronicle.Database]:
    """``s``, which is cut, and ``plain``, with what that shows."""
    kind = request.param
    r = random.Random(kind)
    step = 20 if kind == "ties" else 1 if kind == "apart" else 2
    run, stream_indexes.RUN_EVENTS = stream_indexes.RUN_EVENTS, 1 << 11
    path: Path = tmp_path_factory.mktemp(kind)
    with chronicle.open(path / "store") as db:
        s = db.create_stream("s", SCHEMA, time="t", retention=str(AGE), options=OPTIONS)
        s.append(events(r, 0, 500 * step, step))
        s.append(events(r, 500, 500 * step, step))
        for index in ("k", "x", "k, g", "x - PREV(x)", "x - PREV(x) PARTITION BY k"):
            s.create_index(index)
        s.append(events(r, 1000, 2300 * step, step))
        if kind == "late":
            s.append(events(r, 250, 300, 4))
            s.append(events(r, 3050, 100, 4))
        s.append(events(r, 3300 if kind != "tail" else 3420, 5, 1))
        state = s.snapshot().state
        if kind in ("ties", "late"):
            assert state.floor is not None
            assert state.segments[0].first < state.floor
        assert state.dropped > handle_of(s).commits.manifest.dropped_events
        plain = db.create_stream("plain", SCHEMA, time="t", options=OPTIONS)
        plain.append(pa.Table.from_batches(s.scan(), schema=SCHEMA))
        plain.create_index("k")
        yield db
    stream_indexes.RUN_EVENTS = run


MATCHES = [
    ("", "A B", "A AS x > 35, B AS x < PREV(x) - 30"),
    ("PARTITION BY k", "A B", "A AS x > 35, B AS x < PREV(x) - 30"),
    ("", "A B C", "A AS k = 'a' AND g = 1, B AS k = 'b', C AS x > 20"),
    ("PARTITION BY k", "A B* C", "A AS x = 39, B AS x > 5, C AS x < 3"),
    ("", "A B+ C", "A AS x - PREV(x) > 36, B AS x > 10, C AS x < 8"),
    ("", "A B", "A AS x - PREV(x) IS NULL, B AS x > 30"),
    ("", "A", "A AS PREV(x) IS NULL AND PREV(t) IS NULL"),
    ("", "A", "A AS x - PREV(x) IS NULL"),
    ("PARTITION BY k", "A", "A AS x - PREV(x) IS NULL"),
    ("PARTITION BY k", "A", "A AS x - PREV(x) IS NULL AND x IS NOT NULL"),
    ("PARTITION BY k", "A", "A AS PREV(t) IS NULL"),
    ("PARTITION BY k", "A B", "A AS x - PREV(x) IS NULL AND g > 1, B AS x > PREV(x) + 30"),
    ("PARTITION BY k", "A B", "A AS (x - PREV(x) > 30) IS NOT FALSE AND g = 7, B AS x > 3"),
]


@pytest.mark.parametrize(("skip", "within"), [("PAST LAST ROW", ""), ("TO NEXT ROW", "WITHIN 60")])
def test_patterns(streams: chronicle.Database, skip: str, within: str) -> None:
    """By each strategy, as a full replay of the other stream finds them."""
    for partition, pattern, defined in MATCHES:
        text = (
            f"SELECT * FROM {{}} MATCH_RECOGNIZE ({partition} ORDER BY t MEASURES FIRST(t) AS a, "
            "LAST(t) AS b, FIRST(x) AS c, PREV(FIRST(x)) AS d "
            f"ONE ROW PER MATCH AFTER MATCH SKIP {skip} PATTERN ({pattern}) {within} "
            f"DEFINE {defined}) AS m ORDER BY ALL"
        )
        expected = rows(streams, text, "plain", "replay")
        for strategy in ("auto", "all", "replay"):
            assert rows(streams, text, "s", strategy) == expected, (strategy, text)


PLAIN = [
    "SELECT count(*), sum(x), min(t), max(t), min(x), max(x), avg(x) FROM {}",
    "SELECT count(*) FROM {} WHERE t < 700",
    "SELECT count(*), sum(x) FROM {} WHERE t >= 300 AND t < 900",
    "SELECT k, count(*), sum(x) FROM {} GROUP BY k ORDER BY k",
    "SELECT t, k, g, x FROM {} ORDER BY t, k, g, x LIMIT 50",
    "SELECT t, k, g, x FROM {} ORDER BY t DESC, k, g, x LIMIT 50",
    "SELECT * FROM {} WHERE k = 'a' AND x = 3",
    "SELECT t, x FROM {} WHERE x IS NULL LIMIT 20",
    "SELECT window_start, count(*), sum(x) FROM TUMBLE({}, t, 100) GROUP BY window_start "
    "ORDER BY window_start",
    "SELECT window_start, k, count(*), max(x) FROM TUMBLE({}, t, 77) GROUP BY window_start, k "
    "ORDER BY window_start, k",
    "SELECT window_start, count(*), min(x) FROM HOP({}, t, 50, 200) GROUP BY window_start "
    "ORDER BY window_start",
    "SELECT window_start, window_end, count(*), sum(x) FROM SESSION({}, t, 3) "
    "GROUP BY window_start, window_end ORDER BY window_start",
    "SELECT window_id, count(*), sum(x), min(t) FROM TUMBLE_ROWS({}, 100) GROUP BY window_id "
    "ORDER BY window_id",
    "SELECT * FROM {} MATCH_SITUATIONS (PATTERN (A) DEFINE A AS g > 4) AS m "
    "ORDER BY a_started LIMIT 500",
    "SELECT * FROM {} MATCH_SITUATIONS (PARTITION BY k PATTERN (A BEFORE B) WITHIN 30 "
    "DEFINE A AS x > 36, B AS x < 3) AS m ORDER BY ALL",
    "SELECT count(*), sum(r.x) FROM {} AS l RECENT LAST 1 JOIN (SELECT t, k, x FROM {}) AS r "
    "PERIOD (t, t) ON l.k = r.k WITHIN 20",
]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_queries(streams: chronicle.Database, text: str) -> None:
    assert rows(streams, text, "s") == rows(streams, text, "plain")


def rows(db: chronicle.Database, text: str, stream: str, strategy: str = "auto") -> list[Any]:
    hinted = text.replace("SELECT", f"SELECT /*+ strategy({strategy}) */", 1)
    return db.sql(hinted.replace("{}", stream)).arrow().to_pylist()


def test_the_stream_itself(streams: chronicle.Database) -> None:
    s, plain = streams.stream("s"), streams.stream("plain")
    assert s.count == plain.count
    assert s.snapshot().time_range == plain.snapshot().time_range
    low, high = 400, 1700
    one, other = (
        pa.Table.from_batches(
            each.scan(low, high, ["t", "x"]), SCHEMA.empty_table().select(["t", "x"]).schema
        )
        for each in (s, plain)
    )
    assert one.equals(other)
    asked = {"x": ["count", "sum", "min", "max", "first", "last"], "k": ["min", "max"]}
    assert s.aggregate(asked) == plain.aggregate(asked)
    assert s.aggregate(asked, low, high) == plain.aggregate(asked, low, high)


def test_a_delete_counts_what_was_shown(tmp_path: Path) -> None:
    r = random.Random(5)
    with chronicle.open(tmp_path / "store") as db:
        s = db.create_stream("s", SCHEMA, time="t", retention=str(AGE), options=OPTIONS)
        s.append(events(r, 0, 1000, 2))
        s.append(events(r, 500, 6000, 2))
        s.append(events(r, 3700, 1, 1))
        (shown,) = db.sql("SELECT count(*) AS n FROM s WHERE k = 'a'").arrow().to_pylist()
        total = s.snapshot()
        assert total.state.dropped > handle_of(s).commits.manifest.dropped_events
        assert s.delete("k = 'a'") == shown["n"]
        assert s.count == total.count - shown["n"]
        found = s.snapshot()
        assert found.count + found.state.gone == 7001
        assert db.sql("SELECT count(*) AS n FROM s WHERE k = 'a'").arrow().to_pylist()[0]["n"] == 0
        before = s.count
        first = found.time_range[0]
        inside = found.aggregate((), None, first + 100).count
        assert s.delete(None, None, first + 100) == inside
        assert s.count == before - inside
        assert s.snapshot().count + s.snapshot().state.gone == 7001
