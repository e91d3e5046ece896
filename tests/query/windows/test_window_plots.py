"""Plots of answers, in the terminal and as files, and the weights of the cost model."""

from __future__ import annotations

import datetime as dt
import importlib.util
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa
import pytest

from chronicle.commands.output import plot_format
from chronicle.errors import InvalidArgument, MissingDependency
from chronicle.formats.plots import series_of, svg_text, terminal_text


@pytest.fixture
def table() -> pa.Table:
    start = dt.datetime(2020, 1, 1)
    times = [start + dt.timedelta(minutes=i) for i in range(60)]
    values = [math.sin(i / 6) for i in range(60)]
    return pa.table(
        {
            "window_start": times,
            "window_end": times,
            "n": list(range(60)),
            "avg <x>": [None if i == 7 else v for i, v in enumerate(values)],
        }
    )


def test_series(table: pa.Table) -> None:
    """Time is the axis, window_end is not drawn, nulls are gaps, rows are sorted."""
    shuffled = table.take(pa.array([i * 7 % 60 for i in range(60)]))
    series = series_of(shuffled)
    assert series.axis == "window_start"
    assert list(series.lines) == ["n", "avg <x>"]
    assert series.lines["n"].y.tolist() == [float(i) for i in range(60)]
    assert math.isnan(series.lines["avg <x>"].y[7])


def test_each_key_of_a_grouped_window_has_a_line() -> None:
    """Rows of one window are joined by key, of text or of whole numbers, never with each other."""
    hours = [dt.datetime(2020, 1, 1, hour) for hour in range(5)]
    for keys in (["a", "b", None], [3, 1, 2]):
        rows = [(hour, key) for hour in hours for key in keys][:-1]
        table = pa.table(
            {
                "window_start": [hour for hour, _ in rows],
                "window_end": [hour for hour, _ in rows],
                "key": [key for _, key in rows],
                "top": [float(at) for at in range(len(rows))],
            }
        )
        series = series_of(table)
        assert set(series.lines) == {str(key) for key in keys}
        assert [len(line.x) for line in series.lines.values()] == [5, 5, 4]
        assert series.lines[str(keys[1])].y.tolist() == [1.0, 4.0, 7.0, 10.0, 13.0]
        assert all(line.x.tolist() == sorted(line.x) for line in series.lines.values())
        with pytest.raises(InvalidArgument, match="no column of keys"):
            series_of(table.drop_columns(["key"]))


def test_more_keys_than_lines_are_told() -> None:
    """The legend says how many lines are missing."""
    table = pa.table(
        {
            "t": [i // 20 for i in range(60)],
            "k": [f"k{i % 20}" for i in range(60)],
            "x": [float(i) for i in range(60)],
        }
    )
    series = series_of(table)
    assert (len(series.lines), series.total) == (8, 20)
    assert "8 of 20 lines" in terminal_text(series)
    assert "8 of 20 lines" in svg_text(series)


def test_terminal_text(table: pa.Table) -> None:
    """Lines fit the width; the greatest value is in the first row, the least in the last."""
    text = terminal_text(series_of(table.select(["window_start", "n"])), 70, 12).split("\n")
    assert len(text) == 15
    assert all(len(line) <= 70 for line in text)
    assert text[0].rstrip().endswith("•")
    assert text[11].index("•") < 8
    assert "2020" in text[13] or "00:00:00" in text[13]


def test_svg_is_xml_with_a_path_per_line(table: pa.Table, tmp_path: Path) -> None:
    """Names are escaped, a null breaks the line, HTML holds the same picture."""
    root = ET.fromstring(svg_text(series_of(table)))
    paths = [e for e in root if e.tag.endswith("path") and e.get("fill") == "none"]
    assert len(paths) == 2
    assert paths[0].get("d", "").count("M") == 1
    assert paths[1].get("d", "").count("M") == 2
    assert "avg <x>" in [e.text for e in root]
    series_of(table).save(tmp_path / "p.html")
    assert "<svg" in (tmp_path / "p.html").read_text()


def test_png_without_matplotlib_says_what_to_do(table: pa.Table, tmp_path: Path) -> None:
    """A picture where matplotlib is, its name where it is not."""
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(MissingDependency, match="matplotlib"):
            series_of(table).save(tmp_path / "p.png")
    else:
        series_of(table).save(tmp_path / "p.png")
        assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw() -> None:
    """Answers without rows or numbers are refused, constants are not."""
    with pytest.raises(InvalidArgument, match="a column of numbers"):
        series_of(pa.table({"k": ["a"]}))
    with pytest.raises(InvalidArgument):
        series_of(pa.table({"t": pa.array([], pa.int64()), "x": pa.array([], pa.int64())}))
    assert "5" in terminal_text(series_of(pa.table({"t": [1, 2], "x": [5, 5]})))


def test_options_of_plots(tmp_path: Path) -> None:
    """A file's suffix or --format makes a picture, --plot a drawing."""
    assert plot_format("auto", True, None) == "text"
    assert plot_format("auto", False, Path("a.SVG")) == "svg"
    assert plot_format("html", False, Path("a")) == "html"
    assert plot_format("csv", False, Path("a.csv")) is None
    for format, plot, output in (
        ("svg", False, None),
        ("csv", True, None),
        ("auto", True, Path("x")),
    ):
        with pytest.raises(InvalidArgument):
            plot_format(format, plot, output)
