"""Soak test: a server with live queries under appends with late events.

Memory must stay flat for ``CHRONICLE_BENCH_SOAK_SECONDS`` (default 240) and ``verify`` find no
difference.  Source and sinks retain an hour of event time.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import chronicle

from .harness import Row, Section
from .live_load import QUERIES, SCHEMA, SPACING_MS, events
from .served import Served

COMMIT = 1000
EVENTS = 1_000_000
LATE = 0.05
DEFAULT_S = 240.0


def run(short: bool = False) -> Section:
    seconds = float(os.environ.get("CHRONICLE_BENCH_SOAK_SECONDS", 10 if short else DEFAULT_S))
    section = Section(
        "Live queries over time",
        f"A server; commits of {COMMIT:,} events over HTTP, {LATE:.0%} late by up to a minute; the "
        "three live queries of the section before; retention of an hour. Memory is the "
        "server's own (pages of mapped files left out), in the last quarter against the second.",
    )
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch:
        store = Path(scratch) / "store"
        with chronicle.open(store) as database:
            database.create_stream("s", SCHEMA, time="t", retention="1 hour")
        count, memory = _appended(store, seconds)
        with chronicle.open(store) as database:
            database.run_live()
            for name in database.live_queries():
                if database.live(name).verify():
                    raise AssertionError(f"{name} is wrong")
    quarter = len(memory) // 4
    before = statistics.median(memory[quarter : 2 * quarter]) / 1e6
    after = statistics.median(memory[-quarter:]) / 1e6
    section.rows.append(
        Row(
            f"memory over {seconds:,.0f} s, {count:,} events", f"{after:.0f} MB",
            f"{before:.0f} MB (second quarter)", f"{after / before:.2f}x", "1.1x",
            after / before <= 1.1,
        )
    )  # fmt: skip
    section.notes.append(f"Load of the machine at the end: {os.getloadavg()[0]:.1f}.")
    return section


def _appended(store: Path, seconds: float) -> tuple[int, list[int]]:
    drawn = np.random.default_rng(7)
    table = events(EVENTS, LATE, 60_000)
    memory: list[int] = []
    with Served(store) as served:
        for name, sql in QUERIES.items():
            options = {"retention": "1 hour"}
            served.ask("/v1/live", {"name": name, "sql": sql, "options": options})
        begun, count = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < seconds:
            rounds, at = divmod(count, EVENTS)
            batch = table.slice(at, COMMIT)
            t = batch["t"].cast(pa.int64()).to_numpy() + rounds * EVENTS * SPACING_MS
            moved = batch.set_column(0, SCHEMA.field(0), pa.array(t, pa.timestamp("ms")))
            served.ask("/v1/streams/s/events", moved.combine_chunks().to_batches()[0])
            count += COMMIT
            if passed > len(memory) * seconds / 60:
                memory.append(served.memory)
            time.sleep(float(drawn.random()) * 0.04)
    return count, memory
