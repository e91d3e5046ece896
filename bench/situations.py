"""Situations: the experiments of the TPStream papers with their parameters, and our own.

Data as by the papers' generator: one truth value per name and second, true for 10 to 100 s, false
for 10 to 50 s, uniform.  Cars: one event per second and car.  Peers: our ISEQ; for drivers DuckDB
and Flink; elsewhere another join order, or all events.  Row counts must be equal.  CPU seconds of
one thread.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ResourceLimit
from ..query.contract.operator import MatchLimits
from ..query.pattern.compiled import InputColumns
from ..query.situations.compiled import CompiledSituations, compile_situations
from ..query.situations.network import NAMES
from ..query.situations.stream import SituationStream
from ..query.sql.dialect import parse_statement
from ..query.sql.situation_clause import situation_clause
from ..query.sql.statement_clauses import SituationRelation
from .flink import FlinkMissing
from .harness import Row, Section, paired
from .situation_history import (
    beside_a_scan,
    flights,
    from_the_tree,
    in_threads,
    selective,
    through_indexes,
)
from .situation_peers import flink_drivers, iseq, islands

BATCH_ROWS = 1 << 17
RUNS = 5


def flickering(
    count: int, names: str, seed: int = 1, on: tuple[int, int] = (10, 100),
    off: tuple[int, int] = (10, 50),
) -> pa.Table:  # fmt: skip
    """A truth value per name and second, with uniform durations."""
    rng = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {"t": pa.array(np.arange(count))}
    for name in names:
        turns = 2 * count // (sum(on) + sum(off)) + 10 + int(count**0.5)
        lengths = np.empty(2 * turns, np.int64)
        lengths[0::2] = rng.integers(off[0], off[1] + 1, turns)
        lengths[1::2] = rng.integers(on[0], on[1] + 1, turns)
        values = np.repeat(np.tile(np.array([False, True]), turns), lengths)[:count]
        columns[name] = pa.array(values)
    return pa.table(columns)


def compiled(text: str, table: pa.Table) -> CompiledSituations:
    tree = parse_statement(f"SELECT * FROM s MATCH_SITUATIONS ({text})")
    node = tree.find(SituationRelation).args["match"]
    return compile_situations(situation_clause(node), InputColumns(table.schema, "t"))


def matched(clause: CompiledSituations, table: pa.Table) -> tuple[int, float]:
    batches = table.to_batches(max_chunksize=BATCH_ROWS)
    stream = SituationStream(clause, MatchLimits())
    begun = time.process_time()
    rows = sum(found.num_rows for batch in batches for found in stream.feed(batch))
    rows += sum(found.num_rows for found in stream.finish())
    return rows, time.process_time() - begun


def median(clause: CompiledSituations, table: pa.Table, runs: int = 3) -> tuple[int, float]:
    rows, _ = matched(clause, table)
    return rows, statistics.median(matched(clause, table)[1] for _ in range(runs))


def same(ours: int, theirs: int, who: str) -> None:
    if ours != theirs:
        raise AssertionError(f"{who} finds {theirs} matches, the operator {ours}")


def _seconds(clause: CompiledSituations, table: pa.Table) -> float:
    return matched(clause, table)[1]


def _by_iseq(clause: CompiledSituations, table: pa.Table) -> float:
    return iseq(clause, table)[1]


def against(
    clause: CompiledSituations, theirs: Callable[[], float], table: pa.Table, runs: int = RUNS
) -> tuple[float, float, float]:
    return paired(partial(_seconds, clause, table), theirs, runs)


def rate(count: int, seconds: float) -> str:
    found = count / seconds
    return f"{found / 1e6:.1f} M events/s" if found > 1e5 else f"{found / 1e3:.1f} k events/s"


# --------------------------------------------------------------------- aggressive drivers

FULL = (
    "A MEETS | OVERLAPS | STARTS | DURING B AND B CONTAINS | FINISHED BY | OVERLAPS | MEETS C "
    "AND A BEFORE C"
)
SIMPLE = "A MEETS B AND B OVERLAPS C"


def cars(count: int, number: int = 1000) -> pa.Table:
    rng = np.random.default_rng(7)
    seconds = -(-count // number)
    noise = rng.normal(size=(seconds, number))
    accel = np.empty_like(noise)
    speed = np.empty_like(noise)
    a, v = np.zeros(number), np.full(number, 60.0)
    for i in range(seconds):
        a = 0.9 * a + noise[i]
        v = v + 0.05 * a + 0.01 * (60.0 - v)
        accel[i], speed[i] = a, v
    return pa.table(
        {
            "t": np.repeat(np.arange(seconds), number)[:count],
            "car": np.tile(np.arange(number), seconds)[:count],
            "accel": accel.ravel()[:count],
            "speed": speed.ravel()[:count],
        }
    )


def drivers(count: int) -> Iterator[Row]:
    """T 5.8, E 5ab: thresholds at the 99th, 90th and 90th percentile, a window of 300 s."""
    table = cars(count)
    accel, speed = table["accel"].to_numpy(), table["speed"].to_numpy()
    limits = (
        float(np.percentile(accel, 99)), float(np.percentile(speed, 90)),
        float(np.percentile(accel, 10)),
    )  # fmt: skip
    defined = f"A AS accel > {limits[0]}, B AS speed > {limits[1]}, C AS accel < {limits[2]}"
    clauses = [
        compiled(f"PARTITION BY car PATTERN ({p}) WITHIN 300 DEFINE {defined}", table)
        for p in (SIMPLE, FULL)
    ]
    rows, simple = median(clauses[0], table)
    their_rows, theirs = islands(table, limits)
    same(rows, their_rows, "DuckDB")
    yield Row(
        "aggressive drivers, simplified, 1,000 cars: DuckDB, gaps and islands",
        rate(count, simple), rate(count, theirs), f"{theirs / simple:.1f}x",
    )  # fmt: skip
    yield _by_flink(table.slice(0, min(count, FLINK_ROWS)), clauses[0], limits)
    for what, clause in zip(("simplified", "full"), clauses, strict=True):
        same(matched(clause, table)[0], iseq(clause, table)[0], "ISEQ")
        ours, theirs, ratio = against(clause, partial(_by_iseq, clause, table), table)
        yield Row(
            f"aggressive drivers, {what}: our ISEQ", rate(count, ours), rate(count, theirs),
            f"{ratio:.2f}x",
        )  # fmt: skip
    full, simple, ratio = against(clauses[1], partial(_seconds, clauses[0], table), table)
    yield Row(
        "aggressive drivers, full: against the simplified", rate(count, full), rate(count, simple),
        f"{1 / ratio:.2f} of its time", "1.1", 1 / ratio <= 1.1,
    )  # fmt: skip


FLINK_ROWS = 500_000


def _by_flink(
    table: pa.Table, clause: CompiledSituations, limits: tuple[float, float, float]
) -> Row:
    what = "aggressive drivers, simplified: Flink, a pattern each and interval joins"
    rows, ours = median(clause, table)
    try:
        their_rows, whole, reading, version = flink_drivers(table, limits, 1)
    except FlinkMissing as missing:
        return Row(f"{what} (not measured: {missing})", rate(table.num_rows, ours), "", "", "30x")
    same(rows, their_rows, f"Flink {version}")
    theirs = whole - reading
    return Row(
        f"{what} ({table.num_rows:,} events, Flink {version})", rate(table.num_rows, ours),
        rate(table.num_rows, theirs), f"{theirs / ours:.1f}x", "30x", theirs / ours >= 30,
    )  # fmt: skip


# --------------------------------------------------------------------- the papers' grid

CHAIN = "DEFINE a AS a, b AS b, c AS c, d AS d"


def windows(count: int) -> Iterator[Row]:
    """T 5.9: A STARTS B BEFORE C OVERLAPS D, windows of 500 to 100,000 s."""
    table = flickering(count, "abcd")
    for window in (500, 5_000, 100_000):
        clause = compiled(
            f"PATTERN (a STARTS b AND b BEFORE c AND c OVERLAPS d) WITHIN {window} {CHAIN}", table
        )
        before = _resident("VmRSS", forget_peak=True)
        rows, _ = matched(clause, table)
        memory = _resident("VmHWM") - before
        same(rows, iseq(clause, table)[0], "ISEQ")
        ours, theirs, ratio = against(clause, partial(_by_iseq, clause, table), table, 3)
        wide = window == 100_000
        yield Row(
            f"A STARTS B BEFORE C OVERLAPS D, window {window:,} s: {rows:,} matches, "
            f"{memory:.2f} GB more than the events; our ISEQ",
            rate(count, ours), rate(count, theirs), f"{ratio:.1f}x",
            "3x, 1 GB" if wide else "", ratio >= 3 and memory < 1.0 if wide else None,
        )  # fmt: skip


def _resident(what: str, *, forget_peak: bool = False) -> float:
    if forget_peak:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{what}:")[1].split()[0]) / 2**20


SINGLE = [name for name in NAMES if name not in ("AFTER", "MET BY")]


def patterns(kind: str, used: str, rng: np.random.Generator) -> str:

    def chain(names: str) -> list[str]:
        fixed = {"Equal": "EQUALS", "Meets": "MEETS"}.get(kind)
        return [f"{x} {fixed or rng.choice(SINGLE)} {y}" for x, y in pairwise(names)]

    def star(names: str) -> list[str]:
        return [f"{names[0]} {rng.choice(SINGLE)} {name}" for name in names[1:]]

    half = len(used) // 2
    parts = {
        "Star": lambda: star(used),
        "Combined": lambda: chain(used[: half + 1]) + star(used[half:]),
    }.get(kind, lambda: chain(used))()
    return " AND ".join(parts)


def streams(count: int, queries: int) -> Iterator[Row]:
    """T 5.10: five kinds of patterns over 4 to 10 streams, a window of 2,000 s; medians."""
    letters = "abcdefghij"
    table = flickering(count, letters)
    for kind in ("Equal", "Meets", "Chain", "Star", "Combined"):
        rng, times = np.random.default_rng(3), {}
        for number in (4, 7, 10):
            used, spent = letters[:number], []
            defined = ", ".join(f"{x} AS {x}" for x in used)
            for _ in range(1 if kind in ("Equal", "Meets") else queries):
                text = patterns(kind, used, rng)
                clause = compiled(f"PATTERN ({text}) WITHIN 2000 DEFINE {defined}", table)
                try:
                    spent.append(median(clause, table)[1])
                except ResourceLimit:  # BEFORE upon BEFORE: more matches than memory
                    spent.append(math.inf)
            times[number] = statistics.median(spent)
        yield Row(
            f"{kind}, 10 streams, window 2,000 s: against 4 (7 streams: "
            f"{times[7] / times[4]:.2f} of its time)", rate(count, times[10]),
            rate(count, times[4]), f"{times[10] / times[4]:.2f} of its time", "3",
            times[10] / times[4] <= 3,
        )  # fmt: skip


QUERIES = {
    "Q1": "A OVERLAPS B AND A OVERLAPS C AND B STARTS C",
    "Q2": "A OVERLAPS B AND A BEFORE C AND B OVERLAPS C",
    "Q3": "A BEFORE B AND A BEFORE C AND B BEFORE C",
}
DEFINED = "DEFINE A AS a, B AS b, C AS c"


def orders(count: int) -> Iterator[Row]:
    """T 5.13: the chosen join order against the best of all, which is measured again."""
    table = flickering(count, "abc", off=(10, 1000))
    for name, pattern in QUERIES.items():
        clause = compiled(f"PATTERN ({pattern}) WITHIN 5000 {DEFINED}", table)
        forced = [replace(clause, order=order) for order in permutations(clause.names)]
        best = min(forced, key=lambda c: median(c, table)[1])
        chosen, theirs, ratio = against(clause, partial(_seconds, best, table), table, 9)
        yield Row(
            f"{name}, window 5,000 s: the chosen order against the best of six "
            f"({', '.join(best.order or ())})",
            rate(count, chosen), rate(count, theirs), f"{ratio:.2f} of its speed", "0.95",
            ratio >= 0.95,
        )  # fmt: skip


def changing(count: int) -> pa.Table:
    """T 5.14: rates of 1:1:1, then 1:50:50, then 50:1:50, where 1 is one per 50,000 s."""
    third = count // 3
    parts = []
    for seed, ratio in enumerate(((1, 1, 1), (1, 50, 50), (50, 1, 50))):
        columns: dict[str, npt.NDArray[np.bool_]] = {}
        for name, times in zip("abc", ratio, strict=True):
            period = 50_000 // times
            found = flickering(third, name, 10 * seed + ord(name), off=(period - 200, period + 90))
            columns[name] = found[name].to_numpy(zero_copy_only=False)
        parts.append(pa.table(columns))
    whole = pa.concat_tables(parts).combine_chunks()
    return whole.add_column(0, "t", pa.array(np.arange(whole.num_rows)))


def adaptive(count: int) -> Iterator[Row]:
    """T 5.14: Q3, window 10,000 s, against switching by hand."""
    table = changing(count)
    clause = compiled(f"PATTERN ({QUERIES['Q3']}) WITHIN 10000 {DEFINED}", table)
    forced = [replace(clause, order=order) for order in (("C", "A", "B"), ("C", "B", "A"))]
    rows, _ = matched(clause, table)
    for one in forced:
        same(rows, matched(one, table)[0], "another order")
    best = min(forced, key=lambda c: median(c, table)[1])
    mine, theirs, ratio = against(clause, partial(_seconds, best, table), table, 25)
    yield Row(
        f"Q3 while rates change, window 10,000 s: {rows:,} matches, against the better fixed order",
        rate(count, mine), rate(count, theirs), f"{1 / ratio:.2f} of its time",
        "1.02, 30 M events/s", 1 / ratio <= 1.02 and count / mine >= 30e6,
    )  # fmt: skip


# --------------------------------------------------------------------- detection

WAITS = {
    "BEFORE": "the length of B", "MEETS": "the length of B", "OVERLAPS": "B's end - A's",
    "STARTS": "B's end - A's", "DURING": "B's end - A's",
}  # fmt: skip


def detection(count: int) -> Iterator[Row]:
    """T 5.11 and 5.12: how much earlier than on completion a match is certain."""
    for relation, formula in WAITS.items():
        gains = []
        for length in (27, 55, 110):  # mean length of B; 55 for A
            a = flickering(count, "a", 1)
            b = flickering(count, "b", 2, on=(length * 10 // 55, length * 100 // 55))
            table = a.append_column("b", b["b"])
            clause = compiled(
                f"MEASURES COMPLETED() - DETECTED() AS gain, DURATION(B) AS length, "
                f"ENDED(B) - ENDED(A) AS rest PATTERN (A {relation} B) WITHIN 1000 "
                "DEFINE A AS a, B AS b", table,
            )  # fmt: skip
            found = pa.Table.from_batches(list(clause.run(table.to_batches())))
            wanted = found["length" if relation in ("BEFORE", "MEETS") else "rest"]
            if not found.num_rows or not found["gain"].equals(wanted):
                raise AssertionError(f"{relation}: a match is not detected {formula} earlier")
            gains.append(f"{pc.mean(found['gain']).as_py():.1f}")
        yield Row(
            f"A {relation} B, B half, as long and twice as long as A: every match is certain "
            f"earlier by {formula}", f"{', '.join(gains)} s", "", "", "exactly", True,
        )  # fmt: skip
    table = flickering(count, "abcd")
    clause = compiled(
        "MEASURES COMPLETED() - DETECTED() AS gain PATTERN (a STARTS b AND b BEFORE c "
        f"AND c OVERLAPS d) WITHIN 100000 {CHAIN}", table,
    )  # fmt: skip
    found = pa.Table.from_batches(list(clause.run(table.to_batches())))
    yield Row(
        "A STARTS B BEFORE C OVERLAPS D, 1 Hz: event latency, on detection and on completion",
        "0 s", f"{pc.mean(found['gain']).as_py():.1f} s", "", "0", True,
    )  # fmt: skip


def run(short: bool = False) -> Section:
    return measured(*((300_000, 20, 3) if short else (20_000_000, 500, 20)))


def measured(count: int, queries: int, kinds: int) -> Section:
    section = Section(
        "Situations",
        f"{count:,} events each (kinds of patterns: {count // 10:,}; S2: {5 * count:,}), in memory "
        "but for S1 to S4; one thread, processor time, medians, both sides in turn. The papers' "
        "own figures are of Java on other machines (8.8 M events/s for the changing rates) and are "
        "not compared.",
    )
    for part in (drivers, windows):
        section.rows += part(count)
    section.rows += streams(count // 10, kinds)
    for part in (orders, adaptive):
        section.rows += part(count)
    section.rows += detection(min(count, 2_000_000))
    section.rows += through_indexes(count)
    section.rows += selective(count // 10, queries)
    section.rows += from_the_tree(5 * count)
    section.rows += beside_a_scan(count)
    section.rows += in_threads(count)
    section.rows += flights(min(100, count // 50_000))
    section.notes += [
        "ISEQ is ours, from what the papers say of it: situations in the order of their ends, "
        "buffers ordered by ends; our deriver makes its input, and its time counts.",
        "Event latency is that of the papers: from the first event that could tell a match to the "
        "one that does; an operator on completion waits for the last end.",
        "S2 has a flip for each 100,000 events, as 1,000 of 100 M.",
        "Not measured: Esper and SASE+ themselves.",
    ]
    return section
