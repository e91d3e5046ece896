"""Rows as they are shown and written: tables, pipes, files, scripts, parameters."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronicle.commands.options import parameters
from chronicle.commands.session import is_complete
from chronicle.errors import InvalidArgument
from chronicle.query.sql.first_word import only_reads, split

from .conftest import Run


def test_a_table_in_a_pipe_is_plain(run: Run, sensors: Path) -> None:
    outcome = run(
        "sql",
        "SELECT t, x, name, CAST(NULL AS VARCHAR) AS nothing FROM sensors WHERE x > 4 ORDER BY t",
    )
    assert outcome.code == 0
    assert outcome.out == (
        "t                      x  name    nothing\n"
        "-------------------  ---  ------  -------\n"
        "2020-01-09 00:00:00  4.5  pump 1  NULL\n"
        "2020-01-10 00:00:00  5.0  pump 0  NULL\n"
    )
    assert run("sql", "SELECT x FROM sensors WHERE x > 99").out == "x\n-\n"


def test_answers_in_every_format(run: Run, sensors: Path, tmp_path: Path) -> None:
    text = "SELECT t, x, name FROM sensors WHERE x >= 4.5 ORDER BY t"
    rows = [{"t": "2020-01-09T00:00:00", "x": 4.5, "name": "pump 1"},
            {"t": "2020-01-10T00:00:00", "x": 5.0, "name": "pump 0"}]  # fmt: skip
    assert json.loads(run("sql", "-f", "json", text).out) == rows
    assert [json.loads(line) for line in run("sql", "-f", "ndjson", text).out.splitlines()] == rows
    assert run("sql", "-f", "csv", text).out == (
        "t,x,name\n2020-01-09 00:00:00,4.5,pump 1\n2020-01-10 00:00:00,5.0,pump 0\n"
    )
    for name in ("o.parquet", "o.arrow"):
        assert run("sql", "-o", name, text).code == 0
    assert pq.read_table(tmp_path / "o.parquet")["x"].to_pylist() == [4.5, 5.0]
    with pa.ipc.open_file(tmp_path / "o.arrow") as reader:
        assert reader.read_all().to_pydict()["name"] == ["pump 1", "pump 0"]
    assert run("sql", "-o", "o.csv", text).out == ""
    assert (tmp_path / "o.csv").read_text().count("\n") == 3
    assert run("sql", "-o", "gone/o.csv", text).code == 2
    assert not list(tmp_path.glob(".*partial"))


def test_scripts_and_parameters(run: Run, sensors: Path, tmp_path: Path) -> None:
    script = """
      -- a comment; with a semicolon
      CREATE STREAM marks (t TIMESTAMP, note VARCHAR) TIMESTAMP BY t;
      INSERT INTO marks VALUES (TIMESTAMP '2020-01-01 00:00:00', 'a;b');
      SELECT count(*) AS n FROM marks WHERE note = 'a;b';
    """
    piped = run("sql", "-f", "ndjson", stdin=script.encode())
    assert piped.code == 0, piped.err
    assert json.loads(piped.out.splitlines()[-1]) == {"n": 1}
    (tmp_path / "q.sql").write_text(
        "SELECT count(*) AS n FROM sensors WHERE x > $low AND name = $who"
    )
    outcome = run("sql", "--file", "q.sql", "-f", "ndjson", "-p", "low=2.5", "-p", "who=pump 1")
    assert json.loads(outcome.out) == {"n": 2}


def test_timeouts(run: Run, sensors: Path) -> None:
    slow = "SELECT count(*) FROM " + ", ".join(f"sensors {letter}" for letter in "abcdefghi")
    outcome = run("sql", "--timeout", "0.3", slow)
    assert outcome.code == 1
    assert "time" in outcome.err.lower()


def test_values_of_parameters() -> None:
    assert parameters(["a=1", "b=1.5", "c=true", "d=null", "e=x=y", "f='007'", "$g="]) == {
        "a": 1, "b": 1.5, "c": True, "d": None, "e": "x=y", "f": "007", "g": "",
    }  # fmt: skip
    assert parameters(["a=1_0", "b=nan", "c=\u0661"]) == {"a": "1_0", "b": "nan", "c": "\u0661"}
    for items in (["=1"], ["n=1", "$n=2"], ["n=1e400"]):
        with pytest.raises(InvalidArgument):
            parameters(items)


def test_cutting_scripts() -> None:
    script = "SELECT ';' -- ;\n; /* ; */ SELECT \";\";;\n SELECT $x$;$x$ -- end"
    assert split(script) == ["SELECT ';' -- ;", '/* ; */ SELECT ";"', "SELECT $x$;$x$ -- end"]
    assert split(" ; -- nothing\n ;") == []
    assert split(r"SELECT E'\';'; SELECT 'a\'; b") == [r"SELECT E'\';'", r"SELECT 'a\'", "b"]
    assert is_complete("SELECT 1;")
    assert is_complete("SELECT 1; -- done")
    assert not is_complete("SELECT 1")
    assert not is_complete("SELECT 'a;")
    assert not is_complete("SELECT 1 /* ;")
    assert only_reads("-- x\n (SELECT 1)")
    assert only_reads("show streams")
    assert not only_reads("INSERT INTO s SELECT 1")
    assert not only_reads("")


def test_names_of_answers_say_known_formats(run: Run, sensors: Path, tmp_path: Path) -> None:
    for name in ("x.xlsx", "x.tsv", "x.txt", "x.geojson", "x.csv2"):
        outcome = run("sql", "-o", name, "SELECT x FROM sensors")
        assert outcome.code == 2, name
        assert "says no format" in outcome.err
        assert not (tmp_path / name).exists()
    assert run("sql", "-f", "csv", "-o", "x.txt", "SELECT x FROM sensors LIMIT 1").code == 0
    assert (tmp_path / "x.txt").read_bytes() == b"x\n0.5\n"
    for name in ("x.arrow", "x.feather", "x.ipc"):
        assert run("sql", "-o", name, "SELECT x FROM sensors").code == 0
        with pa.ipc.open_file(tmp_path / name) as reader:
            assert reader.read_all().num_rows == 10
        outcome = run("ingest", name, "--stream", name[2:], "--time", "x", "--create")
    assert run("sql", "-o", "x.arrows", "SELECT x FROM sensors").code == 0
    with pa.ipc.open_stream(tmp_path / "x.arrows") as reader:
        assert reader.read_all().num_rows == 10


def shown(table: pa.Table, width: int) -> tuple[str, list[str]]:
    from rich.console import Console

    from chronicle.formats.text_tables import terminal_table

    drawn, _, _, hidden = terminal_table(table.to_batches(), table.schema, 100, width)
    out = io.StringIO()
    Console(file=out, width=width).print(drawn)
    return out.getvalue(), hidden


@pytest.mark.parametrize("width", [30, 60, 80, 100, 200])
def test_a_narrow_terminal_cuts_no_number(width: int) -> None:
    columns = {
        "timestamp": pa.array([1533099600000000], pa.timestamp("us")),
        "altitude": [38000.0],
        "callsign": ["a call sign that is longer than others"],
        "groundspeed": [451.123456789],
        "icao24": ["4b1803"],
        "latitude": [47.123456789012],
        "longitude": [8.987654321098],
        "track": [123456789012],
        "verticalrate": [-64.0],
    }
    text, hidden = shown(pa.table(columns), width)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    assert ("…" in text) == bool(hidden)
    assert not hidden or width < 200
    whole = ["2018-08-01 05:00:00", "38000.0", "451.123456789", "47.123456789012"]
    whole += ["8.987654321098", "123456789012", "-64.0"]
    numbers = re.findall(r"[-\d][-\d.: ]*[\d]", "\n".join(line for line in lines if "│" in line))
    assert {number for number in numbers if "." in number or len(number) > 8} <= set(whole)
    assert "2018-08-01 05:00:00" in text
