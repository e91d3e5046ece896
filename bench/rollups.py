"""Queries over a roll-up, against the tree, a replay, and DuckDB, with equal rows; warm."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import chronicle

from .harness import Row, Section, paired

EVENTS, SHORT_EVENTS = 20_000_000, 500_000
MACHINES = 50
STEP_MS = 50
MINUTE, HOUR = 60_000, 3_600_000


def run(short: bool = False) -> Section:
    count = SHORT_EVENTS if short else EVENTS
    rng = np.random.default_rng(11)
    events = pa.table({
        "t": np.arange(count) * STEP_MS,
        "machine": rng.integers(0, MACHINES, count),
        "x": rng.integers(-1000, 1000, count),
    })  # fmt: skip
    section = Section(
        "Queries over roll-ups",
        f"{count:,} events of {MACHINES} machines, one every {STEP_MS} ms; roll-ups by the minute; "
        "count, sum, min and max of windows of an hour. Medians of 5 pairs.",
    )
    shown = "window_start, {key}count(*) AS n, sum(x) AS s, min(x) AS low, max(x) AS high"
    grouped = "FROM TUMBLE(s, t, {size}) GROUP BY window_start, window_end{group}"
    with tempfile.TemporaryDirectory() as place, chronicle.open(place) as db:
        db.create_stream("s", events.schema, time="t")
        db.stream("s").append(events)
        peer = duckdb.connect()
        peer.execute("CREATE TABLE s AS SELECT * FROM events")
        for name, key, group in (("alone", "", ""), ("by machine", "machine, ", ", machine")):
            rollup = f"SELECT {shown} {grouped}".format(key=key, size=MINUTE, group=group)
            begun = time.perf_counter()
            handle = db.create_rollup("r", rollup, idle="never")
            db.run_live()
            filling = time.perf_counter() - begun
            asked = f"SELECT /*+ rollups({{hint}}) */ {shown} {grouped}".format(
                hint="{hint}", key=key, size=HOUR, group=group
            )
            over = _asking(db, asked.format(hint="always"))
            apart = _asking(db, asked.format(hint="none"))
            theirs = _peer(peer, key)
            if not over.rows() == apart.rows() == theirs.rows():
                raise RuntimeError(f"windows {name} differ between the sides")
            way = "tree" if not key else "replay"
            for what, other in ((way, apart), ("DuckDB", theirs)):
                mine, taken, ratio = paired(over.seconds, other.seconds)
                section.rows.append(
                    Row(f"hours {name}: roll-up, {what}", f"{mine * 1000:.1f} ms",
                        f"{taken * 1000:.1f} ms", f"{ratio:.1f}")
                )  # fmt: skip
            section.notes.append(
                f"The roll-up {name} was filled from history at {count / filling / 1e6:.1f} M "
                f"events/s and has {handle.status()['rows']:,} rows."
            )
            handle.drop()
    return section


class _Side:
    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask

    def rows(self) -> list[Any]:
        return sorted(tuple(int(v) for v in row) for row in self._ask())

    def seconds(self) -> float:
        begun = time.perf_counter()
        self._ask()
        return time.perf_counter() - begun


def _asking(db: Any, text: str) -> _Side:
    return _Side(lambda: db.sql(text).fetchall())


def _peer(peer: Any, key: str) -> _Side:
    text = (
        f"SELECT t // {HOUR} * {HOUR} AS window_start, {key}count(*), sum(x), min(x), max(x) "
        "FROM s GROUP BY ALL"
    )
    return _Side(lambda: peer.execute(text).fetchall())
