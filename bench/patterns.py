"""Row patterns: events per second of MATCH_RECOGNIZE, beside DuckDB and, when asked for, Flink.

Purpose
    The synthetic stream of the thesis (§3.5.3, column A5: uniform values), patterns of m basic
    symbols with range conditions and Kleene symbols between some of them, a window of 300; V-shapes
    per partition; a path-dependent condition; skip-till-any with six symbols.

Peers
    DuckDB answers a pattern of fixed length by ``lead()``, with one thread, over the same Arrow
    table. Flink runs the same MATCH_RECOGNIZE when ``CHRONICLE_BENCH_FLINK`` names a directory for
    a virtual environment of its own, into which apache-flink is installed; needs a network and a
    JDK.

Limits
    The matcher is measured over Arrow batches in memory: reading them from the store is the store's
    benchmark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from ..query.match import CompiledMatch, InputColumns, compile_match
from ..query.match_clause import clause_of_text
from .harness import Row, Section, paired

__all__ = ["run"]

SEED = 35
FLINK_ROWS = 1_000_000
FLINK_SCRIPT = """
import json, sys, time
from pyflink.table import EnvironmentSettings, TableEnvironment
path, body = sys.argv[1], sys.argv[2]
env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
env.get_config().set("parallelism.default", "1")
env.execute_sql(f"CREATE TABLE s (t TIMESTAMP(3), a5 DOUBLE, WATERMARK FOR t AS t) WITH ("
                f"'connector'='filesystem', 'path'='{path}', 'format'='csv')")
begun = time.perf_counter()
rows = sum(1 for _ in env.execute_sql(f"SELECT * FROM s MATCH_RECOGNIZE ({body})").collect())
print(json.dumps({"rows": rows, "seconds": time.perf_counter() - begun}))
"""


def events(n: int) -> pa.Table:
    """``t`` one apart, ``a5`` uniform, ``k`` one of 842 aircraft, ``q`` one of 100,000 keys."""
    rng = np.random.default_rng(SEED)
    return pa.table(
        {
            "t": np.arange(n),
            "a5": rng.random(n),
            "k": rng.integers(0, 842, n),
            "q": rng.integers(0, 100_000, n),
        }
    )


def thesis_pattern(symbols: int, kleene: bool, seed: int) -> tuple[str, list[tuple[float, float]]]:
    """Body of the clause, and the ranges of its basic symbols."""
    rng = np.random.default_rng(seed)
    after: set[int] = set()
    first = 0
    while kleene and first < symbols - 1:
        place = int(rng.integers(first, symbols - 1))
        after.add(place)
        first = place + 1
    parts, conditions, ranges = [], [], []
    for i in range(symbols):
        parts.append(f"S{i}" + (f" K{i}*" if i in after else ""))
        low = float(rng.random() * 0.9)
        high = low + float(rng.random() * 0.1)
        ranges.append((low, high))
        conditions.append(f"S{i} AS a5 >= {low!r} AND a5 <= {high!r}")
    body = (
        f"ORDER BY t MEASURES S0.t AS first_t, S{symbols - 1}.t AS last_t "
        f"PATTERN ({' '.join(parts)}) WITHIN 300 DEFINE {', '.join(conditions)}"
    )
    return body, ranges


def compiled(body: str, table: pa.Table) -> CompiledMatch:
    """The clause over the table's columns."""
    clause = clause_of_text(f"SELECT * FROM s MATCH_RECOGNIZE ({body})")
    return compile_match(clause, InputColumns(table.schema, "t"))


def seconds(match: CompiledMatch, table: pa.Table) -> tuple[float, int]:
    """Time of one run, and the rows it gave."""
    batches = table.select(match.input_columns).to_batches(max_chunksize=1 << 16)
    begun = time.perf_counter()
    rows = sum(batch.num_rows for batch in match.run(batches))
    return time.perf_counter() - begun, rows


def by_lead(ranges: list[tuple[float, float]], table: pa.Table) -> float:
    """DuckDB's time for a pattern of fixed length, matches counted without regard to overlap."""
    columns = ", ".join(f"lead(a5, {i}) OVER (ORDER BY t) AS v{i}" for i in range(len(ranges)))
    tests = " AND ".join(f"v{i} BETWEEN {lo!r} AND {hi!r}" for i, (lo, hi) in enumerate(ranges))
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("s", table)
        begun = time.perf_counter()
        connection.sql(f"SELECT count(*) FROM (SELECT {columns} FROM s) WHERE {tests}").fetchall()
        return time.perf_counter() - begun


def flink(body: str, table: pa.Table) -> dict[str, Any] | None:
    """Flink's rows and seconds for the same clause; None when it was not asked for."""
    directory = os.environ.get("CHRONICLE_BENCH_FLINK")
    if not directory:
        return None
    python = Path(directory) / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "apache-flink"], check=True)
    body = body.replace("WITHIN 300", "WITHIN INTERVAL '0.300' SECOND(1, 3)")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "events.csv"
        stamps = table["t"].cast(pa.timestamp("ms")).cast(pa.string())
        rows = zip(stamps.to_pylist(), table["a5"].to_pylist(), strict=True)
        path.write_text("\n".join(f"{t},{x!r}" for t, x in rows))
        script = Path(scratch) / "run.py"
        script.write_text(FLINK_SCRIPT)
        done = subprocess.run(
            [python, script, path, body], check=True, capture_output=True, text=True
        )
    return dict(json.loads(done.stdout.strip().split("\n")[-1]))


def _ours(match: CompiledMatch, table: pa.Table) -> float:
    return seconds(match, table)[0]


def _theirs(ranges: list[tuple[float, float]], tenth: pa.Table) -> float:
    return by_lead(ranges, tenth) * 10


def run(short: bool = False) -> Section:
    """Measure every case; each rate is the median of its runs."""
    n = 1_000_000 if short else 50_000_000
    runs = 3 if short else 5
    table = events(n)
    section = Section(
        "Row patterns",
        f"{n:,} events in memory, one core; the thesis' synthetic stream, WITHIN 300. "
        "The peer of contiguous patterns of fixed length is DuckDB with lead(), one thread.",
    )
    for symbols in (2, 4, 8, 16, 32):
        body, ranges = thesis_pattern(symbols, kleene=False, seed=symbols)
        match = compiled(body, table)
        peer_table = table.slice(0, n // 10)
        mine, theirs, _ = paired(
            partial(_ours, match, table),
            partial(_theirs, ranges, peer_table),
            runs,
        )
        _add(section, f"{symbols} symbols, contiguous", n / mine, n / theirs, _bar(symbols))
    for symbols in (2, 4, 8, 16, 32):
        body, _ = thesis_pattern(symbols, kleene=True, seed=symbols)
        match = compiled(body, table)
        taken = sorted(seconds(match, table)[0] for _ in range(runs))[runs // 2]
        answer = flink(body, table.slice(0, FLINK_ROWS))
        peer = FLINK_ROWS / answer["seconds"] if answer else None
        _add(section, f"{symbols} symbols with Kleene symbols", n / taken, peer, _bar(symbols))
    shapes = (
        "MEASURES A.a5 AS a, LAST(D.a5) AS bottom, LAST(U.a5) AS top PATTERN (A D{3,} U{3,}) "
        "DEFINE D AS a5 < PREV(a5), U AS a5 > PREV(a5)"
    )
    path = (
        "ORDER BY t MEASURES A.t AS a, C.t AS c PATTERN (A B* C) WITHIN 300 "
        "DEFINE B AS a5 > PREV(a5), C AS a5 >= A.a5 + 0.5"
    )
    smaller = table.slice(0, max(1_000_000, n // 5))
    for what, body, bar in (
        ("V-shapes, 842 partitions", "PARTITION BY k ORDER BY t " + shapes, 0.0),
        ("V-shapes, 100,000 partitions", "PARTITION BY q ORDER BY t " + shapes, 0.0),
        ("path-dependent: C.a5 >= A.a5 + 0.5", path, 5e6),
    ):
        match = compiled(body, smaller)
        taken = sorted(seconds(match, smaller)[0] for _ in range(runs + 1))[runs // 2]
        _add(section, what, smaller.num_rows / taken, None, bar)
    _any_match(section)
    return section


def _bar(symbols: int) -> float:
    return 30e6 if symbols == 8 else 0.0


def _add(section: Section, what: str, rate: float, peer: float | None, bar: float) -> None:
    section.rows.append(
        Row(
            what,
            f"{rate / 1e6:.1f} M/s",
            f"{peer / 1e6:.2f} M/s" if peer else "",
            f"{rate / peer:.1f}x" if peer else "",
            f"{bar / 1e6:.0f} M/s" if bar else "",
            rate >= bar if bar else None,
        )
    )


def _any_match(section: Section) -> None:
    rng = np.random.default_rng(SEED)
    n = 100_000
    table = pa.table({"t": np.arange(n), "x": rng.integers(0, 500, n)})
    conditions = ", ".join(f"{name} AS x BETWEEN {60 * i} AND {60 * i + 9}" for i, name in
                           enumerate("ABCDEF"))  # fmt: skip
    match = compiled(
        "ORDER BY t MEASURES A.t AS a, F.t AS f PATTERN (A B C D E F) WITHIN 300 "
        f"EVENT SELECTION SKIP TILL ANY MATCH DEFINE {conditions}",
        table,
    )
    seconds(match, table.slice(0, 1000))
    taken, rows = seconds(match, table)
    section.notes.append(
        f"skip-till-any with six symbols over {n:,} events: {rows:,} matches in {taken:.2f} s "
        f"({n / taken / 1e6:.2f} M events/s, {rows / taken / 1e6:.2f} M matches/s)"
    )
