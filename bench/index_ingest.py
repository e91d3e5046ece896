"""Ingest with and without index maintenance, and index size against 24-byte triples."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..indexes.stream_indexes import StreamIndexes
from ..store.options import StreamOptions
from ..store.store import Store
from .harness import Row, Section, paired
from .pattern_stream import SCHEMA, events

BATCH = 1 << 18


def _ingest(batches: list[pa.Table], indexed: int) -> float:
    with tempfile.TemporaryDirectory() as directory, Store.open(directory, "rw") as store:
        stream = store.create_stream("s", SCHEMA, StreamOptions(codec="none"))
        indexes = StreamIndexes(Path(directory) / "bench-indexes", True)
        for j in range(5, 5 - indexed, -1):
            indexes.create(f"a{j}", SCHEMA)
        begun = time.perf_counter()
        for batch in batches:
            stream.append(batch)
            while indexed and indexes.build_next(stream.snapshot().state):
                pass
        if indexed:
            indexes.catch_up(stream.snapshot().state)
        spent = time.perf_counter() - begun
        indexes.close()
    return spent


def _sizes(batches: list[pa.Table], total: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as directory, Store.open(directory, "rw") as store:
        stream = store.create_stream("s", SCHEMA, StreamOptions(codec="none"))
        for batch in batches:
            stream.append(batch)
        stream.seal()
        indexes = StreamIndexes(Path(directory) / "bench-indexes", True)
        names = [f"a{j}" for j in range(1, 6)]
        for name in names:
            indexes.create(name, SCHEMA)
        state = stream.snapshot().state
        indexes.catch_up(state)
        sizes = {name: int(indexes.figures(name, state)["bytes"]) for name in names}
        times = sum(t.size for listed in indexes.catalogue().times.values() for t in listed)
        indexes.close()
    for name, size in sizes.items():
        share = (size + times) / (24 * total)
        rows.append(
            Row(
                f"size of an index on {name.upper()}, with the times",
                f"{(size + times) / total:.2f} B/event",
                "24 B/event",
                f"{share:.2f} of the triples",
                "at most 0.6 of the triples",
                share <= 0.6,
            )
        )
    return rows


def run(short: bool) -> Section:
    total = 2_000_000 if short else 10_000_000
    rng = np.random.default_rng(2021)
    batches = [
        events(first, min(total, first + BATCH), total, rng) for first in range(0, total, BATCH)
    ]
    section = Section(
        "Ingest with indexes",
        f"{total:,} events of five doubles and a time in batches of {BATCH:,}, no codec; indexes "
        "built in the same thread until every committed leaf is covered; peer: the same without "
        "indexes.",
    )
    section.rows += _sizes(batches, total)
    for indexed, bar in ((1, 5.0), (5, 1.5)):
        ours, theirs, ratio = paired(
            partial(_ingest, batches, indexed), partial(_ingest, batches, 0), runs=3 if short else 5
        )
        rate = total / ours / 1e6
        section.rows.append(
            Row(
                f"{indexed} index" + ("es" if indexed > 1 else ""),
                f"{rate:.2f} M events/s",
                f"{total / theirs / 1e6:.2f} M events/s",
                f"{ratio:.2f}x",
                f"at least {bar} M events/s",
                rate >= bar,
            )
        )
    return section
