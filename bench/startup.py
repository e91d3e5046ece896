"""Start-up: what a cold process costs before it answers."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import chronicle

from .harness import Row, Section

__all__ = ["run"]


def _process(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True)
    return time.perf_counter() - start


def run(short: bool = False) -> Section:
    """Measure whole processes; the first run of each is not counted (it fills the kernel cache)."""
    runs = 3 if short else 9
    section = Section(
        "Start-up of a cold process",
        "Whole processes from start to exit, medians; kernels cached. The peer of the import is "
        "the interpreter alone.",
    )
    bare = [sys.executable, "-c", "pass"]
    imports = [sys.executable, "-c", "import chronicle"]
    _process(imports)
    empty = statistics.median(_process(bare) for _ in range(runs))
    loaded = statistics.median(_process(imports) for _ in range(runs))
    section.rows.append(
        Row(
            "`import chronicle`",
            f"{loaded * 1000:.0f} ms",
            f"{empty * 1000:.0f} ms",
            f"+{(loaded - empty) * 1000:.0f} ms",
            "under 600 ms",
            loaded < 0.6,
        )
    )
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch:
        path = Path(scratch) / "store"
        with chronicle.open(path) as db:
            data = pa.table({"t": range(100_000), "x": [float(i) for i in range(100_000)]})
            db.create_stream("s", data.schema, time="t").append(data)
        query = [
            *(sys.executable, "-m", "chronicle.cli", "sql", "SELECT count(*) FROM s"),
            *("--store", str(path)),
        ]
        _process(query)
        taken = statistics.median(_process(query) for _ in range(runs))
    section.rows.append(
        Row(
            '`chronicle sql "SELECT count(*) FROM s"`',
            f"{taken:.2f} s",
            f"{empty:.2f} s",
            f"+{taken - empty:.2f} s",
            "under 1.5 s",
            taken < 1.5,
        )
    )
    return section
