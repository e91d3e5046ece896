"""Storing events once (unique keys), and scattered deletes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import chronicle

from ..catalog.streams import Stream
from .harness import Row, Section, medians, paired

SCHEMA = pa.schema(
    [("t", pa.timestamp("ms")), ("device", pa.string()), ("seq", pa.int64()), ("v", pa.float64())]
)
STEP_MS = 10
DEVICES = 500
UNIQUE = {"unique": "device, seq", "within": "1 hour"}


def events(first: int, count: int) -> pa.Table:
    """An event every 10 ms, of 500 devices in turn, each with its own sequence numbers."""
    numbers = np.arange(first, first + count)
    names = pa.array([f"device {i:04d}" for i in range(DEVICES)])
    return pa.table(
        [
            pa.array(numbers * STEP_MS).cast(pa.timestamp("ms")),
            names.take(pa.array(numbers % DEVICES)),
            pa.array(numbers // DEVICES),
            pa.array(np.random.default_rng(first).random(count)),
        ],
        schema=SCHEMA,
    )


def _appended(path: Path, batches: list[pa.Table], settings: dict[str, Any], repeat: bool) -> float:
    shutil.rmtree(path, ignore_errors=True)
    with chronicle.open(path) as db:
        stream = db.create_stream("s", SCHEMA, "t", options=settings)
        stream.append(events(0, 360_000), "none")
        if repeat:
            for batch in batches:
                stream.append(batch, "none")
        stream.append(batches[0], "none")
        start = time.perf_counter()
        for batch in batches[1:]:
            stream.append(batch, "none")
        return time.perf_counter() - start


def _unique(section: Section, place: Path, short: bool) -> None:
    for size, count, runs in ((1, 400, 5), (1_000, 200, 5), (100_000, 8 if short else 40, 5)):
        batches = [events(360_000 + i * size, size) for i in range(count + 1)]
        ours, plain, ratio = paired(
            partial(_appended, place / "unique", batches, UNIQUE, False),
            partial(_appended, place / "plain", batches, {}, False),
            2 if short else runs,
        )
        rate, peer = (f"{count * size / seconds:,.0f}/s" for seconds in (ours, plain))
        what = f"append {size:,} event{'s' if size > 1 else ''}, unique, new keys"
        section.rows.append(Row(what, rate, peer, f"{ratio:.2f}"))
    batches = [events(360_000 + i * 1_000, 1_000) for i in range(101)]
    ours, plain, ratio = paired(
        partial(_appended, place / "unique", batches, UNIQUE, True),
        partial(_appended, place / "plain", batches, {}, False),
        2 if short else 5,
    )
    rate, peer = (f"{100_000 / seconds:,.0f}/s" for seconds in (ours, plain))
    section.rows.append(
        Row("append 1,000 events, unique, all of them stored", rate, peer, f"{ratio:.2f}")
    )


def _query(stream: Stream) -> None:
    stream.aggregate({"v": ["avg", "max"]})
    for batch in stream.scan(columns=["v"]):
        batch.num_rows  # noqa: B018


def _deletes(section: Section, place: Path, short: bool) -> None:
    total = 2_000_000 if short else 50_000_000
    with chronicle.open(place / "deleted") as db:
        stream = db.create_stream("s", SCHEMA, "t")
        for first in range(0, total, 2_000_000):
            stream.append(events(first, 2_000_000), "none")
        stream.seal()
        list(db.sql("SELECT count(*) FROM s WHERE seq < 0").batches())  # start the engine
        clean = medians(partial(_query, stream), 5)
        for what, condition in (("in runs of 500", "seq % 100 = 7"), ("one by one", "v < 0.01")):
            began, worked = time.perf_counter(), time.process_time()
            gone = stream.delete(condition)
            taken, worked = time.perf_counter() - began, time.process_time() - worked
            section.rows.append(
                Row(
                    f"delete {gone:,} of {total:,} events, {what}", f"{taken:.2f} s",
                    f"{worked:.2f} s of processors", "", "under 2 s", taken < 2,
                )
            )  # fmt: skip
        after = medians(partial(_query, stream), 5)
    section.rows.append(
        Row(
            "query right after both", f"{after * 1000:,.0f} ms", f"{clean * 1000:,.0f} ms before",
            f"{after / clean:.2f}x", "at most 3x", after <= 3 * clean,
        )
    )  # fmt: skip


def _whole_segments(section: Section, place: Path, short: bool) -> None:
    size = 200_000 if short else 2_000_000
    with chronicle.open(place / "segments") as db:
        stream = db.create_stream("s", SCHEMA, "t")
        for number in range(5):
            stream.append(events(number * size, size), "none")
            stream.seal()
        begin = time.perf_counter()
        gone = stream.delete(None, size * STEP_MS, 4 * size * STEP_MS)
        taken = time.perf_counter() - begin
        rewritten = stream.stats()["events_rewritten"]
    section.rows.append(
        Row(
            f"delete {gone:,} events, a range of 3 whole segments", f"{taken * 1000:.0f} ms",
            f"{rewritten:,} events rewritten", "", "none rewritten", not rewritten,
        )
    )  # fmt: skip


def run(short: bool = False) -> Section:
    section = Section(
        "Changing what is stored",
        "Time, a text of 500 values, a number and a double. Appends with durability none to a "
        "stream that holds an hour of 100 events a second; the peer is the same stream without "
        "`unique`. Deletes: every hundredth number of each device, in a process that has answered "
        "SQL before, then one in a hundred of what is left, by chance.",
    )
    with tempfile.TemporaryDirectory(dir=os.environ.get("CHRONICLE_BENCH_DIR")) as scratch:
        _unique(section, Path(scratch), short)
        _deletes(section, Path(scratch), short)
        _whole_segments(section, Path(scratch), short)
    return section
