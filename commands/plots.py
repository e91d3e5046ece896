"""Line plots of an answer: text in the terminal, SVG, HTML, or PNG (with the extra ``plot``).

The first column of times or numbers is the horizontal axis, every other numeric column a line
(``window_end`` and ``window_id`` are left out beside ``window_start``).  If several rows share a
place on the axis, text columns (else the first integer column that distinguishes them) are keys,
and each key has its own lines, at most ``LINES_MAX``.  Nulls and NaN are gaps.

Options decide whether an answer is drawn, and where to.
"""

from __future__ import annotations

import datetime as dt
import html
import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ..errors import InvalidArgument, MissingDependency
from ..formats.kinds import is_number

LINES_MAX = 8
_COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#8e5ea2", "#b08900", "#3d405b", "#d1495b", "#2a9d8f")
_MARKS = "•+x*o#@%"


@dataclass(frozen=True)
class Line:
    """Points from left to right; NaN in ``y`` is a gap."""

    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Series:
    """A plot; ``times``: ``x`` is epoch seconds; ``total`` is the number of lines without the
    limit.
    """

    axis: str
    times: bool
    lines: dict[str, Line]
    total: int

    @property
    def x(self) -> list[float]:
        return [x for line in self.lines.values() for x in line.x]

    @property
    def y(self) -> list[float]:
        return [y for line in self.lines.values() for y in line.y]

    @property
    def title(self) -> str:
        missing = (
            f" ({len(self.lines)} of {self.total} lines)" if self.total > len(self.lines) else ""
        )
        return f"over {self.axis}{missing}"


def series_of(table: pa.Table) -> Series:
    """Choose axis and lines of an answer; raises ``InvalidArgument`` if there are none."""
    names = list(table.schema.names)
    kinds = [table.schema.field(i).type for i in range(len(names))]
    axis = next(
        (
            i
            for i, type_ in enumerate(kinds)
            if pa.types.is_timestamp(type_) or pa.types.is_date(type_)
        ),
        next((i for i, type_ in enumerate(kinds) if is_number(type_)), None),
    )
    hidden = {"window_end", "window_id"} if "window_start" in names else set()
    lines = [
        i
        for i, type_ in enumerate(kinds)
        if i != axis and is_number(type_) and names[i] not in hidden
    ]
    if axis is None or not lines or not table.num_rows:
        raise InvalidArgument(
            "a plot needs rows, a column of times or numbers for the axis and a column of numbers "
            f"to draw; the answer has {table.num_rows} rows of {', '.join(names) or 'nothing'}"
        )
    times = not is_number(kinds[axis])
    x = [_seconds(value) if times else _number(value) for value in table.column(axis).to_pylist()]
    keys = _keys(table, axis, lines, hidden)
    lines = [i for i in lines if i not in keys]
    if not lines:
        raise InvalidArgument("a plot needs a column of numbers to draw besides axis and keys")
    rows = sorted(range(len(x)), key=lambda at: (math.isnan(x[at]), x[at]))
    labels = [table.column(i).to_pylist() for i in keys]
    groups: dict[str, list[int]] = {}
    for at in rows:
        groups.setdefault(", ".join(str(column[at]) for column in labels), []).append(at)
    drawn: dict[str, Line] = {}
    for key in sorted(groups, key=lambda key: -len(groups[key]))[:LINES_MAX]:
        for i in lines:
            values = table.column(i).to_pylist()
            name = f"{key} {names[i]}" if key and len(lines) > 1 else key or names[i]
            if len(drawn) < LINES_MAX:
                drawn[name] = Line(
                    [x[at] for at in groups[key]], [_number(values[at]) for at in groups[key]]
                )
    return Series(names[axis], times, drawn, len(groups) * len(lines))


def _keys(table: pa.Table, axis: int, lines: list[int], hidden: set[str]) -> list[int]:
    """Columns that distinguish rows of one place on the axis; raises ``InvalidArgument``."""
    names = table.schema.names

    def distinct(columns: list[int]) -> int:
        picked = [table.column(i) for i in columns]
        plain = pa.table(picked, [str(i) for i in range(len(picked))])
        return int(plain.group_by(plain.schema.names).aggregate([]).num_rows)

    if distinct([axis]) == table.num_rows:
        return []
    texts = [
        i
        for i in range(len(names))
        if i not in (axis, *lines)
        and names[i] not in hidden
        and not pa.types.is_nested(table.schema.field(i).type)
    ]
    if texts and distinct([axis, *texts]) == table.num_rows:
        return texts
    for i in lines:
        whole = pa.types.is_integer(table.schema.field(i).type)
        if whole and len(lines) > 1 and distinct([axis, *texts, i]) == table.num_rows:
            return [*texts, i]
    raise InvalidArgument(
        f"several rows share one {names[axis]} and no column of keys tells them apart: select the "
        "columns that the query groups by, or aggregate over them"
    )


def _number(value: object) -> float:
    return math.nan if value is None else float(value)  # type: ignore[arg-type]


def _seconds(value: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
        return aware.timestamp()
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.timezone.utc).timestamp()
    return float(pa.scalar(value).cast(pa.timestamp("ns")).value) / 1e9


def _bounds(values: list[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        raise InvalidArgument("there is nothing but nulls, NaN and infinities to draw")
    low, high = min(finite), max(finite)
    if low == high:
        pad = abs(low) * 0.05 or 1.0
        return low - pad, high + pad
    return low, high


def _label(value: float, span: float, times: bool) -> str:
    if not times:
        return f"{value:,.4g}"
    moment = dt.datetime.fromtimestamp(value, dt.timezone.utc)
    if span > 300 * 86_400:
        return moment.strftime("%Y-%m-%d")
    if span > 2 * 86_400:
        return moment.strftime("%m-%d %H:%M")
    return moment.strftime("%H:%M:%S" if span < 3600 * 3 else "%m-%d %H:%M")


def _thinned(x: list[float], y: list[float], columns: int) -> list[tuple[float, float]]:
    """Points reduced to the minimum and maximum of each pixel column."""
    points = list(zip(x, y, strict=True))
    if len(points) <= 4 * columns:
        return points
    low, high = _bounds(x)
    picked: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        if math.isfinite(point[0]) and math.isfinite(point[1]):
            picked.setdefault(int((point[0] - low) / (high - low) * columns), []).append(point)
    thin: list[tuple[float, float]] = []
    for place in sorted(picked):
        inside = picked[place]
        ends = {
            id(p): p
            for p in (
                inside[0],
                min(inside, key=lambda p: p[1]),
                max(inside, key=lambda p: p[1]),
                inside[-1],
            )
        }
        thin += sorted(ends.values())
    return thin


def terminal_text(series: Series, width: int = 78, height: int = 18) -> str:
    low_x, high_x = _bounds(series.x)
    low, high = _bounds(series.y)
    labels = [_label(high, 0, False), _label((low + high) / 2, 0, False), _label(low, 0, False)]
    margin = max(len(label) for label in labels) + 1
    columns = max(10, width - margin - 1)
    grid = [[" "] * columns for _ in range(height)]
    for mark, line in zip(_MARKS, series.lines.values(), strict=False):
        for x, y in zip(line.x, line.y, strict=True):
            if math.isfinite(x) and math.isfinite(y):
                column = round((x - low_x) / (high_x - low_x) * (columns - 1))
                row = round((high - y) / (high - low) * (height - 1))
                grid[row][column] = mark
    rows = []
    for number, cells in enumerate(grid):
        at = {0: 0, height // 2: 1, height - 1: 2}.get(number)
        label = labels[at] if at is not None else ""
        rows.append(f"{label:>{margin}}{'┤' if at is not None else '│'}{''.join(cells).rstrip()}")
    span = high_x - low_x
    first, last = _label(low_x, span, series.times), _label(high_x, span, series.times)
    gap = max(1, columns - len(first) - len(last))
    rows.append(f"{'':>{margin}}└{'─' * columns}")
    rows.append(f"{'':>{margin + 1}}{first}{' ' * gap}{last}")
    named = "   ".join(f"{m} {name}" for m, name in zip(_MARKS, series.lines, strict=False))
    rows.append(f"{'':>{margin + 1}}{named}   {series.title}")
    return "\n".join(rows)


def svg_text(series: Series, width: int = 860, height: int = 380) -> str:
    left, right, top, bottom = 70, 20, 34, 46
    low_x, high_x = _bounds(series.x)
    low, high = _bounds(series.y)
    inner, tall = width - left - right, height - top - bottom

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (x - low_x) / (high_x - low_x) * inner,
            top + (high - y) / (high - low) * tall,
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i in range(5):
        value = low + (high - low) * i / 4
        _, y = place(low_x, value)
        parts.append(f'<path d="M{left} {y:.1f}H{width - right}" stroke="#e3e3e3"/>')
        text = html.escape(_label(value, 0, False))
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for i in range(5):
        value = low_x + (high_x - low_x) * i / 4
        x, _ = place(value, low)
        text = html.escape(_label(value, high_x - low_x, series.times))
        parts.append(f'<text x="{x:.1f}" y="{height - 24}" text-anchor="middle">{text}</text>')
    for number, (name, line) in enumerate(series.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path: list[str] = []
        pen = "M"
        for x, y in _thinned(line.x, line.y, inner):
            if math.isfinite(x) and math.isfinite(y):
                path.append("{}{:.1f} {:.1f}".format(pen, *place(x, y)))
                pen = "L"
            else:
                pen = "M"
        parts.append(
            f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        parts.append(
            f'<text x="{left + 150 * number}" y="20" fill="{colour}">{html.escape(name)}</text>'
        )
    axis = html.escape(series.title.removeprefix("over "))
    parts.append(
        f'<text x="{left + inner / 2}" y="{height - 6}" text-anchor="middle">{axis}</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def write_plot(table: pa.Table, format: str, output: Path) -> None:
    series = series_of(table)
    if format == "svg":
        output.write_text(svg_text(series))
    elif format == "html":
        title = html.escape(", ".join(series.lines))
        output.write_text(
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
            f"{svg_text(series)}</html>\n"
        )
    else:
        _write_png(series, output)


def _write_png(series: Series, output: Path) -> None:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise MissingDependency(
            "a PNG needs matplotlib: pip install 'chronicle-eventstore[plot]'; "
            "--format svg and html need nothing"
        ) from None
    figure, axes = pyplot.subplots(figsize=(8.6, 3.8))
    for name, line in series.lines.items():
        x: list[object] = list(line.x)
        if series.times:
            x = [dt.datetime.fromtimestamp(value, dt.timezone.utc) for value in line.x]
        axes.plot(x, line.y, label=name)
    axes.set_xlabel(series.title.removeprefix("over "))
    axes.legend()
    figure.savefig(output, format="png", dpi=120)
    pyplot.close(figure)


_FORMATS = ("svg", "html", "png")
WIDTH_MAX = 160


def plot_format(format: str, plot: bool, output: Path | None) -> str | None:
    """``text``, ``svg``, ``html`` or ``png`` for a plot, else None; raises ``InvalidArgument``."""
    if format == "auto" and output is not None and output.suffix.lower()[1:] in _FORMATS:
        format = output.suffix.lower()[1:]
    if format in _FORMATS:
        if output is None:
            raise InvalidArgument(f"--format {format} writes a file: name it with --output")
        return format
    if not plot:
        return None
    if format not in ("auto", "table") or output is not None:
        raise InvalidArgument(
            "--plot draws in the terminal; for a file use --output with .svg, .html or .png"
        )
    return "text"


def draw(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, format: str, output: Path | None
) -> None:
    """Draw an answer as text on stdout, or into a file."""

    table = pa.Table.from_batches(list(batches), schema)
    if format == "text":
        size = shutil.get_terminal_size((78, 24))
        print(terminal_text(series_of(table), min(size.columns, WIDTH_MAX), 18))
        return
    assert output is not None
    write_plot(table, format, output)
