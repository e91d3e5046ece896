"""docs/live.md and docs/rollups.md are true: their statements give what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import chronicle
from chronicle.live.options import OPTIONS
from chronicle.live.sources import AHEAD_SECONDS

DOCS = Path(__file__).parents[2] / "docs"
PAGE, ROLLUPS = ((DOCS / name).read_text(encoding="utf-8") for name in ("live.md", "rollups.md"))


def statements(page: str) -> list[str]:
    blocks = re.findall(r"^```sql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return [text.strip() for block in blocks for text in block.split(";\n") if text.strip()]


def test_the_examples_run(tmp_path: Path) -> None:
    answers: dict[str, Any] = {}
    with chronicle.open(tmp_path) as db:
        for text in statements(PAGE):
            if text.startswith("INSERT"):
                db.run_live()  # so that it is late
            answers[text.splitlines()[0]] = db.sql(text).fetchall()
            db.run_live()
    assert answers["SELECT icao24, high, low FROM NET(descents)"] == [("a1", 11000.0, 9100.0)]
    changes = next(rows for text, rows in answers.items() if text.startswith("SELECT _seq"))
    shown = re.search(r"_seq  _diff  _rev.*?\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    wanted = [tuple(line.split()) for line in shown.group(1).splitlines()]
    assert [tuple(str(v).removesuffix(".0") for v in row) for row in changes] == wanted
    assert len(next(rows for text, rows in answers.items() if text.startswith("SHOW"))) == 2
    joined = re.search(r"timestamp +altitude +text\n(.*?)```", PAGE, re.DOTALL)
    assert joined is not None
    lines = [(line[:19], *line[19:].split()) for line in joined.group(1).splitlines()]
    found = answers["SELECT timestamp, altitude, text FROM NET(explained) ORDER BY timestamp"]
    assert [(str(t), f"{high:.0f}", text or "NULL") for t, high, text in found] == lines
    assert answers["SELECT icao24, before, after FROM NET(thinning)"] == [("a1", 4, 1)]


def test_the_examples_of_rollups_run(tmp_path: Path) -> None:
    answers: dict[str, Any] = {}
    with chronicle.open(tmp_path) as db:
        for text in statements(ROLLUPS):
            said = re.sub(r"\bSELECT window_start, icao24, count", "SELECT /*+ rollups(always) */ "
                          "window_start, icao24, count", text)  # fmt: skip
            answers[text.split()[0] + str(len(answers))] = db.sql(said).fetchall()
            db.run_live()
    plan = "\n".join(line for (line,) in next(v for k, v in answers.items() if "EXPLAIN" in k))
    shown = re.search(r"^```\n(RollupWindows.*?)```", ROLLUPS, re.DOTALL | re.MULTILINE)
    assert shown is not None
    for line in shown.group(1).splitlines():
        assert line.strip("│└─ ") in plan, line
    rows = answers["SELECT4"]
    assert [(row[2], row[3]) for row in rows] == [(2, 7000.0), (1, 2000.0)]
    assert [row[1:] for row in answers["SELECT5"]] == [
        ("a1", 2, 3000.0), ("b2", 1, 9500.0), ("a1", 1, 800.0)
    ]  # fmt: skip


def test_names_and_figures_are_those_of_the_code() -> None:
    for option in OPTIONS:
        assert f"`{option}`" in PAGE
    assert AHEAD_SECONDS == 3600
    for method in ("status", "rows", "net", "pause", "resume", "refresh", "verify", "drop"):
        assert f"`{method}(" in PAGE
