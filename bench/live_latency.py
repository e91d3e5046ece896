"""Latency from a commit to a client of server-sent events.

Server, client and writer are processes; a filter passes 1 %.  A row's time is when the client has
read it, from sending the append and from its answer.  The peer is two disk syncs.  Rows of the
newest tick wait for the next commit (watermark) and are not counted.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import chronicle

from .harness import Row, Section
from .served import Served

SCHEMA = pa.schema(
    [pa.field("t", pa.timestamp("us"), False), ("n", pa.int64()), ("x", pa.float64())]
)
EVENTS_PER_S = 10_000
SHARE = 0.01
SETTLE_S = 3.0
MEDIAN_MS, TAIL_MS = 5.0, 20.0

Times = npt.NDArray[np.float64]


def _batch(first: int, size: int, drawn: np.random.Generator) -> pa.RecordBatch:
    number = np.arange(first, first + size)
    t = pa.array(1_500_000_000_000_000 + 100 * number, pa.timestamp("us"))
    return pa.record_batch([t, pa.array(number), pa.array(drawn.random(size))], schema=SCHEMA)


def _measured(size: int, seconds: float) -> tuple[Times, Times, Times, float]:
    drawn = np.random.default_rng(8)
    sent: list[float] = []
    answered: list[float] = []
    passing: list[int] = []
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch:
        store = Path(scratch) / "store"
        with chronicle.open(store) as database:
            database.create_stream("s", SCHEMA, time="t")
        with Served(store) as served:
            sql = f"SELECT t, n, x FROM s WHERE x < {SHARE}"
            served.ask("/v1/live", {"name": "low", "sql": sql})
            with served.follower("low") as follower:
                time.sleep(1)
                begun = time.monotonic()
                for step in range(int(EVENTS_PER_S * seconds / size)):
                    batch = _batch(step * size, size, drawn)
                    hits = step * size + np.flatnonzero(batch.column("x").to_numpy() < SHARE)
                    passing += hits.tolist()
                    time.sleep(max(0.0, begun + step * size / EVENTS_PER_S - time.monotonic()))
                    sent.append(time.monotonic())
                    served.ask("/v1/streams/s/events", batch)
                    answered.append(time.monotonic())
                time.sleep(SETTLE_S)
                rows = follower.rows()
    if [row["n"] for _, row in rows] != passing:
        raise AssertionError(f"{len(rows)} rows came, {len(passing)} passed")
    told = np.array([(came, row["n"]) for came, row in rows if row["n"] % size != size - 1])
    commit = (told[:, 1] // size).astype(int)
    begin, end = np.array(sent), np.array(answered)
    return (
        1000 * (told[:, 0] - begin[commit]), 1000 * (told[:, 0] - end[commit]),
        1000 * (end - begin), len(sent) * size / (end[-1] - begun),
    )  # fmt: skip


def _syncs(times: int) -> Times:
    found = []
    with tempfile.NamedTemporaryFile(prefix="chronicle-bench-") as file:
        for _ in range(times):
            begun = time.perf_counter()
            for _ in range(2):
                os.write(file.fileno(), bytes(4096))
                os.fdatasync(file.fileno())
            found.append(1000 * (time.perf_counter() - begun))
    return np.array(found)


def run(short: bool = False) -> Section:
    section = Section(
        "From a commit to a client",
        f"{EVENTS_PER_S:,} events a second, appended over HTTP as Arrow; a live filter of which "
        f"{SHARE:.0%} pass; server, client (server-sent events) and writer are processes of their "
        "own on one machine; durability `commit` for events and results. Peer: two syncs of that "
        "disk, which are part of it. The bar is for the time from the answer to the append.",
    )
    for size in (100, 1000):
        syncs = _syncs(200)
        whole, behind, append, rate = _measured(size, 3 if short else 15)
        for name, times, bars in (
            ("the answer to the append", behind, (MEDIAN_MS, TAIL_MS)),
            ("sending the append", whole, (0.0, 0.0)),
        ):
            for share, bar in zip((50, 99), bars, strict=True):
                mine, theirs = np.percentile(times, share), np.percentile(syncs, share)
                section.rows.append(
                    Row(
                        f"commits of {size:,}: from {name}, p{share}", f"{mine:.1f} ms",
                        f"{theirs:.1f} ms", f"{mine - theirs:+.1f} ms",
                        f"{bar:g} ms" if bar else "", bool(mine <= bar) if bar else None,
                    )
                )  # fmt: skip
        section.notes.append(
            f"Commits of {size:,}: {rate:,.0f} events a second were reached; an append took "
            f"{np.median(append):.1f} ms in the median, {np.percentile(append, 99):.1f} ms at p99; "
            f"the load of the machine was {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors."
        )
    return section
