"""Plots of answers."""

from __future__ import annotations

import datetime as dt
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa
import pytest

from chronicle.commands.output import is_plot
from chronicle.errors import InvalidArgument
from chronicle.formats.plots import series_of, svg_text


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
    assert "8 of 20 lines" in svg_text(series)


def test_svg_is_xml_with_a_path_per_line(table: pa.Table, tmp_path: Path) -> None:
    """Names are escaped, a null breaks the line, the file holds the same picture."""
    root = ET.fromstring(svg_text(series_of(table)))
    paths = [e for e in root if e.tag.endswith("path") and e.get("fill") == "none"]
    assert len(paths) == 2
    assert paths[0].get("d", "").count("M") == 1
    assert paths[1].get("d", "").count("M") == 2
    assert "avg <x>" in [e.text for e in root]
    series_of(table).save(tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text() == svg_text(series_of(table))


def test_nothing_to_draw() -> None:
    """Answers without rows or numbers are refused, constants are not."""
    with pytest.raises(InvalidArgument, match="a column of numbers"):
        series_of(pa.table({"k": ["a"]}))
    with pytest.raises(InvalidArgument):
        series_of(pa.table({"t": pa.array([], pa.int64()), "x": pa.array([], pa.int64())}))
    assert ">5<" in svg_text(series_of(pa.table({"t": [1, 2], "x": [5, 5]})))


def test_an_answer_is_drawn_into_a_file_by_its_suffix() -> None:
    assert is_plot("auto", Path("a.SVG"))
    assert not is_plot("csv", Path("a.svg"))
    assert not is_plot("auto", Path("a.csv"))
    assert not is_plot("auto", None)
