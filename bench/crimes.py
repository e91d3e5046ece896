"""Related crimes: robbery, battery, car theft within half an hour and nearby (thesis 3.5.3).

Listing 3.1 on a generated stream like Chicago's public data, 7.2 M events from 2001 to 2023: for
one beat or all (PARTITION BY), and for a box of coordinates.  Rows are compared with a full replay,
and in part with DuckDB joins.  Shares of categories approximate the public totals; 279 beats have
log-normal shares; rates vary by hour and season and halve over the years.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..api.database import Database, open_database
from .harness import Row, Section

EVENTS = 7_200_000
BEATS = 279
FIRST = np.datetime64("2001-01-01", "us")
DAYS = 8400
SHARES = {
    "THEFT": 0.212, "BATTERY": 0.183, "CRIMINAL DAMAGE": 0.114, "NARCOTICS": 0.094,
    "ASSAULT": 0.066, "OTHER OFFENSE": 0.062, "BURGLARY": 0.053, "MOTOR VEHICLE THEFT": 0.050,
    "DECEPTIVE PRACTICE": 0.045, "ROBBERY": 0.038, "CRIMINAL TRESPASS": 0.027,
    "WEAPONS VIOLATION": 0.014, "PROSTITUTION": 0.009, "OFFENSE INVOLVING CHILDREN": 0.007,
    "PUBLIC PEACE VIOLATION": 0.007, "SEX OFFENSE": 0.004, "CRIM SEXUAL ASSAULT": 0.004,
    "INTERFERENCE WITH PUBLIC OFFICER": 0.002, "GAMBLING": 0.002, "LIQUOR LAW VIOLATION": 0.002,
    "ARSON": 0.002, "HOMICIDE": 0.0016, "KIDNAPPING": 0.001, "INTIMIDATION": 0.0006,
    "STALKING": 0.0006, "OBSCENITY": 0.0001, "CONCEALED CARRY LICENSE VIOLATION": 0.0001,
    "PUBLIC INDECENCY": 0.00005, "HUMAN TRAFFICKING": 0.00002, "NON-CRIMINAL": 0.00003,
    "OTHER NARCOTIC VIOLATION": 0.00002,
}  # fmt: skip
SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us"), False),
        pa.field("category", pa.string()),
        pa.field("beat", pa.int64()),
        pa.field("latitude", pa.float64()),
        pa.field("longitude", pa.float64()),
        pa.field("arrest", pa.bool_()),
    ]
)
ORDERS = (
    ("ROBBERY", "BATTERY", "MOTOR VEHICLE THEFT"),
    ("BATTERY", "ROBBERY", "MOTOR VEHICLE THEFT"),
    ("ROBBERY", "MOTOR VEHICLE THEFT", "BATTERY"),
    ("MOTOR VEHICLE THEFT", "ROBBERY", "BATTERY"),
)


def crimes(total: int = EVENTS, seed: int = 2001) -> pa.Table:
    rng = np.random.default_rng(seed)
    time_ = _times(rng, total)
    shares = np.array(list(SHARES.values()))
    category = rng.choice(len(shares), total, p=shares / shares.sum()).astype(np.int8)
    numbers = np.array(
        [100 * (1 + i // 12) + 11 + 10 * (i % 12 // 4) + i % 4 for i in range(BEATS)], np.int64
    )
    busy = rng.lognormal(0.0, 0.45, BEATS)
    beat = rng.choice(BEATS, total, p=busy / busy.sum())
    south, west = rng.uniform(41.66, 42.0, BEATS), rng.uniform(-87.92, -87.54, BEATS)
    latitude = np.clip(south[beat] + 0.006 * rng.standard_normal(total), 41.64, 42.02)
    longitude = np.clip(west[beat] + 0.008 * rng.standard_normal(total), -87.94, -87.52)
    names = pa.DictionaryArray.from_arrays(category, list(SHARES))
    return pa.table(
        [
            pa.array(time_.astype("datetime64[us]")), names.cast(pa.string()), numbers[beat],
            np.round(latitude, 9), np.round(longitude, 9), rng.random(total) < 0.26,
        ],
        schema=SCHEMA,
    )  # fmt: skip


def _times(rng: np.random.Generator, total: int) -> npt.NDArray[Any]:
    day = np.arange(DAYS)
    season = 1.0 + 0.15 * np.sin(2 * np.pi * (day - 110) / 365.25)
    weight = season * np.linspace(1.3, 0.65, DAYS)
    days = rng.choice(DAYS, total, p=weight / weight.sum())
    hours = np.arange(24)
    rhythm = 1.0 - 0.65 * np.cos(2 * np.pi * (hours - 5) / 24) + 0.15 * (hours == 12)
    hour = rng.choice(24, total, p=rhythm / rhythm.sum())
    seconds = days * 86_400 + hour * 3600 + rng.integers(0, 3600, total)
    return FIRST + np.sort(seconds).astype("timedelta64[s]")


def _query(order: tuple[str, str, str], where: str, partition: str, strategy: str) -> str:
    place = f" AND {where}" if where else ""
    defined = ", ".join(
        f"{name} AS category = '{category}'{place}"
        for name, category in zip("ABC", order, strict=True)
    )
    by = "PARTITION BY beat " if partition else ""
    return (
        f"SELECT /*+ strategy({strategy}) */ * FROM crimes MATCH_RECOGNIZE ({by}ORDER BY time "
        "MEASURES A.time AS robbed, B.time AS hurt, C.time AS stolen "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A T*? B T*? C) WITHIN INTERVAL '30' MINUTE "
        f"DEFINE {defined})"
    )


def _by_joins(order: tuple[str, str, str], where: str) -> str:
    place = f" AND {where}" if where else ""
    first, second, third = (f"FROM crimes WHERE category = '{c}'{place}" for c in order)
    return f"""
        WITH a AS (SELECT row_number() OVER () AS n, time {first}),
        b AS (SELECT time {second}), c AS (SELECT time {third}), pairs AS (
            SELECT a.n, a.time AS robbed, min(b.time) AS hurt
            FROM a JOIN b ON b.time > a.time AND b.time <= a.time + INTERVAL 30 MINUTE
            GROUP BY ALL)
        SELECT robbed, hurt, min(c.time) AS stolen
        FROM pairs JOIN c ON c.time > hurt AND c.time <= robbed + INTERVAL 30 MINUTE
        GROUP BY n, robbed, hurt ORDER BY robbed
    """


def _box(rng: np.random.Generator) -> str:
    south, west = rng.uniform(41.66, 41.96), rng.uniform(-87.9, -87.6)
    height, width = rng.uniform(0.01, 0.04), rng.uniform(0.01, 0.05)
    return (
        f"latitude BETWEEN {south:.4f} AND {south + height:.4f} "
        f"AND longitude BETWEEN {west:.4f} AND {west + width:.4f}"
    )


def _filled(directory: Path, table: pa.Table) -> Database:
    database = open_database(directory)
    stream = database.create_stream("crimes", SCHEMA, "time")
    for first in range(0, table.num_rows, 1 << 19):
        stream.append(table.slice(first, 1 << 19))
    stream.seal()
    for name in ("category", "beat", "latitude", "longitude", "category, beat"):
        stream.create_index(name)
    return database


def _against_joins(rng: np.random.Generator, beats: npt.NDArray[Any]) -> int:
    import duckdb

    table = crimes(120_000, seed=7)
    # distinct times, close together, so that "next" means the same for joins and matcher
    at = FIRST + (np.arange(table.num_rows) * 20).astype("timedelta64[s]")
    table = table.set_column(0, SCHEMA.field(0), pa.array(at.astype("datetime64[us]")))
    rows = 0
    with tempfile.TemporaryDirectory() as directory:
        database = _filled(Path(directory) / "store", table)
        try:
            for number, order in enumerate(ORDERS):
                where = "" if number == 0 else _box(rng)
                if number == 1:
                    where = f"beat IN ({', '.join(str(int(b)) for b in rng.choice(beats, 90))})"
                found = database.sql(_query(order, where, "", "auto")).arrow()
                connection = duckdb.connect()
                connection.register("crimes", table)
                expected = connection.sql(_by_joins(order, where)).to_arrow_table()
                if found.to_pylist() != expected.to_pylist():
                    raise AssertionError(f"rows differ from DuckDB's: {order} {where}")
                rows += found.num_rows
        finally:
            database.close()
    if not rows:
        raise AssertionError("no match to compare with DuckDB")
    return rows


def _answer(
    database: Database, order: tuple[str, str, str], where: str, partition: str, strategy: str
) -> pa.Table:
    return database.sql(_query(order, where, partition, strategy)).arrow()


def _timed(run: Callable[[], pa.Table]) -> tuple[float, float, pa.Table]:
    begun, used = time.perf_counter(), time.process_time()
    rows = run()
    return (time.perf_counter() - begun) * 1000, (time.process_time() - used) * 1000, rows


def run(short: bool) -> Section:
    total, queries = (400_000, 3) if short else (EVENTS, 25)
    rng = np.random.default_rng(22)
    table = crimes(total)
    beats = np.unique(table.column("beat").to_numpy())
    compared = _against_joins(rng, beats)
    section = Section(
        "Related crimes",
        f"{total:,} generated events like Chicago's crimes from 2001 to 2023 (see the module), "
        "indexes on category, beat, latitude, longitude and (category, beat); robbery, battery "
        "and theft of a car in four orders within 30 minutes, anything between; peer: a full "
        "replay of the same query; rows are equal.",
    )
    with tempfile.TemporaryDirectory(dir=os.environ.get("CHRONICLE_BENCH_DIR")) as directory:
        database = _filled(Path(directory) / "store", table)
        del table
        try:
            kinds: list[tuple[str, Callable[[], tuple[str, str]], int]] = [
                ("in one beat", lambda: (f"beat = {int(rng.choice(beats))}", ""), queries),
                ("in a box", lambda: (_box(rng), ""), queries),
                ("in each beat (PARTITION BY)", lambda: ("", "beat"), max(2, queries // 5)),
                ("in one beat, any (beat = A.beat)", lambda: ("beat = A.beat", ""), queries // 3),
                (
                    "in each of ten beats (PARTITION BY)",
                    lambda: (
                        f"beat IN ({', '.join(str(int(b)) for b in rng.choice(beats, 10))})",
                        "beat",
                    ),
                    queries,
                ),
            ]
            for name, place, count in kinds:
                _variant(database, section, rng, name, place, count)
        finally:
            database.close()
    section.notes.append(
        f"On a stream of 120,000 events {compared:,} matches were those that DuckDB finds by joins."
    )
    return section


def _variant(
    database: Database,
    section: Section,
    rng: np.random.Generator,
    name: str,
    place: Callable[[], tuple[str, str]],
    queries: int,
) -> None:
    ours, theirs, busy, matches = [], [], [], 0
    for number in range(queries):
        order = ORDERS[int(rng.integers(len(ORDERS)))]
        where, partition = place()

        ask = partial(_answer, database, order, where, partition)
        if number == 0:
            ask("auto")
            ask("replay")
        spent, used, found = _timed(partial(ask, "auto"))
        replayed, _, expected = _timed(partial(ask, "replay"))
        if not found.equals(expected):
            raise AssertionError(f"rows differ from those of a replay: {order} {where}")
        ours.append(spent)
        busy.append(used)
        theirs.append(replayed)
        matches += found.num_rows
    middle = statistics.median(ours)
    section.rows.append(
        Row(
            f"{name}, {queries} queries, {matches:,} matches",
            f"p50 {middle:.1f} ms, most {max(ours):.1f} ms; {statistics.median(busy):.1f} ms busy",
            f"p50 {statistics.median(theirs):.0f} ms",
            f"{statistics.median(b / a for a, b in zip(ours, theirs, strict=True)):.1f}x",
            "p50 at most 50 ms",
            middle <= 50,
        )
    )
