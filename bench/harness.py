"""What every benchmark shares: paired medians, tables, and the files they are written to.

Purpose
    A benchmark measures both sides in turn, A B A B, takes medians of at least five, and reports
    the ratio.  :func:`write_section` writes one file per benchmark, ``bench/results/NAME.md``;
    ``docs/benchmarks.md`` is written by hand and quotes them.

Limits
    Absolute times belong to the machine of the run and are given only beside the ratio.
"""

from __future__ import annotations

import datetime as dt
import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
END = "<!-- end of the measurement; what follows is written by hand and stays -->\n"


@dataclass
class Row:
    """One comparison; ``ratio`` is above 1 if ours is better, ``reached`` None without a bar."""

    what: str
    ours: str
    theirs: str
    ratio: str
    bar: str = ""
    reached: bool | None = None


@dataclass
class Section:
    """A benchmark's report: ``setting`` of both sides, rows, and notes."""

    title: str
    setting: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        lines = [self.setting, ""]
        lines.append("| what | Chronicle | peer | ratio | bar | reached |")
        lines.append("|---|---:|---:|---:|---|---|")
        for row in self.rows:
            reached = {None: "", True: "yes", False: "**no**"}[row.reached]
            lines.append(
                f"| {row.what} | {row.ours} | {row.theirs} | {row.ratio} | {row.bar} | {reached} |"
            )
        if self.notes:
            lines.append("")
            lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines)


def paired(
    ours: Callable[[], float], theirs: Callable[[], float], runs: int = 5, warmup: int = 1
) -> tuple[float, float, float]:
    """Median seconds of two sides measured in turn, and the median of theirs / ours."""
    for _ in range(warmup):
        ours()
        theirs()
    pairs = []
    for _ in range(runs):
        gc.collect()
        mine = ours()
        gc.collect()
        pairs.append((mine, theirs()))
    return (
        statistics.median(mine for mine, _ in pairs),
        statistics.median(other for _, other in pairs),
        statistics.median(other / mine for mine, other in pairs),
    )


def medians(measure: Callable[[], object], runs: int, warmup: int = 3) -> float:
    for _ in range(warmup):
        measure()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        measure()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def environment() -> str:
    names = ["numpy", "numba", "pyarrow", "duckdb", "pyspark", "polars"]
    versions = []
    for name in names:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{dt.date.today().isoformat()}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()}, Python {platform.python_version()}, {', '.join(versions)}"
    )


def write_section(name: str, section: Section) -> None:
    """Write a section to its file; what was written by hand below the measurement stays."""
    path = RESULTS / f"{name}.md"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    by_hand = before.partition(END)[2]
    measured = f"# {section.title}\n\n*{environment()}*\n\n{section.markdown()}\n\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(measured + END + by_hand, encoding="utf-8")
    print(measured, file=sys.stdout, flush=True)
