"""Line plots of an answer: text in the terminal, SVG, HTML, or PNG (with the extra ``plot``).

The first column of times or numbers is the horizontal axis, every other numeric column a line
(``window_end`` and ``window_id`` are left out beside ``window_start``).  If several rows share a
place on the axis, text columns (else the first integer column that distinguishes them) are keys,
and each key has its own lines, at most ``LINES_MAX``.  Nulls and NaN are gaps.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import InvalidArgument, MissingDependency
from .kinds import is_number

LINES_MAX = 8
_COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#8e5ea2", "#b08900", "#3d405b", "#d1495b", "#2a9d8f")
TEXT = "#1b2330"
FORMATS = ("svg", "html", "png")
_MARKS = "•+x*o#@%"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """Points from left to right; NaN in ``y`` is a gap."""

    x: Floats
    y: Floats

    @property
    def finite(self) -> npt.NDArray[np.bool_]:
        return np.isfinite(self.x) & np.isfinite(self.y)


@dataclass(frozen=True, repr=False)
class Series:
    """A plot; ``times``: ``x`` is epoch seconds; ``total`` is the number of lines without the
    limit.
    """

    axis: str
    times: bool
    lines: dict[str, Line]
    total: int

    def bounds(self) -> tuple[float, float, float, float]:
        """The least and the greatest ``x``, and those of ``y``."""
        lines = self.lines.values()
        return (
            *_bounds(np.concatenate([line.x for line in lines])),
            *_bounds(np.concatenate([line.y for line in lines])),
        )

    def __str__(self) -> str:
        return terminal_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return svg_text(self)

    def save(self, path: str | os.PathLike[str], format: str | None = None) -> None:
        """Write it as ``.svg``, ``.html`` or ``.png``, by ``format`` or the path's suffix."""
        output = Path(path)
        format = format or output.suffix.lower()[1:]
        if format not in FORMATS:
            raise InvalidArgument(f"a plot is a .svg, .html or .png file, found {str(output)!r}")
        if format == "svg":
            output.write_text(svg_text(self))
        elif format == "html":
            title = escape(", ".join(self.lines))
            output.write_text(
                f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
                f"{svg_text(self)}</html>\n"
            )
        else:
            _write_png(self, output)

    @property
    def title(self) -> str:
        shown = len(self.lines)
        return self.axis + (f" ({shown} of {self.total} lines)" if self.total > shown else "")


def series_of(table: pa.Table) -> Series:
    """Choose axis and lines of an answer; raises ``InvalidArgument`` if there are none."""
    names, kinds = table.schema.names, table.schema.types
    hidden = {"window_end", "window_id"} if "window_start" in names else set()
    times = [i for i, type_ in enumerate(kinds) if _is_time(type_)]
    numbers = [i for i, type_ in enumerate(kinds) if is_number(type_)]
    axis = next(iter((*times, *numbers)), None)
    drawn = [i for i in numbers if i != axis and names[i] not in hidden]
    if axis is None or not drawn or not table.num_rows:
        raise InvalidArgument(
            "a plot needs rows, a column of times or numbers for the axis and a column of numbers "
            f"to draw; the answer has {table.num_rows} rows of {', '.join(names) or 'nothing'}"
        )
    keys = _keys(table, axis, drawn, hidden)
    drawn = [i for i in drawn if i not in keys]
    if not drawn:
        raise InvalidArgument("a plot needs a column of numbers to draw besides axis and keys")
    x = _numbers(table.column(axis))
    labels = [table.column(i).to_pylist() for i in keys]
    groups: dict[str, list[int]] = {}
    for at in np.argsort(x, kind="stable").tolist():
        groups.setdefault(", ".join(str(column[at]) for column in labels), []).append(at)
    lines: dict[str, Line] = {}
    for key, rows in sorted(groups.items(), key=lambda group: -len(group[1]))[:LINES_MAX]:
        for i in drawn[: LINES_MAX - len(lines)]:
            name = f"{key} {names[i]}" if key and len(drawn) > 1 else key or names[i]
            lines[name] = Line(x[rows], _numbers(table.column(i))[rows])
    return Series(names[axis], axis in times, lines, len(groups) * len(drawn))


def _is_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_))


def _keys(table: pa.Table, axis: int, lines: list[int], hidden: set[str]) -> list[int]:
    """Columns that distinguish rows of one place on the axis; raises ``InvalidArgument``."""
    names = table.schema.names

    def are_keys(columns: list[int]) -> bool:
        plain = pa.table([table.column(i) for i in columns], [str(i) for i in columns])
        return bool(plain.group_by(plain.schema.names).aggregate([]).num_rows == table.num_rows)

    if are_keys([axis]):
        return []
    texts = [
        i
        for i, field in enumerate(table.schema)
        if i not in (axis, *lines)
        and field.name not in hidden
        and not pa.types.is_nested(field.type)
    ]
    whole = [i for i in lines if pa.types.is_integer(table.schema.field(i).type)]
    further = [[*texts, i] for i in whole if len(lines) > 1]
    for columns in ([texts] if texts else []) + further:
        if are_keys([axis, *columns]):
            return columns
    raise InvalidArgument(
        f"several rows share one {names[axis]} and no column of keys tells them apart: select the "
        "columns that the query groups by, or aggregate over them"
    )


def _numbers(column: pa.ChunkedArray) -> Floats:
    """Numbers, or times in seconds since 1970; NaN for nulls."""
    scale = 1.0
    if _is_time(column.type):
        micros = pa.timestamp("us", getattr(column.type, "tz", None))
        column, scale = column.cast(micros, safe=False).cast(pa.int64()), 1e-6
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy()) * scale


def _bounds(values: Floats) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise InvalidArgument("there is nothing but nulls, NaN and infinities to draw")
    low, high = float(finite.min()), float(finite.max())
    pad = (abs(low) * 0.05 or 1.0) if low == high else 0.0
    return low - pad, high + pad


def _label(value: float, span: float, times: bool) -> str:
    if not times:
        return f"{value:,.4g}"
    moment = dt.datetime.fromtimestamp(value, dt.timezone.utc)
    if span > 300 * 86_400:
        return moment.strftime("%Y-%m-%d")
    if span > 2 * 86_400:
        return moment.strftime("%m-%d %H:%M")
    return moment.strftime("%H:%M:%S" if span < 3600 * 3 else "%m-%d %H:%M")


def _thinned(line: Line, columns: int) -> Line:
    """The points, of many the least and the greatest of each pixel column."""
    if len(line.x) <= 4 * columns:
        return line
    x, y = line.x[line.finite], line.y[line.finite]
    low, high = _bounds(x)
    pixel = ((x - low) / (high - low) * columns).astype(np.int64)
    order = np.lexsort((y, pixel))
    first = np.diff(pixel[order], prepend=-1) != 0
    chosen = np.sort(order[first | np.append(first[1:], True)])
    return Line(x[chosen], y[chosen])


def terminal_text(series: Series, width: int = 78, height: int = 18) -> str:
    low_x, high_x, low, high = series.bounds()
    labels = [_label(high, 0, False), _label((low + high) / 2, 0, False), _label(low, 0, False)]
    margin = max(len(label) for label in labels) + 1
    columns = max(10, width - margin - 1)
    grid = np.full((height, columns), " ")
    for mark, line in zip(_MARKS, series.lines.values(), strict=False):
        x, y = line.x[line.finite], line.y[line.finite]
        across = np.rint((x - low_x) / (high_x - low_x) * (columns - 1))
        down = np.rint((high - y) / (high - low) * (height - 1))
        grid[down.astype(np.int64), across.astype(np.int64)] = mark
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
    rows.append(f"{'':>{margin + 1}}{named}   over {series.title}")
    return "\n".join(rows)


def text(value: object, x: float, y: float, *, colour: str = TEXT, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{more}>{escape(str(value))}</text>'


def sheet(width: int, height: int, title: str, parts: list[str]) -> str:
    """A whole SVG on white, with its content as text for screen readers."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" style="max-width:100%;height:auto" '
            'font-family="system-ui, sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def svg_text(series: Series, width: int = 860, height: int = 380) -> str:
    left, right, top, bottom = 70, 20, 34, 46
    low_x, high_x, low, high = series.bounds()
    inner, tall = width - left - right, height - top - bottom
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, y = left + share * inner, height - bottom - share * tall
        parts.append(f'<path d="M{left} {y:.1f}H{width - right}" stroke="#e3e3e3"/>')
        label = _label(low + share * (high - low), 0, False)
        parts.append(text(label, left - 6, y + 4, more=' text-anchor="end"'))
        label = _label(low_x + share * (high_x - low_x), high_x - low_x, series.times)
        parts.append(text(label, x, height - 24, more=' text-anchor="middle"'))
    for number, (name, line) in enumerate(series.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        thin = _thinned(line, inner)
        path, pen = "", "M"
        for x, y in zip(thin.x.tolist(), thin.y.tolist(), strict=True):
            drawn = math.isfinite(x) and math.isfinite(y)
            if drawn:
                across = left + (x - low_x) / (high_x - low_x) * inner
                path += f"{pen}{across:.1f} {top + (high - y) / (high - low) * tall:.1f}"
            pen = "L" if drawn else "M"
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(text(name, left + 150 * number, 20, colour=colour))
    parts.append(text(series.title, left + inner / 2, height - 6, more=' text-anchor="middle"'))
    return sheet(width, height, f"{', '.join(series.lines)} over {series.title}", parts)


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
        x = (line.x * 1e6).astype("datetime64[us]") if series.times else line.x
        axes.plot(x, line.y, label=name)
    axes.set_xlabel(series.title)
    axes.legend()
    figure.savefig(output, format="png", dpi=120)
    pyplot.close(figure)
