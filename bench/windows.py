"""Windowed aggregation: replay, index and DuckDB, as in the thesis's Figure 3.8.

One week at 100 events a second of one and of nine doubles, windows of one day, slides from 10 ms to
one day; sum, avg and count.  Then the same number of windows over ten times fewer and more events.
DuckDB aggregates rows per slide, then applies a window function with RANGE or ROWS, whichever is
faster; after ``PEER_SECONDS`` it is stopped.  Windows are compared by position-weighted digests,
without those past the last event, which DuckDB lacks.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import chronicle

from .figures import lines, require
from .harness import Row, Section

WEEK_EVENTS = 60_480_000
SHORT_EVENTS = 604_800
STEP_MS = 10
START_MS = 1_514_764_800_000
DAY_MS = 86_400_000
SLIDES_MS = (
    10, 100, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000,
    DAY_MS,
)  # fmt: skip
TRIAL_MS = 60_000
PEER_SECONDS = 60.0
LONG_SECONDS = 3.0
RUNS_MAX = 5
PIECE = 2_000_000
SIDES = ("replay", "index", "auto", "DuckDB")
FORMS = ("RANGE", "ROWS")


@dataclass(frozen=True)
class Digest:
    """Windows, counts and sums, weighted by the window's position."""

    windows: int
    counts: int
    total: float

    def equals(self, other: Digest) -> bool:
        """Equal windows and counts, and sums up to rounding."""
        return (self.windows, self.counts) == (other.windows, other.counts) and math.isclose(
            self.total, other.total, rel_tol=1e-9
        )


@dataclass(frozen=True)
class Point:
    """Seconds by side at one slide, and what the cost model expects of replay and index."""

    slide_ms: int
    seconds: dict[str, float]
    chosen: str
    expected: dict[str, float]
    stopped: bool


class _Stopped(Exception):
    """The peer exceeded its time."""


class _Stream:
    def __init__(self, directory: Path, events: int, attributes: int, peer: bool) -> None:
        names = [f"x{i}" for i in range(attributes)]
        fields = [pa.field("t", pa.timestamp("ms")), *(pa.field(n, pa.float64()) for n in names)]
        self.end_ms = START_MS + STEP_MS * events
        self.db = chronicle.open(directory / "store")
        self.peer = None
        if peer:
            settings = {"threads": os.cpu_count() or 1, "temp_directory": str(directory)}
            self.peer = duckdb.connect(str(directory / "peer.db"), config=settings)
            columns = ", ".join(f"{name} DOUBLE" for name in names)
            self.peer.execute(f"CREATE TABLE s (t TIMESTAMP_MS, {columns})")
        stream = self.db.create_stream("s", pa.schema(fields), time="t", codec="none")
        rng = np.random.default_rng(38)
        for first in range(0, events, PIECE):
            count = min(PIECE, events - first)
            ticks = START_MS + STEP_MS * np.arange(first, first + count)
            arrays = [pa.array(ticks).cast(pa.timestamp("ms"))]
            arrays += [pa.array(rng.random(count)) for _ in names]
            table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
            stream.append(table)
            if self.peer is not None:
                self.peer.register("piece", table)
                self.peer.execute("INSERT INTO s SELECT * FROM piece")
                self.peer.unregister("piece")
        stream.seal()
        if self.peer is not None:
            self.peer.execute("CHECKPOINT")

    @staticmethod
    def text(slide_ms: int, strategy: str, size_ms: int = DAY_MS) -> str:
        return (
            f"SELECT /*+ strategy({strategy}) */ window_start, sum(x0) AS s, avg(x0) AS a, "
            f"count(x0) AS n FROM HOP(s, t, INTERVAL '{slide_ms} milliseconds', "
            f"INTERVAL '{size_ms} milliseconds') GROUP BY window_start, window_end"
        )

    def ours(self, slide_ms: int, strategy: str, size_ms: int = DAY_MS) -> Digest:
        batches = self.db.sql(self.text(slide_ms, strategy, size_ms)).batches()
        # DuckDB returns only windows whose last slide has events
        last_ms = (self.end_ms - 1) // slide_ms * slide_ms + slide_ms - size_ms
        return _digest(batches, slide_ms, last_ms)

    def theirs(self, slide_ms: int, form: str) -> Digest:
        assert self.peer is not None
        reach = DAY_MS // slide_ms - 1
        query = f"""
            WITH slides AS (
                SELECT epoch_ms(CAST(t AS TIMESTAMP)) // {slide_ms} AS w,
                    count(x0) AS n, sum(x0) AS s
                FROM s GROUP BY 1)
            SELECT (w - {reach}) * {slide_ms} AS window_start, sum(s) OVER d AS s,
                sum(s) OVER d / sum(n) OVER d AS a, (sum(n) OVER d)::BIGINT AS n FROM slides
            WINDOW d AS (ORDER BY w {form} BETWEEN {reach} PRECEDING AND CURRENT ROW)"""
        cursor = self.peer.cursor()
        over = threading.Event()

        def stop() -> None:
            over.set()
            cursor.interrupt()

        timer = threading.Timer(PEER_SECONDS, stop)
        timer.start()
        try:
            return _digest(cursor.sql(query).to_arrow_reader(), slide_ms, None)
        except (duckdb.Error, OSError) as error:  # its Arrow reader raises OSError
            if over.is_set():
                raise _Stopped from error
            raise
        finally:
            timer.cancel()
            timer.join()
            cursor.close()

    def explained(self, slide_ms: int) -> dict[str, Any]:
        plan = self.db.explain(self.text(slide_ms, "auto"))
        (operator,) = [o for o in plan.operators() if o.name == "WindowAggregate"]
        return dict(operator.details)

    def close(self) -> None:
        self.db.close()
        if self.peer is not None:
            self.peer.close()


def _digest(batches: Iterable[pa.RecordBatch], slide_ms: int, last_ms: int | None) -> Digest:
    windows = counts = 0
    total = 0.0
    for batch in batches:
        starts = np.frombuffer(_values(batch, "window_start"), np.int64)[: batch.num_rows]
        sums = np.frombuffer(_values(batch, "s"), np.float64)[: batch.num_rows]
        numbers = np.frombuffer(_values(batch, "n"), np.int64)[: batch.num_rows]
        weights = starts // slide_ms % 1009 + 1
        if last_ms is not None and int(starts.max(initial=-(2**62))) > last_ms:
            kept = starts <= last_ms
            weights, sums, numbers = weights[kept], sums[kept], numbers[kept]
        windows += len(weights)
        counts += int(weights @ numbers)
        total += float(weights @ sums)
    return Digest(windows, counts, total)


def _values(batch: pa.RecordBatch, name: str) -> Any:
    array = batch.column(batch.schema.get_field_index(name))
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms")).view(pa.int64())
    assert array.null_count == 0
    return array.to_numpy()


@contextmanager
def _stream(events: int, attributes: int, peer: bool) -> Iterator[_Stream]:
    scratch = os.environ.get("CHRONICLE_BENCH_DIR")
    directory = Path(tempfile.mkdtemp(prefix="chronicle-bench-windows-", dir=scratch))
    try:
        stream = _Stream(directory, events, attributes, peer)
        try:
            yield stream
        finally:
            stream.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _Timed:
    def __init__(self, call: Callable[[], Digest]) -> None:
        self.digest: Digest | None = None
        begin = time.perf_counter()
        try:
            self.digest = call()
        except _Stopped:
            self.seconds = PEER_SECONDS
            return
        self.seconds = time.perf_counter() - begin
        if self.seconds > LONG_SECONDS:
            return
        times = []
        for _ in range(max(2, min(RUNS_MAX, int(1.5 / self.seconds)))):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        self.seconds = statistics.median(times)


def measure(stream: _Stream, slides: tuple[int, ...] = SLIDES_MS) -> list[Point]:
    tried = {form: _Timed(lambda f=form: stream.theirs(TRIAL_MS, f)).seconds for form in FORMS}  # type: ignore[misc]
    form = min(tried, key=lambda name: tried[name])
    points = []
    for slide in slides:
        details = stream.explained(slide)
        chosen = str(details["strategy"])
        made = {
            side: _Timed(lambda s=slide, o=side: stream.ours(s, o))  # type: ignore[misc]
            for side in ("replay", "index")
        }
        made["auto"] = made[chosen]
        if made[chosen].seconds <= LONG_SECONDS:
            made["auto"] = _Timed(lambda s=slide: stream.ours(s, "auto"))  # type: ignore[misc]
        made["DuckDB"] = _Timed(lambda s=slide: stream.theirs(s, form))  # type: ignore[misc]
        digests = {side: timed.digest for side, timed in made.items() if timed.digest is not None}
        for side, digest in digests.items():
            if not digest.equals(digests["replay"]):
                raise SystemExit(
                    f"slide {slide} ms: {side} gives {digest}, not {digests['replay']}"
                )
        points.append(
            Point(
                slide, {side: made[side].seconds for side in SIDES}, chosen,
                {side: details[f"cost_{side}_ms"] for side in ("replay", "index")},
                made["DuckDB"].digest is None,
            )
        )  # fmt: skip
    return points


def crossing(points: list[Point], costs: Callable[[Point], dict[str, float]]) -> float | None:
    """The slide from which the index is cheaper, log-interpolated; None without one."""
    found = None
    for low, high in pairwise(points):
        a, b = (math.log(costs(p)["index"] / costs(p)["replay"]) for p in (low, high))
        if a > 0 >= b:
            found = low.slide_ms * (high.slide_ms / low.slide_ms) ** (a / (a - b))
    return found


def run(short: bool = False) -> Section:
    if not short:
        require()
    events = SHORT_EVENTS if short else WEEK_EVENTS
    result = Section(
        "Windowed aggregation",
        f"{events:,} events at 100 a second, windows of one day; sum, avg and count of one "
        "attribute; medians, all rows read and compared by digests. The peer is DuckDB over its "
        "own table, rows aggregated per slide and then a window function over slides. A ratio is "
        "DuckDB / index; auto is held against the better of replay and DuckDB.",
    )
    for attributes in (1, 9):
        with _stream(events, attributes, peer=True) as stream:
            points = measure(stream)
            if attributes == 1:
                scaled = {events: _index_seconds(stream, events)}
        _compare(result, attributes, points)
        if not short:
            _draw(attributes, points)
    for other in (events // 10, events * 10):
        with _stream(other, 1, peer=False) as stream:
            scaled[other] = _index_seconds(stream, other)
    _scaling(result, scaled)
    if not short:
        result.notes.append("![Seconds over slide, one double](figures/windows-slides.svg)")
        result.notes.append("![Seconds over slide, nine doubles](figures/windows-slides-9.svg)")
    return result


def _compare(result: Section, attributes: int, points: list[Point]) -> None:
    for point in points:
        seconds = point.seconds
        ratio = seconds["DuckDB"] / seconds["index"]
        best = min(seconds["replay"], seconds["DuckDB"]) / seconds["auto"]
        long_slide = point.slide_ms >= 300_000
        result.rows.append(
            Row(
                f"{attributes} x double, slide {_spoken(point.slide_ms)}",
                f"replay {_shown(seconds['replay'])}, index {_shown(seconds['index'])}, "
                f"auto {_shown(seconds['auto'])} ({point.chosen})",
                f"stopped after {_shown(PEER_SECONDS)}"
                if point.stopped
                else _shown(seconds["DuckDB"]),
                f"{'>' if point.stopped else ''}{ratio:.1f}×, auto {best:.2f}×",
                "50×, auto 0.8×" if long_slide else "auto 0.8×",
                best >= 0.8 and (ratio >= 50 or not long_slide),
            )
        )
    found, predicted = crossing(points, lambda p: p.seconds), crossing(points, lambda p: p.expected)
    both = found is not None and predicted is not None
    off = max(found / predicted, predicted / found) if found and predicted else None
    result.rows.append(
        Row(
            f"{attributes} x double, break-even of index and replay",
            "no slide measured" if found is None else f"measured {_spoken(found)}",
            "no slide" if predicted is None else f"cost model {_spoken(predicted)}",
            "" if off is None else f"off by {off:.2f}×",
            "2×",
            both and off is not None and off <= 2,
        )
    )


def _index_seconds(stream: _Stream, events: int) -> float:
    slide = STEP_MS * events // 168
    return _Timed(lambda: stream.ours(slide, "index", 24 * slide)).seconds


def _scaling(result: Section, scaled: dict[int, float]) -> None:
    least = min(scaled)
    for events in sorted(scaled):
        result.rows.append(
            Row(
                f"1 x double, {events:,} events, 191 windows",
                f"index {_shown(scaled[events])}",
                f"{least:,} events: {_shown(scaled[least])}",
                f"{scaled[events] / scaled[least]:.2f}× the time of {events // least}× the events",
            )
        )


def _draw(attributes: int, points: list[Point]) -> None:
    suffix = "" if attributes == 1 else f"-{attributes}"
    lines(
        f"windows-slides{suffix}",
        f"Windows of one day over a week of {attributes} double{'s' if attributes > 1 else ''} "
        "at 100 events a second",
        "slide",
        "seconds",
        {side: [(float(p.slide_ms), p.seconds[side]) for p in points] for side in SIDES},
        ticks={float(ms): _spoken(ms) for ms in (10, 100, 1000, 10_000, 60_000, 900_000, DAY_MS)},
    )


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _spoken(milliseconds: float) -> str:
    for unit, size in (("d", DAY_MS), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.3g} ms"
