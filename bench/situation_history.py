"""Situations over history: by indexes, from the tree, beside a scan, over real flights.

S1 to S3 are generated; S4 are the flights of ``../shared/data`` a hundred times, if present.  Rows
must equal those over all events.  Medians of CPU seconds; wall time for two threads.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..api.database import Database, open_database
from .harness import Row, paired

FLIGHTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "opensky-switzerland.json.gz"


def asked(place: Path, text: str, runs: int = 3) -> tuple[pa.Table, float]:
    with open_database(place, mode="r") as database:
        answer = database.sql(text).arrow()
        times = []
        for _ in range(runs):
            begun = time.process_time()
            database.sql(text).arrow()
            times.append(time.process_time() - begun)
    return answer, statistics.median(times)


def history(place: Path, text: str) -> tuple[float, float]:
    """Seconds with the planner's choice, and over all events."""
    found, chosen = asked(place, text.format(""))
    whole, full = asked(place, text.format("/*+ strategy(replay) */"))
    if not found.equals(whole):
        raise AssertionError(f"other rows than over all events: {text}")
    return chosen, full


def through_indexes(count: int, number: int = 842) -> Iterator[Row]:
    """S1: a rare start of three names, partitioned by aircraft."""
    rng = np.random.default_rng(5)
    schema = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("x", pa.float64()),
                        ("y", pa.float64())])  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        with open_database(folder) as database:
            stream = database.create_stream("s", schema, time="t")
            for low in range(0, count, 1 << 20):
                size = min(1 << 20, count - low)
                x = rng.random(size)
                columns = [
                    np.arange(low, low + size),
                    rng.integers(0, number, size),
                    x,
                    np.abs(np.sin(np.arange(low, low + size) / 1e5)) * rng.random(size),
                ]
                stream.append(pa.table(columns, schema=schema))
            stream.create_index("x")
        text = """SELECT {} * FROM s MATCH_SITUATIONS (PARTITION BY k
            PATTERN (A BEFORE B AND B BEFORE C) WITHIN 20000
            DEFINE A AS x > 0.999995, B AS y > 0.5, C AS y < 0.1)"""
        chosen, full = history(Path(folder), text)
    yield Row(
        f"S1: a rare start of three, {number} aircraft: replay intervals against all events",
        f"{chosen:.3f} s", f"{full:.3f} s", f"{full / chosen:.1f}x", "10x", full / chosen >= 10,
    )  # fmt: skip


def selective(count: int, queries: int) -> Iterator[Row]:
    rng = np.random.default_rng(9)
    number = 50
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        place = Path(folder)
        with open_database(folder) as database:
            table = pa.table(
                {
                    "t": np.arange(count), "k": rng.integers(0, number, count),
                    "x": rng.random(count), "y": np.abs(np.sin(np.arange(count) / 1e5)),
                }
            )  # fmt: skip
            stream = database.create_stream("s", table.schema, time="t")
            stream.append(table)
            stream.create_index("x")
        gains = []
        with open_database(place, mode="r") as database:

            def spent(text: str) -> float:
                begun = time.process_time()
                database.sql(text).arrow()
                return time.process_time() - begun

            for _ in range(queries):
                text = _query(rng, count)
                chosen, full = text.format(""), text.format("/*+ strategy(replay) */")
                found, whole = database.sql(chosen).arrow(), database.sql(full).arrow()
                if not found.equals(whole):
                    raise AssertionError(f"other rows than over all events: {text}")
                sides = partial(spent, chosen), partial(spent, full)
                for runs in (3, 15, 45):
                    gain = paired(*sides, runs=runs)[2]
                    if gain >= 1:  # else measure again: slower, or noise?
                        break
                gains.append(gain)
    yield Row(
        f"{queries} random selective queries over {count / 1e6:.1f} M events: against all events, "
        "the slowest and the median",
        f"{min(gains):.2f}x", "", f"{statistics.median(gains):.1f}x", "0.9x", min(gains) >= 0.9,
    )  # fmt: skip


def _query(rng: np.random.Generator, count: int) -> str:
    rare = float(10 ** rng.uniform(-6, -3))
    text = f"""SELECT {{}} * FROM s MATCH_SITUATIONS (
        {"PARTITION BY k" if rng.random() < 0.7 else ""}
        PATTERN (A {rng.choice(["BEFORE", "MEETS | BEFORE", "INTERSECTS"])} B)
        WITHIN {int(rng.integers(100, 20_000))}
        DEFINE A AS x > {1 - rare}, B AS y < {rng.random():.3f})"""
    if rng.random() < 0.5:
        low = int(rng.integers(0, count))
        text += f" WHERE a_started BETWEEN {low} AND {low + count // 10}"
    return text


def in_threads(count: int) -> Iterator[Row]:
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    rng = np.random.default_rng(10)
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        with open_database(folder) as database:
            schema = pa.schema([(name, pa.int64()) for name in ("t", "k", "x")])
            stream = database.create_stream("s", schema, time="t")
            for low in range(0, count, 1 << 20):
                size = min(1 << 20, count - low)
                level = np.repeat(rng.integers(0, 100, size // 50 + 1), 50)[:size]
                columns = [np.arange(low, low + size), rng.integers(0, 100, size), level]
                stream.append(pa.table(columns, schema=schema))
        for by in ("", "PARTITION BY k"):
            text = f"""SELECT /*+ strategy(replay) */ count(*) FROM s MATCH_SITUATIONS ({by}
                PATTERN (A MEETS | OVERLAPS | BEFORE B) WITHIN 300
                DEFINE A AS x > 80, B AS x < 20)"""
            what = "partitioned" if by else "without partitions"
            if len(allowed) < 2:
                yield Row(f"{what}: two threads against one (not measured: one processor)",
                          "", "", "", "1.7x")  # fmt: skip
                continue
            with open_database(folder, mode="r") as database:
                one, two, ratio = paired(
                    partial(_by_the_clock, database, text, allowed[:1]),
                    partial(_by_the_clock, database, text, allowed[:2]), 3,
                )  # fmt: skip
            yield Row(
                f"{what}, {count / 1e6:.0f} M events: two threads against one, by the clock",
                f"{count / two / 1e6:.1f} M events/s", f"{count / one / 1e6:.1f} M events/s",
                f"{1 / ratio:.2f}x", "1.7x", 1 / ratio >= 1.7,
            )  # fmt: skip


def _by_the_clock(database: Database, text: str, processors: list[int]) -> float:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        begun = time.perf_counter()
        database.sql(text).arrow()
        return time.perf_counter() - begun
    finally:
        os.sched_setaffinity(0, allowed)


def from_the_tree(count: int) -> Iterator[Row]:
    """S2: long runs without PARTITION BY, one flip per 100,000 events."""
    flips = count // 100_000
    rng = np.random.default_rng(6)
    cuts = np.sort(rng.integers(0, count, flips))
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        with open_database(folder) as database:
            stream = database.create_stream("s", schema, time="t")
            for low in range(0, count, 1 << 22):
                at = np.arange(low, min(count, low + (1 << 22)))
                level = np.searchsorted(cuts, at, side="right") % 2
                stream.append(pa.table([at, level * 10.0 + rng.random(len(at))], schema=schema))
        text = "SELECT {} * FROM s MATCH_SITUATIONS (PATTERN (A) DEFINE A AS x > 5)"
        chosen, full = history(Path(folder), text)
    yield Row(
        f"S2: {flips:,} flips in {count / 1e6:.0f} M events: runs from the tree against a scan",
        f"{chosen:.3f} s", f"{full:.3f} s", f"{full / chosen:.1f}x", "100x", full / chosen >= 100,
    )  # fmt: skip


def beside_a_scan(count: int) -> Iterator[Row]:
    """S3: deriving situations beside a filter over the same columns."""
    rng = np.random.default_rng(8)
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        with open_database(folder) as database:
            schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
            stream = database.create_stream("s", schema, time="t")
            for low in range(0, count, 1 << 20):
                size = min(1 << 20, count - low)
                level = np.repeat(rng.random(size // 50 + 1), 50)[:size]
                stream.append(pa.table([np.arange(low, low + size), level], schema=schema))
        with open_database(folder, mode="r") as database:

            def spent(text: str) -> float:
                begun = time.process_time()
                database.sql(text).arrow()
                return time.process_time() - begun

            derive = """SELECT /*+ strategy(replay) */ count(*) FROM s MATCH_SITUATIONS (
                PATTERN (A) DEFINE A AS x > 0.9)"""
            scan = "SELECT count(*), max(t) FROM s WHERE x > 0.9"
            ours, theirs, ratio = paired(lambda: spent(derive), lambda: spent(scan))
    yield Row(
        "S3: situations derived, beside a filter over the same columns",
        f"{count / ours / 1e6:.1f} M events/s", f"{count / theirs / 1e6:.1f} M events/s",
        f"{ratio:.2f}x", "0.6x", ratio >= 0.6,
    )  # fmt: skip


LEAVING = """PARTITION BY icao24 PATTERN (H OVERLAPS D AND L BEFORE | MEETS D)
    WITHIN INTERVAL '30' MINUTE GAP INTERVAL '2' MINUTE
    DEFINE H AS altitude > 36000,
        L AS abs(vertical_rate) < 200 LASTING AT LEAST INTERVAL '2' MINUTE,
        D AS vertical_rate < -500 LASTING AT LEAST INTERVAL '1' MINUTE"""
OF_ONE = 78


def flights(times: int) -> Iterator[Row]:
    """S4: leaving cruise level, over copies of the flights."""
    if not FLIGHTS.exists():
        return
    columns = ["timestamp", "icao24", "altitude", "vertical_rate"]
    one = pa.Table.from_pylist(json.loads(gzip.decompress(FLIGHTS.read_bytes()))).select(columns)
    one = one.set_column(0, "timestamp", one["timestamp"].cast(pa.timestamp("ms")))
    copies = [
        one.set_column(1, "icao24", pc.binary_join_element_wise(one["icao24"], str(i), "-"))
        for i in range(times)
    ]
    table = pa.concat_tables(copies).sort_by("timestamp")
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        with open_database(folder) as database:
            database.create_stream("s", table.schema, time="timestamp").append(table)
        text = f"SELECT /*+ strategy(replay) */ * FROM s MATCH_SITUATIONS ({LEAVING})"
        found, seconds = asked(Path(folder), text)
    if found.num_rows != OF_ONE * times:
        raise AssertionError(f"{found.num_rows} aircraft leave cruise level, not {OF_ONE * times}")
    yield Row(
        f"S4: leaving cruise level, real flights {times} times: {found.num_rows:,} matches",
        f"{table.num_rows / seconds / 1e6:.1f} M events/s", "", "",
    )  # fmt: skip
