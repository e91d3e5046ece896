"""docs/rollups.md is true: its statements run in order and give what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import chronicle

PAGE = (Path(__file__).parents[2] / "docs" / "rollups.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path: Path) -> None:
    answers: dict[str, Any] = {}
    blocks = re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    texts = [text.strip() for block in blocks for text in block.split(";\n") if text.strip()]
    with chronicle.open(tmp_path) as db:
        for text in texts:
            said = re.sub(r"\bSELECT window_start, icao24, count", "SELECT /*+ rollups(always) */ "
                          "window_start, icao24, count", text)  # fmt: skip
            answers[text.split()[0] + str(len(answers))] = db.sql(said).fetchall()
            db.run_live()
    plan = "\n".join(line for (line,) in next(v for k, v in answers.items() if "EXPLAIN" in k))
    shown = re.search(r"^```\n(RollupWindows.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    assert shown is not None
    for line in shown.group(1).splitlines():
        assert line.strip("│└─ ") in plan, line
    rows = answers["SELECT4"]
    assert [(row[2], row[3]) for row in rows] == [(2, 7000.0), (1, 2000.0)]
    assert [row[1:] for row in answers["SELECT5"]] == [
        ("a1", 2, 3000.0), ("b2", 1, 9500.0), ("a1", 1, 800.0)
    ]  # fmt: skip
