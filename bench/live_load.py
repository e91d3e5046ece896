"""Live queries under load: late events, restart after a kill, appends beside 0, 1 and 100 queries.

``verify`` must find no difference.  The peers are Chronicle in order, or without live queries.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import chronicle

from .harness import Row, Section

SCHEMA = pa.schema([pa.field("t", pa.timestamp("ms"), False), ("k", pa.int64()), ("v", pa.int64())])
COMMIT = 10_000
RUNS = 3
SPACING_MS = 10
QUERIES = {
    "filter": "SELECT t, k, v FROM s WHERE v < 1000",
    "window": "SELECT window_start, k, count(*) AS n, sum(v)::BIGINT AS total FROM TUMBLE(s, t, "
    "INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k",
    "pattern": "SELECT a, c, k FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.t AS a,"
    " C.t AS c PATTERN (A B+ C) WITHIN INTERVAL '1' MINUTE DEFINE A AS v < 10000, "
    "B AS v > 500000, C AS v < 200000)",
}
FILL = """
import os, sys, pyarrow as pa, chronicle
from chronicle.bench.live_load import QUERIES, events, COMMIT, SCHEMA
with chronicle.open(sys.argv[1]) as database:
    stream, table = database.create_stream("s", SCHEMA, time="t"), events(int(sys.argv[2]))
    for name, sql in QUERIES.items():
        database.create_live(name, sql)
    for at in range(0, table.num_rows, COMMIT):
        stream.append(table.slice(at, COMMIT))
        database.run_live()
    stream.append(table.slice(0, 1))
    os.kill(os.getpid(), 9)
"""


def events(count: int, late: float = 0.0, by_ms: int = 0) -> pa.Table:
    """An event every 10 ms, a share ``late`` by up to ``by_ms``."""
    drawn = np.random.default_rng(6)
    t = 1_500_000_000_000 + SPACING_MS * np.arange(count)
    behind = np.where(drawn.random(count) < late, drawn.integers(1, by_ms + 2, count), 0)
    held = t - np.minimum(behind, t - t[0])
    values = drawn.integers(0, 100, count), drawn.integers(0, 1_000_000, count)
    return pa.table([pa.array(held, pa.timestamp("ms")), *values], SCHEMA)


@contextmanager
def _store() -> Iterator[tuple[Any, Any]]:
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch,
        chronicle.open(Path(scratch) / "store") as database,
    ):
        yield database, database.create_stream("s", SCHEMA, time="t")


def _check(database: Any) -> None:
    for name in database.live_queries():
        if database.live(name).verify():
            raise AssertionError(f"{name} is wrong")


def _grown(sql: str, table: pa.Table) -> float:
    with _store() as (database, stream):
        database.create_live("q", sql)
        taken = 0.0
        for at in range(0, table.num_rows, COMMIT):
            stream.append(table.slice(at, COMMIT))
            begun = time.process_time()
            database.run_live()
            taken += time.process_time() - begun
        _check(database)
    return taken


def _late(section: Section, count: int) -> None:

    def fastest(sql: str, table: pa.Table) -> float:
        return min(_grown(sql, table) for _ in range(RUNS))

    for name, sql in QUERIES.items():
        _grown(sql, events(COMMIT))
        in_order = fastest(sql, events(count))
        for share, by in ((0.01, 60_000), (0.1, 60_000), (0.01, 3_600_000), (0.1, 3_600_000)):
            taken = fastest(sql, events(count, share, by))
            up_to = "a minute" if by == 60_000 else "an hour"
            section.rows.append(
                Row(
                    f"{name}, {share:.0%} late by up to {up_to}", f"{count / taken / 1e6:.3f} M/s",
                    f"{count / in_order / 1e6:.3f} M/s", f"{in_order / taken:.2f}x", "0.5x",
                    in_order / taken >= 0.5,
                )
            )  # fmt: skip


def _corrections(section: Section, count: int) -> None:
    table, drawn = events(count), np.random.default_rng(9)
    for name, sql in QUERIES.items():
        with _store() as (database, stream):
            stream.append(table)
            database.create_live("q", sql)
            database.run_live()
            seconds, alone = [], []
            for _ in range(30):
                row = table.slice(int(drawn.integers(0, count - 1000)), 1)
                stream.append(row)
                begun = time.perf_counter()
                database.run_live()
                seconds.append(time.perf_counter() - begun)
                begun = time.perf_counter()
                stream.append(row.slice(0, 0))
                alone.append(time.perf_counter() - begun)
            _check(database)
        middle = 1000 * statistics.median(seconds)
        section.rows.append(
            Row(
                f"{name}: one late event, its correction in the median", f"{middle:.1f} ms", "", "",
                "5 ms", middle <= 5,
            )
        )  # fmt: skip


def _restart(section: Section, count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch:
        store = str(Path(scratch) / "store")
        done = subprocess.run([sys.executable, "-c", FILL, store, str(count)], check=False)
        if done.returncode != -signal.SIGKILL:
            raise AssertionError(f"filling the store ended with {done.returncode}")
        begun = time.perf_counter()
        with chronicle.open(store) as database:
            opened = time.perf_counter() - begun
            database.run_live()
            whole = time.perf_counter() - begun
            _check(database)
    section.rows.append(
        Row(
            f"restart after a kill, {count:,} events, {len(QUERIES)} live queries",
            f"{whole:.2f} s", f"{opened:.2f} s (the store alone)", f"+{whole - opened:.2f} s",
            "2 s", whole <= 2,
        )
    )  # fmt: skip


def _appends(queries: int, table: pa.Table) -> float:
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch,
        chronicle.open(Path(scratch) / "store", live=True) as database,
    ):
        stream = database.create_stream("s", SCHEMA, time="t")
        for number in range(queries):
            low = number * 1000
            sql = f"SELECT t, k, v FROM s WHERE v BETWEEN {low} AND {low + 100}"
            database.create_live(f"q{number}", sql)
        seconds = []
        for at in range(0, table.num_rows, 1000):
            begun = time.perf_counter()
            stream.append(table.slice(at, 1000))
            seconds.append(time.perf_counter() - begun)
            time.sleep(0.05)
        database.run_live(timeout=120)
        _check(database)
    return statistics.median(seconds)


def _ingest(section: Section, count: int) -> None:
    table = events(count)
    none = _appends(0, table)
    for queries in (1, 100):
        beside = _appends(queries, table)
        section.rows.append(
            Row(
                f"an append of 1,000 events beside {queries} live filters",
                f"{1000 * beside:.1f} ms",
                f"{1000 * none:.1f} ms (beside none)", f"{none / beside:.2f}x", "0.8x",
                none / beside >= 0.8,
            )
        )  # fmt: skip


def run(short: bool = False) -> Section:
    section = Section(
        "Live queries under load",
        f"Events each {SPACING_MS} ms, 100 keys, commits of {COMMIT:,} where nothing else is said; "
        "a filter (0.1 % pass), a window of a minute with 100 keys, a pattern (A B+ C) within a "
        "minute with 100 keys. Peers are Chronicle itself: in order, without live queries. Late "
        f"events: processor time of the steps, the fastest of {RUNS} runs each.",
    )
    _late(section, 50_000 if short else 300_000)
    _corrections(section, 50_000 if short else 300_000)
    _restart(section, 50_000 if short else 1_000_000)
    _ingest(section, 20_000 if short else 100_000)
    section.notes.append(f"Load of the machine at the end: {os.getloadavg()[0]:.1f}.")
    return section
