"""Situations: the experiments of the TPStream papers, with their parameters, and our own.

Purpose
    Aggressive drivers over partitioned data; windows from 500 to 100,000 s; patterns of 4 to 10
    streams; the choice of join orders, and how it follows a stream whose rates change; history
    through replay intervals and through the tree, against reading all of it.

Data
    The papers' generator: one truth value per name and second, true for 10 to 100 s, false for 10
    to 50 s, both drawn evenly.  Cars: one event a second and car; speed and acceleration wander.

Peers
    DuckDB with gaps and islands and a range join, in one thread, for the drivers.  Elsewhere the
    peer is the same operator with another order of joins, or over all events.

Guarantee
    Both sides give the same number of rows, else the run fails.

Limits
    Times are processor seconds of one thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..database import open_database
from ..query.pattern.compiled import InputColumns, MatchLimits
from ..query.situations.compiled import CompiledSituations, compile_situations
from ..query.situations.stream import SituationStream
from ..query.sql.dialect import SituationRelation, parse_statement
from ..query.sql.situation_clause import situation_clause
from .harness import Row, Section

__all__ = ["run"]

BATCH_ROWS = 1 << 17
RUNS = 5


def flickering(
    count: int, names: str, seed: int = 1, on: tuple[int, int] = (10, 100),
    off: tuple[int, int] = (10, 50),
) -> pa.Table:  # fmt: skip
    """A truth value per name and second, true and false for times drawn evenly."""
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
    """A clause over the columns of a table whose time is ``t``."""
    tree = parse_statement(f"SELECT * FROM s MATCH_SITUATIONS ({text})")
    node = tree.find(SituationRelation).args["match"]
    return compile_situations(situation_clause(node), InputColumns(table.schema, "t"))


def matched(clause: CompiledSituations, table: pa.Table) -> tuple[int, float]:
    """Rows, and processor seconds."""
    batches = table.to_batches(max_chunksize=BATCH_ROWS)
    stream = SituationStream(clause, MatchLimits())
    begun = time.process_time()
    rows = sum(found.num_rows for batch in batches for found in stream.feed(batch))
    rows += sum(found.num_rows for found in stream.finish())
    return rows, time.process_time() - begun


def median(clause: CompiledSituations, table: pa.Table, runs: int = 3) -> tuple[int, float]:
    """Rows, and the median of the seconds; the first run does not count."""
    rows, _ = matched(clause, table)
    return rows, statistics.median(matched(clause, table)[1] for _ in range(runs))


def rate(count: int, seconds: float) -> str:
    """Events per second."""
    return f"{count / seconds / 1e6:.1f} M events/s"


# --------------------------------------------------------------------- aggressive drivers

FULL = (
    "A MEETS | OVERLAPS | STARTS | DURING B AND B CONTAINS | FINISHED BY | OVERLAPS | MEETS C "
    "AND A BEFORE C"
)
SIMPLE = "A MEETS B AND B OVERLAPS C"


def cars(count: int, number: int = 1000) -> pa.Table:
    """One event a second and car, by second."""
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


def islands(table: pa.Table, limits: tuple[float, float, float]) -> tuple[int, float]:
    """The simplified drivers by DuckDB: runs by window functions, pairs by joins."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("cars", table)
    runs = """
        {0} AS (SELECT car, min(t) AS s, max(e) AS e FROM (
            SELECT *, sum(begins) OVER (PARTITION BY car ORDER BY t) AS run FROM (
                SELECT car, t, c, lead(t) OVER w AS e,
                    CASE WHEN c AND NOT coalesce(lag(c) OVER w, false) THEN 1 ELSE 0 END AS begins
                FROM (SELECT car, t, {1} AS c FROM cars) WINDOW w AS (PARTITION BY car ORDER BY t)))
            WHERE c GROUP BY car, run HAVING count(e) = count(*))"""
    low, high, brake = limits
    conditions = {"a": f"accel > {low}", "b": f"speed > {high}", "c": f"accel < {brake}"}
    names = ", ".join(runs.format(name, condition) for name, condition in conditions.items())
    text = f"""WITH {names} SELECT count(*) FROM a JOIN b ON a.car = b.car AND a.e = b.s
        JOIN c ON b.car = c.car AND b.s < c.s AND c.s < b.e AND b.e < c.e
        WHERE c.e - a.s <= 300"""
    begun = time.process_time()
    rows = connection.execute(text).fetchall()[0][0]
    return int(rows), time.process_time() - begun


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
    (rows, simple), (_, full) = (median(c, table) for c in clauses)
    their_rows, theirs = islands(table, limits)
    if rows != their_rows:
        raise AssertionError(f"DuckDB finds {their_rows} drivers, the operator {rows}")
    yield Row(
        "aggressive drivers, simplified, 1,000 cars: DuckDB, gaps and islands",
        rate(count, simple), rate(count, theirs), f"{theirs / simple:.1f}x",
    )  # fmt: skip
    yield Row(
        "aggressive drivers, full: against the simplified", rate(count, full), rate(count, simple),
        f"{full / simple:.2f} of its time", "1.1", full / simple <= 1.1,
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
        rows, seconds = median(clause, table)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        yield Row(
            f"A STARTS B BEFORE C OVERLAPS D, window {window:,} s: {rows:,} matches",
            rate(count, seconds), "", f"{memory:.2f} GB at most", "1 GB", memory < 1.0,
        )  # fmt: skip


def streams(count: int) -> Iterator[Row]:
    """T 5.10: chains of 4 to 10 streams, a window of 2,000 s."""
    letters = "abcdefghij"
    table = flickering(count, letters)
    times = {}
    for number in (4, 7, 10):
        used = letters[:number]
        chain = " AND ".join(f"{x} MEETS | OVERLAPS {y}" for x, y in pairwise(used))
        defined = ", ".join(f"{x} AS {x}" for x in used)
        clause = compiled(f"PATTERN ({chain}) WITHIN 2000 DEFINE {defined}", table)
        times[number] = median(clause, table)[1]
    yield Row(
        "a chain of 10 streams, window 2,000 s: against 4", rate(count, times[10]),
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
    """T 5.13: the order that is chosen against the best of all."""
    table = flickering(count, "abc", off=(10, 1000))
    for name, pattern in QUERIES.items():
        clause = compiled(f"PATTERN ({pattern}) WITHIN 5000 {DEFINED}", table)
        forced = [replace(clause, order=order) for order in permutations(clause.names)]
        _, chosen = median(clause, table)
        best = min(median(c, table)[1] for c in forced)
        yield Row(
            f"{name}, window 5,000 s: the chosen order against the best of six",
            rate(count, chosen), rate(count, best), f"{best / chosen:.2f} of its speed", "0.95",
            best / chosen >= 0.95,
        )  # fmt: skip


def changing(count: int) -> pa.Table:
    """T 5.14: situations as 1:1:1, then 1:50:50, then 50:1:50; one is one in 50,000 s."""
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
    """T 5.14: Q3, window 10,000 s, alpha 0.01, threshold 0.2, against switching by hand."""
    table = changing(count)
    clause = compiled(f"PATTERN ({QUERIES['Q3']}) WITHIN 10000 {DEFINED}", table)
    rows, mine = median(clause, table, RUNS)
    forced = [replace(clause, order=order) for order in (("C", "A", "B"), ("C", "B", "A"))]
    fixed = []
    for one in forced:
        their_rows, seconds = median(one, table, RUNS)
        fixed.append(seconds)
        if their_rows != rows:
            raise AssertionError(f"{rows} and {their_rows} matches with another order")
    yield Row(
        f"Q3 while rates change, window 10,000 s: {rows:,} matches, against the better fixed order",
        rate(count, mine), rate(count, min(fixed)), f"{mine / min(fixed):.2f} of its time",
        "30 M events/s", count / mine >= 30e6,
    )  # fmt: skip


# --------------------------------------------------------------------- history


def asked(place: Path, text: str, runs: int = 3) -> tuple[pa.Table, float]:
    """Answer of a query, and the median of its processor seconds."""
    with open_database(place, mode="r") as database:
        answer = database.sql(text).arrow()
        times = []
        for _ in range(runs):
            begun = time.process_time()
            database.sql(text).arrow()
            times.append(time.process_time() - begun)
    return answer, statistics.median(times)


def history(place: Path, text: str) -> tuple[float, float]:
    """Seconds with what the planner chooses, and with all events."""
    found, chosen = asked(place, text.format(""))
    whole, full = asked(place, text.format("/*+ strategy(replay) */"))
    if not found.equals(whole):
        raise AssertionError(f"other rows than over all events: {text}")
    return chosen, full


def through_indexes(count: int, number: int = 842) -> Iterator[Row]:
    """S1: a rare start of three names, partitioned by aircraft."""
    rng = np.random.default_rng(5)
    schema = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("x", pa.float64()),
                        ("y", pa.float64())])  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        with open_database(folder) as database:
            stream = database.create_stream("s", schema, time="t")
            for low in range(0, count, 1 << 20):
                size = min(1 << 20, count - low)
                x = rng.random(size)
                columns = [
                    np.arange(low, low + size),
                    rng.integers(0, number, size),
                    x,
                    np.abs(np.sin(np.arange(low, low + size) / 1e5)) * rng.random(size),
                ]
                stream.append(pa.table(columns, schema=schema))
            stream.create_index("x")
        text = """SELECT {} * FROM s MATCH_SITUATIONS (PARTITION BY k
            PATTERN (A BEFORE B AND B BEFORE C) WITHIN 20000
            DEFINE A AS x > 0.999995, B AS y > 0.5, C AS y < 0.1)"""
        chosen, full = history(Path(folder), text)
    yield Row(
        f"S1: a rare start of three, {number} aircraft: replay intervals against all events",
        f"{chosen:.3f} s", f"{full:.3f} s", f"{full / chosen:.1f}x", "10x", full / chosen >= 10,
    )  # fmt: skip


def selective(count: int, queries: int) -> Iterator[Row]:
    """Random selective queries: what the planner chooses against reading all of it."""
    rng = np.random.default_rng(9)
    number = 50
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        place = Path(folder)
        with open_database(folder) as database:
            table = pa.table(
                {
                    "t": np.arange(count), "k": rng.integers(0, number, count),
                    "x": rng.random(count), "y": np.abs(np.sin(np.arange(count) / 1e5)),
                }
            )  # fmt: skip
            stream = database.create_stream("s", table.schema, time="t")
            stream.append(table)
            stream.create_index("x")
        slowest, gains = 0.0, []
        for _ in range(queries):
            rare = float(10 ** rng.uniform(-6, -3))
            text = f"""SELECT {{}} * FROM s MATCH_SITUATIONS (
                {"PARTITION BY k" if rng.random() < 0.7 else ""}
                PATTERN (A {rng.choice(["BEFORE", "MEETS | BEFORE", "INTERSECTS"])} B)
                WITHIN {int(rng.integers(100, 20_000))}
                DEFINE A AS x > {1 - rare}, B AS y < {rng.random():.3f})"""
            if rng.random() < 0.5:
                low = int(rng.integers(0, count))
                text += f" WHERE a_started BETWEEN {low} AND {low + count // 10}"
            chosen, full = history(place, text)
            gains.append(full / chosen)
            slowest = max(slowest, chosen / full)
    yield Row(
        f"{queries} random selective queries over {count / 1e6:.1f} M events: against all events, "
        "the slowest and the median",
        f"{1 / slowest:.2f}x", "", f"{statistics.median(gains):.1f}x", "0.9x", slowest <= 1 / 0.9,
    )  # fmt: skip


def from_the_tree(count: int, flips: int = 1000) -> Iterator[Row]:
    """S2: long runs without PARTITION BY."""
    rng = np.random.default_rng(6)
    cuts = np.sort(rng.integers(0, count, flips))
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        with open_database(folder) as database:
            stream = database.create_stream("s", schema, time="t")
            for low in range(0, count, 1 << 22):
                at = np.arange(low, min(count, low + (1 << 22)))
                level = np.searchsorted(cuts, at, side="right") % 2
                stream.append(pa.table([at, level * 10.0 + rng.random(len(at))], schema=schema))
        text = "SELECT {} * FROM s MATCH_SITUATIONS (PATTERN (A) DEFINE A AS x > 5)"
        chosen, full = history(Path(folder), text)
    yield Row(
        f"S2: {flips:,} flips in {count / 1e6:.0f} M events: runs from the tree against a scan",
        f"{chosen:.3f} s", f"{full:.3f} s", f"{full / chosen:.1f}x", "100x", full / chosen >= 100,
    )  # fmt: skip


def run(short: bool = False) -> Section:
    """All of them."""
    count = 300_000 if short else 20_000_000
    section = Section(
        "Situations",
        f"{count:,} events each, in memory but for S1 and S2; one thread, processor time, medians. "
        "The papers' own figures are of Java on other machines (8.8 M events/s for the changing "
        "rates) and are not compared.",
    )
    for part in (drivers, windows, streams, orders, adaptive, through_indexes):
        section.rows += part(count)
    section.rows += selective(count // 10, 20 if short else 500)
    section.rows += from_the_tree(5 * count)
    section.notes.append(
        "Not measured here: the papers' ISEQ and Esper, Flink's formulation, several threads."
    )
    return section
