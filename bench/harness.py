"""What every benchmark shares: paired medians, tables, and the document they are written to.

Purpose
    A benchmark measures both sides in turn, A B A B, takes medians of at least five, and reports
    the ratio.  :func:`write_section` keeps one section per benchmark in ``docs/benchmarks.md``, so
    that one can be run again without the others.

Limits
    Absolute times belong to the machine of the run and are given only beside the ratio.
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
    """One comparison.

    Attributes
    ----------
    ours, theirs : str
        Figures with units.
    ratio : str
        How many times better ours is (below 1: worse), or what else is compared.
    bar : str
        What was asked for.
    reached : bool or None
        None when nothing was asked for.
    """

    what: str
    ours: str
    theirs: str
    ratio: str
    bar: str = ""
    reached: bool | None = None


@dataclass
class Section:
    """What a benchmark says.

    Attributes
    ----------
    setting : str
        Data and settings of both sides.
    notes : list of str
        What was lost and why; what a reader might misread.
    """

    title: str
    setting: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The section as Markdown, without its heading."""
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
    """Measure two sides in turn.

    Parameters
    ----------
    ours, theirs : callable
        Each returns the seconds that it took.
    runs : int
        Counted runs of each.

    Returns
    -------
    ours, theirs, ratio : float
        Median seconds of each, and the median over the pairs of theirs / ours (above 1: ours wins).
    """
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
    """Median seconds of a call."""
    for _ in range(warmup):
        measure()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        measure()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def environment() -> str:
    """Date, machine and versions, for the head of a section."""
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
    """Put a section into the document, replacing the one of the same name."""
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
