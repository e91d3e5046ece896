"""Start-up time of a process, on its first and second run."""

from __future__ import annotations

import csv
import datetime as dt
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


def _first_and_second(arguments: list[str], store: Path) -> tuple[float, float]:
    taken = []
    for _ in range(2):
        shutil.rmtree(store, ignore_errors=True)
        taken.append(_process([*COMMAND, *arguments]))
    return taken[0], taken[1]


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


def _first_commands(runs: int, scratch: Path) -> list[Row]:
    heating(scratch / "heating.csv")
    store, new = scratch / "heated", scratch / "new"
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
        taken = [_first_and_second(arguments, new) for _ in range(runs)]
        first, second = (statistics.median(each) for each in zip(*taken, strict=True))
        more = f"+{first - second:.2f} s"
        rows.append(
            Row(
                f"first {what}, 40,320 events; beside it the second",
                f"{first:.2f} s",
                f"{second:.2f} s",
                more,
                f"under {bar:g} s",
                first < bar,
            )
        )
    return rows


def run(short: bool = False) -> Section:
    runs = 3 if short else 9
    section = Section(
        "Start-up of a cold process",
        "Whole processes from start to exit, medians. The peer of the import is the interpreter "
        "alone.",
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
        section.rows += _first_commands(runs if short else 5, Path(scratch))
    return section
