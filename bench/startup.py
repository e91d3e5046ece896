"""Start-up: what a cold process costs before it answers, on a machine that has seen it or not.

The first commands of a new user run with an empty cache of kernels.  What they wait for is the
time by the clock; the processor's time beside it is that of the command alone, not of the process
that compiles for the next one (:mod:`chronicle.compiled_beside`), which is waited for in between.
"""

from __future__ import annotations

import csv
import datetime as dt
import fcntl
import os
import random
import shutil
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

COMMAND = (sys.executable, "-m", "chronicle.cli")
TUMBLE = (
    "SELECT window_start, room, avg(celsius), min(celsius) "
    "FROM TUMBLE(heating, at, INTERVAL '1' DAY) GROUP BY ALL"
)
MATCH = (
    "SELECT * FROM heating MATCH_RECOGNIZE (PARTITION BY room ORDER BY at "
    "MEASURES O.at AS opened, C.at AS cold PATTERN (O Z* C) WITHIN INTERVAL '30' MINUTE "
    "DEFINE O AS airing = 1 AND celsius > 20, Z AS airing = 1, C AS celsius < 15)"
)
QUICK, FIRST = 0.5, 3.0


def _process(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True)
    return time.perf_counter() - start


def _first(arguments: list[str], cache: Path) -> tuple[float, float]:
    """Seconds by the clock and of a processor of a command with an empty cache."""
    shutil.rmtree(cache, ignore_errors=True)
    environment = {**os.environ, "CHRONICLE_CACHE_DIR": str(cache)}
    environment.pop("CHRONICLE_COMPILE", None)
    start = time.perf_counter()
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    _wait_for_the_compiler(cache)
    return seconds, used.ru_utime + used.ru_stime


def _wait_for_the_compiler(cache: Path) -> None:
    """Until nobody compiles into a cache any more; it would have half of the machine."""
    try:
        lock = os.open(cache / "compiling", os.O_RDWR)
    except FileNotFoundError:  # nobody does, or is about to
        time.sleep(1.0)
        try:
            lock = os.open(cache / "compiling", os.O_RDWR)
        except FileNotFoundError:
            return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    finally:
        os.close(lock)


def heating(path: Path) -> None:
    """The file of docs/first-steps.md: a week of four rooms, 40,320 events."""
    chance = random.Random(7)
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["at", "room", "celsius", "airing"])
        for room in ("attic", "bath", "kitchen", "office"):
            warm, airing = 20.0, 0
            for minute in range(7 * 24 * 60):
                if chance.random() < (0.08 if airing else 0.0004):
                    airing = 1 - airing
                warm += (8 - warm) * 0.03 if airing else (21 - warm) * 0.02
                at = dt.datetime(2026, 1, 1) + dt.timedelta(minutes=minute)
                rows.writerow([at, room, round(warm + chance.gauss(0, 0.05), 2), airing])


def _with_an_empty_cache(runs: int, scratch: Path) -> list[Row]:
    """The first commands of a new user, each as if it were the first."""
    heating(scratch / "heating.csv")
    cache, store, new = scratch / "cache", scratch / "heated", scratch / "new"
    ingest = ["ingest", str(scratch / "heating.csv"), "--stream", "heating", "--time", "at"]
    subprocess.run(
        [*COMMAND, *ingest, "--create", "--store", str(store)], check=True, capture_output=True
    )
    commands = (
        ("`select 1`", ["sql", "SELECT 1", "--store", str(store)], QUICK),
        ("`chronicle ingest`, CSV", [*ingest, "--create", "--store", str(new)], FIRST),
        ("sum", ["sql", "SELECT sum(celsius) FROM heating", "--store", str(store)], FIRST),
        ("TUMBLE with keys", ["sql", TUMBLE, "--store", str(store)], FIRST),
        ("MATCH_RECOGNIZE", ["sql", MATCH, "--store", str(store)], FIRST),
    )
    rows = []
    for what, arguments, bar in commands:
        taken = []
        for _ in range(runs):
            shutil.rmtree(new, ignore_errors=True)
            taken.append(_first(arguments, cache))
        seconds, processor = (statistics.median(each) for each in zip(*taken, strict=True))
        rows.append(
            Row(
                f"first {what}, empty cache, 40,320 events",
                f"{seconds:.2f} s",
                f"{processor:.2f} s",
                "",
                f"under {bar:g} s",
                seconds < bar,
            )
        )
    return rows


def run(short: bool = False) -> Section:
    """Measure whole processes; the first run of each is not counted (it fills the kernel cache)."""
    runs = 3 if short else 9
    section = Section(
        "Start-up of a cold process",
        "Whole processes from start to exit, medians; kernels cached, but for the rows that say "
        "otherwise. The peer of the import is the interpreter alone; beside first commands stands "
        "what they had of a processor.",
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
        query = [*COMMAND, "sql", "SELECT count(*) FROM s", "--store", str(path)]
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
        section.rows += _with_an_empty_cache(runs if short else 5, Path(scratch))
    return section
