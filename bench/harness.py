"""Shared by all benchmarks: paired medians, tables, and the document.

Both sides are measured in turn; absolute times are given only beside the ratio.
"""

from __future__ import annotations

import datetime as dt
import gc
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["Row", "Section", "environment", "medians", "paired", "write_section"]

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


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
    body = (
        f"<!-- {name} -->\n## {section.title}\n\n*{environment()}*\n\n{section.markdown()}\n"
        f"<!-- end {name} -->\n"
    )
    text = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else HEAD
    pattern = re.compile(rf"<!-- {re.escape(name)} -->\n.*?<!-- end {re.escape(name)} -->\n", re.S)
    if pattern.search(text):
        text = pattern.sub(lambda _: body, text)
    else:
        text = text.rstrip("\n") + "\n\n" + body
    DOCUMENT.write_text(text, encoding="utf-8")
    print(body, file=sys.stdout, flush=True)


HEAD = """# Benchmarks

Each figure is a ratio against a peer measured in the same run, in turn, as medians of at least
five; above 1 Chronicle is better. Absolute times belong to the machine of that run. `make bench`
writes this page; `python -m chronicle.bench NAME` repeats one section. Losses stand beside the
wins.
"""
