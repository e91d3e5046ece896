"""Live queries: events per second against Flink SQL and the same SELECT.

Steps are timed while a stream grows by commits of ``COMMIT`` events, including commits of results
but not the appends.  The peer is Flink's job minus its reading time, without durability.  Also the
catch-up of a paused query.  Rows must be equal, except those still open at the end.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import chronicle

from .flink import FlinkAnswer, FlinkJob, FlinkMissing, measure
from .harness import Row, Section

SCHEMA = pa.schema([pa.field("t", pa.timestamp("ms"), False), ("k", pa.int64()), ("v", pa.int64())])
COMMIT = 50_000
RUNS = 3
MINUTE = 60_000
NOISE = 0.05
"""Share of reading below which Flink's remaining time is noise."""
MATCH = """PARTITION BY k ORDER BY t MEASURES A.t AS a, C.t AS c ONE ROW PER MATCH
    AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) {within}
    DEFINE A AS {a}v < 10000, B AS {b}v > 500000, C AS {c}v < 200000"""
PAIRS = """SELECT {a} AS a, {b} AS b, a.k AS k FROM s AS a JOIN s AS b
    ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '10' SECOND
    WHERE a.v < 100000 AND b.v > 900000"""


@dataclass(frozen=True)
class Case:
    """A query in both languages; rows are compared up to a time, its first column."""

    name: str
    sql: str
    flink: str
    columns: str
    bar: float


CASES = (
    Case(
        "filter, 0.1 % (figure 4.8)", "SELECT t, k, v FROM s WHERE v < 1000",
        "SELECT t, k, v FROM s WHERE v < 1000", "t TIMESTAMP(3), k BIGINT, v BIGINT", 100,
    ),
    Case(
        "window of a minute, 100 keys",
        "SELECT window_start, k, count(*) AS n, sum(v)::BIGINT AS total FROM TUMBLE(s, t, INTERVAL "
        "'1' MINUTE) GROUP BY window_start, window_end, k",
        "SELECT window_start, k, count(*), sum(v) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), "
        "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, k",
        "w TIMESTAMP(3), k BIGINT, n BIGINT, total BIGINT", 50,
    ),
    Case(
        "join within 10 s, 100 keys", PAIRS.format(a="a.t", b="b.t"),
        PAIRS.format(a="CAST(a.t AS TIMESTAMP(3))", b="CAST(b.t AS TIMESTAMP(3))"),
        "a TIMESTAMP(3), b TIMESTAMP(3), k BIGINT", 20,
    ),
    Case(
        "pattern (A B+ C) within a minute, 100 keys",
        "SELECT a, c, k FROM s MATCH_RECOGNIZE ("
        + MATCH.format(within="WITHIN INTERVAL '1' MINUTE", a="", b="", c="") + ")",
        "SELECT a, c, k FROM s MATCH_RECOGNIZE ("
        + MATCH.format(within="WITHIN INTERVAL '60.001' SECOND", a="A.", b="B.", c="C.") + ")",
        "a TIMESTAMP(3), c TIMESTAMP(3), k BIGINT", 50,
    ),
)  # fmt: skip


def events(count: int) -> pa.Table:
    drawn = np.random.default_rng(15)
    t = pa.array(1_500_000_000_000 + 10 * np.arange(count), pa.timestamp("ms"))
    return pa.table([t, drawn.integers(0, 100, count), drawn.integers(0, 1_000_000, count)], SCHEMA)


def _stored(work: Callable[[Any, Any], Any]) -> Any:
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch,
        chronicle.open(Path(scratch) / "store") as database,
    ):
        return work(database, database.create_stream("s", SCHEMA, time="t"))


def _live(case: Case, table: pa.Table) -> tuple[float, pa.Table]:

    def grow(database: Any, stream: Any) -> tuple[float, pa.Table]:
        live = database.create_live("q", case.sql)
        taken = 0.0
        for at in range(0, table.num_rows, COMMIT):
            stream.append(table.slice(at, COMMIT))
            begun = time.perf_counter()
            database.run_live()
            taken += time.perf_counter() - begun
        net = live.net()
        return taken, net.select([name for name in net.column_names if name[0] != "_"])

    found: tuple[float, pa.Table] = _stored(grow)
    return found


def _catching_up(case: Case, table: pa.Table) -> tuple[float, float]:
    """Seconds to catch up, and of the SELECT, in separate stores."""

    def behind(database: Any, stream: Any) -> Any:
        stream.append(table.slice(0, COMMIT))
        live = database.create_live("q", case.sql)
        database.run_live()
        live.pause()
        stream.append(table.slice(COMMIT))
        return live

    def catch_up(database: Any, stream: Any) -> float:
        behind(database, stream).resume()
        begun = time.perf_counter()
        database.run_live()
        return time.perf_counter() - begun

    def ask(database: Any, stream: Any) -> float:
        behind(database, stream)
        text = case.sql.replace("SELECT", "SELECT /*+ strategy(replay) */", 1)
        text = text if "MATCH" in text or "TUMBLE" in text else case.sql
        begun = time.perf_counter()
        database.sql(text).arrow()
        return time.perf_counter() - begun

    return _stored(catch_up), _stored(ask)


def _rows(table: pa.Table, before: int) -> list[tuple[Any, ...]]:
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms")).cast(pa.int64())
        columns.append(column.to_pylist())
    return sorted(row for row in zip(*columns, strict=True) if row[0] < before)


def _flink(
    table: pa.Table, jobs: list[FlinkJob], runs: int
) -> dict[FlinkJob, FlinkAnswer] | FlinkMissing:
    try:
        return measure(table.set_column(0, "t", table["t"].cast(pa.int64())), jobs, runs)
    except FlinkMissing as missing:
        return missing


def run(short: bool = False) -> Section:
    table = events(100_000 if short else 500_000)
    end = table["t"][-1].value - 2 * MINUTE
    reading = FlinkJob("read", "")
    jobs = {case: FlinkJob(case.name, "", case.columns, query=case.flink) for case in CASES}
    answers = _flink(table, [reading, *jobs.values()], 1 if short else RUNS - 1)
    peer = "none" if isinstance(answers, FlinkMissing) else f"Flink {answers[reading].version}"
    section = Section(
        "Live queries",
        f"{table.num_rows:,} events, one each 10 ms, 100 keys, committed {COMMIT:,} at a time; one "
        f"query, the time of its steps with their durable commits. Peer: {peer}, streaming mode, "
        "parallelism 1, objects reused, no checkpoints, its reading of the rows (CSV) subtracted. "
        "Catching up: a live query that was paused, beside the same SELECT once over the stream, "
        "each in a store of its own. "
        f"Each the fastest of {RUNS} runs, of Flink {RUNS - 1}.",
    )
    if isinstance(answers, FlinkMissing):
        section.notes.append(f"Flink was not measured: {answers}.")
    for case in CASES:
        timed = [_live(case, table) for _ in range(RUNS)]
        seconds = min(taken for taken, _ in timed)
        rate = table.num_rows / seconds
        if isinstance(answers, FlinkMissing):
            section.rows.append(Row(case.name, f"{rate / 1e6:.2f} M/s", "", "", f"{case.bar:g}x"))
        else:
            answer = answers[jobs[case]]
            assert answer.rows is not None
            mine, theirs = _rows(timed[0][1], end), _rows(answer.rows, end)
            if mine != theirs:
                raise AssertionError(f"{case.name}: {len(mine)} rows, {len(theirs)} of Flink")
            other = answer.seconds - answers[reading].seconds
            seen = other > NOISE * answers[reading].seconds
            reached = None if not seen else other / seconds >= case.bar
            section.rows.append(
                Row(
                    case.name, f"{rate / 1e6:.2f} M/s",
                    f"{table.num_rows / other / 1e6:.2f} M/s" if seen else "as reading alone",
                    f"{other / seconds:.1f}x" if seen else "", f"{case.bar:g}x", reached,
                )
            )  # fmt: skip
    if not isinstance(answers, FlinkMissing):
        whole = ", ".join(f"{case.name}: {answers[jobs[case]].seconds:.2f} s" for case in CASES)
        section.notes.append(
            f"Flink took {answers[reading].seconds:.2f} s to read the rows, and with the queries: "
            f"{whole}."
        )
    for case in CASES:
        pairs = [_catching_up(case, table) for _ in range(RUNS)]
        took, once = min(ours for ours, _ in pairs), min(other for _, other in pairs)
        section.rows.append(
            Row(
                f"catching up: {case.name}", f"{took:.2f} s", f"{once:.2f} s",
                f"{once / took:.2f}x", "0.8x", once / took >= 0.8,
            )
        )  # fmt: skip
    return section
