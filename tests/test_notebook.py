"""``%load_ext chronicle``: a notebook's cells of SQL, as IPython runs them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.drawing.matches import LANES_MAX, Matches
from chronicle.query.contract.explanation import Plan
from chronicle.query.contract.result import Result

FALLS = """SELECT * FROM ev MATCH_RECOGNIZE (PARTITION BY k ORDER BY t
  MEASURES A.x AS x PATTERN (A B+) DEFINE B AS x < PREV(x))"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with chronicle.open(tmp_path / "store") as db:
        schema = pa.schema([("t", pa.timestamp("us")), ("k", pa.string()), ("x", pa.int64())])
        begin = dt.datetime(2026, 1, 1)
        db.create_stream("ev", schema, time="t").append(
            [
                {"t": begin + dt.timedelta(minutes=i), "k": "ab"[i % 2] + "<b>", "x": 10 - i % 7}
                for i in range(60)
            ]
        )
    return tmp_path / "store"


@pytest.fixture
def shell(store: Path) -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    settings = Config({"HistoryManager": {"enabled": False}})
    made = InteractiveShell(config=settings)
    made.run_line_magic("load_ext", "chronicle")
    yield made
    made.run_line_magic("unload_ext", "chronicle")


def drawn(shell: Any, value: Any) -> str:
    formats, _ = shell.display_formatter.format(value)
    return str(formats.get("text/html", ""))


def test_a_cell_of_sql_is_a_table(shell: Any, store: Path) -> None:
    database = shell.run_line_magic("chronicle", str(store))
    assert isinstance(database, Database)
    assert database.mode == "r"
    shell.user_ns["least"] = 9
    text = "SELECT k, count(*) AS n FROM ev WHERE x >= $least GROUP BY 1 ORDER BY 1; -- all"
    result = shell.run_cell_magic("chronicle", "-o found", text)
    assert isinstance(result, Result)
    shown = drawn(shell, result)
    assert "<table>" in shown
    assert "a&lt;b&gt;" in shown
    assert shell.user_ns["found"].df()["n"].sum() == 18


def test_explain_is_drawn_with_what_was_replayed(shell: Any, store: Path) -> None:
    plan = shell.run_cell_magic("chronicle", str(store), f"EXPLAIN ANALYZE {FALLS}")
    assert isinstance(plan, Plan)
    shown = drawn(shell, plan)
    assert "<svg" in shown
    assert "History map: replayed 100%" in shown
    assert "actual:" in shown
    again = Plan.from_dict(plan.to_dict())  # as a client gets it from a server
    assert drawn(shell, again) == shown


def test_matches_are_drawn(shell: Any, store: Path) -> None:
    matches = shell.run_cell_magic("chronicle", f"{store} --matches", FALLS)
    assert isinstance(matches, Matches)
    assert len(matches.spans) == len(chronicle.open(store, mode="r").sql(FALLS).fetchall())
    shown = drawn(shell, matches)
    assert shown.startswith("<svg")
    assert "a&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert shown.count("<circle") >= len(matches.spans)
    nothing = shell.run_cell_magic("chronicle", "--matches", FALLS.replace("x < P", "x > 99 + P"))
    assert "No match" in drawn(shell, nothing)


def test_frames_and_databases_of_the_notebook(shell: Any, store: Path) -> None:
    shell.user_ns["names"] = pd.DataFrame({"k": ["a<b>"], "name": ["Anna"]})
    with chronicle.open(store) as database:
        shell.user_ns["db"] = database
        result = shell.run_cell_magic(
            "chronicle", "db --with names", "SELECT DISTINCT name FROM ev JOIN names USING (k)"
        )
        assert result.fetchall() == [("Anna",)]
        shell.run_line_magic("chronicle", str(store))  # another one: the first is not ours to close
        assert database.streams() == ["ev"]


@pytest.mark.parametrize(
    ("line", "cell", "said"),
    [
        ("", "SELECT z FROM ev", r"no column 'z'.*\n.*\n +\^"),
        ("", "SELECT x FROM ev WHERE x > $unknown", "no such variable"),
        ("--with nothing", "SELECT 1", "no variable 'nothing'"),
        ("", "INSERT INTO ev VALUES ('2027-01-01', 'k', 1)", "mode='r'"),
        ("--matches", "SELECT 1", "no MATCH_RECOGNIZE"),
    ],
)
def test_errors_are_one_message(shell: Any, store: Path, line: str, cell: str, said: str) -> None:
    from IPython.core.error import UsageError

    shell.run_line_magic("chronicle", str(store))
    with pytest.raises(UsageError) as caught:
        shell.run_cell_magic("chronicle", line, cell)
    assert re.search(said, str(caught.value)), caught.value


def test_without_a_place_it_says_how_to_name_one(shell: Any) -> None:
    from IPython.core.error import UsageError

    with pytest.raises(UsageError, match="first say where"):
        shell.run_cell_magic("chronicle", "", "SELECT 1")


def test_many_lanes_are_cut_with_a_word() -> None:
    from chronicle.drawing.matches import MatchSpan, matches_svg

    spans = tuple(MatchSpan(f"key {i}", i, i + 5, {0: (i, i, 1)}) for i in range(100))
    shown = matches_svg(Matches(("A",), None, spans))
    assert f"{100 - LANES_MAX} lanes are not drawn" in shown
    assert "key 99" not in shown
