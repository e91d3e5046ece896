"""Ten thousand saved patterns: the pattern bank against separate patterns (a sample, scaled).

Three symbols each, a symbol holds for a given share of the events.  Then the same as live queries
with a shared sink: creation, steps, and a restart.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa

import chronicle

from ..core.times import INT64_MAX
from ..live.bank.layer import BankMatches, Layer
from ..live.bank.pattern_bank import PatternBank
from ..live.bank.symbols import card_of
from ..query.pattern.advancing import AdvancingMatch
from .harness import Row, Section
from .patterns import compiled

SCHEMA = pa.schema(
    [pa.field("t", pa.int64(), False), *((name, pa.float64()) for name in ("x", "y", "z"))]
)
AGAIN = """
import sys, time, chronicle
begun = time.perf_counter()
with chronicle.open(sys.argv[1]) as db:
    db.run_live()
    print(time.perf_counter() - begun)
"""
SAMPLED = 10
STEP = 1 << 16


def events(count: int) -> pa.Table:
    drawn = np.random.default_rng(7)
    columns = {name: drawn.random(count) for name in ("x", "y", "z")}
    return pa.table({"t": np.arange(count), **columns}).cast(SCHEMA)


def clause_of(rng: np.random.Generator, share: float) -> str:
    lows = rng.random(3) * (1 - share)
    defined = ", ".join(
        f"{v} AS {column} BETWEEN {low:.9f} AND {low + share:.9f}"
        for v, column, low in zip("ABC", "xyz", lows, strict=True)
    )
    return f"ORDER BY t MEASURES A.t AS a PATTERN (A B C) WITHIN 100 DEFINE {defined}"


def pattern(rng: np.random.Generator, share: float) -> Any:
    return compiled(clause_of(rng, share), SCHEMA)


def _steps(stream: Any, table: pa.Table) -> tuple[list[Any], float]:
    begun = time.process_time()
    found = [
        stream.advance(table.slice(at, STEP), min(at + STEP, table.num_rows) - 1)
        for at in range(0, table.num_rows, STEP)
    ]
    return [*found, stream.advance(None, INT64_MAX)], time.process_time() - begun


def run(short: bool = False) -> Section:
    section = Section(
        "Ten thousand live patterns",
        "Patterns of three symbols; each symbol holds for the share of events that is named; one "
        "thread. The peer runs each pattern by itself, as a live query of its own would.",
    )
    size = 200_000 if short else 1_000_000
    table = events(size)
    cases = [(100, 0.001), (1_000, 0.001), (1_000, 0.01)]
    cases += [] if short else [(10_000, 0.001), (10_000, 0.01)]
    for count, share in cases:
        rng = np.random.default_rng(count)
        patterns = [pattern(rng, share) for _ in range(count)]
        _steps(_bank(patterns), table.slice(0, 1_000))
        found, seconds = _steps(_bank(patterns), table)
        alone = 0.0
        chosen = list(range(0, count, max(1, count // SAMPLED)))[:SAMPLED]
        _steps(AdvancingMatch(patterns[0]), table.slice(0, 1_000))
        for i in chosen:
            wanted, taken = _steps(AdvancingMatch(patterns[i]), table)
            alone += taken
            first = [t for part in wanted for t in part.first_tick.tolist()]
            mine = [t for part in found for t in _ticks_of(part, i)]
            if first != mine:
                raise AssertionError(f"pattern {i} of {count}: {len(mine)} matches, {len(first)}")
        rate = size / seconds / 1e6
        bar = {0.001: 1.0, 0.01: 0.2}[share] if count == 10_000 else None
        section.rows.append(
            Row(
                f"{count:,} patterns, {share:.1%} of events a symbol",
                f"{rate:.2f} M events/s",
                f"{size / (alone / len(chosen) * count) / 1e6:.4f} M events/s",
                f"{alone / len(chosen) * count / seconds:.0f}x",
                "" if bar is None else f"{bar} M events/s",
                None if bar is None else rate >= bar,
            )
        )
    for count in (100,) if short else (1_000, 10_000):
        _add_engine_rows(section, count, table)
    return section


def _add_engine_rows(section: Section, count: int, table: pa.Table) -> None:
    rng = np.random.default_rng(count)
    with tempfile.TemporaryDirectory() as directory:
        with chronicle.open(directory) as db:
            stream = db.create_stream("s", SCHEMA, time="t")
            made = []
            for i in range(count):
                sql = f"SELECT * FROM s MATCH_RECOGNIZE ({clause_of(rng, 0.001)})"
                begun = time.perf_counter()
                db.create_live(f"q{i}", sql, into="alerts", idle="never")
                made.append(time.perf_counter() - begun)
            stream.append(table.slice(0, STEP))
            db.run_live()
            large = [_taken(db, table.slice(at, STEP)) for at in range(STEP, 3 * STEP, STEP)]
            small = [_taken(db, table.slice(at, 1_000)) for at in range(3 * STEP, 3 * STEP + 3_000,
                                                                        1_000)]  # fmt: skip
            wanted = sum(db.live(f"q{i}").verify() for i in range(0, count, count // SAMPLED))
            if wanted:
                raise AssertionError(f"{wanted} results of live queries differ")
        again = float(subprocess.check_output([sys.executable, "-c", AGAIN, directory]))
    rate, few = STEP / min(large) / 1e6, statistics.median(small) * 1e3
    most = count == 10_000
    tenth = count // 10
    one, last = (statistics.median(some) * 1e3 for some in (made[:tenth], made[-tenth:]))
    section.rows += [
        Row(f"{count:,} live queries: one of the last tenth is created in (peer: of the first)",
            f"{last:.1f} ms", f"{one:.1f} ms", f"{one / last:.2f}x"),
        Row(f"{count:,} live queries, 0.1% of events a symbol", f"{rate:.2f} M events/s", "", "",
            "1.0 M events/s" if most else "", rate >= 1 if most else None),
        Row(f"{count:,} live queries, a step of 1,000 events", f"{few:.1f} ms", "", ""),
        Row(f"{count:,} live queries, opened and run again", f"{again:.2f} s", "", "",
            "5 s" if most else "", again <= 5 if most else None),
    ]  # fmt: skip


def _taken(db: Any, events_: pa.Table) -> float:
    db.stream("s").append(events_)
    begun = time.perf_counter()
    db.run_live()
    return time.perf_counter() - begun


def _ticks_of(found: BankMatches, name: int) -> list[int]:
    if name not in found.names:
        return []
    ticks: list[int] = found.first_tick[found.query == found.names.index(name)].tolist()
    return ticks


def _bank(patterns: list[Any]) -> PatternBank:
    bank = PatternBank(SCHEMA, "t")
    bank.take(Layer(list(range(len(patterns))), [card_of(each) for each in patterns]))
    return bank
