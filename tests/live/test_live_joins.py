"""Live joins in a time window, and unions: bounds, refusals, what is kept."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import SqlError
from chronicle.live.join_form import JoinForm, JoinState, SideRows

from .. import oracles_live as oracles

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
TIMED = pa.schema([("ts", pa.timestamp("us")), ("x", pa.float64())])
FINE = pa.schema([("ts", pa.timestamp("ns")), ("x", pa.float64())])


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "store") as opened:
        for name in ("s", "r", "other"):
            opened.create_stream(name, SCHEMA, time="t")
        for name, schema in (("timed", TIMED), ("later", TIMED), ("fine", FINE), ("finer", FINE)):
            opened.create_stream(name, schema, time="ts")
        yield opened


def feed(db: Any, stream: str, *events: tuple[int, str, int]) -> None:
    db.stream(stream).append([{"t": t, "k": k, "x": x} for t, k, x in events])


def net(db: Any, name: str) -> list[Any]:
    rows = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").fetchall()
    return sorted(rows, key=str)


def form_of(db: Any, name: str) -> JoinForm:
    form = catalog_of(db).live_statements.query(name).form
    assert isinstance(form, JoinForm)
    return form


# -- the SELECT ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "reach"),
    [
        ("r.t BETWEEN s.t - 2 AND s.t + 3", "-2 <= r.t - s.t <= 3"),
        ("s.t BETWEEN r.t - 2 AND r.t + 3", "-3 <= r.t - s.t <= 2"),
        ("r.t > s.t - 2 AND (r.t < 3 + s.t)", "-1 <= r.t - s.t <= 2"),
        ("r.t - s.t <= 4 AND 1 < r.t - s.t", "2 <= r.t - s.t <= 4"),
        ("s.t = r.t", "0 <= r.t - s.t <= 0"),
        ("s.t + 1 = r.t + 3 AND s.k = r.k", "-2 <= r.t - s.t <= -2"),
        ("r.t >= s.t - 2.5 AND r.t <= s.t + 2.5 AND r.t <= s.t + 9", "-2 <= r.t - s.t <= 2"),
    ],
)
def test_bounds(db: Any, condition: str, reach: str) -> None:
    db.create_live("q", f"SELECT s.t, r.t AS u FROM s JOIN r ON {condition}", idle="never")
    assert f"  reach: {reach}" in catalog_of(db).live_statements.explain("q")
    rng = random.Random(1)
    for stream in ("s", "r"):
        events = sorted((rng.randrange(30), "a", 0) for _ in range(40))
        feed(db, stream, *events, (500, stream, 0))
    db.run_live()
    wanted = db.sql(f"SELECT s.t, r.t FROM s JOIN r ON {condition} WHERE s.t < 500 AND r.t < 500")
    assert net(db, "q") == sorted(wanted.fetchall(), key=str)


@pytest.mark.parametrize(("left", "right"), [("timed", "later"), ("fine", "finer")])
def test_intervals(db: Any, left: str, right: str) -> None:
    sql = (
        f"SELECT a.x, b.x AS y FROM {left} a LEFT JOIN {right} b ON b.ts >= a.ts - INTERVAL '1' "
        "SECOND AND b.ts < a.ts + INTERVAL '1500' MILLISECOND"
    )
    db.create_live("q", sql, idle="never")
    unit = 10**6 if left == "timed" else 10**9
    rng = random.Random(2)
    for stream in (left, right):
        ticks = sorted(rng.randrange(20) * unit // 2 for _ in range(30))
        times = pa.array([*ticks, 100 * unit]).cast(TIMED.field("ts").type if unit == 10**6
                                                     else FINE.field("ts").type)  # fmt: skip
        values = pa.array([float(i) for i in range(len(times))])
        db.stream(stream).append(pa.table({"ts": times, "x": values}))
    db.run_live()
    last = "AND".join(f" coalesce({side}.x, 0) <> 30 " for side in ("a", "b"))
    assert net(db, "q") == sorted(db.sql(f"{sql} WHERE {last}").fetchall(), key=str)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT s.x FROM s JOIN r ON s.k = r.k", "any bound .* r.t BETWEEN s.t - 60 AND"),
        ("SELECT s.x FROM s JOIN r ON r.t > s.t", "an upper bound .*column 24"),
        ("SELECT s.x FROM s JOIN r ON s.t >= r.t", "a lower bound .*column 24"),
        ("SELECT a.x FROM timed a JOIN later b ON b.ts > a.ts", "a.ts [+] INTERVAL '1' MINUTE"),
        ("SELECT a.x FROM timed a JOIN later b ON b.ts BETWEEN a.ts - INTERVAL '1' MONTH AND a.ts",
         "any bound"),
        ("SELECT s.x FROM s JOIN r ON r.t BETWEEN s.t + 2 AND s.t", "no two times"),
        ("SELECT s.x FROM s JOIN r USING (k)", "write ON a.k = b.k AND"),
        ("SELECT s.x FROM s RIGHT JOIN r ON r.t = s.t", "RIGHT join .*the other way round"),
        ("SELECT s.x FROM s FULL JOIN r ON r.t = s.t", "a LEFT JOIN each way"),
        ("SELECT s.x FROM s ASOF JOIN r ON r.t <= s.t", "ASOF join cannot be live"),
        ("SELECT s.x FROM s JOIN r ON r.t = s.t JOIN other o ON o.t = s.t", "joins two streams"),
        ("SELECT s.x FROM s JOIN timed ON s.t = 1", "times have one type"),
        ("SELECT s.x FROM s JOIN TUMBLE(r, t, 5) w ON w.window_start = s.t", "of two streams"),
        ("SELECT count(*) FROM s JOIN r ON r.t = s.t", "aggregate where it is read"),
        ("SELECT * FROM s JOIN r ON r.t = s.t", "would be called 't'"),
        ("SELECT s.* EXCLUDE (x) FROM s JOIN r ON r.t = s.t", "names its columns"),
        ("SELECT DISTINCT s.x FROM s JOIN r ON r.t = s.t", "DISTINCT cannot be live.*column 17"),
        ("SELECT x FROM s UNION SELECT x FROM r", "write UNION ALL.*column 30"),
        ("SELECT x FROM s EXCEPT ALL SELECT x FROM r", "write UNION ALL"),
        ("SELECT x FROM s UNION ALL SELECT x FROM r ORDER BY x", "FROM NET.*ORDER BY"),
        ("SELECT x FROM s UNION ALL SELECT k FROM r", "columns of the same types"),
        ("SELECT x FROM s UNION ALL SELECT x FROM timed", "CAST them"),
        ("SELECT x FROM s UNION ALL SELECT x FROM r LIMIT 3", "no end to count to"),
    ],
)  # fmt: skip
def test_refusals(db: Any, sql: str, error: str) -> None:
    with pytest.raises(SqlError, match=f"(?s){error}") as caught:
        db.create_live("q", sql)
    assert re.search(r"line \d+, column \d+", str(caught.value))
    assert db.live_queries() == []


# -- what is read, and kept ------------------------------------------------------------------------


def test_a_step_in_order_reads_its_own_events(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    db.create_live("q", oracles.JOINED["pairs"], idle="never")
    form, read = form_of(db, "q"), []
    wrapped = form._read

    def noted(moment: Any, number: int, low: int, high: int) -> Any:
        rows = wrapped(moment, number, low, high)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(form, "_read", noted)
    for begin in range(0, 3000, 100):
        for stream in ("s", "r"):
            feed(db, stream, *((t, "ab"[t % 2], t % 10) for t in range(begin, begin + 100)))
        db.run_live()
    assert sum(read) < 7000  # of 6,000 events; the first step and the one after it read more
    assert 0 < db.live("q").status()["state_bytes"] < 300_000
    assert db.live("q").verify() == 0


def test_names_are_of_the_events(db: Any) -> None:
    """However it came to its results, and however the text is laid out."""
    events = [(t, "ab"[t % 2], t % 10) for t in range(60)]
    db.create_live("one", oracles.JOINED["alone"], idle="never")
    for begin in range(0, 60, 7):
        for stream in ("r", "s"):
            feed(db, stream, *events[begin : begin + 7])
        db.run_live()
    db.create_live("two", oracles.JOINED["alone"].replace("SELECT", "select  "), idle="never")
    db.run_live()
    one, two = (db.live(name).net().to_pylist() for name in ("one", "two"))
    assert len(one) > 20
    assert sorted(row["_id"] for row in one) == sorted(row["_id"] for row in two)


def test_the_same_select_twice_is_two_results(db: Any) -> None:
    feed(db, "s", (1, "a", 7), (2, "a", 8))
    db.create_live("q", "SELECT x FROM s UNION ALL SELECT x FROM s", idle="never")
    db.run_live()
    assert net(db, "q") == [(7,), (7,)]


# -- what is kept -------------------------------------------------------------------------------


def _rows(rng: random.Random, begin: int, end: int) -> SideRows:
    ticks = np.sort(np.array([rng.randrange(begin, end) for _ in range(25)], np.int64))
    keys = pa.array([rng.choice(["a", "b", "c", None]) for _ in ticks])
    return SideRows.of(ticks, np.zeros(25, np.int64), pa.table({"#key0": keys}), ("#key0",))


@pytest.mark.parametrize(("before", "behind"), [(5, 3), (0, 0), (8, -2), (-3, 9), (40, 40)])
def test_followed_pairs_are_those_of_brute_force(before: int, behind: int) -> None:
    rng = random.Random(before)
    none = _rows(rng, 0, 1).slice(25)
    state = JoinState((none, none), before, behind)
    found, sides = [], ([], [])  # type: ignore[var-annotated]
    for begin in range(0, 900, 30):
        new = _rows(rng, begin, begin + 30), _rows(rng, begin, begin + 30)
        for side, rows in zip(sides, new, strict=True):
            side += zip(rows.tick.tolist(), rows.table.column(0).to_pylist(), strict=True)
        pairs = state.follow(*new)
        for left, right in zip(*pairs, strict=True):
            key = state.left.rows.table.column(0)[left].as_py()
            found.append((state.left.rows.tick[left], state.right.rows.tick[right], key))
        state.let_go(begin + 29)
    wanted = [
        (a, b, k) for a, k in sides[0] for b, other in sides[1]
        if k is not None and k == other and -before <= b - a <= behind
    ]  # fmt: skip
    assert sorted(found) == sorted(wanted)
    assert len(state.left.rows) + len(state.right.rows) < 1500
