"""Gap filling: against DuckDB's generate_series and joins, and against plain Python."""

from __future__ import annotations

import datetime as dt
import random
import re
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import InvalidArgument, ResourceLimit, SqlError

from ...new_stores import store_with
from ...rounds import rounds

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64()), ("y", pa.float64())])
db = store_with("s", schema=SCHEMA)


def feed(db: Any, seed: int, events: int = 60, upto: int = 900) -> pa.Table:
    rng = random.Random(seed)
    rows = [
        {
            "t": rng.randrange(-50, upto), "k": rng.choice(["a", "b", "c", None]),
            "x": None if rng.random() < 0.2 else rng.randrange(-50, 50), "y": rng.random(),
        }
        for _ in range(events)
    ]  # fmt: skip
    db.stream("s").append(sorted(rows, key=lambda row: row["t"])[: events // 2])
    db.stream("s").append(sorted(rows, key=lambda row: row["t"])[events // 2 :])
    return pa.Table.from_batches(list(db.stream("s").scan()))


AGGREGATES = "count(*), count(x), sum(x), avg(x), min(y), max(y), first(x), last(k IS NULL)"


@pytest.mark.parametrize("seed", range(rounds(2, 30, 300)))
def test_empty_windows_are_those_of_an_outer_join(db: Any, seed: int) -> None:
    rng = random.Random(seed)
    s = feed(db, seed)
    size, origin = rng.choice([7, 10, 40]), rng.randrange(9)
    low, high = rng.randrange(-120, 300), rng.randrange(400, 1100)
    where = rng.choice(["", " AND x > -20", " AND k <> 'c'"])
    keyed = rng.random() < 0.5
    key, group = ("k, ", ", k") if keyed else ("", "")
    found = db.sql(
        f"SELECT window_start, window_end, {key}{AGGREGATES} FROM "
        f"TUMBLE(s, t, {size}, {origin}, fill => 'null') WHERE t >= {low} AND t < {high}{where} "
        f"GROUP BY window_start, window_end{group} ORDER BY ALL"
    ).fetchall()
    begin = (low - origin) // size * size + origin
    keys = "CROSS JOIN (SELECT DISTINCT k FROM e) q" if keyed else ""
    on = "AND e.k IS NOT DISTINCT FROM q.k" if keyed else ""
    wanted = duckdb.sql(
        f"WITH e AS (SELECT *, floor((t - {origin}) / {size})::BIGINT * {size} + {origin} AS w "
        f"FROM s WHERE t >= {low} AND t < {high}{where}) "
        f"SELECT g.w, g.w + {size}, {'q.k, ' if keyed else ''}count(e.t), count(x), sum(x), "
        "avg(x), min(y), max(y), arg_min_null(x, e.t), arg_max_null(e.k IS NULL, e.t) "
        f"FROM (SELECT unnest(range({begin}, {high}, {size})) AS w) g {keys} "
        f"LEFT JOIN e ON e.w = g.w {on} GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert len(found) == len(wanted)
    same = [(a[:7], b[:7]) for a, b in zip(found, wanted, strict=True)]
    assert all(a == b for a, b in same)
    assert s.num_rows


def plain(db: Any, key: str, size: int) -> dict[Any, list[tuple[int, Any]]]:
    rows = db.sql(
        f"SELECT {key}, window_start, sum(x) FROM TUMBLE(s, t, {size}) GROUP BY ALL ORDER BY 2"
    ).fetchall()
    found: dict[Any, list[tuple[int, Any]]] = {}
    for k, start, total in rows:
        found.setdefault(k, []).append((start, total))
    return found


def filled(known: list[tuple[int, Any]], starts: range, how: str) -> list[tuple[int, Any]]:
    """What a key has, by definition."""
    rows, made = dict(known), []
    for start in starts:
        before = [row for row in known if row[0] < start]
        behind = [row for row in known if row[0] > start]
        if start in rows:
            value = rows[start]
        elif how == "previous":
            value = before[-1][1] if before else None
        elif how == "linear":
            value = None
            if before and behind and before[-1][1] is not None and behind[0][1] is not None:
                (a, v), (b, w) = before[-1], behind[0]
                value = round(v + (w - v) * ((start - a) / (b - a)))
        else:
            value = int(how)
        made.append((start, value))
    return made


@pytest.mark.parametrize("how", ["previous", "linear", "7"])
@pytest.mark.parametrize("keyed", [False, True])
def test_what_empty_windows_have(db: Any, how: str, keyed: bool) -> None:
    feed(db, 5)
    size = 15
    known = plain(db, "k" if keyed else "0", size)
    every = [start for rows in known.values() for start, _ in rows]
    starts = range(min(every), max(every) + 1, size)
    fill = how if how == "7" else f"'{how}'"
    key, group = ("k", ", k") if keyed else ("0", "")
    rows = db.sql(
        f"SELECT {key}, window_start, sum(x), count(*) FROM TUMBLE(s, t, {size}, fill => {fill}) "
        f"GROUP BY window_start, window_end{group}"
    ).fetchall()
    assert [row[1] for row in rows] == [s for s in starts for _ in known]
    for k, mine in known.items():
        wanted = filled(mine, starts, how)
        assert [(row[1], row[2]) for row in rows if row[0] == k] == wanted
    events = sum(row[3] for row in rows)
    assert events == db.sql("SELECT count(*) FROM s").fetchall()[0][0]


def test_gaps_pass_from_batch_to_batch(db: Any) -> None:
    """Many more windows than are made at once, with gaps between what comes at once."""
    ticks = [*range(0, 200_000, 7), 350_000, 350_001]
    db.stream("s").append(pa.table(
        {"t": ticks, "k": ["a"] * len(ticks), "x": ticks, "y": [0.5] * len(ticks)}, SCHEMA
    ))  # fmt: skip
    for how, wanted in (("previous", lambda t: (min(t, 199_997) // 7) * 7), ("linear", None)):
        result = db.sql(
            "SELECT window_start, max(x), count(*) FROM "
            f"TUMBLE(s, t, 1, fill => '{how}') GROUP BY window_start, window_end"
        )
        batches = list(result.batches())
        assert max(batch.num_rows for batch in batches) <= 1 << 17
        rows = pa.Table.from_batches(batches).to_pydict()
        starts, values, counts = rows.values()
        assert starts == list(range(350_002))
        assert sum(counts) == len(ticks)
        if wanted is not None:
            assert all(v == wanted(t) for t, v in zip(starts, values, strict=True) if t < 350_000)
        else:
            assert all(abs(v - t) <= 1 for t, v in zip(starts, values, strict=True))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Havana"])
@pytest.mark.parametrize("keyed", [False, True])
def test_days_of_a_zone_are_filled_by_its_clocks(tmp_path: Path, zone: str, keyed: bool) -> None:
    schema = pa.schema([("at", pa.timestamp("s")), ("k", pa.string()), ("x", pa.int64())])
    first, last = dt.datetime(2018, 3, 5, 9), dt.datetime(2018, 11, 10, 2)
    with chronicle.open(tmp_path / "store") as db:
        db.create_stream("few", schema, time="at")
        db.create_stream("many", schema, time="at")
        db.stream("few").append([{"at": at, "k": "a", "x": 1} for at in (first, last)])
        hours = int((last - first) / dt.timedelta(hours=1))
        db.stream("many").append([
            {"at": first + dt.timedelta(hours=h), "k": "a", "x": 1} for h in range(hours + 1)
        ])  # fmt: skip
        group = "window_start, window_end" + (", k" if keyed else "")
        shown = f"SELECT window_start, window_end, count(*) FROM TUMBLE(%s, at, INTERVAL '1' DAY, \
time_zone => '{zone}'%s) GROUP BY {group}"
        full = db.sql(shown % ("many", "")).fetchall()
        found = db.sql(shown % ("few", ", fill => 'null'")).fetchall()
        assert [row[:2] for row in found] == [row[:2] for row in full]
        assert sum(row[2] for row in found) == 2
        lengths = {(row[1] - row[0]) / dt.timedelta(hours=1) for row in found}
        assert lengths == {23.0, 24.0, 25.0}
        start = found[0][0].replace(tzinfo=dt.timezone.utc).astimezone(ZoneInfo(zone))
        assert (start.hour, start.minute) == (0, 0)


def test_ranges_without_events(db: Any) -> None:
    text = (
        "SELECT window_start, count(*), sum(x) FROM TUMBLE(s, t, 10, fill => 'null') "
        "WHERE t >= 5 AND t < 31 GROUP BY window_start, window_end"
    )
    empty = [(0, 0, None), (10, 0, None), (20, 0, None), (30, 0, None)]
    assert db.sql(text).fetchall() == empty
    assert db.sql(text.replace("window_end", "window_end, k")).fetchall() == []
    assert db.sql(text.replace("t >= 5 AND ", "")).fetchall() == []
    assert db.sql(text.replace("t < 31", "t < 5")).fetchall() == []
    feed(db, 1, events=1, upto=-49)
    assert db.sql(text).fetchall() == empty


def test_values_and_parameters(db: Any) -> None:
    db.stream("s").append([{"t": t, "k": "a", "x": 4, "y": 0.5} for t in (0, 20)])
    text = "SELECT max(x), max(y), max(t) FROM TUMBLE(s, t, 10, fill => ?) GROUP BY window_start"
    assert db.sql(text, [3]).fetchall()[1] == (3, 3.0, 3)
    assert db.sql(text, ["previous"]).fetchall()[1] == (4, 0.5, 0)
    assert db.sql(text, [None]).fetchall()[1] == (None, None, None)
    half = text.replace("max(x), ", "").replace(", max(t)", "")
    for value in (0.25, 2**64):
        assert db.sql(half, [value]).fetchall()[1] == (value,)
    with pytest.raises(InvalidArgument, match=r"fill => 0\.25 does not fit"):
        db.sql(text, [0.25]).fetchall()
    asked = db.sql(f"{text} HAVING max(x) = 3", [3]).fetchall()
    assert asked == [(3, 3.0, 3)]


def test_what_cannot_be_filled(db: Any) -> None:
    feed(db, 2)
    for call, message in (
        ("TUMBLE(s, t, 10, fill => 'next')", "fill is 'null', 'previous', 'linear' or a number"),
        ("HOP(s, t, 5, 10, fill => 'null')", "HOP has no argument 'fill'"),
        ("SESSION(s, t, 10, fill => 'null')", "SESSION has no argument 'fill'"),
        ("TUMBLE(s, t, 10, fill => 0, fill => 1)", "no argument 'fill' here"),
        ("TUMBLE(s, t, 10, 'first', fill => 0)", "give a time as origin"),
    ):
        with pytest.raises(SqlError, match=message):
            db.sql(f"SELECT count(*) FROM {call} GROUP BY window_start, window_end").fetchall()
    for text in ("SELECT median(x) FROM {} GROUP BY window_start", "SELECT * FROM {}"):
        with pytest.raises(SqlError, match="gaps are filled where"):
            db.sql(text.format("TUMBLE(s, t, 10, fill => 0)"))
    with pytest.raises(SqlError, match="fill gaps where they are read"):
        db.create_live("q", "SELECT count(*) AS n FROM TUMBLE(s, t, 10, fill => 0) "
                            "GROUP BY window_start")  # fmt: skip


@pytest.mark.parametrize("key", ["", ", k"])
def test_too_many_windows_are_refused_with_their_number(db: Any, key: str) -> None:
    db.stream("s").append([{"t": t, "k": "a", "x": 1, "y": 1.0} for t in (0, 10**9 - 1)])
    text = f"SELECT count(*) FROM TUMBLE(s, t, 1, fill => 0) GROUP BY window_start{key}"
    with pytest.raises(ResourceLimit, match="1,000,000,000 rows"):
        db.sql(text).fetchall()
    wide = text.replace("t, 1,", "t, 1000000,")
    assert len(db.sql(wide).fetchall()) == 1000


def test_a_rollup_is_filled_as_its_stream_is(db: Any) -> None:
    feed(db, 3)
    db.sql(
        "CREATE ROLLUP r IDLE NEVER AS SELECT window_start, k, count(*) AS n, sum(x) AS s "
        "FROM TUMBLE(s, t, 5) GROUP BY ALL"
    )
    db.run_live()
    rest = "window_start, k, count(*), sum(x) FROM TUMBLE(s, t, 25, fill => 'linear') GROUP BY ALL"
    rows = [
        sorted(db.sql(f"SELECT /*+ rollups({hint}) */ {rest}").fetchall(), key=str)
        for hint in ("always", "none")
    ]
    assert rows[0] == rows[1]
    assert "rollup: r" in str(db.explain(f"SELECT /*+ rollups(always) */ {rest}"))


def test_sessions_partitioned_by_keys(db: Any) -> None:
    feed(db, 4)
    shown = (
        "SELECT k, x, window_start, window_end, count(*) FROM SESSION({}) GROUP BY ALL ORDER BY ALL"
    )
    for one, other in (
        ("s PARTITION BY k, x, t, 40", "s, t, 40, k, x"),
        ("s PARTITION BY x, k, t, 15", "s, t, 15, x, k"),
    ):
        found = db.sql(shown.format(one)).fetchall()
        assert found == db.sql(shown.format(other)).fetchall()
        assert len(found) > 5
    with pytest.raises(SqlError, match=r"PARTITION BY key, \.\.\., time, gap"):
        db.sql("SELECT * FROM SESSION(s PARTITION BY k, t)")
    with pytest.raises(SqlError, match="a key of sessions is an attribute"):
        db.sql("SELECT * FROM SESSION(s PARTITION BY k + 1, t, 4)")


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "windows.md").read_text(encoding="utf-8")
    part = page.partition("## Windows without events")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sql\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
    texts = [text.strip() for block in blocks for text in block.split(";\n") if text.strip()]
    with chronicle.open(tmp_path / "store") as db:
        answers = [db.sql(text).fetchall() for text in texts]
    shown = re.search(r"^window_start +n.*?\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
    assert shown is not None
    wanted = [(line[:19], *line[19:].split()) for line in shown.group(1).splitlines()]
    assert [(str(row[0]), *map(str, row[1:])) for row in answers[2]] == wanted
    assert [row[3] for row in answers[3]] == [1, 1, 1, 1, 3, 3, 2, 2, 2, 8, 8, 8]
