"""Live queries: events per second against Flink SQL and the same SELECT.

A stream grows by commits of ``COMMIT`` events, and the query steps after each; appends and commits
of results are durable.  The peer is Flink's job over the same rows, without durability, whole and
minus the time of a job that only reads.  Then the same events, of which every tenth comes
``LATE`` later: both wait as long, or the live query corrects its results at once.
Also the catch-up of a paused query.  Rows must be equal, except those still open at the end.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import chronicle

from .flink import FlinkAnswer, FlinkJob, FlinkMissing, measure
from .harness import Row, Section

SCHEMA = pa.schema([pa.field("t", pa.timestamp("ms"), False), ("k", pa.int64()), ("v", pa.int64())])
COMMIT = 10_000
RUNS = 3
MINUTE = 60_000
LATE = 6 * MINUTE
NOISE = 0.05
"""Share of reading below which Flink's remaining time is noise."""
MATCH = """PARTITION BY k ORDER BY t MEASURES A.t AS a, C.t AS c ONE ROW PER MATCH
    AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) {within}
    DEFINE A AS {a}v < 10000, B AS {b}v > 500000, C AS {c}v < 200000"""
PAIRS = """SELECT {a} AS a, {b} AS b, a.k AS k FROM s AS a JOIN s AS b
    ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '10' SECOND
    WHERE a.v < 100000 AND b.v > 900000"""


VALLEY = """PARTITION BY k ORDER BY t MEASURES A.t AS a, U.t AS u ONE ROW PER MATCH
    AFTER MATCH SKIP PAST LAST ROW PATTERN (A D{2} U)"""


@dataclass(frozen=True)
class Case:
    """A query in both languages; rows are compared up to a time, its first column.  ``setup``: a
    statement for Flink before it; ``bar``: of what Flink adds to reading; ``ordered``: it is not
    corrected; ``lossy``: Flink forgets late events, so rows are compared with its rows in order.
    """

    name: str
    sql: str
    flink: str
    columns: str
    bar: float | None = None
    setup: str = ""
    ordered: bool = False
    lossy: bool = False

    def job(self, delay: int) -> FlinkJob:
        return FlinkJob(
            self.name, "", self.columns, query=self.flink, setup=self.setup, delay_ms=delay
        )


def _windows(name: str, call: str, theirs: str, bar: float | None = None) -> Case:
    groups = "GROUP BY window_start, window_end, k"
    return Case(
        name,
        f"SELECT window_start, k, count(*) AS n, sum(v)::BIGINT AS total FROM {call} {groups}",
        f"SELECT window_start, k, count(*), sum(v) FROM TABLE({theirs}) {groups}",
        "w TIMESTAMP(3), k BIGINT, n BIGINT, total BIGINT",
        bar,
    )


CASES = (
    Case(
        "filter, 0.1 % (figure 4.8)", "SELECT t, k, v FROM s WHERE v < 1000",
        "SELECT t, k, v FROM s WHERE v < 1000", "t TIMESTAMP(3), k BIGINT, v BIGINT", 100,
    ),
    Case(
        "filter, 10 %", "SELECT t, k, v FROM s WHERE v < 100000",
        "SELECT t, k, v FROM s WHERE v < 100000", "t TIMESTAMP(3), k BIGINT, v BIGINT",
    ),
    _windows(
        "window of a minute, 100 keys", "TUMBLE(s, t, INTERVAL '1' MINUTE)",
        "TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE)", 50,
    ),
    _windows(
        "window of a minute each 10 s, 100 keys",
        "HOP(s, t, INTERVAL '10' SECOND, INTERVAL '1' MINUTE)",
        "HOP(TABLE s, DESCRIPTOR(t), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)",
    ),
    _windows(
        "sessions with a gap of 3 s, 100 keys", "SESSION(s PARTITION BY k, t, INTERVAL '3' SECOND)",
        "SESSION(TABLE s PARTITION BY k, DESCRIPTOR(t), INTERVAL '3' SECOND)",
    ),
    Case(
        "windows of 10 events", "SELECT max(t) AS w, sum(v)::BIGINT AS total "
        "FROM TUMBLE_ROWS(s, 10) GROUP BY window_id",
        "SELECT w, total FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES LAST(A.t) AS w, SUM(A.v) AS "
        "total ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A{10}) DEFINE A AS TRUE)",
        "w TIMESTAMP(3), total BIGINT", ordered=True,
    ),
    Case(
        "join within 10 s, 100 keys", PAIRS.format(a="a.t", b="b.t"),
        PAIRS.format(a="CAST(a.t AS TIMESTAMP(3))", b="CAST(b.t AS TIMESTAMP(3))"),
        "a TIMESTAMP(3), b TIMESTAMP(3), k BIGINT", 20,
    ),
    Case(
        "join with the last before, 100 keys",
        "SELECT a.t AS t, a.k AS k, a.v AS v, b.v AS w FROM s AS a"
        " RECENT LAST 1 JOIN (SELECT * FROM s WHERE v < 500000) AS b PERIOD (t, t) ON a.k = b.k"
        " WITHIN INTERVAL '1' MINUTE WHERE a.v > 950000",
        "SELECT CAST(a.t AS TIMESTAMP(3)), a.k, a.v, b.v FROM s AS a JOIN newest FOR SYSTEM_TIME "
        "AS OF a.t AS b ON a.k = b.k WHERE a.v > 950000",
        "t TIMESTAMP(3), k BIGINT, v BIGINT, w BIGINT",
        setup="CREATE TEMPORARY VIEW newest AS SELECT k, t, v FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY k ORDER BY t DESC) AS n FROM s WHERE v < 500000) WHERE n = 1",
        lossy=True,
    ),
    Case(
        "pattern (A B+ C) within a minute, 100 keys",
        "SELECT a, c, k FROM s MATCH_RECOGNIZE ("
        + MATCH.format(within="WITHIN INTERVAL '1' MINUTE", a="", b="", c="") + ")",
        "SELECT a, c, k FROM s MATCH_RECOGNIZE ("
        + MATCH.format(within="WITHIN INTERVAL '60.001' SECOND", a="A.", b="B.", c="C.") + ")",
        "a TIMESTAMP(3), c TIMESTAMP(3), k BIGINT", 50,
    ),
    Case(
        "pattern (A D{2} U), down and up, within a minute, 100 keys",
        f"SELECT a, u, k FROM s MATCH_RECOGNIZE ({VALLEY} WITHIN INTERVAL '1' MINUTE "
        "DEFINE D AS v < PREV(v), U AS v > PREV(v))",
        f"SELECT a, u, k FROM s MATCH_RECOGNIZE ({VALLEY} WITHIN INTERVAL '60.001' SECOND DEFINE "
        "D AS (LAST(D.v, 1) IS NULL AND D.v < A.v) OR D.v < LAST(D.v, 1), U AS U.v > LAST(D.v))",
        "a TIMESTAMP(3), u TIMESTAMP(3), k BIGINT",
    ),
)  # fmt: skip


def events(count: int) -> pa.Table:
    drawn = np.random.default_rng(15)
    t = pa.array(1_500_000_000_000 + 10 * np.arange(count), pa.timestamp("ms"))
    return pa.table([t, drawn.integers(0, 100, count), drawn.integers(0, 1_000_000, count)], SCHEMA)


def _late(table: pa.Table) -> pa.Table:
    """The events in another order: every tenth comes behind those of ``LATE`` later."""
    arrival = np.arange(table.num_rows)
    arrival[np.random.default_rng(16).random(table.num_rows) < 0.1] += LATE // 10
    return table.take(np.argsort(arrival, kind="stable"))


def _stored(work: Callable[[Any, Any], Any]) -> Any:
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch,
        chronicle.open(Path(scratch) / "store") as database,
    ):
        return work(database, database.create_stream("s", SCHEMA, time="t"))


def _live(case: Case, table: pa.Table, delay: int = 0) -> tuple[float, float, pa.Table]:
    """Seconds of the steps, and with the appends; and the rows."""

    def grow(database: Any, stream: Any) -> tuple[float, float, pa.Table]:
        wait = dt.timedelta(milliseconds=delay) if delay else None
        late = "ignore" if case.ordered else "correct"
        live = database.create_live("q", case.sql, delay=wait, late=late)
        steps, begun = 0.0, time.perf_counter()
        for at in range(0, table.num_rows, COMMIT):
            stream.append(table.slice(at, COMMIT))
            step = time.perf_counter()
            database.run_live()
            steps += time.perf_counter() - step
        whole, net = time.perf_counter() - begun, live.net()
        return steps, whole, net.select([name for name in net.column_names if name[0] != "_"])

    found: tuple[float, float, pa.Table] = _stored(grow)
    return found


def _catching_up(case: Case, table: pa.Table) -> tuple[float, float]:
    """Seconds to catch up, and of the SELECT, in separate stores."""

    def behind(database: Any, stream: Any) -> Any:
        stream.append(table.slice(0, COMMIT))
        live = database.create_live("q", case.sql, late="ignore" if case.ordered else "correct")
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


Rows = list[tuple[Any, ...]]


def _rows(table: pa.Table, before: int) -> Rows:
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


def _beside_flink(
    section: Section, table: pa.Table, delay: int, short: bool, rows_in_order: dict[Case, Rows],
    seconds_in_order: dict[Case, float],
) -> None:  # fmt: skip
    """Rows of all cases over events in this order, which are late by up to ``delay`` ms."""
    cases = [case for case in CASES if not (delay and case.ordered)]
    end = pc.max(table["t"]).value - 2 * MINUTE - delay
    reading, jobs = FlinkJob("read", "", delay_ms=delay), [case.job(delay) for case in cases]
    answers = _flink(table, [reading, *jobs], 1 if short else RUNS - 1)
    if isinstance(answers, FlinkMissing):
        section.notes.append(f"Flink was not measured: {answers}.")
    elif not delay:
        section.notes.append(f"Flink {answers[reading].version}.")
    late = ", 10 % late" if delay else ""
    for case, job in zip(cases, jobs, strict=True):
        timed = [_live(case, table, delay) for _ in range(RUNS)]
        steps, whole = (min(each[i] for each in timed) for i in range(2))
        adds, theirs, bar = "", "", "" if case.bar is None or delay else f"{case.bar:g}x"
        ratios, reached = ["", ""], None
        if not isinstance(answers, FlinkMissing):
            answer, read = answers[job], answers[reading].seconds
            assert answer.rows is not None
            mine, other = _rows(timed[0][2], end), _rows(answer.rows, end)
            if not delay:
                rows_in_order[case] = other
            elif case.lossy:
                other = [row for row in rows_in_order[case] if row[0] < end]
            if mine != other:
                raise AssertionError(f"{case.name}{late}: {len(mine)} rows, {len(other)} of Flink")
            more = answer.seconds - read
            seen = more > NOISE * read
            adds = f"{table.num_rows / more / 1e6:.2f} M/s" if seen else "as reading alone"
            theirs = f"{table.num_rows / answer.seconds / 1e6:.2f} M/s"
            ratios = [f"{more / steps:.1f}x" if seen else "", f"{answer.seconds / whole:.1f}x"]
            reached = None if not (seen and bar) else more / steps >= (case.bar or 0)
        for what, seconds, peer, ratio in (
            ("", steps, adds, ratios[0]), (", with appends and reading", whole, theirs, ratios[1]),
        ):  # fmt: skip
            rate = f"{table.num_rows / seconds / 1e6:.2f} M/s"
            row = Row(f"{case.name}{late}{what}", rate, peer, ratio)
            row.bar, row.reached = ("", None) if what else (bar, reached)
            section.rows.append(row)
        if delay:
            again = [_live(case, table) for _ in range(RUNS)]
            corrected = min(each[0] for each in again)
            if _rows(again[0][2], end) != _rows(timed[0][2], end):
                raise AssertionError(f"{case.name}: corrections give other rows")
            share = seconds_in_order[case] / corrected
            section.rows.append(
                Row(
                    f"{case.name}{late}, corrected at once, of in order",
                    f"{table.num_rows / corrected / 1e6:.2f} M/s",
                    f"{table.num_rows / seconds_in_order[case] / 1e6:.2f} M/s",
                    f"{share:.2f}x", "0.6x", share >= 0.6,
                )
            )  # fmt: skip
        seconds_in_order.setdefault(case, steps)


def run(short: bool = False) -> Section:
    table = events(100_000 if short else 500_000)
    section = Section(
        "Live queries",
        f"{table.num_rows:,} events, one each 10 ms, 100 keys, committed {COMMIT:,} at a time; one "
        "query, the time of its steps with their durable commits, and with the durable appends. "
        "Peer: Flink, streaming mode, parallelism 1, objects reused, no checkpoints, its reading "
        "of the rows (CSV) subtracted, and whole. Late: every tenth event comes after those of six "
        "minutes later; both wait as long (DELAY), or Chronicle corrects its results at once. "
        "Catching up: a live query that was paused, beside the same SELECT once over the stream, "
        "each in a store of its own. "
        f"Each the fastest of {RUNS} runs, of Flink {RUNS - 1}.",
    )
    rows_in_order: dict[Case, Rows] = {}
    seconds_in_order: dict[Case, float] = {}
    _beside_flink(section, table, 0, short, rows_in_order, seconds_in_order)
    _beside_flink(section, _late(table), LATE + 100, short, rows_in_order, seconds_in_order)
    for case in CASES:
        pairs = [_catching_up(case, table) for _ in range(RUNS)]
        took, once = min(ours for ours, _ in pairs), min(other for _, other in pairs)
        section.rows.append(
            Row(
                f"catching up: {case.name}", f"{took:.3f} s", f"{once:.3f} s",
                f"{once / took:.2f}x", "0.9x", once / took >= 0.9,
            )
        )  # fmt: skip
    return section
