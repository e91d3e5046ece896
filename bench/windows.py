"""Windowed aggregation: replay, index and DuckDB over the thesis's streams, as in its Figure 3.8.

Purpose
    One week at 100 events a second (60,480,000 events) of one and of nine doubles, windows of one
    day, slides from 10 ms to one day; sum, avg and count of one attribute.  All sides give out the
    same rows, which are read batch by batch and counted.

Peer
    DuckDB over its own table, in its faster form of two: rows aggregated per slide (by integer
    division, or by ``time_bucket``), then a window function over the slides.  One that takes
    longer than :data:`PEER_SECONDS` is interrupted and counts as that.

Sizes
    ``python -m chronicle.bench.windows --events 6048000 --figure``; ``run`` takes 600,000 events
    when short.

Limits
    Warm: every form runs once before it is counted.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import chronicle

from ..query.calibrate import calibrate
from ..query.windows.cost import save_calibration
from .harness import Row, Section

__all__ = ["Point", "figure", "measure", "run"]

WEEK_EVENTS = 60_480_000
SHORT_EVENTS = 600_000
STEP_MS = 10
DAY_MS = 86_400_000
SLIDES_MS = (10, 100, 1_000, 5_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, DAY_MS)
PEER_SECONDS = 120.0
LONG_SECONDS = 20.0
"""What takes longer is measured once."""

PIECE = 1_000_000
FIGURE = Path(__file__).resolve().parent.parent / "docs" / "windows-slides.svg"


@dataclass(frozen=True)
class Point:
    """Seconds of every side at one slide.

    Attributes
    ----------
    slide_ms : int
    replay, index, auto, peer : float
    windows : int
    chosen : str
        What auto chose.
    break_even_ms : float or None
        The slide from which on the cost model prefers the index.
    """

    slide_ms: int
    replay: float
    index: float
    auto: float
    peer: float
    windows: int
    chosen: str
    break_even_ms: float | None


class _Streams:
    """The same events in Chronicle and in DuckDB."""

    def __init__(self, directory: Path, events: int, attributes: int) -> None:
        names = [f"x{i}" for i in range(attributes)]
        fields = [pa.field("t", pa.timestamp("ms")), *(pa.field(n, pa.float64()) for n in names)]
        self.db = chronicle.open(directory / "store")
        self.peer = duckdb.connect(str(directory / "peer.db"), config={"threads": 2})
        stream = self.db.create_stream("s", pa.schema(fields), time="t", codec="none")
        columns = ", ".join(f"{name} DOUBLE" for name in names)
        self.peer.execute(f"CREATE TABLE s (t TIMESTAMP_MS, {columns})")
        rng = np.random.default_rng(38)
        start = 1_514_764_800_000
        for first in range(0, events, PIECE):
            count = min(PIECE, events - first)
            ticks = start + STEP_MS * np.arange(first, first + count)
            arrays = [pa.array(ticks).cast(pa.timestamp("ms"))]
            arrays += [pa.array(rng.random(count)) for _ in names]
            table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
            stream.append(table)
            self.peer.register("piece", table)
            self.peer.execute("INSERT INTO s SELECT * FROM piece")
            self.peer.unregister("piece")
        stream.seal()
        self.peer.execute("CHECKPOINT")

    def ours(self, slide_ms: int, strategy: str) -> int:
        """Windows that Chronicle gives out."""
        return sum(batch.num_rows for batch in self.db.sql(self.text(slide_ms, strategy)).batches())

    @staticmethod
    def text(slide_ms: int, strategy: str) -> str:
        """The query."""
        return (
            f"SELECT /*+ strategy({strategy}) */ window_start, sum(x0), avg(x0), count(x0) "
            f"FROM HOP(s, t, INTERVAL '{slide_ms} milliseconds', INTERVAL '1' DAY) "
            "GROUP BY window_start, window_end"
        )

    def theirs(self, slide_ms: int, form: str) -> int:
        """Windows that DuckDB gives out (those that begin before the stream left out)."""
        if form == "division":
            key, reach = f"epoch_ms(t) // {slide_ms}", str(DAY_MS // slide_ms - 1)
        else:
            key = f"time_bucket(INTERVAL '{slide_ms} milliseconds', t::TIMESTAMP)"
            reach = f"INTERVAL '{DAY_MS - slide_ms} milliseconds'"
        query = f"""
            WITH slides AS (SELECT {key} AS w, count(x0) AS n, sum(x0) AS s FROM s GROUP BY 1)
            SELECT w, sum(s) OVER d, sum(s) OVER d / sum(n) OVER d, sum(n) OVER d FROM slides
            WINDOW d AS (ORDER BY w RANGE BETWEEN {reach} PRECEDING AND CURRENT ROW)"""
        cursor = self.peer.cursor()
        timer = threading.Timer(PEER_SECONDS, cursor.interrupt)
        timer.start()
        try:
            return sum(batch.num_rows for batch in cursor.sql(query).to_arrow_reader())
        finally:
            timer.cancel()
            cursor.close()

    def close(self) -> None:
        self.db.close()
        self.peer.close()


def _seconds(call: Callable[[], object], runs: int) -> float:
    begin = time.perf_counter()
    try:
        call()
    except duckdb.InterruptException:
        return PEER_SECONDS
    first = time.perf_counter() - begin
    if first > LONG_SECONDS:
        return first
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(
    events: int, attributes: int, runs: int = 5, slides: tuple[int, ...] = SLIDES_MS
) -> list[Point]:
    """Measure all sides at all slides over a stream of so many events and doubles."""
    directory = Path(tempfile.mkdtemp(prefix="chronicle-bench-windows-"))
    points = []
    try:
        streams = _Streams(directory, events, attributes)
        save_calibration(streams.db.path, calibrate().calibration)
        for slide in slides:
            replay = _seconds(lambda s=slide: streams.ours(s, "replay"), runs)  # type: ignore[misc]
            index = _seconds(lambda s=slide: streams.ours(s, "index"), runs)  # type: ignore[misc]
            auto = _seconds(lambda s=slide: streams.ours(s, "auto"), runs)  # type: ignore[misc]
            peer = min(
                _seconds(lambda s=slide, f=form: streams.theirs(s, f), runs)  # type: ignore[misc]
                for form in ("division", "time_bucket")
            )
            details = _explained(streams, slide)
            points.append(
                Point(
                    slide, replay, index, auto, peer, streams.ours(slide, "index"),
                    str(details["strategy"]), details.get("break_even_slide"),
                )
            )  # fmt: skip
        streams.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return points


def _explained(streams: _Streams, slide_ms: int) -> dict[str, Any]:
    plan = streams.db.explain(streams.text(slide_ms, "auto"))
    (operator,) = [o for o in plan.operators() if o.name == "WindowAggregate"]
    return dict(operator.details)


def crossing(points: list[Point]) -> float | None:
    """The slide at which the index overtakes replay, on logarithmic scales; None without one."""
    for low, high in pairwise(points):
        a, b = math.log(low.index / low.replay), math.log(high.index / high.replay)
        if a > 0 >= b:
            share = a / (a - b)
            return float(low.slide_ms * (high.slide_ms / low.slide_ms) ** share)
    return None


def run(short: bool = False) -> Section:
    """The section for ``docs/benchmarks.md``; the full size draws the figure as well."""
    events = SHORT_EVENTS if short else WEEK_EVENTS
    return section(events, 3 if short else 5, draw=not short)


def section(events: int, runs: int, draw: bool) -> Section:
    """Measure streams of one and of nine doubles."""
    result = Section(
        "Windowed aggregation",
        f"{events:,} events at 100 a second, windows of one day; sum, avg and count of one "
        "attribute; medians, rows read by batches. The peer is DuckDB, aggregated per slide and "
        "then by a window function. A ratio is peer / index; auto is held against the better of "
        "replay and DuckDB.",
    )
    drawn = {}
    for attributes in (1, 9):
        points = measure(events, attributes, runs)
        drawn[attributes] = points
        for point in points:
            ratio = point.peer / point.index
            best = min(point.replay, point.peer) / point.auto
            long_slide = point.slide_ms >= 300_000
            reached = best >= 0.8 and (ratio >= 50 or not long_slide)
            result.rows.append(
                Row(
                    f"{attributes} x double, slide {_spoken(point.slide_ms)}",
                    f"replay {_shown(point.replay)}, index {_shown(point.index)}, "
                    f"auto {_shown(point.auto)} ({point.chosen})",
                    _shown(point.peer) + (" (interrupted)" if point.peer >= PEER_SECONDS else ""),
                    f"{ratio:.1f}×, auto {best:.2f}×",
                    "50×, auto 0.8×" if long_slide else "auto 0.8×",
                    reached,
                )
            )
        found, predicted = crossing(points), points[0].break_even_ms
        result.notes.append(
            f"{attributes} x double: the index overtakes replay at a slide of "
            f"{'no slide measured' if found is None else _spoken(found)}; the cost model says "
            f"{'no slide' if predicted is None else _spoken(predicted)}."
        )
    if draw:
        FIGURE.write_text(figure(drawn))
        result.notes.append(f"![Seconds over slide](docs/{FIGURE.name})".replace("docs/", ""))
    return result


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _spoken(milliseconds: float) -> str:
    for unit, size in (("d", DAY_MS), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.3g} ms"


def figure(drawn: dict[int, list[Point]]) -> str:
    """Seconds over slide, both logarithmic, one panel for each stream, as an SVG document."""
    width, height, left, top, tall, wide = 900, 380, 60, 40, 270, 360
    colours = {"replay": "#c8553d", "index": "#1f6f8b", "peer": "#8e8e8e", "auto": "#b08900"}
    every = [getattr(p, side) for points in drawn.values() for p in points for side in colours]
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for panel, (attributes, points) in enumerate(drawn.items()):
        origin = left + panel * (wide + 70)
        first, last = math.log(points[0].slide_ms), math.log(points[-1].slide_ms)

        def across(ms: float, o: float = origin, a: float = first, b: float = last) -> float:
            return o + (math.log(ms) - a) / ((b - a) or 1) * wide

        def down(seconds: float) -> float:
            return top + (high - math.log10(seconds)) / ((high - low) or 1) * tall

        parts.append(f'<text x="{origin}" y="20">{attributes} × double</text>')
        for power in range(low, high + 1):
            y = down(10.0**power)
            parts.append(f'<path d="M{origin} {y:.1f}h{wide}" stroke="#e3e3e3"/>')
            parts.append(
                f'<text x="{origin - 5}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} s</text>'
            )
        parts += [
            f'<text x="{across(point.slide_ms):.1f}" y="{top + tall + 18}" '
            f'text-anchor="middle">{_spoken(point.slide_ms)}</text>'
            for point in points[::2]
        ]
        if points[0].break_even_ms is not None:
            x = across(points[0].break_even_ms)
            parts.append(f'<path d="M{x:.1f} {top}v{tall}" stroke="#000" stroke-dasharray="3 3"/>')
        for side, colour in colours.items():
            corners = [f"{across(p.slide_ms):.1f} {down(getattr(p, side)):.1f}" for p in points]
            dashes = ' stroke-dasharray="6 4"' if side == "auto" else ""
            parts.append(
                f'<path d="M{"L".join(corners)}" fill="none" stroke="{colour}" '
                f'stroke-width="2"{dashes}/>'
            )
    for number, (side, colour) in enumerate(colours.items()):
        name = "DuckDB" if side == "peer" else side
        parts.append(
            f'<text x="{left + 90 * number}" y="{height - 14}" fill="{colour}">{name}</text>'
        )
    note = "dotted: break-even of the cost model"
    parts.append(f'<text x="{left + 380}" y="{height - 14}">{note}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Measure by size; print, and draw when asked."""
    parser = argparse.ArgumentParser(prog="python -m chronicle.bench.windows", description=__doc__)
    parser.add_argument("--events", type=int, default=SHORT_EVENTS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--figure", action="store_true", help=f"write {FIGURE.name}")
    options = parser.parse_args()
    print(section(options.events, options.runs, options.figure).markdown())


if __name__ == "__main__":
    main()
