"""Cost of small commits, late events, and opening after a crash."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.snapshot import Snapshot
from chronicle.store.store import Store
from chronicle.store.stream import EventStream

from . import figures
from .harness import Row, Section

SCHEMA = StreamSchema(
    pa.schema(
        [("t", pa.timestamp("ms")), ("a", pa.float64()), ("b", pa.float64()), ("c", pa.int32())]
    ),
    "t",
)
STEP_MS = 10
LATE_MS = 3_600_000
BATCH = 100_000
SMALL_BYTES = 400
"""Size of a log record of one event."""

FILL = """
import os, sys
import numpy as np, pyarrow as pa
from chronicle.bench.durability import SCHEMA, batches
from chronicle.store.store import Store
stream = Store.open(sys.argv[1]).create_stream("s", SCHEMA)
for batch in batches(int(sys.argv[2]), late=False):
    stream.append(batch, "none")
last = batch.slice(batch.num_rows - 1)
for i in range(4000):
    stream.append(last, "none")
stream.flush()
os._exit(9)  # no close: what a kill leaves
"""


def batches(events: int, *, late: bool) -> Iterator[pa.RecordBatch]:
    """Events every 10 ms; with ``late``, 10 % of them up to one hour late."""
    random = np.random.default_rng(1)
    for first in range(0, events, BATCH):
        count = min(BATCH, events - first)
        times = np.arange(first, first + count, dtype=np.int64) * STEP_MS
        if late:
            chosen = random.random(count) < 0.1
            times[chosen] -= random.integers(0, LATE_MS, int(chosen.sum()))
            times = np.maximum(times, 0)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(times).cast(pa.timestamp("ms")),
                pa.array(np.round(random.random(count), 3)),
                pa.array(random.random(count)),
                pa.array((np.arange(count) % 100).astype(np.int32)),
            ],
            schema=SCHEMA.arrow,
        )


def _raw(directory: Path, seconds: float) -> float:
    path = directory / "raw"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    data = bytes(SMALL_BYTES)
    done = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        os.write(descriptor, data)
        os.fdatasync(descriptor)
        done += 1
    rate = done / (time.perf_counter() - start)
    os.close(descriptor)
    path.unlink()
    return rate


def _appends(stream: EventStream, one: pa.RecordBatch, threads: int, seconds: float) -> float:
    counts = [0] * threads
    start = time.perf_counter()

    def work(which: int) -> None:
        while time.perf_counter() - start < seconds:
            stream.append(one)
            counts[which] += 1

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start)


def _small(section: Section, place: Path, short: bool) -> None:
    seconds, rounds = (0.2, 2) if short else (1.0, 7)
    one = next(batches(1, late=False))
    with Store.open(place / "small") as store:
        stream = store.create_stream("s", SCHEMA)
        assert isinstance(stream, EventStream)
        _appends(stream, one, 16, 0.1)
        for threads, bar in ((1, 0.5), (16, 3.0)):
            pairs = [
                (_appends(stream, one, threads, seconds), _raw(place, seconds))
                for _ in range(rounds)
            ]
            ratio = statistics.median(mine / other for mine, other in pairs)
            section.rows.append(
                Row(
                    f"durable appends of 1 event, {threads} thread{'s' if threads > 1 else ''}",
                    f"{statistics.median(mine for mine, _ in pairs):,.0f}/s",
                    f"{statistics.median(other for _, other in pairs):,.0f}/s",
                    f"{ratio:.2f}×",
                    f"at least {bar}× write+fdatasync",
                    ratio >= bar,
                )
            )


def _scan(snapshot: Snapshot) -> int:
    events = 0
    for batch in snapshot.scan():
        events += batch.num_rows
        for column in batch.columns[1:]:
            pc.sum(column)
    return events


def _load(place: Path, data: list[pa.RecordBatch]) -> tuple[float, float]:
    with Store.open(place) as store:
        stream = store.create_stream("s", SCHEMA)
        assert isinstance(stream, EventStream)
        start = time.perf_counter()
        for batch in data[: len(data) // 2]:
            stream.append(batch)
        alone = sum(batch.num_rows for batch in data[: len(data) // 2])
        ingest = alone / (time.perf_counter() - start)
        done = threading.Event()
        rates: list[float] = []

        def read() -> None:
            while not done.is_set():
                began = time.perf_counter()
                events = _scan(stream.snapshot())
                rates.append(events / (time.perf_counter() - began))

        reader = threading.Thread(target=read)
        reader.start()
        for batch in data[len(data) // 2 :]:
            stream.append(batch)
        done.set()
        reader.join()
    return ingest, statistics.median(rates)


def _late(section: Section, place: Path, short: bool) -> None:
    events, rounds = (600_000, 1) if short else (8_000_000, 3)
    ordered, delayed = list(batches(events, late=False)), list(batches(events, late=True))
    _load(place / "warm", delayed[:6])
    pairs = [
        (_load(place / f"late{i}", delayed), _load(place / f"ordered{i}", ordered))
        for i in range(rounds)
    ]
    for which, what, bar in (
        (0, "ingest, 10 % of events late by up to 1 h", 0.5),
        (1, "scan with sums beside that ingest", 0.7),
    ):
        ratio = statistics.median(mine[which] / other[which] for mine, other in pairs)
        section.rows.append(
            Row(
                what,
                f"{statistics.median(mine[which] for mine, _ in pairs) / 1e6:.1f} M/s",
                f"{statistics.median(other[which] for _, other in pairs) / 1e6:.1f} M/s",
                f"{ratio:.2f}×",
                f"at least {bar}× in-order",
                ratio >= bar,
            )
        )


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _dirty(section: Section, place: Path, short: bool) -> None:
    events = 300_000 if short else 3_000_000
    with Store.open(place / "dirty") as store:
        stream = store.create_stream("s", SCHEMA, StreamOptions(compaction="manual"))
        assert isinstance(stream, EventStream)
        for batch in batches(events, late=True):
            stream.append(batch, "none")
        random = np.random.default_rng(2)
        bounds = np.sort(random.integers(0, events * STEP_MS, (200, 2))).tolist()

        def ask(snapshot: Snapshot) -> Callable[[], object]:
            return lambda: [snapshot.aggregate(["a", "c"], low, high) for low, high in bounds]

        dirty = stream.snapshot()
        runs = stream.stats()["late_runs"]
        stream.compact()
        clean = stream.snapshot()
        _timed(ask(dirty))
        _timed(ask(clean))
        pairs = [(_timed(ask(dirty)), _timed(ask(clean))) for _ in range(3 if short else 9)]
    ratio = statistics.median(mine / other for mine, other in pairs)
    section.rows.append(
        Row(
            f"aggregate over a dirty range ({runs} late runs and a buffer)",
            f"{statistics.median(mine for mine, _ in pairs) / 200 * 1e6:.0f} µs",
            f"{statistics.median(other for _, other in pairs) / 200 * 1e6:.0f} µs",
            f"{ratio:.2f}×",
            "at most 3× clean",
            ratio <= 3,
        )
    )


def _opening(section: Section, place: Path, short: bool) -> None:
    sizes = (300_000, 1_000_000) if short else (1_000_000, 10_000_000, 100_000_000)
    seconds_of: dict[str, list[tuple[float, float]]] = {"writer": [], "reader": []}
    for events in sizes:
        path = place / f"open{events}"
        subprocess.run([sys.executable, "-c", FILL, str(path), str(events)], check=False)

        def look(path: Path = path) -> None:
            with Store.open(path, "r") as store:
                store.stream("s").snapshot()

        look()
        reader = statistics.median(_timed(look) for _ in range(5))
        start = time.perf_counter()
        with Store.open(path) as store:
            stream = store.stream("s")
            taken = time.perf_counter() - start
            assert stream.snapshot().count == events + 4000
        shutil.rmtree(path)
        for seconds, who in ((taken, "writer"), (reader, "reader")):
            seconds_of[who].append((events, seconds * 1000))
            section.rows.append(
                Row(
                    f"opening after a crash at {events // 1000:,} k events, {who}",
                    f"{seconds * 1000:.0f} ms",
                    "",
                    "",
                    "under 200 ms",
                    seconds < 0.2,
                )
            )
    if not short:
        figures.lines(
            "opening",
            "Opening a stream after a crash",
            "events stored",
            "milliseconds",
            {
                "for writing": seconds_of["writer"],
                "for reading": seconds_of["reader"],
                "bar: 200 ms": [(events, 200.0) for events in sizes],
            },
            ticks={events: f"{events // 1_000_000} M" for events in sizes},
        )


def run(short: bool = False) -> Section:
    if not short:
        figures.require()
    section = Section(
        "Durability, late events, recovery",
        "Peers are measured in the same run, in turn, on the same disk: plain writes of "
        f"{SMALL_BYTES} bytes with fdatasync; the same load in order; the same ranges after "
        "compaction. Medians.",
    )
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch:
        place = Path(scratch)
        _small(section, place, short)
        _late(section, place, short)
        _dirty(section, place, short)
        _opening(section, place, short)
    section.notes.append(
        "An opening reads the manifest, the log (at most 4,096 records or 16 MiB) and the heads of "
        "one unfinished node's children per level; it does not grow with the stream"
        + ("." if short else " ([figure](figures/opening.svg)).")
    )
    return section
