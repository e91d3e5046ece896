"""RECENT JOIN: savings by regions and their union, and the order of sides.

The experiments of the DejaVu paper (Figures 10 to 14) on generated ticks, a sawtooth with a live
match per 50 events as in the paper and a random walk, and rare live matches found through an index.
The peer recomputes the archive pattern per region, or uses another order, or an ordinary JOIN.  The
last event before each of the same key: the peer is DuckDB's ASOF join of a table in memory.  CPU
time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..api.database import open_database
from ..query.pattern.compiled import InputColumns, compile_match
from ..query.sql.match_clause import clause_of_text
from .harness import Row, Section

Ints = npt.NDArray[np.int64]

FALL = """MEASURES FIRST(t) AS b, LAST(t) AS e INCREMENTAL MATCH
  PATTERN (A B+) DEFINE B AS price < PREV(price)"""
TICK = """MEASURES FIRST(t) AS b, LAST(t) AS e MAXIMAL MATCH
  PATTERN (A B+ C* D+) DEFINE B AS price < PREV(price),
    C AS price >= PREV(price) AND price <= A.price, D AS price > PREV(price) AND price > A.price"""
PAPER = f"""SELECT /*+ recent({{}}) */ count(*) FROM stocks MATCH_RECOGNIZE ({FALL}) AS l
  RECENT JOIN stocks MATCH_RECOGNIZE ({TICK}) AS a WITHIN {{}}"""


def sawtooth(count: int) -> npt.NDArray[np.float64]:
    """Every 50 events a fall of two steps and a rise above its start."""
    steps = np.full(50, 1.0)
    steps[:3] = 0.0, -1.0, -2.0
    at = np.arange(count)
    prices: npt.NDArray[np.float64] = at // 50 + steps[at % 50]
    return prices


def walk(count: int) -> npt.NDArray[np.float64]:
    steps = np.random.default_rng(2006).choice([-1.0, 0.0, 1.0], count, p=[0.4, 0.2, 0.4])
    return 1000 + np.cumsum(steps)


@contextmanager
def store(columns: dict[str, Any], indexes: tuple[str, ...] = ()) -> Iterator[Any]:
    count = len(next(iter(columns.values())))
    table = pa.table({"t": np.arange(count), **columns})
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder,
        open_database(folder) as database,
    ):
        stream = database.create_stream("stocks", table.schema, time="t")
        for low in range(0, count, 1 << 21):
            stream.append(table.slice(low, 1 << 21))
        stream.flush()
        for name in indexes:
            stream.create_index(name)
        yield database


def timed(database: Any, text: str, runs: int = 3) -> tuple[int, float]:
    rows, best = database.sql(text).fetchall()[0][0], float("inf")
    for _ in range(runs):
        begun = time.process_time()
        again = database.sql(text).fetchall()[0][0]
        best = min(best, time.process_time() - begun)
        assert again == rows
    return rows, best


def recomputed(prices: npt.NDArray[np.float64], ends: Ints, distance: int) -> float:
    """CPU seconds of the archive pattern in each live match's region separately."""
    schema = pa.schema([("t", pa.int64()), ("region", pa.int64()), ("price", pa.float64())])
    clause = clause_of_text(f"SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY region {TICK})")
    compiled = compile_match(clause, InputColumns(schema, "t"))
    seconds = 0.0
    at_once = max(1, (1 << 21) // distance)
    for low in range(0, len(ends), at_once):
        some = ends[low : low + at_once]
        rows = (some[:, None] + np.arange(-distance, 0)[None]).ravel()
        region = np.repeat(np.arange(len(some)), distance)
        kept = rows >= 0
        rows, region = rows[kept], region[kept]
        arrays = [np.arange(len(rows)), region, prices[rows]]
        batch = pa.RecordBatch.from_arrays([pa.array(array) for array in arrays], schema=schema)
        begun = time.process_time()
        for _ in compiled.run([batch]):
            pass
        seconds += time.process_time() - begun
    return seconds


def ratio(better: float, worse: float) -> str:
    return f"{worse / better:.2f}x" if worse < 10 * better else f"{worse / better:.0f}x"


def against_recomputation(count: int) -> Iterator[Row]:
    """F14: the union of regions against each region by itself."""
    prices = walk(count)
    with store({"price": prices}) as database:
        text = f"SELECT e FROM stocks MATCH_RECOGNIZE ({FALL})"
        ends = database.sql(text).arrow().column("e").to_numpy()
        for distance, bar in ((500, 54), (1000, 100)):
            _, ours = timed(database, PAPER.format("auto", distance))
            theirs = recomputed(prices, ends, distance)
            yield Row(
                f"F14: random walk, P = {distance}: union of regions against each by itself",
                f"{ours:.2f} s", f"{theirs:.1f} s", ratio(ours, theirs), f"{bar}x",
                theirs >= bar * ours,
            )  # fmt: skip


def against_eager(count: int) -> Iterator[Row]:
    """F10: the paper's stream, P varied; throughput."""
    with store({"price": sawtooth(count)}) as database:
        for distance in (10, 100, 1000):
            rows, ours = timed(database, PAPER.format("auto", distance))
            again, eager = timed(database, PAPER.format("eager", distance))
            assert rows == again
            yield Row(
                f"F10: sawtooth, P = {distance}: the chosen order against eager, {rows:,} pairs",
                f"{count / ours / 1e6:.1f} M events/s", f"{count / eager / 1e6:.1f} M events/s",
                ratio(ours, eager), "0.95x; 10 M events/s",
                eager >= 0.95 * ours and count >= 1e7 * ours,
            )  # fmt: skip


RARE = """SELECT /*+ recent({}) */ count(*) FROM stocks MATCH_RECOGNIZE (
    MEASURES FIRST(t) AS b, LAST(t) AS e AFTER MATCH SKIP TO NEXT ROW
    PATTERN (A B) WITHIN 10 DEFINE A AS u = 0) AS l
  RECENT JOIN stocks MATCH_RECOGNIZE (
    MEASURES FIRST(t) AS b, LAST(t) AS e AFTER MATCH SKIP TO NEXT ROW
    PATTERN (A B) WITHIN 10 DEFINE A AS v = 0) AS a WITHIN {}"""


def flags(count: int, rare: int, often: int, seed: int = 13) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"u": rng.integers(0, rare, count), "v": rng.integers(0, often, count)}


def rare_live(count: int) -> Iterator[Row]:
    """A live match every 100,000 events, found through an index."""
    with store(flags(count, 100_000, 10), ("u",)) as database:
        rows, ours = timed(database, RARE.format("auto", 1000))
        again, eager = timed(database, RARE.format("eager", 1000))
        assert rows == again
        yield Row(
            "a live match every 100,000 events, P = 1,000: against eager",
            f"{ours * 1e3:.1f} ms", f"{eager * 1e3:.1f} ms", ratio(ours, eager), "5x",
            eager >= 5 * ours,
        )  # fmt: skip


def orders(count: int) -> Iterator[Row]:
    """F13a: the rarer side first."""
    for often in (1, 10, 100, 1000):
        rare = 20_000
        sides = {"u": rare, "v": max(2, rare // often)}
        with store(flags(count, sides["u"], sides["v"]), ("u", "v")) as database:
            for text, told in ((RARE, f"1:{often}"), (_turned(RARE), f"{often}:1")):
                found = {
                    order: timed(database, text.format(order, 500))
                    for order in ("live_first", "archive_first", "auto")
                }
                assert len({rows for rows, _ in found.values()}) == 1
                first, second, ours = (seconds for _, seconds in found.values())
                better, worse = min(first, second), max(first, second)
                bar = "1.2 of it; 10x the other" if often == 1000 else "1.2 of it"
                yield Row(
                    f"F13a: live to archive {told}: the chosen order against the better "
                    f"({better * 1e3:.0f} ms) and the other",
                    f"{ours * 1e3:.0f} ms", f"{worse * 1e3:.0f} ms", ratio(ours, worse), bar,
                    ours <= 1.2 * better and (often < 1000 or worse >= 10 * ours),
                )  # fmt: skip


def _turned(text: str) -> str:
    return text.replace("u = 0", "w = 0").replace("v = 0", "u = 0").replace("w = 0", "v = 0")


def lengths(count: int) -> Iterator[Row]:
    """100 live matches over two archives, one ten times longer."""
    found = []
    for size in (count // 10, count):
        u = np.random.default_rng(4).integers(1, 10**6, size)
        u[np.linspace(2000, size - 3, 100).astype(int)] = 0
        v = np.random.default_rng(3).integers(0, 10, size)
        with store({"u": u, "v": v}, ("u",)) as database:
            found.append(timed(database, RARE.format("auto", 1000)))
            if size == count:
                joined = _joined(RARE)
                rows, plain = timed(database, joined, 1)
                assert rows == found[-1][0]
    (_, short), (_, long) = found
    yield Row(
        f"100 live matches over {count // 10:,} and {count:,} events",
        f"{long * 1e3:.1f} ms", f"{short * 1e3:.1f} ms", f"{long / short:.2f} of its time", "1.3",
        long <= 1.3 * short,
    )  # fmt: skip
    yield Row(
        f"100 live matches over {count:,} events: an ordinary JOIN of both clauses",
        f"{long * 1e3:.1f} ms", f"{plain * 1e3:.0f} ms", ratio(long, plain), "50x",
        plain >= 50 * long,
    )  # fmt: skip


def _joined(text: str) -> str:
    text = text.replace("RECENT JOIN", "JOIN").replace("/*+ recent({}) */ ", "")
    return text.replace("AS a WITHIN {}", "AS a ON a.e < l.e AND a.b < l.b AND l.e - a.b <= 1000")


NEWEST = "SELECT sum(a.v + 1) FROM stocks AS l {} stocks AS a ON a.k = l.k {} WHERE l.v >= {}"


def newest(count: int) -> Iterator[Row]:
    """The last event before each event, or each tenth, of one of 100 keys."""
    drawn = np.random.default_rng(8)
    v, k = drawn.integers(0, 1_000_000, count), drawn.integers(0, 100, count).astype(str)
    table = pa.table({"t": np.arange(count), "v": v, "k": k})
    with store({"v": v, "k": k}) as database, duckdb.connect() as peer:
        peer.register("events", table)
        peer.execute("CREATE TABLE stocks AS SELECT * FROM events")
        for what, least in (("each event", 0), ("every tenth event", 900_000)):
            rows, mine = timed(database, NEWEST.format("RECENT LAST 1 JOIN", "", least))
            again, other = timed(peer, NEWEST.format("ASOF JOIN", "AND a.t < l.t", least))
            assert rows == again
            yield Row(
                f"the last event before {what} of {count:,}, 100 keys: DuckDB's ASOF JOIN",
                f"{mine * 1e3:.0f} ms", f"{other * 1e3:.0f} ms", ratio(mine, other),
            )  # fmt: skip


LIVE = """SELECT l.k, match_start(a) AS b, match_end(l) AS e FROM stocks MATCH_RECOGNIZE (
    PARTITION BY k AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN 1000000
    DEFINE A AS x > 0.99, B AS x > 0.9) AS l
  RECENT JOIN stocks MATCH_RECOGNIZE (
    PARTITION BY k AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN 1000000
    DEFINE A AS x < 0.001, B AS x < 0.1) AS a
  ON a.k = l.k WITHIN 3600000000"""


def live(commits: int) -> Iterator[Row]:
    """100,000 events a second in commits of 10 ms, P an hour: latency from commit to rows."""
    rng = np.random.default_rng(5)
    events = 1000
    schema = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("x", pa.float64())])
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder,
        open_database(folder) as database,
    ):
        stream = database.create_stream("stocks", schema, time="t")
        database.create_live("falls", LIVE, idle="never")
        seconds = []
        for number in range(commits):
            t = (number * events + np.arange(events)) * 10
            columns = [t, rng.integers(0, 100, events), rng.random(events)]
            stream.append(pa.table(dict(zip("tkx", columns, strict=True))))
            begun = time.process_time()
            database.run_live()
            seconds.append(time.process_time() - begun)
        rows = database.live("falls").status()["rows"]
        assert database.live("falls").verify() == 0
    half, most = np.quantile(seconds[commits // 4 :], (0.5, 0.99)).tolist()
    yield Row(
        f"live: a commit of {events:,} events, P an hour, {rows:,} pairs: to its rows, p99 and p50",
        f"{most * 1e3:.1f} ms", f"{half * 1e3:.1f} ms", "", "10 ms", most <= 0.01,
    )  # fmt: skip


def run(short: bool = False) -> Section:
    count = 100_000 if short else 4_000_000
    section = Section(
        "Recency joins",
        f"Up to {count:,} events, one a tick; least of three runs, processor time. The paper's "
        "query (a fall; a tick-shaped movement) on a sawtooth and on a random walk: its market "
        "data cannot be had.",
    )
    section.rows += against_recomputation(count // 20)
    section.rows += against_eager(count // 2)
    section.rows += rare_live(count)
    section.rows += orders(count // 2)
    section.rows += lengths(3 * count)
    section.rows += newest(count // 4)
    section.rows += live(40 if short else 2000)
    section.notes.append(
        "Not measured here: the paper's Figure 9 has no counterpart (the archive is the store); "
        "10^8 events. The paper's tables 3 to 5 are tests (`tests/live/test_recency_tables.py`)."
    )
    return section
