"""The thesis's synthetic stream and random pattern queries (section 3.5.3), with indexes.

Five doubles per event, normal around a mean that grows from 0 to 1, with deviations 0, 0.001, 0.01,
0.1 and 1, redrawn outside the unit interval.  Queries: m symbols with ranges of up to a tenth of
the domain, gaps as in the thesis, window 300.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..indexes.stream_indexes import StreamIndexes
from ..query.pattern.compiled import compile_match
from ..query.replay.planning import plan_match
from ..query.replay.replay_plan import ReplayPlan
from ..query.replay.run_plan import run_match
from ..query.sql.match_clause import clause_of_text
from ..schema import StreamSchema
from ..store.options import StreamOptions
from ..store.store import Store

DEVIATIONS = (0.0, 0.001, 0.01, 0.1, 1.0)
WINDOW = 300

SCHEMA = StreamSchema(
    pa.schema(
        [pa.field("t", pa.int64(), False)] + [pa.field(f"a{j}", pa.float64()) for j in range(1, 6)]
    ),
    "t",
)


def events(first: int, end: int, total: int, rng: np.random.Generator) -> pa.Table:
    mean = np.arange(first, end) / total
    columns: dict[str, Any] = {"t": np.arange(first + 1, end + 1)}
    for j, deviation in enumerate(DEVIATIONS, 1):
        values = mean + deviation * rng.standard_normal(end - first)
        outside = np.flatnonzero((values < 0) | (values >= 1))
        while len(outside):
            values[outside] = mean[outside] + deviation * rng.standard_normal(len(outside))
            outside = outside[(values[outside] < 0) | (values[outside] >= 1)]
        columns[f"a{j}"] = values
    return pa.table(columns, schema=SCHEMA.arrow)


def random_query(symbols: int, rng: np.random.Generator, special: str = "a5") -> str:
    """A query of the thesis: one symbol on ``special``, the others on A5."""
    gaps, low = set(), 0
    while low < symbols - 1:
        cut = int(rng.integers(low, symbols - 1))
        gaps.add(cut)
        low = cut + 1
    chosen = int(rng.integers(0, symbols))
    pattern, conditions = [], []
    for i in range(symbols):
        width = rng.random() * 0.1
        start = rng.random() * (1 - width)
        attribute = special if i == chosen else "a5"
        pattern.append(f"S{i}")
        conditions.append(f"S{i} AS {attribute} BETWEEN {start:.7f} AND {start + width:.7f}")
        if i in gaps:
            pattern.append("Z*")
    return (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS first, LAST(t) AS last "
        f"AFTER MATCH SKIP TO NEXT ROW PATTERN ({' '.join(pattern)}) WITHIN {WINDOW} "
        f"DEFINE {', '.join(conditions)})"
    )


@dataclass(frozen=True)
class Measured:
    """One run: milliseconds in total, and without compilation (``prepared``)."""

    total: float
    prepared: float
    plan: ReplayPlan
    rows: pa.Table


class Bed:
    """A store with events and indexes, and ways to run a query."""

    def __init__(self, directory: Path, total: int) -> None:
        self.directory = directory
        self.total = total
        store = Store.open(directory, "rw")
        stream = store.create_stream("s", SCHEMA, StreamOptions(codec="none"))
        rng = np.random.default_rng(2021)
        for first in range(0, total, 1 << 19):
            stream.append(events(first, min(total, first + (1 << 19)), total, rng))
        stream.seal()
        indexes = StreamIndexes(directory / "bench-indexes", True)
        for j in range(1, 6):
            indexes.create(f"a{j}", SCHEMA)
        indexes.catch_up(stream.snapshot().state)
        indexes.close()
        store.close()
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.directory, "r")
        self.indexes = StreamIndexes(self.directory / "bench-indexes", False)
        self.snapshot = self.store.stream("s").snapshot()

    def run(self, text: str, strategy: str) -> Measured:
        begun = time.perf_counter()
        compiled = compile_match(clause_of_text(text), SCHEMA)
        ready = time.perf_counter()
        plan = plan_match(self.snapshot, compiled, self.indexes, strategy)
        batches = list(run_match(self.snapshot, compiled, plan))
        done = time.perf_counter()
        rows = pa.Table.from_batches(batches, schema=compiled.output_schema)
        return Measured((done - begun) * 1000, (done - ready) * 1000, plan, rows)

    def cold(self, text: str, strategy: str) -> tuple[Measured, float]:
        """Run a query with an empty page cache; also the share that stayed cached."""
        left = self.drop()
        return self.run(text, strategy), left

    def drop(self) -> float:
        """Reopen with nothing in memory; returns the share that stayed cached."""
        self.close()
        left = drop_pages(self.directory)
        self.open()
        return left

    def close(self) -> None:
        import gc

        del self.snapshot
        self.indexes.close()
        self.store.close()
        from ..store import leaf_map

        leaf_map._maps.clear()  # maps of segments that are closed keep their files mapped
        gc.collect()


def drop_pages(directory: Path) -> float:
    """Evict files from the page cache; returns the share left (``fincore``), or NaN."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    size = 0
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size += os.fstat(descriptor).st_size
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    try:
        listing = subprocess.run(
            ["fincore", "--bytes", "--noheadings", "--output", "RES", *map(str, files)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return sum(int(word) for word in listing.stdout.split()) / max(1, size)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return float("nan")
